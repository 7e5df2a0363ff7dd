"""What TensorFlow parses from the shards, as the OD API's decoder asks it to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import Run
from tests.formats.conftest import COCO, VOC, by_filename

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

FIXED = {
    "image/encoded": (tf.string, ""),
    "image/format": (tf.string, "jpeg"),
    "image/filename": (tf.string, ""),
    "image/key/sha256": (tf.string, ""),
    "image/source_id": (tf.string, ""),
    "image/height": (tf.int64, 1),
    "image/width": (tf.int64, 1),
}
SIDES = ("xmin", "ymin", "xmax", "ymax")
MANY = {
    **{f"image/object/bbox/{side}": tf.float32 for side in SIDES},
    **{
        f"image/object/{name}": tf.int64
        for name in ("class/label", "is_crowd", "difficult", "group_of", "keypoint/visibility")
    },
    **{f"image/object/{name}": tf.float32 for name in ("area", "keypoint/x", "keypoint/y")},
    "image/object/class/text": tf.string,
    "image/object/mask": tf.string,
    "image/class/text": tf.string,
    "image/class/label": tf.int64,
    "image/class/confidence": tf.float32,
}
DESCRIPTION = {
    **{key: tf.io.FixedLenFeature((), kind, default) for key, (kind, default) in FIXED.items()},
    **{key: tf.io.VarLenFeature(kind) for key, kind in MANY.items()},
}


def parsed(shard: Path) -> list[dict[str, Any]]:
    found = []
    for record in tf.data.TFRecordDataset(str(shard)):
        one = tf.io.parse_single_example(record, DESCRIPTION)
        found.append(
            {
                key: value.values.numpy() if isinstance(value, tf.SparseTensor) else value.numpy()
                for key, value in one.items()
            }
        )
    return found


@pytest.mark.parametrize("source", [VOC, COCO.parent])
def test_tensorflow_reads_what_was_written(convert: Run, tmp_path: Path, source: Path) -> None:
    shard = tmp_path / "train.record"
    convert(source, shard, "--set", "train", "--masks").succeeded()
    records, ours = parsed(shard), by_filename(shard)
    assert len(records) == len(ours) == 8
    for record, one in zip(records, ours.values(), strict=True):
        assert record["image/filename"].decode() == one.filename
        sides = [record[f"image/object/bbox/{side}"] for side in SIDES]
        assert np.array_equal(np.stack(sides, axis=1), one.boxes)
        texts = [text.decode() for text in record["image/object/class/text"]]
        assert texts == list(one.class_text or ())
        assert record["image/object/class/label"].tolist() == list(one.class_label or ())
        pixels = tf.io.decode_image(record["image/encoded"]).numpy()
        size = record["image/height"], record["image/width"]
        assert pixels.shape[:2] == size
        assert len(record["image/object/difficult"]) in (0, len(texts))
        if source == VOC:
            continue
        masks = record["image/object/mask"]
        assert len(masks) == len(record["image/object/area"]) == len(texts)
        assert len(record["image/object/keypoint/x"]) == 3 * len(texts)
        for data in masks:
            mask = tf.io.decode_png(data, channels=1).numpy()
            assert mask.shape == (*size, 1) and set(np.unique(mask)) == {0, 1}
    assert source == VOC or sum(len(one["image/object/mask"]) for one in records) == 21
