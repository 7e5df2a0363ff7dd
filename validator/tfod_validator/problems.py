"""Problem details (RFC 9457): what a client is told instead of what it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

CONTENT_TYPE = "application/problem+json"


class ProblemError(Exception):
    """What a client is told instead of what it asked for."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        limit: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """What went wrong.

        Args:
            status: of HTTP.
            detail: a sentence: what is wrong, and what to do.
            limit: name of the limit that was reached.
            headers: that the answer has in addition.
            more: other members of the document.
        """
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = ({"limit": limit} if limit else {}) | more

    def document(self) -> dict[str, Any]:
        """The problem as JSON."""
        return problem_document(self.status, self.detail, **self.more)


def problem_document(status: int, detail: str, **more: Any) -> dict[str, Any]:
    """A problem as JSON."""
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
