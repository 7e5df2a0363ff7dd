"""The error classes of ``bindings`` (the double keeps that module short).

Fact: they name ``bindings`` as their module, by which old servers recognise the text of a
``CvatImportError`` in a traceback.
"""

from __future__ import annotations

_HOME = "cvat.apps.dataset_manager.bindings"


class CvatImportError(Exception):
    __module__ = _HOME


class CvatExportError(Exception):
    """Since 2.41."""

    __module__ = _HOME
