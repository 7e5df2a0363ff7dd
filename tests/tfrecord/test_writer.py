"""Writing: whole files or none, numbers and sizes."""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path

import pytest
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.shard_sets.shard_names import numbered_file_names
from tfod.tfrecord.storage.publishing import OutputExistsError, WriteError
from tfod.tfrecord.writer import OptionError, ShardSetWriter, write_records

from tests.files import payloads


def test_files_appear_when_they_are_complete(tmp_path: Path) -> None:
    (tmp_path / "s.tfrecord").write_bytes(b"before")
    with ShardSetWriter(tmp_path, "s") as writer:
        writer.write(b"x" * 3_000_000)
        assert (tmp_path / "s.tfrecord").read_bytes() == b"before"
    assert payloads(str(tmp_path / "s.tfrecord")) == [b"x" * 3_000_000]
    assert os.listdir(tmp_path) == ["s.tfrecord"]


def test_an_exception_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "s.tfrecord").write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), ShardSetWriter(tmp_path, "s", num_shards=3) as writer:
        writer.write(b"x")
        raise KeyboardInterrupt
    assert (tmp_path / "s.tfrecord").read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["s.tfrecord"]


def test_records_are_dealt_in_turn(tmp_path: Path) -> None:
    paths = write_records(tmp_path, "s", [b"0", b"1", b"2", b"3"], num_shards=3)
    assert [os.path.basename(path) for path in paths] == [
        f"s-0000{n}-of-00003.tfrecord" for n in range(3)
    ]
    assert [payloads(path) for path in paths] == [[b"0", b"3"], [b"1"], [b"2"]]


def test_shards_of_a_size(tmp_path: Path) -> None:
    paths = write_records(tmp_path, "s", [b"x" * 84] * 7, shard_size=300)
    assert [os.path.getsize(path) for path in paths] == [300, 300, 100]
    # A record beyond the size gets a shard of its own.
    paths = write_records(tmp_path, "t", [b"x" * 400, b"y"], shard_size=300)
    assert [len(payloads(path)) for path in paths] == [1, 1]


def test_many_shards_hold_few_files_open(tmp_path: Path) -> None:
    paths = write_records(tmp_path, "s", [b"x" * 84] * 2000, shard_size=100)
    assert len(paths) == 2000


def test_a_file_is_as_open_as_any_other_new_file(tmp_path: Path) -> None:
    (path,) = write_records(tmp_path, "s", [b"x"])
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(os.stat(path).st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize(
    "subset",
    ["train/night", "a%2Fb", "s-00000-of-00002", ".hidden", "ü 1", "x.tfevents", "__MACOSX"],
)
@pytest.mark.parametrize("count", [1, 2])
def test_any_subset_has_a_harmless_file_name_that_names_it(
    tmp_path: Path, subset: str, count: int
) -> None:
    paths = write_records(tmp_path, subset, [b"x", b"y"], num_shards=count)
    assert {os.path.dirname(path) for path in paths} == {str(tmp_path)}
    (found,) = find_shards(tmp_path)
    assert (found.subset, found.missing) == (subset, ())


@pytest.mark.parametrize("subset", ["..", "../up", "/etc/x", "C:x", "a\\..\\b", "a\0b"])
def test_a_subset_that_leads_out_of_the_folder_stays_in_it_and_stays_escaped(
    tmp_path: Path, subset: str
) -> None:
    write_records(tmp_path / "in", subset, [b"x"])
    assert os.listdir(tmp_path) == ["in"]
    (found,) = find_shards(tmp_path / "in")
    assert "%" in found.subset and safe_relative_path(found.subset) == found.subset


def test_names_as_the_od_api_makes_them(tmp_path: Path) -> None:
    name_files = functools.partial(numbered_file_names, "coco_train.record")
    paths = write_records(tmp_path, "x", [b"1"], name_files=name_files)
    assert paths == [str(tmp_path / "coco_train.record")]
    paths = write_records(tmp_path / "b", "x", [b"1"] * 100, num_shards=100, name_files=name_files)
    written = [f"coco_train.record-{number:05}-of-00100" for number in range(100)]
    assert [os.path.basename(path) for path in paths] == written
    (found,) = find_shards(tmp_path / "b")
    assert (found.subset, len(found.paths), found.missing) == ("coco_train", 100, ())


def test_a_folder_that_was_made_in_vain_goes_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ShardSetWriter(tmp_path / "a" / "b", "s"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(KeyboardInterrupt), ShardSetWriter(tmp_path / "a", "s"):
        raise KeyboardInterrupt
    with pytest.raises(WriteError):
        ShardSetWriter(tmp_path / "file" / "b", "s")
    assert sorted(os.listdir(tmp_path)) == ["a", "file"]


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="cannot write there"):
        write_records(tmp_path / "file", "s", [b"x"])
    (tmp_path / "s.tfrecord").mkdir()
    with pytest.raises(OutputExistsError, match=r"is a folder and cannot be replaced"):
        write_records(tmp_path, "s", [b"x"])
    with pytest.raises(OptionError, match="exclude each other"):
        ShardSetWriter(tmp_path, "s", num_shards=2, shard_size=5)
    with pytest.raises(OptionError, match="at least 1"):
        ShardSetWriter(tmp_path, "s", num_shards=0)
