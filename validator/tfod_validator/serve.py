"""``tfod serve``: its options, and the settings that protect waitress against attacks."""

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
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfod.cli.arguments import not_empty, whole_number
from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from tfod_validator.settings import Settings

_PACKAGES = ("flask", "waitress", "prometheus_client", "jinja2", "lxml", "PIL", "yaml")
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MAX_DESCRIPTORS = 16384
_SEND_BYTES = 262_144


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``serve``."""
    parser.description = (
        "Serve a page and an HTTP API that check uploads, until Ctrl-C or SIGTERM. "
        "Environment variables configure the rest: TFOD_TOKEN (token required to use the service), "
        "TFOD_QUEUE (redis://…, for workers on several machines), TFOD_TRUSTED_PROXY. "
        "The page /docs of the service lists the limits."
    )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    port_help = "port to listen on (default: 8080; 0 for any free port)"
    parser.add_argument("--port", type=whole_number(0, 65535), metavar="N", help=port_help)
    data_help = "folder for uploads and reports (default: tfod-data)"
    parser.add_argument("--data", type=_folder, metavar="DIR", help=data_help)
    worker_help = "run only a worker, which checks the uploads in the queue TFOD_QUEUE"
    parser.add_argument("--worker", action="store_true", help=worker_help)
    parser.set_defaults(run=_run)


def _folder(text: str) -> Path:
    return Path(not_empty(text))


def _run(options: argparse.Namespace) -> int:
    if not hasattr(os, "fork"):
        raise TfodError(
            "tfod serve needs the process limits of Linux or macOS; run its container image, or "
            "check files without it: tfod check"
        )
    missing = [name for name in _PACKAGES if not importlib.util.find_spec(name)]
    if missing:
        raise TfodError(f"the service needs {', '.join(missing)}; {how_to_install('validator')}")
    from tfod_validator.folder import DataFolder
    from tfod_validator.landlock import describe_missing, get_abi
    from tfod_validator.settings import Settings

    settings = Settings.of(host=options.host, port=options.port, data=options.data)
    if settings.queue and not importlib.util.find_spec("rq"):
        raise TfodError(f"TFOD_QUEUE needs rq; {how_to_install('scale')}")
    if options.worker and not settings.queue:
        raise TfodError("--worker: set TFOD_QUEUE to the URL of the Redis that the service uses")
    DataFolder(settings).create()
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("waitress").setLevel(logging.ERROR)
    if risks := describe_missing(get_abi()):
        _log(f"warning: {risks}")
    # Otherwise each process of a check would import the main module again.
    sys.modules["__main__"] = types.ModuleType("__main__")
    if options.worker:
        from tfod_validator.workers import work

        os.environ["TFOD_DATA"] = str(settings.data)
        work(settings)
    else:
        _serve(settings)
    return 0


def _serve(settings: Settings) -> None:
    import resource

    from waitress.server import create_server

    from tfod_validator.app import create_app
    from tfod_validator.guard import Channel, Guard, is_in_path
    from tfod_validator.workers import LocalQueue, RedisQueue

    listener = _listen(settings)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MAX_DESCRIPTORS, hard), hard))
    for secret in ("TFOD_TOKEN", "TFOD_QUEUE"):  # not passed on to child processes
        os.environ.pop(secret, None)
    queue = RedisQueue(settings) if settings.queue else LocalQueue(settings)
    queue.start()
    # waitress stores the bodies of requests here: use the disk of the data folder.
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
        server_name=settings.host,  # for HTTP/1.0 clients without a Host header
        asyncore_use_poll=True,  # select() is limited to descriptor 1023
        connection_limit=1000,
        channel_timeout=30,
        cleanup_interval=5,
        recv_bytes=262_144,
        inbuf_overflow=65_536,
        channel_request_lookahead=1,  # detects clients that have disconnected
        outbuf_high_watermark=1 << 62,  # no thread waits for slow clients
        max_request_body_size=1 << 62,  # limited by the guard, with an answer
        **proxy,
    )
    server.channel_class = functools.partial(Channel, Guard(settings))

    def stop(*_: object) -> None:
        queue.stopping.set()
        raise SystemExit

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    address, is_bypassed = listener.getsockname(), threading.Event()

    def announce() -> None:
        if is_in_path(address):
            _announce(settings, *address[:2])
        elif not queue.stopping.is_set():
            is_bypassed.set()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=announce, daemon=True).start()
    server.run()
    queue.stop()
    if is_bypassed.is_set():
        raise TfodError(
            "waitress bypasses the guard that enforces the limits of the service; install the "
            f"version that tfod needs: {how_to_install('validator')}"
        )


def _announce(settings: Settings, host: str, port: int) -> None:
    url_host = f"[{host}]" if ":" in host else host
    _log(f"serving on http://{url_host}:{port} from {settings.data}")
    if not settings.token and not settings.is_local:
        warning = f"anyone who can reach {settings.host} can use the service"
        _log(f"warning: {warning}; set TFOD_TOKEN to require a token")


def _log(text: str) -> None:
    print(f"tfod: {text}", file=sys.stderr, flush=True)


def _listen(settings: Settings) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=1024)
        # Connections inherit it: limits the memory that a client takes by not reading.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        return listener
    except OSError as error:
        reason = error.strerror or error
        endpoint = f"{settings.host} port {settings.port}"
        raise TfodError(f"cannot listen on {endpoint}: {reason}") from None
