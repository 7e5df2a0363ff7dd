"""The answers of ``/api/server/annotation/formats``.

Fact: the first request imports the registry of a new server.
"""

from __future__ import annotations

from typing import Any


def get_export_formats() -> list[Any]:
    from cvat.apps.dataset_manager.formats.registry import EXPORT_FORMATS

    return list(EXPORT_FORMATS.values())


def get_import_formats() -> list[Any]:
    from cvat.apps.dataset_manager.formats.registry import IMPORT_FORMATS

    return list(IMPORT_FORMATS.values())
