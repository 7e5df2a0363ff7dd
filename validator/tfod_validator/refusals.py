"""What the web server says to requests that the app never sees, as problems (RFC 9457)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tfod_validator.problems import CONTENT_TYPE, problem_document
from tfod_validator.settings import Limits

MAX_HEAD_BYTES = 32 << 10
"""The head of a request may have so many bytes."""


@dataclass(frozen=True)
class Refusal:
    """An answer in place of the one that was asked for, as a problem (RFC 9457).

    Attributes:
        status: of HTTP.
        title: the status in words.
        detail: a sentence: what is wrong, and what to do.
        headers: that the answer has in addition.
        limit: name of the limit that was reached.
    """

    status: int
    title: str
    detail: str
    headers: tuple[tuple[str, str], ...] = ()
    limit: str = ""

    def to_response(self, _: object = None) -> tuple[str, list[tuple[str, str]], bytes]:
        """Status line, headers and body, as waitress asks its errors for them."""
        more = {"limit": self.limit} if self.limit else {}
        document = problem_document(self.status, self.detail, **more) | {"title": self.title}
        headers = [
            ("Content-Type", CONTENT_TYPE),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *self.headers,
        ]
        return f"{self.status} {self.title}", headers, json.dumps(document).encode() + b"\n"


def refuse(status: int, detail: str, limit: str = "") -> Refusal:
    """A refusal with the usual title."""
    return Refusal(status, HTTPStatus(status).phrase, detail, limit=limit)


FULL = refuse(507, "The disk of the service is full; try later, or tell those who run it.")
NOT_STORED = refuse(500, "The upload could not be stored; try later, or tell those who run this.")
MISTAKE = refuse(500, "The service has made a mistake; its log has more.")


def too_long(limits: Limits, length: int) -> Refusal | None:
    """The refusal of a body of some length, if it is too long."""
    most = limits.max_body_bytes
    if length <= most:
        return None
    detail = f"A request may have {most} bytes at most (max_body_bytes); send less, or in parts."
    return refuse(413, detail, "max_body_bytes")


def no_room() -> Refusal:
    """The refusal of a body for which the disk has no room any more."""
    detail = "The service's disk has no room for this upload; try again later."
    return refuse(507, detail, "min_free_bytes")


def too_slow(limits: Limits) -> Refusal:
    """The refusal of a body that takes too long."""
    most = limits.max_upload_seconds
    detail = f"An upload may take {most} seconds (max_upload_seconds); send less, or faster."
    return refuse(408, detail, "max_upload_seconds")


def head_too_slow(seconds: float) -> Refusal:
    """The refusal of a request of which the head takes too long."""
    return refuse(408, f"The head did not come within {seconds} seconds; send the request again.")


def silent_too_long(seconds: float) -> Refusal:
    """The refusal of a body of which nothing more comes."""
    return refuse(408, f"Nothing has come for {seconds} seconds; send the request again.")


def as_refusal(error: Any) -> Refusal:
    """What waitress has found wrong, as a refusal."""
    if isinstance(error, Refusal):
        return error
    if error.code == 431:
        detail = f"The head of the request has more than {MAX_HEAD_BYTES} bytes; send less."
        return refuse(431, detail)
    if error.code == 501:
        return refuse(501, "Of transfer encodings only 'chunked' is known; use that or none.")
    if error.code == 400:
        return refuse(400, f"The request is malformed ({error.body}); send it as RFC 9112 says.")
    return MISTAKE
