"""Directories of TFDS and shards of TAO's DetectNet_v2, as ``tfod`` reads and writes them.

``tests/receivers/test_tfds.py`` asks TFDS itself.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.cli.main import main
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import TFDS
from tfod.detection.stream import read_batches
from tfod.tfrecord.shard_sets.search import find_all_shards
from tfod.tfrecord.writer import write_records

from tests.image_kinds import HEIGHT, WIDTH, saved
from tests.records import encode, image, objects, write_shard

PNG = saved("RGB", "PNG")
SIZE = {"image/height": HEIGHT, "image/width": WIDTH}
BOX = (0.1, 0.2, 0.3, 0.4)


def payload(name: str = "a.png", **more: Any) -> bytes:
    record = image(name) | SIZE | objects([BOX], ["cat"], [1]) | {"image/encoded": PNG}
    return encode({**record, **more})


def tfds_records(folder: Path, split: str) -> Detections:
    (one,) = [one for one in find_all_shards(folder) if one.subset == split]
    (batch,) = read_batches(one.paths[0])
    return Detections(batch, TFDS)


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


def test_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crowd = {"image/object/is_crowd": [1], "image/object/area": [5.6], "image/source_id": "70"}
    hanging = objects([(-0.5, 0, 1, 1.5)], ["dog"], [2])
    lost = {"image/object/difficult": [1], "image/source_id": "a.png"}
    label_map = "item { id: 1 name: 'cat' } item { id: 2 name: 'dog' } item { id: 7 name: 'emu' }"
    write_shard(
        *(tmp_path / "in", "train", payload(**crowd), payload("b.png", **hanging, **lost)),
        payload("c.png", **objects([], [], [])),
        label_map=label_map,
    )
    write_shard(tmp_path / "in", "val-1", payload("d.png"), label_map=label_map)
    target = tmp_path / "My data"
    assert convert(tmp_path / "in", target, "--to", "tfds") == 0
    output = capsys.readouterr()
    assert f"{target}: train: 3 images, 2 objects" in output.out
    assert "boxes cut at the edge of their image, since TFDS has them from 0 to 1: 1" in output.err
    assert "1 difficult" in output.err
    assert sorted(path.name for path in target.iterdir()) == [
        "dataset_info.json",
        "features.json",
        "my_data-train.tfrecord-00000-of-00001",
        "my_data-val_1.tfrecord-00000-of-00001",
        "objects-label.labels.txt",
    ]
    info = json.loads((target / "dataset_info.json").read_text())
    assert [(one["name"], one["shardLengths"]) for one in info["splits"]] == [
        ("train", ["3"]),
        ("val_1", ["1"]),
    ]
    assert (target / "objects-label.labels.txt").read_text() == "cat\ndog\nemu\n"
    found = tfds_records(target, "train")
    assert found.image_ids == [70, 1, 2]
    assert found[0].attributes == {"area": [6], "is_crowd": [1]}
    assert found[0].boxes.tolist() == np.float32([BOX]).tolist()
    assert found[1].boxes.tolist() == [[0, 0, 1, 1]] and found[1].class_label == [1]
    assert not len(found[2].boxes) and bytes(found[2].encoded or b"") == PNG
    assert [found.annotation_ids(row) for row in range(3)] == [[1], [2], []]
    asked = ["check", str(target), "--severity", "IMG011=off", "--for", "tfds"]
    assert main(asked) == 0
    shard = target / "my_data-train.tfrecord-00000-of-00001"
    shard.write_bytes(gzip.compress(shard.read_bytes()))
    assert main(asked) == 1  # TFDS does not unpack it


@pytest.mark.parametrize(
    ("records", "label_map", "message"),
    [
        ([payload(**{"image/encoded": b""})], "", "image 'a.png' is not in its record, which TFDS"),
        ([payload(**{"image/encoded": saved("RGB", "GIF")})], "", "is not a JPEG, PNG or BMP"),
        ([payload()], "item { id: 9 name: ' b' }", "the class ' b' has a line break, or blanks"),
        ([payload(**{"image/encoded": b"?", "image/height": 0})], "", "has no size"),
    ],
)
def test_what_tfds_could_not_read(
    records: list[bytes],
    label_map: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_shard(
        tmp_path / "in", "train", *records, label_map="item { id: 1 name: 'cat' }" + label_map
    )
    assert convert(tmp_path / "in", tmp_path / "out", "--to", "tfds") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_names_that_do_not_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_shard(tmp_path / "in", "a-b", payload())
    write_shard(tmp_path / "in", "a_b", payload("b.png"))
    assert convert(tmp_path / "in", tmp_path / "out", "--to", "tfds") == 2
    assert "are both 'a_b' in TFDS" in capsys.readouterr().err
    one = write_shard(tmp_path / "one", "train", payload())
    assert convert(one, tmp_path / "7", "--to", "tfds", "--no-images") == 2
    assert "has its images in its records" in capsys.readouterr().err
    assert convert(one, tmp_path / "7", "--to", "tfds") == 0
    assert (tmp_path / "7" / "dataset_7-train.tfrecord-00000-of-00001").exists()


def test_a_directory_in_datumaro_and_as_coco(tmp_path: Path) -> None:
    datumaro = pytest.importorskip("datumaro")
    two = objects([BOX, (0, 0, 1, 1)], ["dog", "cat"], [2, 1])
    write_shard(
        *(tmp_path / "in", "train", payload(**two)),
        label_map="item { id: 1 name: 'cat' } item { id: 2 name: 'dog' }",
    )
    source = tmp_path / "data" / "1.0.0"
    assert convert(tmp_path / "in", source, "--to", "tfds") == 0
    (item,) = datumaro.Dataset.import_from(str(source), "tf_detection_api")
    assert (item.id, item.subset, item.attributes["id"]) == ("a", "train", 1)
    assert [one.label for one in item.annotations] == [1, 0]
    assert convert(source, tmp_path / "out.json", "--no-images") == 0
    coco = json.loads((tmp_path / "out.json").read_text())
    assert [(one["id"], one["name"]) for one in coco["categories"]] == [(1, "cat"), (2, "dog")]
    assert [one["category_id"] for one in coco["annotations"]] == [2, 1]


@pytest.fixture
def detectnet(tmp_path: Path) -> Path:
    """As TAO's converter writes them: names of its own, boxes in pixels, no images."""
    record = {
        "frame/height": 50,
        "frame/width": 100,
        "target/object_class": ["car", "van"],
        "target/truncation": [0.5, 0.0],
        "target/occlusion": [2, 0],
        "target/observation_angle": [0.0, 0.0],
        **{f"target/coordinates_{side}": [10.0, 20.0] for side in ("x1", "y1")},
        **{f"target/coordinates_{side}": [30.0, 40.0] for side in ("x2", "y2")},
    }
    for fold in range(2):
        stem = f"kitti-fold-00{fold}-of-002-shard"
        records = [encode({**record, "frame/id": f"images/{fold}.{n}"}) for n in range(2)]
        for shard, one in enumerate(records):
            name = f"{stem}-0000{shard}-of-00002"
            write_records(tmp_path / "tao", stem, [one], name_files=lambda _, name=name: [name])
    return tmp_path / "tao"


def test_detectnet_v2(detectnet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(detectnet), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["profile"]["name"] == "detectnet_v2"
    assert main(["describe", str(detectnet)]) == 0
    assert "4 records, 8 boxes" in capsys.readouterr().out
    target = detectnet.parent / "coco"
    assert convert(detectnet, target, "--to", "coco") == 0
    assert "observation_angle" in capsys.readouterr().err
    for fold in range(2):
        coco = json.loads(
            (target / f"annotations/instances_kitti-fold-00{fold}-of-002-shard.json").read_text()
        )
        assert [(one["width"], one["height"]) for one in coco["images"]] == [(100, 50)] * 2
        assert [one["file_name"] for one in coco["images"]] == [
            f"images/{fold}.0.jpg",
            f"images/{fold}.1.jpg",
        ]
        boxes = [one["bbox"] for one in coco["annotations"]]
        np.testing.assert_allclose(boxes, [[10, 10, 20, 20], [20, 20, 20, 20]] * 2, rtol=1e-6)
        assert [one["attributes"] for one in coco["annotations"][:1]] == [
            {"truncated": 0.5, "occluded": 2}
        ]
    assert {one["name"] for one in coco["categories"]} == {"car", "van"}
