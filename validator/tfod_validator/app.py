"""The Flask application: rejection of requests, security headers, logs and metrics."""

from __future__ import annotations

import logging
import secrets
import time

import prometheus_client as prometheus
from flask import Flask, Response, g, request

from tfod_validator import api, views
from tfod_validator.access import is_allowed, is_same_site
from tfod_validator.answers import ProblemError, register_error_handlers
from tfod_validator.guard import REJECTED
from tfod_validator.settings import Settings
from tfod_validator.uploads import UploadRequest, queue
from tfod_validator.workers import Queue

_requests = prometheus.Counter(
    "tfod_http_requests_total", "Number of answered requests.", ["method", "endpoint", "status"]
)
_seconds = prometheus.Histogram(
    "tfod_http_request_seconds", "Time from the end of a request to its response.", ["endpoint"]
)
_access = logging.getLogger("tfod.access")
_METHODS = frozenset(("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"))
_MAX_TEXT_BYTES = 160 << 10  # of a field; Werkzeug rejects files, too, if this is smaller
_SPARE_PARTS = 20
_PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # URLs of reports are secret. With "no-referrer", forms would have the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Content-Security-Policy": _PAGE_POLICY,
}
_REJECTIONS = {
    "token": (401, "A token is needed: send the header 'Authorization: Bearer TOKEN'."),
    "head_seconds": (408, "The request headers arrived too slowly. Try again."),
    "max_body_bytes": (413, "The upload has more than {:,} bytes. Upload fewer files at a time."),
    "max_upload_seconds": (408, "The upload took longer than {:,} seconds. Upload fewer files."),
    "min_free_bytes": (507, "The disk of the service is full. Try again later."),
}
"""Status and detail of rejected requests, by the reason of the guard."""


def create_app(settings: Settings, queue: Queue) -> Flask:
    """Create the application; ``app.extensions["tfod"]`` is the queue."""
    app = Flask("tfod_validator")
    app.request_class = UploadRequest
    app.config.update(
        MAX_CONTENT_LENGTH=settings.max_body_bytes,
        MAX_FORM_MEMORY_SIZE=_MAX_TEXT_BYTES,
        MAX_FORM_PARTS=settings.max_files + _SPARE_PARTS,
        TRUSTED_HOSTS=settings.hosts,
    )
    app.extensions["tfod"] = queue
    app.before_request(_begin)
    app.after_request(_end)
    register_error_handlers(app)
    app.register_blueprint(api.api)
    app.register_blueprint(views.pages)
    return app


def _begin() -> None:
    """Answer requests that the guard has rejected, and reject requests from other sites.

    Requests without the token are rejected, too, since other WSGI servers have no guard.
    """
    g.started, g.number = time.monotonic(), secrets.token_hex(8)
    reason = request.environ.get(f"HTTP_{REJECTED}", "")
    if reason not in _REJECTIONS:
        authorization = request.headers.get("Authorization", "")
        reason = "" if is_allowed(request.path, authorization, queue().settings.token) else "token"
    if reason:
        status, text = _REJECTIONS[reason]
        value = getattr(queue().settings, reason, "")
        scheme = "Bearer" if request.path.startswith("/api/") else "Basic"
        raise ProblemError(
            status,
            text.format(value),
            headers={"WWW-Authenticate": f'{scheme} realm="tfod"'} if status == 401 else None,
            **({"limit": reason} if isinstance(value, int) else {}),
        )
    site, origin = (request.headers.get(name) for name in ("Sec-Fetch-Site", "Origin"))
    if not is_same_site(request.method, site, origin, request.host):
        raise ProblemError(403, "The request came from another website and was rejected.")


def _end(response: Response) -> Response:
    """Add the security headers, and log and count the request without its URL, a secret."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.endpoint not in ("static", "pages.report_style", "pages.browser"):
        response.headers["Cache-Control"] = "no-store"
    if request.is_secure:
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
    response.headers["X-Request-Id"] = g.number
    seconds = time.monotonic() - g.started
    endpoint, status = request.endpoint or "none", response.status_code
    # Each label is kept forever: do not let clients invent methods.
    method = request.method if request.method in _METHODS else "other"
    _requests.labels(method, endpoint, status).inc()
    _seconds.labels(endpoint).observe(seconds)
    _access.info(
        "%s %s %d, %.4f s, %d bytes from %s, request %s",
        *(method, endpoint, status, seconds, request.content_length or 0),
        *(request.remote_addr, g.number),
    )
    return response
