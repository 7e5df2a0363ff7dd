"""The guard: rejects requests in waitress before their bodies are stored on the disk.

waitress stores a whole body before Flask gets the request. These subclasses of its channel and
parser close surplus connections of a client, and reject requests earlier: by their headers if they
have no token or a body that exceeds the limit or the disk, and later if the body becomes too long
or arrives too slowly. The application answers rejected requests; a header contains the reason.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.receiver import ChunkedReceiver

from tfod_validator.access import get_network, is_allowed
from tfod_validator.folder import DataFolder
from tfod_validator.settings import Settings

REJECTED = "TFOD_REFUSED"
"""The header with the reason why the guard rejected a request."""
_UPLOAD_PATHS = ("/api/v1/validations", "/validations")
_MAX_OTHER_BYTES = 64 << 10
_HEAD_SECONDS = 30.0
_MIN_RATE = 1000  # bytes per second of a body, after _HEAD_SECONDS
_COPIES = 2  # of a body: one of waitress, and the files of the form
_PIECE_BYTES = 8192  # of a chunked body: waitress needs quadratic time for many chunks
_MAX_LINE_BYTES = 65_536  # of a chunk size or trailer, which waitress keeps in memory
_SELF_SECONDS = 30.0
_TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 10\r\n"
    b"Content-Length: 50\r\nConnection: close\r\n\r\n"
    b"There are too many connections from this address.\n"
)


@dataclass(eq=False)
class Guard:
    """The state that all connections of a server share."""

    settings: Settings
    connections: Counter[str] = field(default_factory=Counter)
    arriving: set[Parser] = field(default_factory=set)

    def has_space(self) -> bool:
        """Check whether the disk has space for all arriving bodies and their copies."""
        parsers = list(self.arriving)
        missing = sum(_COPIES * parser.length - parser.body_bytes_received for parser in parsers)
        return DataFolder(self.settings).free_bytes() > missing + self.settings.min_free_bytes


class Channel(HTTPChannel):
    """A connection, which is closed with an error if its client has too many."""

    def __init__(self, guard: Guard, server: Any, sock: Any, addr: Any, adj: Any, map: Any) -> None:
        self.guard, self.network = guard, get_network(addr[0])
        super().__init__(server, sock, addr, adj, map=map)
        # waitress only calls it, but its stubs require a class.
        self.parser_class = partial(Parser, guard)  # type: ignore[assignment]
        guard.connections[self.network] += 1
        is_surplus = guard.connections[self.network] > guard.settings.max_connections
        if is_surplus and not guard.settings.is_proxy(addr[0]):
            self.outbufs[-1].append(_TOO_MANY)
            self.total_outbufs_len += len(_TOO_MANY)
            self.close_when_flushed = True

    def handle_close(self) -> None:
        """Remove the connection and its incomplete request from the guard."""
        if self.network:  # it may be closed twice
            self.guard.connections[self.network] -= 1
            self.guard.connections += Counter()  # removes zero counts
            self.network = ""
        if self.request is not None:
            self.request.close()
        super().handle_close()


class Parser(HTTPRequestParser):
    """A request, which is completed without its body when it is rejected."""

    headers: dict[str, str]
    path: str

    def __init__(self, guard: Guard, adj: Any) -> None:
        super().__init__(adj)
        self.guard, self.started, self.is_checked = guard, time.monotonic(), False

    @property
    def length(self) -> int:
        """The size of the body in bytes; for a chunked body, the bytes received so far."""
        return max(self.content_length, self.body_bytes_received)

    def received(self, data: bytes) -> int:
        """Parse bytes and return how many were used: all of them if the request is rejected.

        A request that is pipelined before another one is the last of its connection: otherwise
        unread responses would accumulate.
        """
        taken: int = super().received(data[:_PIECE_BYTES] if self.chunked else data)
        if self.completed:
            self.expect_continue = False  # the body is already here
        if self.error or self.empty or not (reason := self._find_reason()):
            if self.completed and not self.empty and taken < len(data):
                self.headers["CONNECTION"], taken = "close", len(data)
            return taken
        self.close()
        if not self.headers_finished:
            self.parse_header(b"GET / HTTP/1.1\r\n")
        self.headers |= {REJECTED: reason, "CONNECTION": "close", "CONTENT_LENGTH": "0"}
        self.body_rcv, self.expect_continue = None, False
        self.headers_finished = self.completed = True
        return len(data)

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the headers; waitress does not expect URLs such as ``http://[``."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError(str(error)) from None

    def _find_reason(self) -> str:
        """Return the reason to reject the request, as received so far, or ""."""
        settings, seconds = self.guard.settings, time.monotonic() - self.started
        if not self.headers_finished:
            return "head_seconds" if seconds > _HEAD_SECONDS else ""
        is_first, self.is_checked = not self.is_checked, True
        if is_first:
            self.headers.pop(REJECTED, None)  # only the guard may set it
            if not is_allowed(self.path, self.headers.get("AUTHORIZATION", ""), settings.token):
                return "token"
        if self.body_rcv is None:
            return ""
        self.guard.arriving.add(self)
        body = self.body_rcv
        line = body.control_line + body.trailer if isinstance(body, ChunkedReceiver) else b""
        max_bytes = settings.max_body_bytes if self.path in _UPLOAD_PATHS else _MAX_OTHER_BYTES
        if self.length > max_bytes or len(line) > _MAX_LINE_BYTES:
            return "max_body_bytes"
        is_slow = self.body_bytes_received < _MIN_RATE * (seconds - _HEAD_SECONDS)
        if is_slow or seconds > settings.max_upload_seconds:
            return "max_upload_seconds"
        has_space = not (is_first or self.chunked) or self.guard.has_space()
        return "" if has_space else "min_free_bytes"

    def close(self) -> None:
        """Release the reserved disk space, and discard the body."""
        self.guard.arriving.discard(self)
        super().close()


def is_in_path(address: tuple[Any, ...]) -> bool:
    """Send a request to a server, and check whether the guard removes a header that rejects it.

    The guard depends on classes and attributes of waitress that another version may rename.
    """
    header = f"{REJECTED.replace('_', '-')}: token"
    request = f"GET /healthz HTTP/1.0\r\nHost: localhost\r\n{header}\r\n\r\n"
    with suppress(OSError), socket.create_connection(address[:2], _SELF_SECONDS) as connection:
        connection.sendall(request.encode())
        with connection.makefile("rb") as response:
            return response.read().split(None, 2)[1:2] == [b"200"]
    return False
