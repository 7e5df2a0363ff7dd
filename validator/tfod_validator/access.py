"""Who may do what: the token of the service, tokens of uploads, and requests of other sites."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
from contextlib import suppress

from tfod_validator.settings import Settings

REFUSED = "TFOD_REFUSED"
"""The header by which the guard says that it has refused a request, and why."""
_OPEN = ("/healthz", "/readyz", "/static/", "/report.css")
_UPLOADS = ("/api/v1/validations", "/validations")
_LONGEST_OTHER = 64 << 10
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))


def is_allowed(path: str, authorization: str, token: str) -> bool:
    """Whether the service's token is given, as bearer or as password, where one is needed."""
    if not token or path.startswith(_OPEN):
        return True
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):  # of base64 and of UTF-8
            _, _, password = base64.b64decode(given.strip()).decode().partition(":")
            return is_same(password, token)
        return False
    return scheme.lower() == "bearer" and is_same(given.strip(), token)


def is_same(given: str, token: str) -> bool:
    """Compare in a time that does not depend on what is given."""
    return hmac.compare_digest(hash_of(given), hash_of(token))


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(16)


def longest_body(path: str, settings: Settings) -> int:
    """How long the body of a request may be: only those of uploads are long."""
    return settings.max_body_bytes if path in _UPLOADS else _LONGEST_OTHER


def is_own(method: str, site: str | None, origin: str | None, host: str) -> bool:
    """Whether a request that changes something comes from a page of ours, or from no browser.

    Browsers say whose page is behind a request in the header Sec-Fetch-Site, older ones in Origin;
    other clients send neither.
    """
    if method in _SAFE_METHODS:
        return True
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or origin.partition("://")[2] == host


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
