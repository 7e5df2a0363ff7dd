"""The walk over a stream: what of it is in memory, and getting past what is damaged."""

from __future__ import annotations

import sys
from typing import Protocol

import numpy as np

from tfod.kernel import WHY_NOT_COMPILED
from tfod.kernel.return_types import WalkEnd
from tfod.tfrecord.compression import HEAD_BYTES
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

    def __init__(self, stream: Source, size: int) -> None:
        self._stream = stream
        self._left = size
        self._most = BUFFER_BYTES
        self._failure: Exception | None = None
        self._pool: list[bytearray] = []
        self.content, self.array = bytearray(), np.zeros(0, np.uint8)
        self.base = self.have = 0

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


class Recovery:
    """What a walk does where a record is not whole or not sound.

    Args:
        buffer: holds a part of the stream.
        name: what to call the shard in damages.
        size: the byte at which the stream ends, or ENDLESS.
        resumes: whether what is behind a damage is looked for.
        limit: records of more bytes, with header and footer, are not read.

    Attributes:
        position: where the next record is in the buffer.
        index: its number.
        is_over: whether there is none.
    """

    def __init__(
        self, buffer: ReadBuffer, name: str, size: int, resumes: bool, limit: int | None
    ) -> None:
        self.position = self.index = 0
        self.is_over = False
        self._buffer = buffer
        self._name = name
        self._size = size
        self._goes_on = resumes
        self._limit = limit
        self._headers = HeaderFinder()

    def go_on(self, end: WalkEnd) -> Damage | None:
        """Get behind the position at which the walk has ended; returns what is wrong there."""
        if end is WalkEnd.LENGTH_CHECKSUM:
            return self._pass_bad_length()
        if self._buffer.have - self.position < HEADER_BYTES:
            return self._read_on()
        head = self._buffer.content[self.position : self.position + 8]
        wanted = HEADER_BYTES + int.from_bytes(head, "little") + FOOTER_BYTES
        if end is not WalkEnd.DATA_CHECKSUM:
            return self._read_whole(wanted)
        damage = bad_data(self._name, self.index, self._offset)
        return self._pass(self.position + wanted, damage)

    @property
    def _offset(self) -> int:
        """The byte of the stream at the position."""
        return self._buffer.base + self.position

    def _pass(self, position: int, damage: Damage) -> Damage:
        self.position = position
        self.index += 1
        return damage

    def _end(self, damage: Damage | None) -> Damage | None:
        self.is_over = True
        return damage

    def _refill(self, wanted: int = 0) -> bool:
        """Move the position to the front of the buffer and read on; returns whether bytes came."""
        is_more = self._buffer.refill(self.position, wanted)
        self.position = 0
        return is_more

    def _read_on(self) -> Damage | None:
        """Read more behind the last whole record."""
        if self._refill():
            return None
        buffer, index = self._buffer, self.index
        rest = bytes(buffer.content[: buffer.have])
        if index == 0 and looks_like(rest):
            return self._end(foreign_file(self._name, rest))
        # A length may begin with zeros, but no header is zeros up to its checksum.
        if len(rest) > 8 and not any(rest):
            return self._end(trailing_zeros(self._name, index, buffer.base, buffer.have))
        # Without a rest the file may have become shorter since its size was asked for.
        if rest or self._size not in (ENDLESS, buffer.base):
            return self._end(truncated(self._name, index, buffer.base, HEADER_BYTES, len(rest)))
        return self._end(None)

    def _read_whole(self, wanted: int) -> Damage | None:
        """Read until the whole record is there; pass over one that cannot be had."""
        if self._offset + wanted > self._size and self._size != ENDLESS:
            return self._pass_long_claim(wanted, self._size - self._offset)
        if self._limit is not None and wanted > self._limit:
            return self._pass_oversize(wanted, self._limit)
        if self._refill(wanted):
            return None
        # The end is known from now on: what claims more is not read up to here once more.
        self._size = self._buffer.base + self._buffer.have
        return self._pass_long_claim(wanted, self._buffer.have)

    def _pass_oversize(self, wanted: int, limit: int) -> Damage | None:
        offset, behind = self._offset, self.position + wanted
        if behind > self._buffer.have:
            got = self._buffer.skip(self.position, wanted)
            if got < wanted:
                return self._end(truncated(self._name, self.index, offset, wanted, got))
            behind = 0
        return self._pass(behind, oversize(self._name, self.index, offset, wanted, limit))

    def _pass_long_claim(self, wanted: int, got: int) -> Damage | None:
        """A record claims more than there is: the end was cut off, or the length is forged."""
        offset = self._offset
        found = self._search(self.position + 1)[0] if self._goes_on else None
        if found is None:
            return self._end(truncated(self._name, self.index, offset, wanted, got))
        skipped = self._buffer.base + found - offset
        return self._pass(found, forged_length(self._name, self.index, offset, wanted, skipped))

    def _pass_bad_length(self) -> Damage | None:
        buffer, name, index, offset = self._buffer, self._name, self.index, self._offset
        head = bytes(buffer.content[self.position : min(buffer.have, self.position + HEAD_BYTES)])
        if len(head) < HEAD_BYTES and not any(head):  # whether only zeros follow is not seen yet
            self._refill()
            head = bytes(buffer.content[: min(buffer.have, HEAD_BYTES)])
        found, only_zeros, skipped = None, True, 0
        if self._goes_on and not (index == 0 and looks_like(head)):
            found, only_zeros = self._search(self.position + 1)
            skipped = buffer.base + (buffer.have if found is None else found) - offset
        if found is not None:
            return self._pass(found, bad_length(name, index, offset, skipped, resumed=True))
        if only_zeros and not any(head) and (index or self._goes_on):
            return self._end(trailing_zeros(name, index, offset, skipped))
        if index == 0:
            return self._end(foreign_file(name, head))
        return self._end(bad_length(name, index, offset, skipped))

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
