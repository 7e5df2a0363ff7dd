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
import warnings
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import numpy as np

from tfod.tfrecord.compression import (
    Compression,
    InflatingStream,
    PeekedStream,
    ReadableStream,
    detect_compression,
)
from tfod.tfrecord.damage import (
    HEADER_BYTES,
    Damage,
    DamageHandler,
    bad_data,
    bad_length,
    damaged_compression,
    empty_file,
    foreign_file,
    forged_length,
    looks_like,
    oversize,
    trailing_zeros,
    truncated,
)
from tfod.tfrecord.headers import FOOTER_BYTES, HeaderFinder, ShardPart
from tfod.tfrecord.opening import open_shard
from tfod.tfrecord.window import BUFFER_BYTES, NO_BUFFER, NO_BYTES, Source, Window

_ENDLESS = 1 << 62  # the end of a stream of unknown length
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
    def framed_span(self) -> tuple[int, int]:
        """Where it lies in the buffer with header and footer, if :func:`read_records` read it."""
        return self.start - HEADER_BYTES, self.start + self.length + FOOTER_BYTES

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
    if is_record_header(head):
        return Compression.NONE
    found = detect_compression(head)
    # A length of less than 16 MiB whose checksum is damaged may look like zlib, but for its zeros.
    is_length = found is Compression.ZLIB and head[3:8] == bytes(5)
    return Compression.NONE if is_length else found


def read_records(
    path: str | os.PathLike[str],
    *,
    part: ShardPart | None = None,
    on_damage: DamageHandler | None = None,
    max_record_bytes: int | None = None,
) -> Iterator[Record]:
    """Walk through the records of one shard, plain, GZIP or ZLIB.

    Args:
        path: the file.
        part: only these of its records, as :func:`split_shard` has found them.
        on_damage: told of each defect of the framing, and the walk goes on behind it: at the next
            record after wrong data, at the next plausible one after a wrong length. Without it
            the first defect is raised.
        max_record_bytes: larger records are a damage, passed over and never held in memory.

    Raises:
        ShardError: at the first defect of the framing, with record, byte and remedy. Unlike
            TensorFlow, this includes a file that ends inside a record's header, and a file of
            zero bytes that is not one of a numbered set (of such a set it has no records).
        OSError: the file, or the URL, cannot be opened or read.
    """
    name = os.fspath(path)
    with open_shard(name, part) as (stream, size):
        yield from read_record_stream(
            stream, name, size, part=part, on_damage=on_damage, max_record_bytes=max_record_bytes
        )


def read_record_stream(
    stream: ReadableStream,
    name: str,
    size: int | None = None,
    *,
    part: ShardPart | None = None,
    on_damage: DamageHandler | None = None,
    max_record_bytes: int | None = None,
) -> Iterator[Record]:
    """Walk through the records of an open binary stream that is at the start of a shard.

    Args:
        stream: anything with ``read``, better with ``readinto`` too; need not seek.
        name: what to call the shard in errors.
        size: its length in bytes if known; a record that claims more is then refused at once.
        part: only these records of a plain shard; the stream is at their start.
        on_damage: as in :func:`read_records`.
        max_record_bytes: likewise.
    """
    report = on_damage or _raise
    rejoined = PeekedStream(stream, 0 if part else HEADER_BYTES)
    if part is not None:
        yield from _Walk(rejoined, name, part, on_damage, max_record_bytes).records()
        return
    if not rejoined.head:
        from tfod.tfrecord.shards import is_one_of_several  # which needs this module

        if on_damage or not is_one_of_several(name):
            report(empty_file(name))
        return
    compression = shard_compression(rejoined.head)
    if compression is Compression.NONE:
        whole = ShardPart(0, _ENDLESS if size is None else size, 0)
        yield from _Walk(rejoined, name, whole, on_damage, max_record_bytes).records()
        return
    inflating: Source = InflatingStream(rejoined)
    try:
        whole = ShardPart(0, _ENDLESS, 0)
        yield from _Walk(inflating, name, whole, on_damage, max_record_bytes).records()
    except (zlib.error, EOFError) as error:
        report(damaged_compression(name, compression.value, str(error)))


def _raise(damage: Damage) -> None:
    raise damage.to_error() from None


