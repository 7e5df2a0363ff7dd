"""The walk over a stream: what of it is in memory, and getting past what is damaged."""

from __future__ import annotations

import sys
from typing import Protocol, TypeAlias

import numpy as np

from tfod.kernel import WHY_NOT_COMPILED
from tfod.kernel.result import WalkEnd
from tfod.tfrecord.damage import (
    Damage,
    bad_data,
    bad_length,
    foreign_file,
    forged_length,
    looks_like,
    oversize,
    trailing_zeros,
    truncated,
)
from tfod.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, HeaderFinder

BUFFER_BYTES = 1 << 21
"""As much as is read at once of a long shard: fits the caches, and some records of 100 kB."""
LARGEST_BUFFER = 1 << 23 if WHY_NOT_COMPILED else 1 << 22
"""Where records are large: what looks at a batch at once wants many of them, Python most of all."""
_FEW = 64
ENDLESS = 1 << 62
"""The end of a stream of unknown length."""
_HEAD_BYTES = 64  # that say what a file is instead of a shard
_FIRST_BYTES = 1 << 18  # to look at the first record alone reads no more


class Source(Protocol):
    """Anything that fills a buffer."""

    def readinto(self, target: memoryview, /) -> int: ...


def _reference_counts(pool: list[bytearray]) -> list[int]:
    return [sys.getrefcount(buffer) for buffer in pool]


# What the count is for a buffer that only the pool refers to: differs between interpreters.
_UNSHARED = _reference_counts([bytearray()])[0]


