"""What TensorFlow reads from shards of the CSV and Roboflow recipes, beside the recipes' own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tfod
from tfod.convert.csv import CsvBox, CsvImage, write_detection_csv

from tests.datumaro.conftest import jpeg

pytest.importorskip("datumaro")

from datumaro.components.dataset import Dataset

EXAMPLES = Path(__file__).parents[3] / "examples"
OURS_ALONE = {"image/key/sha256"}
"""What generate_tfrecord.py does not write."""


def features(path: Path) -> dict[str, dict[str, list[Any]]]:
    """All features of a shard as TensorFlow reads them, by file name, in order."""
    found = {}
    for record in tf.data.TFRecordDataset(str(path)):
        example = tf.train.Example.FromString(record.numpy())
        plain = {
            key: list(getattr(feature, feature.WhichOneof("kind")).value)
            for key, feature in example.features.feature.items()
        }
        found[plain["image/filename"][0].decode()] = plain
    return found


def convert(source: Path, out: Path) -> None:
    dataset = Dataset.import_from(str(source), "tf_detection_csv")
    dataset.export(str(out), "tf_detection_api", save_media=True)


def test_equal_to_what_generate_tfrecord_wrote(tmp_path: Path, corpus: Path) -> None:
    """The corpus has a CSV with the very shards that the script made of it: 251 records.

    Key by key, to the last bit of each float; ``jpg`` against ``jpeg``, the digest, and a number in
    place of the file name as the source id apart.
    """
    source = corpus / "hyphal-tips"
    for subset in ("train", "test"):
        (tmp_path / "data" / "images" / subset).mkdir(parents=True)
        shutil.copy(source / f"{subset}_labels.csv", tmp_path / "data")
        for detection in tfod.read_detections(source / f"{subset}.record"):
            path = tmp_path / "data" / "images" / subset / str(detection.filename)
            path.write_bytes(bytes(detection.encoded or b""))
    convert(tmp_path / "data", tmp_path / "out")
    compared = 0
    for subset in ("train", "test"):
        theirs = features(source / f"{subset}.record")
        ours = features(tmp_path / "out" / f"{subset}.tfrecord")
        assert list(ours) == list(theirs)
        for name, expected in theirs.items():
            assert expected.pop("image/format") == [b"jpg"]
            assert ours[name].pop("image/format") == [b"jpeg"]
            assert expected.pop("image/source_id") == [name.encode()]
            assert int(ours[name].pop("image/source_id")[0]) > 0
            assert {key: ours[name][key] for key in expected} == expected
            assert ours[name].keys() - expected.keys() == OURS_ALONE
            compared += 1
    assert compared == 251


def test_several_classes_and_a_wrong_size(tmp_path: Path) -> None:
    """As the script's arithmetic has it: pixels by the real image's size, not by the CSV's."""
    boxes = (CsvBox("dog", (1, 2, 11, 12)), CsvBox("étoile", (0, 0, 30, 20)))
    write_detection_csv(tmp_path / "train_labels.csv", [CsvImage("a.jpg", 20, 30, boxes)])
    (tmp_path / "a.jpg").write_bytes(jpeg(20, 30))
    convert(tmp_path, tmp_path / "out")
    (found,) = features(tmp_path / "out" / "train.tfrecord").values()
    del found["image/key/sha256"]
    float32 = [[float(tf.constant(v, tf.float32)) for v in pair] for pair in (
        (1 / 30, 0 / 30), (11 / 30, 30 / 30), (2 / 20, 0 / 20), (12 / 20, 20 / 20)
    )]  # fmt: skip
    assert found == {
        "image/height": [20],
        "image/width": [30],
        "image/filename": [b"a.jpg"],
        "image/source_id": [b"1"],
        "image/encoded": [jpeg(20, 30)],
        "image/format": [b"jpeg"],
        "image/object/bbox/xmin": float32[0],
        "image/object/bbox/xmax": float32[1],
        "image/object/bbox/ymin": float32[2],
        "image/object/bbox/ymax": float32[3],
        "image/object/class/text": [b"dog", "étoile".encode()],
        "image/object/class/label": [1, 2],
    }


THEIRS = """
import json, sys
from datumaro.components.dataset import Dataset
dataset = Dataset.import_from(sys.argv[1], "roboflow_tfrecord")
names = [label.name for label in next(iter(dataset.categories().values()))]
print(json.dumps(sorted(
    [item.id, item.subset, list(item.media.size), item.media.data.shape,
     [[names[one.label], *(round(float(x), 2) for x in one.points)] for one in item.annotations]]
    for item in dataset
)))
print("tensorflow" in sys.modules)
"""


def test_datumaros_own_importer_reads_our_roboflow_layout(tmp_path: Path) -> None:
    """With TensorFlow, as it is without tfod; and it reads the same as ours."""
    source = Dataset.import_from(str(EXAMPLES / "shapes_roboflow.zip"), "roboflow_tfrecord")
    source.export(str(tmp_path), "tf_detection_api", save_media=True, layout="roboflow")
    output = {}
    for switch in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", THEIRS, str(tmp_path)],
            env={**os.environ, "TFOD_ACTIVATE": switch},
            capture_output=True,
            text=True,
            check=True,
        )
        output[switch] = done.stdout.splitlines()
    assert output["0"][0] == output["1"][0] and output["0"][0].count("shapes_") == 12
    assert (output["0"][-1], output["1"][-1]) == ("True", "False")
