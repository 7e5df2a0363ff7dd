"""Dealing things that have labels over parts, so that each part has its share of every label.

The method is iterative stratification: Sechidis, Tsoumakas, Vlahavas, "On the Stratification of
Multi-Label Data", ECML PKDD 2011. The rarest label is dealt first, each thing to the part that
still wants most of that label. It counts boxes where the paper counts images, and a part that is
full takes nothing more, so that the parts' sizes are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LabelCounts:
    """How often things have labels; only what is there.

    Attributes:
        things, labels, counts: integer arrays of shape (entries,): thing ``things[i]`` has label
            ``labels[i]`` ``counts[i]`` times. Things are in ascending order, each label of a thing
            comes once.
        num_labels: how many labels there are.
    """

    things: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    num_labels: int


def stratify(
    sizes: np.ndarray, counted: LabelCounts, capacities: list[int], seed: int
) -> list[int]:
    """Deal things over parts.

    Args:
        sizes: how much room each thing takes, integers of shape (things,).
        counted: the things' labels.
        capacities: how much room each part has; their sum is that of the sizes.
        seed: from 0 to 2**32 - 1; equal input and seed give equal parts, with any NumPy.

    Returns:
        The number of the part of each thing. A part may be overfull where things are larger
        than 1.
    """
    return _Dealer(sizes, counted, capacities, seed).deal()


class _Dealer:
    def __init__(
        self, sizes: np.ndarray, counted: LabelCounts, capacities: list[int], seed: int
    ) -> None:
        self._random = np.random.RandomState(seed)  # frozen, unlike a Generator (NEP 19)
        self._sizes: list[int] = sizes.tolist()
        self._rank = self._random.permutation(len(sizes))
        self._counted = counted
        self._room = list(capacities)
        totals = np.bincount(counted.labels, counted.counts, counted.num_labels)
        self._left = totals
        shares = np.array(capacities) / max(1, sum(capacities))
        self._wanted = np.outer(shares, totals).tolist()  # boxes, by part and label
        self._part_of = [-1] * len(sizes)
        # Where the labels of each thing begin.
        self._starts = np.searchsorted(counted.things, np.arange(len(sizes) + 1)).tolist()

    def deal(self) -> list[int]:
        counted = self._counted
        # By label the things that have it, those with most of it first, equal ones at random.
        order = np.lexsort((self._rank[counted.things], -counted.counts, counted.labels))
        ends = np.searchsorted(counted.labels[order], np.arange(counted.num_labels + 1))
        while (self._left > 0).any():
            label = int(np.where(self._left > 0, self._left, np.inf).argmin())
            entries = order[ends[label] : ends[label + 1]]
            for thing in counted.things[entries].tolist():
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
            label, count = int(self._counted.labels[entry]), int(self._counted.counts[entry])
            wanted[label] -= count
            self._left[label] -= count
