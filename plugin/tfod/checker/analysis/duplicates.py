"""What several records of a data set share: names and images, by hashes of 64 bits.

Of each record a hash for each thing is remembered, and its byte; all records of all shards have
running numbers, in the order of the data. One sort at the end brings equal hashes together, which
in most data there are none of.
"""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np

from tfod.checker.finding import Place
from tfod.detection import keys
from tfod.detection.columns import select_single_values
from tfod.example.wire import Kind
from tfod.kernel import hash_spans

if TYPE_CHECKING:
    from tfod.checker.analysis.batch import Batch

_TRAINING, _UNION = "train", "trainval"


class IndexedBatch(NamedTuple):
    """Records of a shard that follow each other: what they share with others, and where they are.

    Attributes:
        first: number of the first one.
        offsets: the byte that each starts at.
        hashes: of file names, source ids and images, by the OD API's key: one for each record,
            uint64, 0 for nothing. A thing that no record has is left out.
        texts: file names and source ids, packed.
    """

    first: int
    offsets: np.ndarray
    hashes: Mapping[str, np.ndarray]
    texts: tuple[bytes, bytes]

    @classmethod
    def of(cls, batch: Batch) -> IndexedBatch:
        """That of a batch; what cannot be read shares nothing."""
        found, records = batch.detections, batch.records
        hashes = {keys.ENCODED: batch.images.hashes}
        for key in (keys.FILENAME, keys.SOURCE_ID):
            column = found.column(key, Kind.BYTES)
            rows, spans = select_single_values(column)
            hashes[key] = np.zeros(len(batch), np.uint64)
            hashes[key][rows] = hash_spans(column.buffer, spans)
        known = {key: one * batch.live for key, one in hashes.items()}
        offsets = records.offsets
        is_narrow = not len(offsets) or offsets[-1] < 1 << 32
        return cls(
            records.first,
            offsets.astype(np.uint32 if is_narrow else np.uint64),
            {key: one for key, one in known.items() if one.any()},
            (_packed(found.filenames), _packed(found.source_ids)),
        )

    def place(self, row: int, shard: str) -> Place:
        """Where a record is."""
        name = _unpacked(self.texts[0])[row]
        return Place(shard, self.first + row, int(self.offsets[row]), name or None)


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


class Repeat(NamedTuple):
    """A record that shares something with an earlier one.

    Attributes:
        place, first: where the record is, and the first one that has the same.
        subset, first_subset: theirs.
        source_id: of the record; empty for none.
        image: checksum of the record's image; 0 for none.
    """

    place: Place
    first: Place
    subset: str
    first_subset: str
    source_id: str
    image: int


class IndexedShard(Protocol):
    """What is looked at of a shard."""

    name: str
    subset: str
    images: int
    index: list[IndexedBatch]


