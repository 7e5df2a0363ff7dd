"""Shards in zips: read where they lie, by the same functions, and hostile zips refused."""

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


def make_zip(path: Path, entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> str:
    path.write_bytes(real_zip(entries.items(), method))
    return str(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
class TestReading:
    def test_every_way_of_reading(self, tmp_path: Path, method: int) -> None:
        path = make_zip(tmp_path / "export.zip", ROBOFLOW, method)
        train, valid = find_shards(path)
        assert (train.subset, valid.subset) == ("train", "valid")
        assert train.paths == (os.path.join(path, "train", "Objects.tfrecord"),)
        assert [d.filename for d in tfod.read_detections(path)] == [
            *("0.jpg", "1.jpg", "2.jpg", "v.jpg")
        ]
        assert [bytes(r.payload) for r in tfod.read_records(train.paths[0])] == TRAIN
        index = RecordIndex(train.paths[0])
        assert list(index) == TRAIN and index[-1] == TRAIN[-1]
        assert describe(path).records == 4
        assert describe(path).file_bytes == len(frame(*TRAIN)) + len(frame(*VALID))
        found, candidates = find_label_map(train.paths[0])
        assert not candidates and found is not None
        assert read_label_map(found)[0].items[0].display_name == "bowl"
        assert find_label_map(valid.paths[0]) == (None, [])

    def test_a_zip_that_was_replaced(self, tmp_path: Path, method: int) -> None:
        path = make_zip(tmp_path / "export.zip", ROBOFLOW, method)
        assert len(list(tfod.read_detections(path))) == 4
        make_zip(tmp_path / "new.zip", {"valid/Objects.tfrecord": frame(*VALID)}, method)
        os.replace(tmp_path / "new.zip", path)
        assert [d.filename for d in tfod.read_detections(path)] == ["v.jpg"]

    def test_a_compressed_shard(self, tmp_path: Path, method: int) -> None:
        shard = {"a.tfrecord.gz": gzip.compress(frame(*TRAIN))}
        path = make_zip(tmp_path / "a.zip", shard, method)
        (one,) = find_shards(path)
        assert one.subset == "a" and describe(path).records == 3
        assert list(RecordIndex(one.paths[0])) == TRAIN

    def test_spans_outlive_the_zip(self, tmp_path: Path, method: int) -> None:
        path = make_zip(tmp_path / "a.zip", ROBOFLOW, method)
        span = RecordIndex(find_shards(path)[0].paths[0]).span(1)
        make_zip(tmp_path / "b.zip", {"x.tfrecord": frame(*VALID)})
        os.replace(tmp_path / "b.zip", path)
        assert span.read() == TRAIN[1]

    def test_a_span_ends_with_its_entry(self, tmp_path: Path, method: int) -> None:
        """What follows it in the zip is no part of the shard."""
        path = make_zip(tmp_path / "a.zip", ROBOFLOW, method)
        shard = identify(find_shards(path)[0].paths[0])
        assert shard.size == len(frame(*TRAIN))
        assert ByteSpan(shard, shard.size - 4, 4).read() == frame(*TRAIN)[-4:]
        with pytest.raises(ShardError, match="was replaced"):
            ByteSpan(shard, shard.size - 4, 5).read()

    def test_spans_travel(self, tmp_path: Path, method: int) -> None:
        """To another process, that is, which opens the zip anew."""
        path = make_zip(tmp_path / "a.zip", ROBOFLOW, method)
        sent = pickle.dumps(RecordIndex(find_shards(path)[0].paths[0]).span(2))
        code = "import pickle, sys; sys.stdout.buffer.write(pickle.load(sys.stdin.buffer).read())"
        done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
        assert done.stdout == TRAIN[2], done.stderr


class TestFinding:
    def test_a_folder_on_top_and_litter(self, tmp_path: Path) -> None:
        entries = {f"My export/{name}": data for name, data in ROBOFLOW.items()}
        entries |= {"__MACOSX/My export/train/._Objects.tfrecord": b"x", ".DS_Store": b"x"}
        path = make_zip(tmp_path / "a.zip", entries)
        assert [(s.subset, len(s.paths)) for s in find_shards(path)] == [("train", 1), ("valid", 1)]

    def test_a_shard_without_a_known_name(self, tmp_path: Path) -> None:
        path = make_zip(tmp_path / "a.zip", {"shapes.dat": frame(*TRAIN), "x.dat": b"no"})
        assert [s.subset for s in find_shards(path)] == ["shapes"]

    def test_known_by_its_bytes(self, tmp_path: Path) -> None:
        path = make_zip(tmp_path / "export", ROBOFLOW)
        assert len(find_shards(path)) == 2

    def test_roboflow_note_makes_folders_subsets(self, tmp_path: Path) -> None:
        shards = {"night/Objects.tfrecord": frame(*TRAIN), "day/Objects.tfrecord": frame(*VALID)}
        noted = make_zip(tmp_path / "a.zip", shards | {"README.roboflow.txt": b""})
        assert sorted(s.subset for s in find_shards(noted)) == ["day", "night"]
        plain = make_zip(tmp_path / "b.zip", shards)
        assert [s.subset for s in find_shards(plain)] == ["Objects"]
        zipfile.ZipFile(noted).extractall(tmp_path / "folder")
        assert sorted(s.subset for s in find_shards(tmp_path / "folder")) == ["day", "night"]

    def test_label_maps_outside_the_zip_are_not_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "label_map.pbtxt").write_text(LABEL_MAP)
        path = make_zip(tmp_path / "a.zip", {"a.tfrecord": frame(*TRAIN)})
        assert find_label_map(find_shards(path)[0].paths[0]) == (None, [])

    def test_no_shard_in_it(self, tmp_path: Path) -> None:
        path = make_zip(tmp_path / "a.zip", {"readme.txt": b"x"})
        with pytest.raises(ShardsNotFoundError, match=r"a\.zip: no shard in this archive"):
            find_shards(path)

    def test_a_folder_with_a_zip_is_not_searched_inside(self, tmp_path: Path) -> None:
        make_zip(tmp_path / "a.zip", ROBOFLOW)
        with pytest.raises(ShardsNotFoundError):
            find_shards(tmp_path)


GOOD = Item("train/a.tfrecord", frame(*TRAIN), method=0)
BOMB = Item("bomb.tfrecord", bytes(32 << 20))


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (Item("../a.tfrecord", frame(*TRAIN)), r"contains '\.\.'"),
        (Item("/a.tfrecord", frame(*TRAIN)), "is absolute"),
        (Item("..\\a.tfrecord", frame(*TRAIN)), r"contains '\.\.'"),
        (Item("a.tfrecord", frame(*TRAIN), flags=1), "is encrypted"),
        (Item("a.tfrecord", frame(*TRAIN), method=14), "method 14"),
        (Item("a.tfrecord", b"/etc/passwd", mode=0o120777), "is a symbolic link"),
    ],
)
def test_entries_that_are_refused(tmp_path: Path, item: Item, cause: str) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(forge(GOOD, item))
    with pytest.raises(ShardError, match=cause) as raised:
        find_shards(path)
    assert str(raised.value).endswith(f"tfod check {path}") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (BOMB, "the maximum is 200 times"),
        (Item("a.tfrecord", frame(*TRAIN), own_name=b"b.tfrecord"), "a different name: b.tfrecord"),
        (Item("a.tfrecord", frame(*TRAIN), packed=b"\xff" * 50), "data are damaged"),
        (Item("a.tfrecord", frame(*TRAIN), crc=1), "CRC-32"),
    ],
)
def test_entries_that_lie(tmp_path: Path, item: Item, cause: str) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(forge(item))
    with pytest.raises(ShardError, match=cause):
        for shard in find_shards(path)[0].paths:
            with open_shard(shard) as (stream, _):
                while stream.read(1 << 16):
                    pass


def test_all_bytes_are_given_before_a_wrong_checksum_is_told(tmp_path: Path) -> None:
    """The sound records behind a damaged one are checked, repaired and shown as those before it."""
    path, data = tmp_path / "a.zip", frame(*TRAIN)
    path.write_bytes(forge(Item("a.tfrecord", data, crc=1)))
    with open_shard(find_shards(path)[0].paths[0]) as (stream, _):
        assert stream.read(2 * len(data)) == data
        with pytest.raises(ShardError, match="CRC-32"):
            stream.read(1)


def test_overlapping_entries_are_refused(tmp_path: Path) -> None:
    data = frame(*TRAIN)
    path = tmp_path / "a.zip"
    path.write_bytes(forge(Item("a.tfrecord", data, 0), Item("b.tfrecord", data, 0, start=0)))
    with pytest.raises(ShardError, match="zip bomb"):
        find_shards(path)


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
