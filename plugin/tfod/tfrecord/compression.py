"""Compression of whole shards, recognised from the bytes: none, GZIP or ZLIB.

TensorFlow writes the three (``TFRecordOptions(compression_type=...)``) and has to be told which
one it reads; the bytes know it themselves.
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
"""What says what a file is instead of a shard; the header of a tar archive."""
# 32 + 15: zlib detects the gzip or zlib header by itself, with the largest window.
_AUTO_DETECT = 47


class Compression(str, enum.Enum):
    """How a whole shard is compressed; the values are the names the command line takes."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"


def _compression_of(head: bytes) -> Compression:
    """How a shard that begins with these 12 bytes is compressed."""
    # A plain shard may begin with any byte, since that is the length of its first record.
    if is_record_header(head):
        return Compression.NONE
    if head.startswith(_GZIP):
        return Compression.GZIP
    # RFC 1950: method 8 and a window of at most 32 KiB; the two bytes are a multiple of 31.
    is_zlib = len(head) >= 2 and head[0] & 0x8F == 0x08 and (head[0] << 8 | head[1]) % 31 == 0
    # A length of less than 16 MiB whose checksum is damaged may look so, but for its zeros.
    return Compression.ZLIB if is_zlib and head[3:8] != bytes(5) else Compression.NONE


def is_tar(head: bytes) -> bool:
    """Whether the first :data:`HEAD_BYTES` bytes of a file are the header of a tar archive."""
    if len(head) < HEAD_BYTES or not any(head[:HEADER_BYTES]):
        return False
    import tarfile  # few files are asked for

    with contextlib.suppress(tarfile.HeaderError):
        tarfile.TarInfo.frombuf(head[:HEAD_BYTES], "utf-8", "surrogateescape")
        return True
    return False


class ReadableStream(Protocol):
    """What is read from: any binary file, or something like one."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class PeekedStream:
    """The bytes of a shard, the first of which were looked at; they are read again.

    Attributes:
        head: the first 12 bytes; fewer where there are no more.
        compression: how the shard is compressed.
    """

    def __init__(self, stream: ReadableStream) -> None:
        self._stream = stream
        self._readinto = getattr(stream, "readinto", None)
        self._rest = b""
        self.head = self._peek(HEADER_BYTES)
        self.compression = _compression_of(self.head)
        # The name of the first file in a tar may look like zlib: 80_train.record.
        if self.compression is Compression.ZLIB and is_tar(self._peek(HEAD_BYTES)):
            self.compression = Compression.NONE

    def _peek(self, size: int) -> bytes:
        while len(self._rest) < size and (part := self._stream.read(size - len(self._rest))):
            self._rest += part
        return self._rest

    def plain(self) -> PeekedStream | InflatingStream:
        """The shard as it is without its compression."""
        return self if self.compression is Compression.NONE else InflatingStream(self)

    def read(self, size: int) -> bytes:
        if self._rest:
            found, self._rest = self._rest[:size], self._rest[size:]
            return found
        return self._stream.read(size)

    def readinto(self, target: memoryview) -> int:
        if self._rest or self._readinto is None:
            found = self.read(len(target))
            target[: len(found)] = found
            return len(found)
        count: int = self._readinto(target) or 0
        return count

    def close(self) -> None:
        pass  # closed by the caller, who opened it


class InflatingStream(io.RawIOBase):
    """Reads the plain bytes of a gzip or zlib stream, as far as TensorFlow reads it.

    Members of a gzip stream are joined, and one zero byte behind the last is passed over; a zlib
    stream ends with its first part, whatever follows. Source: tried with tf.data.TFRecordDataset
    (tensorflow#6164, #13463). What comes before a damage is read before it is raised.

    Raises:
        zlib.error: the stream is damaged, or something else follows it.
        EOFError: the stream ends before its end mark.
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
        """Fill at most as many bytes as there is room for; 0 only at the stream's sound end."""
        target = memoryview(buffer)
        while True:
            if self._failure is not None:
                raise self._failure
            if self._inflater.eof:
                if not self._is_gzip or not self._has_another():
                    return 0
                self._inflater = zlib.decompressobj(_AUTO_DETECT)
            if not self._pending:
                self._pending = self._stream.read(_INPUT_STEP)
                if not self._pending:
                    raise EOFError("the compressed stream ends early")
            before = self._inflater.copy()
            try:
                data = self._inflater.decompress(self._pending, len(target))
            except zlib.error as failure:
                self._failure = failure
                data = _up_to_the_damage(before, self._pending, len(target))
            self._pending = self._inflater.unconsumed_tail
            if data:
                target[: len(data)] = data
                return len(data)

    def _has_another(self) -> bool:
        """Whether another member of a gzip stream follows the one that has ended."""
        self._pending = self._inflater.unused_data or self._stream.read(_INPUT_STEP)
        if len(self._pending) == 1:
            self._pending += self._stream.read(_INPUT_STEP)
        if self._pending in (b"", b"\0"):
            return False
        if self._pending[:1] != b"\x1f":
            raise zlib.error("other bytes follow its end, at which TensorFlow stops")
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()


def _up_to_the_damage(inflater: zlib._Decompress, data: bytes, most: int) -> bytes:
    """What can be unpacked of data that cannot be unpacked whole, at most so many bytes.

    zlib gives nothing of a piece with a damage in it: pieces are halved until none is left.
    """
    found = b""
    step = len(data)
    while step and len(found) < most:
        trial = inflater.copy()
        try:
            found += trial.decompress(data[:step], most - len(found))
        except zlib.error:
            step //= 2
            continue
        inflater, data = trial, data[step:]
        step = min(step, len(data))
    return found


def compressor_of(compression: Compression) -> zlib._Compress | None:
    """What compresses a shard while it is written; None for a plain one."""
    if compression is Compression.NONE:
        return None
    return zlib.compressobj(wbits=31 if compression is Compression.GZIP else 15)
