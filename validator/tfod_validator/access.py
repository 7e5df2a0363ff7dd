"""Access control: the token of the service, and requests that other sites make browsers send."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from contextlib import suppress

_PUBLIC_PATHS = frozenset(("/healthz", "/readyz", "/report.css", "/browser"))
_PUBLIC_FOLDERS = ("/static/", "/browser/")
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))


def is_allowed(path: str, authorization: str, token: str) -> bool:
    """Check whether the path is public, or the token is sent as Bearer or as a Basic password."""
    if not token or path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDERS):
        return True
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):  # invalid base64 or UTF-8
            _, _, password = base64.b64decode(credentials.strip()).decode().partition(":")
            return is_token(password, hash_token(token))
        return False
    return scheme.lower() == "bearer" and is_token(credentials.strip(), hash_token(token))


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token, in which form it is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_token(token: str, stored_hash: str) -> bool:
    """Check a token against its stored hash, in constant time."""
    return hmac.compare_digest(hash_token(token), stored_hash)


def is_same_site(method: str, site: str | None, origin: str | None, host: str) -> bool:
    """Check whether a request is safe, comes from one of our pages, or not from a browser.

    Browsers send the site of a request in the header Sec-Fetch-Site, older browsers in Origin;
    other clients send neither.
    """
    if method in _SAFE_METHODS:
        return True
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or origin.partition("://")[2] == host


def get_network(address: str) -> str:
    """Return the addresses of a client: one IPv4 address, or a /64 network of IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    mapped = parsed.ipv4_mapped  # IPv4 clients of a dual-stack socket
    return str(mapped or ipaddress.IPv6Network((int(parsed), 64), strict=False))
