"""Mutants of shards compared with their source: FID. Each is a folder with a COCO file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.mutants.registry import Inside, Mutant, fail, mutants_of, near
from tests.mutants.sound import LABEL_MAP, shard
from tests.records import encode, objects

SHARD = "default.tfrecord"
AGAINST = {"profile": "cvat", "against": Inside("coco.json")}
HOW = {"at": SHARD, "record": 0, "options": AGAINST}
WIDTH, HEIGHT = 400, 200

Box = tuple[float, float, float, float]
CAT: Box = (40, 20, 120, 80)
DOG: Box = (200, 60, 360, 160)
SIDE = (0, 0, 0, 60)


def labelled(name: str, *boxes: tuple[str, Box]) -> bytes:
    """A record of annotations alone; boxes are corners in pixels."""
    size = {"image/height": HEIGHT, "image/width": WIDTH}
    scale = (WIDTH, HEIGHT, WIDTH, HEIGHT)
    corners = [[side / one for side, one in zip(box, scale, strict=True)] for _, box in boxes]
    text = [name for name, _ in boxes]
    label = [{"cat": 1, "dog": 2}[one] for one in text]
    rest = {"image/filename": name, "image/source_id": name, **size}
    return encode({**rest, **(objects(corners, text, label) if boxes else {})})


def coco(
    boxes_of: Mapping[str, Sequence[tuple[str, Box]]], width: int = WIDTH, height: int = HEIGHT
) -> bytes:
    """A COCO file of these boxes_of."""
    ids = {"cat": 1, "dog": 2}
    images = [
        {"id": number, "file_name": name, "height": height, "width": width}
        for number, name in enumerate(boxes_of)
    ]
    annotations = [
        {"id": 1, "image_id": number, "category_id": ids[name], "bbox": _xywh(box)}
        for number, boxes in enumerate(boxes_of.values())
        for name, box in boxes
    ]
    categories = [{"id": number, "name": name} for name, number in ids.items()]
    parts = {"images": images, "annotations": annotations, "categories": categories}
    return json.dumps(parts).encode()


def _xywh(box: Box) -> list[float]:
    xmin, ymin, xmax, ymax = box
    return [xmin, ymin, xmax - xmin, ymax - ymin]


BOTH = (("cat", CAT), ("dog", DOG))


def files(*boxes: tuple[str, Box], source: Any = None, more: Sequence[bytes] = ()) -> dict:
    """A record of these boxes against a source, which has a cat and a dog unless given."""
    boxes_of = {"a.jpg": BOTH} if source is None else source
    return {
        SHARD: shard(labelled("a.jpg", *boxes), *more),
        "label_map.pbtxt": LABEL_MAP,
        "coco.json": coco(boxes_of),
    }


def moved(box: Box, right: float) -> Box:
    """The box, shifted to the right."""
    return box[0] + right, box[1], box[2] + right, box[3]


@mutants_of("FID001")
def missing_box() -> Iterator[Mutant]:
    yield fail("one-of-two", files(("cat", CAT)), "LAB013", **HOW)
    yield near("another-order", files(*BOTH[::-1]), options=AGAINST)


@mutants_of("FID002")
def extra_box() -> Iterator[Mutant]:
    source = {"a.jpg": BOTH[:1]}
    yield fail("one-of-two", files(*BOTH, source=source), **HOW)
    yield near("same-box-twice-in-both", files(*BOTH, ("cat", CAT), source={
        "a.jpg": (*BOTH, ("cat", CAT))}), "BOX009", options=AGAINST)  # fmt: skip


@mutants_of("FID003")
def moved_box() -> Iterator[Mutant]:
    yield fail("1.1-pixels", files(("cat", moved(CAT, 1.1)), BOTH[1]), **HOW)
    yield near("one-pixel", files(("cat", moved(CAT, 1)), BOTH[1]), options=AGAINST)


@mutants_of("FID004")
def changed_class() -> Iterator[Mutant]:
    yield fail("cat-to-dog", files(("dog", CAT), BOTH[1]), "LAB013", **HOW)
    near_by = {"a.jpg": (("cat", CAT), ("dog", CAT))}
    yield near("both-in-one-place", files(("dog", CAT), ("cat", CAT), source=near_by),
               options=AGAINST)  # fmt: skip


@mutants_of("FID005")
def missing_image() -> Iterator[Mutant]:
    source = {"a.jpg": BOTH, "b.jpg": BOTH}
    yield fail("one-of-two", files(*BOTH, source=source), options=AGAINST)
    both = files(*BOTH, source=source, more=[labelled("b.jpg", *BOTH)])
    yield near("both-there", both, options=AGAINST)


@mutants_of("FID006")
def unknown_image() -> Iterator[Mutant]:
    more = [labelled("b.jpg", *BOTH)]
    yield fail("one-more", files(*BOTH, more=more), at=SHARD, record=1, options=AGAINST)
    alike = {"x/a.jpg": BOTH, "y/a.jpg": BOTH}
    yield fail("of-two-folders", files(*BOTH, source=alike), **HOW)
    yield near("of-a-folder", files(*BOTH, source={"x/a.jpg": BOTH}), options=AGAINST)


@mutants_of("FID007")
def swapped_sides() -> Iterator[Mutant]:
    exchanged = [(name, (box[1], box[0], box[3], box[2])) for name, box in BOTH]
    yield fail("x-and-y", files(*exchanged), "BOX003", **HOW)
    square: Box = (50, 50, 150, 150)
    source = {"a.jpg": (("cat", square), ("dog", DOG))}
    yield near("on-the-diagonal", files(("cat", square), BOTH[1], source=source), options=AGAINST)


@mutants_of("FID008")
def missing_background() -> Iterator[Mutant]:
    source = {"a.jpg": BOTH, "b.jpg": ()}
    yield fail("no-record", files(*BOTH, source=source), options=AGAINST)
    bare = files(*BOTH, source=source, more=[labelled("b.jpg")])
    yield near("record-without-boxes", bare, options=AGAINST)


@mutants_of("FID009")
def other_size() -> Iterator[Mutant]:
    def drawn_on(width: int, height: int) -> dict[str, bytes]:
        """The same fractions of an image of another size."""
        scale = (width / WIDTH, height / HEIGHT) * 2
        boxes = [
            (name, tuple(side * by for side, by in zip(box, scale, strict=True)))
            for name, box in BOTH
        ]
        said = coco({"a.jpg": boxes}, width=width, height=height)
        return {**files(*BOTH), "coco.json": said}

    yield fail("cropped", drawn_on(WIDTH, HEIGHT - 20), **HOW)
    yield fail("turned", drawn_on(HEIGHT, WIDTH), **HOW)
    yield fail("resized", drawn_on(2 * WIDTH, 2 * HEIGHT), **HOW)
    unknown = {**files(*BOTH), "coco.json": coco({"a.jpg": BOTH}, 0, 0)}
    yield near("of-no-size", unknown, options=AGAINST)
    yield near("same-size", drawn_on(WIDTH, HEIGHT), options=AGAINST)
