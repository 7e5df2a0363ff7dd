"""``tfod create coco`` beside TF-Vision's own script.

official/vision/data/create_coco_tf_record.py, whose ``image/format`` is ``jpg`` whatever it is.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tfod.cli.main import main

from tests.shards.create.panoptic_coco import write_panoptic_coco

PARTS = {
    "objects": ["objects"],
    "captions": ["captions"],
    "everything": ["objects", "info", "captions", "panoptic"],
    "panoptic": ["info", "panoptic"],
}


def read_features(folder: Path) -> dict[bytes, dict[str, Any]]:
    """The features of each image, masks as pixels."""
    found = {}
    for path in sorted(folder.glob("*.tfrecord")):
        for record in tf.data.TFRecordDataset(str(path)):
            example = tf.train.Example.FromString(record.numpy())
            features = {}
            for key, feature in example.features.feature.items():
                kind = feature.WhichOneof("kind")
                values = list(getattr(feature, kind).value)
                if "mask" in key or "segmentation" in key:
                    values = [np.asarray(Image.open(io.BytesIO(one))).tolist() for one in values]
                features[key] = (kind, values)
            found[features["image/filename"][1][0]] = features
    return found


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("more", [[], ["--include_masks", "--include_panoptic_masks"]])
def test_the_records_are_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[str], more: list[str]
) -> None:
    from absl import flags
    from official.vision.data import create_coco_tf_record as script
    from official.vision.data import tfrecord_lib

    given = write_panoptic_coco(tmp_path / "coco")
    options = [*given["images"], *(one for part in parts for one in given[part]), *more]
    options += ["--num_shards=3"]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert main(["create", "coco", *options, f"--output_file_prefix={ours / 'train'}"]) == 0

    # Its arithmetic of segments' ids is of NumPy 1.
    read = tfrecord_lib.read_image
    monkeypatch.setattr(tfrecord_lib, "read_image", lambda path: read(path).astype(np.int32))
    for flag in flags.FLAGS.get_flags_for_module(script):
        flag.unparse()
    flags.FLAGS(["", *options, f"--output_file_prefix={theirs / 'train'}", "--num_processes=0"])
    script.main([])

    names = {path.name for path in theirs.iterdir()}
    assert {path.name for path in ours.iterdir()} == names | {"label_map.pbtxt"}
    expected = read_features(theirs)
    for features in expected.values():
        assert features["image/format"] == ("bytes_list", [b"jpg"])
        features["image/format"] = ("bytes_list", [b"jpeg"])
    assert read_features(ours) == expected
