"""Loading of images with boxes for training, with tfod and with handwritten code.

The handwritten code follows the guides of tf.data and of the ``tfrecord`` package. It reads the
same keys with the same label map, and has the same result.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import Sample, Walk, median_pass
from sizes import CLASSES

_SIDES = ("ymin", "xmin", "ymax", "xmax")
_FLAGS = ("is_crowd", "group_of")


def train_with_tfod(folder: str, batch_size: int, size: int) -> Sample:
    """Iterate over ``tfod.tensorflow.dataset``; a batch size of 0 means single records."""
    import tensorflow as tf
    from tfod.tensorflow import dataset

    def resize(element: dict[str, Any]) -> dict[str, Any]:
        image = tf.cast(tf.round(tf.image.resize(element["image"], (size, size))), tf.uint8)
        return {**element, "image": image}

    elements = dataset(folder)
    if size:
        elements = elements.map(resize, tf.data.AUTOTUNE)
    if batch_size:
        elements = elements.ragged_batch(batch_size).prefetch(tf.data.AUTOTUNE)
    return median_pass(_walk(elements, batch_size))


def train_with_tensorflow(folder: str, batch_size: int, size: int) -> Sample:
    import tensorflow as tf

    features = _features()
    ids = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(CLASSES), tf.range(1, len(CLASSES) + 1, dtype=tf.int64)
        ),
        default_value=-1,
    )

    def parse(record: Any) -> dict[str, Any]:
        parsed = tf.io.parse_single_example(record, features)
        parsed = {
            key: tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value
            for key, value in parsed.items()
        }
        objects = {
            key.rpartition("/")[2]: value for key, value in parsed.items() if "object" in key
        }
        image = tf.io.decode_image(parsed["image/encoded"], channels=3, expand_animations=False)
        image.set_shape((None, None, 3))
        if size:
            image = tf.cast(tf.round(tf.image.resize(image, (size, size))), tf.uint8)
        texts, labels, weights = objects["text"], objects["label"], objects["weight"]
        count = tf.shape(objects["ymin"])[0]
        return {
            "image": image,
            "source_id": parsed["image/source_id"],
            "filename": parsed["image/filename"],
            "groundtruth_boxes": tf.stack([objects[side] for side in _SIDES], axis=1),
            "groundtruth_classes": tf.cond(
                tf.size(texts) > 0, lambda: ids.lookup(texts), lambda: labels
            ),
            "groundtruth_weights": tf.cond(
                tf.size(weights) > 0, lambda: weights, lambda: tf.ones([count])
            ),
            "groundtruth_area": objects["area"],
            "groundtruth_difficult": objects["difficult"],
            **{f"groundtruth_{flag}": tf.cast(objects[flag], tf.bool) for flag in _FLAGS},
        }

    elements = (
        tf.data.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=False)
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    )
    if batch_size:
        elements = elements.ragged_batch(batch_size)
    return median_pass(_walk(elements.prefetch(tf.data.AUTOTUNE), batch_size))


def train_with_tfod_torch(folder: str) -> Sample:
    from tfod.torch import Detections

    dataset = Detections(folder)
    elements = _Repeatable(lambda: map(dataset.__getitem__, range(len(dataset))))
    return median_pass(_walk_targets(elements))


def train_with_tfrecord(folder: str) -> Sample:
    """Iterate over the shards with the package ``tfrecord``, and convert boxes and classes."""
    import torch
    from PIL import Image
    from tfrecord.torch.dataset import TFRecordDataset

    ids = {text.encode(): number for number, text in enumerate(CLASSES, start=1)}
    description = {
        "image/encoded": "byte",
        "image/object/class/text": "byte",
        **{f"image/object/bbox/{side}": "float" for side in _SIDES},
    }

    def convert(record: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        with Image.open(io.BytesIO(record["image/encoded"])) as image:
            pixels = np.array(image.convert("RGB"))
        height, width = pixels.shape[:2]
        ymin, xmin, ymax, xmax = (record[f"image/object/bbox/{side}"] for side in _SIDES)
        corners = np.stack([xmin * width, ymin * height, xmax * width, ymax * height], axis=1)
        boxes = torch.from_numpy(corners)
        labels = torch.tensor([ids[text] for text in record["image/object/class/text"]])
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        target = {"boxes": boxes, "labels": labels, "area": area}
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous(), target

    def records() -> Iterator[tuple[Any, dict[str, Any]]]:
        for shard in sorted(Path(folder).glob("*.tfrecord")):
            yield from TFRecordDataset(str(shard), None, description, transform=convert)

    return median_pass(_walk_targets(_Repeatable(records)))


class _Repeatable:
    def __init__(self, start: Callable[[], Iterator[Any]]) -> None:
        self._start = start

    def __iter__(self) -> Iterator[Any]:
        return self._start()


def _features() -> dict[str, Any]:
    """Return the descriptions of the keys that the decoder of the OD API reads for training."""
    import tensorflow as tf

    texts = ("encoded", "filename", "source_id")
    floats = (*(f"bbox/{side}" for side in _SIDES), "area", "weight")
    integers = ("class/label", "difficult", *_FLAGS)
    return {
        **{f"image/{key}": tf.io.FixedLenFeature([], tf.string, "") for key in texts},
        **{f"image/object/{key}": tf.io.VarLenFeature(tf.float32) for key in floats},
        **{f"image/object/{key}": tf.io.VarLenFeature(tf.int64) for key in integers},
        "image/object/class/text": tf.io.VarLenFeature(tf.string),
    }


def _walk(elements: Any, batch_size: int) -> Walk:
    def walk() -> Iterator[tuple[int, int]]:
        for element in elements:
            boxes = element["groundtruth_boxes"]
            if batch_size:
                yield boxes.shape[0], boxes.flat_values.shape[0]
            else:
                yield 1, boxes.shape[0]

    return walk


def _walk_targets(elements: Any) -> Walk:
    def walk() -> Iterator[tuple[int, int]]:
        for _, target in elements:
            yield 1, len(target["boxes"])

    return walk
