"""The app ``dataset_manager``; by itself it imports no format."""

from __future__ import annotations

from django.apps import AppConfig


class DatasetManagerConfig(AppConfig):
    name = "cvat.apps.dataset_manager"
