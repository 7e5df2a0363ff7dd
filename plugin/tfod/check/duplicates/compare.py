"""Names and images of several records: rows with the same hash, found range by range of hashes.

Each range is looked at by itself, here one after the other or on Beam by a worker each, and the
results are merged; the order of merging makes no difference.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tfod.check.duplicates.row_blocks import BUCKETS, KEYED_ROWS, Key, RowBlock, RowFacts, RowPlace

_ROWS_AT_ONCE = 1 << 19
_ROWS_COMPARED_AT_ONCE = 1 << 17
_NO_ROWS = np.empty(0, np.int64)
Wanted: TypeAlias = "Mapping[tuple[int, int], np.ndarray]"
"""Numbers of rows, sorted, by piece of work and shard."""


class Duplicate(str, enum.Enum):
    """What several records share: the code of the rule about it."""

    FILENAME = "NAM002"
    SOURCE_ID = "NAM008"
    IMAGE = "IMG010"
    SHARED = "IMG011"
    ELSEWHERE = ""
    """Counted only: one for each image and subset, whichever subset comes first."""


@dataclass
class Duplicates:
    """What several records share.

    Attributes:
        listed: the first ones, in order: a later record, the first that has the same, and the hash
            of what they share.
        counts: how many there really are, by kind, piece of work and shard.
    """

    listed: dict[Duplicate, list[tuple[RowPlace, RowPlace, int]]] = field(default_factory=dict)
    counts: Counter[tuple[Duplicate, int, int]] = field(default_factory=Counter)

    def merge(self, other: Duplicates, most: int) -> None:
        """Add those of other hashes; of each kind so many are listed."""
        for kind, pairs in other.listed.items():
            self.listed[kind] = sorted(self.listed.get(kind, []) + pairs)[:most]
        self.counts.update(other.counts)

    def places(self) -> set[RowPlace]:
        """All records that are listed."""
        return {
            place
            for pairs in self.listed.values()
            for later, first, _ in pairs
            for place in (later, first)
        }

    def add(self, kind: Duplicate, laters: np.ndarray, firsts: np.ndarray, most: int) -> None:
        """Add pairs of rows; both are of dtype ``KEYED_ROWS`` and of shape (n,)."""
        if not len(laters):
            return
        order = np.lexsort((laters["row"], laters["shard"], laters["work"]))
        first = order[:most]
        places = (_places(rows[first]) for rows in (laters, firsts))
        pairs = list(zip(*places, laters["key"][first].tolist(), strict=True))
        self.listed[kind] = sorted(self.listed.get(kind, []) + pairs)[:most]
        self.count(kind, laters)

    def count(self, kind: Duplicate, rows: np.ndarray) -> None:
        """Count rows, of dtype ``KEYED_ROWS`` and of shape (n,), without listing them."""
        rows = rows[np.lexsort((rows["shard"], rows["work"]))]
        works, shards = rows["work"], rows["shard"]
        other = (works[1:] != works[:-1]) | (shards[1:] != shards[:-1])
        starts = np.flatnonzero(np.concatenate(([True], other)))[: len(rows)]
        counts = np.diff(np.append(starts, len(rows)))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            self.counts[kind, int(works[start]), int(shards[start])] += count


def duplicates_in(key: Key, rows: np.ndarray, most: int) -> Duplicates:
    """What rows share that hold all those of some hashes.

    Args:
        key: which key the rows are sorted in by.
        rows: of dtype ``KEYED_ROWS`` and shape (n,), in any order.
        most: how many are listed.
    """
    return _compare(key, [rows[_are_among(rows["key"], _keys_of_several([rows["key"]]))]], most)


def _compare(key: Key, parts: Iterable[np.ndarray], most: int) -> Duplicates:
    """The same of rows that come in parts; no part has a place before those of an earlier one.

    In memory are, of the parts before, only the first rows of each hash and subset.
    """
    found = Duplicates()
    heads = np.empty(0, KEYED_ROWS)
    for some in _gathered(parts, _ROWS_COMPARED_AT_ONCE):
        rows = np.concatenate((heads, *some))
        some.clear()
        order = np.lexsort((rows["row"], rows["shard"], rows["work"], rows["subset"], rows["key"]))
        rows = rows[order]
        same_key = rows["key"][1:] == rows["key"][:-1]
        same = same_key & (rows["subset"][1:] == rows["subset"][:-1])
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        laters = np.flatnonzero(same) + 1
        firsts = starts[np.searchsorted(starts, laters, side="right") - 1]
        found.add(Duplicate[key.name], rows[laters], rows[firsts], most)
        heads = rows[starts]
    if key is Key.IMAGE and len(heads):
        shared, starts = _shared(heads)
        is_first = np.zeros(len(shared), bool)
        is_first[starts] = True
        firsts = shared[starts][np.cumsum(is_first) - 1]
        found.add(Duplicate.SHARED, shared[~is_first], firsts[~is_first], most)
        found.count(Duplicate.ELSEWHERE, shared)
    return found


def _keys_of_several(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Those keys that are there more than once, sorted; in most data there are none."""
    seen = again = np.empty(0, np.uint64)
    for some in _gathered(parts, 2 * _ROWS_AT_ONCE):
        ordered = np.concatenate((seen, *some))
        some.clear()
        ordered.sort()
        is_again = np.concatenate(([False], ordered[1:] == ordered[:-1]))
        again = np.union1d(again, ordered[is_again])
        seen = ordered[~is_again]
    return again


