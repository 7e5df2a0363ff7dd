"""Names of files that somebody chose."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
from tfod.tfrecord.shard_sets.names import numbered_file_names
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.publishing import WriteError
from tfod.tfrecord.writer import ShardSetWriter, write_records


def test_names_as_the_od_api_makes_them(tmp_path: Path) -> None:
    name_files = functools.partial(numbered_file_names, "coco_train.record")
    paths = write_records(tmp_path, "x", [b"1"], name_files=name_files)
    assert paths == [str(tmp_path / "coco_train.record")]
    paths = write_records(tmp_path / "b", "x", [b"1"] * 100, num_shards=100, name_files=name_files)
    assert [os.path.basename(path) for path in (paths[0], paths[-1])] == [
        "coco_train.record-00000-of-00100",
        "coco_train.record-00099-of-00100",
    ]
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
