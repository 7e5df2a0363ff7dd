"""How a record lies in a shard: its header, its checksums, and where plausible headers are.

A record is ``uint64 length, uint32 crc(length), length bytes, uint32 crc(bytes)``, little-endian;
the checksums are CRC-32C, rotated and offset ("masked").
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/core/lib/hash/crc32c.h.
"""

from __future__ import annotations

import bisect
import functools
import struct
import warnings
from collections.abc import Iterator

import google_crc32c
import numpy as np

HEADER_BYTES = 12  # length and its checksum
FOOTER_BYTES = 4  # the payload's checksum
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_BLOCK = 1 << 16  # bytes that are searched for headers at once
_HEADER = struct.Struct("<QI")
_crc32c = google_crc32c.value

if google_crc32c.implementation != "c":
    warnings.warn(
        "google-crc32c runs without its C library here and is about 1000 times slower; "
        "reinstall it from a binary wheel: pip install --force-reinstall google-crc32c",
        RuntimeWarning,
        stacklevel=2,
    )


def masked_crc32c(data: bytes | np.ndarray) -> int:
    """The checksum as TFRecord stores it: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc: int = _crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(1024)  # many records are as long as others
def header_of(length: int) -> bytes:
    """The header of a record whose payload has so many bytes."""
    return _HEADER.pack(length, masked_crc32c(length.to_bytes(8, "little")))


def length_in_header(head: bytes) -> int | None:
    """The length of a payload as the 12 bytes of a record's header say it; None if unsound."""
    if len(head) < HEADER_BYTES:
        return None
    length, stored = _HEADER.unpack_from(head)
    return int(length) if masked_crc32c(head[:8]) == stored else None


def is_record_header(head: bytes) -> bool:
    """Whether these (first 12) bytes are a record's length with its right checksum."""
    return length_in_header(head) is not None


class HeaderFinder:
    """Finds plausible headers in a buffer on a stream, looking at each byte once.

    A damaged shard may be searched a million times: the headers in a block of bytes are found by
    the first search that comes there, and the others look them up.
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._start = self._stop = 0  # the bytes of the stream that were looked at

    def find(self, data: np.ndarray, base: int, position: int) -> Iterator[tuple[int, int]]:
        """Positions from ``position`` on at which a plausible header lies, and the lengths in them.

        The buffer is uint8 of shape (n,), and ``base`` the byte of the stream that it begins with.
        """
        first, end = base + position, base + len(data)
        if not self._start <= first <= self._stop:
            self._offsets, self._lengths, self._stop = [], [], first
        number = bisect.bisect_left(self._offsets, first)
        while True:
            for found in range(number, len(self._offsets)):
                yield self._offsets[found] - base, self._lengths[found]
            if self._stop >= end:
                return
            # A header may have begun at the end of what was looked at.
            again = max(first, self._stop - HEADER_BYTES + 1)
            self._start, self._stop = again, min(end, self._stop + _BLOCK)
            places, lengths = find_headers(data[again - base : self._stop - base])
            self._offsets, self._lengths = (places + again).tolist(), lengths.tolist()
            number = 0


def find_headers(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions at which a length of less than 2**40 with its right checksum lies, and the lengths.

    Of bytes, uint8 of shape (n,); two arrays of int64, of shape (m,).
    """
    count = len(data) - HEADER_BYTES + 1
    if count <= 0 or not data.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # Lengths are small: three zero bytes leave few positions where the checksum need be computed.
    zeros = data[5 : 5 + count] | data[6 : 6 + count] | data[7 : 7 + count]
    places = np.flatnonzero(zeros == 0)
    headers = data[places[:, None] + np.arange(HEADER_BYTES)]
    crc = np.full(len(places), _crc32c(bytes(8)), np.uint32)
    for byte, table in enumerate(_crc_tables()):
        crc ^= table[headers[:, byte]]
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    sound = masked == headers[:, 8:].copy().view("<u4")[:, 0]
    lengths = headers[sound, :8].copy().view("<u8")[:, 0].astype(np.int64)
    return places[sound], lengths


@functools.cache
def _crc_tables() -> list[np.ndarray]:
    """What each value of each of the five low bytes of a length does to its CRC-32C."""
    nothing = _crc32c(bytes(8))
    return [
        np.array(
            [_crc32c((value << 8 * byte).to_bytes(8, "little")) ^ nothing for value in range(256)],
            np.uint32,
        )
        for byte in range(5)
    ]
