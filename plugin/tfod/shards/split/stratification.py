"""Dealing things that have labels over parts, so that each part has its share of every label.

The method is iterative stratification: Sechidis, Tsoumakas, Vlahavas, "On the Stratification of
Multi-Label Data", ECML PKDD 2011. The rarest label is dealt first, each thing to the part that
still wants most of that label. It counts boxes where the paper counts images, and a part that is
full takes nothing more, so that the parts' sizes are exact.
"""

from __future__ import annotations

import numpy as np


def stratify(sizes: np.ndarray, entries: np.ndarray, capacities: list[int], seed: int) -> list[int]:
    """Deal things over parts.

    Args:
        sizes: how much room each thing takes, integers of shape (things,).
        entries: which thing has which label how often, int64 of shape (3, n); things are in
            ascending order, and each label of a thing is there once.
        capacities: how much room each part has; their sum is that of the sizes.
        seed: from 0 to 2**32 - 1; equal input and seed give equal parts, with any NumPy.

    Returns:
        The number of the part of each thing. A part may be overfull where things are larger
        than 1.
    """
    return _Dealer(sizes, entries, capacities, seed).deal()


class _Dealer:
    def __init__(
        self, sizes: np.ndarray, entries: np.ndarray, capacities: list[int], seed: int
    ) -> None:
        self._random = np.random.RandomState(seed)  # frozen, unlike a Generator (NEP 19)
        self._sizes: list[int] = sizes.tolist()
        self._rank = self._random.permutation(len(sizes))
        self._things, self._labels, self._counts = entries
        self._room = list(capacities)
        self._left = np.bincount(self._labels, self._counts)
        shares = np.array(capacities) / max(1, sum(capacities))
        self._wanted = np.outer(shares, self._left).tolist()  # boxes, by part and label
        self._part_of = [-1] * len(sizes)
        # Where the labels of each thing begin.
        self._starts = np.searchsorted(self._things, np.arange(len(sizes) + 1)).tolist()

    def deal(self) -> list[int]:
        # By label the things that have it, those with most of it first, equal ones at random.
        order = np.lexsort((self._rank[self._things], -self._counts, self._labels))
        ends = np.searchsorted(self._labels[order], np.arange(len(self._left) + 1))
        while (self._left > 0).any():
            label = int(np.where(self._left > 0, self._left, np.inf).argmin())
            entries = order[ends[label] : ends[label + 1]]
            for thing in self._things[entries].tolist():
                if self._part_of[thing] < 0:
                    self._put(thing, self._choose(self._sizes[thing], label))
        # Larger ones first, while there is room for them.
        for thing in np.lexsort((self._rank, -np.array(self._sizes))).tolist():
            if self._part_of[thing] < 0:
                self._put(thing, self._choose(self._sizes[thing], None))
        return self._part_of

    def _choose(self, size: int, label: int | None) -> int:
        """The part that wants a label most, of those with room; of equal ones the emptiest."""
        room = self._room
        most = max(room)
        best: list[int] = []
        best_key = (-np.inf, 0)
        for part, free in enumerate(room):
            if free < min(size, most):
                continue
            key = (0.0 if label is None else self._wanted[part][label], free)
            if key > best_key:
                best, best_key = [part], key
            elif key == best_key:
                best.append(part)
        # Not randint: what it gives for a seed depends on the system's integers.
        return best[int(self._random.random_sample() * len(best))] if len(best) > 1 else best[0]

    def _put(self, thing: int, part: int) -> None:
        self._part_of[thing] = part
        self._room[part] -= self._sizes[thing]
        wanted = self._wanted[part]
        for entry in range(self._starts[thing], self._starts[thing + 1]):
            label, count = int(self._labels[entry]), int(self._counts[entry])
            wanted[label] -= count
            self._left[label] -= count
