"""TensorFlow reads the same from our shards of the CSV and Roboflow recipes as from theirs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tfod
from tfod.formats.options import Options
from tfod.formats.table import convert

pytest.importorskip("datumaro")

from datumaro.components.dataset import Dataset

from tests.commands import run_python

EXAMPLES = Path(__file__).parents[3] / "examples"


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


def test_equal_to_what_generate_tfrecord_wrote(tmp_path: Path, corpus: Path) -> None:
    """The corpus has a CSV and the shards that the script wrote from it: 251 records.

    All keys are equal, to the last bit of each float, except for the format (``jpg``), the digest
    and the source id (a number, not the file name).
    """
    source = corpus / "hyphal-tips"
    for subset in ("train", "test"):
        (tmp_path / "data" / "images" / subset).mkdir(parents=True)
        shutil.copy(source / f"{subset}_labels.csv", tmp_path / "data")
        for detection in tfod.read_detections(source / f"{subset}.record"):
            path = tmp_path / "data" / "images" / subset / str(detection.filename)
            path.write_bytes(bytes(detection.encoded or b""))
    convert(str(tmp_path / "data"), str(tmp_path / "out"), Options())
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
            assert ours[name].keys() - expected.keys() == {"image/key/sha256"}
            compared += 1
    assert compared == 251


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
    """With TensorFlow and without tfod, it reads the same as our importer."""
    source = Dataset.import_from(str(EXAMPLES / "shapes_roboflow.zip"), "roboflow_tfrecord")
    source.export(str(tmp_path), "tf_detection_api", save_media=True, layout="roboflow")
    output = {}
    for switch in ("0", "1"):
        done = run_python("-c", THEIRS, tmp_path, TFOD_ACTIVATE=switch)
        output[switch] = done.out.splitlines()
    assert output["0"][0] == output["1"][0] and output["0"][0].count("shapes_") == 12
    assert (output["0"][-1], output["1"][-1]) == ("True", "False")
