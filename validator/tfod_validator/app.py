"""The Flask application: who may ask, what each answer says to browsers, logs and metrics."""

from __future__ import annotations

import errno
import json
import logging
import secrets
import time
from typing import Any

import prometheus_client as prometheus
from flask import Flask, Response, g, render_template, request
from werkzeug.exceptions import HTTPException

from tfod_validator import api, views
from tfod_validator.access import is_allowed, is_own
from tfod_validator.errors import ProblemError
from tfod_validator.guard import REFUSED
from tfod_validator.settings import Settings
from tfod_validator.uploads import Service, UploadRequest, service
from tfod_validator.workers import Queue

_requests = prometheus.Counter(
    "tfod_http_requests_total", "Requests that were answered.", ["method", "endpoint", "status"]
)
_seconds = prometheus.Histogram(
    "tfod_http_request_seconds", "Time from a whole request to its answer.", ["endpoint"]
)
_log = logging.getLogger("tfod.service")
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
    "max_body_bytes": (413, "An upload may have {:,} bytes; send less, or in parts."),
    "max_upload_seconds": (408, "An upload may take {:,} seconds; send less, or faster."),
    "min_free_bytes": (507, "The service's disk has no room for this; try again later."),
}
"""What is said of a request that the guard has refused, by the name of the limit."""


_DETAILS = {
    400: "The request cannot be understood.",
    404: "There is nothing at this address; see /openapi.json, or /docs.",
    405: "This address does not know that method; the header Allow names those it knows.",
    413: "The form has too many parts, or longer texts than belong here.",
    415: "The service does not take this type of content.",
}
"""What is said of errors that Flask and Werkzeug raise."""


def create_app(settings: Settings, queue: Queue) -> Flask:
    """The application; ``app.extensions["tfod"]`` is the `Service`."""
    app = Flask("tfod_validator")
    app.request_class = UploadRequest
    app.config.update(
        MAX_CONTENT_LENGTH=settings.max_body_bytes,
        MAX_FORM_MEMORY_SIZE=_LONGEST_TEXT,
        MAX_FORM_PARTS=settings.max_files + _SPARE_PARTS,
        TRUSTED_HOSTS=settings.hosts,
    )
    app.extensions["tfod"] = Service(settings, queue)
    app.before_request(_begin)
    app.after_request(_end)
    app.register_error_handler(ProblemError, _answer)
    app.register_error_handler(HTTPException, _answer_http)
    app.register_error_handler(Exception, _answer_other)
    app.register_blueprint(api.api)
    app.register_blueprint(views.pages)
    return app


def _begin() -> None:
    """Refuse what may not be asked, by the head of the request."""
    g.began, g.number = time.monotonic(), secrets.token_hex(8)
    settings = service().settings
    refused = request.environ.get(f"HTTP_{REFUSED}", "")
    if refused in _REFUSALS:
        status, text = _REFUSALS[refused]
        raise ProblemError(status, text.format(getattr(settings, refused)), limit=refused)
    if refused == "head_seconds":
        raise ProblemError(408, "The head of the request took too long; send it at once.")
    if not is_allowed(request.path, request.headers.get("Authorization", ""), settings.token):
        scheme = "Bearer" if request.path.startswith("/api/") else "Basic"
        detail = "A token is needed: send the header 'Authorization: Bearer TOKEN'."
        raise ProblemError(401, detail, headers={"WWW-Authenticate": f'{scheme} realm="tfod"'})
    site, origin = (request.headers.get(name) for name in ("Sec-Fetch-Site", "Origin"))
    if not is_own(request.method, site, origin, request.host):
        raise ProblemError(403, "Another site made the browser send this; nothing was done.")


def _end(response: Response) -> Response:
    """Say to browsers what they may do; log, and count. Addresses of reports are secrets."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.endpoint != "static":
        response.headers.setdefault("Cache-Control", "no-store")
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


def _answer(problem: ProblemError) -> Response:
    types = [name for name, _ in request.accept_mimetypes]
    if "text/html" in types and not request.path.startswith("/api/"):  # a person looks at it
        response = Response(render_template("error.html", problem=problem.document))
    else:
        text = json.dumps(problem.document, ensure_ascii=False) + "\n"
        response = Response(text, content_type="application/problem+json")
    response.status_code = problem.document["status"]
    response.headers.update(problem.headers)
    return response


def _answer_http(error: HTTPException) -> Any:
    original = error.get_response()
    if error.code is None or error.code < 400:
        return original
    detail = _DETAILS.get(error.code) or error.description or ""
    headers = {name: original.headers[name] for name in ("Allow",) if name in original.headers}
    return _answer(ProblemError(error.code, detail, headers=headers))


def _answer_other(error: Exception) -> Response:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _answer(ProblemError(507, "The service's disk is full; try again later."))
    _log.exception("a request failed")
    detail = "The service has made a mistake; its log has more under the request's number."
    return _answer(ProblemError(500, detail))
