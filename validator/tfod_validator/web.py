"""A web process: ``python -m tfod_validator.web DESCRIPTOR``.

The supervisor starts it with the settings in the environment, and hands it the socket that listens
and two pipes: one that ends when the supervisor does, and one to say that this process is ready.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tfod.errors import TfodError

from tfod_validator import logs
from tfod_validator.settings import Settings
from tfod_validator.supervisor import READY_FD, SUPERVISOR_FD
from tfod_validator.web_server import Server

DRAIN_SECONDS = 25.0
"""What runs may take so long when the process is told to end; less than the supervisor waits."""
_ORPHAN_SECONDS = 5.0
_MOST_FILES = 16_384
_log = logging.getLogger("tfod.web")


def main() -> int:
    """Serve the app on the descriptor that the command line names."""
    return run(_make_app, int(sys.argv[1]))


def run(make_app: Callable[[Settings], Any], descriptor: int) -> int:
    """Serve an app until SIGTERM comes, or the supervisor is gone; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor hears it too, and tells us
    logs.configure()
    threading.Thread(target=_end_with_supervisor, daemon=True, name="supervisor").start()
    settings = Settings.from_environment()
    _allow_many_files()
    tempfile.tempdir = os.path.abspath(settings.incoming)
    try:
        app = make_app(settings)
    except TfodError as error:
        _log.error("%s", error)
        return 1
    server = Server(
        app,
        socket.socket(fileno=descriptor),
        threads=settings.threads,
        limits=settings.limits,
        gate=app.extensions.get("tfod.gate"),
        trusted_proxies=settings.trusted_proxies,
        draining=app.extensions.setdefault("tfod.draining", threading.Event()),
    )
    signal.signal(signal.SIGTERM, lambda *_: server.drain(DRAIN_SECONDS))
    _say_ready()
    server.run()
    return 0


def _make_app(settings: Settings) -> Any:
    from tfod_validator.app import create_app

    return create_app(settings)


def _end_with_supervisor() -> None:
    """Wait for the end of the supervisor's pipe, then end, whatever the process does."""
    text = os.environ.get(SUPERVISOR_FD)
    if text is None:
        return
    os.read(int(text), 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)


def _say_ready() -> None:
    text = os.environ.get(READY_FD)
    if text is not None:
        with suppress(OSError):
            os.write(int(text), b".")


def _allow_many_files() -> None:
    """Connections and bodies that arrive are files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
