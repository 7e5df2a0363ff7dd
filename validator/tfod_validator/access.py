"""Who may do what: the token of the service, and requests that other sites make browsers send."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from contextlib import suppress

_OPEN = ("/healthz", "/readyz", "/static/", "/report.css")
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))


def is_allowed(path: str, authorization: str, token: str) -> bool:
    """Whether the service's token is given, as bearer or as password, where one is needed."""
    if not token or path.startswith(_OPEN):
        return True
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):  # of base64 and of UTF-8
            _, _, password = base64.b64decode(given.strip()).decode().partition(":")
            return is_token(password, hash_of(token))
        return False
    return scheme.lower() == "bearer" and is_token(given.strip(), hash_of(token))


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_token(given: str, kept: str) -> bool:
    """Whether a token is the one of which that is kept; takes as long whatever is given."""
    return hmac.compare_digest(hash_of(given), kept)


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
