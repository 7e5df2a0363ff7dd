"""TFRecord shards of the TF Object Detection API, read, written and checked without TensorFlow.

Example::

    import tfod

    print(tfod.check("train.record").valid)
    for detection in tfod.read_detections("train.record-*"):
        print(detection.filename, detection.boxes, detection.class_text)

See ``docs/library.md``. Names are imported on first use, so that importing tfod is fast.
"""

from __future__ import annotations

import importlib

from tfod.version import __version__ as __version__

_NAMES = {
    "tfod.checker.finding": "Finding Severity",
    "tfod.checker.report": "Report",
    "tfod.detection.detection": "Detection ImageLabel Keypoints PngMask ShapeDetails",
    "tfod.detection.detections": "Detections",
    "tfod.detection.encoder": "encode_detection",
    "tfod.detection.labels.label_map": "LabelMap LabelMapItem load_label_map "
    "packaged_label_maps parse_label_map read_label_map",
    "tfod.detection.losses": "Loss",
    "tfod.errors": "LabelMapError RecordError ShardError ShardsNotFoundError TfodError",
    "tfod.example.example": "Example bytes_feature encode_example float_feature int64_feature",
    "tfod.example.example_batch": "Column ExampleBatch",
    "tfod.example.wire": "Kind",
    "tfod.formats.dataset": "ConversionResult",
    "tfod.functions": "check convert describe diff",
    "tfod.shards.describe": "Description",
    "tfod.shards.diff": "Diff Difference",
    "tfod.sources.reading": "decode_detection find_label_map read_batches read_detections "
    "read_examples",
    "tfod.tfrecord.compression": "Compression",
    "tfod.tfrecord.reader": "Record read_record_stream read_records",
    "tfod.tfrecord.record_index": "ByteSpan RecordIndex",
    "tfod.tfrecord.shard_sets.search": "ShardSet find_shards",
    "tfod.tfrecord.storage.publishing": "WriteError",
    "tfod.tfrecord.writer": "RecordWriter ShardSetWriter write_records",
}
"""The public names in each module; ``__init__.pyi`` has them for type checkers."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted((*_MODULES, "__version__"))


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the public names only, without submodules that were imported."""
    return __all__
