"""What is remembered of every record until the end, to compare records with each other.

About forty bytes a record: hashes of the names and of the picture, the offset, and the names
themselves, compressed. Nothing else of a record is kept.
"""

from __future__ import annotations

import bisect
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import google_crc32c
import numpy as np

_CHUNK = 2048
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
    _chunks: list[bytes] = field(default_factory=list)
    _pending: list[str] = field(default_factory=list)
    _opened: tuple[int, list[str]] = (-1, [])

    def __len__(self) -> int:
        return len(self.records)

    def add(
        self,
        place: tuple[int, int],
        filename: str | None,
        source_id: str | None,
        picture: int,
        size: tuple[int | None, int | None],
        boxes: int,
    ) -> None:
        """Remember a record.

        Args:
            place: its number and offset.
            filename: as the record has it.
            source_id: likewise.
            picture: the fingerprint of its picture, 0 for none.
            size: height and width in pixels.
            boxes: how many it has.
        """
        self.records.append(place[0])
        self.offsets.append(place[1])
        self.filenames.append(hash_of(filename))
        self.source_ids.append(hash_of(source_id))
        self.pictures.append(picture)
        self.heights.append(_int32(size[0]))
        self.widths.append(_int32(size[1]))
        self.boxes.append(boxes)
        self._pending.append(filename or "")
        if len(self._pending) == _CHUNK:
            self._flush()

    def extend(self, other: Catalogue) -> None:
        """Add the records that come next."""
        self._flush()
        other._flush()
        count = len(self)
        self._starts += [count + start for start in other._starts]
        self._chunks += other._chunks
        for name in _COLUMNS:
            getattr(self, name).extend(getattr(other, name))

    def filename(self, index: int) -> str:
        """The file name of a record, by its place in the catalogue."""
        self._flush()
        chunk = bisect.bisect_right(self._starts, index) - 1
        if self._opened[0] != chunk:
            self._opened = (chunk, _unpacked(self._chunks[chunk]))
        return self._opened[1][index - self._starts[chunk]]

    def _flush(self) -> None:
        """Pack the names that are waiting."""
        if self._pending:
            self._starts.append(len(self) - len(self._pending))
            self._chunks.append(_packed(self._pending))
            self._pending = []

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


def repeated(hashes: np.ndarray) -> Iterator[tuple[int, int]]:
    """For each value but 0 that comes again: the place of its first coming, and of a later one.

    In the order of the later ones.
    """
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    again = np.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)) + 1
    if not len(again):
        return
    # The place in ``order`` at which the run of equal values begins.
    starts = np.searchsorted(ordered, ordered[again], side="left")
    pairs = np.stack((order[again], order[starts]))
    for later, first in pairs[:, np.argsort(pairs[0])].T.tolist():
        yield first, later


def _int32(value: int | None) -> int:
    return -1 if value is None or not 0 <= value < 1 << 31 else value


def _packed(names: list[str]) -> bytes:
    # Names hold no zero bytes but by malice; those are told by a rule and replaced here.
    joined = "\0".join(name.replace("\0", "\ufffd") for name in names)
    return zlib.compress(joined.encode("utf-8", "surrogatepass"), 1)


def _unpacked(chunk: bytes) -> list[str]:
    return zlib.decompress(chunk).decode("utf-8", "surrogatepass").split("\0")
