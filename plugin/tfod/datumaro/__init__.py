"""TFRecord formats for Datumaro without TensorFlow: its own two, and those of two recipes.

Shards become Datumaro's datasets, and datasets become shards. May import ``formats``,
``detection``, ``example`` and ``tfrecord``; from ``checker`` come the profile of an import and
the wording of its warnings.

The names are those of Datumaro's own modules, of both its lines, so that code which imports them
moves by changing the import::

    from tfod.datumaro import TfDetectionApiImporter, TfDetectionApiExporter

They are loaded when they are asked for: the activation on install imports this package early.
"""

from __future__ import annotations

import importlib
from typing import Any

PLUGINS = {
    "TfDetectionApiBase": "dataset_base",
    "TfDetectionApiImporter": "importer",
    "TfDetectionApiExporter": "formats.tf_detection_api",
    "RoboflowTfrecordBase": "dataset_base",
    "RoboflowTfrecordImporter": "importer",
    "KerasCocoBase": "formats.recipes",
    "KerasCocoImporter": "importer",
    "KerasCocoExporter": "formats.recipes",
    "ImageClassificationBase": "formats.recipes",
    "ImageClassificationImporter": "importer",
    "ImageClassificationExporter": "formats.recipes",
}
"""The classes that Datumaro registers, and the modules that they are in."""
_FUNCTIONS = {"activate": "activation", "register": "activation"}
_NAMES_OF_OLD_LINE = {
    "TfDetectionApiExtractor": "TfDetectionApiBase",
    "TfDetectionApiConverter": "TfDetectionApiExporter",
}
_MODULES = {**PLUGINS, **_FUNCTIONS}
__all__ = sorted([*_MODULES, *_NAMES_OF_OLD_LINE])


def __getattr__(name: str) -> Any:
    name = _NAMES_OF_OLD_LINE.get(name, name)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
