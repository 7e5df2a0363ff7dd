"""The settings that Django requires.

Facts: INSTALLED_APPS is a list that our settings extend; ``cvat.apps.quality_control`` is after
``dataset_manager`` and ``engine``.
"""

from __future__ import annotations

import os

SECRET_KEY = "of the double"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "cvat.apps.dataset_manager",
    "cvat.apps.engine",
    "cvat.apps.quality_control",
]
# A file, if another connection uses the database.
_NAME = os.environ.get("CVAT_DOUBLE_DATABASE", ":memory:")
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _NAME}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = True
TIME_ZONE = None  # or Django would change the time zone of all tests of the process
CVAT_DOCS_URL = "https://docs.cvat.ai/docs"
CVAT_LOG_IMPORT_ERRORS = False
