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


def format_exception_chain(error: BaseException) -> str:
    """All messages from the error down to its first cause, in one text (new servers)."""
    messages: list[str] = []
    current: BaseException | None = error
    while current is not None:
        text = str(current).strip()
        if text and all(text not in one for one in messages):
            messages.append(text)
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
    return ": ".join(messages) or type(error).__name__
