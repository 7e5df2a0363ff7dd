"""What several records of a data set share: names and images, by hashes of 64 bits.

Of each record a hash for each thing is remembered, and its byte; all records of all shards have
running numbers, in the order of the data. One sort at the end brings equal hashes together, which
in most data there are none of.
"""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from tfod.check.findings.finding import Place
from tfod.detection import keys
from tfod.detection.columns import single_values
from tfod.example.wire import Kind
from tfod.kernel import hash_spans

if TYPE_CHECKING:
    from tfod.check.records.batch import Batch

_TRAINING, _UNION = "train", "trainval"
_NO_ROWS = np.empty(0, np.int64)
_FACTOR = 0x9E3779B97F4A7C15
_THINGS = (keys.FILENAME, keys.SOURCE_ID)


@dataclass
class RecordIndex:
    """The records of one shard that could be read: what they share with others, and where they are.

    Attributes:
        offsets: the byte that each record starts at.
        numbers: of the records; None where they count from 0 without a gap.
        filenames, source_ids, images: of each record a hash, uint64, 0 for nothing; None where no
            record has one.
        texts: file names and source ids, packed, with the row of the first record of each pack.
    """

    offsets: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    numbers: np.ndarray | None = None
    filenames: np.ndarray | None = None
    source_ids: np.ndarray | None = None
    images: np.ndarray | None = None
    texts: list[tuple[int, bytes, bytes]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def place(self, row: int, shard: str) -> Place:
        """Where a record is."""
        name = self.texts_of(row)[0]
        number = row if self.numbers is None else int(self.numbers[row])
        return Place(shard, number, int(self.offsets[row]), name or None)

    def texts_of(self, row: int) -> tuple[str, str]:
        """File name and source id of a record; empty for none."""
        firsts = [first for first, _, _ in self.texts]
        pack = int(np.searchsorted(firsts, row, "right")) - 1
        first, *packed = self.texts[pack]
        name, source_id = (_unpacked(one)[row - first] for one in packed)
        return name, source_id


class Indexer:
    """Makes the index of a shard from its batches."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._texts: list[tuple[int, bytes, bytes]] = []
        self._rows = 0

    def add(self, batch: Batch) -> None:
        """Remember the records of a batch."""
        live = np.flatnonzero(batch.live)
        hashes = []
        for key in _THINGS:
            column = batch.detections.column(key, Kind.BYTES)
            rows, spans = single_values(column)
            found = np.zeros(len(batch), np.uint64)
            found[rows] = hash_spans(column.buffer, spans)
            hashes.append(found[live])
        records = batch.records
        numbers, offsets = records.numbers[live].astype(np.uint32), records.offsets[live]
        self._parts.append((numbers, _narrow(offsets), *hashes, batch.images.hashes[live]))
        if len(live):
            texts = (batch.detections.filenames, batch.detections.source_ids)
            names, source_ids = (
                _packed(one if len(live) == len(one) else [one[row] for row in live.tolist()])
                for one in texts
            )
            self._texts.append((self._rows, names, source_ids))
            self._rows += len(live)

    def finish(self) -> RecordIndex:
        """What is remembered of all of them."""
        if not self._parts:
            return RecordIndex()
        columns = [np.concatenate(parts) for parts in zip(*self._parts, strict=True)]
        self._parts.clear()
        numbers, offsets, *hashes = columns
        is_plain = int(numbers[-1]) == len(numbers) - 1 if len(numbers) else True
        names, ids, images = (one if one.any() else None for one in hashes)
        return RecordIndex(offsets, None if is_plain else numbers, names, ids, images, self._texts)


def _narrow(offsets: np.ndarray) -> np.ndarray:
    return offsets.astype(np.uint32 if not len(offsets) or offsets[-1] < 1 << 32 else np.uint64)


def _packed(names: Sequence[str | None]) -> bytes:
    # Names hold no zero bytes but by malice; those are told by a rule and replaced here.
    texts = [name or "" for name in names] if None in names else names
    joined = "\0".join(cast("Sequence[str]", texts))
    if joined.count("\0") != len(texts) - 1:
        joined = "\0".join((name or "").replace("\0", "\ufffd") for name in texts)
    return zlib.compress(joined.encode("utf-8", "surrogatepass"), 1)


@functools.lru_cache(64)
def _unpacked(pack: bytes) -> list[str]:
    return zlib.decompress(pack).decode("utf-8", "surrogatepass").split("\0")


@dataclass(frozen=True)
class Repeat:
    """A record that shares something with an earlier one.

    Attributes:
        place, first: where the record is, and the first one that has the same.
        subset, first_subset: theirs.
        text: the record's source id.
        image: checksum of the record's image.
    """

    place: Place
    first: Place
    subset: str
    first_subset: str
    text: str
    image: int


@dataclass(frozen=True, eq=False)
class Pairs:
    """Running numbers of records that share something with an earlier one, and of that one.

    Both are int64 of shape (n,), in the order of the later records.
    """

    laters: np.ndarray
    firsts: np.ndarray

    def __getitem__(self, part: slice) -> Pairs:
        return Pairs(self.laters[part], self.firsts[part])


class IndexedShard(Protocol):
    """What is looked at of a shard."""

    name: str
    subset: str
    images: int
    index: RecordIndex


class Duplicates:
    """What the records of some shards share."""

    def __init__(self, shards: Sequence[IndexedShard]) -> None:
        self._shards = shards
        self._ends = np.cumsum([len(one.index) for one in shards], dtype=np.int64)
        names = {one: number for number, one in enumerate(dict.fromkeys(s.subset for s in shards))}
        self._subsets = np.array([names[one.subset] for one in shards], np.int64)

    @cached_property
    def filenames(self) -> Pairs:
        """Of the same subset and file name."""
        return self._in_subset("filenames")

    @cached_property
    def source_ids(self) -> Pairs:
        """Of the same subset and source id."""
        return self._in_subset("source_ids")

    @cached_property
    def same_images(self) -> Pairs:
        """Of the same subset and encoded image."""
        return self._in_subset("images")

    @cached_property
    def shared_images(self) -> Pairs:
        """Of the same image in another subset; the first record of each subset."""
        key, rows = self._sorted("images")
        heads = rows[_starts(key, self._subset_of(rows))]
        keys_of_heads = key[_starts(key, self._subset_of(rows))]
        order = np.lexsort((heads, keys_of_heads))
        heads, keys_of_heads = heads[order], keys_of_heads[order]
        return _pairs(heads, _starts(keys_of_heads))

    @cached_property
    def leaked_subsets(self) -> dict[str, int]:
        """Subsets for evaluation all of whose images are in others, and how many those are."""
        shared = self.shared_images
        elsewhere = self._by_subset(_distinct(np.concatenate((shared.laters, shared.firsts))))
        total: Counter[str] = Counter()
        total.subtract(self._by_subset(self.same_images.laters))
        for shard in self._shards:
            total[shard.subset] += shard.images
        whole = {name for name, count in elsewhere.items() if count == total[name]}
        # VOC's trainval is train and val once more: where it has more than train, val is not in it.
        for union in [one for one in whole if _UNION in one]:
            train, val = (union.replace(_UNION, part) for part in (_TRAINING, "val"))
            if whole >= {train, val} and total[union] > total[train]:
                whole.remove(val)
        return {one: elsewhere[one] for one in sorted(whole) if _TRAINING not in one.lower()}

    def repeats(self, pairs: Pairs) -> Iterator[Repeat]:
        """What is known of each."""
        for later, first in zip(pairs.laters.tolist(), pairs.firsts.tolist(), strict=True):
            (shard, row), (other, first_row) = self._at(later), self._at(first)
            yield Repeat(
                shard.index.place(row, shard.name),
                other.index.place(first_row, other.name),
                shard.subset,
                other.subset,
                shard.index.texts_of(row)[1],
                int(shard.index.images[row]) if shard.index.images is not None else 0,
            )

    def shards_of(self, rows: np.ndarray) -> list[str]:
        """The name of the shard of each running number."""
        return [self._shards[at].name for at in np.searchsorted(self._ends, rows, "right").tolist()]

    def _at(self, row: int) -> tuple[IndexedShard, int]:
        number = int(np.searchsorted(self._ends, row, "right"))
        shard = self._shards[number]
        return shard, row - int(self._ends[number]) + len(shard.index)

    def _subset_of(self, rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._subsets[np.searchsorted(self._ends, rows, "right")]
        return found

    def _by_subset(self, rows: np.ndarray) -> dict[str, int]:
        at = np.searchsorted(self._ends, rows, "right").tolist()
        return Counter(self._shards[number].subset for number in at)

    def _in_subset(self, thing: str) -> Pairs:
        key, rows = self._sorted(thing, by_subset=True)
        return _pairs(rows, _starts(key))

    def _sorted(self, thing: str, *, by_subset: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Hashes that several records have, and the records: by hash, subset and running number."""
        key = self._hashes(thing, by_subset)
        key.sort()  # in place: there may be a hundred million
        again = _distinct(key[1:][key[1:] == key[:-1]])
        again = again[again != 0]
        if not len(again):
            return np.empty(0, np.uint64), _NO_ROWS
        key = self._hashes(thing, by_subset)
        at = np.minimum(np.searchsorted(again, key), len(again) - 1)
        rows = np.flatnonzero(again[at] == key)
        rows = rows[np.lexsort((rows, self._subset_of(rows), key[rows]))]
        return key[rows], rows

    def _hashes(self, thing: str, by_subset: bool) -> np.ndarray:
        """Those of all records, uint64 of shape (records,); empty where none has one.

        What two subsets have in common has two hashes, where they are told apart.
        """
        columns: list[np.ndarray | None] = [getattr(one.index, thing) for one in self._shards]
        if all(one is None for one in columns):
            return np.empty(0, np.uint64)
        found = np.zeros(int(self._ends[-1]), np.uint64)
        for column, end, subset in zip(columns, self._ends, self._subsets, strict=True):
            if column is not None:
                part = found[end - len(column) : end]
                part[:] = column
                if by_subset:
                    part[column > 0] ^= np.uint64(int(subset) * _FACTOR % (1 << 64))
        return found


def _starts(*columns: np.ndarray) -> np.ndarray:
    """Where a new value, or pair of values, begins; bool of shape (n,)."""
    found = np.ones(len(columns[0]), bool)
    found[1:] = np.any([one[1:] != one[:-1] for one in columns], axis=0)
    return found


def _distinct(values: np.ndarray) -> np.ndarray:
    """As np.unique, which loads NumPy's masked arrays to do it."""
    ordered = np.sort(values)
    found: np.ndarray = ordered[_starts(ordered)]
    return found


def _pairs(rows: np.ndarray, starts: np.ndarray) -> Pairs:
    """Each row but the first of its group, with the first."""
    firsts = rows[starts][np.cumsum(starts) - 1] if len(rows) else rows
    laters, firsts = rows[~starts], firsts[~starts]
    order = np.argsort(laters)
    return Pairs(laters[order], firsts[order])
