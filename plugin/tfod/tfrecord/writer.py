"""Writing shards: records framed and checksummed, files that appear complete or not at all."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import numpy as np

from tfod.errors import TfodError
from tfod.kernel import copy_spans
from tfod.tfrecord.compression import Compression, compressor_of
from tfod.tfrecord.framing import FRAME_BYTES, header_of, masked_crc32c
from tfod.tfrecord.reader import RecordBatch
from tfod.tfrecord.shard_sets.shard_names import shard_file_names
from tfod.tfrecord.storage.publishing import Output, PendingFile

_ALL = slice(None)
_ENDINGS = {Compression.NONE: "", Compression.GZIP: ".gz", Compression.ZLIB: ".zz"}
"""Of the names of compressed files: TensorFlow and its users do not notice compression."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class OptionError(TfodError):
    """An option makes no sense, or two of them together."""


@dataclass(frozen=True)
class ShardLayout:
    """How shards are to be written; None leaves it to the writer.

    Attributes:
        num_shards: so many shards of each subset, records dealt in turn; fewer where there are
            fewer records.
        shard_size: or a new shard when one would grow beyond this many bytes, uncompressed.
        shard_records: or when it has so many records.
        compression: of each shard as a whole.

    Raises:
        OptionError: both a number and a size are asked for, or one is below 1.
    """

    num_shards: int | None = None
    shard_size: int | None = None
    compression: Compression | None = None
    shard_records: int | None = None

    def __post_init__(self) -> None:
        if self.num_shards is not None and self.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; give one of them")
        if any(one is not None and one < 1 for one in (self.num_shards, self.shard_size)):
            raise OptionError("num_shards and shard_size must be at least 1")


def parse_size(text: str) -> int:
    """Bytes of a size such as ``100MB`` (units of 1024); raises OptionError for others."""
    match = _SIZE.match(text.strip())
    size = int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0
    if size < 1:
        raise OptionError(f"shard_size: {text!r} is not a size; write for example 100MB")
    return size


def parse_count(value: int | str) -> int:
    """A number from 1; raises OptionError for others."""
    if not str(value).isdigit() or int(value) < 1:
        raise OptionError(f"num_shards: {value!r} is not a number from 1")
    return int(value)


class _Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> object: ...


class RecordWriter:
    """Frames records into a binary stream (anything with ``write``).

    Source of the layout: tensorflow/core/lib/io/record_writer.h.
    """

    def __init__(self, stream: _Sink, compression: Compression | str = Compression.NONE) -> None:
        self._stream = stream
        self._deflater = compressor_of(Compression(compression))

    def write(self, payload: bytes) -> int:
        """Write one record; return the bytes it took before compression."""
        footer = masked_crc32c(payload).to_bytes(4, "little")
        for part in (header_of(len(payload)), payload, footer):
            self._stream.write(self._deflater.compress(part) if self._deflater else part)
        return len(payload) + FRAME_BYTES

    def copy(self, framed: bytes | memoryview) -> None:
        """Write records as they lie in another shard, headers and checksums included."""
        self._stream.write(self._deflater.compress(framed) if self._deflater else framed)

    def finish(self) -> None:
        """Write the end of a compressed stream. The stream itself stays open."""
        if self._deflater:
            self._stream.write(self._deflater.flush())


