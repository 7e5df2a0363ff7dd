"""Compares the boxes of a record with those of the annotations that it was made from.

They are paired in rounds (:mod:`tfod.detection.box_pairs`): the same class in the same place;
another class in the same place; the same class with x and y exchanged; the same class that
overlaps. What is left is missing or extra.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfod.check.rules.references.fidelity import (
    NamedBox,
    changed_class,
    extra_box,
    missing_background,
    missing_box,
    missing_image,
    moved_box,
    other_size,
    swapped_sides,
    unknown_image,
)
from tfod.check.rules.registry import RuleProblems
from tfod.detection.box_pairs import NO_CLASS, PIXEL, Pairs, TwoSides, Unpaired

if TYPE_CHECKING:
    from tfod.check.records.batch import Batch
    from tfod.check.references.annotations.annotations import Annotations, SourceImage
    from tfod.detection.labels.label_map import LabelMap

_CANDIDATES = 10
_SWAP = [1, 0, 3, 2]
_NO_SHIFT = np.zeros(4)
# Of pixels counted from 1: taken as they are (the OD API's scripts), one less on all sides
# (Datumaro), or one less where a box starts, which makes it half-open.
_SHIFTS_FROM_ONE = (_NO_SHIFT, np.full(4, -1.0), np.array([-1.0, -1.0, 0.0, 0.0]))


def compare(
    annotations: Annotations,
    filename: str,
    height: int | None,
    width: int | None,
    boxes: np.ndarray,
    classes: Sequence[str | None],
) -> RuleProblems:
    """Compare a record with the source.

    Normalized boxes are scaled by the size that the source gives for the image, so that a
    resized image compares equal, and by the record's own where it gives none.

    Args:
        annotations: the source.
        filename: of the record.
        height: of the record's image in pixels.
        width: likewise.
        boxes: of the record, normalized, of shape (n, 4): ``xmin, ymin, xmax, ymax``.
        classes: n names; None where a record has no name for a box, which goes with any class.
            Another number of names says nothing of the boxes: then none is used.

    Returns:
        What rules say of what differs; nothing when neither side knows the image's size.
    """
    found = annotations.find(filename)
    if len(found) != 1:
        first = [annotations.images[place].name for place in found[:_CANDIDATES]]
        return unknown_image(filename, first, len(found))
    image = annotations.images[found[0]]
    if len(classes) != len(boxes):
        classes = [None] * len(boxes)
    source_size = (image.width or width or 0, image.height or height or 0)
    if 0 in source_size:
        return []
    scale = np.array(source_size * 2, "<f8")
    # A pixel of whichever image has the larger ones.
    own = np.array([width or source_size[0], height or source_size[1]] * 2, "<f8")
    shard = np.asarray(boxes, "<f8").reshape(-1, 4) * scale
    tolerance = PIXEL * np.maximum(1.0, scale / np.maximum(own, 1))
    codes = _codes(image.classes, classes)
    pairings = [
        _Pairing(image.boxes + shift, shard, tolerance, codes, scale)
        for shift in (_SHIFTS_FROM_ONE if annotations.from_one else (_NO_SHIFT,))
    ]
    with np.errstate(all="ignore"):
        if any(pairing.is_clean_in_order() for pairing in pairings):
            return []
        results = [_pair(pairing) for pairing in pairings]
    best = min(range(len(results)), key=lambda one: results[one].differences)
    if not results[best].differences:
        return []
    return _differences(pairings[best], results[best], image, classes, shifted=best > 0)


def sizes_of(
    annotations: Annotations, filename: str, height: int | None, width: int | None
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Width and height of a record's image and of the source's; None where one is not known."""
    found = annotations.find(filename)
    image = annotations.images[found[0]] if len(found) == 1 else None
    if image is None or not (width and height and image.width and image.height):
        return None
    return (width, height), (image.width, image.height)


