"""Errors as problem details (RFC 9457), or as a page for browsers."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from flask import Flask, Response, render_template, request
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.exceptions import HTTPException

from tfod_validator.jobs.request import problem_document

CONTENT_TYPE = "application/problem+json"
_log = logging.getLogger("tfod.service")
_IN_PATHS = frozenset(("key", "number", "code"))
_DETAILS = {
    400: "The request cannot be understood.",
    404: "There is nothing at this address; see /openapi.json, or /docs.",
    405: "This address does not know that method; the header Allow names those it knows.",
    413: "The form has more parts, or longer texts, than belong here.",
    415: "The service does not take this type of content.",
    500: "The service has made a mistake; its log has more under the request's number.",
}


class ProblemError(Exception):
    """An answer in place of the one that was asked for.

    Args:
        status: of HTTP.
        detail: a sentence: what is wrong, and what to do.
        headers: that the answer has in addition.
        more: other members of the document: ``limit`` is the name of the limit that was reached.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.headers = headers or {}
        self.document = problem_document(status, detail, **more)


def invalid_parameter(error: ValidationError) -> ProblemError:
    """What is wrong with the parameters of a request, or with its address."""
    first = error.errors()[0]
    name = str(first["loc"][0])[:80]
    if name in _IN_PATHS and name in (request.view_args or {}):
        return ProblemError(404, _DETAILS[404])
    if first["type"] == "extra_forbidden":
        detail = f"{name} is not a parameter here; see /docs."
    else:
        detail = f"{name}={str(first['input'])[:80]}: {first['msg']}."
    return ProblemError(400, detail, parameter=name)


def too_many(detail: str, limit: str) -> ProblemError:
    """The answer to a client that has to wait until some of its requests have ended."""
    return ProblemError(429, detail, limit=limit, headers={"Retry-After": "10"})


def disk_is_full() -> ProblemError:
    """The answer to an upload for which there is no space any more."""
    return ProblemError(507, "The service's disk is full; try again later.")


def register(app: Flask) -> None:
    """Let the app answer all errors in this way."""
    app.register_error_handler(ProblemError, _answer)
    app.register_error_handler(HTTPException, _answer_http)
    app.register_error_handler(Exception, _answer_other)


def _answer(problem: ProblemError) -> Response:
    if _wants_page():
        page = render_template("error.html", problem=problem.document)
        response = Response(page, mimetype="text/html")
    else:
        text = json.dumps(problem.document, ensure_ascii=False) + "\n"
        response = Response(text, content_type=CONTENT_TYPE)
    response.status_code = problem.document["status"]
    response.headers.update(problem.headers)
    return response


def _wants_page() -> bool:
    """Whether a person looks at the answer: browsers ask for pages by name."""
    types = [name for name, _ in request.accept_mimetypes]
    return "text/html" in types and not request.path.startswith("/api/")


def _answer_http(error: HTTPException) -> Any:
    original = error.get_response()
    if error.code is None or error.code < 400:
        return original
    most = request.max_content_length or 0
    length = request.content_length
    if error.code == 413 and (length is None or length > most):
        detail = f"A request may have {most:,} bytes; send less, or in parts."
        return _answer(ProblemError(413, detail, limit="max_body_bytes"))
    detail = _DETAILS.get(error.code) or error.description or ""
    headers = {name: original.headers[name] for name in ("Allow",) if name in original.headers}
    return _answer(ProblemError(error.code, detail, headers=headers))


def _answer_other(error: Exception) -> Response:
    if not isinstance(error, SQLAlchemyError):
        _log.exception("a request failed")
        return _answer(ProblemError(500, _DETAILS[500]))
    _log.exception("the database does not answer")
    if "disk is full" in str(error):  # in SQLite's words
        return _answer(disk_is_full())
    detail = "The database does not answer; try again in a moment."
    return _answer(ProblemError(503, detail, headers={"Retry-After": "5"}))
