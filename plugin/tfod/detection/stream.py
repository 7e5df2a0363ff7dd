"""Walks over many shards at once: a file, a folder or a glob, as Examples or as Detections."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tfod.detection.detection import Detection
from tfod.detection.detection_decoder import decode_detection
from tfod.example.example import Example
from tfod.tfrecord.records import read_records
from tfod.tfrecord.shard_sources import find_all_shards


def read_examples(source: str | os.PathLike[str]) -> Iterator[Example]:
    """Every record of the shards that a file, a folder or a glob means, as an Example.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: a shard is damaged; the records before the damage have been handed out.
        RecordError: a record is no Example.
    """
    for shard_set in find_all_shards(source):
        for path in shard_set.paths:
            for record in read_records(path):
                yield Example(record, path)


def read_detections(source: str | os.PathLike[str]) -> Iterator[Detection]:
    """The same as Detections: pictures with boxes, classes, masks and attributes.

    Raises:
        RecordError: a feature has the wrong kind, or the lists of an object differ in length.
        ShardsNotFoundError, ShardError: as :func:`read_examples`.
    """
    for example in read_examples(source):
        yield decode_detection(example)
