"""The Flask application: who may ask, what each answer says to browsers, logs and metrics."""

from __future__ import annotations

import logging
import secrets
import time

import prometheus_client as prometheus
from flask import Flask, Response, g, request

from tfod_validator import api, views
from tfod_validator.access import is_own
from tfod_validator.answers import ProblemError, answer_errors
from tfod_validator.guard import REFUSED
from tfod_validator.settings import Settings
from tfod_validator.uploads import UploadRequest, queue
from tfod_validator.workers import Queue

_requests = prometheus.Counter(
    "tfod_http_requests_total", "Requests that were answered.", ["method", "endpoint", "status"]
)
_seconds = prometheus.Histogram(
    "tfod_http_request_seconds", "Time from a whole request to its answer.", ["endpoint"]
)
_access = logging.getLogger("tfod.access")
_METHODS = frozenset(("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"))
_LONGEST_TEXT = 160 << 10  # of a field; with less Werkzeug would refuse files, too
_SPARE_PARTS = 20
_PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Addresses of reports are secrets. "no-referrer" would make forms come from the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Content-Security-Policy": _PAGE_POLICY,
}
_REFUSALS = {
    "token": (401, "A token is needed: send the header 'Authorization: Bearer TOKEN'."),
    "head_seconds": (408, "The head of the request took too long; send it at once."),
    "max_body_bytes": (413, "An upload may have {:,} bytes; send less, or in parts."),
    "max_upload_seconds": (408, "An upload may take {:,} seconds; send less, or faster."),
    "min_free_bytes": (507, "The service's disk has no room for this; try again later."),
}
"""What is said of a request that the guard has refused, by its reason."""


def create_app(settings: Settings, waiting: Queue) -> Flask:
    """The application, behind the guard; ``app.extensions["tfod"]`` is the `Queue`."""
    app = Flask("tfod_validator")
    app.request_class = UploadRequest
    app.config.update(
        MAX_CONTENT_LENGTH=settings.max_body_bytes,
        MAX_FORM_MEMORY_SIZE=_LONGEST_TEXT,
        MAX_FORM_PARTS=settings.max_files + _SPARE_PARTS,
        TRUSTED_HOSTS=settings.hosts,
    )
    app.extensions["tfod"] = waiting
    app.before_request(_begin)
    app.after_request(_end)
    answer_errors(app)
    app.register_blueprint(api.api)
    app.register_blueprint(views.pages)
    return app


def _begin() -> None:
    """Say why the guard has refused a request, and refuse what another site has made."""
    g.began, g.number = time.monotonic(), secrets.token_hex(8)
    if reason := request.environ.get(f"HTTP_{REFUSED}", ""):
        status, text = _REFUSALS[reason]
        value = getattr(queue().settings, reason, "")
        scheme = "Bearer" if request.path.startswith("/api/") else "Basic"
        raise ProblemError(
            status,
            text.format(value),
            headers={"WWW-Authenticate": f'{scheme} realm="tfod"'} if status == 401 else None,
            **({"limit": reason} if isinstance(value, int) else {}),
        )
    site, origin = (request.headers.get(name) for name in ("Sec-Fetch-Site", "Origin"))
    if not is_own(request.method, site, origin, request.host):
        raise ProblemError(403, "Another site made the browser send this; nothing was done.")


def _end(response: Response) -> Response:
    """Say to browsers what they may do; log, and count. Addresses of reports are secrets."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.endpoint not in ("static", "pages.report_style"):
        response.headers["Cache-Control"] = "no-store"
    if request.is_secure:
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
    response.headers["X-Request-Id"] = g.number
    seconds = time.monotonic() - g.began
    endpoint, status = request.endpoint or "none", response.status_code
    # Clients may invent methods without end, and each label is kept.
    method = request.method if request.method in _METHODS else "other"
    _requests.labels(method, endpoint, status).inc()
    _seconds.labels(endpoint).observe(seconds)
    _access.info(
        "%s %s %d, %.4f s, %d bytes from %s, request %s",
        *(method, endpoint, status, seconds, request.content_length or 0),
        *(request.remote_addr, g.number),
    )
    return response
