"""The Flask application."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any

import flask_openapi3 as openapi
from flask import Flask, Response, g, request
from tfod.version import __version__

from tfod_validator import api, errors, pages, schemas, security
from tfod_validator.serve import monitoring
from tfod_validator.service import Service
from tfod_validator.settings import Settings

_access = logging.getLogger("tfod.access")
_MAX_FORM_BYTES = 64 << 10
_MAX_FORM_PARTS = 20
"""Of forms without files; those with files are read by uploads.py."""


def create_app(settings: Settings) -> Flask:
    """The application; ``app.extensions["tfod"]`` is the `Service`."""
    app = openapi.OpenAPI(
        "tfod_validator",
        info=openapi.Info(
            title="tfod validator",
            version=__version__,
            description="Checks TF Object Detection API TFRecords and annotation zips before "
            "they are uploaded or trained on.",
        ),
        security_schemes={"token": {"type": "http", "scheme": "bearer"}},
        validation_error_callback=_refuse,
        validation_error_status=400,
        validation_error_model=schemas.Problem,
        doc_ui=False,
    )
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


def _refuse(error: Any) -> None:
    raise errors.invalid_parameter(error)


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
