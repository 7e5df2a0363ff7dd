"""A directory of TensorFlow Datasets, as ``tfds.builder_from_directory`` takes it.

Source: tensorflow_datasets 4.9.10: object_detection/coco.py, CocoConfig and _info, for the
features; core/features/*.py, to_json_content, for features.json; core/proto/dataset_info.proto and
core/splits.py, SplitInfo.to_proto, for dataset_info.json; core/features/class_label_feature.py,
_write_names_to_file, for the names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfod.convert.dataset import Images
from tfod.convert.writers.writer import Writer
from tfod.detection.images.image import sniff_format
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import TfodError
from tfod.example.example import bytes_feature, encode_example, float_feature, int64_feature
from tfod.tfrecord.framing import FRAME_BYTES
from tfod.tfrecord.label_files import TFDS_LABELS_FILE
from tfod.tfrecord.shard_sets.search import TFDS_NOTE
from tfod.tfrecord.writer import ShardSetWriter

_SHARD_BYTES = 256 << 20  # core/utils/shard_utils.py has 64 MiB to 1 GiB
_READ = ("jpeg", "png", "bmp")  # tf.io.decode_image gives a GIF another dimension
_LARGEST_AREA = (1 << 63) - 1  # of an image that says that it is larger than any
_VERSION = re.compile(r"\d+\.\d+\.\d+\Z")
_CUT = "boxes cut at the edge of their image, since TFDS has them from 0 to 1"
_EMPTY = "subsets without images, not written"
_PYTHON = "tensorflow_datasets.core.features."


class TfdsWriter(Writer):
    """Images lie in the records; ids are as :class:`CocoWriter` has them."""

    CARRIES = frozenset(("area", "is_crowd"))

    def __init__(self, folder: str, image_folder: str | None, target: str) -> None:
        super().__init__(folder, image_folder, target)
        if image_folder is None:
            raise TfodError("a directory of TFDS has its images in its records; leave --no-images")
        self._name, self._version = _name_and_version(target)
        self._open: ShardSetWriter | None = None
        self._records: list[int] = []  # bytes of each record of the split
        self._splits: dict[str, dict[str, Any]] = {}
        self._places: dict[int, int] = {}
        self._objects = 0

    def begin(self, subset: str) -> None:
        self._end_split()
        self._split = re.sub(r"\W", "_", subset)
        if self._split in self._splits:
            raise TfodError(
                f"the subset {subset!r} and another one are both {self._split!r} in TFDS, whose "
                "names have letters, digits and _; rename one"
            )
        start = f"{self._name}-{self._split}.tfrecord"
        self._open = ShardSetWriter(
            self.folder,
            self._split,
            shard_size=_SHARD_BYTES,
            name_files=lambda count: [f"{start}-{n:05d}-of-{count:05d}" for n in range(count)],
        )

    def add(self, images: Images, label_map: LabelMap) -> None:
        assert self._open is not None
        for item in label_map.items:
            self._places.setdefault(item.id, len(self._places))
        self._count_losses(images)
        left, top, right, bottom = images.in_pixels().T
        areas = (right - left) * (bottom - top)
        boxes = images.boxes.clip(0, 1)
        self.losses[_CUT][""] += int((boxes != images.boxes).any(axis=1).sum())
        labels = [self._places[one] for one in images.classes]
        for row, image_id in enumerate(self._image_numbers(images)):
            span = slice(*images.splits[row : row + 2])
            more = {} if images.is_plain else images.detections[row].attributes
            area, crowds = areas[span].tolist(), more.get("is_crowd", [0] * len(areas[span]))
            stated = zip(more.get("area", area), area, strict=True)
            first, self._objects = self._objects, self._objects + len(area)
            payload = encode_example(
                {
                    "image": bytes_feature([self._encoded(images, row)]),
                    "image/filename": bytes_feature([(images.filenames[row] or "").encode()]),
                    "image/id": int64_feature([image_id]),
                    # A number that is none has no place in a list of int64.
                    "objects/area": int64_feature(
                        _area(one if isinstance(one, (int, float)) and np.isfinite(one) else own)
                        for one, own in stated
                    ),
                    "objects/bbox": float_feature(boxes[span][:, [1, 0, 3, 2]].ravel()),
                    "objects/id": int64_feature(range(first + 1, self._objects + 1)),
                    "objects/is_crowd": int64_feature(int(bool(one)) for one in crowds),
                    "objects/label": int64_feature(labels[span]),
                }
            )
            self._open.write(payload)
            self._records.append(len(payload))

    def finish(self, label_map: LabelMap) -> None:
        self._end_split()
        for item in label_map.items:
            self._places.setdefault(item.id, len(self._places))
        items = sorted(label_map.items, key=lambda item: self._places[item.id])
        features = _features(len(items))
        info = {
            "fileFormat": "tfrecord",
            "name": self._name,
            "splits": [{"name": name, **one} for name, one in self._splits.items()],
            "version": self._version,
        }
        for name, text in (
            ("features.json", json.dumps(features, indent=4, sort_keys=True)),
            (TFDS_NOTE, json.dumps(info, indent=2)),
            (TFDS_LABELS_FILE, "".join(f"{_plain_name(item)}\n" for item in items)),
        ):
            self._write(os.path.join(self.folder, name), text.encode())

    def _encoded(self, images: Images, row: int) -> bytes:
        """The image file.

        Raises:
            TfodError: there is none, or of a format that TFDS does not read.
        """
        encoded = bytes(images.encoded(row) or b"")
        if sniff_format(encoded[:16]) not in _READ:
            what = "is not a JPEG, PNG or BMP" if encoded else "is not in its record"
            raise TfodError(f"image {images.filenames[row]!r} {what}, which TFDS needs")
        return encoded

    def _end_split(self) -> None:
        """Close the shards of a split, and note what dataset_info.json says of them."""
        shards, self._open = self._open, None
        if shards is None:
            return
        if not self._records:
            shards.discard()
            self.losses[_EMPTY][self._split] += 1
            return
        ends = np.cumsum([os.path.getsize(path) for path in shards.publish()])
        sizes, self._records = np.array(self._records), []
        records = np.searchsorted(np.cumsum(sizes + FRAME_BYTES), ends, side="right")
        self._splits[self._split] = {
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            "numBytes": str(sizes.sum()),
            "shardLengths": [str(count) for count in np.diff(records, prepend=0)],
        }


def _area(value: float) -> int:
    return max(-_LARGEST_AREA, min(round(value), _LARGEST_AREA))


def _name_and_version(target: str) -> tuple[str, str]:
    """The dataset's, by a path such as ``coco/1.0.0`` or ``coco``."""
    folder, name = os.path.split(os.path.abspath(target))
    version = "1.0.0"
    if _VERSION.match(name):
        name, version = os.path.basename(folder), name
    name = re.sub(r"\W", "_", name.lower(), flags=re.ASCII)
    return name if name[:1].isalpha() else f"dataset_{name}", version


