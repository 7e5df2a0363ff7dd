"""Shards with one record per object: records of the same image are joined."""

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

OTHER_IMAGES = (
    "records whose image differs from that of an earlier record with the same image id; the "
    "earlier image was used"
)


class ImagesOfRecords:
    """The images of a subset whose records share an image id. The records may be in any order.

    The objects are read in advance without their images, which takes some 600 bytes per object.
    """

    def __init__(self, shard_set: ShardSet, shards: ReadableShards) -> None:
        self._shard_set = shard_set
        self._shards = shards
        self._lengths: dict[int | str, int] = {}

    @cached_property
    def _records_by_image(self) -> dict[int | str, list[Detection]]:
        records_by_image = defaultdict[int | str, list[Detection]](list)
        for path in self._shard_set.paths:
            mapping = self._shards.field_mapping(path)
            for records in read_record_batches(path):
                detections = Detections(ExampleBatch.of(records), mapping)
                for image_id, record in zip(detections.image_ids, detections, strict=True):
                    if image_id is not None:
                        records_by_image[image_id].append(replace(record, encoded=None))
        return records_by_image

    def join(self, detections: Detections, problems: ConversionProblems) -> list[Detection]:
        """Return the images whose first record is in a batch, with the objects of all records."""
        images = []
        for image_id, record in zip(detections.image_ids, detections, strict=True):
            length = len(record.encoded or b"")
            if image_id is None:
                images.append(record)
            elif image_id not in self._lengths:
                self._lengths[image_id] = length
                images.append(_join_records(record, self._records_by_image[image_id]))
            elif self._lengths[image_id] != length:
                problems.add(OTHER_IMAGES, f"image {image_id}")
        return images


def _join_records(first: Detection, records: Sequence[Detection]) -> Detection:
    if len(records) == 1:
        return first
    names = dict.fromkeys(name for record in records for name in record.attributes)
    return replace(
        first,
        boxes=np.concatenate([record.boxes for record in records]),
        class_text=_join_values([record.class_text for record in records], records),
        class_label=_join_values([record.class_label for record in records], records),
        attributes={
            name: _join_values([record.attributes.get(name) for record in records], records) or []
            for name in names
        },
    )


def _join_values(
    lists: Sequence[Sequence[Any] | None], records: Sequence[Detection]
) -> list[Any] | None:
    """Return the values of all objects, or None if no object has a value."""
    if all(values is None for values in lists):
        return None
    return [
        value
        for values, record in zip(lists, records, strict=True)
        for value in (values if values is not None else [None] * len(record.boxes))
    ]
