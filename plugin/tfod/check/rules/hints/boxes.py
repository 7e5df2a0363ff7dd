"""DAT: boxes unlike those of their class, and boxes nearly equal. Hints, as those of subsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfod.check.findings.finding import Problem
from tfod.check.records.boxes import Boxes, BoxProblems
from tfod.check.records.figures.details import AREAS, BINS, ClassShape, Example, quantile
from tfod.check.rules.registry import rule
from tfod.detection.box_pairs import iou

NEAR = 0.9
"""IoU from which two boxes are nearly equal."""
FENCE = 3.0
"""Interquartile ranges from the quartiles beyond which a box is unlike those of its class."""
_LEAST_OF_CLASS = 50
_RARE = 0.05  # of more boxes beyond the fences than that, none is odd
_NEIGHBOURS = 32


@rule(
    "DAT010 info: box much larger or smaller than others of its class",
    why="Mostly the class is wrong, or the box is around half an object or a group.",
    fix="Look at the box with tfod show, and correct it if it is wrong.",
    source="deepchecks: vision image_property_outliers, by interquartile ranges; Tukey's far out",
)
def odd_size(name: str, shape: ClassShape) -> Iterator[Problem]:
    """The logarithm of its area is 3 interquartile ranges beyond the quartiles of its class."""
    for example, count in _outliers(shape, 0, AREAS):
        yield _odd(name, example, count, f"covers {example.value:.2g} of the image")


@rule(
    "DAT011 info: box of another shape than others of its class",
    why="Mostly the class is wrong, or the box is around a part of the object.",
    fix="Look at the box with tfod show, and correct it if it is wrong.",
    source="deepchecks: vision image_property_outliers, by interquartile ranges; Tukey's far out",
)
def odd_ratio(name: str, shape: ClassShape) -> Iterator[Problem]:
    """The logarithm of width / height is 3 interquartile ranges beyond the class's quartiles."""
    for example, count in _outliers(shape, AREAS, BINS):
        yield _odd(name, example, count, f"is {example.value:.2g} times as wide as high")


def _outliers(shape: ClassShape, start: int, end: int) -> Iterator[tuple[Example, int]]:
    """Examples of far bins, and how many boxes each of these has."""
    counts = shape.counts[start:end]
    if counts.sum() < _LEAST_OF_CLASS:
        return
    low, high = quantile(counts, 0.25), quantile(counts, 0.75)
    reach = FENCE * max(high - low, 1.0)
    middles = np.arange(len(counts)) + 0.5
    far = (middles < low - reach) | (middles > high + reach)
    if counts[far].sum() > _RARE * counts.sum():
        return
    for place, example in shape.examples.items():
        if start <= place < end and far[place - start]:
            yield example, int(counts[place - start])


def _odd(name: str, example: Example, count: int, what: str) -> Problem:
    message = f"box {example.number} of class {name!r} {what}, {FENCE:g} interquartile ranges "
    more = f"; {count - 1:,} more are about so" if count > 1 else ""
    return Problem(f"{message}beyond most{more}", value=example.value, place=example.place)


@dataclass(frozen=True, eq=False)
class NearBoxes:
    """The boxes of a batch with their classes: the number of each, and the names of all."""

    boxes: Boxes
    classes: np.ndarray
    names: list[str]

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs of boxes of one image, and their IoU of 0.9 or more; shapes (n,).

        Each box is compared with the 32 next ones of its image from left to right, so that the
        work is linear; one that begins too far right ends the search.
        """
        corners, rows = self.boxes.corners, self.boxes.rows
        # One number to sort by is much faster than two: the image, and the place in it.
        left = rows + 0.999 * np.clip(corners[:, 0], 0, 1)
        order = np.argsort(left)
        left = left[order]
        with np.errstate(invalid="ignore"):
            reach = left + (1 - NEAR) * (corners[:, 2] - corners[:, 0])[order]
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for step in range(1, min(_NEIGHBOURS + 1, len(corners))):
            at = np.flatnonzero(left[step:] <= reach[:-step])
            if not len(at):
                break
            one, other = order[at], order[at + step]
            with np.errstate(all="ignore"):
                overlap = iou(corners[one], corners[other])
            near = (rows[one] == rows[other]) & (overlap >= NEAR)
            found.append((one[near], other[near], overlap[near]))
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        one, other, overlap = map(np.concatenate, zip(*found, strict=True))
        return np.minimum(one, other), np.maximum(one, other), overlap

    def problems(self, same: bool) -> BoxProblems:
        """What is wrong with the second boxes of pairs of one class, or of two."""
        one, other, overlaps = self.pairs
        wanted = (self.classes[one] == self.classes[other]) == same
        if same:
            corners = self.boxes.corners
            wanted &= (corners[one] != corners[other]).any(axis=1)
        found, at = np.unique(other[wanted], return_index=True)
        partners, overlaps = one[wanted][at], overlaps[wanted][at]

        def what(box: int, _: list[float]) -> str:
            place = int(np.searchsorted(found, box))
            partner = int(partners[place])
            number = partner - int(np.searchsorted(self.boxes.rows, self.boxes.rows[partner]))
            beside = "" if same else f" of class {self.names[self.classes[partner]]!r}"
            text = f"of class {self.names[self.classes[box]]!r} is nearly box {number}{beside}"
            return f"{text} (IoU {overlaps[place]:.3f}, nearly equal from {NEAR} on)"

        return BoxProblems(self.boxes, found, what)


@rule(
    "DAT012 warning: two classes for nearly the same box",
    why="One of them is mostly wrong: the model is punished whichever it finds.",
    fix="Delete the wrong one, unless classes contain each other and both are meant.",
    source="FiftyOne: utils/iou.py, find_duplicates",
)
def two_classes(boxes: NearBoxes) -> Iterable[Problem]:
    """Boxes of different classes in one image have an IoU of 0.9 or more."""
    return boxes.problems(same=False)


@rule(
    "DAT013 warning: nearly the same box twice",
    why="The object was probably annotated twice, and counts double in training and evaluation.",
    fix="Delete one of the two.",
    source="FiftyOne: utils/iou.py, find_duplicates",
)
def nearly_twice(boxes: NearBoxes) -> Iterable[Problem]:
    """Boxes of one class in one image have an IoU of 0.9 or more, and are not equal (BOX009)."""
    return boxes.problems(same=True)
