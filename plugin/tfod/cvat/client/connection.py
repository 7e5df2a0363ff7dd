"""Login and requests to a CVAT server with cvat-sdk, and its errors as one line.

Environment variables, partly the same as for cvat-cli, select the server and the user; see
``docs/cvat.md``. OpenSSL reads the server's own certificate from ``SSL_CERT_FILE``.

Responses are read as plain JSON where possible: the models of cvat-sdk belong to one version of the
server, reject the responses of other versions, and are slow if a task has many shapes.
"""

from __future__ import annotations

import functools
import getpass
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfod.errors import TfodError, how_to_install
from tfod.tfrecord.progress import BYTES_RECEIVED, BYTES_SENT, PROGRESS
from tfod.tfrecord.storage.urls import is_loopback

TASK, JOB, PROJECT = "task", "job", "project"
KINDS = (TASK, JOB, PROJECT)
HOST_VARIABLE, DEFAULT_HOST = "CVAT_HOST", "http://localhost"
_CHECK_ADDRESS = f"check its address in tfod cvat --server, or in the variable {HOST_VARIABLE}"
TOKEN_VARIABLE = "CVAT_ACCESS_TOKEN"
ORGANIZATION_VARIABLE = "CVAT_ORGANIZATION"
_USER_VARIABLE, _PASSWORD_VARIABLE = "CVAT_USER", "PASS"
_MIN_VERSION = (2, 40)
_FLAT = "2d"
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two parts of a response
_PAUSE = 1.0  # seconds between two requests for the status
_LOCAL = {"location": "local", "use_default_location": "false"}
"""Parameters to bypass the cloud storage that can be a task's default."""
_MAX_TEXT = 500
_CLASS_OF_ERROR = re.compile(r"\A(?:\w+\.)+\w+: ")
# Messages of urllib3 begin with the repr of an object.
_OBJECT = re.compile(r"\A<?[\w.]+\(?[^>]*>: ")


