"""tfod: the TF Object Detection API's TFRecord shards, read and written without TensorFlow.

The library in one look::

    import tfod

    for detection in tfod.read_detections("train.record-*"):
        print(detection.filename, detection.boxes, detection.class_text)

See ``docs/library.md``. Importing this package loads nothing else: its names are loaded when they
are first used, so that a process that may never need them, of a CVAT server say, pays nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.detection.detection import Detection, ImageLabel, Keypoints, PngMask
    from tfod.detection.detections import Detections
    from tfod.detection.encoder import encode_detection
    from tfod.detection.labels.label_map import (
        LabelMap,
        LabelMapItem,
        load_label_map,
        packaged_label_maps,
        parse_label_map,
        read_label_map,
    )
    from tfod.detection.stream import (
        decode_detection,
        read_batches,
        read_detections,
        read_examples,
    )
    from tfod.errors import (
        LabelMapError,
        RecordError,
        ShardError,
        ShardsNotFoundError,
        TfodError,
    )
    from tfod.example.columns import Column, ExampleBatch
    from tfod.example.example import (
        Example,
        bytes_feature,
        encode_example,
        float_feature,
        int64_feature,
    )
    from tfod.example.wire import Kind
    from tfod.tfrecord.compression import Compression
    from tfod.tfrecord.label_files import find_label_map
    from tfod.tfrecord.reader import Record, read_record_stream, read_records
    from tfod.tfrecord.record_index import ByteSpan, RecordIndex
    from tfod.tfrecord.shard_search import ShardSet, find_shards
    from tfod.tfrecord.storage.publishing import WriteError
    from tfod.tfrecord.writer import RecordWriter, ShardSetWriter, write_records

__all__ = [
    "ByteSpan",
    "Column",
    "Compression",
    "Detection",
    "Detections",
    "Example",
    "ExampleBatch",
    "ImageLabel",
    "Keypoints",
    "Kind",
    "LabelMap",
    "LabelMapError",
    "LabelMapItem",
    "PngMask",
    "Record",
    "RecordError",
    "RecordIndex",
    "RecordWriter",
    "ShardError",
    "ShardSet",
    "ShardSetWriter",
    "ShardsNotFoundError",
    "TfodError",
    "WriteError",
    "__version__",
    "bytes_feature",
    "decode_detection",
    "encode_detection",
    "encode_example",
    "find_label_map",
    "find_shards",
    "float_feature",
    "int64_feature",
    "load_label_map",
    "packaged_label_maps",
    "parse_label_map",
    "read_batches",
    "read_detections",
    "read_examples",
    "read_label_map",
    "read_record_stream",
    "read_records",
    "write_records",
]

_NAMES_OF_MODULES = {
    "tfod.tfrecord.compression": ("Compression",),
    "tfod.detection.detections": ("Detections",),
    "tfod.detection.detection": ("Detection", "ImageLabel", "Keypoints", "PngMask"),
    "tfod.detection.encoder": ("encode_detection",),
    "tfod.errors": (
        "LabelMapError",
        "RecordError",
        "ShardError",
        "ShardsNotFoundError",
        "TfodError",
    ),
    "tfod.example.columns": ("Column", "ExampleBatch"),
    "tfod.example.example": (
        "Example",
        "bytes_feature",
        "encode_example",
        "float_feature",
        "int64_feature",
    ),
    "tfod.detection.labels.label_map": (
        "LabelMap",
        "LabelMapItem",
        "load_label_map",
        "packaged_label_maps",
        "parse_label_map",
        "read_label_map",
    ),
    "tfod.tfrecord.label_files": ("find_label_map",),
    "tfod.tfrecord.storage.publishing": ("WriteError",),
    "tfod.tfrecord.reader": ("Record", "read_record_stream", "read_records"),
    "tfod.tfrecord.record_index": ("ByteSpan", "RecordIndex"),
    "tfod.tfrecord.shard_search": ("ShardSet", "find_shards"),
    "tfod.detection.stream": (
        "decode_detection",
        "read_batches",
        "read_detections",
        "read_examples",
    ),
    "tfod.example.wire": ("Kind",),
    "tfod.tfrecord.writer": ("RecordWriter", "ShardSetWriter", "write_records"),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
