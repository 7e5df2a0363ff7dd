"""Names and images that come again, against a few lines with dictionaries."""

from __future__ import annotations

import itertools
import pickle
import random
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.duplicates import compare, row_blocks
from tfod.check.duplicates.compare import (
    Duplicate,
    Duplicates,
    bucket_ranges,
    duplicates_in,
    find_duplicates,
    look_up,
    wanted_rows,
)
from tfod.check.duplicates.row_blocks import (
    BUCKETS,
    FACTS,
    KEYED_ROWS,
    FileSpan,
    Key,
    RowBlock,
    RowCollector,
    RowFacts,
    RowPlace,
    Rows,
    RowStore,
    hash_of,
    scratch_folder,
)
from tfod.errors import TfodError
from tfod.kernel import hash_spans

_MANY = 5000  # rows of a block that says where its ranges begin


@dataclass(frozen=True)
class Shard:
    """A shard of these tests."""

    work: int
    number: int
    subset: str
    rows: Sequence[Row]


class Row(NamedTuple):
    """A record of these tests."""

    number: int
    filename: str | None
    source_id: str | None
    image: int
    height: int | None
    width: int
    boxes: int

    @property
    def offset(self) -> int:
        return 50 * self.number


def hash_of_bytes(data: bytes | bytearray, start: int, end: int) -> int:
    """The hash of a piece of a buffer."""
    (found,) = hash_spans(data, np.array([(start, end - start)])).tolist()
    return int(found)


def rows_of(rows: Sequence[Row]) -> Rows:
    """As the checker remembers them."""
    hashes = [
        np.array(column, np.uint64)
        for column in (
            [hash_of(one.filename) for one in rows],
            [hash_of(one.source_id) for one in rows],
            [one.image for one in rows],
        )
    ]
    facts = np.array(
        [(one.number, one.offset, one.height or -1, one.width, one.boxes) for one in rows], FACTS
    )
    return Rows([one.filename for one in rows], [one.source_id for one in rows], hashes, facts)


def some_row(number: int, name: str | None, source_id: str | None, image: int) -> Row:
    """A record; what the comparison does not look at depends on its number."""
    size = 100 + number if number % 3 else None
    return Row(number, name, source_id, image, size, number, number % 7)


def same_image(number: int) -> int:
    """An image's hash: any of 64 bits, never 0."""
    return random.Random(number).getrandbits(64) or 1


names = st.sampled_from([None, "", *"abcdef", "a\0b", "ä", "\udc80", "x" * 50])
images = st.integers(0, 5).map(lambda number: number and same_image(number))


@st.composite
def some_shards(draw: st.DrawFn) -> list[Shard]:
    """Shards of some works: few different values, so that many come again."""
    places = draw(
        st.lists(
            st.tuples(st.sampled_from([0, 1, 2, 1 << 24, 40 << 24 | 3]), st.integers(0, 3)),
            unique=True,
            max_size=6,
        )
    )
    made = []
    for work, number in places:
        values = draw(st.lists(st.tuples(names, names, images), max_size=12))
        rows = [some_row(place, *one) for place, one in enumerate(values)]
        made.append(Shard(work, number, draw(st.sampled_from(["", "train", "val"])), rows))
    return made


def blocks_of(
    shards: Sequence[Shard], store: RowStore, flush_after: int = 1 << 30
) -> list[RowBlock]:
    """The blocks of these shards as a check makes them; some are closed before they are full."""
    blocks: list[RowBlock] = []
    for one in shards:
        rows = RowCollector(
            one.work, one.number, one.subset, lambda block: blocks.append(store.keep(block))
        )
        for start in range(0, len(one.rows), flush_after):
            rows.add(rows_of(one.rows[start : start + flush_after]))
            rows.flush()
    return blocks


def expected(
    shards: Sequence[Shard], most: int
) -> tuple[dict[Duplicate, list[tuple[RowPlace, RowPlace]]], Counter[tuple[Duplicate, int, int]]]:
    """What comes again, the slow way."""
    pairs: dict[Duplicate, list[tuple[RowPlace, RowPlace]]] = {}
    first: dict[tuple[Duplicate, str, object], RowPlace] = {}
    first_of_all: dict[int, RowPlace] = {}

    def see(kind: Duplicate, subset: str, value: object, place: RowPlace) -> bool:
        if not value:
            return False
        known = first.setdefault((kind, subset, value), place)
        if known is not place:
            pairs.setdefault(kind, []).append((place, known))
        return known is place

    for shard in sorted(shards, key=lambda one: (one.work, one.number)):
        for number, one in enumerate(shard.rows):
            place = RowPlace(shard.work, shard.number, number)
            see(Duplicate.FILENAME, shard.subset, one.filename, place)
            see(Duplicate.SOURCE_ID, shard.subset, one.source_id, place)
            if see(Duplicate.IMAGE, shard.subset, one.image, place):
                known = first_of_all.setdefault(one.image, place)
                if known is not place:
                    pairs.setdefault(Duplicate.SHARED, []).append((place, known))
    counts = Counter(
        (kind, later.work, later.shard) for kind, found in pairs.items() for later, _ in found
    )
    subsets = Counter(image for kind, _, image in first if kind is Duplicate.IMAGE)
    for (kind, _, image), place in first.items():
        if kind is Duplicate.IMAGE and subsets[image] > 1:
            counts[Duplicate.ELSEWHERE, place.work, place.shard] += 1
    return {kind: found[:most] for kind, found in pairs.items()}, counts


