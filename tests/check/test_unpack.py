"""Unpacking shards from zips: what is needed and nothing else, never outside the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod.cvat.server.unpack import unpack_shards
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.archive import ZipLimits
from tfod.tfrecord.storage.zip_entry import ZipEntryError

from tests.zip_forge import Item, forge, real_zip

LABEL_MAP = b"item { id: 1 name: 'cat' }\n"


def unpack(tmp_path: Path, data: bytes, limits: ZipLimits | None = None) -> dict[str, bytes]:
    archive, folder = tmp_path / "upload", tmp_path / "deep" / "down"
    archive.write_bytes(data)
    unpack_shards(str(archive), str(folder), limits)
    assert {one.name for one in tmp_path.iterdir()} == {"upload", "deep"}
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_shards_and_their_label_maps_under_names_of_ours(tmp_path: Path, shard: bytes) -> None:
    files = {
        "train/cats.tfrecord": shard,
        "train/cats_label_map.pbtxt": LABEL_MAP,
        "data-00000-of-00001": shard,
        "кадры/без имени": shard,  # a shard by its bytes, in a folder of Roboflow's
        "README.roboflow.txt": b"hello",
        "images/a.jpg": b"\xff\xd8\xff",
        "__MACOSX/._x.tfrecord": b"litter",
    }
    found = unpack(tmp_path, real_zip(files.items()))
    assert found == {
        "000000/data.tfrecord": shard,
        "000001/train.tfrecord": shard,
        "000001/label_map.pbtxt": LABEL_MAP,
        "000002/кадры.tfrecord": shard,
    }
    sets = find_shards(tmp_path / "deep" / "down")
    assert [one.subset for one in sets] == ["data", "train", "кадры"]


def test_names_that_lead_elsewhere_are_left_out(tmp_path: Path, shard: bytes) -> None:
    items = [
        Item("../../evil.tfrecord", shard),
        Item("/tmp/evil.tfrecord", shard),
        Item("C:\\evil.tfrecord", shard),
        Item("good.tfrecord", shard),
    ]
    assert unpack(tmp_path, forge(*items)) == {"000000/good.tfrecord": shard}


def test_a_bomb_is_left_out(tmp_path: Path, shard: bytes) -> None:
    bomb = real_zip([("bomb.tfrecord", b"\0" * (64 << 20)), ("a.tfrecord", shard)])
    assert unpack(tmp_path, bomb, ZipLimits()) == {"000000/a.tfrecord": shard}


def test_a_damaged_entry_is_not_passed_off_as_whole(tmp_path: Path, shard: bytes) -> None:
    data = bytearray(real_zip([("a.tfrecord", shard)], method=0))
    data[60] ^= 1
    with pytest.raises(ZipEntryError):
        unpack(tmp_path, bytes(data))
