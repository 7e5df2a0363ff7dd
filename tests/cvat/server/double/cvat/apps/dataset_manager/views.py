"""What ``/api/server/annotation/formats`` answers.

Fact: a new server imports the registry when it is first asked.
"""

from __future__ import annotations

from typing import Any


def get_export_formats() -> list[Any]:
    from cvat.apps.dataset_manager.formats.registry import EXPORT_FORMATS

    return list(EXPORT_FORMATS.values())


def get_import_formats() -> list[Any]:
    from cvat.apps.dataset_manager.formats.registry import IMPORT_FORMATS

    return list(IMPORT_FORMATS.values())
