"""The configuration of gunicorn: ``gunicorn --config python:tfod_validator.gunicorn_config``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from tfod_validator import logs
from tfod_validator.processes import DRAIN_SECONDS, GREETING, LISTENER, follow_parent
from tfod_validator.settings import Settings

_settings = Settings.from_environment()
_draining = threading.Event()

wsgi_app = "tfod_validator.gunicorn_config:make_app()"
bind = [f"fd://{os.environ[LISTENER]}"]
workers = _settings.web
worker_class = "gthread"
threads = _settings.threads
worker_connections = 1000
keepalive = 75
graceful_timeout = DRAIN_SECONDS
limit_request_field_size = 16_380
secure_scheme_headers: dict[str, str] = {}  # the app looks at X-Forwarded-* if it is told to
control_socket_disable = True
logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "tfod_validator.logs.JsonFormatter"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"level": "INFO", "handlers": ["console"]},
    "loggers": {"gunicorn.error": {"level": "ERROR", "propagate": True, "handlers": []}},
}


def make_app() -> Any:
    """The app of a web process."""
    from tfod_validator.app import create_app

    return create_app(_settings, _draining)


def when_ready(_: Any) -> None:
    """The port is open, and no web process runs yet."""
    follow_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))


def post_fork(_: Any, __: Any) -> None:
    """A web process has begun."""
    logs.configure()


def post_worker_init(worker: Any) -> None:
    """A web process is ready."""
    stop = signal.getsignal(signal.SIGTERM)

    def drain(number: int, frame: Any) -> None:
        _draining.set()  # long answers end
        if callable(stop):
            stop(number, frame)

    signal.signal(signal.SIGTERM, drain)
    if worker.age == 1:
        print(os.environ[GREETING], file=sys.stderr, flush=True)
