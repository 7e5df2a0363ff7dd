"""Into PyTorch: shards as a dataset of images and targets, as torchvision's detectors take them.

Needs the extra ``torch`` and no TensorFlow, and nothing else in tfod imports PyTorch.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.detection.columns import map_key
from tfod.detection.detection import Detection, ImageLabel
from tfod.detection.detections import Detections as Rows
from tfod.detection.features.field_mapping import FieldMapping
from tfod.errors import RecordError, TfodError, how_to_install
from tfod.example.example_batch import ExampleBatch
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import Record, RecordBatch
from tfod.tfrecord.record_index import RecordIndex
from tfod.tfrecord.shard_sets.search import Sources
from tfod.training.input_shards import (
    UNKNOWN,
    LabelMapLike,
    field_mapping_for,
    label_map_for,
    shards_to_read,
)

try:
    import torch
    from torch.utils.data import Dataset
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise TfodError(f"tfod.torch needs PyTorch; {how_to_install('torch')}") from None


class Detections(Dataset):
    """The images of shards with their boxes, by number.

    An element is ``(image, target)`` as torchvision's detection models take them: ``image`` a uint8
    tensor of shape (3, height, width), RGB; ``target`` a dict of ``boxes`` float32 (n, 4), pixels
    ``xmin, ymin, xmax, ymax``; ``labels`` int64 (n,): the id of the text in the label map, -1 for a
    text that it does not have, and the record's id where there is no text; ``image_id`` int, the
    element's number; ``area`` float32 (n,), pixels: the record's, or else the box's; ``iscrowd``
    int64 (n,), 0 or 1; ``source_id`` and ``filename`` str, empty where the record has none. Images
    with labels and without boxes have ``image_labels`` int64 (n,), too. If a layout has a record
    for each object, so has this dataset.

    Making it walks over the record headers of plain shards; compressed ones are read, and are
    written to temporary files when their first record is asked for.

    Args:
        source: a file, a folder, a glob, or a list of them; shards in zips too.
        label_map: a label map, its path, or the name of one that tfod ships; None takes the one
            next to the shards, if there is one.
        field_mapping: the keys of the records; None for those of the layout that fits best.
        transform: called with image and target; what it returns is the element.

    Raises:
        ShardsNotFoundError, LabelMapError: when made: no shard, or no plain label map.
        TfodError: when made: a folder with several subsets, or records of an unknown layout.
        ShardError: a shard is damaged.
        RecordError: a record is no sound Example, or its image is missing or cannot be decoded.
    """

    def __init__(
        self,
        source: Sources,
        *,
        label_map: LabelMapLike | None = None,
        field_mapping: FieldMapping | None = None,
        transform: Callable[[Any, dict[str, Any]], Any] | None = None,
    ) -> None:
        shards = shards_to_read(source, field_mapping=field_mapping)
        self._label_map = label_map_for(shards, label_map)
        self._mapping = field_mapping_for(shards)
        self._transform = transform
        self._shards = [RecordIndex(path) for path in shards.paths]
        self._ends = list(itertools.accumulate(map(len, self._shards)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, number: int) -> Any:
        record = self._record(number)
        detection = Rows(record, self._mapping)[0]
        pixels = _decode(detection.encoded, record)
        height, width = pixels.shape[:2]
        boxes = torch.from_numpy(detection.boxes * np.array([width, height] * 2, np.float32))
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        for place, area in enumerate(detection.attributes.get("area", ())):
            if isinstance(area, (int, float)):
                areas[place] = area
        crowds = detection.attributes.get("is_crowd") or [0] * len(boxes)
        image = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
        target = {
            "boxes": boxes,
            "labels": torch.tensor(self._labels(detection, record), dtype=torch.int64),
            "image_id": number % len(self),
            "area": areas,
            "iscrowd": torch.tensor([int(bool(one)) for one in crowds], dtype=torch.int64),
            "source_id": detection.source_id or "",
            "filename": detection.filename or "",
        }
        if not self._mapping.box:
            labels = [self._image_label(label, record) for label in detection.image_labels]
            target["image_labels"] = torch.tensor(labels, dtype=torch.int64)
        return (image, target) if self._transform is None else self._transform(image, target)

    def detection(self, number: int) -> Detection:
        """What a record holds, with masks, keypoints and attributes; the image not decoded."""
        return Rows(self._record(number), self._mapping)[0]

    def _record(self, number: int) -> ExampleBatch:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        shard = int(np.searchsorted(self._ends, number, side="right"))
        index = self._shards[shard]
        place = number - self._ends[shard] + len(index)
        payload = bytearray(index[place])
        record = Record(place, index.span(place).offset - HEADER_BYTES, payload, 0, len(payload))
        return ExampleBatch.of(RecordBatch.of(record, index.path))

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
        for place, text in enumerate(texts):
            if text:
                ids[place] = max(self._label_map.find_ids(text), default=UNKNOWN)
            elif ids[place] == 0 and self._label_map.find_id(0) is None:
                # Datumaro writes 0 and an empty text for an object without a class.
                ids[place] = UNKNOWN
        return ids

    def _no_label_map(self, record: ExampleBatch, key: str) -> RecordError:
        cause = "is all there is of classes, and there is not a label map"
        feature = map_key(self._mapping, key)
        return record.error(0, cause, feature=feature, fix="choose one by label_map=")


def collate(batch: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
    """Make a batch a tuple of images and a tuple of targets, as torchvision's models take it."""
    return tuple(zip(*batch, strict=True))


def _decode(encoded: bytes | memoryview | None, record: ExampleBatch) -> Any:
    """The pixels of an image file, uint8 of shape (height, width, 3)."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise TfodError(f"decoding images needs Pillow; {how_to_install('torch')}") from None
    if not encoded:
        fix = "export the shard with its images"
        raise record.error(0, "is missing or empty", feature=keys.ENCODED, fix=fix)
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            if not image.mode.startswith("I"):
                return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
            # 16 bits, of which Pillow would cut off values at 255; TensorFlow takes the high 8.
            high = np.asarray(image).astype(np.int64) >> 8
            return np.repeat(high.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)
    except MemoryError:
        raise  # that says nothing of the image
    except Exception as error:  # of any kind: Pillow's readers do not foresee all damage
        cause = f"cannot be decoded ({' '.join(str(error).split())[:200]})"
        fix = "see tfod check --decode all"
        raise record.error(0, cause, feature=keys.ENCODED, fix=fix) from None
