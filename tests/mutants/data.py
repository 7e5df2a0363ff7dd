"""Mutants of what the data are like: DAT. They are checked with ``--hints``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.mutants.registry import Content, Mutant, fail, mutants_of, near
from tests.mutants.sets import together
from tests.mutants.sound import CAT_BOX, DOG_BOX, TF, jpeg, shard, with_boxes

HINTS = {**TF, "hints": True}
_IDS = {"cat": 1, "dog": 2}
_BOXES = (CAT_BOX, DOG_BOX)


def image(number: int, classes: Sequence[str], boxes: Sequence[Sequence[float]] = _BOXES) -> bytes:
    """A record of its own image, with objects of these classes."""
    labels = [_IDS[one] for one in classes]
    named = {"filename": f"{number}.jpg", "source_id": f"{number}"}
    changes = {**named, "encoded": jpeg(quality=number % 90 + 10)}
    return with_boxes(boxes[: len(classes)], classes, labels, **changes)


def subsets(**classes: Sequence[Sequence[str]]) -> Content:
    """A shard for each subset, whose images have objects of these classes."""
    files, number = {}, 0
    for name, images in classes.items():
        files[f"{name}.tfrecord"] = shard(
            *(image(number + at, one) for at, one in enumerate(images))
        )
        number += len(images)
    return together(files)


_BOTH = [["cat", "dog"]] * 4


@mutants_of("DAT001")
def class_missing() -> Iterator[Mutant]:
    yield fail("no-dog-in-val", subsets(train=_BOTH, val=[["cat"]] * 4), options=HINTS)
    yield near("both-in-val", subsets(train=_BOTH, val=_BOTH), options=HINTS)


@mutants_of("DAT002")
def class_without_training() -> Iterator[Mutant]:
    yield fail("no-dog-in-train", subsets(train=[["cat"]] * 4, val=_BOTH), options=HINTS)
    yield near("both-in-train", subsets(train=_BOTH, val=_BOTH), options=HINTS)
