"""The buffer for reading a stream of records, and the recovery after damage."""

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
    detect_file_type,
    foreign_file,
    forged_length,
    oversize,
    trailing_zeros,
    truncated,
)
from tfod.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, HeaderFinder

BUFFER_BYTES = 1 << 21
"""The size of a normal read, which fits into CPU caches and holds some records of 100 kB."""
MAX_BUFFER_BYTES = 1 << 23 if WHY_NOT_COMPILED else 1 << 22
"""The size for large records; batches should have many records, above all without the kernel."""
_FEW_RECORDS = 64
ENDLESS = 1 << 62
"""The size of a stream of unknown length."""
_FIRST_BYTES = 1 << 18  # keeps it cheap to read only the first record


class Source(Protocol):
    """A stream that can fill a buffer."""

    def readinto(self, target: memoryview, /) -> int: ...


def _reference_counts(pool: list[bytearray]) -> list[int]:
    return [sys.getrefcount(buffer) for buffer in pool]


# The count of a buffer that only the pool refers to, which differs between interpreters.
_UNSHARED = _reference_counts([bytearray()])[0]


class ReadBuffer:
    """The part of a stream that is in memory, in two buffers that are used in turn.

    A buffer that a record still refers to is not reused but replaced by a new one.
    ``content[position:have]`` has not been consumed yet; ``content[0]`` is byte ``base`` of the
    stream, and ``array`` is a view of ``content`` as uint8.
    """

    def __init__(self, stream: Source, size: int) -> None:
        self._stream = stream
        self._remaining = size
        self._max_bytes = BUFFER_BYTES
        self._failure: Exception | None = None
        self._pool: list[bytearray] = []
        self.content, self.array = bytearray(), np.zeros(0, np.uint8)
        self.base = self.have = 0

    def refill(self, position: int, required: int = 0) -> bool:
        """Keep the bytes from ``position`` on, read more, and return whether there were any.

        The new position is 0. The next buffer may be larger, to hold ``required`` bytes, but has at
        most twice the bytes that were really read, so a forged length does not allocate memory.
        """
        kept = self.have - position
        size = max(_FIRST_BYTES, min(2 * len(self.content), self._max_bytes))
        size = max(size, min(required, 2 * max(kept, BUFFER_BYTES)))
        # This is never the current buffer, so that the copy below is safe.
        buffer = self._next_buffer(max(1, min(size, kept + self._remaining)))
        buffer[:kept] = memoryview(self.content)[position : self.have]
        self.content, self.array = buffer, np.frombuffer(buffer, np.uint8)
        self.base += position
        count = self._fill(buffer, kept)
        self._remaining -= count
        self.have = kept + count
        return count > 0

    def _next_buffer(self, size: int) -> bytearray:
        for index, count in enumerate(_reference_counts(self._pool)):
            if count == _UNSHARED and len(self._pool[index]) >= size:
                self._pool.append(self._pool.pop(index))
                return self._pool[-1]
        buffer = bytearray(size)
        self._pool = [*self._pool[-1:], buffer]
        return buffer

    def note_records(self, count: int) -> None:
        """Enlarge the next buffer if the current one is full and has only ``count`` records."""
        if count < _FEW_RECORDS and self.have >= self._max_bytes:
            self._max_bytes = min(2 * self._max_bytes, MAX_BUFFER_BYTES)

    def _fill(self, buffer: bytearray, have: int) -> int:
        """Read bytes and return their number; if some were read, errors are raised later."""
        if self._failure is not None:
            raise self._failure
        start = have
        with memoryview(buffer)[: have + self._remaining] as view:
            try:
                while have < len(view):
                    count = self._stream.readinto(view[have:])
                    if not count:
                        break
                    have += count
            except Exception as failure:
                if have == start:
                    raise
                self._failure = failure
        return have - start

    def skip(self, position: int, count: int) -> int:
        """Skip ``count`` bytes from ``position``; return how many of them exist."""
        remaining = count
        while remaining > self.have - position:
            remaining -= self.have - position
            if not self.refill(self.have):
                return count - remaining
            position = 0
        self.refill(position + remaining)
        return count


