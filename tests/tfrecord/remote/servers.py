"""A web server on loopback that behaves as it is told, and a bad line to any server."""

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
_REFUSAL = b"no" * (1 << 18)  # more than a client takes in by itself


@dataclass
class Line:
    """What a proxy does with the connections that it takes, and what it has seen."""

    cut_after: list[int] = field(default_factory=list)
    """For each of the next connections: after so many bytes to the client it is cut."""
    hold_after: int | None = None
    """After so many bytes to clients in all nothing more is let through."""
    is_closed: bool = False
    """Connections are taken and closed at once, and those that are open are cut."""
    requests: list[str] = field(default_factory=list)
    """First lines of requests."""
    sent: int = 0
    """Bytes to clients."""


class Proxy:
    """Takes TCP connections and hands them on to a server, through a line that may be bad."""

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
        """Close all connections, and begin anew with a good line."""
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
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        line = self.line
        cut = line.cut_after.pop(0) if line.cut_after else None
        sent = 0
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as up:
            selector = selectors.DefaultSelector()
            selector.register(client, selectors.EVENT_READ)
            selector.register(up, selectors.EVENT_READ)
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
                    client.sendall(data)
                    sent += len(data)
                    line.sent += len(data)


@dataclass
class Web:
    """What a web server has, and how it behaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    """By path, as it is after unquoting; those of a folder are listed in a page."""
    has_ranges: bool = True
    says_length: bool = True
    is_packed: bool = False
    """Whether answers are packed for the way, wanted or not."""
    status: int | None = None
    """Of every answer, in place of what is asked for."""
    redirect: str | None = None
    """Where every answer sends to, in place of what is asked for."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path with query, and range."""
    sent: int = 0
    cut_after: list[int] = field(default_factory=list)
    """For each of the next answers: after so many bytes the connection is closed."""

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

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        web, wanted = self.web, self.headers.get("Range", "")
        web.requests.append((self.command, self.path, wanted))
        if web.redirect is not None:
            self._send(302, {"Location": web.redirect}, b"", with_body)
            return
        path = unquote(urlsplit(self.path).path)
        data = web.matching(path)
        if web.status is not None or data is None:
            self._send(web.status or 404, {}, _REFUSAL, with_body)
            return
        headers = {}
        if web.is_packed:  # ranges are of the packed bytes, as a store's
            headers["Content-Encoding"], data = "gzip", gzip.compress(data, mtime=0)
        status, start, whole = 200, 0, len(data)
        if path.endswith("/"):
            headers["Content-Type"] = "text/html"
        elif web.has_ranges:
            headers["Accept-Ranges"] = "bytes"
            found = re.match(r"bytes=(\d+)-(\d*)", wanted)
            if found and int(found[1]) >= whole:
                self._send(416, {"Content-Range": f"bytes */{whole}"}, b"", with_body)
                return
            if found:
                status, start = 206, int(found[1])
                data = data[start : int(found[2]) + 1 if found[2] else None]
                headers["Content-Range"] = f"bytes {start}-{start + len(data) - 1}/{whole}"
        self._send(status, headers, data, with_body)

    def _send(self, status: int, headers: dict[str, str], data: bytes, with_body: bool) -> None:
        web = self.web
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if web.says_length:
            self.send_header("Content-Length", str(len(data)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if not with_body:
            return
        cut = web.cut_after.pop(0) if web.cut_after and status < 300 else None
        with suppress(OSError):
            for start in range(0, len(data), _STEP):
                piece = data[start : start + _STEP][: None if cut is None else max(cut - start, 0)]
                web.sent += len(piece)
                if piece:
                    head = b"" if web.says_length else b"%x\r\n" % len(piece)
                    self.wfile.write(head + piece + (b"" if web.says_length else b"\r\n"))
                if cut is not None and start + _STEP >= cut:
                    self.close_connection = True
                    return
            if not web.says_length:
                self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


class _WebServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # clients go as they like


@contextmanager
def web_server(web: Web) -> Iterator[str]:
    """A web server that behaves so; gives its address."""
    handler = type("Handler", (_Handler,), {"web": web})
    with _WebServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections and never says a word; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
