"""Pairs the boxes of a record with those of the annotations that it was made from.

Closest first, in rounds: the same class in the same place; another class in the same place; the
same class with x and y exchanged; the same class that overlaps. What is left is missing or extra.
Equal distances are decided by the order of the boxes, so that a result is the same each time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfod.check.rules.fidelity import BoxPair, Comparison, MissingImage, MissingImages, NamedBox

if TYPE_CHECKING:
    from tfod.check.references.annotations.annotations import Annotations, SourceImage

_PIXEL = 1.02  # float32, and the two digits of CVAT's XML and Datumaro's boxes, are no movement
_LEAST_OVERLAP = 0.1
_MOSTLY = 0.8
_CLOSEST = 64
_CANDIDATES = 10
_MOST_PAIRS = 50_000_000
_SWAP = [1, 0, 3, 2]
_NO_SHIFT = np.zeros(4)
# Of pixels counted from 1: taken as they are (the OD API's scripts), one less on all sides
# (Datumaro), or one less where a box starts, which makes it half-open.
_SHIFTS_FROM_ONE = (_NO_SHIFT, np.full(4, -1.0), np.array([-1.0, -1.0, 0.0, 0.0]))
_NO_NAME = -1

Pairs = list[tuple[int, int]]
Cost = Callable[[int, np.ndarray], np.ndarray]


def compare(
    annotations: Annotations,
    filename: str,
    height: int | None,
    width: int | None,
    boxes: np.ndarray,
    classes: Sequence[str | None],
) -> Comparison | None:
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
        What differs; None when nothing does, or when neither side knows the image's size.
    """
    found = annotations.find(filename)
    if len(found) != 1:
        first = [annotations.images[place].name for place in found[:_CANDIDATES]]
        return Comparison(filename, first, others=len(found) - len(first))
    image = annotations.images[found[0]]
    if len(classes) != len(boxes):
        classes = [None] * len(boxes)
    source_size = (image.width or width or 0, image.height or height or 0)
    if 0 in source_size:
        return None
    scale = np.array(source_size * 2, "<f8")
    # A pixel of whichever image has the larger ones.
    own = np.array([width or source_size[0], height or source_size[1]] * 2, "<f8")
    shard = np.asarray(boxes, "<f8").reshape(-1, 4) * scale
    tolerance = _PIXEL * np.maximum(1.0, scale / np.maximum(own, 1))
    codes = _codes(image.classes, classes)
    pairings = [
        _Pairing(image.boxes + shift, shard, scale, tolerance, codes)
        for shift in (_SHIFTS_FROM_ONE if annotations.from_one else (_NO_SHIFT,))
    ]
    with np.errstate(all="ignore"):
        if any(pairing.is_clean_in_order() for pairing in pairings):
            return None
        results = [_pair(pairing) for pairing in pairings]
    best = min(range(len(results)), key=lambda one: results[one].differences)
    if not results[best].differences:
        return None
    return _comparison(pairings[best], results[best], filename, image, classes, shifted=best > 0)


def missing_images(annotations: Annotations, seen: Set[int]) -> MissingImages:
    """The images of the source but for those at the places that were seen."""
    missing = [one for place, one in enumerate(annotations.images) if place not in seen]
    images = [MissingImage(one.name, len(one.boxes)) for one in missing]
    return MissingImages(annotations.source, images)


def _codes(source: Sequence[str], shard: Sequence[str | None]) -> tuple[np.ndarray, np.ndarray]:
    """Class names as small numbers, which compare fast."""
    numbers: dict[str | None, int] = {None: _NO_NAME}
    first = [numbers.setdefault(name, len(numbers)) for name in source]
    second = [numbers.setdefault(name, len(numbers)) for name in shard]
    return np.array(first, "<i8"), np.array(second, "<i8")