class Recovery:
    """The handling of truncated and damaged records during a walk.

    Args:
        buffer: buffer of the stream.
        name: name of the shard for messages.
        size: length of the stream in bytes, or ENDLESS.
        resumes: whether to search for records after damage.
        limit: largest record to read, in bytes with header and footer; None for no limit.

    Attributes:
        position, index: position in the buffer and number of the next record.
        is_over: whether the walk has ended.
    """

    def __init__(
        self, buffer: ReadBuffer, name: str, size: int, resumes: bool, limit: int | None
    ) -> None:
        self.position = self.index = 0
        self.is_over = False
        self._buffer = buffer
        self._name = name
        self._size = size
        self._resumes = resumes
        self._limit = limit
        self._headers = HeaderFinder()

    def advance(self, end: WalkEnd) -> Damage | None:
        """Move past the position at which the walk has ended; return the damage there, if any."""
        if end is WalkEnd.LENGTH_CHECKSUM:
            return self._skip_bad_length()
        if self._buffer.have - self.position < HEADER_BYTES:
            return self._read_more()
        length = self._buffer.content[self.position : self.position + 8]
        size = HEADER_BYTES + int.from_bytes(length, "little") + FOOTER_BYTES
        if end is not WalkEnd.DATA_CHECKSUM:
            return self._read_record(size)
        damage = bad_data(self._name, self.index, self._offset)
        return self._skip_to(self.position + size, damage)

    @property
    def _offset(self) -> int:
        return self._buffer.base + self.position

    def _skip_to(self, position: int, damage: Damage) -> Damage:
        self.position = position
        self.index += 1
        return damage

    def _end(self, damage: Damage | None) -> Damage | None:
        self.is_over = True
        return damage

    def _refill(self, required: int = 0) -> bool:
        has_more = self._buffer.refill(self.position, required)
        self.position = 0
        return has_more

    def _read_more(self) -> Damage | None:
        if self._refill():
            return None
        buffer, index = self._buffer, self.index
        tail = bytes(buffer.content[: buffer.have])
        if index == 0 and detect_file_type(tail):
            return self._end(foreign_file(self._name, tail))
        # A length may begin with zeros, but a header also has a checksum that is not zero.
        if len(tail) > 8 and not any(tail):
            return self._end(trailing_zeros(self._name, index, buffer.base, buffer.have))
        # Even without a tail, the file may have been shortened since its size was determined.
        if tail or self._size not in (ENDLESS, buffer.base):
            return self._end(truncated(self._name, index, buffer.base, HEADER_BYTES, len(tail)))
        return self._end(None)

    def _read_record(self, size: int) -> Damage | None:
        if self._offset + size > self._size and self._size != ENDLESS:
            return self._skip_too_long(size, self._size - self._offset)
        if self._limit is not None and size > self._limit:
            return self._skip_oversize(size, self._limit)
        if self._refill(size):
            return None
        # Now the length of the stream is known, so further claims are not read up to its end.
        self._size = self._buffer.base + self._buffer.have
        return self._skip_too_long(size, self._buffer.have)

    def _skip_oversize(self, size: int, limit: int) -> Damage | None:
        offset, stop = self._offset, self.position + size
        if stop > self._buffer.have:
            available = self._buffer.skip(self.position, size)
            if available < size:
                return self._end(truncated(self._name, self.index, offset, size, available))
            stop = 0
        return self._skip_to(stop, oversize(self._name, self.index, offset, size, limit))

    def _skip_too_long(self, size: int, available: int) -> Damage | None:
        """Skip a record that reaches past the end: the file is truncated, or the length forged."""
        offset = self._offset
        header = self._search(self.position + 1)[0] if self._resumes else None
        if header is None:
            return self._end(truncated(self._name, self.index, offset, size, available))
        skipped = self._buffer.base + header - offset
        return self._skip_to(header, forged_length(self._name, self.index, offset, size, skipped))

    def _skip_bad_length(self) -> Damage | None:
        buffer, name, index, offset = self._buffer, self._name, self.index, self._offset
        head = bytes(buffer.content[self.position : min(buffer.have, self.position + HEAD_BYTES)])
        if len(head) < HEAD_BYTES and not any(head):  # more bytes may follow the zeros
            self._refill()
            head = bytes(buffer.content[: min(buffer.have, HEAD_BYTES)])
        header, only_zeros, skipped = None, True, 0
        if self._resumes and not (index == 0 and detect_file_type(head)):
            header, only_zeros = self._search(self.position + 1)
            skipped = buffer.base + (buffer.have if header is None else header) - offset
        if header is not None:
            return self._skip_to(header, bad_length(name, index, offset, skipped, resumed=True))
        if only_zeros and not any(head) and (index or self._resumes):
            return self._end(trailing_zeros(name, index, offset, skipped))
        if index == 0:
            return self._end(foreign_file(name, head))
        return self._end(bad_length(name, index, offset, skipped))

    def _search(self, position: int) -> tuple[int | None, bool]:
        """Return the position of the next plausible header in the buffer, or None at the end.

        The second value is whether only zeros were skipped up to the end.
        """
        buffer, only_zeros = self._buffer, True
        while True:
            data = buffer.array[: buffer.have]
            for header, length in self._headers.find(data, buffer.base, position):
                if self._fits(buffer.base + header, length):
                    return header, False
            only_zeros = only_zeros and not data[position:].any()
            kept = max(position, buffer.have - HEADER_BYTES + 1)
            del data  # otherwise the buffer would seem to be in use
            if not buffer.refill(kept):
                return None, only_zeros
            position = 0

    def _fits(self, offset: int, length: int) -> bool:
        size = HEADER_BYTES + length + FOOTER_BYTES
        if self._size != ENDLESS:
            return offset + size <= self._size
        return self._limit is None or size <= self._limit
