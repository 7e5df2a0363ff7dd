"""Shards in zips: read in place by the same functions, and unsafe zips are refused."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import tfod
from tfod.detection.labels.label_map import read_label_map
from tfod.errors import LabelMapError, ShardError, ShardsNotFoundError
from tfod.shards.describe import describe
from tfod.sources.reading import find_label_map
from tfod.tfrecord.record_index import ByteSpan, RecordIndex, identify
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.open import open_shard

from tests.mutants.sound import flip
from tests.records import encode, frame, image, objects
from tests.zip_forge import Item, forge, real_zip

TRAIN = [encode(image(f"{i}.jpg") | objects([[0, 0, 1, 1]], ["cup"], [2])) for i in range(3)]
VALID = [encode(image("v.jpg") | objects([[0, 0.25, 1, 1]], ["bowl"], [1]))]
LABEL_MAP = 'item {\n    name: "bowl",\n    id: 1,\n    display_name: "bowl"\n}\n'
ROBOFLOW = {
    "README.roboflow.txt": b"4 images",
    "train/Objects.tfrecord": frame(*TRAIN),
    "train/Objects_label_map.pbtxt": LABEL_MAP.encode(),
    "valid/Objects.tfrecord": frame(*VALID),
}
FOLDERS = {"night/Objects.tfrecord": frame(*TRAIN), "day/Objects.tfrecord": frame(*VALID)}


def make_zip(path: Path, entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> str:
    path.write_bytes(real_zip(entries.items(), method))
    return str(path)


def subsets_of(path: object) -> list[str]:
    return [shards.subset for shards in find_shards(path)]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_every_way_of_reading(tmp_path: Path, method: int) -> None:
    path = make_zip(tmp_path / "export.zip", ROBOFLOW, method)
    train, valid = find_shards(path)
    assert (train.subset, valid.subset) == ("train", "valid")
    assert train.paths == (os.path.join(path, "train", "Objects.tfrecord"),)
    names = ["0.jpg", "1.jpg", "2.jpg", "v.jpg"]
    assert [one.filename for one in tfod.read_detections(path)] == names
    assert [bytes(one.payload) for one in tfod.read_records(train.paths[0])] == TRAIN
    index = RecordIndex(train.paths[0])
    assert list(index) == TRAIN and index[-1] == TRAIN[-1]
    assert describe(path).records == 4
    assert describe(path).file_bytes == len(frame(*TRAIN)) + len(frame(*VALID))
    found, candidates = find_label_map(train.paths[0])
    assert not candidates and found is not None
    assert read_label_map(found)[0].items[0].display_name == "bowl"
    assert find_label_map(valid.paths[0]) == (None, [])
    # The zip is replaced.
    make_zip(tmp_path / "new.zip", {"valid/Objects.tfrecord": frame(*VALID)}, method)
    os.replace(tmp_path / "new.zip", path)
    assert [one.filename for one in tfod.read_detections(path)] == ["v.jpg"]
    # A compressed shard.
    path = make_zip(tmp_path / "a.zip", {"a.tfrecord.gz": gzip.compress(frame(*TRAIN))}, method)
    (shards,) = find_shards(path)
    assert shards.subset == "a" and describe(path).records == 3
    assert list(RecordIndex(shards.paths[0])) == TRAIN


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_spans(tmp_path: Path, method: int) -> None:
    path = make_zip(tmp_path / "a.zip", ROBOFLOW, method)
    index = RecordIndex(find_shards(path)[0].paths[0])
    # A span is not read beyond its entry.
    shard = identify(find_shards(path)[0].paths[0])
    assert shard.size == len(frame(*TRAIN))
    assert ByteSpan(shard, shard.size - 4, 4).read() == frame(*TRAIN)[-4:]
    with pytest.raises(ShardError, match="was replaced"):
        ByteSpan(shard, shard.size - 4, 5).read()
    # Another process opens the zip again.
    code = "import pickle, sys; sys.stdout.buffer.write(pickle.load(sys.stdin.buffer).read())"
    sent = pickle.dumps(index.span(2))
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
    assert done.stdout == TRAIN[2], done.stderr
    # This process has the replaced zip open.
    os.replace(make_zip(tmp_path / "b.zip", {"x.tfrecord": frame(*VALID)}), path)
    assert index.span(1).read() == TRAIN[1]


@pytest.mark.parametrize(
    ("name", "entries", "subsets"),
    [
        ("a.zip",
         {**{f"My export/{name}": data for name, data in ROBOFLOW.items()},
          "__MACOSX/My export/train/._Objects.tfrecord": b"x", ".DS_Store": b"x"},
         ["train", "valid"]),
        ("a.zip", {"shapes.dat": frame(*TRAIN), "x.dat": b"no"}, ["shapes"]),
        ("no-extension", ROBOFLOW, ["train", "valid"]),
        # With Roboflow's note, the subsets are the folders.
        ("a.zip", {**FOLDERS, "README.roboflow.txt": b""}, ["day", "night"]),
        ("a.zip", FOLDERS, ["Objects"]),
    ],
)  # fmt: skip
def test_shards_in_a_zip(
    tmp_path: Path, name: str, entries: Mapping[str, bytes], subsets: list[str]
) -> None:
    path = make_zip(tmp_path / name, entries)
    assert sorted(subsets_of(path)) == subsets
    if "day" in subsets:
        zipfile.ZipFile(path).extractall(tmp_path / "folder")
        assert sorted(subsets_of(tmp_path / "folder")) == subsets


def test_files_outside_the_zip_and_folders_with_zips(tmp_path: Path) -> None:
    (tmp_path / "label_map.pbtxt").write_text(LABEL_MAP)
    path = make_zip(tmp_path / "a.zip", {"a.tfrecord": frame(*TRAIN)})
    assert find_label_map(find_shards(path)[0].paths[0]) == (None, [])
    with pytest.raises(ShardsNotFoundError):
        find_shards(tmp_path)
    path = make_zip(tmp_path / "b.zip", {"readme.txt": b"x"})
    with pytest.raises(ShardsNotFoundError, match=r"b\.zip: no shard in this archive"):
        find_shards(path)


GOOD = Item("train/a.tfrecord", frame(*TRAIN), method=0)
BOMB = Item("bomb.tfrecord", bytes(32 << 20))


@pytest.mark.parametrize(
    ("item", "cause", "is_found"),
    [
        (Item("../a.tfrecord", frame(*TRAIN)), r"contains '\.\.'", False),
        (Item("/a.tfrecord", frame(*TRAIN)), "is absolute", False),
        (Item("..\\a.tfrecord", frame(*TRAIN)), r"contains '\.\.'", False),
        (Item("a.tfrecord", frame(*TRAIN), flags=1), "is encrypted", False),
        (Item("a.tfrecord", frame(*TRAIN), method=14), "method 14", False),
        (Item("a.tfrecord", b"/etc/passwd", mode=0o120777), "is a symbolic link", False),
        (Item("b.tfrecord", frame(*TRAIN), method=0, start=0), "zip bomb", False),  # overlap
        (BOMB, "the maximum is 200 times", False),
        (Item("a.tfrecord", frame(*TRAIN), own_name=b"b.record"), "different name: b.record", True),
        (Item("a.tfrecord", frame(*TRAIN), packed=b"\xff" * 50), "data are damaged", True),
        (Item("a.tfrecord", frame(*TRAIN), crc=1), "CRC-32", True),
    ],
)
def test_unsafe_and_damaged_entries(tmp_path: Path, item: Item, cause: str, is_found: bool) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(forge(GOOD, item))
    if not is_found:
        with pytest.raises(ShardError, match=cause) as raised:
            find_shards(path)
        assert str(raised.value).endswith(f"tfod check {path}") and "\n" not in str(raised.value)
        return
    shards = [shard for found in find_shards(path) for shard in found.paths]
    with pytest.raises(ShardError, match=cause):
        for shard in shards:
            with open_shard(shard) as (stream, _):
                while stream.read(1 << 16):
                    pass


def test_all_bytes_are_read_before_a_wrong_checksum_is_an_error(tmp_path: Path) -> None:
    """Records after the damage are checked, repaired and shown, too."""
    path, data = tmp_path / "a.zip", frame(*TRAIN)
    path.write_bytes(forge(Item("a.tfrecord", data, crc=1)))
    with open_shard(find_shards(path)[0].paths[0]) as (stream, _):
        assert stream.read(2 * len(data)) == data
        with pytest.raises(ShardError, match="CRC-32"):
            stream.read(1)


def test_a_damaged_label_map_is_named(tmp_path: Path) -> None:
    item = Item("train/label_map.pbtxt", LABEL_MAP.encode(), crc=1)
    path = tmp_path / "a.zip"
    path.write_bytes(forge(GOOD, item))
    found, _ = find_label_map(find_shards(path)[0].paths[0])
    assert found is not None
    with pytest.raises(LabelMapError, match=r"label_map\.pbtxt is damaged: its CRC-32"):
        read_label_map(found)


def test_shard_damage_names_the_entry(tmp_path: Path) -> None:
    data = flip(frame(*TRAIN), len(TRAIN[0]) + 16 + 12 + 3)
    path = make_zip(tmp_path / "a.zip", {"train/a.tfrecord": data})
    with pytest.raises(ShardError, match=r"a\.zip.train.a\.tfrecord, record 1"):
        list(tfod.read_detections(path))
