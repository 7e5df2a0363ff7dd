"""The Django app, which adds our formats when CVAT loads its registry of formats."""

from __future__ import annotations

import logging
import sys
from types import ModuleType

from _tfod_import_hook import when_imported
from django.apps import AppConfig

REGISTRY = "cvat.apps.dataset_manager.formats.registry"
_log = logging.getLogger("tfod.cvat")


class TfodConfig(AppConfig):
    """The configuration of the app; imports only this module until CVAT loads its formats."""

    name = "tfod.cvat"
    label = "tfod_cvat"
    verbose_name = "TFRecord for CVAT"

    def ready(self) -> None:
        """Register our formats when CVAT loads its own: on demand since 2.68, at start before."""
        registry = sys.modules.get(REGISTRY)
        if registry is None:
            when_imported(REGISTRY, _register)
        else:
            _register(registry)


def _register(registry: ModuleType) -> None:
    try:
        from tfod.cvat.server import register

        register(registry)
    except Exception:  # CVAT has to start even without our formats
        _log.exception("tfod failed to add its formats to CVAT, which continues without them")
