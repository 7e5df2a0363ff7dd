"""Requests to a CVAT server by cvat-sdk: timeouts, retries, and errors of one line.

What the bridge looks at itself is read as plain JSON: the models of cvat-sdk are those of one
server version and refuse what another one answers.
"""

from __future__ import annotations

import functools
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from tfod.errors import TfodError

_TRIES = 4  # after the first one
_TRIES_TO_CONNECT = 2
_BACKOFF = 0.5  # seconds, doubled each time
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two pieces of an answer
# Not 500: there CVAT has failed, and will again.
_TRANSIENT = (429, 502, 503, 504)
_REPEATABLE = ("GET", "HEAD", "OPTIONS")
_LONGEST = 500
_CLASS_OF_ERROR = re.compile(r"\A(?:\w+\.)+\w+: ")
_OBJECT = re.compile(r"\A<?[\w.]+\(?[^>]*>: ")
_FINISH = "Upload-Finish"
_NOT_CVATS = (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError)


class ServerError(TfodError):
    """The server, or the way to it, has failed.

    Attributes:
        status: of the answer; 0 where there was none.
        text: what the server said, in one line.
        is_passing: it may go better another time.
    """

    def __init__(self, message: str, status: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text
        self.is_passing = not status or status >= 500


class Server:
    """A CVAT server, after the login.

    Attributes:
        client: of cvat-sdk.
        host: its address, with the scheme.
        version: as it says, for example ``2.73.0``; '' where it does not.
        finishing: an upload was complete and its last request has been sent: from then on the
            server may work with it, whatever becomes of the answer.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.host = str(client.api_map.host)
        self.version = ""
        self.finishing = False
        self._set_timeout_and_retries()

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON that the server has under a path below the host.

        Raises:
            ServerError: there is none; so do the methods below.
        """
        from cvat_sdk.core.helpers import make_request_headers

        url = self.host + path + (f"?{urlencode(parameters)}" if parameters else "")
        with self.errors():
            api_client = self.client.api_client
            headers = make_request_headers(api_client)
            answer = api_client.rest_client.request("GET", url, headers=headers)
        try:
            return json.loads(answer.data)
        except ValueError:
            raise ServerError(
                f"{self.host} answers with something else than JSON; is it a CVAT server?"
            ) from None

    def list(self, path: str, **parameters: Any) -> Iterator[Any]:
        """All results of a list that comes in pages."""
        page = 1
        while True:
            found = self.get(path, page_size=100, **parameters, page=page)
            with self.expected():
                results, more = list(found["results"]), found.get("next")
            yield from results
            if not more:
                return
            page += 1

    @property
    def version_numbers(self) -> tuple[int, int] | None:
        """For example ``(2, 73)``; None where the server does not say."""
        known = re.match(r"(\d+)\.(\d+)", self.version)
        return None if known is None else (int(known[1]), int(known[2]))

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Answers that are not what CVAT's are end in one line."""
        try:
            yield
        except _NOT_CVATS as error:
            raise self._odd(error) from None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what cvat-sdk and urllib3 raise into errors of one line."""
        import urllib3
        from cvat_sdk.api_client.exceptions import ApiException, OpenApiException
        from cvat_sdk.core.exceptions import BackgroundRequestException, CvatSdkException

        try:
            yield
        except ApiException as error:
            raise self._api_error(error) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._network_error(error) from None
        except BackgroundRequestException as error:
            text = one_line(str(error)) or "it does not say why"
            raise TfodError(f"{self.host} has failed: {text}") from None
        except (CvatSdkException, OpenApiException) as error:
            raise ServerError(f"{self.host}: {one_line(str(error))}") from None
        except _NOT_CVATS as error:
            raise self._odd(error) from None

    def _odd(self, error: Exception) -> ServerError:
        text = one_line(f"{type(error).__name__}: {error}")
        return ServerError(f"{self.host} answers what CVAT does not ({text}); is it a CVAT server?")

    def _set_timeout_and_retries(self) -> None:
        """Let urllib3 repeat what may be repeated, and wait for nothing without an end."""
        import urllib3

        rest = self.client.api_client.rest_client
        rest.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(
            total=_TRIES,
            connect=_TRIES_TO_CONNECT,
            other=0,  # a certificate does not get better
            backoff_factor=_BACKOFF,
            status_forcelist=_TRANSIENT,
            allowed_methods=_REPEATABLE,
            raise_on_status=False,
        )
        request = rest.request

        @functools.wraps(request)
        def with_timeout(method: str, url: str, *rest_of: Any, **options: Any) -> Any:
            self.finishing |= _FINISH in (options.get("headers") or {})
            options["_request_timeout"] = options.get("_request_timeout") or _TIMEOUT
            return request(method, url, *rest_of, **options)

        rest.request = with_timeout

    def _api_error(self, error: Any) -> ServerError:
        status = int(error.status or 0)
        if not status:
            return self._network_error(error)
        text = _answer_text(error.body) or one_line(str(error.reason or ""))
        explained = {
            401: f"{self.host} does not know you (401: {text}); set CVAT_ACCESS_TOKEN, or "
            "CVAT_USER and PASS",
            403: f"{self.host} does not allow this (403: {text}); ask for the role, or name the "
            "organization in CVAT_ORGANIZATION",
            404: f"{self.host} does not have it, or does not show it to you (404: {text}); look "
            "at the number and at CVAT_ORGANIZATION",
        }
        if status >= 500:
            message = f"{self.host} has failed ({status}: {text}); try again later"
        else:
            message = explained.get(status) or f"{self.host} refuses ({status}): {text}"
        return ServerError(message, status, text)

    def _network_error(self, error: Exception) -> ServerError:
        text = one_line(str(getattr(error, "reason", None) or error))
        cause = _cause(error)
        if "SSL" in text or "certificate" in text.lower() or isinstance(cause, ssl.SSLError):
            return ServerError(
                f"{self.host}: no secure connection ({text}); look at the address, or name the "
                "server's own certificate in SSL_CERT_FILE"
            )
        # urllib3 begins with the object that it speaks of.
        reason = getattr(cause, "strerror", None) or _OBJECT.sub("", text)
        return ServerError(f"{self.host} cannot be reached ({reason}); look at its address")


def _answer_text(body: bytes | str | None) -> str:
    """What an answer says went wrong, in one line; '' where it says nothing to people."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    try:
        found = json.loads(text)
    except ValueError:
        found = "" if text.lstrip()[:1] == "<" else text  # a page of HTML
    return one_line("; ".join(_texts(found)))


def one_line(text: str) -> str:
    """A text of bounded length in one line; of a traceback the exception at its end."""
    if text.lstrip().startswith("Traceback"):
        text = text.strip().rsplit("\n", 1)[-1]
    line = _CLASS_OF_ERROR.sub("", " ".join(text.split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _texts(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for name, value in found.items():
            plain = name in ("detail", "non_field_errors", "message")
            yield from (text if plain else f"{name}: {text}" for text in _texts(value))
    elif isinstance(found, list):
        for value in found:
            yield from _texts(value)
    elif found is not None:
        yield str(found)


def _cause(error: BaseException) -> BaseException:
    """The system's own error below those of the libraries."""
    for _ in range(10):
        below = getattr(error, "reason", None)
        if not isinstance(below, BaseException):
            last = error.args[-1] if error.args else None
            below = error.__cause__ or error.__context__ or last
        if not isinstance(below, BaseException):
            break
        error = below
    return error
