"""What is remembered of every record until the end, to compare records with each other.

About ninety bytes a record, in blocks that can be pickled and laid aside in a file
(:class:`RowStore`): hashes of the names and of the image, sorted, so that
the rows of one range of hashes lie together; and what is needed to name a record that a rule speaks
of.
"""

from __future__ import annotations

import enum
import os
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

import google_crc32c
import numpy as np

from tfod.errors import TfodError
from tfod.tfrecord.storage.open import read_at

BUCKETS = 64
"""Ranges of hashes that rows may be divided into; a power of two."""
_ROWS = 1 << 14
_LETTERS = 1 << 22
"""A block is closed when it has so many rows, or its names so many letters."""
_LARGE = 1 << 11
"""A block of fewer rows is read whole: it does not say where its ranges begin."""
_IN_MEMORY = 4 << 20
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
FACTS = np.dtype(
    [("record", "<u4"), ("offset", "<u8"), ("height", "<i4"), ("width", "<i4"), ("boxes", "<i4")]
)
_ROW = np.dtype("<u4")
_KEY = np.dtype("<u8")
_EDGES = np.arange(1, BUCKETS, dtype=np.uint64) << np.uint64(64 - BUCKETS.bit_length() + 1)
_crc32c = google_crc32c.value

KEYED_ROWS = np.dtype(
    [("key", "<u8"), ("subset", "<u4"), ("work", "<u8"), ("shard", "<u4"), ("row", "<u4")]
)
"""A row by one of its hashes; ``subset`` is a hash of the subset's name, the rest its place."""


class Key(enum.IntEnum):
    """By what records are compared with each other."""

    FILENAME = 0
    SOURCE_ID = 1
    IMAGE = 2


class RowPlace(NamedTuple):
    """Which record: places sort as the data does.

    Attributes:
        work: number of the piece of work.
        shard: number of the shard in it; an archive has several.
        row: number of the record among those of the shard that this piece of work has read.
    """

    work: int
    shard: int
    row: int


class RowFacts(NamedTuple):
    """What is known of a record at the end; sizes are in pixels, None where unknown."""

    record: int
    offset: int
    filename: str
    source_id: str
    height: int | None
    width: int | None
    boxes: int