def pairs_and_counts(found: Duplicates) -> tuple[object, object]:
    """The same without the hashes, of which the dictionary knows nothing."""
    return {kind: [one[:2] for one in some] for kind, some in found.listed.items()}, found.counts


def in_ranges(
    blocks: Sequence[RowBlock], most: int, bounds: Sequence[int], order: random.Random
) -> tuple[object, object]:
    """What comes again, by ranges of buckets between these bounds that are merged in any order."""
    found = []
    for key in Key:
        for first, stop in itertools.pairwise(bounds):
            parts = [block.keyed_rows(key, first, stop) for block in blocks]
            order.shuffle(parts)
            rows = np.concatenate([np.empty(0, KEYED_ROWS), *parts])
            found.append(pickle.loads(pickle.dumps(duplicates_in(key, rows, most))))
    order.shuffle(found)
    while len(found) > 1:
        taken = found.pop(order.randrange(len(found)))
        order.choice(found).merge(taken, most)
    return pairs_and_counts(found[0])


@given(
    shards=some_shards(),
    most=st.integers(0, 6) | st.just(1000),
    flush_after=st.integers(1, 20),
    cuts=st.sets(st.integers(1, BUCKETS - 1), max_size=5),
    at_once=st.sampled_from([1, 2, 5, 1 << 17]),
    order=st.randoms(use_true_random=False),
)
def test_what_comes_again_is_what_a_dictionary_finds(
    shards: list[Shard],
    most: int,
    flush_after: int,
    cuts: set[int],
    at_once: int,
    order: random.Random,
) -> None:
    with scratch_folder() as folder, closing(RowStore(None)) as memory:
        blocks = blocks_of(shards, memory, flush_after)
        with pytest.MonkeyPatch.context() as patch, closing(RowStore(folder)) as disk:
            patch.setattr(row_blocks, "_IN_MEMORY", 300)  # a block or two
            laid_aside = blocks_of(shards, disk, flush_after)
        right = expected(shards, most)
        assert pairs_and_counts(find_duplicates(blocks, most)) == right
        order.shuffle(laid_aside)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compare, "_ROWS_AT_ONCE", 8 * at_once)
            patch.setattr(compare, "_ROWS_COMPARED_AT_ONCE", at_once)
            assert pairs_and_counts(find_duplicates(laid_aside, most)) == right
        assert in_ranges(laid_aside, most, [0, *sorted(cuts), BUCKETS], order) == right
        assert sum(right[1].values()) >= sum(map(len, right[0].values()))


def many_shards(seed: int) -> list[Shard]:
    """Shards with blocks that are large enough to say where their ranges begin."""
    random_values = np.random.default_rng(seed)
    shards = []
    for work, (subset, count) in enumerate(
        [("train", _MANY), ("val", 300), ("train", 40_000), ("val", _MANY)]
    ):
        values = random_values.integers(1, 200_000, (count, 3)).tolist()
        rows = [
            some_row(
                number, f"{a}.jpg", f"{b}.jpg", c
            )  # hashes that have little in their high bits
            for number, (a, b, c) in enumerate(values)
        ]
        shards.append(Shard(work, 0, subset, rows))
    return shards


