"""TFRecord shards of the TF Object Detection API, read and written without TensorFlow.

Example::

    import tfod

    for detection in tfod.read_detections("train.record-*"):
        print(detection.filename, detection.boxes, detection.class_text)

See ``docs/library.md``. Names are imported on first use, so that importing tfod is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfod.version import __version__ as __version__

if TYPE_CHECKING:
    from tfod.detection.detection import Detection as Detection
    from tfod.detection.detection import ImageLabel as ImageLabel
    from tfod.detection.detection import Keypoints as Keypoints
    from tfod.detection.detection import PngMask as PngMask
    from tfod.detection.detection import ShapeDetails as ShapeDetails
    from tfod.detection.detections import Detections as Detections
    from tfod.detection.encoder import encode_detection as encode_detection
    from tfod.detection.labels.label_map import LabelMap as LabelMap
    from tfod.detection.labels.label_map import LabelMapItem as LabelMapItem
    from tfod.detection.labels.label_map import load_label_map as load_label_map
    from tfod.detection.labels.label_map import packaged_label_maps as packaged_label_maps
    from tfod.detection.labels.label_map import parse_label_map as parse_label_map
    from tfod.detection.labels.label_map import read_label_map as read_label_map
    from tfod.errors import LabelMapError as LabelMapError
    from tfod.errors import RecordError as RecordError
    from tfod.errors import ShardError as ShardError
    from tfod.errors import ShardsNotFoundError as ShardsNotFoundError
    from tfod.errors import TfodError as TfodError
    from tfod.example.example import Example as Example
    from tfod.example.example import bytes_feature as bytes_feature
    from tfod.example.example import encode_example as encode_example
    from tfod.example.example import float_feature as float_feature
    from tfod.example.example import int64_feature as int64_feature
    from tfod.example.example_batch import Column as Column
    from tfod.example.example_batch import ExampleBatch as ExampleBatch
    from tfod.example.wire import Kind as Kind
    from tfod.sources.reading import decode_detection as decode_detection
    from tfod.sources.reading import find_label_map as find_label_map
    from tfod.sources.reading import read_batches as read_batches
    from tfod.sources.reading import read_detections as read_detections
    from tfod.sources.reading import read_examples as read_examples
    from tfod.tfrecord.compression import Compression as Compression
    from tfod.tfrecord.reader import Record as Record
    from tfod.tfrecord.reader import read_record_stream as read_record_stream
    from tfod.tfrecord.reader import read_records as read_records
    from tfod.tfrecord.record_index import ByteSpan as ByteSpan
    from tfod.tfrecord.record_index import RecordIndex as RecordIndex
    from tfod.tfrecord.shard_sets.search import ShardSet as ShardSet
    from tfod.tfrecord.shard_sets.search import find_shards as find_shards
    from tfod.tfrecord.storage.publishing import WriteError as WriteError
    from tfod.tfrecord.writer import RecordWriter as RecordWriter
    from tfod.tfrecord.writer import ShardSetWriter as ShardSetWriter
    from tfod.tfrecord.writer import write_records as write_records

_NAMES = {
    "tfod.detection.detection": "Detection ImageLabel Keypoints PngMask ShapeDetails",
    "tfod.detection.detections": "Detections",
    "tfod.detection.encoder": "encode_detection",
    "tfod.detection.labels.label_map": "LabelMap LabelMapItem load_label_map packaged_label_maps "
    "parse_label_map read_label_map",
    "tfod.sources.reading": "decode_detection find_label_map read_batches read_detections "
    "read_examples",
    "tfod.errors": "LabelMapError RecordError ShardError ShardsNotFoundError TfodError",
    "tfod.example.example_batch": "Column ExampleBatch",
    "tfod.example.example": "Example bytes_feature encode_example float_feature int64_feature",
    "tfod.example.wire": "Kind",
    "tfod.tfrecord.compression": "Compression",
    "tfod.tfrecord.reader": "Record read_record_stream read_records",
    "tfod.tfrecord.record_index": "ByteSpan RecordIndex",
    "tfod.tfrecord.shard_sets.search": "ShardSet find_shards",
    "tfod.tfrecord.storage.publishing": "WriteError",
    "tfod.tfrecord.writer": "RecordWriter ShardSetWriter write_records",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted((*_MODULE_OF, "__version__"))


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
