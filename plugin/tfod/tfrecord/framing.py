"""The framing of records in a shard: headers, checksums, and the search for plausible headers.

A record is ``uint64 length, uint32 crc(length), length bytes, uint32 crc(bytes)``, little-endian;
the checksums are CRC-32C, rotated and offset ("masked").
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/core/lib/hash/crc32c.h.
"""

from __future__ import annotations

import bisect
import functools
import struct
from collections.abc import Iterator

import numpy as np

from tfod.kernel.checksum import crc32c

HEADER_BYTES = 12  # length and its checksum
FOOTER_BYTES = 4  # the payload's checksum
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_BLOCK = 1 << 16  # bytes to search for headers at once
_HEADER = struct.Struct("<QI")


def masked_crc32c(data: bytes | np.ndarray) -> int:
    """Return the checksum of TFRecord: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(1024)  # many records have the same length
def encode_header(length: int) -> bytes:
    """Return the header of a record with a payload of ``length`` bytes."""
    return _HEADER.pack(length, masked_crc32c(length.to_bytes(8, "little")))


def decode_length(head: bytes) -> int | None:
    """Return the payload length from a header of 12 bytes, or None if its checksum is wrong."""
    if len(head) < HEADER_BYTES:
        return None
    length, stored = _HEADER.unpack_from(head)
    return int(length) if masked_crc32c(head[:8]) == stored else None


def is_record_header(head: bytes) -> bool:
    """Return whether the first 12 bytes are a record header with a correct checksum."""
    return decode_length(head) is not None


class HeaderFinder:
    """A search for plausible headers in a buffered stream that examines each byte once.

    A damaged shard may be searched a million times, so the headers in a block of bytes are cached.
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._start = self._stop = 0  # the part of the stream that was searched

    def find(self, data: np.ndarray, base: int, position: int) -> Iterator[tuple[int, int]]:
        """Yield the position and payload length of each plausible header, from ``position`` on.

        ``data`` is uint8 of shape (n,), and ``base`` is its offset in the stream.
        """
        first, end = base + position, base + len(data)
        if not self._start <= first <= self._stop:
            self._offsets, self._lengths, self._stop = [], [], first
        next_header = bisect.bisect_left(self._offsets, first)
        while True:
            for header in range(next_header, len(self._offsets)):
                yield self._offsets[header] - base, self._lengths[header]
            if self._stop >= end:
                return
            # A header may cross the end of the part that was searched.
            start = max(first, self._stop - HEADER_BYTES + 1)
            self._start, self._stop = start, min(end, self._stop + _BLOCK)
            positions, lengths = find_headers(data[start - base : self._stop - base])
            self._offsets, self._lengths = (positions + start).tolist(), lengths.tolist()
            next_header = 0


def find_headers(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and lengths of headers with a length below 2**40 and a valid checksum."""
    count = len(data) - HEADER_BYTES + 1
    if count <= 0 or not data.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # The upper three bytes of such a length are zero, so few checksums need to be computed.
    upper_bytes = data[5 : 5 + count] | data[6 : 6 + count] | data[7 : 7 + count]
    positions = np.flatnonzero(upper_bytes == 0)
    headers = data[positions[:, None] + np.arange(HEADER_BYTES)]
    crc = np.full(len(positions), crc32c(bytes(8)), np.uint32)
    for byte, table in enumerate(_crc_tables()):
        crc ^= table[headers[:, byte]]
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    is_valid = masked == headers[:, 8:].copy().view("<u4")[:, 0]
    lengths = headers[is_valid, :8].copy().view("<u8")[:, 0].astype(np.int64)
    return positions[is_valid].astype(np.int64, copy=False), lengths


@functools.cache
def _crc_tables() -> list[np.ndarray]:
    """Return for each of the five low bytes of a length how its values change the CRC-32C."""
    zero_crc = crc32c(bytes(8))
    return [
        np.array(
            [crc32c((value << 8 * byte).to_bytes(8, "little")) ^ zero_crc for value in range(256)],
            np.uint32,
        )
        for byte in range(5)
    ]
