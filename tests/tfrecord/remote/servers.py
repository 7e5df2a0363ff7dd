"""A web server whose behaviour a test chooses, and a proxy that cuts connections."""

from __future__ import annotations

import gzip
import re
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_STEP = 1 << 16
_REFUSAL = b"no" * (1 << 18)  # more than a client buffers


@dataclass
class Line:
    """The behaviour of a proxy, and its counts."""

    cut_after: list[int] = field(default_factory=list)
    """The number of bytes to the client until a connection is cut, for the next connections."""
    hold_after: int | None = None
    """The number of bytes to all clients, after which no more are sent."""
    is_closed: bool = False
    """Whether open connections are cut, and new ones closed at once."""
    requests: list[str] = field(default_factory=list)
    """First lines of requests."""
    sent: int = 0
    """Bytes to clients."""


class Proxy:
    """A proxy of TCP connections to a server."""

    def __init__(self, port: int) -> None:
        self.line = Line()
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def renew(self) -> None:
        """Close all connections, and begin again with a good line."""
        self.line.is_closed = True
        self.line = Line()

    def end(self) -> None:
        self.line.is_closed = True
        self._is_over.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.line.is_closed:
                client.close()
            else:
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        line = self.line
        cut = line.cut_after.pop(0) if line.cut_after else None
        sent = 0
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as up:
            selector = selectors.DefaultSelector()
            for connection in (client, up):
                selector.register(connection, selectors.EVENT_READ)
            while not self._is_over.is_set() and not line.is_closed:
                for key, _ in selector.select(0.05):
                    source: Any = key.fileobj
                    data = source.recv(_STEP)
                    if not data:
                        return
                    if source is client:
                        line.requests += re.findall(r"^([A-Z]+ \S+) HTTP/", data.decode("latin-1"))
                        up.sendall(data)
                        continue
                    while line.hold_after is not None and line.sent >= line.hold_after:
                        if self._is_over.wait(0.02):
                            return
                    if cut is not None and sent + len(data) >= cut:
                        client.sendall(data[: cut - sent])
                        return
                    sent += len(data)
                    line.sent += len(data)  # before the client can have the bytes
                    client.sendall(data)


@dataclass
class Web:
    """The files of a web server, its behaviour and its counts."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Contents by unquoted path; the page of a folder lists its files."""
    has_ranges: bool = True
    says_length: bool = True
    is_packed: bool = False
    """Whether answers are compressed, even if the client does not accept that."""
    status: int | None = None
    """The status of every answer."""
    redirect: str | None = None
    """The address to which every answer redirects."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path with query, and range."""
    sent: int = 0
    cut_after: list[int] = field(default_factory=list)
    """The number of bytes until the connection is closed, for the next answers."""

    def matching(self, path: str) -> bytes | None:
        if path.endswith("/"):
            below = [one[len(path) :] for one in self.files if one.startswith(path)]
            if not below:
                return None
            names = sorted({one.partition("/")[0] + ("/" if "/" in one else "") for one in below})
            links = "".join(f'<a href="{name}">{name}</a>\n' for name in ["../", "?C=N", *names])
            return f"<html><body>{links}</body></html>".encode()
        return self.files.get(path)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def do_GET(self) -> None:
        web, wanted = self.web, self.headers.get("Range", "")
        web.requests.append((self.command, self.path, wanted))
        if web.redirect is not None:
            self._send(302, {"Location": web.redirect}, b"")
            return
        path = unquote(urlsplit(self.path).path)
        data = web.matching(path)
        if web.status is not None or data is None:
            self._send(web.status or 404, {}, _REFUSAL)
            return
        headers = {}
        if web.is_packed:  # ranges count compressed bytes, as in buckets
            headers["Content-Encoding"], data = "gzip", gzip.compress(data, mtime=0)
        status, start, whole = 200, 0, len(data)
        if path.endswith("/"):
            headers["Content-Type"] = "text/html"
        elif web.has_ranges:
            headers["Accept-Ranges"] = "bytes"
            found = re.match(r"bytes=(\d+)-(\d*)", wanted)
            if found and int(found[1]) >= whole:
                self._send(416, {"Content-Range": f"bytes */{whole}"}, b"")
                return
            if found:
                status, start = 206, int(found[1])
                data = data[start : int(found[2]) + 1 if found[2] else None]
                headers["Content-Range"] = f"bytes {start}-{start + len(data) - 1}/{whole}"
        self._send(status, headers, data)

    do_HEAD = do_GET

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        web = self.web
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if web.says_length:
            self.send_header("Content-Length", str(len(data)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = web.cut_after.pop(0) if web.cut_after and status < 300 else None
        data = data[:cut]
        with suppress(OSError):
            for start in range(0, len(data), _STEP):
                piece = data[start : start + _STEP]
                web.sent += len(piece)
                self.wfile.write(
                    piece if web.says_length else b"%x\r\n%b\r\n" % (len(piece), piece)
                )
            if cut is not None:
                self.close_connection = True
            elif not web.says_length:
                self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


class _WebServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # clients may close connections


@contextmanager
def web_server(web: Web) -> Iterator[str]:
    """Run a web server with this behaviour, and yield its address."""
    handler = type("Handler", (_Handler,), {"web": web})
    with _WebServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def silent_server() -> Iterator[str]:
    """Run a server that accepts connections and never answers, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
