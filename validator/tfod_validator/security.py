"""Access: tokens, requests that other sites make browsers send, owners of reports, and headers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, current_app, redirect, request, session, url_for
from flask.sessions import SecureCookieSessionInterface
from werkzeug.middleware.proxy_fix import ProxyFix

from tfod_validator.errors import ProblemError
from tfod_validator.jobs.database import Validation
from tfod_validator.service import service
from tfod_validator.settings import Settings

_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_MAX_OTHER_BYTES = 64 << 10
"""Requests that are not uploads have short bodies, or none."""
_TAKE_UPLOADS = frozenset(("api.create", "pages.accept"))
_OPEN_ENDPOINTS = frozenset(
    ("static", "operation.live", "operation.ready", "pages.sign_in", "pages.report_style")
)
_PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
DOCUMENT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
)
"""For a report that is one file: its styles are in it."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Addresses of reports are secrets. "no-referrer" would make forms come from the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Content-Security-Policy": _PAGE_POLICY,
}


class _Sessions(SecureCookieSessionInterface):
    """Cookies that browsers send over https alone, where they got them so."""

    def get_cookie_secure(self, app: Flask) -> bool:
        return request.is_secure


def register(app: Flask, settings: Settings) -> None:
    """Let the app refuse what it should, and say in headers what browsers should."""
    app.before_request(_refuse)
    app.after_request(_add_headers)
    app.config.update(
        SECRET_KEY=settings.secret_key or _kept_key(settings.data / "secret-key"),
        SESSION_COOKIE_NAME="tfod",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
    )
    app.session_interface = _Sessions()
    proxies = dict.fromkeys(("x_for", "x_proto", "x_host"), settings.trusted_proxies)
    # Flask's documentation has it so; mypy sees a method that is replaced.
    app.wsgi_app = ProxyFix(app.wsgi_app, **proxies)  # type: ignore[method-assign]


def _kept_key(path: Path) -> str:
    """The key in a file, which is made if it is not there; of several processes the first wins."""
    if not path.exists():
        made = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
        made.touch(mode=0o600)  # for this user only
        made.write_text(secrets.token_hex(32))
        with suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
    return path.read_text()


def is_known_token(token: str, tokens: tuple[str, ...]) -> bool:
    """Compare with every token, in a time that does not depend on them."""
    given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
    known = [hashlib.sha256(one.encode()).digest() for one in tokens]
    return sum(hmac.compare_digest(given, one) for one in known) > 0  # all are compared


def is_known_host(host: str, known: tuple[str, ...]) -> bool:
    """Whether a header Host names one of the hosts; ``.example.org`` is all below example.org.

    Flask's own check knows no addresses of IPv6.
    """
    name = urlsplit(f"//{host}").hostname or ""
    names = [one.lower().strip("[]") for one in known]
    return name in names or any(one.startswith(".") and name.endswith(one) for one in names)


def current_client() -> str:
    """The client: a token, or else an address; as a hash, since it is kept."""
    given = _bearer_token()
    token = given if is_known_token(given, service().settings.tokens) else signed_in_token()
    return _hashed(
        f"token {token}" if token else f"address {network_of(request.remote_addr or '')}"
    )


def current_browser(*, make: bool = False) -> str | None:
    """Which browser asks, as a hash, where there are no tokens; None for others."""
    if service().settings.tokens:
        return None
    if make and "browser" not in session:
        session["browser"] = new_id()
    return _hashed(f"browser {session['browser']}") if "browser" in session else None


def is_owner(one: Validation) -> bool:
    """Whether who asks has uploaded this, and so may delete it."""
    if one.owner is not None:
        return one.owner == current_browser()
    return one.client == current_client()


def delete(one: Validation) -> None:
    """Delete a validation, its report and its files, as only its owner may.

    Raises:
        ProblemError: another client asks.
    """
    if not is_owner(one):
        how = "from the browser or the address that uploaded it"
        if service().settings.tokens:
            how = "with the token that uploaded it"
        raise ProblemError(403, f"This report can be deleted only {how}; it expires by itself.")
    service().database.delete(one.id)
    service().folder.remove(one.id)


