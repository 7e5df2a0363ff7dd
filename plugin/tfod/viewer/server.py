"""The local server of ``tfod show --serve``: the page of the viewer, and answers of its session.

It listens on the loopback interface only. Every address contains a secret token, and the host name
must be that of this machine, so that other users and other websites cannot read the images.
"""

from __future__ import annotations

import hmac
import html
import json
import secrets
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import unquote

from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.html import report_css
from tfod.errors import TfodError
from tfod.version import __version__
from tfod.viewer.session import METHODS, Session

_HOST = "127.0.0.1"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_IDLE_SECONDS = 60


def serve(
    session: Session, title: str, port: int, fragment: str, announce: Callable[[str], None]
) -> None:
    """Check the shards of a session, and serve its viewer until Ctrl-C.

    Args:
        session: session in which no step was taken.
        title: heading of the page.
        port: port to listen on; 0 for any free one.
        fragment: end of the address: the filters to begin with, or "".
        announce: function that is called with the address of the page.

    Raises TfodError if the port cannot be used.
    """
    token = secrets.token_urlsafe()
    try:
        server = _Server((_HOST, port), partial(_Handler, session, title, token))
    except OSError as error:
        reason = f"cannot listen on {_HOST} port {port}: {error.strerror}"
        raise TfodError(f"{reason}; choose another with --port") from None
    stopping = threading.Event()
    thread = threading.Thread(target=_check, args=(session, stopping), daemon=True)
    with server, suppress(KeyboardInterrupt):
        try:
            thread.start()
            announce(f"http://{_HOST}:{server.server_address[1]}/{token}/{fragment}")
            server.serve_forever()
        finally:
            stopping.set()
            thread.join()


def _check(session: Session, stopping: threading.Event) -> None:
    with suppress(TfodError, OSError):  # the page shows it
        for _ in session.steps():
            if stopping.is_set():
                return


class _Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, except for connections that the browser has closed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """The answers to requests that have the token."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def __init__(self, session: Session, title: str, token: str, *connection: Any) -> None:
        self._session, self._title, self._token = session, title, token
        super().__init__(*connection)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        token, _, name = path.removeprefix("/").partition("/")
        port = self.connection.getsockname()[1]
        is_local = self.headers.get("Host") in (f"{_HOST}:{port}", f"localhost:{port}")
        if not is_local or not hmac.compare_digest(token.encode(), self._token.encode()):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif name in METHODS:
            self._answer(name, unquote(query))
        elif name == "report.css":
            self._send("text/css", report_css())
        elif not name or name in _FILES:
            text = files("tfod.viewer").joinpath(f"page/{name or _PAGE}").read_text("utf-8")
            if not name:
                text = text.replace("{version}", __version__)
                text = text.replace("{title}", html.escape(visible(self._title)))
            self._send(_TYPES[(name or _PAGE).rpartition(".")[2]], text)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, method: str, query: str) -> None:
        status = HTTPStatus.OK
        try:
            answer = self._session.answer(method, dict(json.loads(query or "{}")))
        except (TfodError, ValueError, TypeError, RecursionError) as error:
            status, answer = HTTPStatus.BAD_REQUEST, {"error": visible(str(error))}
        self._send("application/json", json.dumps(answer), status)

    def send_error(self, code: int, *_: Any) -> None:
        """Answer with a sentence instead of a page."""
        text = {
            HTTPStatus.FORBIDDEN: "This needs the address that tfod show --serve has printed.",
            HTTPStatus.NOT_FOUND: "This page does not exist.",
        }.get(HTTPStatus(code), "tfod show --serve does not answer such requests.")
        self.close_connection = True
        self._send("text/plain", f"{text}\n", code)

    def _send(self, media_type: str, text: str, status: int = HTTPStatus.OK) -> None:
        data = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{media_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        return "tfod"

    def log_message(self, *_: Any) -> None:
        """Print nothing: the address contains the token."""


_PAGE = "viewer.html"
_FILES = ("viewer.js", "viewer.css", "serve.js")
