"""Which record of one side is which of the other, and which of their boxes are.

Records by file name within a subset; by file name; by source id, where one of the two has no file
name; by the image's bytes; those that have none of these by their order, as those that share a
name. Boxes in their order where nothing differs, else the closest.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tfod.shards.diff.side import Record, Side

_LEAST_OVERLAP, _LEAST_OF_OTHER_CLASS = 0.1, 0.5
_MOST_PAIRS = 1 << 20


def match(
    a: Side, b: Side
) -> tuple[list[tuple[Record, Record]], Sequence[Record], Sequence[Record]]:
    """Pairs of records, those of A alone, and those of B alone."""
    is_one = len(a.subsets) == len(b.subsets) == 1
    ways: tuple[Callable[[Record], object], ...] = (
        lambda one: one.name and ("" if is_one else one.subset, one.name),
        lambda one: one.name,
        lambda one: one.source_id,
        lambda one: one.image,
        lambda one: not (one.name or one.source_id or one.image),
    )
    pairs: list[tuple[Record, Record]] = []
    left, others = a.records, b.records
    for number, key in enumerate(ways):
        waiting: defaultdict[object, deque[Record]] = defaultdict(deque)
        for one in others:
            waiting[key(one)].append(one)
        unmatched, taken = [], set()
        for one in left:
            same = waiting.get(key(one)) if key(one) else None
            other = same.popleft() if same else None
            # An id is asked for where a name is lacking.
            if other is None or (number == 2 and one.name and other.name):
                unmatched.append(one)
            else:
                pairs.append((one, other))
                taken.add(other.number)
        left, others = unmatched, [one for one in others if one.number not in taken]
    return sorted(pairs, key=lambda pair: pair[0].number), left, others


class BoxPairs:
    """The boxes of two records by their numbers in these.

    Args:
        first, second: in pixels, float64 of shape (m, 4) and (n, 4), all finite.
        classes: of both.
        tolerance: pixels that a side may be off.

    Attributes:
        same: pairs of one class in one place.
        relabelled: of two classes, in one place or overlapping by half.
        moved: of one class, that overlap.
    """

    def __init__(
        self,
        first: np.ndarray,
        second: np.ndarray,
        classes: tuple[Sequence[str], Sequence[str]],
        tolerance: float,
    ) -> None:
        self._rows = dict.fromkeys(range(len(first)))
        self._columns = dict.fromkeys(range(len(second)))
        self.same: list[tuple[int, int]] = []
        self.moved: list[tuple[int, int]] = []
        self.relabelled: list[tuple[int, int]] = []
        codes = {name: code for code, name in enumerate({*classes[0], *classes[1]})}
        own, others = (np.array([codes[one] for one in names], np.int64) for names in classes)
        count = min(len(first), len(second))
        in_order = (np.abs(first[:count] - second[:count]) <= tolerance).all(axis=1)
        in_order &= own[:count] == others[:count]
        # Boxes by the thousand are no annotation: they are compared as they come, not all with all.
        if len(first) * len(second) > _MOST_PAIRS or in_order.sum() == max(len(own), len(others)):
            self.same += self._take((one, one) for one in np.flatnonzero(in_order).tolist())
            return
        off = np.abs(first[:, None] - second).max(axis=-1, initial=0)
        overlap = iou(first[:, None], second)
        is_same, is_there = own[:, None] == others, off <= tolerance
        self.same += self._pair(is_there & is_same, off)
        self.relabelled += self._pair(is_there & ~is_same, off)
        self.moved += self._pair((overlap >= _LEAST_OVERLAP) & is_same, -overlap)
        self.relabelled += self._pair((overlap >= _LEAST_OF_OTHER_CLASS) & ~is_same, -overlap)

    @property
    def removed(self) -> list[int]:
        """Those of the first record alone."""
        return list(self._rows)

    @property
    def added(self) -> list[int]:
        """Those of the second record alone."""
        return list(self._columns)

    def _pair(self, may_be: np.ndarray, cost: np.ndarray) -> list[tuple[int, int]]:
        """Pair what may be and is left, the cheapest first, of equals in the order of the boxes."""
        rows, columns = np.nonzero(may_be)
        # Rounded, for noise in the last digit must not decide between equals.
        order = np.lexsort((columns, rows, cost[rows, columns].round(6)))
        return sorted(self._take(zip(rows[order].tolist(), columns[order].tolist(), strict=True)))

    def _take(self, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        found = []
        for row, column in pairs:
            if row in self._rows and column in self._columns:
                del self._rows[row], self._columns[column]
                found.append((row, column))
        return found


def iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes, of shape (..., 4) each, which are broadcast."""
    least, most = np.maximum(first, second), np.minimum(first, second)
    common = np.maximum(most[..., 2:] - least[..., :2], 0).prod(axis=-1)
    areas = [(one[..., 2:] - one[..., :2]).prod(axis=-1) for one in (first, second)]
    union = areas[0] + areas[1] - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0))
