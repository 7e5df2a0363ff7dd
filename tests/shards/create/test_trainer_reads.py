"""What TensorFlow parses from the shards, as the OD API's decoder asks it to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import Run
from tests.shards.create.conftest import (
    COCO,
    VOC,
    by_filename,
    coco_arguments,
)

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


def parsed(pattern: Path) -> list[dict[str, Any]]:
    files = sorted(map(str, pattern.parent.glob(pattern.name)))
    found = []
    for record in tf.data.TFRecordDataset(files):
        one = tf.io.parse_single_example(record, DESCRIPTION)
        found.append(
            {
                key: value.values.numpy() if isinstance(value, tf.SparseTensor) else value.numpy()
                for key, value in one.items()
            }
        )
    return found


def shards(run: Run, out: Path) -> Path:
    """One of each format."""
    points = COCO / "person_keypoints_train.json"
    for arguments in (
        ("pascal", "--data-dir", VOC, "--output-path", out / "pascal.record"),
        (*coco_arguments(), "--include-masks", "--num-shards=1", "--output-dir", out / "coco",
         "--train-keypoint-annotations-file", points),
    ):  # fmt: skip
        assert run(*arguments).code == 0
    return out


def test_tensorflow_reads_what_was_written(run: Run, tmp_path: Path) -> None:
    out = shards(run, tmp_path)
    for pattern in ("pascal.record", "coco/coco_train.record"):
        records = parsed(out / pattern)
        ours = {
            name: one
            for path in sorted((out / pattern).parent.glob(Path(pattern).name))
            for name, one in by_filename(path).items()
        }
        assert len(records) == len(ours) > 0
        for record, one in zip(records, ours.values(), strict=True):
            assert record["image/filename"].decode() == one.filename
            sides = [
                record[f"image/object/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")
            ]
            assert np.array_equal(np.stack(sides, axis=1), one.boxes)
            texts = [text.decode() for text in record["image/object/class/text"]]
            assert texts == list(one.class_text or ())
            assert record["image/object/class/label"].tolist() == list(one.class_label or ())
            pixels = tf.io.decode_image(record["image/encoded"]).numpy()
            assert pixels.shape[:2] == (record["image/height"], record["image/width"])
            assert len(record["image/object/difficult"]) in (0, len(one.boxes))


def test_masks_decode_to_the_images_size(run: Run, tmp_path: Path) -> None:
    out = shards(run, tmp_path)
    records = parsed(out / "coco" / "coco_train.record")
    assert (len(records), sum(len(one["image/object/mask"]) for one in records)) == (8, 21)
    for record in records:
        count = len(record["image/object/class/text"])
        assert len(record["image/object/mask"]) == len(record["image/object/area"]) == count
        assert len(record["image/object/keypoint/x"]) == 3 * count
        for data in record["image/object/mask"]:
            mask = tf.io.decode_png(data, channels=1).numpy()
            assert mask.shape == (record["image/height"], record["image/width"], 1)
            assert set(np.unique(mask)) == {0, 1}