class _Walk:
    """The walk through a shard's records."""

    def __init__(
        self,
        stream: Source,
        name: str,
        part: ShardPart,
        on_damage: DamageHandler | None,
        limit: int | None,
    ) -> None:
        self._window = Window(stream, part.start, part.stop)
        self._name = name
        self._size = part.stop
        self._first = part.first_record
        self._on_damage = on_damage
        self._limit = limit
        self._headers = HeaderFinder()

    def records(self) -> Iterator[Record]:
        window, name = self._window, self._name
        report = self._on_damage or _raise
        buffer, array, have, base = window.buffer, window.array, window.have, window.base
        position, index = 0, self._first
        unpack_header, unpack_crc = _HEADER.unpack_from, _CRC.unpack_from
        while True:
            wanted = HEADER_BYTES
            while have - position >= HEADER_BYTES:
                length, length_crc = unpack_header(buffer, position)
                crc = _crc32c(array[position : position + 8])
                if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != length_crc:
                    wanted = 0
                    break
                end = position + HEADER_BYTES + length + FOOTER_BYTES
                if end > have:
                    wanted = end - position
                    break
                crc = _crc32c(array[position + HEADER_BYTES : end - FOOTER_BYTES])
                masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
                if masked == unpack_crc(buffer, end - FOOTER_BYTES)[0]:
                    yield Record(index, base + position, buffer, position + HEADER_BYTES, length)
                else:
                    report(bad_data(name, index, base + position))
                index += 1
                position = end
            buffer, array = NO_BUFFER, NO_BYTES
            if wanted == 0:
                found = self._pass_bad_length(position, index)
            elif wanted == HEADER_BYTES:
                found = self._read_on(position, index)
            else:
                found = self._read_whole(position, index, wanted)
            if found is None:
                return
            position, passed = found
            index += passed
            buffer, array, have, base = window.buffer, window.array, window.have, window.base

    def _read_on(self, position: int, index: int) -> tuple[int, int] | None:
        """Read more behind the last whole record.

        Returns:
            The new position and how many records were passed over; None at the end.
        """
        window = self._window
        if window.refill(position, BUFFER_BYTES):
            return 0, 0
        if window.have:
            rest = bytes(window.buffer[: window.have])
            self._report(
                truncated(self._name, index, window.base, HEADER_BYTES, window.have)
                # A length may begin with zeros, but no header is zeros up to its checksum.
                if any(rest) or window.have <= 8
                else trailing_zeros(self._name, index, window.base, window.have)
            )
        elif self._size not in (_ENDLESS, window.base):
            # The file has become shorter since its size was asked for.
            missing = self._size - window.base
            self._report(truncated(self._name, index, window.base, missing, 0))
        return None

    def _read_whole(self, position: int, index: int, wanted: int) -> tuple[int, int] | None:
        """Read until the whole record is there; pass over one that cannot be had."""
        window = self._window
        offset = window.base + position
        if offset + wanted > self._size and self._size != _ENDLESS:
            return self._pass_long_claim(position, index, wanted, self._size - offset)
        if self._limit is not None and wanted > self._limit:
            return self._pass_oversize(position, index, wanted)
        if window.refill(position, wanted):
            return 0, 0
        # The end is known from now on: what claims more is not read up to here once more.
        self._size = window.base + window.have
        return self._pass_long_claim(0, index, wanted, window.have)

    def _pass_oversize(self, position: int, index: int, wanted: int) -> tuple[int, int] | None:
        window, limit = self._window, self._limit or 0
        offset = window.base + position
        got = window.skip(position, wanted)
        if got < wanted:
            self._report(truncated(self._name, index, offset, wanted, got))
            return None
        self._report(oversize(self._name, index, offset, wanted, limit))
        return 0, 1

    def _pass_long_claim(
        self, position: int, index: int, wanted: int, got: int
    ) -> tuple[int, int] | None:
        """A record claims more than there is: the end was cut off, or the length is forged."""
        offset = self._window.base + position
        damage = truncated(self._name, index, offset, wanted, got)
        if self._on_damage is None:
            self._report(damage)
        found, _ = self._search(position + 1)
        if found is None:
            self._report(damage)
            return None
        skipped = self._window.base + found - offset
        self._report(forged_length(self._name, index, offset, wanted, skipped))
        return found, 1

    def _pass_bad_length(self, position: int, index: int) -> tuple[int, int] | None:
        window, name = self._window, self._name
        offset = window.base + position
        head = bytes(window.buffer[position : min(window.have, position + 64)])
        if self._on_damage is None:
            if index == 0:
                self._report(foreign_file(name, head))
            self._report(bad_length(name, index, offset) if any(head) else
                         trailing_zeros(name, index, offset))  # fmt: skip
        if index == 0 and looks_like(head):
            self._report(foreign_file(name, head))
            return None
        found, only_zeros = self._search(position + 1)
        skipped = window.base + (window.have if found is None else found) - offset
        if found is not None:
            self._report(bad_length(name, index, offset, skipped, resumed=True))
            return found, 1
        if only_zeros and not any(head):
            self._report(trailing_zeros(name, index, offset, skipped))
        elif index == 0:
            self._report(foreign_file(name, head))
        else:
            self._report(bad_length(name, index, offset, skipped))
        return None

    def _search(self, position: int) -> tuple[int | None, bool]:
        """Look for the next plausible record header.

        Returns:
            Its position in the window, or None at the end of the stream; then also whether all that
            was passed over is zeros.
        """
        window, only_zeros = self._window, True
        while True:
            data = window.array[: window.have]
            for found, length in self._headers.find(data, window.base, position):
                if self._fits(window.base + found, length):
                    return found, False
            only_zeros = only_zeros and not data[position:].any()
            kept = max(position, window.have - HEADER_BYTES + 1)
            del data  # or the buffer would seem to be in use
            if not window.refill(kept, BUFFER_BYTES):
                return None, only_zeros
            position = 0

    def _fits(self, offset: int, length: int) -> bool:
        whole = HEADER_BYTES + length + FOOTER_BYTES
        if self._size != _ENDLESS:
            return offset + whole <= self._size
        return self._limit is None or whole <= self._limit

    def _report(self, damage: Damage) -> None:
        (self._on_damage or _raise)(damage)