@dataclass(frozen=True)
class _Pairing:
    """Both sides in pixels of the source's image.

    Attributes:
        source, shard: float64 of shape (m, 4) and (n, 4).
        scale: what normalized boxes were multiplied by, of shape (4,).
        tolerance: how far a side may be off, of shape (4,).
        codes: classes of both.
    """

    source: np.ndarray
    shard: np.ndarray
    scale: np.ndarray
    tolerance: np.ndarray
    codes: tuple[np.ndarray, np.ndarray]

    def is_clean_in_order(self) -> bool:
        """Whether box for box is the same, which is the usual case and quickly seen."""
        if len(self.source) != len(self.shard):
            return False
        return bool(self.in_place_by_order(len(self.source)).all())

    def in_place_by_order(self, count: int) -> np.ndarray:
        """For each of the first boxes: whether it is the same on both sides."""
        off = self.off(self.source[:count], self.shard[:count])
        mine, others = self.codes[0][:count], self.codes[1][:count]
        return np.asarray((off <= 1) & ((mine == others) | (others == _NO_NAME)))

    def off(self, source: np.ndarray, shard: np.ndarray) -> np.ndarray:
        """How far the side that is furthest off is off; 1 is what is tolerated."""
        return np.asarray((np.abs(shard - source) / self.tolerance).max(axis=1, initial=0))

    def same_class(self, row: int, columns: np.ndarray) -> np.ndarray:
        others = self.codes[1][columns]
        return np.asarray((others == self.codes[0][row]) | (others == _NO_NAME))

    def in_place(self, row: int, columns: np.ndarray, is_same: bool = True) -> np.ndarray:
        """Cost of pairing a box with those of its class, or of others, in its place."""
        off = self.off(self.source[row], self.shard[columns])
        return np.where((off <= 1) & (self.same_class(row, columns) == is_same), off, np.inf)

    def in_place_of_other_class(self, row: int, columns: np.ndarray) -> np.ndarray:
        """The same with those of other classes."""
        return self.in_place(row, columns, is_same=False)

    def swapped(self, row: int, columns: np.ndarray) -> np.ndarray:
        """The same with x and y exchanged, before they were normalized or after."""
        boxes = self.shard[columns]
        before = self.off(self.source[row], boxes[:, _SWAP])
        after = self.off(self.source[row], boxes[:, _SWAP] / self.scale[_SWAP] * self.scale)
        off = np.fmin(before, after)
        return np.where((off <= 1) & self.same_class(row, columns), off, np.inf)

    def overlapping(self, row: int, columns: np.ndarray) -> np.ndarray:
        """The same with those that overlap; the less, the costlier."""
        mine, boxes = self.source[row], self.shard[columns]
        low = np.maximum(mine[:2], boxes[:, :2])
        high = np.minimum(mine[2:], boxes[:, 2:])
        common = np.clip(high - low, 0, None).prod(axis=1)
        union = (mine[2:] - mine[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - common
        overlap = np.where(union > 0, common / union, 0)
        enough = (overlap >= _LEAST_OVERLAP) & self.same_class(row, columns)
        return np.where(enough, 1 - overlap, np.inf)


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
    left = _Left(len(pairing.source), len(pairing.shard))
    changed, moved, swapped = Pairs(), Pairs(), Pairs()
    if len(pairing.source) * len(pairing.shard) > _MOST_PAIRS:
        # A record with boxes by the million is no annotation: compared in order, not all with all.
        count = min(len(pairing.source), len(pairing.shard))
        left.take([(one, one) for one in np.flatnonzero(pairing.in_place_by_order(count)).tolist()])
    else:
        left.pair(pairing.in_place)
        changed = left.pair(pairing.in_place_of_other_class)
        swapped = left.pair_if_most(pairing.swapped)
        moved = left.pair(pairing.overlapping)
    return _Result(changed, moved, swapped, left.rows, np.flatnonzero(left.columns).tolist())


def _comparison(
    pairing: _Pairing,
    result: _Result,
    filename: str,
    image: SourceImage,
    classes: Sequence[str | None],
    shifted: bool,
) -> Comparison:
    source = functools.partial(_named, names=image.classes, boxes=pairing.source)
    shard = functools.partial(_named, names=classes, boxes=pairing.shard)

    return Comparison(
        filename=filename,
        candidates=[image.name],
        missing=[source(row) for row in result.missing],
        extra=[shard(column) for column in result.extra],
        moved=[BoxPair(source(row), shard(column)) for row, column in result.moved],
        changed=[BoxPair(source(row), shard(column)) for row, column in result.changed],
        swapped=len(result.swapped),
        tolerance=float(pairing.tolerance.max()),
        size=(float(pairing.scale[0]), float(pairing.scale[1])),
        shifted=shifted,
    )


def _named(number: int, names: Sequence[str | None], boxes: np.ndarray) -> NamedBox:
    xmin, ymin, xmax, ymax = boxes[number].tolist()
    return NamedBox(number, names[number], (xmin, ymin, xmax, ymax))


class _Left:
    """The boxes that are not paired yet: ``rows`` of the source, ``columns`` of the shard."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows = list(range(rows))
        self.columns = np.ones(columns, bool)

    def take(self, pairs: Pairs) -> None:
        """Pair these."""
        taken = {row for row, _ in pairs}
        self.rows = [row for row in self.rows if row not in taken]
        self.columns[[column for _, column in pairs]] = False

    def pair(self, cost: Cost) -> Pairs:
        """Pair what can be paired, the cheapest first; in the order of the source."""
        pairs: Pairs = []
        # Each round looks at the closest few of each box: again, until nothing more is found.
        while new := self._round(cost):
            pairs += new
            self.take(new)
        return sorted(pairs)

    def pair_if_most(self, cost: Cost) -> Pairs:
        """Pair if most of what is left can be, else leave all as it is."""
        rows, columns = self.rows, self.columns.copy()
        pairs = self.pair(cost)
        if len(pairs) < _MOSTLY * len(rows):
            self.rows, self.columns = rows, columns
            return []
        return pairs

    def _round(self, cost: Cost) -> Pairs:
        pairs: Pairs = []
        taken_rows: set[int] = set()
        taken_columns: set[int] = set()
        for _, row, column in sorted(self._candidates(cost)):
            if row not in taken_rows and column not in taken_columns:
                taken_rows.add(row)
                taken_columns.add(column)
                pairs.append((row, column))
        return pairs

    def _candidates(self, cost: Cost) -> Iterator[tuple[float, int, int]]:
        columns = np.flatnonzero(self.columns)
        for row in self.rows if len(columns) else ():
            costs = cost(row, columns)
            near = np.flatnonzero(costs < np.inf)
            near = near[np.argsort(costs[near], kind="stable")[:_CLOSEST]]
            # Rounded, for noise in the last digit must not decide between equals.
            for place in near.tolist():
                yield round(float(costs[place]), 6), row, int(columns[place])
