"""The web server: waitress, with limits that are applied at the head of a request.

Waitress receives whole requests in one loop, heads and bodies, so that slow clients hold no
thread; what is here makes it say no early and politely. A request that is refused before its body
has come is answered at once, and what the client still sends is read and dropped for a while:
closing a connection on unread bytes resets it, and the client would never see the answer.
"""

from __future__ import annotations

import io
import logging
import math
import socket
import threading
import time
from collections.abc import Callable
from shutil import disk_usage
from tempfile import gettempdir
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from tfod_validator.refusals import (
    MAX_HEAD_BYTES,
    MISTAKE,
    Refusal,
    head_too_slow,
    no_room,
    silent_too_long,
    too_slow,
)
from tfod_validator.security import network_of
from tfod_validator.settings import Limits
from tfod_validator.web_request import RefusalTask, RequestParser

_LINGER_BYTES = 1 << 30
_CONNECTIONS = 1000
_LOOK_UP_SECONDS = 0.25
_log = logging.getLogger("tfod.web")


Gate = Callable[[dict[str, Any]], Refusal | None]
"""Judges a request by its head, as a WSGI environment; it runs in the loop and must not wait."""


class Channel(HTTPChannel):
    """One connection."""

    error_task_class = RefusalTask
    request: RequestParser | None
    will_close: bool
    ended = False
    """No further request is taken from this connection."""
    uploading = ""
    """The address from which a body is arriving."""
    _lingering_since = 0.0
    _dropped_bytes = 0

    def parser_class(self, adj: Any) -> RequestParser:
        """What waitress makes for each request."""
        return RequestParser(adj, self)

    def ask_gate(self, request: RequestParser) -> Refusal | None:
        """What the gate says to a request of which the head is there."""
        environ = self.task_class(self, request).get_environment()
        environ["wsgi.input"] = io.BytesIO()
        address = self.server.client_address(environ)
        environ["tfod.uploads"] = self.server.uploads_of(address)
        refusal: Refusal | None = self.server.ask_gate(environ)
        if refusal is None:
            self.uploading = address
        return refusal

    def arrived_bytes(self) -> int:
        """The length of the body that is arriving, so far."""
        request = self.request
        return len(request.body_rcv) if self.uploading and request is not None else 0

    def is_busy(self) -> bool:
        """Whether a request runs, a body arrives, or an answer leaves."""
        return bool(
            self.requests
            or self.uploading
            or self.total_outbufs_len
            or self.close_when_flushed
            or self._lingering_since
        )

    def idle_since(self) -> float:
        """When a request was begun that has no head yet, or when something moved last."""
        request = self.request
        return float(request.began if request is not None else self.last_activity)

    def end_if_overdue(self, now: float) -> None:
        """End what takes too long, with an answer where one can be given."""
        server, request = self.server, self.request
        silent = now - self.last_activity
        if self._lingering_since:
            is_over = now - self._lingering_since > server.linger_seconds
            self._close_if(is_over or silent > server.linger_idle_seconds)
        elif self.total_outbufs_len:
            self._close_if(silent > server.idle_seconds)  # the client does not read
        elif self.requests:
            return
        elif request is None:
            has_asked = self.last_activity > self.creation_time
            self._close_if(silent > (server.idle_seconds if has_asked else server.head_seconds))
        elif not request.headers_finished:
            if now - request.began > server.head_seconds:
                self.refuse(head_too_slow(server.head_seconds))
        elif now - request.began > server.limits.max_upload_seconds:
            self.refuse(too_slow(server.limits))
        elif silent > server.idle_seconds:
            self.refuse(silent_too_long(server.idle_seconds))

    def _close_if(self, is_over: bool) -> None:
        """Close at once; waitress itself would wait until the client reads."""
        if is_over:
            self.handle_close()

    def readable(self) -> bool:
        # Closed while the loop asks whom to listen to: the next client may get its descriptor.
        return bool(self.connected and super().readable())

    def writable(self) -> bool:
        return bool(self.connected and super().writable())

    def received(self, data: bytes) -> bool:
        if not self.ended:
            return bool(super().received(data))
        self._dropped_bytes += len(data)
        self._close_if(self._dropped_bytes > _LINGER_BYTES)
        return False

    def handle_write(self) -> None:
        if not self.ended or not self.close_when_flushed or self.will_close:
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if self.connected and not self.total_outbufs_len:
            self._linger()

    def handle_close(self) -> None:
        if self.request is not None:
            self.request.close()  # the file of its body
        self.uploading = ""
        super().handle_close()

    def refuse(self, refusal: Refusal) -> None:
        """Answer the request that is arriving."""
        with self.requests_lock:
            request, self.request = self.request, None
            assert request is not None
            request.error = refusal
            request.completed = True
            self.ended = True
            self.uploading = ""
            self.requests.append(request)
            self.server.add_task(self)

    def _linger(self) -> None:
        """All is said: let the client see that, and read what it still sends."""
        self.close_when_flushed = False
        self.last_activity = self._lingering_since = time.time()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:  # the client is gone
            self.handle_close()


