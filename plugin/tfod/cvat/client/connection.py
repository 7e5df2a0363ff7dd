"""A CVAT server by cvat-sdk: how one logs in, what one asks it, and its errors in one line.

Variables of the environment say where and who, some of them cvat-cli's own. ``CVAT_HOST`` is the
server's address. ``CVAT_ACCESS_TOKEN`` logs in, or else ``CVAT_USER`` (or ``USER``) with the
password in ``PASS``, which is asked for where there is none. ``CVAT_ORGANIZATION`` is the short
name of an organization. OpenSSL's ``SSL_CERT_FILE`` names a certificate of the server's own.

What is looked at here is read as plain JSON: the models of cvat-sdk are those of one version of the
server, refuse what another one answers, and are slow where a task has many shapes.
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

TASK, JOB, PROJECT = "task", "job", "project"
KINDS = (TASK, JOB, PROJECT)
HOST_VARIABLE, DEFAULT_HOST = "CVAT_HOST", "http://localhost"
TOKEN_VARIABLE = "CVAT_ACCESS_TOKEN"
ORGANIZATION_VARIABLE = "CVAT_ORGANIZATION"
_USER_VARIABLE, _PASSWORD_VARIABLE = "CVAT_USER", "PASS"
_OLDEST = (2, 40)
_FLAT = "2d"
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two pieces of an answer
_PAUSE = 1.0  # seconds between two questions whether the server is done
_LOCAL = {"location": "local", "use_default_location": "false"}
"""Not by way of the cloud storage that a task may have as its default."""
_LONGEST = 500
_CLASS_OF_ERROR = re.compile(r"\A(?:\w+\.)+\w+: ")
_OBJECT = re.compile(r"\A<?[\w.]+\(?[^>]*>: ")  # urllib3 begins with the object that it speaks of


class ServerError(TfodError):
    """The server, or the way to it, has failed.

    Attributes:
        status: of the answer; 0 where there was none.
        text: what the server said, in one line.
    """

    def __init__(self, message: str, status: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


@dataclass(frozen=True)
class Target:
    """A task, a job or a project by its number."""

    kind: str
    number: int

    @classmethod
    def typed(cls, kind: str, number: str) -> Target:
        """What ``--cvat KIND ID`` names. Raises TfodError where that is nothing."""
        if kind not in KINDS or not number.isascii() or not number.isdigit():
            raise TfodError(f"--cvat {kind} {number}: name {', '.join(KINDS)}, then its number")
        return cls(kind, int(number))

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"

    @property
    def path(self) -> str:
        """Where the server has it."""
        return f"/api/{self.kind}s/{self.number}"


class Server:
    """A CVAT server, after the login. All methods raise ServerError where it fails, or we fail it.

    Attributes:
        client: of cvat-sdk.
        host: its address, with the scheme.
        version: as it says, for example ``2.73.0``; '' where it does not.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.host: str = client.api_map.host
        self.version = ""
        rest = client.api_client.rest_client
        request = rest.request

        @functools.wraps(request)
        def with_timeout(*arguments: Any, **options: Any) -> Any:
            options["_request_timeout"] = options.get("_request_timeout") or _TIMEOUT
            return request(*arguments, **options)

        rest.request = with_timeout  # cvat-sdk would wait without an end

    @property
    def version_numbers(self) -> tuple[int, int] | None:
        """For example ``(2, 73)``; None where the server does not say."""
        known = re.match(r"(\d+)\.(\d+)", self.version)
        return None if known is None else (int(known[1]), int(known[2]))

    def get(self, path: str) -> Any:
        """The JSON at a path below the host."""
        from cvat_sdk.core.helpers import make_request_headers

        with self.errors():
            api_client = self.client.api_client
            headers = make_request_headers(api_client)
            answer = api_client.rest_client.request("GET", self.host + path, headers=headers)
            return json.loads(answer.data)

    def list(self, of: str, **parameters: Any) -> list[Any]:
        """All results of a list that comes in pages: ``labels`` or ``tasks``, as JSON."""
        from cvat_sdk.core.helpers import get_paginated_collection

        with self.errors():
            endpoint = getattr(self.client.api_client, f"{of}_api").list_endpoint
            found: list[Any] = get_paginated_collection(
                endpoint, return_json=True, _parse_response=False, page_size=100, **parameters
            )
            return found

    def retrieve(self, target: Target) -> dict[str, Any]:
        """What the server says of a task, a job or a project.

        Raises:
            TfodError: the server does not have it, or it has no images.
        """
        try:
            about = self.get(target.path)
        except ServerError as error:
            if error.status == 404:
                raise TfodError(
                    f"{self.host} has no {target}, or does not show it to you; look at the number "
                    f"in the address of its page, and at {ORGANIZATION_VARIABLE}"
                ) from None
            raise
        with self.errors():
            if about["id"] != target.number:
                raise ValueError(f"{target} has the number {about['id']}")
            if target.kind == TASK and not about.get("size"):
                raise TfodError(f"{target} has no data; upload its images first")
            if about.get("dimension") not in (_FLAT, None):
                raise TfodError(f"{target} has {about['dimension']} data; only images have boxes")
            return dict(about)

    def export(self, target: Target, format_name: str, path: str, with_images: bool) -> None:
        """Let the server export, and fetch the file.

        Raises:
            TfodError: the file cannot be written.
        """
        from cvat_sdk.core.downloading import Downloader

        downloader = Downloader(self.client)
        api = getattr(self.client.api_client, f"{target.kind}s_api")
        fix = "make room for the server's file, or name another folder in TMPDIR"
        with self.errors(), writing(os.path.dirname(path), fix):
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
            # The server may not know the address that it is seen at from here.
            parts = urlsplit(str(request.result_url))
            url = self.host + parts.path + (f"?{parts.query}" if parts.query else "")
            downloader.download_file(url, Path(path), pbar=_bar())

    def upload(self, target: Target, path: str, format_name: str, append: bool) -> None:
        """Upload a file, and wait until the server has imported it, in one transaction.

        Raises:
            TfodError: it was not imported, with the server's reason, or that is not known: until
                the upload is complete nothing happens to the task, and then the server goes on
                whatever becomes of its answer.
        """
        from cvat_sdk.core.uploading import AnnotationUploader, DatasetUploader

        api = getattr(self.client.api_client, f"{target.kind}s_api")
        options: dict[str, Any] = {
            "url_params": {"id": target.number},
            "conv_mask_to_poly": False,
            "pbar": _bar(),
            "status_check_period": _PAUSE,
        }
        try:
            with self.errors():
                if target.kind == PROJECT:
                    DatasetUploader(self.client).upload_file_and_wait(
                        api.create_dataset_endpoint, Path(path), format_name, **options
                    )
                else:
                    if append:
                        options["import_mode"] = "append"
                    AnnotationUploader(self.client).upload_file_and_wait(
                        api.create_annotations_endpoint, Path(path), format_name, **options
                    )
        except ServerError as error:
            raise TfodError(f"{error}; {may_go_on(self, target)}") from None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what cvat-sdk and urllib3 raise, and answers that are not CVAT's, into one line."""
        import urllib3
        from cvat_sdk.api_client.exceptions import ApiException, OpenApiException
        from cvat_sdk.core.exceptions import BackgroundRequestException, CvatSdkException

        odd = (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError)
        try:
            yield
        except ApiException as error:
            raise self._api_error(error) if error.status else self._network_error(error) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._network_error(error) from None
        except BackgroundRequestException as error:
            text = one_line(str(error)) or "it does not say why"
            raise TfodError(f"{self.host} has failed: {text}") from None
        except (CvatSdkException, OpenApiException) as error:
            raise ServerError(f"{self.host}: {one_line(str(error))}") from None
        except odd as error:
            text = one_line(f"{type(error).__name__}: {error}")
            raise ServerError(
                f"{self.host} answers what CVAT does not ({text}); is it a CVAT server?"
            ) from None

    def _api_error(self, error: Any) -> ServerError:
        status, text = int(error.status), _answer_text(error.body) or one_line(str(error.reason))
        explained = {
            401: f"{self.host} does not know you (401: {text}); set {TOKEN_VARIABLE}, or "
            f"{_USER_VARIABLE} and {_PASSWORD_VARIABLE}",
            403: f"{self.host} does not allow this (403: {text}); ask for the role, or name the "
            f"organization in {ORGANIZATION_VARIABLE}",
            404: f"{self.host} does not have it, or does not show it to you (404: {text}); look "
            f"at the number and at {ORGANIZATION_VARIABLE}",
        }
        if status >= 500:
            message = f"{self.host} has failed ({status}: {text}); try again later"
        else:
            message = explained.get(status) or f"{self.host} refuses ({status}): {text}"
        return ServerError(message, status, text)

    def _network_error(self, error: Exception) -> ServerError:
        text = _OBJECT.sub("", one_line(str(getattr(error, "reason", None) or error)))
        if "SSL" in text or "certificate" in text.lower():
            return ServerError(
                f"{self.host}: no secure connection ({text}); look at the address, or name the "
                "server's own certificate in SSL_CERT_FILE"
            )
        return ServerError(f"{self.host} cannot be reached ({text}); look at its address")


