"""Writing shards: records framed and checksummed, files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import BinaryIO, Protocol

import google_crc32c

from tfod.compression import Compression, Deflater
from tfod.errors import TfodError
from tfod.records import masked_crc32c
from tfod.shards import shard_file_names

_crc32c = google_crc32c.value
# Not more: for one large write the kernel looks for large pages, and took 5 times as long.
_BUFFER_BYTES = 1 << 17
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends


class WriteError(TfodError):
    """A file could not be written: no room, no permission, no folder."""


class AtomicFile:
    """A file that is written aside and takes its name only when it is complete.

    Until :meth:`publish` the name keeps whatever it had; :meth:`discard` leaves nothing behind.
    """

    def __init__(self, folder: str, hint: str) -> None:
        try:
            os.makedirs(folder, exist_ok=True)
            self._aside = os.path.join(folder, f".{hint}.{secrets.token_hex(8)}.tmp")
            handle = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        except OSError as error:
            raise WriteError(f"{folder}: cannot write there ({error.strerror})") from None
        self._folder = folder
        self._hint = hint
        self.stream: BinaryIO = os.fdopen(handle, "wb", buffering=_BUFFER_BYTES)

    def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            WriteError: the disk does not take them; so do the methods below.
        """
        try:
            self.stream.write(data)
        except OSError as error:
            raise self._failure(error) from None

    def complete(self) -> None:
        """Hand everything to the system, which is where a full disk shows.

        Not fsync: it doubles the time of an export, and what it guards against, a power cut in
        the seconds after, ends in a shard that a reader refuses.
        """
        try:
            self.stream.close()
        except OSError as error:
            raise self._failure(error) from None

    def publish(self, name: str) -> str:
        """Give the complete file its name; return its path."""
        self.complete()
        path = os.path.join(self._folder, name)
        try:
            os.replace(self._aside, path)
        except OSError as error:
            raise self._failure(error) from None
        return path

    def discard(self) -> None:
        """Remove what was written aside."""
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(OSError):
            os.unlink(self._aside)

    def _failure(self, error: OSError) -> WriteError:
        return WriteError(
            f"{os.path.join(self._folder, self._hint)}: cannot be written ({error.strerror}); "
            "what was there before is unchanged"
        )


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class RecordWriter:
    """Frames records into a binary stream (anything with ``write``).

    Source of the layout: tensorflow/core/lib/io/record_writer.h.
    """

    def __init__(self, stream: _Sink, compression: Compression | str = Compression.NONE) -> None:
        self._stream = stream
        compression = Compression(compression)
        self._deflater = Deflater(compression) if compression is not Compression.NONE else None

    def write(self, payload: bytes) -> int:
        """Write one record; return the bytes it took before compression."""
        length = struct.pack("<Q", len(payload))
        crc = _crc32c(length)
        head = length + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
        foot = struct.pack("<I", masked_crc32c(payload))
        for part in (head, payload, foot):
            self._stream.write(self._deflater.compress(part) if self._deflater else part)
        return len(payload) + 16

    def finish(self) -> None:
        """Write the end of a compressed stream. The stream itself stays open."""
        if self._deflater:
            self._stream.write(self._deflater.flush())


class ShardSetWriter:
    """Writes one subset as one shard or several.

    Use as a context manager: leaving it publishes the files, leaving it by an exception (also
    KeyboardInterrupt) discards them and keeps what was there before.

    Args:
        folder: where to write; made when it is not there.
        subset: the files' name before numbers and extension (:func:`shard_file_names`).
        num_shards: write this many, records dealt in turn, as the OD API does; fewer when there
            are fewer records, since a shard of no bytes looks like a failed download.
        shard_size: or begin a new shard when one would grow beyond this many bytes.
        compression: of each shard as a whole.

    Raises:
        WriteError: a file cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        subset: str,
        *,
        num_shards: int = 1,
        shard_size: int | None = None,
        compression: Compression | str = Compression.NONE,
    ) -> None:
        if num_shards < 1 or (shard_size is not None and shard_size < 1):
            raise ValueError("num_shards and shard_size must be at least 1")
        if num_shards > 1 and shard_size is not None:
            raise ValueError("num_shards and shard_size exclude each other")
        self._folder = os.fspath(folder)
        self._subset = subset
        self._shard_size = shard_size
        self._compression = Compression(compression)
        self._files: list[AtomicFile] = []
        self._writers: list[RecordWriter] = []
        self._written = 0
        self.count = 0
        try:
            for _ in range(num_shards):
                self._open()
        except BaseException:
            self.discard()
            raise

    def write(self, payload: bytes) -> None:
        """Add one record."""
        if self._shard_size is not None:
            if self._written and self._written + len(payload) + 16 > self._shard_size:
                self._next_shard()
            writer = self._writers[-1]
        else:
            writer = self._writers[self.count % len(self._writers)]
        self._written += writer.write(payload)
        self.count += 1

    def complete(self) -> None:
        """Complete all files, still under their temporary names."""
        for file in self._files[max(self.count, 1) :]:
            file.discard()
        del self._files[max(self.count, 1) :], self._writers[max(self.count, 1) :]
        for writer, file in zip(self._writers, self._files, strict=True):
            if not file.stream.closed:
                writer.finish()
                file.complete()

    def publish(self) -> list[str]:
        """Complete the files and give them their names; return their paths."""
        self.complete()
        names = shard_file_names(self._subset, len(self._files))
        return [file.publish(name) for file, name in zip(self._files, names, strict=True)]

    def discard(self) -> None:
        """Remove everything that was written aside."""
        for file in self._files:
            file.discard()

    def __enter__(self) -> ShardSetWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            self.discard()

    def _next_shard(self) -> None:
        self.complete()  # closes the full ones: a process may only hold so many files open
        self._open()

    def _open(self) -> None:
        file = AtomicFile(self._folder, shard_file_names(self._subset, 1)[0])
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
) -> list[str]:
    """Write all payloads as the shards of one subset; return the files' paths.

    Arguments and errors are those of :class:`ShardSetWriter`.
    """
    writer = ShardSetWriter(
        folder, subset, num_shards=num_shards, shard_size=shard_size, compression=compression
    )
    try:
        for payload in payloads:
            writer.write(payload)
        return writer.publish()
    finally:
        writer.discard()