def _plain_name(item: LabelMapItem) -> str:
    """The name of a class.

    Raises:
        TfodError: TFDS would read another one, or none.
    """
    name = item.class_name
    if not name or name != name.strip() or "\n" in name:
        raise TfodError(
            f"the class {name!r} has a line break, or blanks at its ends, which {TFDS_LABELS_FILE} "
            "cannot hold; rename it"
        )
    return name


# features.json


def _features(classes: int) -> Mapping[str, Any]:
    objects = {
        "area": _number("int64"),
        "bbox": _feature(
            *("bounding_boxes.BBoxFeature", "boundingBox"),
            {"bboxFormat": "REL_YXYX", "dtype": "float32", "shape": {"dimensions": ["4"]}},
        ),
        "id": _number("int64"),
        "is_crowd": _number("bool"),
        "label": _feature(
            "class_label_feature.ClassLabel", "classLabel", {"numClasses": str(classes)}
        ),
    }
    return _dict(
        {
            "image": _feature(
                *("image_feature.Image", "image"),
                {"dtype": "uint8", "shape": {"dimensions": ["-1", "-1", "3"]}},
            ),
            "image/filename": _feature("text_feature.Text", "text", {}),
            "image/id": _number("int64"),
            "objects": _feature(
                *("sequence_feature.Sequence", "sequence"),
                {"feature": _dict(objects), "length": "-1"},
            ),
        }
    )


def _feature(python_class: str, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": _PYTHON + python_class, kind: content}


def _number(dtype: str) -> dict[str, Any]:
    content = {"dtype": dtype, "encoding": "none", "shape": {}}
    return _feature("tensor_feature.Tensor", "tensor", content)


def _dict(features: Mapping[str, Any]) -> dict[str, Any]:
    return _feature("features_dict.FeaturesDict", "featuresDict", {"features": features})
