"""``tfod serve``: its options, and waitress with the settings that hold attacks off."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import logging
import os
import signal
import socket
import sys
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfod.cli.arguments import not_empty, whole_number
from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from tfod_validator.settings import Settings

_PACKAGES = ("flask", "waitress", "prometheus_client", "jinja2", "lxml", "PIL", "yaml")
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_DESCRIPTORS = 16384
_SEND_BYTES = 262_144


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``serve`` takes."""
    parser.description = (
        "Serve a page and an HTTP API that check uploads, until Ctrl-C or SIGTERM. "
        "Other settings are environment variables: TFOD_TOKEN (who has it may use the service), "
        "TFOD_QUEUE (redis://…, for workers on several machines), TFOD_TRUSTED_PROXY; "
        "the service's page /docs lists the limits."
    )
    parser.add_argument("--host", help="address to listen at (default: 127.0.0.1)")
    port_help = "port to listen at (default: 8080; 0 for any that is free)"
    parser.add_argument("--port", type=whole_number(0, 65535), metavar="N", help=port_help)
    data_help = "folder for uploads and reports (default: tfod-data)"
    parser.add_argument("--data", type=_folder, metavar="DIR", help=data_help)
    worker_help = "do not serve, but check what others have taken in, by TFOD_QUEUE"
    parser.add_argument("--worker", action="store_true", help=worker_help)
    parser.set_defaults(run=_run)


def _folder(text: str) -> Path:
    return Path(not_empty(text))


def _run(options: argparse.Namespace) -> int:
    if not hasattr(os, "fork"):
        raise TfodError(
            "tfod serve needs Linux or macOS, whose limits of processes it puts around each check; "
            "run its container image, or check here with: tfod check"
        )
    missing = [one for one in _PACKAGES if not importlib.util.find_spec(one)]
    if missing:
        raise TfodError(f"the service needs {', '.join(missing)}; {how_to_install('validator')}")
    from tfod_validator.folder import DataFolder
    from tfod_validator.settings import Settings

    settings = Settings.of(host=options.host, port=options.port, data=options.data)
    if settings.queue and not importlib.util.find_spec("rq"):
        raise TfodError(f"TFOD_QUEUE needs rq; {how_to_install('scale')}")
    if options.worker and not settings.queue:
        raise TfodError("--worker: set TFOD_QUEUE to the URL of the Redis that the service uses")
    DataFolder(settings).make()
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("waitress").setLevel(logging.ERROR)
    # The processes of checks would import the module that the user has started.
    sys.modules["__main__"] = types.ModuleType("__main__")
    if options.worker:
        from tfod_validator.workers import work

        os.environ["TFOD_DATA"] = str(settings.data)
        work(settings)
    else:
        _serve(settings)
    return 0


def _serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT comes."""
    import resource

    from waitress.server import create_server

    from tfod_validator.app import create_app
    from tfod_validator.guard import Channel, Guard
    from tfod_validator.workers import LocalQueue, RedisQueue

    listener = _listen(settings)
    _, utmost = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, utmost), utmost))
    for secret in ("TFOD_TOKEN", "TFOD_QUEUE"):  # no child needs to know
        os.environ.pop(secret, None)
    queue = RedisQueue(settings) if settings.queue else LocalQueue(settings)
    queue.start()
    # The bodies of requests go to the disk that has room for them.
    tempfile.tempdir = str(settings.data / "incoming")
    app = create_app(settings, queue)
    proxy: dict[str, Any] = {}
    if settings.trusted_proxy:
        headers = "x-forwarded-for x-forwarded-proto x-forwarded-host"
        proxy = {"trusted_proxy": settings.trusted_proxy, "trusted_proxy_headers": headers}
    server: Any = create_server(
        app,
        sockets=[listener],
        threads=settings.threads,
        ident=None,
        server_name=settings.host,  # for clients of HTTP/1.0 that do not say whom they ask
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
    server.channel_class = functools.partial(Channel, Guard(settings))

    def end(*_: object) -> None:
        queue.stopping.set()
        raise SystemExit

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, end)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _say(f"serving on http://{shown}:{port} from {settings.data}")
    if not settings.token and not settings.is_local:
        what = f"everybody who reaches {settings.host} may use the service"
        _say(f"warning: {what}; set TFOD_TOKEN to let only those in who have it")
    server.run()
    queue.stop()


def _say(text: str) -> None:
    print(f"tfod: {text}", file=sys.stderr, flush=True)


def _listen(settings: Settings) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=1024)
        # Of each connection, which has it from here: what one who does not read can hold.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        return listener
    except OSError as error:
        why = error.strerror or error
        raise TfodError(f"cannot listen at {settings.host} port {settings.port}: {why}") from None
