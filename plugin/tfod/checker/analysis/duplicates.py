"""Records of a dataset that share a file name, source id or image, found by 64-bit hashes.

Records of all shards are numbered consecutively. Equal hashes, which most datasets do not have, are
found by sorting after the last shard.
"""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np

from tfod.checker.finding import Location
from tfod.detection import keys
from tfod.detection.columns import select_single_values
from tfod.example.wire import Kind
from tfod.kernel import hash_spans

if TYPE_CHECKING:
    from tfod.checker.analysis.batch import Batch

_TRAINING, _UNION = "train", "trainval"


class IndexedBatch(NamedTuple):
    """Consecutive records of a shard: their locations, names, and hashes of names and images.

    Attributes:
        hashes: hashes of file names, source ids and images, by the OD API's key: uint64, one per
            record, 0 for no value. Keys without any value are omitted.
        texts: file names and source ids, compressed.
    """

    first: int
    offsets: np.ndarray
    hashes: Mapping[str, np.ndarray]
    texts: tuple[bytes, bytes]

    @classmethod
    def of(cls, batch: Batch) -> IndexedBatch:
        """Index a batch. Values that cannot be read have the hash 0."""
        detections, records = batch.detections, batch.records
        hashes = {keys.ENCODED: batch.images.hashes}
        for key in (keys.FILENAME, keys.SOURCE_ID):
            column = detections.column(key, Kind.BYTES)
            rows, spans = select_single_values(column)
            hashes[key] = np.zeros(len(batch), np.uint64)
            hashes[key][rows] = hash_spans(column.buffer, spans)
        live_hashes = {key: column * batch.live for key, column in hashes.items()}
        offsets = records.offsets
        is_narrow = not len(offsets) or offsets[-1] < 1 << 32
        return cls(
            records.first,
            offsets.astype(np.uint32 if is_narrow else np.uint64),
            {key: column for key, column in live_hashes.items() if column.any()},
            (_pack(detections.filenames), _pack(detections.source_ids)),
        )

    def locate(self, row: int, shard: str) -> Location:
        """Return the location of a record."""
        name = _unpack(self.texts[0])[row]
        return Location(shard, self.first + row, int(self.offsets[row]), name or None)


def _pack(names: Sequence[str | None]) -> bytes:
    # Zero bytes in names, which a rule reports, are replaced, because they separate the names.
    texts = [name or "" for name in names] if None in names else names
    joined = "\0".join(cast("Sequence[str]", texts))
    if joined.count("\0") != len(texts) - 1:
        joined = "\0".join((name or "").replace("\0", "\ufffd") for name in texts)
    return zlib.compress(joined.encode("utf-8", "surrogatepass"), 1)


@functools.lru_cache(64)
def _unpack(pack: bytes) -> list[str]:
    return zlib.decompress(pack).decode("utf-8", "surrogatepass").split("\0")


class Repeat(NamedTuple):
    """A record that shares a name or an image with an earlier record.

    ``first`` is the first record with the same value, ``image`` the hash of the image, or 0.
    """

    location: Location
    first: Location
    subset: str
    first_subset: str
    source_id: str
    image: int


class IndexedShard(Protocol):
    """The attributes of a shard that are needed to find duplicates."""

    name: str
    subset: str
    images: int
    index: list[IndexedBatch]


