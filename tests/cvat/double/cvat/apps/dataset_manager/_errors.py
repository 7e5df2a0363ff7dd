"""The error classes of ``bindings`` (the double keeps that module short).

Facts: they name ``bindings`` as their module, by which old servers recognise the text of a
``CvatImportError`` in a traceback; ``CvatDatasetNotFoundError`` is a subclass that they do not.
"""

from __future__ import annotations

from django.conf import settings

_HOME = "cvat.apps.dataset_manager.bindings"


class CvatImportError(Exception):
    __module__ = _HOME


class CvatExportError(Exception):
    """Since 2.41."""

    __module__ = _HOME


class CvatDatasetNotFoundError(CvatImportError):
    __module__ = _HOME

    def __init__(self, message: str = "", reason: object = "", format_name: str = "") -> None:
        super().__init__(message, reason, format_name)
        self.message, self.reason, self.format_name = message, reason, format_name

    def __str__(self) -> str:
        name = self.format_name.replace("_", "-")
        address = f"{settings.CVAT_DOCS_URL}/manual/advanced/formats/format-{name}"
        return f"Check [format docs]({address}). {self.message.partition(':')[2]}"
