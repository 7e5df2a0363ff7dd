"""Django settings of a server, as few as Django asks for.

Facts: the apps are a list named INSTALLED_APPS that a settings module of ours may append to;
``cvat.apps.quality_control`` comes after ``dataset_manager`` and ``engine``.
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
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        # A file, where another connection is to see it.
        "NAME": os.environ.get("CVAT_DOUBLE_DATABASE", ":memory:"),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = True
TIME_ZONE = None  # or Django would change the time zone of all tests of the process
CVAT_DOCS_URL = "https://docs.cvat.ai/docs"
CVAT_LOG_IMPORT_ERRORS = False
