"""TFRecord framing: the walk through a shard, one record after the other, checksums verified.

A record on disk is ``uint64 length, uint32 crc(length), length bytes, uint32 crc(bytes)``, all
little-endian; the checksums are CRC-32C, rotated and offset ("masked").
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/core/lib/hash/crc32c.h.

Records are read through a small reused buffer, not through a memory map: it is as fast (the
buffer stays in the processor's cache), costs no resident pages, and a file that somebody
truncates meanwhile ends in an error instead of a SIGBUS.
"""

from __future__ import annotations

import os
import struct
import sys
import warnings
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

import google_crc32c
import numpy as np

from tfod.compression import Compression, InflatingStream, detect_compression
from tfod.errors import ShardError

HEADER_BYTES = 12  # length and its checksum
FOOTER_BYTES = 4  # the payload's checksum
_BUFFER_BYTES = 1 << 19
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_crc32c = google_crc32c.value

if google_crc32c.implementation != "c":
    warnings.warn(
        "google-crc32c runs without its C library here and is about 1000 times slower; "
        "reinstall it from a binary wheel: pip install --force-reinstall google-crc32c",
        RuntimeWarning,
        stacklevel=2,
    )

_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\xff\xd8\xff", "a JPEG picture", "pass the shard, not the picture"),
    (b"\x89PNG", "a PNG picture", "pass the shard, not the picture"),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the real file: git lfs pull"),
    (b"<!DOCTYPE", "an HTML page", "download the raw file, not the page about it"),
    (b"<!doctype", "an HTML page", "download the raw file, not the page about it"),
    (b"<html", "an HTML page", "download the raw file, not the page about it"),
    (b"\x1f\x8b", "gzip inside gzip", "decompress it once"),
    (b"Rar!", "a RAR archive", "unpack it first"),
    (b"7z\xbc\xaf", "a 7-Zip archive", "unpack it first"),
    (b"{", "JSON text", "pass the shard"),
    (b"[", "JSON text", "pass the shard"),
    (b"<?xml", "XML text", "pass the shard"),
)


class Record(NamedTuple):
    """One record of a shard.

    ``buffer[start:start + length]`` is its payload. The buffer is not changed as long as
    something refers to it, so a record may be kept; keeping one keeps up to 512 KiB alive.
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


def masked_crc32c(data: bytes | np.ndarray) -> int:
    """The checksum as TFRecord stores it: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc: int = _crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_record_header(head: bytes) -> bool:
    """Whether these (first 12) bytes are a record's length with its right checksum."""
    if len(head) < HEADER_BYTES:
        return False
    return masked_crc32c(head[:8]) == int.from_bytes(head[8:HEADER_BYTES], "little")


def shard_compression(head: bytes) -> Compression:
    """How a shard that begins with ``head`` (12 bytes) is compressed."""
    return Compression.NONE if is_record_header(head) else detect_compression(head)


def read_records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Walk through the records of one shard, plain, GZIP or ZLIB.

    Raises:
        ShardError: at the first defect of the framing, with record, byte and remedy. Unlike
            TensorFlow, this includes a file that ends inside a record's header and a file of
            zero bytes.
        OSError: the file cannot be opened or read.
    """
    name = os.fspath(path)
    with open(name, "rb", buffering=0) as stream:
        yield from read_record_stream(stream, name, os.fstat(stream.fileno()).st_size)


def read_record_stream(stream: BinaryIO, name: str, size: int | None = None) -> Iterator[Record]:
    """Walk through the records of an open binary stream that is at the start of a shard.

    Args:
        stream: anything with ``read`` and ``readinto``; need not seek.
        name: what to call the shard in errors.
        size: its length in bytes if known; a record that claims more is then refused at once.
    """
    head = _read_exactly(stream, HEADER_BYTES)
    if not head:
        raise ShardError(
            "is empty (0 bytes)",
            shard=name,
            remedy="delete it if it is meant to be empty, otherwise export or download it again",
        )
    compression = shard_compression(head)
    rejoined = _Rejoined(head, stream)
    if compression is Compression.NONE:
        yield from _walk(rejoined, name, size)
        return
    try:
        yield from _walk(InflatingStream(rejoined), name, None)  # type: ignore[arg-type]
    except (zlib.error, EOFError) as error:
        raise ShardError(
            f"its {compression.value} stream is damaged ({error})",
            shard=name,
            remedy="download or export it again",
        ) from None


class _Source(Protocol):
    def readinto(self, target: memoryview, /) -> int: ...


class _Rejoined:
    """A stream with the bytes that were read ahead put back in front."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._stream.read(size)

    def readinto(self, target: memoryview) -> int:
        if self._head:
            head, self._head = self._head, b""
            target[: len(head)] = head
            return len(head)
        return self._stream.readinto(target) or 0  # type: ignore[attr-defined]

    def close(self) -> None:
        self._stream.close()


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0:
        part = stream.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class _Buffers:
    """Two buffers in turn, replaced by fresh ones where somebody still holds a record of them."""

    def __init__(self) -> None:
        self._pool: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        counts = _reference_counts(self._pool)
        for position, count in enumerate(counts):
            if count == _UNSHARED and len(self._pool[position]) >= size:
                self._pool.append(self._pool.pop(position))
                return self._pool[-1]
        fresh = bytearray(size)
        self._pool = [*self._pool[-1:], fresh]
        return fresh


