"""Repeated names and images, compared with a few lines with dictionaries."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.analysis.duplicates import Duplicates, IndexedBatch
from tfod.checker.analysis.result import ShardResult
from tfod.checker.check import Options, check_sources
from tfod.detection import keys

from tests.records import encode, image, objects, write_shard

KEYS = (keys.FILENAME, keys.SOURCE_ID, keys.ENCODED)


class Row(NamedTuple):
    """The hashes of a record; 0 for an empty value."""

    filename: int
    source_id: int
    image: int


class Shard(NamedTuple):
    """The records of a shard."""

    subset: str
    rows: Sequence[Row]


few = st.integers(0, 5)
some_rows = st.lists(st.builds(Row, few, few, few), max_size=12)
subsets = st.sampled_from(["", "train", "val", "test"])
some_shards = st.lists(st.builds(Shard, subsets, some_rows), max_size=6)


def results_of(shards: Sequence[Shard]) -> list[ShardResult]:
    """The results that another process would send."""
    results = []
    for number, shard in enumerate(shards):
        columns = [np.array(one, np.uint64) for one in zip(*shard.rows, strict=True)]
        hashes = {key: one for key, one in zip(KEYS, columns, strict=False) if one.any()}
        offsets = 50 * np.arange(len(shard.rows))
        middle = len(shard.rows) // 2
        index = [
            IndexedBatch(
                0, offsets[part], {key: one[part] for key, one in hashes.items()}, (b"", b"")
            )
            for part in (slice(0, middle), slice(middle, None))
        ]
        images = sum(1 for one in shard.rows if one.image)
        results.append(ShardResult(str(number), shard.subset, images=images, index=index))
    return list(pickle.loads(pickle.dumps(results)))


def find_repeats(shards: Sequence[Shard], column: int) -> list[list[int]]:
    """Running numbers of later records, and of the first one with the same value."""
    first: dict[tuple[str, int], int] = {}
    pairs = []
    every = ((shard.subset, row[column]) for shard in shards for row in shard.rows)
    for number, (subset, value) in enumerate(every):
        known = first.setdefault((subset, value), number)
        if value and known != number:
            pairs.append([number, known])
    return pairs


def between_subsets(shards: Sequence[Shard]) -> tuple[list[list[int]], dict[str, int]]:
    """The first records with an image in each subset; the subsets without other images."""
    every = enumerate((one.subset, row.image) for one in shards for row in one.rows)
    heads: dict[int, dict[str, int]] = {}
    for number, (subset, value) in every:
        if value:
            heads.setdefault(value, {}).setdefault(subset, number)
    pairs = [
        [number, min(head.values())]
        for head in heads.values()
        for number in head.values()
        if number != min(head.values())
    ]
    shared = Counter(subset for head in heads.values() if len(head) > 1 for subset in head)
    return sorted(pairs), {
        subset: count
        for subset, count in sorted(shared.items())
        if count == sum(subset in head for head in heads.values()) and "train" not in subset
    }


@given(some_shards)
def test_repeats_are_those_of_a_dictionary(shards: list[Shard]) -> None:
    found = Duplicates(results_of(shards))
    for number, key in enumerate(KEYS):
        assert found.find_repeats(key).tolist() == find_repeats(shards, number)
    pairs, leaked = between_subsets(shards)
    assert found.shared_images.tolist() == pairs and found.leaked_subsets == leaked
    names = [str(number) for number, one in enumerate(shards) for _ in one.rows]
    laters = found.find_repeats(keys.FILENAME)[:, 0]
    assert [one.name for one in found.shards_of(laters)] == [names[row] for row in laters.tolist()]


def named(name: str) -> bytes:
    return encode({**image(name), **objects([(0.1, 0.2, 0.3, 0.4)], ["cat"], [1])})


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_all_are_counted_and_the_first_are_listed(tmp_path: Path, most: int) -> None:
    records = [named(f"{number % 30:02d}.jpg") for number in range(90)]
    for shard in ("train-00000-of-00002", "train-00001-of-00002"):
        Path(write_shard(tmp_path, "x", *records)).rename(tmp_path / shard)
    report = check_sources([str(tmp_path)], Options(max_findings=most, severities={"IMG": None}))
    assert report.counts.by_code["NAM002"] == 2 * 90 - 30
    found = [one for one in report.findings if one.code == "NAM002"]
    if most == 1000:
        assert len(found) == 2 * 90 - 30
        assert (found[0].record, found[0].item) == (30, "00.jpg")
        assert found[0].message.startswith("'00.jpg' is also the name of record 0 of ")
        size = len(records[0]) + 16
        assert [one.offset for one in found[:2]] == [30 * size, 31 * size]


def test_a_name_with_a_zero_byte_is_one_name(tmp_path: Path) -> None:
    report = check_sources([write_shard(tmp_path, "a", *[named("a\0b.jpg")] * 2)])
    (found,) = [one for one in report.findings if one.code == "NAM002"]
    assert (found.record, found.value) == (1, "a\ufffdb.jpg")