class Server(TcpWSGIServer):
    """A WSGI server on a socket that listens already; other processes may share the socket."""

    channel_class = Channel
    head_seconds = 30
    """The head of a request may take so long."""
    idle_seconds = 120
    """A connection on which nothing moves is closed."""
    linger_seconds, linger_idle_seconds = 30, 5
    """So long, and so long without a byte, a refused client may go on sending."""

    def __init__(
        self,
        app: Callable[..., Any],
        listener: socket.socket,
        *,
        threads: int,
        limits: Limits,
        gate: Gate | None = None,
        trusted_proxies: int = 0,
        draining: threading.Event | None = None,
    ) -> None:
        """Make ready to serve.

        Args:
            app: a WSGI application.
            listener: a bound socket.
            threads: that run the application.
            limits: of which ``max_body_bytes`` and ``max_upload_seconds`` are applied here.
            gate: asked about every request with a body, once its head is there. Besides what WSGI
                demands the environment has ``tfod.uploads``: how many other bodies from the same
                address are arriving.
            trusted_proxies: so many proxies append to ``X-Forwarded-For``.
            draining: is set when the server begins to end; long answers should end then.
        """
        self.limits = limits
        self.draining = draining or threading.Event()
        self._gate = gate
        self._trusted_proxies = trusted_proxies
        self._drain_until = math.inf
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(threads)
        host = listener.getsockname()[0]
        super().__init__(
            app,
            {},
            _sock=listener,
            dispatcher=dispatcher,
            adj=_adjustments(host),
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
            bind_socket=False,
        )

    def run(self) -> None:
        """Serve until :meth:`drain` was called and its time is over, or nothing is left to do."""
        while not self._is_drained():
            self.asyncore.poll2(_LOOK_UP_SECONDS, self._map)
        self._end()

    def drain(self, seconds: float) -> None:
        """Begin nothing new; what runs and bodies that arrive have so many seconds.

        Any thread and any handler of a signal may call this. Called again, the sooner end counts.
        """
        self._drain_until = min(self._drain_until, time.monotonic() + seconds)

    def add_task(self, channel: Channel) -> None:
        """Have a request answered: errors by the loop itself, at once, others by a thread."""
        waits_for_room = channel.total_outbufs_len > self.adj.outbuf_high_watermark
        if channel.requests[0].error is not None and not waits_for_room:
            self.trigger.pull_trigger(channel.service)
        else:
            super().add_task(channel)

    def ask_gate(self, environ: dict[str, Any]) -> Refusal | None:
        """What the gate says."""
        try:
            return self._gate(environ) if self._gate else None
        except Exception:
            _log.exception("the gate failed")
            return MISTAKE

    def client_address(self, environ: dict[str, Any]) -> str:
        """Where a request comes from, before the proxies that are trusted."""
        told = [one.strip() for one in environ.get("HTTP_X_FORWARDED_FOR", "").split(",")]
        address = str(environ["REMOTE_ADDR"])
        if 0 < self._trusted_proxies <= len(told):
            address = told[-self._trusted_proxies] or address
        return network_of(address)

    def uploads_of(self, address: str) -> int:
        """How many bodies are arriving from an address."""
        return sum(one.uploading == address for one in list(self.active_channels.values()))

    def fix_addr(self, addr: tuple[Any, ...]) -> tuple[Any, ...]:
        """An IPv4 address as such, also where the socket is one of IPv6."""
        return (addr[0].removeprefix("::ffff:"), *addr[1:])

    def readable(self) -> bool:
        if len(self._map) >= self.adj.connection_limit:
            self._make_room()
        return bool(super().readable())

    def maintenance(self, now: float) -> None:
        """End what takes too long; waitress calls this every second."""
        for channel in list(self.active_channels.values()):
            channel.end_if_overdue(now)
        self._spare_the_disk()

    def _spare_the_disk(self) -> None:
        """Where the disk fills up while bodies arrive, refuse the longest of them."""
        arriving = [one for one in self.active_channels.values() if one.arrived_bytes()]
        if arriving and disk_usage(gettempdir()).free < self.limits.min_free_bytes:
            max(arriving, key=Channel.arrived_bytes).refuse(no_room())

    def _make_room(self) -> None:
        """Close the oldest of the connections that have not asked for anything yet, or again."""
        idle = [one for one in self.active_channels.values() if not one.is_busy()]
        idle.sort(key=lambda one: one.idle_since())
        for channel in idle[: 1 + len(idle) // 10]:
            channel.handle_close()

    def _is_drained(self) -> bool:
        if self._drain_until == math.inf:
            return False
        if self.accepting:
            self.asyncore.dispatcher.close(self)  # the listening socket only
            self.draining.set()
        self.maintenance(time.time())
        busy = 0
        for channel in list(self.active_channels.values()):
            if channel.is_busy():
                busy += 1
            else:
                channel.handle_close()
        late = time.monotonic() >= self._drain_until
        if busy and late:
            _log.warning("connections were cut off", extra={"fields": {"connections": busy}})
        return late or not busy

    def _end(self) -> None:
        for channel in list(self.active_channels.values()):
            channel.handle_close()
        self.task_dispatcher.shutdown(timeout=1)
        if not self.task_dispatcher.threads:  # one that runs on would write to it
            self.trigger.close()


def _adjustments(host: str) -> Any:
    """How waitress is set up."""
    adj = Adjustments(
        server_name=host,
        ident="tfod",
        clear_untrusted_proxy_headers=False,  # the app looks at them only if told to
        recv_bytes=256 << 10,
        inbuf_overflow=64 << 10,  # what is longer goes to a file without a name
        outbuf_overflow=256 << 10,
        outbuf_high_watermark=64 << 20,  # so that slow readers hold no thread
        connection_limit=_CONNECTIONS,
        cleanup_interval=1,
        channel_request_lookahead=1,  # notices clients that leave while they are served
        max_request_header_size=MAX_HEAD_BYTES,
    )
    adj.max_request_body_size = math.inf  # judged here, without what chunks add
    return adj
