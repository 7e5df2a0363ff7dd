"""Answers every error as problem details, or as a page to who asks for pages."""

from __future__ import annotations

import json
import logging

from flask import Flask, Response, render_template, request
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.exceptions import HTTPException

from tfod_validator.problems import CONTENT_TYPE, ProblemError

_log = logging.getLogger("tfod.service")
_DETAILS = {
    400: "The request cannot be understood.",
    404: "There is nothing at this address; see /openapi.json, or /docs.",
    405: "This address does not know that method; the header Allow names those it knows.",
    413: "The request is longer than the service takes.",
    415: "The service does not take this type of content.",
    500: "The service has made a mistake; its log has more under the request's number.",
}


def register(app: Flask) -> None:
    """Let the app answer all errors in this way; pages are for who asks for pages."""

    @app.errorhandler(ProblemError)
    def _problem(error: ProblemError) -> Response:
        return _answer(error)

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        original = error.get_response()
        if error.code is None or error.code < 400:
            return original  # type: ignore[return-value]
        detail = _DETAILS.get(error.code) or error.description or ""
        if error.code == 413:
            return _answer(too_long(app, error))
        headers = {name: original.headers[name] for name in ("Allow",) if name in original.headers}
        return _answer(ProblemError(error.code, detail, headers=headers))

    @app.errorhandler(SQLAlchemyError)
    def _database(error: SQLAlchemyError) -> Response:
        _log.exception("the database does not answer")
        if "disk is full" in str(error):  # in SQLite's words
            return _answer(ProblemError(507, "The service's disk is full; try again later."))
        detail = "The database does not answer; try again in a moment."
        return _answer(ProblemError(503, detail, headers={"Retry-After": "5"}))

    @app.errorhandler(Exception)
    def _other(_: Exception) -> Response:
        _log.exception("a request failed")
        return _answer(ProblemError(500, _DETAILS[500]))


def too_long(app: Flask, _: HTTPException) -> ProblemError:
    """What is said of a body, or a part of a form, that is too long."""
    limits = app.extensions["tfod.settings"].limits
    if (request.content_length or 0) > limits.max_body_bytes:
        detail = f"The upload is longer than the {limits.max_body_bytes:,} bytes allowed."
        return ProblemError(413, detail, limit="max_body_bytes")
    return ProblemError(413, "The form has more parts, or longer texts, than belong here.")


def _answer(problem: ProblemError) -> Response:
    document = problem.document()
    if _wants_page():
        response = Response(render_template("error.html", problem=document), mimetype="text/html")
    else:
        response = Response(json.dumps(document, ensure_ascii=False) + "\n")
        response.content_type = CONTENT_TYPE
    response.status_code = problem.status
    response.headers.update(problem.headers)
    return response


def _wants_page() -> bool:
    """Whether a person looks at the answer: browsers ask for pages by name."""
    if request.path.startswith("/api/"):
        return False
    accepted = [kind for kind, _ in request.accept_mimetypes]
    return "text/html" in accepted
