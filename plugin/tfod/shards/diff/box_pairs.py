"""Pairs the boxes of two sides of a comparison, closest first, in rounds.

A round pairs what has a finite cost, for example boxes of one class in one place; what no round
pairs is missing on one side. Equal costs are decided by the order of the boxes, so that a result
is the same each time, and with the sides exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

PIXEL = 1.02
"""Pixels that a side may be off: integers, float32, and the two digits of CVAT's XML and
Datumaro's boxes are no movement."""
_LEAST_OVERLAP, _LEAST_OF_OTHER_CLASS = 0.1, 0.5
_CLOSEST = 64
_MOST_PAIRS = 50_000_000
_AT_ONCE = 250_000

Pairs: TypeAlias = "list[tuple[int, int]]"
"""Numbers of boxes of the first side and of the second."""
Cost: TypeAlias = "Callable[[np.ndarray, np.ndarray], np.ndarray]"
"""Of numbers of boxes, m of the first side and n of the second, float64 of shape (m, n)."""


def iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes, of shape (..., 4) each, which are broadcast."""
    # Column by column, which takes a third of the time of a product over two columns.
    left, top, right, bottom = np.moveaxis(first, -1, 0)
    others_left, others_top, others_right, others_bottom = np.moveaxis(second, -1, 0)
    width = np.minimum(right, others_right) - np.maximum(left, others_left)
    height = np.minimum(bottom, others_bottom) - np.maximum(top, others_top)
    common = np.maximum(width, 0) * np.maximum(height, 0)
    areas = (right - left) * (bottom - top)
    union = areas + (others_right - others_left) * (others_bottom - others_top) - common
    return np.asarray(np.where(union > 0, common / union, 0))


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers from each start on, so many of each; int64, one behind the other."""
    before = np.cumsum(counts) - counts
    return np.asarray(np.repeat(starts - before, counts) + np.arange(counts.sum()))


@dataclass(frozen=True)
class TwoSides:
    """The boxes of one image on both sides, and what it costs to pair them.

    Attributes:
        first, second: in the same unit, mostly pixels; float64 of shape (m, 4) and (n, 4).
        tolerance: how far a side may be off, of shape (4,).
        codes: classes of both as numbers, of shape (m,) and (n,).
    """

    first: np.ndarray
    second: np.ndarray
    tolerance: np.ndarray
    codes: tuple[np.ndarray, np.ndarray]

    def in_place_by_order(self, count: int) -> np.ndarray:
        """For each of the first boxes: whether it is the same on both sides."""
        off = self.off(self.first[:count], self.second[:count])
        return np.asarray((off <= 1) & (self.codes[0][:count] == self.codes[1][:count]))

    def off(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """How far the side that is furthest off is off; 1 is what is tolerated."""
        return np.asarray((np.abs(second - first) / self.tolerance).max(axis=-1, initial=0))

    def same_class(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return np.asarray(self.codes[1][columns] == self.codes[0][rows, None])

    def in_place(self, rows: np.ndarray, columns: np.ndarray, is_same: bool = True) -> np.ndarray:
        """Cost of pairing boxes with those in their place, of their class or of others."""
        off = self.off(self.first[rows, None], self.second[columns])
        return np.where((off <= 1) & (self.same_class(rows, columns) == is_same), off, np.inf)

    def overlapping(
        self, rows: np.ndarray, columns: np.ndarray, is_same: bool = True
    ) -> np.ndarray:
        """The same with those that overlap, of other classes by half; the less, the costlier."""
        least = _LEAST_OVERLAP if is_same else _LEAST_OF_OTHER_CLASS
        overlap = iou(self.first[rows, None], self.second[columns])
        enough = (overlap >= least) & (self.same_class(rows, columns) == is_same)
        return np.where(enough, 1 - overlap, np.inf)


class Unpaired:
    """The boxes that are not paired yet: ``rows`` of the first side, ``columns`` of the second."""

    def __init__(self, sides: TwoSides) -> None:
        self.rows = list(range(len(sides.first)))
        self._columns = np.ones(len(sides.second), bool)
        self._sides = sides
        # A record with boxes by the million is no annotation: compared in order, not all with all.
        self._in_order = len(sides.first) * len(sides.second) > _MOST_PAIRS

    @property
    def columns(self) -> list[int]:
        """What is left of the second side."""
        found: list[int] = np.flatnonzero(self._columns).tolist()
        return found

    def pair_in_place(self) -> Pairs:
        """Pair boxes of one class in one place."""
        if not self._in_order:
            return self.pair(self._sides.in_place)
        count = min(len(self.rows), len(self._columns))
        places = np.flatnonzero(self._sides.in_place_by_order(count)).tolist()
        pairs = [(one, one) for one in places]
        self._take(pairs)
        return pairs

    def pair(self, cost: Cost) -> Pairs:
        """Pair what can be paired, the cheapest first; in the order of the first side."""
        pairs: Pairs = []
        # Each round looks at the closest few of each box: again, until nothing more is found.
        while not self._in_order and (new := self._round(cost)):
            pairs += new
            self._take(new)
        return sorted(pairs)

    def _take(self, pairs: Pairs) -> None:
        taken = {row for row, _ in pairs}
        self.rows = [row for row in self.rows if row not in taken]
        self._columns[[column for _, column in pairs]] = False

    def _round(self, cost: Cost) -> Pairs:
        pairs: Pairs = []
        taken_rows: set[int] = set()
        taken_columns: set[int] = set()
        for row, column in self._candidates(cost):
            if row not in taken_rows and column not in taken_columns:
                taken_rows.add(row)
                taken_columns.add(column)
                pairs.append((row, column))
        return pairs

    def _candidates(self, cost: Cost) -> list[list[int]]:
        """Pairs of row and column that have a cost, the cheapest first."""
        rows, columns = np.array(self.rows, np.int64), np.flatnonzero(self._columns)
        found = [(np.zeros(0), np.zeros((0, 2), np.int64))]
        step = max(1, _AT_ONCE // max(1, len(columns)))
        for start in range(0, len(rows) if len(columns) else 0, step):
            costs = cost(rows[start : start + step], columns)
            at, to = np.nonzero(costs < np.inf)
            # Rounded, for noise in the last digit must not decide between equals.
            values = costs[at, to].round(6)
            order = np.lexsort((to, values, at))
            firsts = np.searchsorted(at, at)  # where the candidates of the same row begin
            near = order[np.arange(len(at)) - firsts < _CLOSEST]
            pairs = np.stack((rows[start + at[near]], columns[to[near]]), axis=1)
            found.append((values[near], pairs))
        costs, pairs = (np.concatenate(one) for one in zip(*found, strict=True))
        ordered: list[list[int]] = pairs[np.lexsort((pairs[:, 1], pairs[:, 0], costs))].tolist()
        return ordered
