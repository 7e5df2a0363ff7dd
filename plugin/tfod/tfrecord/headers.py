"""Finding record headers: where the next plausible record is, and where a shard can be split."""

from __future__ import annotations

import bisect
import functools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import google_crc32c
import numpy as np

from tfod.tfrecord.damage import HEADER_BYTES
from tfod.tfrecord.opening import read_at

FOOTER_BYTES = 4  # the payload's checksum
_WINDOW = 1 << 16
_BLOCK = 1 << 16  # bytes that are searched for headers at once
_HEADER = struct.Struct("<QI")
_crc32c = google_crc32c.value


@dataclass(frozen=True)
class ShardPart:
    """A run of records of a plain shard, for several readers to share it.

    Attributes:
        start, stop: half-open span in bytes; both are ends of records.
        first_record: number of the record at ``start``.
        records: how many it has, where its headers or an index have told.
    """

    start: int
    stop: int
    first_record: int
    records: int | None = None


def split_shard(path: str | os.PathLike[str], part_bytes: int) -> Iterator[ShardPart]:
    """Split a plain shard into parts of about so many bytes, by walking its headers alone.

    From the first header that is not sound on, the rest is one part: only a reader who looks at
    the data knows where to go on.

    Raises:
        OSError: the file cannot be opened or read.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        start = first = number = base = position = 0
        window = b""
        while True:
            if position - base + HEADER_BYTES > len(window):
                # Behind a large record the next one will be large too: its header is enough.
                wanted = HEADER_BYTES if position - base > _WINDOW else _WINDOW
                base, window = position, read_at(file.fileno(), wanted, position)
            head = window[position - base : position - base + HEADER_BYTES]
            length = length_in_header(head)
            if length is None:
                break
            position += HEADER_BYTES + length + FOOTER_BYTES
            number += 1
            if position >= size:
                break
            if position - start >= part_bytes:
                yield ShardPart(start, position, first, number - first)
                start, first = position, number
            if position - base > len(window):
                window = b""
        yield ShardPart(start, size, first, number - first if position == size else None)


def length_in_header(head: bytes) -> int | None:
    """The length of a payload as the 12 bytes of a record's header say it; None if unsound."""
    if len(head) < HEADER_BYTES:
        return None
    length, stored = _HEADER.unpack(head)
    crc = _crc32c(head[:8])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return int(length) if masked == stored else None


class HeaderFinder:
    """Finds plausible headers in the window on a stream, looking at each byte once.

    A damaged shard may be searched a million times: the headers in a block of bytes are found by
    the first search that comes there, and the others look them up.
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._start = self._stop = 0  # the bytes of the stream that were looked at

    def find(self, data: np.ndarray, base: int, position: int) -> Iterator[tuple[int, int]]:
        """Positions from ``position`` on at which a plausible header lies, and the lengths in them.

        Args:
            data: the window, uint8 of shape (n,).
            base: byte of the stream that ``data[0]`` is.
            position: where in the window to begin.
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

    Args:
        data: bytes, uint8 of shape (n,).

    Returns:
        Two arrays of int64, of shape (m,).
    """
    count = len(data) - HEADER_BYTES + 1
    if count <= 0 or not data.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # Lengths are small: three zero bytes leave few places where the checksum need be computed.
    zeros = data[5 : 5 + count] | data[6 : 6 + count] | data[7 : 7 + count]
    places = np.flatnonzero(zeros == 0)
    crc = np.full(len(places), _crc32c(bytes(8)), np.uint32)
    lengths = np.zeros(len(places), np.int64)
    for byte, table in enumerate(_crc_tables()):
        values = data[places + byte]
        crc ^= table[values]
        lengths |= values.astype(np.int64) << np.int64(8 * byte)
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    stored = np.zeros(len(places), np.uint32)
    for byte in range(4):
        stored |= data[places + 8 + byte].astype(np.uint32) << np.uint32(8 * byte)
    sound = masked == stored
    return places[sound], lengths[sound]


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