def _reference_counts(pool: list[bytearray]) -> list[int]:
    return [sys.getrefcount(buffer) for buffer in pool]


# What the count is for a buffer that only the pool refers to: differs between interpreters.
_UNSHARED = _reference_counts([bytearray()])[0]


def _walk(stream: _Source, name: str, size: int | None) -> Iterator[Record]:
    buffers = _Buffers()
    buffer = buffers.take(_BUFFER_BYTES)
    array = np.frombuffer(buffer, np.uint8)
    base = 0  # offset of buffer[0] in the uncompressed file
    have = position = index = 0
    unpack_header, unpack_crc = _HEADER.unpack_from, _CRC.unpack_from
    while True:
        wanted = HEADER_BYTES
        while have - position >= HEADER_BYTES:
            length, length_crc = unpack_header(buffer, position)
            crc = _crc32c(array[position : position + 8])
            if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != length_crc:
                raise _bad_length(
                    bytes(buffer[position : min(have, position + 64)]), name, index, base + position
                )
            end = position + HEADER_BYTES + length + FOOTER_BYTES
            if end > have:
                wanted = end - position
                break
            crc = _crc32c(array[position + HEADER_BYTES : end - FOOTER_BYTES])
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            if masked != unpack_crc(buffer, end - FOOTER_BYTES)[0]:
                raise _bad_data(name, index, base + position)
            yield Record(index, base + position, buffer, position + HEADER_BYTES, length)
            index += 1
            position = end
        if size is not None and wanted > HEADER_BYTES and base + position + wanted > size:
            raise _truncated(name, index, base + position, wanted, size - base - position)
        # Never more memory than twice what has really been read: a forged length allocates nothing.
        room = min(wanted, 2 * max(have - position, _BUFFER_BYTES))
        array = _NO_BYTES
        buffer, rest = _carry(buffers, buffer, position, have, max(room, _BUFFER_BYTES))
        array = np.frombuffer(buffer, np.uint8)
        base += position
        position, have = 0, rest
        got = _fill(stream, buffer, have)
        if got == 0:
            if have:
                raise _truncated(name, index, base, max(wanted, HEADER_BYTES), have)
            return
        have += got


_NO_BYTES = np.zeros(0, np.uint8)


def _carry(
    buffers: _Buffers, buffer: bytearray, position: int, have: int, size: int
) -> tuple[bytearray, int]:
    """Take the next buffer and move the unread rest of the last one to its front."""
    rest = bytes(memoryview(buffer)[position:have])
    del buffer
    fresh = buffers.take(size)
    fresh[: len(rest)] = rest
    return fresh, len(rest)


def _fill(stream: _Source, buffer: bytearray, have: int) -> int:
    """Read until the buffer is full or the stream ends; return how many bytes came."""
    view = memoryview(buffer)
    start = have
    while have < len(buffer):
        got = stream.readinto(view[have:])
        if not got:
            break
        have += got
    return have - start


def _bad_length(head: bytes, name: str, index: int, offset: int) -> ShardError:
    if index == 0:
        for signature, what, remedy in _SIGNATURES:
            if head.lstrip().startswith(signature):
                return ShardError(f"is no TFRecord file but {what}", shard=name, remedy=remedy)
        return ShardError(
            "is no TFRecord file (its first 12 bytes are no record header)",
            shard=name,
            remedy="check that this is the shard, and download it again if it is",
        )
    what = "only zero bytes follow" if not any(head) else "the checksum of the length is wrong"
    return ShardError(
        f"{what}, so nothing behind this byte can be read",
        shard=name,
        record=index,
        offset=offset,
        remedy=_again(index),
    )


def _bad_data(name: str, index: int, offset: int) -> ShardError:
    return ShardError(
        "the checksum of the data is wrong, the record was changed after it was written",
        shard=name,
        record=index,
        offset=offset,
        remedy="download or export the shard again",
    )


def _again(sound: int) -> str:
    remedy = "download or export the shard again"
    if not sound:
        return remedy
    before = f"the {sound} records before it are" if sound > 1 else "the record before it is"
    return f"{remedy}; {before} sound"


def _truncated(name: str, index: int, offset: int, wanted: int, got: int) -> ShardError:
    part = "its header" if got < HEADER_BYTES else "the record"
    need = HEADER_BYTES if got < HEADER_BYTES else wanted
    return ShardError(
        f"the file ends inside {part} ({got} of {need} bytes are there)",
        shard=name,
        record=index,
        offset=offset,
        remedy=_again(index),
    )