def compare_batch(
    annotations: Annotations,
    batch: Batch,
    label_map: LabelMap | None,
    seen: set[int],
    found: set[int],
) -> Iterator[tuple[int, RuleProblems]]:
    """The rows of a batch, and what rules say of their difference from the source.

    Args:
        annotations: the source.
        batch: of records.
        label_map: names the classes of boxes that have an id alone.
        seen: gets the places of the images that are there.
        found: ids of the tuples of places that it has got; of one name it is always the same tuple.
    """
    boxes, sizes = batch.boxes, batch.stated_sizes.tolist()
    for row in np.flatnonzero(batch.live).tolist():
        name = batch.detections.filenames[row] or ""
        places = annotations.find(name)
        if id(places) not in found:
            found.add(id(places))
            seen.update(places)
        height, width = (None if math.isnan(one) else int(one) for one in sizes[row])
        image_sizes = sizes_of(annotations, name, height, width)
        if image_sizes is not None:
            yield row, other_size(*image_sizes)
        corners = boxes.of(row)
        names: list[str | None] = []
        for one in boxes.classes[row] or (None,) * len(corners):
            if isinstance(one, int) and label_map is not None:
                item = label_map.find_id(one)
                one = item.class_name if item else None
            names.append(one if isinstance(one, str) else None)
        yield row, compare(annotations, name, height, width, corners, names)


def missing_images(annotations: Annotations, seen: Set[int]) -> RuleProblems:
    """What rules say of the source's images but for those at the places that were seen."""
    missing = [one for place, one in enumerate(annotations.images) if place not in seen]
    found = [missing_image(one.name, len(one.boxes)) for one in missing if len(one.boxes)]
    found.append(missing_background([one.name for one in missing if not len(one.boxes)]))
    return [*itertools.chain.from_iterable(found)]


def _codes(source: Sequence[str], shard: Sequence[str | None]) -> tuple[np.ndarray, np.ndarray]:
    """Class names as small numbers, which compare fast."""
    numbers: dict[str | None, int] = {None: NO_CLASS}
    first = [numbers.setdefault(name, len(numbers)) for name in source]
    second = [numbers.setdefault(name, len(numbers)) for name in shard]
    return np.array(first, "<i8"), np.array(second, "<i8")


@dataclass(frozen=True)
class _Pairing(TwoSides):
    """The source and the shard, both in pixels of the source's image.

    Attributes:
        scale: what normalized boxes were multiplied by, of shape (4,).
    """

    scale: np.ndarray

    def swapped(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Cost of pairing with x and y exchanged, before they were normalized or after."""
        source, boxes = self.first[rows, None], self.second[columns]
        before = self.off(source, boxes[:, _SWAP])
        after = self.off(source, boxes[:, _SWAP] / self.scale[_SWAP] * self.scale)
        off = np.fmin(before, after)
        return np.where((off <= 1) & self.same_class(rows, columns), off, np.inf)


@dataclass(frozen=True)
class _Result:
    """Numbers of boxes: pairs of source and shard, and what is left of either."""

    changed: Pairs
    moved: Pairs
    swapped: Pairs
    missing: list[int]
    extra: list[int]

    @property
    def differences(self) -> int:
        kinds = (self.changed, self.moved, self.swapped, self.missing, self.extra)
        return sum(len(kind) for kind in kinds)


def _pair(pairing: _Pairing) -> _Result:
    left = Unpaired(pairing)
    left.pair_in_place()
    changed = left.pair(functools.partial(pairing.in_place, is_same=False))
    swapped = left.pair_if_most(pairing.swapped)
    moved = left.pair(pairing.overlapping)
    return _Result(changed, moved, swapped, left.rows, left.columns)


def _differences(
    pairing: _Pairing,
    result: _Result,
    image: SourceImage,
    classes: Sequence[str | None],
    shifted: bool,
) -> RuleProblems:
    source = functools.partial(_named, names=image.classes, boxes=pairing.first)
    shard = functools.partial(_named, names=classes, boxes=pairing.second)
    moved = ((source(row), shard(column)) for row, column in result.moved)
    changed = ((source(row), shard(column)) for row, column in result.changed)
    width, height = pairing.scale[:2].tolist()
    return [
        *missing_box(map(source, result.missing), width, height),
        *extra_box(map(shard, result.extra), image.name),
        *moved_box(moved, float(pairing.tolerance.max()), shifted),
        *changed_class(changed),
        *swapped_sides(len(result.swapped)),
    ]


def _named(number: int, names: Sequence[str | None], boxes: np.ndarray) -> NamedBox:
    xmin, ymin, xmax, ymax = boxes[number].tolist()
    return NamedBox(number, names[number], (xmin, ymin, xmax, ymax))
