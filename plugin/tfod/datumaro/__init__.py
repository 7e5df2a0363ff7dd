"""TFRecord formats for Datumaro without TensorFlow: Datumaro's own two, and two for recipes.

May import ``formats``, ``detection``, ``example`` and ``tfrecord``; from ``checker`` only the
profile of an import and the wording of its warnings.

The classes have their names in both lines of Datumaro, so that only imports need to change::

    from tfod.datumaro import TfDetectionApiImporter, TfDetectionApiExporter

They are loaded on demand, since the activation on install imports this package early.
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
"""The classes that Datumaro registers, and their modules."""
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
