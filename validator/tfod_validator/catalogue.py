"""What is remembered of every record until the end, to compare records with each other.

About forty bytes a record: hashes of the names and of the picture, the offset, and the names
themselves, compressed. Nothing else of a record is kept.
"""

from __future__ import annotations

import bisect
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import google_crc32c
import numpy as np

from tfod_validator.batch import Row

_COLUMNS = (
    *("records", "offsets", "filenames", "source_ids"),
    *("pictures", "heights", "widths", "boxes"),
)
_crc32c = google_crc32c.value


@dataclass(frozen=True)
class Entry:
    """One record of a catalogue."""

    record: int
    offset: int
    filename: str
    height: int | None
    width: int | None
    boxes: int


@dataclass
class Catalogue:
    """The records of one shard, or of a part of it, in their order.

    The hashes are 64 bits, 0 where the record has no such value.
    """

    records: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    filenames: array[int] = field(default_factory=lambda: array("Q"))
    source_ids: array[int] = field(default_factory=lambda: array("Q"))
    pictures: array[int] = field(default_factory=lambda: array("Q"))
    heights: array[int] = field(default_factory=lambda: array("i"))
    widths: array[int] = field(default_factory=lambda: array("i"))
    boxes: array[int] = field(default_factory=lambda: array("i"))
    _starts: list[int] = field(default_factory=list)
    _chunks: list[tuple[bytes, bytes]] = field(default_factory=list)
    _opened: tuple[int, list[tuple[str, str]]] = (-1, [])

    def __len__(self) -> int:
        return len(self.records)

    def add(self, rows: Sequence[Row]) -> None:
        """Remember records."""
        if not rows:
            return
        columns = list(zip(*rows, strict=True))
        numbers, offsets, filenames, source_ids, pictures, heights, widths, boxes = columns[:8]
        self._starts.append(len(self))
        self._chunks.append((_packed(filenames), _packed(source_ids)))
        self.records.extend(numbers)
        self.offsets.extend(offsets)
        hashes = list(map(hash_of, filenames))
        self.filenames.extend(hashes)
        same = source_ids == filenames  # as most scripts have it
        self.source_ids.extend(hashes if same else map(hash_of, source_ids))
        self.pictures.extend(pictures)
        self.heights.extend(map(_int32, heights))
        self.widths.extend(map(_int32, widths))
        self.boxes.extend(boxes)

    def extend(self, other: Catalogue) -> None:
        """Add the records that come next."""
        count = len(self)
        self._starts += [count + start for start in other._starts]
        self._chunks += other._chunks
        for name in _COLUMNS:
            getattr(self, name).extend(getattr(other, name))

    def filename(self, index: int) -> str:
        """The file name of a record, by its place in the catalogue."""
        return self._names(index)[0]

    def source_id(self, index: int) -> str:
        """The source id likewise."""
        return self._names(index)[1]

    def _names(self, index: int) -> tuple[str, str]:
        chunk = bisect.bisect_right(self._starts, index) - 1
        if self._opened[0] != chunk:
            filenames, source_ids = map(_unpacked, self._chunks[chunk])
            self._opened = (chunk, list(zip(filenames, source_ids, strict=True)))
        return self._opened[1][index - self._starts[chunk]]

    def __iter__(self) -> Iterator[Entry]:
        for index in range(len(self)):
            height, width = self.heights[index], self.widths[index]
            yield Entry(
                self.records[index],
                self.offsets[index],
                self.filename(index),
                None if height < 0 else height,
                None if width < 0 else width,
                self.boxes[index],
            )


def hash_of(text: str | None) -> int:
    """64 bits that are the same in every process; 0 for nothing."""
    if not text:
        return 0
    value = text.encode("utf-8", "surrogatepass")
    mixed: int = _crc32c(value) << 32 | zlib.crc32(value)
    return mixed


def repeated(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where values but 0 come again.

    Args:
        hashes: uint64 of shape (n,).

    Returns:
        The places of all that come again, in order, and for each the place of its first coming.
    """
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    again = np.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)) + 1
    # The place in ``order`` at which the run of equal values begins.
    starts = np.searchsorted(ordered, ordered[again], side="left")
    laters, firsts = order[again], order[starts]
    in_order = np.argsort(laters)
    return laters[in_order], firsts[in_order]


def _int32(value: int | None) -> int:
    return -1 if value is None or not 0 <= value < 1 << 31 else value


def _packed(names: Sequence[str | None]) -> bytes:
    # Names hold no zero bytes but by malice; those are told by a rule and replaced here.
    joined = "\0".join(name or "" for name in names)
    if joined.count("\0") != len(names) - 1:
        joined = "\0".join((name or "").replace("\0", "\ufffd") for name in names)
    return zlib.compress(joined.encode("utf-8", "surrogatepass"), 1)


def _unpacked(chunk: bytes) -> list[str]:
    return zlib.decompress(chunk).decode("utf-8", "surrogatepass").split("\0")
