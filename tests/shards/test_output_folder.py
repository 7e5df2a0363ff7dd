"""All appears or nothing does, and what is read is never written over."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest
from tfod.shards.reshard import reshard
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.storage.publishing import OutputExistsError, WriteError
from tfod.tfrecord.writer import ShardLayout, write_records

from tests.files import files_in, subsets_of
from tests.renames import at_rename, fail

LAYOUT = ShardLayout(num_shards=2)
ONE = ShardLayout(num_shards=1)


def test_other_shards_of_a_subset_are_in_the_way(tmp_path: Path) -> None:
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


def test_what_another_run_wrote_meanwhile_stays(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputExistsError, match="already exists"),
        OutputFolder(tmp_path, []) as out,
    ):
        out.add_subset("s", LAYOUT).write(b"late")
        write_records(tmp_path, "s", [b"1", b"2", b"3"], num_shards=3)
    assert subsets_of(tmp_path) == {"s": {b"1": 1, b"2": 1, b"3": 1}}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("source", ["in", "in/s-00000-of-00002.tfrecord", "link"])
def test_nothing_is_written_onto_what_is_read(tmp_path: Path, overwrite: bool, source: str) -> None:
    write_records(tmp_path / "in", "s", [b"1", b"2"], num_shards=2)
    (tmp_path / "link").symlink_to("in")
    before = files_in(tmp_path / "in")
    for folder in ("in", "link"):
        with pytest.raises(OutputExistsError, match=r"is an input|already exists"):
            reshard(tmp_path / source, tmp_path / folder, ShardLayout(3), overwrite=overwrite)
        assert files_in(tmp_path / "in") == before


def test_shards_of_the_subset_deeper_in_the_folder_stay(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "train", [b"1"])
    write_records(tmp_path / "out" / "train", "x", [b"2"])
    with pytest.raises(OutputExistsError, match="in the same subset"):
        reshard(tmp_path / "in", tmp_path / "out", overwrite=True)


def test_what_was_there_comes_back_whichever_rename_fails(tmp_path: Path) -> None:
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
    assert number == 6  # three go aside, two get names
    assert subsets_of(tmp_path / "out") == {"s": {b"new": 2}}


def test_what_cannot_be_put_back_is_named(tmp_path: Path) -> None:
    """The disk fails for good; what is where is said."""
    write_records(tmp_path, "s", [b"old"] * 3, num_shards=3)
    before = files_in(tmp_path)
    with (
        at_rename(5, fail, lasting=True),
        pytest.raises(WriteError, match=r"could not be restored: .*s-00000-of-00003.* is now"),
    ):
        replace_shards(tmp_path)
    assert sorted(files_in(tmp_path).values()) == sorted(before.values())


def replace_shards(folder: Path) -> None:
    """Two new shards in place of three."""
    with OutputFolder(folder, (), overwrite=True) as out:
        writer = out.add_subset("s", LAYOUT)
        writer.write(b"new")
        writer.write(b"new")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_all_names_are_given(tmp_path: Path, number: signal.Signals) -> None:
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
