"""Responses other than pages: JSON, files, and errors as problem details (RFC 9457).

waitress sends files only as fast as the client reads them. Reports can be long and clients slow, so
reports are sent from their files, and are never held in memory or copied.
"""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, cast

from flask import Flask, Response, render_template, request, send_file
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

TYPES = {
    "json": "application/json",
    "html": "text/html",
    "junit": "application/xml",
    "text": "text/plain",
}
"""The content types of the report formats."""
_DETAILS = {
    400: "The request is malformed.",
    404: "This page does not exist. See /docs, or /openapi.json.",
    405: "This method is not allowed here; the header Allow lists the allowed ones.",
    413: "The form has too many parts, or a text field is too long.",
    415: "The service does not accept this content type.",
}
"""Details of the errors that Flask and Werkzeug raise."""
_log = logging.getLogger("tfod.service")


class _JoinedFile(io.RawIOBase):
    """The concatenation of parts of files, which waitress reads in pieces."""

    def __init__(self, *parts: tuple[IO[bytes], int, int]) -> None:
        self._parts, self._offset = parts, 0
        self._length = sum(stop - start for _, start, stop in parts)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._offset = (0, self._offset, self._length)[whence] + offset
        return self._offset

    def readinto(self, buffer: Any) -> int:
        begin = 0
        for file, start, stop in self._parts:
            end = begin + stop - start
            if self._offset < end:
                file.seek(start + self._offset - begin)
                data = file.read(min(len(buffer), end - self._offset))
                buffer[: len(data)] = data
                self._offset += len(data)
                return len(data)
            begin = end
        return 0

    def close(self) -> None:
        for file, _, _ in self._parts:
            file.close()
        super().close()


def send_json(document: object, status: int = 200) -> AnyResponse:
    """Return a JSON response."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return Response(text + "\n", status, content_type=TYPES["json"])


def stream_file(file: Path | IO[bytes], content_type: str, **options: Any) -> AnyResponse:
    """Return a response with a file; ``options`` are arguments of ``send_file``."""
    return send_file(file, content_type, conditional=False, etag=False, **options)


def stream_part(
    before: str, path: Path, start: int, stop: int, after: str, content_type: str
) -> AnyResponse:
    """Return a response with a part of a file between two texts."""
    texts = [text.encode("utf-8", "replace") for text in (before, after)]
    head, tail = ((io.BytesIO(text), 0, len(text)) for text in texts)
    file = _JoinedFile(head, (path.open("rb"), start, stop), tail)
    return stream_file(cast("IO[bytes]", file), content_type)


class ProblemError(Exception):
    """An error response, or the reason why a check failed.

    Args:
        status: HTTP status code.
        detail: sentence that says what is wrong and what to do.
        headers: additional headers of the response.
        members: additional members of the document: ``limit`` is the name of the limit that was
            exceeded, ``parameter`` the name of the wrong parameter.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.headers = headers or {}
        header = {"type": "about:blank", "title": HTTPStatus(status).phrase}
        self.document = {**header, "status": status, "detail": detail, **members}


def register_error_handlers(app: Flask) -> None:
    """Make an application send all errors as problem details."""
    app.register_error_handler(ProblemError, _send_problem)
    app.register_error_handler(HTTPException, _send_http_error)
    app.register_error_handler(Exception, _send_exception)


def _send_problem(problem: ProblemError) -> Response:
    types = [name for name, _ in request.accept_mimetypes]
    if "text/html" in types and not request.path.startswith("/api/"):  # from a browser
        response = Response(render_template("error.html", problem=problem.document))
    else:
        text = json.dumps(problem.document, ensure_ascii=False) + "\n"
        response = Response(text, content_type="application/problem+json")
    response.status_code = problem.document["status"]
    response.headers.update(problem.headers)
    return response


def _send_http_error(error: HTTPException) -> Any:
    original = error.get_response()
    if error.code is None or error.code < 400:
        return original
    detail = _DETAILS.get(error.code) or error.description or ""
    headers = {name: original.headers[name] for name in ("Allow",) if name in original.headers}
    return _send_problem(ProblemError(error.code, detail, headers=headers))


def _send_exception(error: Exception) -> Response:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _send_problem(ProblemError(507, "The disk of the service is full. Try again later."))
    _log.exception("request failed")
    hint = "The operator of the service can look up this request by its number in the log."
    return _send_problem(ProblemError(500, f"Internal error. {hint}"))