class FileSpan(NamedTuple):
    """Bytes that lie in a file."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class RowBlock:
    """Some records of one shard, in their order.

    Attributes:
        work, shard: see :class:`RowPlace`.
        subset: hash of the subset's name.
        first: the row that comes first.
        count: how many there are.
        lengths: of the sections that make up the data: for each key the sorted hashes and their
            rows, then the facts, then the file names and the source ids, compressed.
        edges: for each key where the ranges of hashes begin; empty in a small block.
        data: the sections, one behind the other.
    """

    work: int
    shard: int
    subset: int
    first: int
    count: int
    lengths: tuple[int, ...]
    edges: tuple[bytes, ...]
    data: bytes | FileSpan

    def keys(self, key: Key, first: int = 0, stop: int = BUCKETS) -> np.ndarray:
        """The hashes in a range of buckets, sorted; uint64 of shape (n,)."""
        return self._keys(key, first, stop)[0]

    def keyed_rows(self, key: Key, first: int = 0, stop: int = BUCKETS) -> np.ndarray:
        """The rows that have this key in a range of buckets; dtype :data:`KEYED_ROWS`."""
        keys, start = self._keys(key, first, stop)
        found = np.empty(len(keys), KEYED_ROWS)
        found["key"] = keys
        rows = self._part(2 * key + 1, start, start + len(keys), _ROW)
        found["row"] = np.frombuffer(rows, _ROW)
        found["subset"], found["work"], found["shard"] = self.subset, self.work, self.shard
        return found

    def _keys(self, key: Key, first: int, stop: int) -> tuple[np.ndarray, int]:
        """The hashes in a range of buckets, and how many are in front of them."""
        if (first, stop) == (0, BUCKETS):
            return np.frombuffer(self._section(2 * key), _KEY), 0
        if self.edges:
            edges = np.frombuffer(self.edges[key], "<u4")
            start, end = int(edges[first]), int(edges[stop])
            return np.frombuffer(self._part(2 * key, start, end, _KEY), _KEY), start
        keys = np.frombuffer(self._section(2 * key), _KEY)
        start, end = _edges_of(keys)[[first, stop]].tolist()
        return keys[start:end].copy(), start  # not what holds all of them

    def facts(self, rows: Collection[int] | None = None) -> Iterator[tuple[RowPlace, RowFacts]]:
        """What is known of these rows, in their order; of all of them without a choice."""
        numbers = np.frombuffer(self._section(6), FACTS)
        filenames, source_ids = _unpacked(self._section(7)), _unpacked(self._section(8))
        chosen = range(self.count) if rows is None else sorted(row - self.first for row in rows)
        for one in chosen:
            record, offset, height, width, boxes = numbers[one].tolist()
            size = None if height < 0 else height, None if width < 0 else width
            facts = RowFacts(record, offset, filenames[one], source_ids[one], *size, boxes)
            yield RowPlace(self.work, self.shard, self.first + one), facts

    def _section(self, number: int) -> bytes:
        return self._bytes(sum(self.lengths[:number]), self.lengths[number])

    def _part(self, section: int, start: int, end: int, kind: np.dtype) -> bytes:
        before = sum(self.lengths[:section])
        return self._bytes(before + start * kind.itemsize, (end - start) * kind.itemsize)

    def _bytes(self, offset: int, length: int) -> bytes:
        if isinstance(self.data, bytes):
            return self.data[offset : offset + length]
        with open(self.data.path, "rb", buffering=0) as file:
            return read_at(file.fileno(), length, self.data.offset + offset)


@dataclass(frozen=True, eq=False)
class Rows:
    """What is to be remembered of some records.

    Attributes:
        filenames, source_ids: as the records have them.
        hashes: for each :class:`Key` a hash, 0 for nothing; uint64 of shape (n,).
        facts: of dtype ``FACTS`` and shape (n,); a size that is not known is -1.
    """

    filenames: Sequence[str | None]
    source_ids: Sequence[str | None]
    hashes: Sequence[np.ndarray]
    facts: np.ndarray


class RowCollector:
    """Makes blocks of the rows of one shard.

    Args:
        work, shard: see :class:`RowPlace`.
        subset: name of the shard's subset.
        keep: takes each block.
    """

    def __init__(
        self, work: int, shard: int, subset: str, keep: Callable[[RowBlock], object]
    ) -> None:
        self._work, self._shard, self._subset = work, shard, hash_of_subset(subset)
        self._keep = keep
        self._first = 0
        self._clear()

    def _clear(self) -> None:
        self._count = self._letters = 0
        self._names: tuple[list[str], ...] = ([], [])
        self._hashes: tuple[list[np.ndarray], ...] = tuple([] for _ in Key)
        self._facts: list[np.ndarray] = []

    def add(self, rows: Rows) -> None:
        """Remember records."""
        if not len(rows.facts):
            return
        for mine, hashes in zip(self._hashes, rows.hashes, strict=True):
            mine.append(hashes)
        for names, texts in zip(self._names, (rows.filenames, rows.source_ids), strict=True):
            names.append(_joined(texts))
            self._letters += len(names[-1])
        self._facts.append(rows.facts)
        self._count += len(rows.facts)
        if self._count >= _ROWS or self._letters >= _LETTERS:
            self.flush()

    def flush(self) -> None:
        """Make a block of what there is."""
        count = self._count
        if not count:
            return
        sections: list[bytes] = []
        edges: list[bytes] = []
        for hashes in self._hashes:
            keys, rows = _sorted_keys(np.concatenate(hashes), self._first)
            sections += (keys.tobytes(), rows.tobytes())
            if count >= _LARGE:
                edges.append(_edges_of(keys).astype("<u4").tobytes())
        sections.append(np.concatenate(self._facts).tobytes())
        sections += map(_packed, self._names)
        place = self._work, self._shard, self._subset, self._first
        lengths, data = tuple(map(len, sections)), b"".join(sections)
        self._keep(RowBlock(*place, count, lengths, tuple(edges), data))
        self._first += count
        self._clear()


def _sorted_keys(hashes: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys of the rows that have a hash, sorted, and the rows."""
    rows = np.flatnonzero(hashes)
    # Lengths and times lie in the high bits of some: spread, for ranges to be of equal size.
    keys = hashes[rows] * _SPREAD
    # The keys' upper bits with the places: a sort of numbers is much faster than that of places.
    places = np.uint64((1 << len(keys).bit_length()) - 1)
    order = np.sort((keys & ~places) | np.arange(len(keys), dtype=np.uint64)) & places
    if (keys[order][1:] < keys[order][:-1]).any():  # two keys that differ in the lower bits alone
        order = np.argsort(keys, kind="stable")
    return keys[order].astype(_KEY), (rows[order] + first).astype(_ROW)


