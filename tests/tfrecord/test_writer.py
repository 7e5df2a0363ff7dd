"""Writing shards: all files or none, numbers and sizes, and inputs that are never replaced."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import stat
from pathlib import Path

import pytest
from tfod.shards.reshard import reshard
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.shard_sets.shard_names import numbered_file_names
from tfod.tfrecord.storage.publishing import OutputExistsError, WriteError
from tfod.tfrecord.writer import OptionError, ShardLayout, ShardSetWriter, write_records

from tests.files import files_in, payloads, subsets_of
from tests.renames import at_rename, fail

LAYOUT = ShardLayout(num_shards=2)


def test_files_appear_when_they_are_complete(tmp_path: Path) -> None:
    (tmp_path / "s.tfrecord").write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), ShardSetWriter(tmp_path, "s", num_shards=3) as writer:
        writer.write(b"x")
        raise KeyboardInterrupt
    assert files_in(tmp_path) == {"s.tfrecord": b"before"}
    with ShardSetWriter(tmp_path, "s") as writer:
        writer.write(b"x" * 3_000_000)
        assert (tmp_path / "s.tfrecord").read_bytes() == b"before"
    assert payloads(str(tmp_path / "s.tfrecord")) == [b"x" * 3_000_000]
    assert os.listdir(tmp_path) == ["s.tfrecord"]
    # All new files have the same permissions.
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_records_are_distributed_by_number_or_size(tmp_path: Path) -> None:
    paths = write_records(tmp_path, "s", [b"0", b"1", b"2", b"3"], num_shards=3)
    names = [f"s-0000{n}-of-00003.tfrecord" for n in range(3)]
    assert [os.path.basename(path) for path in paths] == names
    assert [payloads(path) for path in paths] == [[b"0", b"3"], [b"1"], [b"2"]]
    paths = write_records(tmp_path, "t", [b"x" * 84] * 7, shard_size=300)
    assert [os.path.getsize(path) for path in paths] == [300, 300, 100]
    # A record above the size has its own shard.
    paths = write_records(tmp_path, "u", [b"x" * 400, b"y"], shard_size=300)
    assert [len(payloads(path)) for path in paths] == [1, 1]
    # Few files are open at the same time.
    paths = write_records(tmp_path, "v", [b"x" * 84] * 2000, shard_size=100)
    assert len(paths) == 2000


@pytest.mark.parametrize(
    ("subset", "is_safe"),
    [
        *((name, True) for name in ("train/night", "a%2Fb", "s-00000-of-00002", ".hidden", "ü 1")),
        *((name, True) for name in ("x.tfevents", "__MACOSX")),
        *((name, False) for name in ("..", "../up", "/etc/x", "C:x", "a\\..\\b", "a\0b")),
    ],
)
def test_any_subset_has_a_safe_file_name(tmp_path: Path, subset: str, is_safe: bool) -> None:
    for count in (1, 2):
        out = tmp_path / str(count)
        paths = write_records(out, subset, [b"x", b"y"], num_shards=count)
        assert {os.path.dirname(path) for path in paths} == {str(out)}
        (found,) = find_shards(out)
        assert found.missing == () and (found.subset == subset) == is_safe
        # An unsafe subset stays escaped.
        assert is_safe or "%" in found.subset
        assert safe_relative_path(found.subset) == found.subset
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


def test_names_of_the_od_api(tmp_path: Path) -> None:
    name_files = functools.partial(numbered_file_names, "coco_train.record")
    paths = write_records(tmp_path, "x", [b"1"], name_files=name_files)
    assert paths == [str(tmp_path / "coco_train.record")]
    paths = write_records(tmp_path / "b", "x", [b"1"] * 100, num_shards=100, name_files=name_files)
    written = [f"coco_train.record-{number:05}-of-00100" for number in range(100)]
    assert [os.path.basename(path) for path in paths] == written
    (found,) = find_shards(tmp_path / "b")
    assert (found.subset, len(found.paths), found.missing) == ("coco_train", 100, ())


def test_a_new_folder_without_files_is_removed(tmp_path: Path) -> None:
    for folder, names in (("a/b", []), ("a", ["a"])):
        for name in names:
            (tmp_path / name).mkdir()
        with pytest.raises(KeyboardInterrupt), ShardSetWriter(tmp_path / folder, "s"):
            raise KeyboardInterrupt
        assert os.listdir(tmp_path) == names


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError):
        ShardSetWriter(tmp_path / "file" / "b", "s")
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(WriteError, match="cannot write there"):
        write_records(tmp_path / "file", "s", [b"x"])
    (tmp_path / "s.tfrecord").mkdir()
    with pytest.raises(OutputExistsError, match=r"is a folder and cannot be replaced"):
        write_records(tmp_path, "s", [b"x"])
    with pytest.raises(OptionError, match="exclude each other"):
        ShardSetWriter(tmp_path, "s", num_shards=2, shard_size=5)
    with pytest.raises(OptionError, match="at least 1"):
        ShardSetWriter(tmp_path, "s", num_shards=0)


# Folders with files


def test_existing_shards_of_a_subset_are_replaced_with_overwrite(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", [b"new"] * 4)
    write_records(tmp_path / "out", "s", [b"old"] * 3, num_shards=3)
    write_records(tmp_path / "out", "other", [b"old"])
    before = files_in(tmp_path / "out")
    with pytest.raises(OutputExistsError, match=r"of-00003.tfrecord \(and 2 more\) already exists"):
        reshard(tmp_path / "in", tmp_path / "out", LAYOUT)
    assert files_in(tmp_path / "out") == before
    reshard(tmp_path / "in", tmp_path / "out", LAYOUT, overwrite=True)
    shards = [f"s-0000{number}-of-00002.tfrecord" for number in range(2)]
    assert sorted(files_in(tmp_path / "out")) == ["other.tfrecord", *shards]
    assert subsets_of(tmp_path / "out") == {"other": {b"old": 1}, "s": {b"new": 4}}
    # Shards of the subset in a deeper folder are not replaced.
    write_records(tmp_path / "split", "train", [b"1"])
    write_records(tmp_path / "deep" / "train", "x", [b"2"])
    with pytest.raises(OutputExistsError, match="in the same subset"):
        reshard(tmp_path / "split", tmp_path / "deep", overwrite=True)


def test_shards_that_another_process_wrote_meanwhile_stay(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputExistsError, match="already exists"),
        OutputFolder(tmp_path, []) as out,
    ):
        out.add_subset("s", LAYOUT).write(b"late")
        write_records(tmp_path, "s", [b"1", b"2", b"3"], num_shards=3)
    assert subsets_of(tmp_path) == {"s": {b"1": 1, b"2": 1, b"3": 1}}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("source", ["in", "in/s-00000-of-00002.tfrecord", "link"])
def test_inputs_are_never_replaced(tmp_path: Path, overwrite: bool, source: str) -> None:
    write_records(tmp_path / "in", "s", [b"1", b"2"], num_shards=2)
    (tmp_path / "link").symlink_to("in")
    before = files_in(tmp_path / "in")
    for folder in ("in", "link"):
        with pytest.raises(OutputExistsError, match=r"is an input|already exists"):
            reshard(tmp_path / source, tmp_path / folder, ShardLayout(3), overwrite=overwrite)
        assert files_in(tmp_path / "in") == before


def replace_shards(folder: Path) -> None:
    """Replace three shards by two."""
    with OutputFolder(folder, (), overwrite=True) as out:
        writer = out.add_subset("s", LAYOUT)
        writer.write(b"new")
        writer.write(b"new")


def test_existing_shards_are_restored_if_a_rename_fails(tmp_path: Path) -> None:
    write_records(tmp_path / "out", "s", [b"old"] * 3, num_shards=3)
    before = files_in(tmp_path / "out")
    for number in itertools.count(1):
        with at_rename(number, fail) as watch:
            try:
                replace_shards(tmp_path / "out")
            except WriteError as error:
                assert "(Input/output error); existing files are unchanged" in str(error)
                assert files_in(tmp_path / "out") == before
                continue
        assert not watch.reached
        break
    assert number == 6  # three shards are set aside, and two get names
    assert subsets_of(tmp_path / "out") == {"s": {b"new": 2}}


def test_shards_that_cannot_be_restored_are_named(tmp_path: Path) -> None:
    """The disk fails, and does not recover."""
    write_records(tmp_path, "s", [b"old"] * 3, num_shards=3)
    before = files_in(tmp_path)
    with (
        at_rename(5, fail, lasting=True),
        pytest.raises(WriteError, match=r"could not be restored: .*s-00000-of-00003.* is now"),
    ):
        replace_shards(tmp_path)
    assert sorted(files_in(tmp_path).values()) == sorted(before.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_all_files_are_renamed(tmp_path: Path, number: signal.Signals) -> None:
    class AskedToEndError(Exception):
        pass

    def end(*_: object) -> None:
        raise AskedToEndError

    before = signal.signal(number, end)
    try:
        for place in range(1, 3):
            with at_rename(place, lambda: os.kill(os.getpid(), number)) as watch:
                with pytest.raises(AskedToEndError), OutputFolder(tmp_path / str(place), ()) as out:
                    writer = out.add_subset("s", LAYOUT)
                    writer.write(b"1")
                    writer.write(b"2")
                assert watch.reached and signal.getsignal(number) is end
            assert subsets_of(tmp_path / str(place)) == {"s": {b"1": 1, b"2": 1}}
            assert len(files_in(tmp_path / str(place))) == 2
    finally:
        signal.signal(number, before)