def _gathered(parts: Iterable[np.ndarray], least: int) -> Iterator[list[np.ndarray]]:
    """Parts that have so many rows together or more; the last ones have fewer."""
    waiting: list[np.ndarray] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part)
        if count >= least:
            yield waiting
            waiting, count = [], 0
    if count:
        yield waiting


def _are_among(keys: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Which keys are among some sorted ones, as a boolean mask."""
    if not len(some):
        return np.zeros(len(keys), bool)
    mask: np.ndarray = some[np.minimum(np.searchsorted(some, keys), len(some) - 1)] == keys
    return mask


def _shared(heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of images that are in several subsets, by image and place; and each first one.

    Args:
        heads: of each image and subset the first row, sorted by image.
    """
    again = np.flatnonzero(heads["key"][1:] == heads["key"][:-1])
    heads = heads[np.union1d(again, again + 1)]
    heads = heads[np.lexsort((heads["row"], heads["shard"], heads["work"], heads["key"]))]
    other = heads["key"][1:] != heads["key"][:-1]
    return heads, np.flatnonzero(np.concatenate(([True], other)))[: len(heads)]


def _places(rows: np.ndarray) -> list[RowPlace]:
    columns = (rows[name].tolist() for name in ("work", "shard", "row"))
    return list(map(RowPlace._make, zip(*columns, strict=True)))


def bucket_ranges(rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of buckets, half-open, each of about as many rows as are checked at once."""
    parts = 1
    while parts < BUCKETS and parts * _ROWS_AT_ONCE < rows:
        parts *= 2
    step = BUCKETS // parts
    return ((first, first + step) for first in range(0, BUCKETS, step))


def find_duplicates(blocks: Sequence[RowBlock], most: int) -> Duplicates:
    """What records of all these blocks share; in memory is a range of hashes at a time."""
    found = Duplicates()
    blocks = sorted(blocks, key=lambda block: (block.work, block.shard, block.first))
    total = sum(block.count for block in blocks)
    for key in Key:
        for first, stop in bucket_ranges(total):
            again = _keys_of_several(block.keys(key, first, stop) for block in blocks)
            if len(again):
                rows = (block.keyed_rows(key, first, stop) for block in blocks)
                parts = (part[_are_among(part["key"], again)] for part in rows)
                found.merge(_compare(key, parts, most), most)
    return found


def wanted_rows(places: Collection[RowPlace]) -> Wanted:
    """The rows at these places, by piece of work and shard, sorted."""
    wanted: dict[tuple[int, int], list[int]] = {}
    for place in sorted(places):
        wanted.setdefault((place.work, place.shard), []).append(place.row)
    return {at: np.array(rows, np.int64) for at, rows in wanted.items()}


def look_up(blocks: Iterable[RowBlock], wanted: Wanted) -> dict[RowPlace, RowFacts]:
    """What is known of the records that are wanted, as far as the blocks have them."""
    found: dict[RowPlace, RowFacts] = {}
    for block in blocks:
        rows = wanted.get((block.work, block.shard), _NO_ROWS)
        low, high = np.searchsorted(rows, (block.first, block.first + block.count))
        if low < high:
            found.update(block.facts(rows[low:high].tolist()))
    return found