def _edges_of(keys: np.ndarray) -> np.ndarray:
    """Where each range begins in sorted keys, and the end."""
    return np.concatenate(([0], np.searchsorted(keys, _EDGES), [len(keys)]))


def hash_of(text: str | None) -> int:
    """64 bits that are the same in every process; 0 for nothing."""
    if not text:
        return 0
    value = text.encode("utf-8", "surrogatepass")
    return int(_crc32c(value)) << 32 | zlib.crc32(value)


def hash_of_subset(subset: str) -> int:
    """32 bits that tell subsets apart, in every process."""
    return zlib.crc32(subset.encode("utf-8", "surrogatepass"))


def _joined(names: Sequence[str | None]) -> str:
    # Names hold no zero bytes but by malice; those are told by a rule and replaced here.
    texts = [name or "" for name in names]
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        joined = "\0".join(name.replace("\0", "\ufffd") for name in texts)
    return joined


def _packed(names: Sequence[str]) -> bytes:
    return zlib.compress("\0".join(names).encode("utf-8", "surrogatepass"), 1)


def _unpacked(section: bytes) -> list[str]:
    return zlib.decompress(section).decode("utf-8", "surrogatepass").split("\0")


class RowStore:
    """Keeps blocks.

    Args:
        folder: where those go that memory is too small for; None to keep all in memory. Several
            processes may use the same folder.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._held = 0
        self._file: BinaryIO | None = None
        self._written = 0

    def keep(self, block: RowBlock) -> RowBlock:
        """The block as it is kept.

        Raises:
            TfodError: there is no room for it.
        """
        data = block.data
        if self._folder is None or isinstance(data, FileSpan):
            return block
        if self._held + len(data) <= _IN_MEMORY:
            self._held += len(data)
            return block
        try:
            return replace(block, data=self._write(data, self._folder))
        except OSError as error:
            raise TfodError(
                f"{self._folder}: what is remembered of the records cannot be written there "
                f"({error.strerror}); make room, or set TMPDIR to another folder"
            ) from None

    def _write(self, data: bytes, folder: str) -> FileSpan:
        if self._file is None:
            handle, self._path = tempfile.mkstemp(dir=folder, prefix="rows-")
            self._file = open(handle, "wb", buffering=0)
        start, view = self._written, memoryview(data)
        while view:
            count = self._file.write(view)
            self._written += count
            view = view[count:]
        return FileSpan(self._path, start, len(data))

    def close(self) -> None:
        """Close the file; what is in it can still be read."""
        if self._file is not None:
            self._file.close()


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for the rows of one check, which is removed at the end.

    Raises:
        TfodError: it cannot be made.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="tfod-rows-", ignore_cleanup_errors=True)
    except OSError as error:
        where = os.environ.get("TMPDIR") or "the folder for temporary files"
        raise TfodError(f"{where} cannot be written to ({error.strerror}); set TMPDIR") from None
    with folder as path:
        yield path
