"""TFRecord shards of the TF Object Detection API, read, written and checked without TensorFlow.

Example::

    import tfod

    print(tfod.check("train.record").valid)
    for detection in tfod.read_detections("train.record-*"):
        print(detection.filename, detection.boxes, detection.class_text)

See ``docs/library.md``. ``__init__.pyi`` lists the names. They are imported on first use, so that
importing tfod is fast.
"""

from __future__ import annotations

import importlib

from tfod.version import __version__ as __version__


def _read_modules() -> dict[str, str]:
    """Return the module of each public name, from the lines ``from MODULE import NAME as NAME``."""
    path = f"{__file__.rpartition('.')[0]}.pyi"
    lines = __loader__.get_data(path).decode().splitlines()  # also in a zip
    words = (line.split() for line in lines if line.startswith("from "))
    return {name: module for _, module, _, name, _, _ in words}


_MODULES = _read_modules()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the public names only, without submodules that were imported."""
    return __all__
