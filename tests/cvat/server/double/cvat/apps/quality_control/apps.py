"""The app ``quality_control``.

Fact: up to 2.67 its signals, imported when Django is ready, import the registry of formats, and
with it Datumaro. Since 2.68 they do not.
"""

from __future__ import annotations

from django.apps import AppConfig

import cvat


class QualityControlConfig(AppConfig):
    name = "cvat.apps.quality_control"

    def ready(self) -> None:
        if not cvat.IS_NEW:
            from cvat.apps.quality_control import signals

            assert signals.dm_env
