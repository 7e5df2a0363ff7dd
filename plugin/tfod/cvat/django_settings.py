"""CVAT's Django settings, by default ``cvat.settings.production``, with our app added."""

from __future__ import annotations

import importlib
import os

_name = os.environ.get("TFOD_CVAT_BASE_SETTINGS") or "cvat.settings.production"
_base = importlib.import_module(_name)
globals().update({name: value for name, value in vars(_base).items() if name.isupper()})
INSTALLED_APPS = [*_base.INSTALLED_APPS, "tfod.cvat"]

# Only CVAT's own loggers are configured. Ours reports the summary and the losses of an export.
_logging = getattr(_base, "LOGGING", {"version": 1})
LOGGING = {**_logging, "loggers": {**_logging.get("loggers", {}), "tfod": {"level": "INFO"}}}
