"""Records that hold one object each: those of one image become one image again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.example.example_batch import ExampleBatch
from tfod.formats.options import ConversionProblems
from tfod.sources.reading import ReadableShards
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import ShardSet

_OTHER_IMAGES = (
    "records with another image than an earlier record of the same image number, whose image was "
    "taken"
)


class ImagesOfRecords:
    """The images of a subset whose records share an image number, wherever the records are.

    The objects are read once before the images, without their bytes: some 600 bytes per object.
    """

    def __init__(self, shard_set: ShardSet, shards: ReadableShards) -> None:
        self._shard_set = shard_set
        self._shards = shards
        self._lengths: dict[int | str, int] = {}

    @cached_property
    def _objects(self) -> dict[int | str, list[Detection]]:
        """The records of each image, without the image."""
        objects = defaultdict[int | str, list[Detection]](list)
        for path in self._shard_set.paths:
            mapping = self._shards.field_mapping(path)
            for records in read_record_batches(path):
                found = Detections(ExampleBatch.of(records), mapping)
                for image_id, record in zip(found.image_ids, found, strict=True):
                    if image_id is not None:
                        objects[image_id].append(replace(record, encoded=None))
        return objects

    def join(self, found: Detections, problems: ConversionProblems) -> list[Detection]:
        """Return the images whose first record is in a batch, with the objects of all records."""
        images = []
        for image_id, record in zip(found.image_ids, found, strict=True):
            length = len(record.encoded or b"")
            if image_id is None:
                images.append(record)
            elif image_id not in self._lengths:
                self._lengths[image_id] = length
                images.append(_joined(record, self._objects[image_id]))
            elif self._lengths[image_id] != length:
                problems.add(_OTHER_IMAGES, f"image {image_id}")
        return images


def _joined(first: Detection, records: Sequence[Detection]) -> Detection:
    if len(records) == 1:
        return first
    names = dict.fromkeys(name for record in records for name in record.attributes)
    return replace(
        first,
        boxes=np.concatenate([record.boxes for record in records]),
        class_text=_values([record.class_text for record in records], records),
        class_label=_values([record.class_label for record in records], records),
        attributes={
            name: _values([record.attributes.get(name) for record in records], records) or []
            for name in names
        },
    )


def _values(
    lists: Sequence[Sequence[Any] | None], records: Sequence[Detection]
) -> list[Any] | None:
    """The values of all objects, None for an object without one; None if no object has a value."""
    if all(values is None for values in lists):
        return None
    return [
        value
        for values, record in zip(lists, records, strict=True)
        for value in (values if values is not None else [None] * len(record.boxes))
    ]
