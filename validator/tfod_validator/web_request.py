"""One request as it arrives, in waitress's loop: its head is judged, its body stored.

What is wrong with it becomes a refusal, which is answered in place of what was asked for.
"""

from __future__ import annotations

import errno
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.receiver import ChunkedReceiver
from waitress.task import ErrorTask
from waitress.utilities import BadRequest

from tfod_validator.refusals import (
    FULL,
    NOT_STORED,
    Refusal,
    as_refusal,
    refuse,
    too_long,
)

if TYPE_CHECKING:
    from tfod_validator.web_server import Channel

_MAX_CHUNK_LINE_BYTES, _MAX_TRAILER_BYTES = 1 << 10, 8 << 10
_CHUNKED_BYTES = 8 << 10  # taking small chunks off a longer text costs its square
_log = logging.getLogger("tfod.web")
_access_log = logging.getLogger("tfod.access")


class _GatheringBuffer(OverflowableBuffer):
    """Writes many small chunks as one."""

    def __init__(self, overflow: int) -> None:
        super().__init__(overflow)
        self._parts: list[bytes] = []

    def append(self, data: bytes) -> None:
        self._parts.append(data)

    def flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            super().append(b"".join(parts))


class _ChunkedReceiver(ChunkedReceiver):
    """A body in chunks, however small."""

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        self.buf.flush()
        return consumed


class RequestParser(HTTPRequestParser):
    """One request as it arrives."""

    error: Any
    expect_continue: bool

    def __init__(self, adj: Any, channel: Channel) -> None:
        super().__init__(adj)
        self._channel = channel
        self.began = time.time()

    def parse_header(self, head: bytes) -> None:
        super().parse_header(head)
        if self.chunked:
            if "CONTENT_LENGTH" in self.headers:  # a proxy before us may believe the other one
                raise ParsingError("Content-Length and Transfer-Encoding")
            self.body_rcv = _ChunkedReceiver(_GatheringBuffer(self.adj.inbuf_overflow))
        elif self.body_rcv is None:
            self.expect_continue = False  # waitress would wait for a body that never comes

    def received(self, data: bytes) -> int:
        was_in_head = self.body_rcv is None
        consumed = self._receive(data[:_CHUNKED_BYTES] if self.chunked else data)
        if self.error is None and self.body_rcv is not None:
            self.error = self._judge_head() if was_in_head else self._judge_chunks()
        if self.error is not None:
            self.completed = True
            self.expect_continue = False
            self._channel.ended = True
            consumed = len(data)  # what follows belongs to this request
        if self.completed:
            self._channel.uploading = ""
        return consumed

    def close(self) -> None:
        with suppress(OSError):  # a full disk is told again when its file is closed
            super().close()

    def _receive(self, data: bytes) -> int:
        try:
            return int(super().received(data))
        except ValueError as error:  # from int() and urlsplit()
            self.error = BadRequest(str(error))
        except OSError as error:
            _log.exception("an upload cannot be stored")
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            self.error = FULL if is_full else NOT_STORED
        return len(data)

    def _judge_head(self) -> Refusal | None:
        limits = self._channel.server.limits
        return too_long(limits, self.content_length) or self._channel.ask_gate(self)

    def _judge_chunks(self) -> Refusal | None:
        if not self.chunked:
            return None
        receiver = self.body_rcv
        if len(receiver.control_line) > _MAX_CHUNK_LINE_BYTES:
            return refuse(400, "A chunk's first line never ends; send chunks as RFC 9112 says.")
        if len(receiver.trailer) > _MAX_TRAILER_BYTES:
            return refuse(400, "The fields after the last chunk are too long; leave them out.")
        return too_long(self._channel.server.limits, len(receiver))


class RefusalTask(ErrorTask):
    """Answers a request that the app never sees."""

    def execute(self) -> None:
        request = self.request
        request.error = as_refusal(request.error)
        fields = {
            "method": getattr(request, "command", ""),
            "endpoint": "none",  # addresses of reports are secrets: no path is logged
            "status": request.error.status,
            "refused": request.error.limit or request.error.title,
            "client": self.channel.addr[0],
        }
        _access_log.info("request", extra={"fields": fields})
        super().execute()
