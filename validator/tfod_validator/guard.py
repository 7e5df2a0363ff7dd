"""The guard: what waitress refuses before the body of a request is on the disk.

waitress takes a body whole before Flask sees the request. So its channels and parsers, which it
lets one name, refuse earlier: a connection of an address that has many; by the head of a request
what has no token, is too long, or finds no room on the disk; and while a body arrives what becomes
too long, or takes too much time. The application answers a request that was refused, whose header
says why.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.receiver import ChunkedReceiver

from tfod_validator.access import is_allowed, network_of
from tfod_validator.folder import DataFolder
from tfod_validator.settings import Settings

REFUSED = "TFOD_REFUSED"
"""The header by which the guard says that it has refused a request, and why."""
_UPLOADS = ("/api/v1/validations", "/validations")
_LONGEST_OTHER = 64 << 10
_HEAD_SECONDS = 30.0
_LEAST_RATE = 1000  # bytes a second, of a body whose head came so long ago
_COPIES = 2  # of a body: waitress's, and the files of the form
_PIECE = 8192  # of a chunked body: waitress's time for many chunks grows with the square
_LONGEST_LINE = 65_536  # of a chunk's length or the trailer, which waitress keeps in memory
_TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 10\r\n"
    b"Content-Length: 50\r\nConnection: close\r\n\r\n"
    b"There are too many connections from this address.\n"
)


@dataclass(eq=False)
class Guard:
    """What all connections of a server share."""

    settings: Settings
    connections: Counter[str] = field(default_factory=Counter)
    arriving: set[Parser] = field(default_factory=set)

    def has_room(self) -> bool:
        """Whether the disk has room for all that arrives, of which there will be copies."""
        missing = sum(_COPIES * one.length - one.body_bytes_received for one in list(self.arriving))
        return DataFolder(self.settings).free_bytes() > missing + self.settings.min_free_bytes


class Channel(HTTPChannel):
    """A connection; one too many of an address is told so, and closed."""

    def __init__(self, guard: Guard, server: Any, sock: Any, addr: Any, adj: Any, map: Any) -> None:
        self.guard, self.network = guard, network_of(addr[0])
        super().__init__(server, sock, addr, adj, map=map)
        # waitress only calls it; its stubs want a class.
        self.parser_class = partial(Parser, guard)  # type: ignore[assignment]
        guard.connections[self.network] += 1
        is_many = guard.connections[self.network] > guard.settings.max_connections
        if is_many and not guard.settings.is_proxy(addr[0]):
            self.outbufs[-1].append(_TOO_MANY)
            self.total_outbufs_len += len(_TOO_MANY)
            self.close_when_flushed = True

    def handle_close(self) -> None:
        """Forget the connection, and the request that has not arrived."""
        if self.network:  # it may be closed twice
            self.guard.connections[self.network] -= 1
            self.guard.connections += Counter()  # forgets those that are 0
            self.network = ""
        if self.request is not None:
            self.request.close()
        super().handle_close()


class Parser(HTTPRequestParser):
    """A request; what is to be refused is complete at once, without its body."""

    headers: dict[str, str]
    path: str

    def __init__(self, guard: Guard, adj: Any) -> None:
        super().__init__(adj)
        self.guard, self.began, self.is_known = guard, time.monotonic(), False

    @property
    def length(self) -> int:
        """Bytes of the body, as far as they are known of."""
        return max(self.content_length, self.body_bytes_received)

    def received(self, data: bytes) -> int:
        """Take bytes in, as waitress does; all of them where the request is refused.

        A request behind which another was sent at once is the last of its connection: answers that
        nobody reads would pile up.
        """
        taken: int = super().received(data[:_PIECE] if self.chunked else data)
        if self.completed:
            self.expect_continue = False  # there is nothing to wait for
        if self.error or self.empty or not (reason := self._objection()):
            if self.completed and not self.empty and taken < len(data):
                self.headers["CONNECTION"], taken = "close", len(data)
            return taken
        self.close()
        if not self.headers_finished:
            self.parse_header(b"GET / HTTP/1.1\r\n")
        self.headers |= {REFUSED: reason, "CONNECTION": "close", "CONTENT_LENGTH": "0"}
        self.body_rcv, self.expect_continue = None, False
        self.headers_finished = self.completed = True
        return len(data)

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head, as waitress does, which does not expect addresses such as ``http://[``."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError(str(error)) from None

    def _objection(self) -> str:
        """Why the request is refused, by what has come of it; empty if it is not."""
        settings, seconds = self.guard.settings, time.monotonic() - self.began
        if not self.headers_finished:
            return "head_seconds" if seconds > _HEAD_SECONDS else ""
        is_first, self.is_known = not self.is_known, True
        if is_first:
            self.headers.pop(REFUSED, None)  # it is ours
            if not is_allowed(self.path, self.headers.get("AUTHORIZATION", ""), settings.token):
                return "token"
        if self.body_rcv is None:
            return ""
        self.guard.arriving.add(self)
        body = self.body_rcv
        line = body.control_line + body.trailer if isinstance(body, ChunkedReceiver) else b""
        longest = settings.max_body_bytes if self.path in _UPLOADS else _LONGEST_OTHER
        if self.length > longest or len(line) > _LONGEST_LINE:
            return "max_body_bytes"
        is_slow = self.body_bytes_received < _LEAST_RATE * (seconds - _HEAD_SECONDS)
        if is_slow or seconds > settings.max_upload_seconds:
            return "max_upload_seconds"
        has_room = not (is_first or self.chunked) or self.guard.has_room()
        return "" if has_room else "min_free_bytes"

    def close(self) -> None:
        """Give the room on the disk free, and forget the body."""
        self.guard.arriving.discard(self)
        super().close()
