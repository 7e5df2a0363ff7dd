"""The compression of whole shards: none, GZIP or ZLIB, detected from the first bytes.

TensorFlow writes all three (``TFRecordOptions(compression_type=...)``), but does not detect them.
"""

from __future__ import annotations

import contextlib
import enum
import io
import zlib
from typing import TYPE_CHECKING, Protocol

from tfod.tfrecord.framing import HEADER_BYTES, is_record_header

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_INPUT_STEP = 1 << 18
_GZIP = b"\x1f\x8b"
HEAD_BYTES = 512
"""Bytes that identify the type of a file that is not a shard: the header of a tar archive."""
# 32 + 15: zlib detects the gzip or zlib header by itself, with the largest window.
_AUTO_DETECT = 47


class Compression(str, enum.Enum):
    """The compression of a whole shard, with the values of the command line."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"


def _detect_compression(head: bytes) -> Compression:
    # A plain shard may begin with any byte, because that is the length of its first record.
    if is_record_header(head):
        return Compression.NONE
    if head.startswith(_GZIP):
        return Compression.GZIP
    # RFC 1950: method 8 and a window of at most 32 KiB; the two bytes are a multiple of 31.
    is_zlib = len(head) >= 2 and head[0] & 0x8F == 0x08 and (head[0] << 8 | head[1]) % 31 == 0
    # A length below 16 MiB with a damaged checksum may look like zlib, but it contains zeros.
    return Compression.ZLIB if is_zlib and head[3:8] != bytes(5) else Compression.NONE


def is_tar(head: bytes) -> bool:
    """Return whether the first :data:`HEAD_BYTES` bytes of a file are a tar header."""
    if len(head) < HEAD_BYTES or not any(head[:HEADER_BYTES]):
        return False
    import tarfile  # rarely needed

    with contextlib.suppress(tarfile.HeaderError):
        tarfile.TarInfo.frombuf(head[:HEAD_BYTES], "utf-8", "surrogateescape")
        return True
    return False


class ReadableStream(Protocol):
    """A binary file, or an object with the same methods."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class PeekedStream:
    """A shard whose first bytes were inspected; :meth:`read` returns them again.

    Attributes:
        head: first 12 bytes, or fewer if the shard is shorter.
        compression: compression of the shard.
    """

    def __init__(self, stream: ReadableStream) -> None:
        self._stream = stream
        self._readinto = getattr(stream, "readinto", None)
        self._peeked = b""
        self.head = self._peek(HEADER_BYTES)
        self.compression = _detect_compression(self.head)
        # A tar archive begins with a file name, which may look like zlib: 80_train.record.
        if self.compression is Compression.ZLIB and is_tar(self._peek(HEAD_BYTES)):
            self.compression = Compression.NONE

    def _peek(self, size: int) -> bytes:
        while len(self._peeked) < size and (part := self._stream.read(size - len(self._peeked))):
            self._peeked += part
        return self._peeked

    def plain(self) -> PeekedStream | InflatingStream:
        """Return a stream of the uncompressed bytes."""
        return self if self.compression is Compression.NONE else InflatingStream(self)

    def read(self, size: int) -> bytes:
        if self._peeked:
            data, self._peeked = self._peeked[:size], self._peeked[size:]
            return data
        return self._stream.read(size)

    def readinto(self, target: memoryview) -> int:
        if self._peeked or self._readinto is None:
            data = self.read(len(target))
            target[: len(data)] = data
            return len(data)
        return self._readinto(target) or 0

    def close(self) -> None:
        pass  # the caller opened the stream and closes it


class InflatingStream(io.RawIOBase):
    """The uncompressed bytes of a gzip or zlib stream, as read by TensorFlow.

    Members of a gzip stream are joined, and one zero byte after the last one is skipped. A zlib
    stream ends with its first part. Source: experiments with tf.data.TFRecordDataset
    (tensorflow#6164, #13463). Bytes before damage are returned before the error is raised.

    Raises:
        zlib.error: the stream is damaged, or other bytes follow it.
        EOFError: the stream is truncated.
    """

    def __init__(self, stream: ReadableStream) -> None:
        self._stream = stream
        self._inflater = zlib.decompressobj(_AUTO_DETECT)
        self._pending = stream.read(_INPUT_STEP)
        self._is_gzip = self._pending.startswith(_GZIP)
        self._failure: zlib.error | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read bytes into the buffer and return their number; 0 only at an undamaged end."""
        target = memoryview(buffer)
        while True:
            if self._failure is not None:
                raise self._failure
            if self._inflater.eof:
                if not self._is_gzip or not self._has_next_member():
                    return 0
                self._inflater = zlib.decompressobj(_AUTO_DETECT)
            if not self._pending:
                self._pending = self._stream.read(_INPUT_STEP)
                if not self._pending:
                    raise EOFError("the compressed stream ends early")
            previous = self._inflater.copy()
            try:
                data = self._inflater.decompress(self._pending, len(target))
            except zlib.error as failure:
                self._failure = failure
                data = _decompress_undamaged(previous, self._pending, len(target))
            self._pending = self._inflater.unconsumed_tail
            if data:
                target[: len(data)] = data
                return len(data)

    def _has_next_member(self) -> bool:
        self._pending = self._inflater.unused_data or self._stream.read(_INPUT_STEP)
        if len(self._pending) == 1:
            self._pending += self._stream.read(_INPUT_STEP)
        if self._pending in (b"", b"\0"):
            return False
        if self._pending[:1] != b"\x1f":
            raise zlib.error("other bytes follow its end, where TensorFlow stops")
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()


def _decompress_undamaged(inflater: zlib._Decompress, data: bytes, max_bytes: int) -> bytes:
    """Decompress the bytes before damage; for damaged data, zlib returns nothing."""
    decompressed = b""
    step = len(data)
    while step and len(decompressed) < max_bytes:
        trial = inflater.copy()
        try:
            decompressed += trial.decompress(data[:step], max_bytes - len(decompressed))
        except zlib.error:
            step //= 2
            continue
        inflater, data = trial, data[step:]
        step = min(step, len(data))
    return decompressed


def make_compressor(compression: Compression) -> zlib._Compress | None:
    """Create the compressor for a new shard; return None if it is not compressed."""
    if compression is Compression.NONE:
        return None
    return zlib.compressobj(wbits=31 if compression is Compression.GZIP else 15)
