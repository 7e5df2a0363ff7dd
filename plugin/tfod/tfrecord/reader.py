"""Reading a shard: one record after the other, or a buffer of them at a time, checksums verified.

Records are read through a small reused buffer, not through a memory map: it is as fast (the
buffer stays in the processor's cache), costs no resident pages, and a file that somebody
truncates meanwhile ends in an error instead of a SIGBUS.
"""

from __future__ import annotations

import functools
import itertools
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfod.kernel import find_records
from tfod.kernel.return_types import LONGEST_RECORD, WalkEnd
from tfod.tfrecord.compression import Compression, PeekedStream, ReadableStream
from tfod.tfrecord.damage import Damage, damaged_compression, empty_file
from tfod.tfrecord.framing import FRAME_BYTES, HEADER_BYTES
from tfod.tfrecord.shard_sets.shard_names import is_one_of_several
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.walk import ENDLESS, ReadBuffer, Recovery


class Record(NamedTuple):
    """One record of a shard.

    ``buffer[start:start + length]`` is its payload. The buffer is not changed as long as
    something refers to it, so a record may be kept; keeping one keeps
    its buffer alive: up to 4 MiB, without the compiled kernel up to 8.
    """

    number: int  # from 0
    offset: int  # byte at which the record (its header) starts in the uncompressed file
    buffer: bytearray
    start: int
    length: int

    @property
    def payload(self) -> memoryview:
        """The payload, not copied."""
        return memoryview(self.buffer)[self.start : self.start + self.length]

    @property
    def payload_offset(self) -> int:
        """Byte at which the payload starts in the uncompressed file."""
        return self.offset + HEADER_BYTES


_make_record = functools.partial(tuple.__new__, Record)  # not a line of Python for each record


@dataclass(frozen=True)
class RecordBatch:
    """Records of one shard, side by side in one buffer, checksums verified.

    Attributes:
        shard: its path or name.
        first: number of the first record.
        base: byte of the uncompressed shard that ``buffer[0]`` is.
        buffer: holds them with their headers and footers; not changed as long as something refers
            to it, as with :class:`Record`.
        starts, lengths: of their payloads in the buffer, int64 of shape (n,).
    """

    shard: str
    first: int
    base: int
    buffer: bytearray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, record: Record, shard: str) -> RecordBatch:
        """One record by itself."""
        base = record.payload_offset - record.start
        start, length = np.array([record.start]), np.array([record.length])
        return cls(shard, record.number, base, record.buffer, start, length)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def end(self) -> int:
        """Number of the record behind them."""
        return self.first + len(self)

    @property
    def numbers(self) -> np.ndarray:
        """The number of each record in the shard, int64 of shape (n,)."""
        return np.arange(self.first, self.first + len(self), dtype=np.int64)

    @property
    def offsets(self) -> np.ndarray:
        """The byte of the uncompressed shard at which each record starts, int64 of shape (n,)."""
        offsets: np.ndarray = self.starts + (self.base - HEADER_BYTES)
        return offsets

    @property
    def framed_spans(self) -> np.ndarray:
        """Start and length of each record with header and footer, int64 of shape (n, 2)."""
        return np.stack((self.starts - HEADER_BYTES, self.lengths + FRAME_BYTES), axis=1)

    def record(self, row: int) -> Record:
        """One of them; ``row`` counts from the start of the batch."""
        start = int(self.starts[row])
        offset = self.base + start - HEADER_BYTES
        return Record(self.first + row, offset, self.buffer, start, int(self.lengths[row]))

    def records(self) -> Iterator[Record]:
        """All of them."""
        fields = zip(
            itertools.count(self.first),
            self.offsets.tolist(),
            itertools.repeat(self.buffer),
            self.starts.tolist(),
            self.lengths.tolist(),
            strict=False,
        )
        return map(_make_record, fields)


def read_records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Walk through the records of one shard, plain, GZIP or ZLIB.

    Raises:
        ShardError: at the first defect of the framing, with record, byte and fix. Unlike
            TensorFlow, this includes a file that ends inside a record's header, and a file of
            zero bytes that is not one of a numbered set (of such a set it has no records).
        OSError: the file, or the URL, cannot be opened or read.
    """
    for batch in read_record_batches(path):
        yield from batch.records()


def read_record_stream(
    stream: ReadableStream, name: str, size: int | None = None
) -> Iterator[Record]:
    """As :func:`read_records`, of an open stream; its arguments are those of :func:`walk`."""
    for batch in walk(stream, name, size, resumes=False):
        yield from require_undamaged(batch).records()


def read_record_batches(path: str | os.PathLike[str]) -> Iterator[RecordBatch]:
    """As :func:`read_records`, a buffer of records at a time."""
    name = os.fspath(path)
    with open_shard(name) as (stream, size):
        yield from map(require_undamaged, walk(stream, name, size, resumes=False))


def require_undamaged(found: RecordBatch | Damage) -> RecordBatch:
    """What :func:`walk` has found, where it is no damage; raises ShardError where it is one."""
    if isinstance(found, Damage):
        raise found.to_error() from None
    return found


def walk(
    stream: ReadableStream,
    name: str,
    size: int | None = None,
    max_record_bytes: int | None = None,
    *,
    resumes: bool = True,
) -> Iterator[RecordBatch | Damage]:
    """Walk through a shard: its records, a buffer of them at a time, and what is wrong in between.

    Behind wrong data it goes on at the next record, behind a wrong length at the next plausible
    one.

    Args:
        stream: anything with ``read``, better with ``readinto`` too; need not seek. It is open, and
            at the start of a shard.
        name: what to call the shard in errors.
        size: its length in bytes if known; a record that claims more is then refused at once.
        max_record_bytes: larger records are damages, skipped and never held in memory.
        resumes: whether what lies behind a damage is wanted.
    """
    peeked = PeekedStream(stream)
    if not peeked.head:
        if resumes or not is_one_of_several(name):
            yield empty_file(name)
        return
    is_plain = peeked.compression is Compression.NONE
    stop = size if is_plain and size is not None else ENDLESS
    buffer = ReadBuffer(peeked.plain(), stop)
    recovery = Recovery(buffer, name, stop, resumes, max_record_bytes)
    try:
        yield from _walk(buffer, recovery, name, max_record_bytes)
    except (zlib.error, EOFError) as error:
        if is_plain:
            raise
        yield damaged_compression(name, peeked.compression.value, str(error))


def _walk(
    buffer: ReadBuffer, recovery: Recovery, name: str, limit: int | None
) -> Iterator[RecordBatch | Damage]:
    longest = LONGEST_RECORD if limit is None else max(limit - FRAME_BYTES, 0)
    while not recovery.is_over:
        position, end = recovery.position, WalkEnd.BUFFER
        if buffer.have - position >= HEADER_BYTES:
            found = find_records(buffer.array[position : buffer.have], longest=longest)
            count, end = len(found.starts), found.end
            if count:
                starts = found.starts + position
                yield RecordBatch(
                    name, recovery.index, buffer.base, buffer.content, starts, found.lengths
                )
            buffer.note_records(count)
            recovery.position += found.position
            recovery.index += count
        damage = recovery.go_on(end)
        if damage is not None:
            yield damage
