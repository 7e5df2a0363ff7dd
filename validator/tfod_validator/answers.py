"""Answers beside pages: JSON, files, and errors as problem details (RFC 9457).

waitress sends files as fast as they are read. A report may be long, and who asks for it slow: no
part of it is in memory, and none is copied.
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
"""What the formats of a report are called over HTTP."""
_DETAILS = {
    400: "The request cannot be understood.",
    404: "There is nothing at this address; see /openapi.json, or /docs.",
    405: "This address does not know that method; the header Allow names those it knows.",
    413: "The form has too many parts, or longer texts than belong here.",
    415: "The service does not take this type of content.",
}
"""What is said of errors that Flask and Werkzeug raise."""
_log = logging.getLogger("tfod.service")


class _Joined(io.RawIOBase):
    """Parts of files, one after the other; waitress reads a piece where it needs one."""

    def __init__(self, *parts: tuple[IO[bytes], int, int]) -> None:
        self._parts, self._place = parts, 0
        self._length = sum(stop - start for _, start, stop in parts)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = (0, self._place, self._length)[whence] + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        begin = 0
        for file, start, stop in self._parts:
            end = begin + stop - start
            if self._place < end:
                file.seek(start + self._place - begin)
                data = file.read(min(len(buffer), end - self._place))
                buffer[: len(data)] = data
                self._place += len(data)
                return len(data)
            begin = end
        return 0

    def close(self) -> None:
        for file, _, _ in self._parts:
            file.close()
        super().close()


def as_json(document: object, status: int = 200) -> AnyResponse:
    """A document."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return Response(text + "\n", status, content_type=TYPES["json"])


def from_file(file: Path | IO[bytes], kind: str, **more: Any) -> AnyResponse:
    """A file; ``more`` are arguments of ``send_file``."""
    return send_file(file, kind, conditional=False, etag=False, **more)


def around(before: str, path: Path, start: int, stop: int, after: str, kind: str) -> AnyResponse:
    """A part of a file, with texts before and behind it."""
    texts = [text.encode("utf-8", "replace") for text in (before, after)]
    head, tail = ((io.BytesIO(text), 0, len(text)) for text in texts)
    file = _Joined(head, (path.open("rb"), start, stop), tail)
    return from_file(cast("IO[bytes]", file), kind)


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
