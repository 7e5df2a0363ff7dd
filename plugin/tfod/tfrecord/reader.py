"""Readers of a shard, by record or by batch, with verified checksums.

A small reused buffer is as fast as a memory map, because it stays in the CPU cache. It needs less
memory, and a file that is truncated while it is read causes an error instead of a SIGBUS.
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
from tfod.kernel.return_types import MAX_PAYLOAD_BYTES, WalkEnd
from tfod.tfrecord.compression import Compression, PeekedStream, ReadableStream
from tfod.tfrecord.damage import Damage, damaged_compression, empty_file
from tfod.tfrecord.framing import FRAME_BYTES, HEADER_BYTES
from tfod.tfrecord.progress import PROGRESS
from tfod.tfrecord.shard_sets.shard_names import is_in_numbered_set
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.walk import ENDLESS, ReadBuffer, Recovery


class Record(NamedTuple):
    """A record of a shard, with the payload ``buffer[start:start + length]``.

    The buffer is not reused while something refers to it, so a record may be kept. It then keeps
    up to 4 MiB in memory, or 8 MiB without the compiled kernel.
    """

    number: int  # from 0
    offset: int  # of the header in the uncompressed file, in bytes
    buffer: bytearray
    start: int
    length: int

    @property
    def payload(self) -> memoryview:
        """The payload, as a view of the buffer."""
        return memoryview(self.buffer)[self.start : self.start + self.length]

    @property
    def payload_offset(self) -> int:
        """The offset of the payload in the uncompressed file, in bytes."""
        return self.offset + HEADER_BYTES


_make_record = functools.partial(tuple.__new__, Record)  # faster than Record.__new__


@dataclass(frozen=True)
class RecordBatch:
    """Consecutive records of a shard in one buffer, with verified checksums.

    Attributes:
        shard: path or name of the shard.
        first: number of the first record.
        base: offset of ``buffer[0]`` in the uncompressed shard.
        buffer: records with headers and footers; not reused while something refers to it.
        starts, lengths: spans of the payloads in the buffer, int64 of shape (n,).
    """

    shard: str
    first: int
    base: int
    buffer: bytearray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def from_record(cls, record: Record, shard: str) -> RecordBatch:
        """Create a batch of a single record."""
        base = record.payload_offset - record.start
        start, length = np.array([[record.start], [record.length]], np.int64)
        return cls(shard, record.number, base, record.buffer, start, length)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def end(self) -> int:
        """The number of the record after the batch."""
        return self.first + len(self)

    @property
    def numbers(self) -> np.ndarray:
        """The number of each record in the shard, int64 of shape (n,)."""
        return np.arange(self.first, self.first + len(self), dtype=np.int64)

    @property
    def offsets(self) -> np.ndarray:
        """The offset of each record in the uncompressed shard, int64 of shape (n,)."""
        return self.starts + (self.base - HEADER_BYTES)

    @property
    def framed_spans(self) -> np.ndarray:
        """The spans of the records with header and footer, int64 of shape (n, 2)."""
        return np.stack((self.starts - HEADER_BYTES, self.lengths + FRAME_BYTES), axis=1)

    def record(self, row: int) -> Record:
        """Return a record; ``row`` counts from the start of the batch."""
        start = int(self.starts[row])
        offset = self.base + start - HEADER_BYTES
        return Record(self.first + row, offset, self.buffer, start, int(self.lengths[row]))

    def records(self) -> Iterator[Record]:
        """Iterate over the records."""
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
    """Yield the records of a shard, uncompressed, GZIP or ZLIB.

    Raises:
        ShardError: the shard is damaged. Unlike TensorFlow, tfod rejects a file that ends inside a
            header, and an empty file unless it belongs to a numbered set.
        OSError: the file or URL cannot be opened or read.
    """
    for batch in read_record_batches(path):
        yield from batch.records()


def read_record_stream(
    stream: ReadableStream, name: str, size: int | None = None
) -> Iterator[Record]:
    """Yield the records of an open stream, with the arguments of :func:`walk`."""
    for batch in walk(stream, name, size, resumes=False):
        yield from require_undamaged(batch).records()


def read_record_batches(path: str | os.PathLike[str]) -> Iterator[RecordBatch]:
    """Yield the records of a shard in batches, with the errors of :func:`read_records`."""
    name = os.fspath(path)
    with open_shard(name) as (stream, size):
        yield from map(require_undamaged, walk(stream, name, size, resumes=False))


def require_undamaged(part: RecordBatch | Damage) -> RecordBatch:
    """Return a batch of :func:`walk`; raise ShardError if it is damage."""
    if isinstance(part, Damage):
        raise part.to_error() from None
    return part


def walk(
    stream: ReadableStream,
    name: str,
    size: int | None = None,
    max_record_bytes: int | None = None,
    *,
    resumes: bool = True,
) -> Iterator[RecordBatch | Damage]:
    """Yield the records of a shard in batches, and the damage between them.

    The walk resumes at the next record, or after a wrong length at the next plausible record.

    Args:
        stream: open stream at the start of a shard; ``readinto`` is faster than ``read``.
        name: name of the shard in errors.
        size: length of the shard in bytes, if known; a record that claims more is rejected early.
        max_record_bytes: size above which records are damage and are skipped without being loaded.
        resumes: whether to read on after damage.
    """
    peeked = PeekedStream(stream)
    if not peeked.head:
        if resumes or not is_in_numbered_set(name):
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
    max_length = MAX_PAYLOAD_BYTES if limit is None else max(limit - FRAME_BYTES, 0)
    while not recovery.is_over:
        position, end = recovery.position, WalkEnd.BUFFER
        if buffer.have - position >= HEADER_BYTES:
            records = find_records(buffer.array[position : buffer.have], max_length=max_length)
            count, end = len(records.starts), records.end
            if count:
                PROGRESS.add_records(count, records.position)
                starts = records.starts + position
                yield RecordBatch(
                    name, recovery.index, buffer.base, buffer.content, starts, records.lengths
                )
            buffer.note_records(count)
            recovery.position += records.position
            recovery.index += count
        damage = recovery.advance(end)
        if damage is not None:
            yield damage
