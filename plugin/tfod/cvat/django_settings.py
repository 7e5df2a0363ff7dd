"""CVAT's own settings and our app: what ``DJANGO_SETTINGS_MODULE`` names.

The settings are those of the module that ``TFOD_CVAT_BASE_SETTINGS`` names, which is
``cvat.settings.production`` unless it is set.
"""

from __future__ import annotations

import importlib
import os

_base = importlib.import_module(
    os.environ.get("TFOD_CVAT_BASE_SETTINGS") or "cvat.settings.production"
)
globals().update({name: value for name, value in vars(_base).items() if name.isupper()})
INSTALLED_APPS = [*_base.INSTALLED_APPS, "tfod.cvat"]

# CVAT shows what its own loggers say from DEBUG on; of ours, what was exported and what was lost.
_logging = getattr(_base, "LOGGING", {"version": 1})
LOGGING = {**_logging, "loggers": {**_logging.get("loggers", {}), "tfod": {"level": "INFO"}}}
