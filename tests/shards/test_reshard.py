"""Resharding: every record comes out once, byte for byte, under names that are expected."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import ShardError
from tfod.shards.reshard import reshard
from tfod.sources.reading import find_label_map
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.shard_sets.shard_names import similar_file_names, stated_name
from tfod.tfrecord.writer import OptionError, ShardLayout, write_records

from tests.conftest import CORPUS, examples
from tests.files import files_in, payloads, subsets_of
from tests.mutants.sound import flip
from tests.records import frame
from tests.zip_forge import real_zip


@pytest.mark.parametrize("name", sorted(one.name for one in CORPUS.iterdir() if one.is_dir()))
@pytest.mark.parametrize(
    ("layout", "shuffle"),
    [
        (ShardLayout(num_shards=3), None),
        (ShardLayout(shard_size=50_000), 5),
        (ShardLayout(compression=Compression.GZIP), None),
        (ShardLayout(num_shards=2, compression=Compression.ZLIB), 7),
    ],
)
def test_real_shards_keep_every_record(
    corpus: Path, tmp_path: Path, name: str, layout: ShardLayout, shuffle: int | None
) -> None:
    before = subsets_of(corpus / name)
    done = reshard(corpus / name, tmp_path, layout, shuffle=shuffle)
    assert subsets_of(tmp_path) == before
    assert done.records == {subset: found.total() for subset, found in before.items()}
    for source in find_shards(corpus / name):
        (made,) = (one for one in find_shards(tmp_path) if one.subset == source.subset)
        there, after = find_label_map(source.paths[0])[0], find_label_map(made.paths[0])[0]
        assert (there is None) == (after is None)
        if there is not None and after is not None:
            assert Path(after).read_bytes() == Path(there).read_bytes()


@examples(40)
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=25),
    st.integers(1, 6),
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
)
def test_any_records_over_any_numbers_of_shards(
    records: list[bytes], before: int, after: int, seed: int | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_records(folder / "in", "s", records, num_shards=before)
        done = reshard(folder / "in", folder / "out", ShardLayout(num_shards=after), shuffle=seed)
        assert len(done.paths) == min(after, len(records))
        shards = [payloads(path) for path in done.paths]
        assert max(map(len, shards)) - min(map(len, shards)) <= 1
        dealt = [shards[n % len(shards)][n // len(shards)] for n in range(len(records))]
        source = payloads(*paths)
        if seed is not None:
            order = np.random.RandomState(seed).permutation(len(source))
            source = [source[place] for place in order]
        assert dealt == source


@examples(40)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(1, 900))
def test_shards_of_a_size_are_full_and_in_order(sizes: list[int], most: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = [bytes([number]) * size for number, size in enumerate(sizes)]
        write_records(folder / "in", "s", records)
        copied = reshard(folder / "in", folder / "out", ShardLayout(shard_size=most)).paths
        written = write_records(folder / "expected", "s", records, shard_size=most)
        assert [payloads(path) for path in copied] == [payloads(path) for path in written]


def test_a_label_map_above_the_folders_of_splits_stays_there(tmp_path: Path) -> None:
    write_records(tmp_path / "in" / "train", "x", [b"1"])
    (tmp_path / "in" / "label_map.pbtxt").write_text("item { id: 1 name: 'a' }")
    reshard(tmp_path / "in", tmp_path / "out")
    assert sorted(files_in(tmp_path / "out")) == ["label_map.pbtxt", "train/x.tfrecord"]


def test_a_seed_means_the_same_order_for_ever(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", [bytes([n]) for n in range(10)])
    reshard(tmp_path / "in", tmp_path / "out", shuffle=42)
    (order,) = (list(b"".join(payloads(path))) for path in (tmp_path / "out").iterdir())
    assert order == [8, 1, 5, 0, 7, 2, 9, 4, 3, 6]


def test_what_is_not_asked_for_stays(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", [b"1", b"2", b"3"], num_shards=3, compression="gzip")
    done = reshard(tmp_path / "in", tmp_path / "out")
    assert [path.endswith("-of-00003.tfrecord.gz") for path in done.paths] == [True] * 3
    assert all(Path(path).read_bytes().startswith(b"\x1f\x8b") for path in done.paths)
    plain = reshard(tmp_path / "in", tmp_path / "p", ShardLayout(compression=Compression.NONE))
    assert Path(plain.paths[0]).stat().st_size == 17


@pytest.mark.parametrize(
    ("name", "one", "first_of_two"),
    [
        ("a.tfrecord", "a.tfrecord", "a-00000-of-00002.tfrecord"),
        ("a.tfrec", "a.tfrec", "a-00000-of-00002.tfrec"),
        ("a.tfrecord.gz", "a.tfrecord", "a-00000-of-00002.tfrecord"),
        ("a-00003-of-00010.tfrecord", "a.tfrecord", "a-00000-of-00002.tfrecord"),
        ("a.record", "a.record", "a.record-00000-of-00002"),
        ("a.record-00003-of-00010", "a.record", "a.record-00000-of-00002"),
        ("a.tfrecord-00003-of-00010.gz", "a.tfrecord", "a.tfrecord-00000-of-00002"),
        ("a-00003-of-00010", "a-00000-of-00001", "a-00000-of-00002"),
        ("v1.2-00003-of-00010.tfrecord", "v1.2.tfrecord", "v1.2-00000-of-00002.tfrecord"),
    ],
)
def test_names_are_in_the_manner_of_the_source(name: str, one: str, first_of_two: str) -> None:
    stem = stated_name(name).stem
    assert similar_file_names(name, stem, 1) == [one]
    assert similar_file_names(name, stem, 2)[0] == first_of_two
    assert stated_name(first_of_two).stem == stated_name(one).stem == stem


def test_roboflow_keeps_its_folders_and_label_maps(tmp_path: Path) -> None:
    for label, split in enumerate(("train", "valid"), 1):
        write_records(tmp_path / "in" / split, "Shapes", [split.encode()] * 3)
        label_map = tmp_path / "in" / split / "Shapes_label_map.pbtxt"
        label_map.write_text(f"item {{ id: {label} name: 'a' }}")
    done = reshard(tmp_path / "in", tmp_path / "out", ShardLayout(num_shards=2))
    endings = ("-00000-of-00002.tfrecord", "-00001-of-00002.tfrecord", "_label_map.pbtxt")
    written = [f"{split}/Shapes{ending}" for split in ("train", "valid") for ending in endings]
    assert sorted(files_in(tmp_path / "out")) == written
    assert subsets_of(tmp_path / "out") == subsets_of(tmp_path / "in")
    assert done.label_maps == ("train/Shapes_label_map.pbtxt", "valid/Shapes_label_map.pbtxt")


def test_a_zip_is_read_where_it_lies(tmp_path: Path) -> None:
    label_map = b"item { id: 1 name: 'a' }"
    files = [("train.tfrecord", frame(*[b"\n\0"] * 5)), ("label_map.pbtxt", label_map)]
    (tmp_path / "a.zip").write_bytes(real_zip(files))
    done = reshard(tmp_path / "a.zip", tmp_path / "out", shuffle=0)
    assert payloads(*done.paths) == [b"\n\0"] * 5
    assert (tmp_path / "out" / "label_map.pbtxt").read_bytes() == label_map


@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_damaged_shard_is_refused_and_leaves_nothing(
    tmp_path: Path, shuffle: int | None, compress: Callable[[bytes], bytes]
) -> None:
    paths = write_records(tmp_path / "in", "s", [b"x" * 99] * 6, num_shards=2)
    Path(paths[1]).write_bytes(compress(flip(Path(paths[1]).read_bytes(), 50)))
    with pytest.raises(ShardError, match=r"00001-of-00002.*record 0, byte 0.*tfod repair"):
        reshard(tmp_path / "in", tmp_path / "out", shuffle=shuffle)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_repair_is_named_where_something_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "s.tfrecord"
    for content, named in (
        (gzip.compress(frame(b"x" * 99), mtime=0)[:-3], True),
        (b"", False),
        (b"<html><head><title>404</title>", False),
    ):
        path.write_bytes(content)
        with pytest.raises(ShardError) as refusal:
            reshard(path, tmp_path / "out")
        assert ("tfod repair" in str(refusal.value)) is named
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_seeds_out_of_range(tmp_path: Path, seed: int) -> None:
    with pytest.raises(OptionError):
        reshard(tmp_path, tmp_path / "out", shuffle=seed)


@pytest.mark.parametrize("name", ["vott", "train/night", "a-00000-of-00002", "über 1", ".."])
@pytest.mark.parametrize("label_maps", [["label_map.pbtxt"] * 2, ["x_label_map.pbtxt", "y.pbtxt"]])
def test_all_shards_become_one_subset(tmp_path: Path, name: str, label_maps: list[str]) -> None:
    """VoTT writes a shard for each image, and numbers that have gaps."""
    for folder, label_map in zip("ab", label_maps, strict=True):
        for number in (1, 5, 9):
            write_records(tmp_path / "in" / folder, f"thumb{number}{folder}", [b"\n\0"])
        (tmp_path / "in" / folder / label_map).write_text("item { id: 1 name: 'a' }")
    kept = reshard(tmp_path / "in", tmp_path / "kept")
    assert len(kept.records) == 6 and any("--join NAME" in note for note in kept.notes)
    done = reshard(tmp_path / "in", tmp_path / "out", ShardLayout(num_shards=1), join=name)
    assert done.records == {name: 6} and len(done.paths) == 1 and not done.notes
    (found,) = find_shards(tmp_path / "out")
    assert len(payloads(*found.paths)) == 6 and found.subset in (name, "%2E.")
    assert find_label_map(done.paths[0])[0] is not None