def may_go_on(server: Server, target: Target) -> str:
    """What is to be said of an upload that has ended by itself, or by Ctrl-C."""
    return (
        f"if the upload was complete, {server.host} goes on with its import: look at {target} "
        "before you repeat this"
    )


@contextmanager
def connect(url: str | None = None) -> Iterator[Server]:
    """Log in as the environment says; ``url`` is stronger than what it says of the server.

    Raises:
        TfodError: cvat-sdk is absent, the address makes no sense, or the server does not let us in.
    """
    try:
        from cvat_sdk.core import client as sdk
    except ImportError:
        raise TfodError(
            f"talking to a CVAT server needs cvat-sdk; {how_to_install('cvat')}"
        ) from None
    url = (url or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST).rstrip("/")
    logger = logging.getLogger("tfod.cvat.client")
    logger.addHandler(logging.NullHandler())  # cvat-sdk prints tracebacks otherwise
    logger.propagate = False
    try:
        client = sdk.Client(url, logger=logger, check_server_version=False)
    except Exception as error:  # it checks the URL
        raise TfodError(f"{url}: {error}; look at --server or {HOST_VARIABLE}") from None
    with client:
        server = Server(client)
        about = server.get("/api/server/about")  # which it tells everybody
        server.version = str(about.get("version", "")) if isinstance(about, dict) else ""
        if server.version_numbers is not None and server.version_numbers < _OLDEST:
            raise TfodError(
                f"{server.host} is CVAT {server.version}; tfod cvat talks to 2.40 and later. Use "
                "TFRecord 1.0 in its own menus (docs/cvat-install.md), or upgrade it"
            )
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            client.login(sdk.AccessTokenCredentials(token))
        else:
            _login_by_password(server)
        if ORGANIZATION_VARIABLE in os.environ:  # empty it means the personal workspace
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
        password = getpass.getpass(f"Password for {user} at {server.host}: ")
    try:
        with server.errors():
            server.client.login((user, password))
    except ServerError as error:
        if error.status in (400, 401):
            raise TfodError(
                f"{server.host} does not let {user} in ({error.text}); look at {_USER_VARIABLE} "
                f"and {_PASSWORD_VARIABLE}"
            ) from None
        raise


