"""The app ``quality_control``.

Fact: up to 2.67, its signals import the registry of formats, and Datumaro, when Django starts.
"""

from __future__ import annotations

from django.apps import AppConfig

import cvat


class QualityControlConfig(AppConfig):
    name = "cvat.apps.quality_control"

    def ready(self) -> None:
        if not cvat.IS_NEW:
            from cvat.apps.dataset_manager.formats import registry

            assert registry.dm_env