class ServerError(TfodError):
    """A failure of the server or of the connection.

    Attributes:
        status: HTTP status of the response; 0 if there was none.
        text: message of the server, in one line.
    """

    def __init__(self, message: str, status: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


@dataclass(frozen=True)
class Target:
    """A task, a job or a project, by its id."""

    kind: str
    number: int

    @classmethod
    def parse(cls, kind: str, number: str) -> Target:
        """Parse the values of ``--cvat KIND ID``, or raise TfodError."""
        kind = kind.lower()
        if kind not in KINDS or not number.isascii() or not number.isdigit():
            raise TfodError(f"--cvat {kind} {number}: pass {', '.join(KINDS)}, then its number")
        return cls(kind, int(number))

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"

    @property
    def path(self) -> str:
        """The path of its resource in the server's API."""
        return f"/api/{self.kind}s/{self.number}"


class Server:
    """A CVAT server with a logged-in user. All methods raise ServerError if a request fails.

    Attributes:
        host: address with the scheme.
        version: version of CVAT, for example ``2.73.0``; '' if unknown.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.host: str = client.api_map.host
        self.version = ""
        rest_client = client.api_client.rest_client
        request = rest_client.request

        @functools.wraps(request)
        def with_timeout(*arguments: Any, **options: Any) -> Any:
            options["_request_timeout"] = options.get("_request_timeout") or _TIMEOUT
            return request(*arguments, **options)

        rest_client.request = with_timeout  # cvat-sdk has no timeout

    @property
    def version_numbers(self) -> tuple[int, int] | None:
        """The major and minor version, for example ``(2, 73)``, or None if unknown."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return None if match is None else (int(match[1]), int(match[2]))

    def get(self, path: str) -> Any:
        """Return the JSON at a path of the host."""
        from cvat_sdk.core.helpers import make_request_headers

        with self.convert_errors():
            api_client = self.client.api_client
            headers = make_request_headers(api_client)
            response = api_client.rest_client.request("GET", self.host + path, headers=headers)
            return json.loads(response.data)

    def list(self, resource: str, **parameters: Any) -> list[Any]:
        """Return all pages of ``labels`` or ``tasks``, as JSON."""
        from cvat_sdk.core.helpers import get_paginated_collection

        with self.convert_errors():
            endpoint = getattr(self.client.api_client, f"{resource}_api").list_endpoint
            items: list[Any] = get_paginated_collection(
                endpoint, return_json=True, _parse_response=False, page_size=100, **parameters
            )
            return items

    def retrieve(self, target: Target) -> dict[str, Any]:
        """Return the description of a target, or raise TfodError if it is missing or empty."""
        try:
            about = self.get(target.path)
        except ServerError as error:
            if error.status == 404:
                raise TfodError(
                    f"{target} does not exist on {self.host}, or you have no access to it; check "
                    f"the number in its web address, and {ORGANIZATION_VARIABLE}"
                ) from None
            raise
        with self.convert_errors():
            if about["id"] != target.number:
                raise ValueError(f"{target} has the number {about['id']}")
            if target.kind == TASK and not about.get("size"):
                raise TfodError(f"{target} has no data; upload its images first")
            if about.get("dimension") not in (_FLAT, None):
                raise TfodError(f"{target} has {about['dimension']} data; only images have boxes")
            return dict(about)

    def export(self, target: Target, format_name: str, path: str, with_images: bool) -> None:
        """Export a target on the server and download the file, or raise TfodError."""
        from cvat_sdk.core.downloading import Downloader

        downloader = Downloader(self.client)
        api = getattr(self.client.api_client, f"{target.kind}s_api")
        fix = "free some space for the server's file, or set TMPDIR to another folder"
        with self.convert_errors(), convert_write_errors(os.path.dirname(path), fix):
            request = downloader.prepare_file(
                api.create_dataset_export_endpoint,
                url_params={"id": target.number},
                query_params={
                    "format": format_name,
                    "save_images": str(with_images).lower(),
                    **_LOCAL,
                },
                status_check_period=_PAUSE,
            )
            # The server may have another address in its own network.
            parts = urlsplit(str(request.result_url))
            url = self.host + parts.path + (f"?{parts.query}" if parts.query else "")
            downloader.download_file(url, Path(path), pbar=_count_bytes(BYTES_RECEIVED))

    def upload(self, target: Target, path: str, format_name: str, append: bool) -> None:
        """Upload a file and wait until the server has imported it, or raise TfodError.

        The server continues the import after a complete upload, even if the connection fails.
        """
        from cvat_sdk.core.uploading import AnnotationUploader, DatasetUploader

        api = getattr(self.client.api_client, f"{target.kind}s_api")
        uploader, endpoint = AnnotationUploader, "create_annotations_endpoint"
        if target.kind == PROJECT:
            uploader, endpoint = DatasetUploader, "create_dataset_endpoint"
        try:
            with self.convert_errors():
                uploader(self.client).upload_file_and_wait(
                    getattr(api, endpoint),
                    Path(path),
                    format_name,
                    url_params={"id": target.number},
                    conv_mask_to_poly=False,
                    pbar=_count_bytes(BYTES_SENT),
                    status_check_period=_PAUSE,
                    **({"import_mode": "append"} if append else {}),
                )
        except ServerError as error:
            raise TfodError(f"{error}; {describe_pending_import(self, target)}") from None

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Convert exceptions of cvat-sdk and urllib3, and unexpected responses, to TfodError."""
        import urllib3
        from cvat_sdk.api_client.exceptions import ApiException, OpenApiException
        from cvat_sdk.core.exceptions import BackgroundRequestException, CvatSdkException

        unexpected = (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError)
        try:
            yield
        except ApiException as error:
            raise self._api_error(error) if error.status else self._network_error(error) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._network_error(error) from None
        except BackgroundRequestException as error:
            text = one_line(str(error)) or "no reason given"
            raise TfodError(f"{self.host} reported an error: {text}") from None
        except (CvatSdkException, OpenApiException) as error:
            raise ServerError(f"{self.host}: {one_line(str(error))}") from None
        except unexpected as error:
            text = one_line(f"{type(error).__name__}: {error}")
            raise ServerError(
                f"unexpected response from {self.host} ({text}); is it a CVAT server? If not, "
                f"{_CHECK_ADDRESS}"
            ) from None

    def _api_error(self, error: Any) -> ServerError:
        status = int(error.status)
        text = _extract_message(error.body) or one_line(str(error.reason))
        explained = {
            401: f"not logged in (401: {text}); set {TOKEN_VARIABLE}, or {_USER_VARIABLE} and "
            f"{_PASSWORD_VARIABLE}",
            403: f"permission denied (403: {text}); ask for the role, or set the organization in "
            f"{ORGANIZATION_VARIABLE}",
            404: f"not found, or you have no access to it (404: {text}); check the number and "
            f"{ORGANIZATION_VARIABLE}",
        }
        if status >= 500:
            message = f"server error ({status}: {text}); try again later"
        else:
            message = explained.get(status) or f"request rejected ({status}): {text}"
        return ServerError(f"{self.host}: {message}", status, text)

    def _network_error(self, error: Exception) -> ServerError:
        text = _OBJECT.sub("", one_line(str(getattr(error, "reason", None) or error)))
        if "SSL" in text or "certificate" in text.lower():
            return ServerError(
                f"{self.host}: no secure connection ({text}); check the address, or set "
                "SSL_CERT_FILE to the server's own certificate"
            )
        return ServerError(f"{self.host} cannot be reached ({text}); {_CHECK_ADDRESS}")


def describe_pending_import(server: Server, target: Target) -> str:
    """Return the warning after an upload that ended early, by an error or by Ctrl-C."""
    return (
        f"if the upload was complete, {server.host} may still be importing it; check {target} "
        "before you try again"
    )


@contextmanager
def connect(url: str | None = None, *, insecure: bool = False) -> Iterator[Server]:
    """Log in to the server at ``url``, or to the one in the environment, or raise TfodError.

    A token or password is sent over ``http://`` only to this machine, unless ``insecure`` is set.
    """
    try:
        from cvat_sdk.core import client as sdk
    except ImportError:
        raise TfodError(f"access to CVAT needs cvat-sdk; {how_to_install('cvat')}") from None
    url = (url or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST).rstrip("/")
    logger = logging.getLogger("tfod.cvat.client")
    logger.addHandler(logging.NullHandler())  # prevents tracebacks of cvat-sdk
    logger.propagate = False
    try:
        client = sdk.Client(url, logger=logger, check_server_version=False)
    except Exception as error:  # cvat-sdk checks the URL
        raise TfodError(f"{url}: {error}; {_CHECK_ADDRESS}") from None
    with client:
        server = Server(client)
        try:
            about = server.get("/api/server/about")  # needs no login
        except ServerError as error:
            if error.status == 404:
                raise TfodError(f"{server.host} is not a CVAT server; {_CHECK_ADDRESS}") from None
            raise
        server.version = str(about.get("version", "")) if isinstance(about, dict) else ""
        if server.version_numbers is not None and server.version_numbers < _MIN_VERSION:
            raise TfodError(
                f"{server.host} runs CVAT {server.version}; tfod cvat needs 2.40 or later. Upgrade "
                "it, or use TFRecord 1.0 in its own menus (docs/cvat-install.md)"
            )
        address = urlsplit(server.host)
        if address.scheme == "http" and not (insecure or is_loopback(address.hostname or "")):
            raise TfodError(
                f"{server.host}: over http://, others can read your token or password; use "
                "https://, or run tfod cvat export or import with --insecure"
            )
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            client.login(sdk.AccessTokenCredentials(token))
        else:
            _login_by_password(server)
        if ORGANIZATION_VARIABLE in os.environ:  # an empty value selects the personal workspace
            client.organization_slug = os.environ[ORGANIZATION_VARIABLE]
        yield server


def _login_by_password(server: Server) -> None:
    user = os.environ.get(_USER_VARIABLE) or os.environ.get("USER") or getpass.getuser()
    password = os.environ.get(_PASSWORD_VARIABLE, "")
    if not password:
        if sys.stdin is None or not sys.stdin.isatty():
            raise TfodError(
                f"no password for {user} at {server.host}; set {TOKEN_VARIABLE}, or "
                f"{_USER_VARIABLE} and {_PASSWORD_VARIABLE}"
            )
        PROGRESS.is_hidden = True
        password = getpass.getpass(f"Password for {user} at {server.host}: ")
        PROGRESS.is_hidden = False
    try:
        with server.convert_errors():
            server.client.login((user, password))
    except ServerError as error:
        if error.status in (400, 401):
            raise TfodError(
                f"{server.host}: login of {user} failed ({error.text}); check {_USER_VARIABLE} and "
                f"{_PASSWORD_VARIABLE}"
            ) from None
        raise


def _extract_message(body: bytes | str | None) -> str:
    """Return the error message of a response in one line, or '' if it has none for users."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    try:
        message = json.loads(text)
    except ValueError:
        return "" if text.lstrip()[:1] == "<" else one_line(text)  # HTML is not for users
    parts = message.values() if isinstance(message, dict) else [message]
    lists = (part if isinstance(part, list) else [part] for part in parts)
    return one_line("; ".join(str(text) for texts in lists for text in texts))


def one_line(text: str) -> str:
    """Join the lines of a text and truncate it; keep only the last line of a traceback."""
    if text.lstrip().startswith("Traceback"):
        text = text.strip().rsplit("\n", 1)[-1]
    line = _CLASS_OF_ERROR.sub("", " ".join(text.split()))
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


def _count_bytes(description: str) -> Any:
    """Return a reporter of cvat-sdk that counts the bytes of a transfer."""
    from cvat_sdk.core.progress import NullProgressReporter

    reporter = NullProgressReporter()
    reporter.advance = functools.partial(PROGRESS.add, description)
    return reporter


@contextmanager
def convert_write_errors(path: str, fix: str) -> Iterator[None]:
    """Convert errors of the operating system while writing to TfodError."""
    try:
        yield
    except OSError as error:
        raise TfodError(f"{path}: cannot be written ({error.strerror}); {fix}") from None
