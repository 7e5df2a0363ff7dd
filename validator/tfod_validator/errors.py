"""Errors as answers: problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any


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
