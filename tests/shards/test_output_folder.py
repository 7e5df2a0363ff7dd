"""All appears or nothing does, and what is read is never written over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tfod.output_folder import OutputExistsError, OutputFolder
from tfod.rearrange.reshard import reshard
from tfod.shard_layout import ShardLayout
from tfod.writer import AtomicFile, WriteError, write_records

from tests.shards.shards import files_in, subsets_of

LAYOUT = ShardLayout(num_shards=2)


def test_other_shards_of_a_subset_are_in_the_way(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", [b"new"] * 4)
    write_records(tmp_path / "out", "s", [b"old"] * 3, num_shards=3)
    write_records(tmp_path / "out", "other", [b"old"])
    before = files_in(tmp_path / "out")
    with pytest.raises(OutputExistsError, match=r"of-00003.tfrecord \(and 2 more\) is there"):
        reshard(tmp_path / "in", tmp_path / "out", LAYOUT)
    assert files_in(tmp_path / "out") == before
    (tmp_path / "out" / "s-00000-of-00003.tfrecord.idx").write_text("0 19\n")
    reshard(tmp_path / "in", tmp_path / "out", LAYOUT, overwrite=True)
    assert sorted(files_in(tmp_path / "out")) == [
        "other.tfrecord",
        "s-00000-of-00002.tfrecord",
        "s-00001-of-00002.tfrecord",
    ]
    assert subsets_of(tmp_path / "out") == {"other": {b"old": 1}, "s": {b"new": 4}}


def test_what_another_run_wrote_meanwhile_stays(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputExistsError, match="is there already"),
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
        with pytest.raises(OutputExistsError, match=r"is read|is there already"):
            reshard(tmp_path / source, tmp_path / folder, ShardLayout(3), overwrite=overwrite)
        assert files_in(tmp_path / "in") == before


def test_one_shard_of_a_set_does_not_replace_the_others(tmp_path: Path) -> None:
    write_records(tmp_path, "s", [b"1", b"2", b"3"], num_shards=3)
    before = files_in(tmp_path)
    with pytest.raises(OutputExistsError, match="is read"):
        reshard(tmp_path / "s-00000-of-00003.tfrecord", tmp_path, overwrite=True)
    assert files_in(tmp_path) == before


def test_shards_of_the_subset_deeper_in_the_folder_stay(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "train", [b"1"])
    write_records(tmp_path / "out" / "train", "x", [b"2"])
    with pytest.raises(OutputExistsError, match="in one subset"):
        reshard(tmp_path / "in", tmp_path / "out", overwrite=True)


def test_another_label_map_is_in_the_way_and_an_equal_one_is_not(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", [b"1"])
    (tmp_path / "in" / "label_map.pbtxt").write_text("item { id: 1 name: 'a' }")
    (tmp_path / "out").mkdir()
    label_map = tmp_path / "out" / "label_map.pbtxt"
    label_map.write_text("item { id: 1 name: 'b' }")
    with pytest.raises(OutputExistsError, match=r"label_map.pbtxt is there already"):
        reshard(tmp_path / "in", tmp_path / "out")
    assert list(files_in(tmp_path / "out")) == ["label_map.pbtxt"]
    label_map.write_text("item { id: 1 name: 'a' }")
    number = label_map.stat().st_ino
    reshard(tmp_path / "in", tmp_path / "out")
    assert label_map.stat().st_ino == number
    label_map.write_text("item { id: 1 name: 'b' }")
    reshard(tmp_path / "in", tmp_path / "out", overwrite=True)
    assert label_map.read_text() == "item { id: 1 name: 'a' }"


def test_what_was_there_comes_back_when_a_name_cannot_be_given(tmp_path: Path) -> None:
    write_records(tmp_path / "out", "s", [b"old"] * 3, num_shards=3)
    (tmp_path / "out" / "s-00001-of-00002.tfrecord").mkdir()
    (tmp_path / "out" / "s-00001-of-00002.tfrecord" / "mine").touch()
    before = files_in(tmp_path / "out")
    with (
        pytest.raises(WriteError, match=r"s-00001-of-00002.tfrecord: cannot be replaced"),
        OutputFolder(tmp_path / "out", (), overwrite=True) as out,
    ):
        writer = out.add_subset("s", LAYOUT)
        writer.write(b"new")
        writer.write(b"new")
    assert files_in(tmp_path / "out") == before


def test_what_was_there_comes_back_when_the_last_name_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, "s", [b"old"] * 3, num_shards=3)
    before = files_in(tmp_path)
    real, given = AtomicFile.publish, []

    def publish(self: AtomicFile, name: str) -> str:
        given.append(name)
        if len(given) == 2:
            raise WriteError("the disk is gone")
        return real(self, name)

    monkeypatch.setattr(AtomicFile, "publish", publish)
    with (
        pytest.raises(WriteError, match="disk is gone"),
        OutputFolder(tmp_path, (), overwrite=True) as out,
    ):
        writer = out.add_subset("s", LAYOUT)
        writer.write(b"new")
        writer.write(b"new")
    assert len(given) == 2
    assert files_in(tmp_path) == before


def test_a_signal_waits_until_all_names_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = AtomicFile.publish

    def publish(self: AtomicFile, name: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return real(self, name)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(AtomicFile, "publish", publish)
    try:
        with pytest.raises(KeyboardInterrupt), OutputFolder(tmp_path, ()) as out:
            writer = out.add_subset("s", LAYOUT)
            writer.write(b"1")
            writer.write(b"2")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert subsets_of(tmp_path) == {"s": {b"1": 1, b"2": 1}}
    assert len(files_in(tmp_path)) == 2