class Duplicates:
    """The names and images that the records of several shards share.

    Methods return pairs: the number of a record that repeats a value, and the number of the first
    record with that value; intp of shape (n, 2), in the order of the first column.
    """

    def __init__(self, shards: Sequence[IndexedShard]) -> None:
        self._shards = shards
        self._batches = [(shard, batch) for shard in shards for batch in shard.index]
        self._ends = np.cumsum([len(batch.offsets) for _, batch in self._batches], dtype=np.intp)
        names = dict.fromkeys(shard.subset for shard in shards)
        numbers = {name: number for number, name in enumerate(names)}
        self._subsets = np.array([numbers[shard.subset] for shard, _ in self._batches], np.intp)

    def find_repeats(self, key: str) -> np.ndarray:
        """Return the pairs within a subset that share the file name, source id or image."""
        hashes, subsets, rows = self._find_shared(key)
        return _pairs(rows, _starts(hashes, subsets))

    @cached_property
    def shared_images(self) -> np.ndarray:
        """The pairs with the same image in two subsets, of the first record of each subset."""
        hashes, subsets, rows = self._find_shared(keys.ENCODED)
        heads = _starts(hashes, subsets)
        hashes, rows = hashes[heads], rows[heads]
        order = np.lexsort((rows, hashes))
        return _pairs(rows[order], _starts(hashes[order]))

    @cached_property
    def leaked_subsets(self) -> dict[str, int]:
        """The number of images of each evaluation subset whose images all occur in others."""
        shared = np.sort(self.shared_images, axis=None)
        if not len(shared):
            return {}
        leaked = Counter(shard.subset for shard in self.shards_of(shared[_starts(shared)]))
        # Images that repeat within a subset count once.
        total: Counter[str] = Counter()
        repeated = self.find_repeats(keys.ENCODED)[:, 0]
        total.subtract(shard.subset for shard in self.shards_of(repeated))
        for shard in self._shards:
            total[shard.subset] += shard.images
        subsets = {name for name, count in leaked.items() if count == total[name]}
        # In VOC, trainval contains train and val. If it is larger than train, val is not reported.
        for union in [name for name in subsets if _UNION in name]:
            train, val = (union.replace(_UNION, part) for part in (_TRAINING, "val"))
            if subsets >= {train, val} and total[union] > total[train]:
                subsets.remove(val)
        return {name: leaked[name] for name in sorted(subsets) if _TRAINING not in name.lower()}

    def repeats(self, pairs: np.ndarray) -> Iterator[Repeat]:
        """Yield the locations and values of each pair."""
        for later, first in pairs.tolist():
            shard, batch, row = self._find_record(later)
            first_shard, first_batch, first_row = self._find_record(first)
            images = batch.hashes.get(keys.ENCODED)
            yield Repeat(
                batch.locate(row, shard.name),
                first_batch.locate(first_row, first_shard.name),
                shard.subset,
                first_shard.subset,
                _unpack(batch.texts[1])[row],
                0 if images is None else int(images[row]),
            )

    def shards_of(self, rows: np.ndarray) -> list[IndexedShard]:
        """Return the shard of each record, by record number."""
        indices = np.searchsorted(self._ends, rows, "right").tolist()
        return [self._batches[index][0] for index in indices]

    def _find_record(self, number: int) -> tuple[IndexedShard, IndexedBatch, int]:
        index = int(np.searchsorted(self._ends, number, "right"))
        shard, batch = self._batches[index]
        return shard, batch, number - int(self._ends[index]) + len(batch.offsets)

    def _find_shared(self, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return hash, subset and number of records with equal hashes, sorted by all three."""
        hashes = self._read_hashes(key)
        hashes.sort()  # not sorted(), since there can be a hundred million
        shared = hashes[1:][hashes[1:] == hashes[:-1]]
        shared = shared[_starts(shared) & (shared != 0)]
        if len(shared):
            hashes = self._read_hashes(key)
            indices = np.minimum(np.searchsorted(shared, hashes), len(shared) - 1)
            rows = np.flatnonzero(shared[indices] == hashes)
        else:
            rows = np.empty(0, np.intp)
        hashes, subsets = hashes[rows], self._subsets[np.searchsorted(self._ends, rows, "right")]
        order = np.lexsort((rows, subsets, hashes))
        return hashes[order], subsets[order], rows[order]

    def _read_hashes(self, key: str) -> np.ndarray:
        """Return the hashes of all records, uint64 of shape (records,), or empty."""
        columns = [batch.hashes.get(key) for _, batch in self._batches]
        if all(column is None for column in columns):
            return np.empty(0, np.uint64)
        hashes = np.zeros(int(self._ends[-1]), np.uint64)
        for column, end in zip(columns, self._ends.tolist(), strict=True):
            if column is not None:
                hashes[end - len(column) : end] = column
        return hashes


def _starts(*columns: np.ndarray) -> np.ndarray:
    """Return whether each row differs from the row before, bool of shape (n,)."""
    is_start = np.ones(len(columns[0]), bool)
    is_start[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return is_start


def _pairs(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Pair each row with the first row of its group, except for that row itself."""
    firsts = rows[starts][np.cumsum(starts) - 1] if len(rows) else rows
    pairs = np.stack((rows, firsts), axis=1)[~starts]
    ordered: np.ndarray = pairs[np.argsort(pairs[:, 0])]
    return ordered
