"""Mutants of shards compared with what a detector predicts: PRD. Each is a folder with a JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.mutants.fidelity import BOTH, CAT, DOG, SHARD, Box, labelled, moved
from tests.mutants.registry import Inside, Mutant, fail, mutants_of, near
from tests.mutants.sound import LABEL_MAP, shard

OPTIONS = {"profile": "cvat", "predictions": Inside("detections.json")}
HOW = {"at": SHARD, "record": 0, "options": OPTIONS}
IDS = {"cat": 1, "dog": 2}
# Two rows of six cats.
GRID = [("cat", (10 + 60 * x, 10 + 90 * y, 50 + 60 * x, 80 + 90 * y))
        for y in range(2) for x in range(6)]  # fmt: skip


def detections(
    boxes: Sequence[tuple[str, Box]], image: object = "a", score: float = 0.9
) -> list[dict[str, Any]]:
    """COCO results of one image; boxes are corners in pixels."""
    return [
        {
            "image_id": image,
            "category_id": IDS[name],
            "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
            "score": score,
        }
        for name, box in boxes
    ]


def files(boxes: Sequence[tuple[str, Box]], found: object) -> dict[str, bytes]:
    """A record of these boxes, and what is detected."""
    return {
        SHARD: shard(labelled("a.jpg", *boxes)),
        "label_map.pbtxt": LABEL_MAP,
        "detections.json": json.dumps(found).encode(),
    }


@mutants_of("PRD001")
def overlooked_object() -> Iterator[Mutant]:
    yield fail("dog-not-annotated", files(BOTH[:1], detections(BOTH)), "LAB013", **HOW)
    twice = [*BOTH, ("dog", moved(DOG, 20))]
    yield near("predicted-twice", files(BOTH, detections(twice)), options=OPTIONS)
    unsure = [*detections(BOTH[:1]), *detections(BOTH[1:], score=0.4)]
    yield near("not-confident", files(BOTH[:1], unsure), "LAB013", options=OPTIONS)


@mutants_of("PRD002")
def swapped_class() -> Iterator[Mutant]:
    dogs = [("dog", CAT), BOTH[1]]
    yield fail("cat-called-dog", files(dogs, detections(BOTH)), "LAB013", **HOW)
    both = [("cat", CAT), ("dog", CAT)]
    yield near("both-in-one-place", files(both, detections(both[::-1])), options=OPTIONS)


@mutants_of("PRD003")
def badly_located_box() -> Iterator[Mutant]:
    half = [("cat", moved(CAT, 40)), BOTH[1]]
    yield fail("by-half-its-width", files(half, detections(BOTH)), **HOW)
    tenth = [("cat", moved(CAT, 8)), BOTH[1]]
    yield near("by-a-tenth", files(tenth, detections(BOTH)), options=OPTIONS)


@mutants_of("PRD004")
def spurious_box() -> Iterator[Mutant]:
    cats = [*BOTH, ("cat", (200, 100, 300, 190))]
    yield fail("another-cat", files([*BOTH, ("cat", (130, 0, 190, 50))], detections(BOTH)), **HOW)
    yield near("touched", files(cats, detections(BOTH)), options=OPTIONS)
    yield near("class-that-is-not-predicted", files(BOTH, detections(BOTH[:1])), options=OPTIONS)


@mutants_of("PRD005")
def unmatched_predictions() -> Iterator[Mutant]:
    found = detections(BOTH)
    yield fail("another-image", files(BOTH, found + detections(BOTH, "b")), options=OPTIONS)
    yield fail("no-such-class", files(BOTH, [*found, {**found[0], "category_id": 7, "score": 0.2}]),
               options=OPTIONS)  # fmt: skip
    broken = [*found, {**found[0], "bbox": [0, 0, float("nan"), 1]}]
    yield fail("not-finite", files(BOTH, broken), options=OPTIONS)
    parts = [{**one, "bbox": [side / 400 for side in one["bbox"]]} for one in found]
    yield fail("normalized", files(BOTH, parts), options=OPTIONS)
    corners = [{**one, "bbox": box} for one, (_, box) in zip(detections(GRID), GRID, strict=True)]
    yield fail("corners", files(GRID, corners), "LAB013", options=OPTIONS)
    far = [*found, {**found[0], "bbox": [300, 150, 200, 40]}]
    yield near("one-beyond-the-image", files(BOTH, far), "PRD001", options=OPTIONS)
    yield near("full-name-as-id", files(BOTH, detections(BOTH, "x/a.jpg")), options=OPTIONS)


@mutants_of("PRD006")
def class_disagreement() -> Iterator[Mutant]:
    dogs = [("dog", box) for _, box in GRID]
    yield fail("all-cats-are-dogs", files(GRID, detections(dogs)), "LAB013", options=OPTIONS)
    shifted = [{**one, "category_id": one["category_id"] - 1} for one in detections(GRID)]
    yield fail("counted-from-0", files(GRID, shifted), "LAB013", "PRD005", options=OPTIONS)
    yield near("half-of-them", files(GRID, detections([*GRID[:6], *dogs[6:]])), "LAB013", "PRD002",
               options=OPTIONS)  # fmt: skip