class ReadBuffer:
    """The part of a stream that is in memory, in two buffers in turn, which are used again.

    A buffer that somebody still holds a record of is left alone and replaced by a fresh one.
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

        The new position is 0. Buffers grow from one to the next, to hold ``wanted`` bytes from
        there on, and are no longer than what is left. Never takes more memory than twice what has
        really been read: a forged length allocates nothing. Returns whether anything was read.
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


Place: TypeAlias = "tuple[int, int] | None"
"""Where a walk goes on in its buffer, and how many records were passed over; None at the end."""


class Recovery:
    """What a walk does where a record is not whole or not sound.

    ``size`` is the byte at which the stream ends, or ENDLESS; records of more than ``limit`` bytes,
    with header and footer, are not read. What is behind a damage is only looked for where
    ``goes_on``.
    """

    def __init__(
        self, buffer: ReadBuffer, name: str, size: int, goes_on: bool, limit: int | None
    ) -> None:
        self._buffer = buffer
        self._name = name
        self._size = size
        self._goes_on = goes_on
        self._limit = limit
        self._headers = HeaderFinder()

    def go_on(self, end: WalkEnd, position: int, index: int) -> tuple[Place, Damage | None]:
        """Get behind the position in the buffer at which the walk has ended.

        Returns where the next record is, and what is wrong with what lies in between.
        """
        if end is WalkEnd.LENGTH_CHECKSUM:
            return self._pass_bad_length(position, index)
        buffer = self._buffer
        if buffer.have - position < HEADER_BYTES:
            return self._read_on(position, index)
        length = int.from_bytes(buffer.content[position : position + 8], "little")
        wanted = HEADER_BYTES + length + FOOTER_BYTES
        if end is not WalkEnd.DATA_CHECKSUM:
            return self._read_whole(position, index, wanted)
        return (position + wanted, 1), bad_data(self._name, index, buffer.base + position)

    def _read_on(self, position: int, index: int) -> tuple[Place, Damage | None]:
        """Read more behind the last whole record."""
        buffer = self._buffer
        if buffer.refill(position):
            return (0, 0), None
        rest = bytes(buffer.content[: buffer.have])
        if index == 0 and looks_like(rest):
            return None, foreign_file(self._name, rest)
        # A length may begin with zeros, but no header is zeros up to its checksum.
        if len(rest) > 8 and not any(rest):
            return None, trailing_zeros(self._name, index, buffer.base, buffer.have)
        # Without a rest the file may have become shorter since its size was asked for.
        if rest or self._size not in (ENDLESS, buffer.base):
            return None, truncated(self._name, index, buffer.base, HEADER_BYTES, len(rest))
        return None, None

    def _read_whole(self, position: int, index: int, wanted: int) -> tuple[Place, Damage | None]:
        """Read until the whole record is there; pass over one that cannot be had."""
        buffer = self._buffer
        offset = buffer.base + position
        if offset + wanted > self._size and self._size != ENDLESS:
            return self._pass_long_claim(position, index, wanted, self._size - offset)
        if self._limit is not None and wanted > self._limit:
            return self._pass_oversize(position, index, wanted)
        if buffer.refill(position, wanted):
            return (0, 0), None
        # The end is known from now on: what claims more is not read up to here once more.
        self._size = buffer.base + buffer.have
        return self._pass_long_claim(0, index, wanted, buffer.have)

    def _pass_oversize(self, position: int, index: int, wanted: int) -> tuple[Place, Damage | None]:
        buffer, limit = self._buffer, self._limit or 0
        offset = buffer.base + position
        behind = position + wanted
        if behind > buffer.have:
            got = buffer.skip(position, wanted)
            if got < wanted:
                return None, truncated(self._name, index, offset, wanted, got)
            behind = 0
        return (behind, 1), oversize(self._name, index, offset, wanted, limit)

    def _pass_long_claim(
        self, position: int, index: int, wanted: int, got: int
    ) -> tuple[Place, Damage | None]:
        """A record claims more than there is: the end was cut off, or the length is forged."""
        offset = self._buffer.base + position
        found = self._search(position + 1)[0] if self._goes_on else None
        if found is None:
            return None, truncated(self._name, index, offset, wanted, got)
        skipped = self._buffer.base + found - offset
        return (found, 1), forged_length(self._name, index, offset, wanted, skipped)

    def _pass_bad_length(self, position: int, index: int) -> tuple[Place, Damage | None]:
        buffer, name = self._buffer, self._name
        offset = buffer.base + position
        head = bytes(buffer.content[position : min(buffer.have, position + _HEAD_BYTES)])
        if len(head) < _HEAD_BYTES and not any(head):  # whether only zeros follow is not seen yet
            buffer.refill(position)
            position, head = 0, bytes(buffer.content[: min(buffer.have, _HEAD_BYTES)])
        found, only_zeros, skipped = None, True, 0
        if self._goes_on and not (index == 0 and looks_like(head)):
            found, only_zeros = self._search(position + 1)
            skipped = buffer.base + (buffer.have if found is None else found) - offset
        if found is not None:
            return (found, 1), bad_length(name, index, offset, skipped, resumed=True)
        if only_zeros and not any(head) and (index or self._goes_on):
            return None, trailing_zeros(name, index, offset, skipped)
        if index == 0:
            return None, foreign_file(name, head)
        return None, bad_length(name, index, offset, skipped)

    def _search(self, position: int) -> tuple[int | None, bool]:
        """The position in the buffer of the next plausible header; None at the end of the stream.

        Then also whether all that was passed over is zeros.
        """
        buffer, only_zeros = self._buffer, True
        while True:
            data = buffer.array[: buffer.have]
            for found, length in self._headers.find(data, buffer.base, position):
                if self._fits(buffer.base + found, length):
                    return found, False
            only_zeros = only_zeros and not data[position:].any()
            kept = max(position, buffer.have - HEADER_BYTES + 1)
            del data  # or the buffer would seem to be in use
            if not buffer.refill(kept):
                return None, only_zeros
            position = 0

    def _fits(self, offset: int, length: int) -> bool:
        whole = HEADER_BYTES + length + FOOTER_BYTES
        if self._size != ENDLESS:
            return offset + whole <= self._size
        return self._limit is None or whole <= self._limit
