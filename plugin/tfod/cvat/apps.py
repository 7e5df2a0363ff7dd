"""The Django app: waits until CVAT loads its registry of formats, and then adds ours."""

from __future__ import annotations

import logging
import sys
from types import ModuleType

from _tfod_import_hook import when_imported
from django.apps import AppConfig

REGISTRY = "cvat.apps.dataset_manager.formats.registry"
_log = logging.getLogger("tfod.cvat")


class TfodConfig(AppConfig):
    """Loads nothing but this module until CVAT itself needs its formats."""

    name = "tfod.cvat"
    label = "tfod_cvat"
    verbose_name = "TFRecord for CVAT"

    def ready(self) -> None:
        """Register our formats now, or as soon as CVAT has loaded its own.

        CVAT loads its registry on demand since 2.68, and with the server before.
        """
        registry = sys.modules.get(REGISTRY)
        if registry is None:
            when_imported(REGISTRY, _register)
        else:
            _register(registry)


def _register(registry: ModuleType) -> None:
    """A CVAT without our formats is better than no CVAT."""
    try:
        from tfod.cvat.server import register

        register(registry)
    except Exception:
        _log.exception("tfod could not add its formats to CVAT, which goes on without them")