def test_large_blocks_are_read_range_by_range(tmp_path: Path) -> None:
    shards = many_shards(1)
    with closing(RowStore(str(tmp_path))) as store:
        blocks = blocks_of(shards, store, 1 << 14)
        small = blocks_of(shards[:1], store, 100)
    assert [block.count for block in blocks] == [_MANY, 300, 16384, 16384, 7232, _MANY]
    assert [bool(block.edges) for block in blocks] == [True, False, True, True, True, True]
    for most in (3, 100_000):
        right = expected(shards, most)
        assert pairs_and_counts(find_duplicates(blocks, most)) == right
        assert pairs_and_counts(find_duplicates([*small, *blocks[1:]], most)) == right
        order = random.Random(most)
        for parts in (1, 2, 16, BUCKETS):
            bounds = range(0, BUCKETS + 1, BUCKETS // parts)
            assert in_ranges(blocks, most, bounds, order) == right
    assert len(right[0][Duplicate.FILENAME]) == sum(
        count for (kind, *_), count in right[1].items() if kind is Duplicate.FILENAME
    )


def test_many_rows_are_found_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_ROWS_AT_ONCE", 4000)
    shards = many_shards(2)
    blocks = blocks_of(shards, RowStore(None))
    assert pairs_and_counts(find_duplicates(blocks, 50)) == expected(shards, 50)
    ranges = list(bucket_ranges(sum(block.count for block in blocks)))
    assert len(ranges) == 16
    for key in Key:  # names that differ in a digit, too, are spread evenly
        counts = [sum(len(block.keys(key, *one)) for block in blocks) for one in ranges]
        assert min(counts) > 2500 and max(counts) < 4000


@pytest.mark.parametrize(
    ("rows", "parts"),
    [(0, 1), (1, 1), (1000, 1), (1001, 2), (10_000, 16), (1 << 40, BUCKETS)],
)
def test_ranges_of_buckets(rows: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_ROWS_AT_ONCE", 1000)
    ranges = list(bucket_ranges(rows))
    assert len(ranges) == parts
    assert ranges[0][0] == 0 and ranges[-1][1] == BUCKETS
    assert all(one[1] == after[0] for one, after in itertools.pairwise(ranges))


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_what_is_compared_a_few_rows_at_a_time(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(compare, "_ROWS_COMPARED_AT_ONCE", at_once)
    chosen = random.Random(at_once)
    for values in (3, 40):
        shards = []
        for work in range(30):
            rows = [
                some_row(number, f"{chosen.randrange(values)}", None, chosen.randrange(values))
                for number in range(20)
            ]
            shards.append(Shard(work, 0, chosen.choice(["train", "val"]), rows))
        blocks = blocks_of(shards, RowStore(None), 8)
        chosen.shuffle(blocks)
        assert pairs_and_counts(find_duplicates(blocks, 5)) == expected(shards, 5)
        assert pairs_and_counts(find_duplicates(blocks, 1000)) == expected(shards, 1000)


def test_what_all_records_have_takes_no_more_memory_than_what_is_compared_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare, "_ROWS_AT_ONCE", 8192)
    monkeypatch.setattr(compare, "_ROWS_COMPARED_AT_ONCE", 4096)
    peaks = []
    for works in (10, 80):
        rows = [some_row(number, "same.jpg", None, 0) for number in range(4096)]
        blocks = blocks_of([Shard(one, 0, "", rows) for one in range(works)], RowStore(None))
        tracemalloc.start()  # it sees what Python and NumPy allocate
        found = find_duplicates(blocks, 3)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert sum(found.counts.values()) == works * len(rows) - 1
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("count", [1, 2047, 2048, 16384])
def test_ranges_of_a_block_make_up_the_block(count: int, tmp_path: Path) -> None:
    rows = [some_row(number, f"n{number}", None, number % 5) for number in range(count)]
    (block,) = blocks_of([Shard(7, 3, "train", rows)], RowStore(str(tmp_path)))
    assert bool(block.edges) == (count >= 2048)
    for key in Key:
        whole = block.keyed_rows(key)
        assert (np.diff(whole["key"].astype(object)) >= 0).all()  # Python's numbers do not wrap
        assert set(whole["work"].tolist()) <= {7} and set(whole["shard"].tolist()) <= {3}
        assert block.keys(key).tolist() == whole["key"].tolist()
        parts = [block.keyed_rows(key, one, one + 1) for one in range(BUCKETS)]
        assert (np.concatenate(parts) == whole).all()
        for one, part in enumerate(parts):
            assert (part["key"] // (1 << 64 - 6) == one).all()
    assert len(block.keyed_rows(Key.FILENAME)) == count
    assert len(block.keyed_rows(Key.SOURCE_ID)) == 0
    assert len(block.keyed_rows(Key.IMAGE)) == count - len(range(0, count, 5))


@given(shards=some_shards(), flush_after=st.integers(1, 20), data=st.data())
def test_facts_are_what_was_added(
    shards: list[Shard], flush_after: int, data: st.DataObject
) -> None:
    with scratch_folder() as folder, closing(RowStore(folder)) as store:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_blocks, "_IN_MEMORY", 300)
            kept = blocks_of(shards, store, flush_after)
        blocks = pickle.loads(pickle.dumps(kept))
        assert blocks == kept
        right = {
            RowPlace(shard.work, shard.number, number): RowFacts(
                one.number,
                one.offset,
                (one.filename or "").replace("\0", "\ufffd"),
                (one.source_id or "").replace("\0", "\ufffd"),
                one.height,
                one.width,
                one.boxes,
            )
            for shard in shards
            for number, one in enumerate(shard.rows)
        }
        assert list(itertools.chain(*(block.facts() for block in blocks))) == list(right.items())
        places = data.draw(st.sets(st.sampled_from(sorted(right)))) if right else set()
        absent = {RowPlace(work=9, shard=9, row=0), RowPlace(work=0, shard=0, row=99)}
        assert look_up(blocks, wanted_rows(places | absent)) == {one: right[one] for one in places}


def test_a_block_is_closed_when_it_is_full() -> None:
    blocks: list[RowBlock] = []
    rows = RowCollector(0, 0, "", blocks.append)
    rows.add(rows_of([]))
    rows.flush()
    assert not blocks
    for number in range(40):
        rows.add(rows_of([some_row(number, "n" * 1_000_000, None, 0)]))
    assert [block.count for block in blocks] == [5] * 8  # 5 million letters
    rows.add(rows_of([some_row(0, "a", "b", 0)] * 20_000))
    rows.flush()
    assert [(block.first, block.count) for block in blocks[-2:]] == [(35, 5), (40, 20_000)]


def test_blocks_go_to_a_file_when_there_are_many(tmp_path: Path) -> None:
    rows = [some_row(number, f"{number}", None, number) for number in range(1 << 14)]
    with closing(RowStore(str(tmp_path))) as store, closing(RowStore(str(tmp_path))) as other:
        kept = blocks_of([Shard(one, 0, "", rows) for one in range(12)], store)
        kept += blocks_of([Shard(12 + one, 0, "", rows) for one in range(12)], other)
        # What is there already stays there.
        assert [store.keep(block) for block in kept if isinstance(block.data, FileSpan)]
    spans = [block.data for block in kept if isinstance(block.data, FileSpan)]
    assert sum(len(block.data) for block in kept if isinstance(block.data, bytes)) <= 2 * 4 << 20
    assert len(spans) >= 8
    assert {span.path for span in spans} == set(map(str, tmp_path.iterdir()))
    assert sum(span.length for span in spans) == sum(
        path.stat().st_size for path in tmp_path.iterdir()
    )
    in_memory = blocks_of([Shard(one, 0, "", rows) for one in range(24)], RowStore(None))
    assert all(isinstance(block.data, bytes) for block in in_memory)
    assert find_duplicates(kept, 10) == find_duplicates(in_memory, 10)
    for block, one in zip(kept, in_memory, strict=True):
        assert replace(block, data=b"") == replace(one, data=b"")
        assert list(block.facts([0, 7])) == list(one.facts([0, 7]))


_FILL = """
import resource, sys
from tfod.errors import TfodError
from tfod.check.duplicates.row_blocks import RowBlock
from tfod.check.duplicates.row_blocks import RowStore
resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, 6 << 20))
store = RowStore(sys.argv[1])
try:
    for number in range(5):
        store.keep(RowBlock(0, 0, 0, 0, 1, (), (), bytes(4 << 20)))
except TfodError as error:
    print(number, error)
"""


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FILL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    number, reported = done.stdout.split(" ", 1)
    assert number == "2"  # one is in memory, one is in the file
    assert reported == (
        f"{tmp_path}: what is remembered of the records cannot be written there (File too large); "
        "make room, or set TMPDIR to another folder\n"
    )
    assert not done.stderr


def test_the_scratch_folder_is_removed() -> None:
    with pytest.raises(KeyError), scratch_folder() as folder:
        Path(folder, "rows").write_bytes(b"1")
        raise KeyError
    assert not Path(folder).exists()


def test_a_scratch_folder_that_cannot_be_made_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    reported = r"absent cannot be written to \(No such file .*TMPDIR"
    with pytest.raises(TfodError, match=reported), scratch_folder():
        raise AssertionError


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=50))
def test_a_hash_goes_by_the_bytes_alone(data: bytes, before: bytes) -> None:
    expected = hash_of_bytes(data, 0, len(data))
    buffer = bytearray(before + data + b"after")
    assert hash_of_bytes(buffer, len(before), len(before) + len(data)) == expected
    assert 0 <= expected < 1 << 64


@pytest.mark.parametrize("length", [1, 100, 16_384, 99_999])
def test_a_hash_is_of_every_byte(length: int) -> None:
    data = bytearray(random.Random(length).randbytes(length))
    hashes = {hash_of_bytes(data, 0, length), hash_of_bytes(data + b"\0", 0, length + 1)}
    places = sorted({0, length // 3, length // 2, length - 1})
    for place in places:
        data[place] ^= 1
        hashes.add(hash_of_bytes(data, 0, length))
        data[place] ^= 1
    assert len(hashes) == len(places) + 2
