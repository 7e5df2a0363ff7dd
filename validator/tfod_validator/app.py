"""The Flask application, and gunicorn, which serves it."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import time
from typing import Any

from flask import Flask, Response, g, request
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped, unused-ignore]

from tfod_validator import api, errors, pages, security
from tfod_validator.serve import monitoring
from tfod_validator.serve.processes import DRAIN_SECONDS, GREETING, LISTENER, follow_parent
from tfod_validator.service import Service
from tfod_validator.settings import Settings

_access = logging.getLogger("tfod.access")
_MAX_FORM_BYTES = 64 << 10
_MAX_FORM_PARTS = 20
"""Of forms without files; those with files are read by uploads.py."""


def create_app(settings: Settings) -> Flask:
    """The application, with its tables created; ``app.extensions["tfod"]`` is the `Service`."""
    app = api.make_app()
    app.extensions["tfod"] = Service(settings)
    app.config.update(
        MAX_CONTENT_LENGTH=settings.limits.max_body_bytes,
        MAX_FORM_MEMORY_SIZE=_MAX_FORM_BYTES,
        MAX_FORM_PARTS=_MAX_FORM_PARTS,
    )
    app.before_request(_begin)
    app.after_request(_note)
    security.register(app, settings)
    errors.register(app)
    for blueprint in (api.api, api.checked, api.operation):
        app.register_api(blueprint)
    app.register_blueprint(pages.pages)
    return app


def _begin() -> None:
    g.began = time.monotonic()
    g.number = secrets.token_hex(8)


def _note(response: Response) -> Response:
    """Log a request, and count it. Addresses of reports are secrets: the endpoint is logged."""
    seconds = time.monotonic() - g.began
    endpoint = request.endpoint or "none"
    method = monitoring.method_label(request.method)
    monitoring.REQUESTS.labels(method, endpoint, response.status_code).inc()
    monitoring.REQUEST_SECONDS.labels(endpoint).observe(seconds)
    response.headers["X-Request-Id"] = g.number
    fields = {
        "request": g.number,
        "method": request.method,
        "endpoint": endpoint,
        "status": response.status_code,
        "seconds": round(seconds, 4),
        "bytes_in": request.content_length or 0,
        "client": request.remote_addr,
    }
    _access.info("request", extra={"fields": fields})
    return response


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """gunicorn with the app and the settings of the service."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        chosen = {
            "bind": [f"fd://{os.environ[LISTENER]}"],
            "workers": self._settings.web,
            "worker_class": "gthread",
            "threads": self._settings.threads,
            "worker_connections": 1000,
            "keepalive": 75,
            "graceful_timeout": DRAIN_SECONDS,
            "limit_request_field_size": 16_380,
            "secure_scheme_headers": {},  # the app looks at X-Forwarded-* if it is told to
            "control_socket_disable": True,
            "logconfig_dict": monitoring.LOGGING,
            "post_worker_init": _begin_to_serve,
        }
        for name, value in chosen.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        monitoring.reserve_space()
        return create_app(self._settings)


def _begin_to_serve(worker: Any) -> None:
    """Have a web process know that SIGTERM has come; the first one says where it serves."""
    worker.wsgi.extensions["tfod"].is_draining = lambda: not worker.alive
    if worker.age == 1:
        print(os.environ[GREETING], file=sys.stderr, flush=True)


def main() -> None:
    """Serve until SIGTERM comes, or the process that started this one is gone."""
    monitoring.configure_logging()
    follow_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    _Gunicorn(Settings.from_environment()).run()