class ShardSetWriter(AbstractContextManager["ShardSetWriter"]):
    """Writes one subset as one shard or several.

    Use as a context manager: leaving it publishes the files, leaving it by an exception (also
    KeyboardInterrupt) discards them and keeps what was there before.

    Args:
        folder: where to write; made when it is not there.
        subset: the files' name before numbers and extension (:func:`shard_file_names`).
        num_shards: write this many, records dealt in turn, as the OD API does; fewer when there
            are fewer records, since a shard of no bytes looks like a failed download.
        shard_size: or begin a new shard when one would grow beyond this many bytes.
        shard_records: or when it has so many records (that are written, not copied).
        compression: of each shard as a whole.
        name_files: names for so many files, where they are not to be those of
            :func:`shard_file_names`; a folder may be in front, the same for all of them.
        output: what publishes the files, with others, once they are complete; then this is no
            context manager.

    Raises:
        OptionError: both a number and a size are asked for, or one is below 1.
        WriteError: a file cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        subset: str,
        *,
        num_shards: int = 1,
        shard_size: int | None = None,
        shard_records: int | None = None,
        compression: Compression | str = Compression.NONE,
        name_files: Callable[[int], Sequence[str]] | None = None,
        output: Output | None = None,
    ) -> None:
        ShardLayout(None if num_shards == 1 else num_shards, shard_size)  # sees that they fit
        self._name_files = name_files or functools.partial(shard_file_names, subset)
        self._hint = os.path.join(folder, self._name_files(1)[0])
        self._folder = os.path.dirname(self._hint)
        self._shard_size = shard_size
        self._shard_records = shard_records
        self._compression = Compression(compression)
        self._output = Output() if output is None else output
        self._files: list[PendingFile] = []
        self._writers: list[RecordWriter] = []
        self._written = 0
        self._is_sequential = shard_size is not None or shard_records is not None
        self._room = np.empty(0, np.uint8)  # allocating it again takes longer than to fill it
        self.count = 0
        try:
            for _ in range(num_shards):
                self._open()
        except BaseException:
            self._output.discard()
            raise

    def write(self, payload: bytes) -> None:
        """Add one record, in turn."""
        if self._is_full(len(payload) + FRAME_BYTES):
            self._next_shard()
        shard = -1 if self._is_sequential else self.count % len(self._writers)
        self._written += self._writers[shard].write(payload)
        self.count += 1

    def copy(self, batch: RecordBatch, rows: slice | np.ndarray = _ALL) -> None:
        """Add records that lie in another shard, byte for byte: of a batch these rows, or all."""
        buffer, spans = batch.buffer, batch.framed_spans[rows]
        if self._shard_size is not None:
            self._copy_by_size(buffer, spans, self._shard_size)
            return
        turns = len(self._writers)
        shards = (self.count + np.arange(len(spans))) % turns
        joined = self._joined(buffer, spans[np.argsort(shards, kind="stable")])
        ends = np.bincount(shards, spans[:, 1], turns).astype(np.int64).cumsum()
        for shard in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            start = int(ends[shard - 1]) if shard else 0
            self._writers[shard].copy(joined[start : int(ends[shard])])
        self.count += len(spans)

    def _is_full(self, more: int) -> bool:
        """Whether a record of so many bytes begins a new shard."""
        if self._shard_size is not None:
            return bool(self._written) and self._written + more > self._shard_size
        if self._shard_records is not None:
            return bool(self.count) and self.count % self._shard_records == 0
        return False

    def complete(self) -> dict[str, str]:
        """Complete all files; gives where they are, by the paths that they will have."""
        del self._files[max(self.count, 1) :], self._writers[max(self.count, 1) :]
        for number in range(len(self._files)):
            self._complete(number)
        temporary_paths = {
            path: file.temporary_path for path, file in zip(self.paths(), self._files, strict=True)
        }
        for path, temporary_path in temporary_paths.items():
            self._output.replace(path, temporary_path)
        return temporary_paths

    def _complete(self, number: int) -> None:
        if not self._files[number].stream.closed:
            self._writers[number].finish()
            self._files[number].complete()

    def paths(self) -> list[str]:
        """Where the files will be, once they are complete; a compressed one has a name for it."""
        names = map(os.path.basename, self._name_files(len(self._files)))
        ending = _ENDINGS[self._compression]
        return [os.path.join(self._folder, name.removesuffix(ending) + ending) for name in names]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._output.__exit__(kind, error, trace)
            return
        with self._output:
            self.complete()

    def _copy_by_size(self, buffer: bytearray, spans: np.ndarray, most: int) -> None:
        ends = np.cumsum(spans[:, 1])
        first = before = 0
        while first < len(spans):
            room = most - self._written
            stop = int(np.searchsorted(ends, before + room, side="right"))
            if stop <= first and self._written:
                self._next_shard()
                continue
            stop = max(stop, first + 1)  # larger than a shard: it gets one of its own
            self._writers[-1].copy(self._joined(buffer, spans[first:stop]))
            self._written += int(ends[stop - 1]) - before
            self.count += stop - first
            first, before = stop, int(ends[stop - 1])

    def _joined(self, buffer: bytearray, spans: np.ndarray) -> memoryview:
        """The bytes of some spans one behind the other, until the next call."""
        starts, stops = spans[:, 0], spans.sum(axis=1)
        if (starts[1:] == stops[:-1]).all():  # they lie so
            return memoryview(buffer)[starts[0] : stops[-1]] if len(spans) else memoryview(b"")
        size = int(spans[:, 1].sum())
        if size > len(self._room):
            self._room = np.empty(size, np.uint8)
        copy_spans(buffer, spans, self._room[:size])
        return self._room.data[:size]

    def _next_shard(self) -> None:
        self._complete(-1)  # closes it: a process may only hold so many files open
        self._open()

    def _open(self) -> None:
        file = self._output.begin(self._hint)
        self._files.append(file)
        self._writers.append(RecordWriter(file, self._compression))
        self._written = 0


def write_records(
    folder: str | os.PathLike[str],
    subset: str,
    payloads: Iterable[bytes],
    *,
    num_shards: int = 1,
    shard_size: int | None = None,
    compression: Compression | str = Compression.NONE,
    name_files: Callable[[int], Sequence[str]] | None = None,
) -> list[str]:
    """Write all payloads as the shards of one subset; return the files' paths.

    Arguments and errors are those of :class:`ShardSetWriter`.
    """
    with ShardSetWriter(
        folder,
        subset,
        num_shards=num_shards,
        shard_size=shard_size,
        compression=compression,
        name_files=name_files,
    ) as writer:
        for payload in payloads:
            writer.write(payload)
    return writer.paths()
