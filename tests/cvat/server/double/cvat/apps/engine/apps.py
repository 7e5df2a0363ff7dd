"""The app ``engine``; it does nothing at start-up that a format could notice."""

from __future__ import annotations

from django.apps import AppConfig


class EngineConfig(AppConfig):
    name = "cvat.apps.engine"