def limit_rate(what: str, limit: str, client: str) -> None:
    """Count what a client does, as in "too many uploads", against a limit for a minute.

    Raises:
        ProblemError: the client has to wait.
    """
    most = getattr(service().settings.limits, limit)
    wait = math.ceil(service().database.take(f"{limit} {client}", most, 60.0))
    if wait:
        detail = f"There were too many {what} ({most:,} in a minute are allowed)"
        headers = {"Retry-After": str(wait)}
        raise ProblemError(429, f"{detail}; try again in {wait} s.", limit=limit, headers=headers)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def network_of(address: str) -> str:
    """What one client has: an address of IPv4, or a /64 of IPv6, in which it may take any."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    mapped = parsed.ipv4_mapped  # a client of IPv4 at a socket for both
    return str(mapped or ipaddress.IPv6Network((int(parsed), 64), strict=False))


def _bearer_token() -> str:
    """The token of the header Authorization; an empty text without one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def new_id() -> str:
    """An id that cannot be guessed: 128 bits."""
    return secrets.token_urlsafe(16)


def sign_in(token: str) -> bool:
    """Keep the mark of a token in the cookie; False for a token that is not known.

    Raises:
        ProblemError: there were too many attempts from this address.
    """
    limit_rate(
        "attempts to sign in", "max_sign_ins_per_minute", network_of(request.remote_addr or "")
    )
    if not is_known_token(token, service().settings.tokens):
        return False
    session["token"] = _token_mark(token)
    session.permanent = True
    return True


def signed_in_token() -> str:
    """The token whose mark the cookie of this request holds; an empty text without one."""
    mark = str(session.get("token", ""))
    tokens = service().settings.tokens
    return next((one for one in tokens if hmac.compare_digest(mark, _token_mark(one))), "")


def _token_mark(token: str) -> str:
    """What a cookie holds in place of a token."""
    key = str(current_app.config["SECRET_KEY"]).encode()
    return hmac.new(key, token.encode(), "sha256").hexdigest()


def _refuse() -> Any:
    """Refuse a request by its head, before its body is read."""
    settings = service().settings
    endpoint = request.endpoint or ""
    if settings.hosts and not is_known_host(request.host, settings.hosts):
        raise ProblemError(400, "The service is not called by this name; see the option --hosts.")
    # Browsers say whose page is behind a request in Sec-Fetch-Site, older ones in Origin; other
    # clients send neither.
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is None:
        is_own = origin is None or origin.partition("://")[2] == request.host
    else:
        is_own = site in ("same-origin", "none")
    if request.method not in _SAFE_METHODS and not is_own:
        raise ProblemError(403, "Another site made the browser send this; nothing was done.")
    tokens = () if endpoint in _OPEN_ENDPOINTS else settings.tokens
    if tokens and not is_known_token(_bearer_token(), tokens) and not signed_in_token():
        if endpoint.startswith("pages.") and request.method == "GET":
            return redirect(url_for("pages.sign_in", next=request.full_path.rstrip("?")))
        detail = "A token is needed: send the header 'Authorization: Bearer TOKEN'."
        raise ProblemError(401, detail, headers={"WWW-Authenticate": 'Bearer realm="tfod"'})
    is_chunked = "Transfer-Encoding" in request.headers
    is_long = is_chunked or (request.content_length or 0) > _MAX_OTHER_BYTES
    if is_long and endpoint not in _TAKE_UPLOADS:
        raise ProblemError(413, "A body here is short; uploads go to /api/v1/validations.")
    return None


def _add_headers(response: Response) -> Response:
    headers = dict(_HEADERS)
    if request.endpoint != "static":
        headers["Cache-Control"] = "no-store"
    if request.is_secure:
        # Browsers know these under https alone, and complain of the second elsewhere.
        headers["Strict-Transport-Security"] = "max-age=31536000"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
    for name, value in headers.items():
        response.headers.setdefault(name, value)
    return response
