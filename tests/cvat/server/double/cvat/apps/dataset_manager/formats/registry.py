"""The registry of formats.

Facts: a function becomes a class, and the instance is called; ``dimension`` and ``enabled`` are
class attributes; an existing name is an AssertionError; the last lines import the formats, so a
hook of this module can run before it is complete. A new server raises the ``CvatExportError`` that
is the cause of an ``AnnotationExportError`` of Datumaro.
"""

from __future__ import annotations

from typing import Any

from datumaro.components.environment import Environment
from datumaro.components.errors import AnnotationExportError

import cvat
from cvat.apps.dataset_manager import bindings
from cvat.apps.engine.models import DimensionType

dm_env = Environment()


def _as_class(function: Any) -> Any:
    class Wrapper:
        ENABLED, DIMENSION = True, DimensionType.DIM_2D

        def __call__(self, *args: Any, **kwargs: Any) -> None:
            try:
                function(*args, **kwargs)
            except AnnotationExportError as error:
                cause = error.__cause__
                if cvat.IS_NEW and isinstance(cause, bindings.CvatExportError):
                    raise cause  # noqa: B904
                raise

    Wrapper.__name__, Wrapper.__module__ = function.__name__, function.__module__
    return Wrapper


EXPORT_FORMATS: dict[str, Any] = {}
IMPORT_FORMATS: dict[str, Any] = {}


def _registering(formats: dict[str, Any]) -> Any:
    def register(name: str, version: str, ext: str) -> Any:
        def add(function: Any) -> Any:
            target = _as_class(function)
            target.NAME, target.VERSION, target.EXT = name, version, ext
            target.DISPLAY_NAME = f"{name} {version}"
            assert target.DISPLAY_NAME not in formats, f"Format '{name}' already registered"
            formats[target.DISPLAY_NAME] = target
            return target

        return add

    return register


exporter = _registering(EXPORT_FORMATS)
importer = _registering(IMPORT_FORMATS)


def make_importer(name: str) -> Any:
    return IMPORT_FORMATS[name]()


def make_exporter(name: str) -> Any:
    return EXPORT_FORMATS[name]()


# The formats of the server import this module in turn.
import cvat.apps.dataset_manager.formats.coco  # noqa: E402