def _answer_text(body: bytes | str | None) -> str:
    """What an answer says went wrong, in one line; '' where it says nothing to people."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    try:
        found = json.loads(text)
    except ValueError:
        return "" if text.lstrip()[:1] == "<" else one_line(text)  # a page of HTML
    parts = found.values() if isinstance(found, dict) else [found]
    lists = (one if isinstance(one, list) else [one] for one in parts)
    return one_line("; ".join(str(one) for some in lists for one in some))


def one_line(text: str) -> str:
    """A text of bounded length in one line; of a traceback the exception at its end."""
    if text.lstrip().startswith("Traceback"):
        text = text.strip().rsplit("\n", 1)[-1]
    line = _CLASS_OF_ERROR.sub("", " ".join(text.split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _bar() -> Any:
    """cvat-sdk's own bar, on standard error if that is a terminal."""
    from cvat_sdk.core.helpers import DeferredTqdmProgressReporter

    disable = None if sys.stderr is not None else True  # tqdm: None is "not on a terminal"
    options = {"file": sys.stderr, "leave": False, "dynamic_ncols": True, "disable": disable}
    return DeferredTqdmProgressReporter(options)


@contextmanager
def writing(where: str, fix: str) -> Iterator[None]:
    """Turn what the system says against writing into a TfodError of one line."""
    try:
        yield
    except OSError as error:
        raise TfodError(f"{where}: cannot be written ({error.strerror}); {fix}") from None
