"""Judges uploads by their heads, before their bodies arrive."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Flask, Request
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.proxy_fix import ProxyFix

from tfod_validator.intake import refuse_by_head
from tfod_validator.problems import ProblemError
from tfod_validator.refusals import Refusal
from tfod_validator.security import has_mark, needs_token, refusal
from tfod_validator.settings import Settings

_TAKES_UPLOADS = frozenset(("api.create", "pages.accept"))
_MAX_OTHER_BYTES = 64 << 10
"""Other requests have short bodies, or none."""


def make_gate(app: Flask, settings: Settings) -> Callable[[dict[str, Any]], Refusal | None]:
    """What the web server asks about every request with a body.

    The views would refuse the same requests, but only when all of the body has come.
    """

    def gate(environ: dict[str, Any]) -> Refusal | None:
        _believe_proxies(environ, settings.trusted_proxies)
        given = app.request_class(environ)
        endpoint = _endpoint(app, environ)
        tokens = settings.tokens if needs_token(endpoint) else ()
        cookie = app.session_interface.open_session(app, given) if tokens else None
        problem = refusal(given, tokens, has_mark(app, cookie or {}))
        if problem is None and endpoint in _TAKES_UPLOADS:
            problem = refuse_by_head(given, settings, environ["tfod.uploads"])
        elif problem is None:
            problem = _refuse_long(given)
        return None if problem is None else _refusal(problem)

    return gate


def _refuse_long(given: Request) -> ProblemError | None:
    """Why a body is refused where no uploads are taken; its length is None if it is in chunks."""
    if given.content_length is not None and given.content_length <= _MAX_OTHER_BYTES:
        return None
    return ProblemError(413, "No long body belongs here; uploads go to /api/v1/validations.")


def _believe_proxies(environ: dict[str, Any], count: int) -> None:
    if count:
        fix = ProxyFix(lambda *_: [], x_for=count, x_proto=count, x_host=count)
        fix(environ, lambda *_: lambda _: None)


def _endpoint(app: Flask, environ: dict[str, Any]) -> str | None:
    try:
        endpoint, _ = app.url_map.bind_to_environ(environ).match()
    except HTTPException:
        return None
    return str(endpoint)


def _refusal(problem: ProblemError) -> Refusal:
    return Refusal(
        status=problem.status,
        title=HTTPStatus(problem.status).phrase,
        detail=problem.detail,
        headers=tuple(problem.headers.items()),
        limit=problem.more.get("limit", ""),
    )
