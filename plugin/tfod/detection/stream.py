"""Reads many shards: a file, a folder or a glob, as batches of columns, Examples or Detections."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import find_all_shards


def read_batches(source: str | os.PathLike[str]) -> Iterator[ExampleBatch]:
    """Read the shards of a file, a folder, a glob or a URL as batches of columns.

    A batch has consecutive records of one shard, about a thousand or some MB of them.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: a shard is damaged; the records before the damage have been yielded.
    """
    for shard_set in find_all_shards(source):
        for path in shard_set.paths:
            for records in read_record_batches(path):
                yield ExampleBatch.of(records)


def read_examples(source: str | os.PathLike[str]) -> Iterator[Example]:
    """Read the records of a file, a folder, a glob or a URL as Examples.

    Raises:
        RecordError: a record is not an Example.
        ShardsNotFoundError, ShardError: as :func:`read_batches`.
    """
    for batch in read_batches(source):
        yield from Example.rows_of(batch)


def read_detections(source: str | os.PathLike[str]) -> Iterator[Detection]:
    """Read the records as Detections: images with boxes, classes, masks and attributes.

    Raises:
        RecordError: a feature has the wrong kind, or the lists of an object differ in length.
        ShardsNotFoundError, ShardError: as :func:`read_batches`.
    """
    for batch in read_batches(source):
        yield from Detections(batch)


def decode_detection(example: Example) -> Detection:
    """Read one Example as a Detection. Copies no images and no masks.

    Raises:
        RecordError: as :func:`read_detections`.
    """
    return Detections(example.batch)[example.row]
