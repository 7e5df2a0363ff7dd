"""How one logs in to a CVAT server: by variables of the environment, some of them cvat-cli's own.

``CVAT_HOST`` is its address. ``CVAT_ACCESS_TOKEN`` logs in, or else ``CVAT_USER`` (or ``USER``)
with the password in ``PASS``, which is asked for where there is none. ``CVAT_ORGANIZATION`` is the
short name of an organization. OpenSSL's ``SSL_CERT_FILE`` names a certificate of the server's own.
"""

from __future__ import annotations

import getpass
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfod.cvat.client.server import Server, ServerError
from tfod.errors import TfodError, how_to_install

TOKEN_VARIABLE = "CVAT_ACCESS_TOKEN"
PASSWORD_VARIABLE = "PASS"
HOST_VARIABLE = "CVAT_HOST"
USER_VARIABLE = "CVAT_USER"
ORGANIZATION_VARIABLE = "CVAT_ORGANIZATION"
_OLDEST = (2, 40)
DEFAULT_HOST = "http://localhost"


@contextmanager
def connect(url: str | None = None) -> Iterator[Server]:
    """Log in as the environment says; ``url`` is stronger than what it says of the server.

    Raises:
        TfodError: cvat-sdk is absent, the address makes no sense, or the server does not let us in.
    """
    sdk = _sdk()
    url = (url or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST).rstrip("/")
    logger = logging.getLogger("tfod.cvat.client")
    logger.addHandler(logging.NullHandler())  # cvat-sdk prints tracebacks otherwise
    logger.propagate = False
    try:
        client = sdk.Client(url, logger=logger, check_server_version=False)
    except Exception as error:  # older SDKs look for the server here, newer ones check the URL
        raise TfodError(f"{url}: {error}; look at --server or {HOST_VARIABLE}") from None
    with client:
        server = Server(client)
        server.version = _version(server)
        if server.version_numbers is not None and server.version_numbers < _OLDEST:
            raise TfodError(
                f"{server.host} is CVAT {server.version}; tfod cvat talks to 2.40 and later. Use "
                "TFRecord 1.0 in its own menus (docs/cvat-install.md), or upgrade it"
            )
        _login(sdk, server)
        if ORGANIZATION_VARIABLE in os.environ:  # empty it means the personal workspace
            client.organization_slug = os.environ[ORGANIZATION_VARIABLE]
        yield server


def _version(server: Server) -> str:
    """The server's version, which it tells everybody. Also shows that it is one."""
    found = server.get("/api/server/about")
    return str(found.get("version", "")) if isinstance(found, dict) else ""


def _login(sdk: Any, server: Server) -> None:
    token = os.environ.get(TOKEN_VARIABLE)
    if token:
        if not hasattr(sdk, "AccessTokenCredentials"):
            raise TfodError(
                f"this cvat-sdk is too old for {TOKEN_VARIABLE}; pip install --upgrade cvat-sdk, "
                f"or set {USER_VARIABLE} and {PASSWORD_VARIABLE} in its place"
            )
        server.client.login(sdk.AccessTokenCredentials(token))
        return
    user, password = _credentials(server.host)
    try:
        with server.expected(), server.errors():
            server.client.login((user, password))
    except AssertionError:  # of cvat-sdk, which has looked for its cookies
        raise TfodError(
            f"{server.host} accepts no login by password; is it a CVAT server?"
        ) from None
    except ServerError as error:
        if error.status in (400, 401):
            raise TfodError(
                f"{server.host} does not let {user} in ({error.text}); look at {USER_VARIABLE} and "
                f"{PASSWORD_VARIABLE}"
            ) from None
        raise


def _credentials(host: str) -> tuple[str, str]:
    user = os.environ.get(USER_VARIABLE) or os.environ.get("USER") or getpass.getuser()
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if not password:
        if sys.stdin is None or not sys.stdin.isatty():
            raise TfodError(
                f"no password for {user} at {host}; set {TOKEN_VARIABLE}, or {USER_VARIABLE} and "
                f"{PASSWORD_VARIABLE}"
            )
        password = getpass.getpass(f"Password for {user} at {host}: ")
    return user, password


def _sdk() -> Any:
    try:
        from cvat_sdk.core import client
    except ImportError:
        raise TfodError(
            f"talking to a CVAT server needs cvat-sdk; {how_to_install('cvat')}"
        ) from None
    return client
