"""waitress in front of the application, with the settings that hold attacks off."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import tempfile
from typing import Any

from tfod.errors import TfodError
from waitress.server import create_server

from tfod_validator.app import create_app
from tfod_validator.guard import Guard
from tfod_validator.settings import Settings
from tfod_validator.workers import RedisQueue, Workers

_DESCRIPTORS = 16384
_PROXY_HEADERS = "x-forwarded-for x-forwarded-proto x-forwarded-host"


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT comes; return the exit status."""
    listener = _listen(settings)
    _, utmost = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, utmost), utmost))
    for secret in ("TFOD_TOKEN", "TFOD_QUEUE"):  # no child needs to know
        os.environ.pop(secret, None)
    queue = RedisQueue(settings) if settings.queue else Workers(settings)
    # The bodies of requests go to the disk that has room for them.
    tempfile.tempdir = str(settings.data / "incoming")
    app = create_app(settings, queue)
    proxy: dict[str, Any] = {}
    if settings.trusted_proxy:
        proxy = {"trusted_proxy": settings.trusted_proxy, "trusted_proxy_headers": _PROXY_HEADERS}
    server: Any = create_server(
        app,
        sockets=[listener],
        threads=settings.threads,
        ident=None,
        asyncore_use_poll=True,  # select() ends at descriptor 1,024
        connection_limit=1000,
        channel_timeout=30,
        cleanup_interval=5,
        recv_bytes=262_144,
        inbuf_overflow=65_536,
        channel_request_lookahead=1,  # so that it is known who has left
        outbuf_high_watermark=1 << 62,  # no thread waits for who does not read its answer
        max_request_body_size=1 << 62,  # the guard says it, with an answer
        **proxy,
    )
    server.channel_class = Guard(settings).channel_class

    def end(*_: object) -> None:
        app.extensions["tfod"].is_stopping.set()
        raise SystemExit

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, end)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(
        f"tfod: serving on http://{shown}:{port} from {settings.data}", file=sys.stderr, flush=True
    )
    if not settings.token and not settings.is_local:
        what = f"everybody who reaches {settings.host} may use the service"
        print(
            f"tfod: warning: {what}; set TFOD_TOKEN to let only those in who have it",
            file=sys.stderr,
        )
    server.run()
    queue.stop()
    return 0


def _listen(settings: Settings) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        why = error.strerror or error
        raise TfodError(f"cannot listen at {settings.host} port {settings.port}: {why}") from None
