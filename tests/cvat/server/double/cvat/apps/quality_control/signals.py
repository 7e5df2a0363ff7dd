"""What makes old servers import the registry of formats at start-up (its reports need it)."""

from __future__ import annotations

from cvat.apps.dataset_manager.formats.registry import dm_env

__all__ = ["dm_env"]
