"""Caches of MediaPipe Model Maker: its ``Dataset.from_cache`` takes ours, and we read its."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tfod
from tfod.check.check import Options, check_sources
from tfod.check.receivers import MODEL_MAKER
from tfod.errors import LabelMapError
from tfod.shards.reshard import reshard
from tfod.tfrecord.writer import ShardLayout

from tests.commands import Run
from tests.mutants.sound import CAT_BOX, DOG_BOX, HEIGHT, LABEL_MAP, WIDTH, folder, jpeg, record
from tests.receivers.decoders import model_maker_module


def cache_files(where: Path, prefix: str, count: int) -> object:
    from mediapipe_model_maker.python.core.data.cache_files import TFRecordCacheFiles

    return TFRecordCacheFiles(prefix, str(where), count)


def source(where: Path, label_map: bytes = LABEL_MAP) -> Path:
    where.mkdir()
    records = [record("a.jpg", source_id="1"), record("b.png", source_id="2")]
    for name, content in folder(*records, label_map=label_map).items():
        (where / name.replace("default", "train")).write_bytes(content)
    return where


@pytest.mark.parametrize("count", [1, 2])
def test_it_takes_ours(tmp_path: Path, count: int) -> None:
    dataset = model_maker_module("dataset")  # first, see there
    reshard(
        source(tmp_path / "source"), tmp_path / "cache", ShardLayout(count), receiver="model-maker"
    )
    taken = dataset.Dataset.from_cache(cache_files(tmp_path / "cache", "train", count))
    assert (taken.size, taken.label_names) == (2, ["background", "cat", "dog"])
    assert taken.num_classes == 3
    found = list(taken.gen_tf_dataset().unbatch().as_numpy_iterator())
    for one in found:
        assert one["image"].shape == (HEIGHT, WIDTH, 3)
        boxes = one["groundtruth_boxes"][:, [1, 0, 3, 2]]
        np.testing.assert_array_equal(boxes, np.float32([CAT_BOX, DOG_BOX]))
        assert one["groundtruth_classes"].tolist() == [1, 2]
    assert [one["source_id"] for one in found] == [b"1", b"2"]


def test_we_read_ours(tmp_path: Path) -> None:
    reshard(source(tmp_path / "source"), tmp_path / "cache", receiver="model-maker")
    report = check_sources([str(tmp_path / "cache")], Options(receiver=MODEL_MAKER))
    assert [one.code for one in report.findings] == []
    back = reshard(tmp_path / "cache", tmp_path / "back")
    assert back.label_maps == ("train_metadata.yaml",)


def test_we_read_what_it_writes(tmp_path: Path) -> None:
    """From COCO, by its own writer."""
    dataset_util = model_maker_module("dataset_util")
    data = tmp_path / "coco"
    (data / "images").mkdir(parents=True)
    (data / "images" / "a.jpg").write_bytes(jpeg())
    annotation = {"id": 1, "image_id": 7, "category_id": 2, "bbox": [10, 5, 20, 10]}
    (data / "labels.json").write_text(
        json.dumps(
            {
                "categories": [{"id": 1, "name": "cat: yes"}, {"id": 2, "name": "é"}],
                "images": [{"id": 7, "file_name": "a.jpg"}],
                "annotations": [annotation],
            }
        )
    )
    names = dataset_util.get_label_map_coco(str(data))
    writer = dataset_util.COCOCacheFilesWriter(label_map=names)
    writer.write_files(cache_files(tmp_path / "cache", "3f2a", 2), str(data))
    (found,) = tfod.read_detections(tmp_path / "cache")
    assert (found.source_id, found.filename, list(found.class_label or ())) == ("7", "a.jpg", [2])
    np.testing.assert_array_equal(found.boxes, np.float32([[0.25, 0.25, 0.75, 0.75]]))
    label_map, _ = tfod.read_label_map(tmp_path / "cache" / "3f2a_metadata.yaml")
    assert {one.id: one.name for one in label_map.items} == {0: "background", **names}
    report = check_sources([str(tmp_path / "cache")], Options(receiver=MODEL_MAKER))
    assert report.valid and "LAB001" not in {one.code for one in report.findings}


@pytest.mark.parametrize(
    ("old", "new", "error", "code"),
    [
        ("size: 2", "", KeyError, "SET008"),
        ("size: 2", "size: two", None, "SET008"),
        ("size: 2", "size: 3", None, "SET008"),
        ("label_map:", "labels:", KeyError, "LAB002"),
        ("1:", "1", Exception, "LAB002"),
        ("", "", None, None),
    ],
)
def test_metadata_that_do_not_fit(
    run: Run, tmp_path: Path, old: str, new: str, error: type[Exception] | None, code: str | None
) -> None:
    """What it stops at, and what it takes although it is wrong, is an error for it alone."""
    cache = tmp_path / "cache"
    reshard(source(tmp_path / "source"), cache, receiver="model-maker")
    path = cache / "train_metadata.yaml"
    path.write_text(path.read_text().replace(old, new) if old else path.read_text())
    load = model_maker_module("dataset").Dataset.from_cache
    if error is not None:
        with pytest.raises(error):
            load(cache_files(cache, "train", 1))
    else:
        assert (load(cache_files(cache, "train", 1)).size == 2) is (code is None)
    done = run("check", cache, "--for", "model-maker", "--format", "json")
    assert done.code == int(code is not None)
    assert [one["code"] for one in json.loads(done.out)["findings"]] == ([code] if code else [])
    assert run("check", cache, "--for", "tf-vision").code == 0


def test_ids_without_a_name_get_one(tmp_path: Path) -> None:
    """It counts the names to know the ids that there are."""
    gap = LABEL_MAP + b"item { id: 5 name: '\xc3\xa9: \"no\"' }"
    done = reshard(source(tmp_path / "source", gap), tmp_path / "cache", receiver="model-maker")
    assert "no class has the ids 3, 4; they are named unused_3, …" in done.notes[0]
    taken = model_maker_module("dataset").Dataset.from_cache(
        cache_files(tmp_path / "cache", "train", 1)
    )
    assert taken.label_names == ["background", "cat", "dog", "unused_3", "unused_4", 'é: "no"']


def test_the_background_is_id_0(tmp_path: Path) -> None:
    zero = b"item { id: 0 name: 'cat' } item { id: 1 name: 'dog' }"
    with pytest.raises(LabelMapError, match="keeps id 0 for the background, here it is 'cat'"):
        reshard(source(tmp_path / "source", zero), tmp_path / "cache", receiver="model-maker")
    assert not (tmp_path / "cache").exists()
