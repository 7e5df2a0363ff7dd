"""Finding and naming shards and their label maps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tfod.errors import ShardsNotFoundError
from tfod.sources.reading import find_label_map
from tfod.tfrecord.image_names import IdMaker, is_id_for, safe_relative_path, split_extension
from tfod.tfrecord.shard_sets.search import find_shards, looks_like_shard
from tfod.tfrecord.shard_sets.shard_names import ShardName, parse_shard_name
from tfod.tfrecord.writer import write_records

from tests.files import write_files
from tests.records import encode, frame


def fill(folder: Path, *names: str) -> None:
    """Put shards of one record under these names."""
    write_files(folder, dict.fromkeys(names, frame(encode({"image/height": 1}))))


def subsets(source: object) -> dict[str, list[str]]:
    return {one.subset: [os.path.basename(p) for p in one.paths] for one in find_shards(source)}


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("train.tfrecord", ShardName("train")),
        ("train.tfrecords", ShardName("train")),
        ("train.record", ShardName("train")),
        ("train.tfrec", ShardName("train")),
        ("TRAIN.TFRECORD", ShardName("TRAIN")),
        ("a.b.rf.c0ffee.tfrecord", ShardName("a.b.rf.c0ffee")),
        ("train.record-00003-of-00010", ShardName("train", 3, 10)),
        ("train.tfrecord-00003-of-00010", ShardName("train", 3, 10)),
        ("train-00003-of-00010.tfrecord", ShardName("train", 3, 10)),
        ("train-00003-of-00010", ShardName("train", 3, 10)),
        ("train-000003-of-000010", ShardName("train", 3, 10)),
        ("train.tfrecord.gz", ShardName("train")),
        ("train-00003-of-00010.tfrecord.gz", ShardName("train", 3, 10)),
        ("model.ckpt-00000.data-00000-of-00001", None),
        ("train.jpg", None),
        ("train", None),
    ],
)
def test_names(name: str, parsed: ShardName | None) -> None:
    assert parse_shard_name(name) == parsed


def test_roboflow_folders(tmp_path: Path) -> None:
    fill(tmp_path, "train/Objects.tfrecord", "valid/Objects.tfrecord", "test/Objects.tfrecord")
    splits = ("test", "train", "valid")
    assert subsets(tmp_path) == {split: ["Objects.tfrecord"] for split in splits}
    assert subsets(tmp_path / "train") == {"Objects": ["Objects.tfrecord"]}


def test_search_goes_three_levels_deep(tmp_path: Path) -> None:
    fill(tmp_path, "a/b/c/deep.record", "a/upper.record", "all.record")
    assert sorted(subsets(tmp_path)) == ["all", "deep", "upper"]
    fill(tmp_path, "x/1/2/3/4/too_deep.record")
    with pytest.raises(ShardsNotFoundError):
        find_shards(tmp_path / "x")


def test_files_of_unknown_names_are_checked_by_content(tmp_path: Path) -> None:
    fill(tmp_path, "data", "images.jpg", ".hidden", "events.out.tfevents.1.host.record")
    (tmp_path / "notes").write_text("these are not the records you are looking for")
    (event,) = write_records(tmp_path, "event", [b"\x09" + bytes(20)])  # TensorBoard's
    Path(event).rename(tmp_path / "event")
    assert subsets(tmp_path) == {"data": ["data"]}
    (tmp_path / "broken.record").write_text("named as one, so the reader says what is wrong")
    assert looks_like_shard(str(tmp_path / "broken.record"))


@pytest.mark.parametrize(
    ("source", "what"),
    [("", "no shard in this folder"), ("nope", "no such file"), ("*.record", "matches")],
)
def test_nothing_found_says_what_was_looked_for(tmp_path: Path, source: str, what: str) -> None:
    with pytest.raises(ShardsNotFoundError, match=what):
        find_shards(str(tmp_path / source))


def test_best_label_map_wins_and_a_tie_is_none(tmp_path: Path) -> None:
    fill(tmp_path, "data/train/Objects.tfrecord")
    shard = str(tmp_path / "data/train/Objects.tfrecord")

    assert find_label_map(shard) == (None, [])
    for name in (
        "any.pbtxt",
        "mscoco_label_map.pbtxt",
        "label_map.pbtxt",
        "objects_label_map.pbtxt",
        "train/other.pbtxt",
        "train/labelmap.pbtxt",
        "train/Objects_label_map.pbtxt",
    ):
        write_files(tmp_path / "data", {name: ""})
        found, candidates = find_label_map(shard)
        assert (found, candidates) == (str(tmp_path / "data" / name), [])
    (tmp_path / "data/train/Objects_label_map.pbtxt").unlink()
    (tmp_path / "data/train/labelmap.pbtxt").unlink()
    write_files(tmp_path / "data", {"train/another.pbtxt": ""})
    found, candidates = find_label_map(shard)
    assert found is None and len(candidates) == 2
    Path(candidates[1]).write_text("item { id: 1 name: 'cat' }")
    assert find_label_map(shard) == (candidates[1], []), "the only one that can be read"


def test_other_protobuf_texts_are_no_label_maps(tmp_path: Path) -> None:
    fill(tmp_path, "a.record")
    (tmp_path / "graph.pbtxt").write_text("node { name: 'x' }")
    (tmp_path / "pipeline.pbtxt").write_text("model { }")
    assert find_label_map(str(tmp_path / "a.record")) == (None, [])


@pytest.mark.parametrize(
    ("filename", "path"),
    [
        ("a.jpg", "a.jpg"),
        ("some folder/b.c.rf.0f.jpg", "some folder/b.c.rf.0f.jpg"),
        ("/home/me/images/a.jpg", "a.jpg"),
        ("C:\\Users\\me\\a.jpg", "a.jpg"),
        ("..\\..\\a.jpg", "a.jpg"),
        ("a/../../b.jpg", "a/b.jpg"),
        ("a/.. /b.jpg", "a/b.jpg"),
        ("./a.jpg", "a.jpg"),
        ("d:a.jpg", "a.jpg"),
        ("nul\0.jpg", "nul_.jpg"),
        ("..", ""),
        ("", ""),
        ("кадр 1.jpg", "кадр 1.jpg"),
    ],
)
def test_safe_relative_paths(filename: str, path: str) -> None:
    assert safe_relative_path(filename) == path


def test_extensions() -> None:
    assert split_extension("a.b/c.JPEG") == ("a.b/c", ".JPEG")
    assert split_extension("frame.000123") == ("frame.000123", "")
    assert split_extension("x.rf.0a1b2c3d4e5f") == ("x.rf.0a1b2c3d4e5f", "")
    assert split_extension(".jpg") == (".jpg", "")


def test_every_image_has_its_own_id() -> None:
    ids = IdMaker()
    made = [ids.make(path, "r")[0] for path in ("1.jpg", "1.png", "1.jpg", "1.jpg", "1~2.jpg", "")]
    assert made == ["1", "1.png", "1~2", "1~3", "1~2.jpg", "r"]
    assert is_id_for("1", "1.jpg") and is_id_for("1.png", "1.png") and is_id_for("1~3", "1.jpg")
    assert is_id_for("a", "/some/where/a.jpg")
    assert not is_id_for("renamed", "1.jpg") and not is_id_for("1~x", "1.jpg")
