"""Counts of kinds, such as classes, of which there may be more than memory is for."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TypeVar

from tfod.check.row_blocks import hash_of

T = TypeVar("T")
MOST_KINDS = 1 << 16
"""Of more different classes or picture sizes than this so many are kept."""


def bound(counts: Counter[T], slack: int = 1) -> Counter[T]:
    """The same counts, or those of the kinds with the smallest hashes where there are too many.

    Which ones are kept does not depend on the order of the data, nor on how they were shared among
    counters that are added up: a kind that is among those with the smallest hashes of all has
    never been dropped, so that its count is complete.

    Args:
        counts: of each kind.
        slack: so many times :data:`MOST_KINDS` are let pass; 1 at the end, more on the way.
    """
    if len(counts) <= slack * MOST_KINDS:
        return counts
    chosen = heapq.nsmallest(MOST_KINDS, counts, key=lambda kind: (hash_of(repr(kind)), repr(kind)))
    return Counter({kind: counts[kind] for kind in chosen})