class Duplicates:
    """What the records of some shards share.

    Pairs are the running numbers of records that share something with an earlier one, and of the
    first that has the same; int64 of shape (n, 2), in the order of the later records.
    """

    def __init__(self, shards: Sequence[IndexedShard]) -> None:
        self._shards = shards
        self._batches = [(shard, batch) for shard in shards for batch in shard.index]
        self._ends = np.cumsum([len(one.offsets) for _, one in self._batches], dtype=np.int64)
        names = {one: number for number, one in enumerate(dict.fromkeys(s.subset for s in shards))}
        self._subsets = np.array([names[shard.subset] for shard, _ in self._batches], np.int64)

    def in_subset(self, thing: str) -> np.ndarray:
        """Pairs of the same subset and thing: file name, source id or image, by its key."""
        hashes, subsets, rows = self._shared(thing)
        return _pairs(rows, _starts(hashes, subsets))

    @cached_property
    def shared_images(self) -> np.ndarray:
        """Pairs of the same image in two subsets, of the first records of each."""
        hashes, subsets, rows = self._shared(keys.ENCODED)
        heads = _starts(hashes, subsets)
        hashes, rows = hashes[heads], rows[heads]
        order = np.lexsort((rows, hashes))
        return _pairs(rows[order], _starts(hashes[order]))

    @cached_property
    def leaked_subsets(self) -> dict[str, int]:
        """Subsets for evaluation all of whose images are in others, and how many those are."""
        shared = np.sort(self.shared_images, axis=None)
        if not len(shared):
            return {}
        elsewhere = Counter(one.subset for one in self.shards_of(shared[_starts(shared)]))
        total: Counter[str] = Counter()
        again = self.in_subset(keys.ENCODED)[:, 0]
        total.subtract(one.subset for one in self.shards_of(again))
        for shard in self._shards:
            total[shard.subset] += shard.images
        whole = {name for name, count in elsewhere.items() if count == total[name]}
        # VOC's trainval is train and val once more: where it has more than train, val is not in it.
        for union in [one for one in whole if _UNION in one]:
            train, val = (union.replace(_UNION, part) for part in (_TRAINING, "val"))
            if whole >= {train, val} and total[union] > total[train]:
                whole.remove(val)
        return {one: elsewhere[one] for one in sorted(whole) if _TRAINING not in one.lower()}

    def repeats(self, pairs: np.ndarray) -> Iterator[Repeat]:
        """What is known of each pair."""
        for later, first in pairs.tolist():
            (shard, batch, row), (other, others, first_row) = self._at(later), self._at(first)
            images = batch.hashes.get(keys.ENCODED)
            yield Repeat(
                batch.place(row, shard.name),
                others.place(first_row, other.name),
                shard.subset,
                other.subset,
                _unpacked(batch.texts[1])[row],
                0 if images is None else int(images[row]),
            )

    def shards_of(self, rows: np.ndarray) -> list[IndexedShard]:
        """The shard of each running number."""
        return [self._batches[at][0] for at in np.searchsorted(self._ends, rows, "right").tolist()]

    def _at(self, number: int) -> tuple[IndexedShard, IndexedBatch, int]:
        at = int(np.searchsorted(self._ends, number, "right"))
        shard, batch = self._batches[at]
        return shard, batch, number - int(self._ends[at]) + len(batch.offsets)

    def _shared(self, thing: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hash, subset and running number of what has the hash of another; sorted by all three."""
        hashes = self._hashes(thing)
        hashes.sort()  # in place: there may be a hundred million
        again = hashes[1:][hashes[1:] == hashes[:-1]]
        again = again[_starts(again) & (again != 0)]
        if len(again):
            hashes = self._hashes(thing)
            at = np.minimum(np.searchsorted(again, hashes), len(again) - 1)
            rows = np.flatnonzero(again[at] == hashes)
        else:
            rows = np.empty(0, np.int64)
        hashes, subsets = hashes[rows], self._subsets[np.searchsorted(self._ends, rows, "right")]
        order = np.lexsort((rows, subsets, hashes))
        return hashes[order], subsets[order], rows[order]

    def _hashes(self, thing: str) -> np.ndarray:
        """Those of all records, uint64 of shape (records,); empty where none has one."""
        columns = [one.hashes.get(thing) for _, one in self._batches]
        if all(one is None for one in columns):
            return np.empty(0, np.uint64)
        found = np.zeros(int(self._ends[-1]), np.uint64)
        for column, end in zip(columns, self._ends.tolist(), strict=True):
            if column is not None:
                found[end - len(column) : end] = column
        return found


def _starts(*columns: np.ndarray) -> np.ndarray:
    """Where a new value, or pair of values, begins; bool of shape (n,)."""
    found = np.ones(len(columns[0]), bool)
    found[1:] = np.any([one[1:] != one[:-1] for one in columns], axis=0)
    return found


def _pairs(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Each row but the first of its group, with the first."""
    firsts = rows[starts][np.cumsum(starts) - 1] if len(rows) else rows
    pairs = np.stack((rows, firsts), axis=1)[~starts]
    ordered: np.ndarray = pairs[np.argsort(pairs[:, 0])]
    return ordered
