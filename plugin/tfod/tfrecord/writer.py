"""Writers of shards, and the options for the number and size of shards."""

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
from tfod.tfrecord.compression import Compression, make_compressor
from tfod.tfrecord.framing import FRAME_BYTES, encode_header, masked_crc32c
from tfod.tfrecord.progress import PROGRESS
from tfod.tfrecord.reader import RecordBatch
from tfod.tfrecord.shard_sets.shard_names import recipe_file_names, shard_file_names
from tfod.tfrecord.storage.publishing import Output, PendingFile

_ALL = slice(None)
_EXTENSIONS = {Compression.NONE: "", Compression.GZIP: ".gz", Compression.ZLIB: ".zz"}
"""Extensions that make the compression visible, because TensorFlow does not detect it."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class OptionError(TfodError):
    """An option has an invalid value, or two options exclude each other."""


@dataclass(frozen=True)
class ShardLayout:
    """The number, size and compression of new shards; None is the default of the writer.

    Raises OptionError if a number and a size are set, or one of them is below 1.

    Attributes:
        num_shards: maximum number of shards per subset, with the records distributed in turn.
        shard_size: maximum size of a shard in bytes, uncompressed.
        shard_records: maximum number of records per shard.
        compression: compression of whole shards.
    """

    num_shards: int | None = None
    shard_size: int | None = None
    compression: Compression | None = None
    shard_records: int | None = None

    def __post_init__(self) -> None:
        if self.num_shards is not None and self.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; set only one of them")
        if any(value is not None and value < 1 for value in (self.num_shards, self.shard_size)):
            raise OptionError("num_shards and shard_size must be at least 1")


def parse_size(text: str) -> int:
    """Convert a size such as ``100MB`` (units of 1024) to bytes; raise OptionError otherwise."""
    match = _SIZE.match(text.strip())
    size = int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0
    if size < 1:
        raise OptionError(f"shard_size: {text!r} is not a size; use for example 100MB")
    return size


def parse_count(value: int | str) -> int:
    """Convert a number of shards to int; raise OptionError if it is below 1."""
    if not str(value).isdigit() or int(value) < 1:
        raise OptionError(f"num_shards: {value!r} is not a whole number above 0")
    return int(value)


class _Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> object: ...


class RecordWriter:
    """A writer of framed records to a binary stream, or any object with ``write``."""

    def __init__(self, stream: _Sink, compression: Compression | str = Compression.NONE) -> None:
        self._stream = stream
        self._compressor = make_compressor(Compression(compression))

    def write(self, payload: bytes) -> int:
        """Write a record; return its size in bytes before compression."""
        PROGRESS.add("records written")
        footer = masked_crc32c(payload).to_bytes(4, "little")
        for part in (encode_header(len(payload)), payload, footer):
            self._stream.write(self._compressor.compress(part) if self._compressor else part)
        return len(payload) + FRAME_BYTES

    def copy(self, framed: bytes | memoryview) -> None:
        """Write bytes of another shard unchanged, including headers and checksums."""
        self._stream.write(self._compressor.compress(framed) if self._compressor else framed)

    def finish(self) -> None:
        """Write the end of a compressed stream; the stream itself stays open."""
        if self._compressor:
            self._stream.write(self._compressor.flush())


class ShardSetWriter(AbstractContextManager["ShardSetWriter"]):
    """A writer of one subset as one or more shards.

    Use it as a context manager. Leaving the block publishes the files; leaving it with an
    exception, including KeyboardInterrupt, discards them and keeps the existing files.

    Args:
        folder: folder to write to; it is created if necessary.
        subset: name of the subset, used in the file names (:func:`shard_file_names`).
        num_shards: number of shards, with the records distributed in turn, as in the OD API; fewer
            if there are fewer records, because an empty shard looks like a failed download.
        shard_size: maximum size of a shard in bytes, instead of a number of shards.
        shard_records: maximum number of records per shard, which the names of the files state
            (:func:`recipe_file_names`); only for :meth:`write`.
        compression: compression of whole shards.
        name_files: function that returns the names for a number of files, by default
            :func:`shard_file_names`; the names may begin with a folder, the same for all.
        output: output that publishes the files together with others, instead of the block.

    Raises:
        OptionError: a number and a size are set, or one of them is below 1.
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
        ShardLayout(None if num_shards == 1 else num_shards, shard_size)  # validates both
        self.count = 0
        self._name_files = name_files or functools.partial(shard_file_names, subset)
        if shard_records is not None and name_files is None:
            self._name_files = lambda n: recipe_file_names(subset, n, self.count, shard_records)
        self._example_path = os.path.join(folder, self._name_files(1)[0])
        self._folder = os.path.dirname(self._example_path)
        self._shard_size = shard_size
        self._shard_records = shard_records
        self._compression = Compression(compression)
        self._output = Output() if output is None else output
        self._files: list[PendingFile] = []
        self._writers: list[RecordWriter] = []
        self._written = 0
        self._is_sequential = shard_size is not None or shard_records is not None
        self._joined = np.empty(0, np.uint8)  # reused, because allocation is slower than copying
        try:
            for _ in range(num_shards):
                self._open()
        except BaseException:
            self._output.discard()
            raise

    def write(self, payload: bytes) -> None:
        """Add a record to the current shard, or to the next one in turn."""
        if self._needs_new_shard(len(payload) + FRAME_BYTES):
            self._next_shard()
        shard = -1 if self._is_sequential else self.count % len(self._writers)
        self._written += self._writers[shard].write(payload)
        self.count += 1

    def copy(self, batch: RecordBatch, rows: slice | np.ndarray = _ALL) -> None:
        """Add records of a batch, all or the given rows, without changing a byte."""
        buffer, spans = batch.buffer, batch.framed_spans[rows]
        if self._shard_size is not None:
            self._copy_by_size(buffer, spans, self._shard_size)
            return
        shard_count = len(self._writers)
        shards = (self.count + np.arange(len(spans))) % shard_count
        joined = self._join(buffer, spans[np.argsort(shards, kind="stable")])
        ends = np.bincount(shards, spans[:, 1], shard_count).astype(np.int64).cumsum()
        for shard in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            start = int(ends[shard - 1]) if shard else 0
            self._writers[shard].copy(joined[start : int(ends[shard])])
        self.count += len(spans)

    def _needs_new_shard(self, size: int) -> bool:
        if self._shard_size is not None:
            return bool(self._written) and self._written + size > self._shard_size
        if self._shard_records is not None:
            return bool(self.count) and self.count % self._shard_records == 0
        return False

    def complete(self) -> dict[str, str]:
        """Complete all files; return their temporary paths by destination."""
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
        """Return the destinations of the files, with an extension for the compression."""
        names = map(os.path.basename, self._name_files(len(self._files)))
        suffix = _EXTENSIONS[self._compression]
        return [os.path.join(self._folder, name.removesuffix(suffix) + suffix) for name in names]

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

    def _copy_by_size(self, buffer: bytearray, spans: np.ndarray, max_size: int) -> None:
        ends = np.cumsum(spans[:, 1])
        first = copied = 0
        while first < len(spans):
            remaining = max_size - self._written
            stop = int(np.searchsorted(ends, copied + remaining, side="right"))
            if stop <= first and self._written:
                self._next_shard()
                continue
            stop = max(stop, first + 1)  # a record above the maximum gets a separate shard
            self._writers[-1].copy(self._join(buffer, spans[first:stop]))
            self._written += int(ends[stop - 1]) - copied
            self.count += stop - first
            first, copied = stop, int(ends[stop - 1])

    def _join(self, buffer: bytearray, spans: np.ndarray) -> memoryview:
        """Return the bytes of spans, joined; they are valid until the next call."""
        starts, stops = spans[:, 0], spans.sum(axis=1)
        if (starts[1:] == stops[:-1]).all():  # contiguous, so no copy is needed
            return memoryview(buffer)[starts[0] : stops[-1]] if len(spans) else memoryview(b"")
        size = int(spans[:, 1].sum())
        if size > len(self._joined):
            self._joined = np.empty(size, np.uint8)
        copy_spans(buffer, spans, self._joined[:size])
        return self._joined.data[:size]

    def _next_shard(self) -> None:
        self._complete(-1)  # closes the file, as the number of open files is limited
        self._open()

    def _open(self) -> None:
        file = self._output.begin(self._example_path)
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
    """Write payloads as a subset and return the paths; arguments as :class:`ShardSetWriter`."""
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
