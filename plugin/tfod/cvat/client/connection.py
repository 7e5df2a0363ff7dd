"""How one logs in to a CVAT server: the options of cvat-cli, by the names they have there."""

from __future__ import annotations

import argparse
import getpass
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tfod.cvat.client.server import Server, ServerError
from tfod.errors import TfodError, how_to_install

TOKEN_VARIABLE = "CVAT_ACCESS_TOKEN"
PASSWORD_VARIABLE = "PASS"
_DEFAULT_HOST = "http://localhost"


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which server, and as whom; cvat-cli has the same."""
    group = parser.add_argument_group("the CVAT server")
    group.add_argument(
        "--server-host",
        metavar="URL",
        help=f"for example https://app.cvat.ai (default: {_DEFAULT_HOST})",
    )
    group.add_argument("--server-port", type=int, metavar="N", help="where it is not the usual one")
    group.add_argument(
        "--auth",
        metavar="USER[:PASS]",
        help=f"without a password it is taken from {PASSWORD_VARIABLE}, or asked for; without this "
        f"option {TOKEN_VARIABLE} is used",
    )
    group.add_argument(
        "--organization",
        "--org",
        metavar="SLUG",
        help="short name of the organization; '' for the personal workspace",
    )
    group.add_argument(
        "--insecure", action="store_true", help="do not check the server's certificate"
    )


@contextmanager
def connect(arguments: argparse.Namespace) -> Iterator[Server]:
    """Log in as the options and the environment say.

    Raises:
        TfodError: cvat-sdk is absent, the options make no sense, or the server does not let us in.
    """
    sdk = _sdk()
    if arguments.insecure:  # the user has been warned; once a request is no help
        import urllib3

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    url = server_url(arguments.server_host, arguments.server_port)
    logger = logging.getLogger("tfod.cvat.client")
    logger.addHandler(logging.NullHandler())  # cvat-sdk prints tracebacks otherwise
    logger.propagate = False
    try:
        config = sdk.Config(verify_ssl=not arguments.insecure)
        client = sdk.Client(url, logger=logger, config=config, check_server_version=False)
    except Exception as error:  # older SDKs look for the server here, newer ones check the URL
        raise TfodError(f"{url}: {error}; look at --server-host") from None
    with client:
        server = Server(client)
        server.version = _version(server)
        _login(sdk, server, arguments.auth)
        if arguments.organization is not None:
            client.organization_slug = arguments.organization
        yield server


def server_url(host: str | None, port: int | None) -> str:
    """The server's address from host and port. Raises TfodError: both name a port."""
    url = (host or _DEFAULT_HOST).rstrip("/")
    if port is None:
        return url
    if urlsplit(url if "://" in url else f"https://{url}").port:
        raise TfodError(f"--server-host {host} names a port already; leave out --server-port")
    return f"{url}:{port}"


def _version(server: Server) -> str:
    """The server's version, which it tells everybody. Also shows that it is one."""
    found = server.get("/api/server/about")
    return str(found.get("version", "")) if isinstance(found, dict) else ""


def _login(sdk: Any, server: Server, auth: str | None) -> None:
    token = os.environ.get(TOKEN_VARIABLE)
    if auth is None and token:
        if not hasattr(sdk, "AccessTokenCredentials"):
            raise TfodError(
                f"this cvat-sdk is too old for {TOKEN_VARIABLE}; pip install --upgrade cvat-sdk, "
                "or give --auth USER:PASS"
            )
        server.client.login(sdk.AccessTokenCredentials(token))
        return
    user, password = server.credentials = _credentials(auth, server.host)
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
                f"{server.host} does not let {user} in ({error.text}); look at --auth"
            ) from None
        raise


def _credentials(auth: str | None, host: str) -> tuple[str, str]:
    user, _, password = (auth or getpass.getuser()).partition(":")
    password = password or os.environ.get(PASSWORD_VARIABLE, "")
    if not password:
        if sys.stdin is None or not sys.stdin.isatty():
            raise TfodError(
                f"no password for {user} at {host}; give --auth USER:PASS, or set "
                f"{PASSWORD_VARIABLE} or {TOKEN_VARIABLE}"
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
