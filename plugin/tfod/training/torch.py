"""Shards as a PyTorch dataset of images and targets for torchvision's detection models.

Needs the extra ``torch``, but not TensorFlow. No other module of tfod imports PyTorch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.detection.columns import map_key
from tfod.detection.detection import Detection, ImageLabel
from tfod.detection.detections import Detections as Rows
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.pillow import open_image
from tfod.errors import RecordError, TfodError, how_to_install
from tfod.example.example_batch import ExampleBatch
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import Record, RecordBatch
from tfod.tfrecord.record_index import RecordIndex
from tfod.tfrecord.shard_sets.search import Sources
from tfod.training.input_shards import (
    UNKNOWN,
    LabelMapLike,
    choose_field_mapping,
    choose_label_map,
    find_training_shards,
)

try:
    import torch
    from torch.utils.data import Dataset
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise TfodError(f"tfod.torch needs PyTorch; {how_to_install('torch')}") from None


class Detections(Dataset):
    """The images of shards with their boxes, as a map-style dataset.

    An element is ``(image, target)``, for torchvision's detection models: ``image`` is a uint8
    tensor of shape (3, height, width), RGB; ``target`` is a dict of ``boxes`` float32 (n, 4),
    ``xmin, ymin, xmax, ymax`` in pixels; ``labels`` int64 (n,): the label map's id of the text, -1
    if the label map does not contain it, or the id in the record if the object has no text;
    ``image_id`` int, the index of the element; ``area`` float32 (n,) in pixels, that of the box by
    default; ``iscrowd`` int64 (n,), 0 or 1; ``source_id`` and ``filename`` str, by default empty.
    If the layout has image labels instead of boxes, there are ``image_labels`` int64 (n,). If it
    has one record per object, the dataset has one element per object.

    The constructor scans headers, or reads compressed shards, which are unpacked on first access.

    Args:
        source: path of a file, folder or zip, glob, or list of these.
        label_map: label map, its path, or name of a shipped one; by default the shards' label map.
        field_mapping: keys of the records; by default, the best layout is used.
        transform: function of image and target that returns the element.

    Raises:
        ShardsNotFoundError: there is no shard.
        LabelMapError: a label map cannot be read, or several are possible.
        TfodError: a folder has several subsets, or the layout is unknown.
        ShardError: a shard is damaged.
        RecordError: a record is not a valid Example, or its image is missing or invalid.
    """

    def __init__(
        self,
        source: Sources,
        *,
        label_map: LabelMapLike | None = None,
        field_mapping: FieldMapping | None = None,
        transform: Callable[[Any, dict[str, Any]], Any] | None = None,
    ) -> None:
        shards = find_training_shards(source, field_mapping=field_mapping)
        self._label_map = choose_label_map(shards, label_map)
        self._mapping = choose_field_mapping(shards)
        self._transform = transform
        self._shards = [RecordIndex(path) for path in shards.paths]
        self._ends = list(itertools.accumulate(map(len, self._shards)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        record = self._record(index)
        detection = Rows(record, self._mapping)[0]
        pixels = _decode(detection.encoded, record)
        height, width = pixels.shape[:2]
        boxes = torch.from_numpy(detection.boxes * np.array([width, height] * 2, np.float32))
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        for number, area in enumerate(detection.attributes.get("area", ())):
            if isinstance(area, (int, float)):
                areas[number] = area
        crowds = detection.attributes.get("is_crowd") or [0] * len(boxes)
        image = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
        target = {
            "boxes": boxes,
            "labels": torch.tensor(self._labels(detection, record), dtype=torch.int64),
            "image_id": index % len(self),
            "area": areas,
            "iscrowd": torch.tensor([int(bool(crowd)) for crowd in crowds], dtype=torch.int64),
            "source_id": detection.source_id or "",
            "filename": detection.filename or "",
        }
        if not self._mapping.box:
            labels = [self._image_label(label, record) for label in detection.image_labels]
            target["image_labels"] = torch.tensor(labels, dtype=torch.int64)
        return (image, target) if self._transform is None else self._transform(image, target)

    def detection(self, index: int) -> Detection:
        """Return a record with masks, keypoints and attributes, without decoding the image."""
        return Rows(self._record(index), self._mapping)[0]

    def _record(self, index: int) -> ExampleBatch:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        shard_number = int(np.searchsorted(self._ends, index, side="right"))
        shard = self._shards[shard_number]
        number = index - self._ends[shard_number] + len(shard)
        payload = bytearray(shard[number])
        record = Record(number, shard.span(number).offset - HEADER_BYTES, payload, 0, len(payload))
        return ExampleBatch.of(RecordBatch.from_record(record, shard.path))

    def _image_label(self, label: ImageLabel, record: ExampleBatch) -> int:
        if label.text and self._label_map is not None:
            return max(self._label_map.find_ids(label.text), default=UNKNOWN)
        if label.label is None:
            raise self._no_label_map(record, keys.IMAGE_CLASS_TEXT)
        return label.label

    def _labels(self, detection: Detection, record: ExampleBatch) -> list[int]:
        texts = detection.class_text or ()
        ids = list(detection.class_label or [UNKNOWN] * len(detection.boxes))
        if self._label_map is None:
            if texts and not detection.class_label:
                raise self._no_label_map(record, keys.CLASS_TEXT)
            return ids
        for number, text in enumerate(texts):
            if text:
                ids[number] = max(self._label_map.find_ids(text), default=UNKNOWN)
            elif ids[number] == 0 and self._label_map.find_id(0) is None:
                # Datumaro writes 0 and an empty text for an object without a class.
                ids[number] = UNKNOWN
        return ids

    def _no_label_map(self, record: ExampleBatch, key: str) -> RecordError:
        cause = "is the only class feature, and there is no label map for it"
        feature = map_key(self._mapping, key)
        return record.error(0, cause, feature=feature, fix="pass label_map=")


def collate(batch: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
    """Return a batch as a tuple of images and a tuple of targets, for torchvision's models."""
    return tuple(zip(*batch, strict=True))


def _decode(encoded: bytes | memoryview | None, record: ExampleBatch) -> Any:
    if not encoded:
        fix = "export the shard with its images"
        raise record.error(0, "is missing or empty", feature=keys.ENCODED, fix=fix)
    try:
        with open_image(encoded) as image:
            if not image.mode.startswith("I"):
                return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
            # 16 bits: use the high byte, as TensorFlow does; Pillow would clip values at 255.
            high = np.asarray(image).astype(np.int64) >> 8
            return np.repeat(high.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)
    except ModuleNotFoundError:
        raise TfodError(f"decoding images needs Pillow; {how_to_install('torch')}") from None
    except MemoryError:
        raise  # the image may be valid
    except Exception as error:  # Pillow raises many types of exceptions for damaged images
        cause = f"cannot be decoded ({' '.join(str(error).split())[:200]})"
        fix = "see tfod check --decode all"
        raise record.error(0, cause, feature=keys.ENCODED, fix=fix) from None
