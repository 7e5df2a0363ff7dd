"""The part of a stream that is in memory, in two buffers in turn, which are used again.

A buffer that somebody still holds a record of is left alone and replaced by a fresh one.
"""

from __future__ import annotations

import sys
from typing import Protocol

import numpy as np

from tfod.kernel import WHY_NOT_COMPILED

BUFFER_BYTES = 1 << 21
"""As much as is read at once of a long shard: fits the caches, and some records of 100 kB."""
LARGEST_BUFFER = 1 << 23 if WHY_NOT_COMPILED else 1 << 22
"""Where records are large: what looks at a batch at once wants many of them, Python most of all."""
_FEW = 64
ENDLESS = 1 << 62
"""The end of a stream of unknown length."""
_FIRST_BYTES = 1 << 18  # to look at the first record alone reads no more


class Source(Protocol):
    """Anything that fills a buffer."""

    def readinto(self, target: memoryview, /) -> int: ...


def _reference_counts(pool: list[bytearray]) -> list[int]:
    return [sys.getrefcount(buffer) for buffer in pool]


# What the count is for a buffer that only the pool refers to: differs between interpreters.
_UNSHARED = _reference_counts([bytearray()])[0]


class ReadBuffer:
    """The part of a stream that is in memory.

    ``content[position:have]`` is what has not been consumed; ``content[0]`` is byte ``base`` of the
    stream, and ``array`` is the same as uint8.
    """

    def __init__(self, stream: Source, start: int, stop: int) -> None:
        self._stream = stream
        self._left = stop - start
        self._most = BUFFER_BYTES
        self._failure: Exception | None = None
        self._pool: list[bytearray] = []
        self.content, self.array = bytearray(), np.zeros(0, np.uint8)
        self.base, self.have = start, 0

    def refill(self, position: int, wanted: int = 0) -> bool:
        """Move what is behind ``position`` to the front of the next buffer and read on.

        The new position is 0. Buffers grow from one to the next, and are no longer than what is
        left. Never takes more memory than twice what has really been read: a forged length
        allocates nothing.

        Args:
            position: see above.
            wanted: so many bytes are needed from there on.

        Returns:
            Whether anything was read.
        """
        rest = self.have - position
        size = max(_FIRST_BYTES, min(2 * len(self.content), self._most))
        size = max(size, min(wanted, 2 * max(rest, BUFFER_BYTES)))
        # The buffer in use is not taken; the other one is, unless somebody keeps a record of it.
        fresh = self._next_buffer(max(1, min(size, rest + self._left)))
        fresh[:rest] = memoryview(self.content)[position : self.have]
        self.content, self.array = fresh, np.frombuffer(fresh, np.uint8)
        self.base += position
        got = self._fill(fresh, rest)
        self._left -= got
        self.have = rest + got
        return got > 0

    def _next_buffer(self, size: int) -> bytearray:
        counts = _reference_counts(self._pool)
        for position, count in enumerate(counts):
            if count == _UNSHARED and len(self._pool[position]) >= size:
                self._pool.append(self._pool.pop(position))
                return self._pool[-1]
        fresh = bytearray(size)
        self._pool = [*self._pool[-1:], fresh]
        return fresh

    def note_records(self, count: int) -> None:
        """Make the next buffer longer where this one, a full one, has few records."""
        if count < _FEW and self.have >= self._most:
            self._most = min(2 * self._most, LARGEST_BUFFER)

    def _fill(self, buffer: bytearray, have: int) -> int:
        """Read until the buffer is full or the stream ends; return how many bytes came.

        What was read before the stream fails is not lost: the failure is raised by the next call.
        """
        if self._failure is not None:
            raise self._failure
        start = have
        with memoryview(buffer)[: have + self._left] as view:
            try:
                while have < len(view):
                    got = self._stream.readinto(view[have:])
                    if not got:
                        break
                    have += got
            except Exception as failure:
                if have == start:
                    raise
                self._failure = failure
        return have - start

    def skip(self, position: int, count: int) -> int:
        """Pass over ``count`` bytes from ``position``; return how many there were."""
        left = count
        while left > self.have - position:
            left -= self.have - position
            if not self.refill(self.have):
                return count - left
            position = 0
        self.refill(position + left)
        return count
