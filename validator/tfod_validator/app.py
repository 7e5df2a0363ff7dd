"""The Flask application."""

from __future__ import annotations

import logging
import secrets
import threading
import time

from flask import Flask, Response, g, request

from tfod_validator import api, health, metrics, pages, problems, security
from tfod_validator.data_folder import settle_mark
from tfod_validator.jobs import Store
from tfod_validator.settings import Settings
from tfod_validator.uploads import Arriving

_access = logging.getLogger("tfod.access")
_MAX_FORM_BYTES = 64 << 10
_MAX_FORM_PARTS = 20
"""Of forms without files; those with files are read by uploads.py."""


def create_app(settings: Settings, draining: threading.Event | None = None) -> Flask:
    """The application, with its tables created.

    ``app.extensions`` holds what views need: ``tfod.settings``, ``tfod.store``, ``tfod.mark`` (of
    the data folder), ``tfod.arriving`` (uploads), ``tfod.draining`` (an event that is set when the
    service is stopped), and ``tfod.streams`` and ``tfod.waiting`` (how many may).
    """
    app = api.OpenAPI(settings)
    app.config.update(
        MAX_CONTENT_LENGTH=settings.limits.max_body_bytes,
        MAX_FORM_MEMORY_SIZE=_MAX_FORM_BYTES,
        MAX_FORM_PARTS=_MAX_FORM_PARTS,
    )
    store = Store(settings)
    store.create_tables()
    streams = min(settings.limits.max_event_streams, max(1, settings.threads // 4))
    app.extensions.update(
        {
            "tfod.settings": settings,
            "tfod.store": store,
            "tfod.mark": settle_mark(settings, store, takes_uploads=True),
            "tfod.arriving": Arriving(),
            "tfod.draining": draining or threading.Event(),
            "tfod.streams": threading.BoundedSemaphore(streams),
            "tfod.waiting": threading.BoundedSemaphore(max(1, settings.threads // 2)),
        }
    )
    app.before_request(_begin)
    app.after_request(_note)
    security.register(app, settings)
    problems.register(app)
    app.register_api(api.api)
    app.register_api(health.health)
    app.register_blueprint(pages.pages)
    return app


def _begin() -> None:
    g.began = time.monotonic()
    g.number = secrets.token_hex(8)


def _note(response: Response) -> Response:
    """Log a request, and count it. Addresses of reports are secrets: the endpoint is logged."""
    seconds = time.monotonic() - g.get("began", time.monotonic())
    endpoint = request.endpoint or "none"
    method = metrics.method_label(request.method)
    metrics.REQUESTS.labels(method, endpoint, response.status_code).inc()
    metrics.REQUEST_SECONDS.labels(endpoint).observe(seconds)
    response.headers["X-Request-Id"] = g.get("number", "")
    fields = {
        "request": g.get("number", ""),
        "method": request.method,
        "endpoint": endpoint,
        "status": response.status_code,
        "seconds": round(seconds, 4),
        "bytes_in": request.content_length or 0,
        "client": request.remote_addr,
    }
    _access.info("request", extra={"fields": fields})
    return response
