"""Errors as answers: problem details (RFC 9457), or a page for people."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, render_template, request
from werkzeug.exceptions import HTTPException

_DETAILS = {
    400: "The request cannot be understood.",
    404: "There is nothing at this address; see /openapi.json, or /docs.",
    405: "This address does not know that method; the header Allow names those it knows.",
    413: "The form has too many parts, or longer texts than belong here.",
    415: "The service does not take this type of content.",
}
"""What is said of errors that Flask and Werkzeug raise."""
_log = logging.getLogger("tfod.service")


class ProblemError(Exception):
    """An answer in place of the one that was asked for, or why a check could not be done.

    Args:
        status: of HTTP.
        detail: a sentence: what is wrong, and what to do.
        headers: that the answer has in addition.
        more: other members of the document: ``limit`` is the name of the limit that was reached,
            ``parameter`` that of the parameter that is wrong.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.headers = headers or {}
        known = {"type": "about:blank", "title": HTTPStatus(status).phrase}
        self.document = {**known, "status": status, "detail": detail, **more}


def answer_errors(app: Flask) -> None:
    """Have every error of an application answered as a problem."""
    app.register_error_handler(ProblemError, _answer)
    app.register_error_handler(HTTPException, _answer_http)
    app.register_error_handler(Exception, _answer_other)


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
