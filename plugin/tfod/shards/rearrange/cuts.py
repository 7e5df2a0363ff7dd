"""Which records go into which shard, known before any is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.tfrecord.shard_layout import ShardLayout


@dataclass(frozen=True)
class Cut:
    """The records of one shard: every ``step``-th place from ``start`` up to ``stop``."""

    start: int
    stop: int
    step: int = 1


def cuts(layout: ShardLayout, records: int, sizes: Iterable[np.ndarray]) -> Sequence[Cut]:
    """The shards of a subset, as :class:`~tfod.tfrecord.writer.ShardSetWriter` makes them.

    Args:
        layout: a number of shards, or their size.
        records: how many there are.
        sizes: the bytes of each with header and footer, in the order in which they are written, in
            blocks; only looked at for shards of a size.
    """
    if layout.shard_size is None:
        turns = max(1, min(layout.num_shards or 1, records))
        return [Cut(first, records, turns) for first in range(turns)]
    starts = [0, *_starts(sizes, layout.shard_size)]
    return [Cut(*span) for span in zip(starts, [*starts[1:], records], strict=True)]


def _starts(sizes: Iterable[np.ndarray], most: int) -> Iterable[int]:
    """The places at which another shard begins, which would be larger than ``most`` otherwise."""
    place = filled = 0
    for block in sizes:
        ends = np.cumsum(block)
        taken = before = 0
        while taken < len(block):
            fitting = int(np.searchsorted(ends, before + most - filled, side="right"))
            if fitting == taken and not filled:
                fitting += 1  # larger than a shard: it gets one of its own
            if fitting < len(block):
                yield place + fitting
                filled = 0
            else:
                filled += int(ends[-1]) - before
            taken = fitting
            before = int(ends[taken - 1]) if taken else 0
        place += len(block)
