"""TFRecord formats for Datumaro without TensorFlow: its own two, and others of the field.

The names are those of Datumaro's own modules, of both its lines, so that code which imports them
moves by changing the import::

    from tfod.datumaro import TfDetectionApiImporter, TfDetectionApiExporter

They are loaded when they are asked for: the activation on install imports this package early.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "TfDetectionApiBase": ("reader", "TfDetectionApiBase"),
    "TfDetectionApiExtractor": ("reader", "TfDetectionApiBase"),
    "TfDetectionApiImporter": ("importer", "TfDetectionApiImporter"),
    "TfDetectionApiExporter": ("exporter", "TfDetectionApiExporter"),
    "TfDetectionApiConverter": ("exporter", "TfDetectionApiExporter"),
    "RoboflowTfrecordBase": ("importer", "RoboflowTfrecordBase"),
    "RoboflowTfrecordImporter": ("importer", "RoboflowTfrecordImporter"),
    "KerasCocoBase": ("keras_coco", "KerasCocoBase"),
    "KerasCocoImporter": ("keras_coco", "KerasCocoImporter"),
    "KerasCocoExporter": ("keras_coco", "KerasCocoExporter"),
    "ImageClassificationBase": ("classification", "ImageClassificationBase"),
    "ImageClassificationImporter": ("classification", "ImageClassificationImporter"),
    "ImageClassificationExporter": ("classification", "ImageClassificationExporter"),
    "TfDetectionCsvBase": ("csv_format", "TfDetectionCsvBase"),
    "TfDetectionCsvImporter": ("csv_format", "TfDetectionCsvImporter"),
    "TfDetectionCsvExporter": ("csv_format", "TfDetectionCsvExporter"),
    "activate": ("activation", "activate"),
    "register": ("activation", "register"),
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _MODULES[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
