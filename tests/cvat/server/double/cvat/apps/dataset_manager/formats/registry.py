"""The registry of formats.

Facts: a function becomes a class whose instance is called; ``dimension`` and ``enabled`` are
class attributes; the same name twice is an AssertionError; the formats are imported by the last
lines, so a hook that waits for this module may run before it is complete. A new server unwraps a
``CvatExportError`` that Datumaro's exporter had made an ``AnnotationExportError`` of.
"""

from __future__ import annotations

import inspect
from typing import Any

from datumaro.components.environment import Environment
from datumaro.components.errors import AnnotationExportError

import cvat
from cvat.apps.dataset_manager import bindings
from cvat.apps.engine.models import DimensionType

dm_env = Environment()


class _Format:
    NAME = EXT = VERSION = ""
    DISPLAY_NAME = "{NAME} {VERSION}"
    ENABLED = True
    DIMENSION = DimensionType.DIM_2D


class Exporter(_Format):
    pass


class Importer(_Format):
    pass


def _register(formats: dict[str, Any], base: type, details: dict[str, Any], format_: Any) -> Any:
    target = format_ if inspect.isclass(format_) else _as_class(format_, base)
    name, version, ext = (details[key] for key in ("name", "version", "ext"))
    shown = details["display_name"] or base.DISPLAY_NAME
    target.NAME, target.VERSION, target.EXT = name, version, ext
    target.DISPLAY_NAME = shown.format(NAME=name, VERSION=version, EXT=ext)
    target.ENABLED, target.DIMENSION = details["enabled"], details["dimension"]
    assert all((name, version, ext, target.DISPLAY_NAME))
    assert target.DISPLAY_NAME not in formats, f"Format '{name}' already registered"
    formats[target.DISPLAY_NAME] = target
    return target


def _as_class(function: Any, base: Any) -> Any:
    assert inspect.isfunction(function)

    class Wrapper(base):
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


def _registering(formats: dict[str, Any], base: type) -> Any:
    def register(
        name: str,
        version: str,
        ext: str,
        display_name: str | None = None,
        enabled: bool = True,
        dimension: DimensionType = DimensionType.DIM_2D,
    ) -> Any:
        details = dict(locals())
        return lambda format_: _register(formats, base, details, format_)

    return register


exporter = _registering(EXPORT_FORMATS, Exporter)
importer = _registering(IMPORT_FORMATS, Importer)


def make_importer(name: str) -> Any:
    return IMPORT_FORMATS[name]()


def make_exporter(name: str) -> Any:
    return EXPORT_FORMATS[name]()


# The server's own formats, which import this module in turn.
import cvat.apps.dataset_manager.formats.coco  # noqa: E402
