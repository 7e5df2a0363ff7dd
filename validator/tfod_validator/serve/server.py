"""gunicorn, which forks all processes of the service: web processes and workers."""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from typing import Any

from flask import Flask

# gunicorn has no types, or some in its newest releases.
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped, unused-ignore]
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped, unused-ignore]
from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped, unused-ignore]

from tfod_validator.app import create_app
from tfod_validator.jobs.worker import Worker
from tfod_validator.serve import monitoring
from tfod_validator.settings import Settings

_DRAIN_SECONDS = 25
"""Requests and checks that run may take so long to end after SIGTERM."""
_KILL_AFTER = _DRAIN_SECONDS + 5
_EXIT_FAILED, _EXIT_KILLED = 1, 130


def serve(settings: Settings, listener: int | None, greeting: str) -> int:
    """Serve until SIGTERM or SIGINT comes; return the exit status.

    Args:
        settings: of the service.
        listener: the descriptor of the socket that listens; None without web processes.
        greeting: is printed when the first process is ready.
    """
    arbiter = _Arbiter(_Application(settings, listener, greeting))
    first = os.getpid()
    code: object = None
    try:
        arbiter.run()
    except SystemExit as ended:
        if os.getpid() != first:
            raise  # a process that was forked ends
        code = ended.code
    return _EXIT_KILLED if arbiter.interrupts > 1 else _EXIT_FAILED if code else 0


class _Application(BaseApplication):  # type: ignore[misc, unused-ignore]
    """gunicorn's settings, and the Flask application of a web process."""

    def __init__(self, settings: Settings, listener: int | None, greeting: str) -> None:
        self.settings, self.greeting, self._listener = settings, greeting, listener
        super().__init__()

    def load_config(self) -> None:
        chosen = {
            "bind": [] if self._listener is None else [f"fd://{self._listener}"],
            "workers": self.settings.web + self.settings.workers,
            "worker_class": _Process,
            "threads": self.settings.threads,
            "worker_connections": 1000,
            "keepalive": 75,
            "graceful_timeout": _KILL_AFTER,
            "limit_request_field_size": 16_380,
            "secure_scheme_headers": {},  # the app looks at X-Forwarded-* if it is told to
            "control_socket_disable": True,
            "logconfig_dict": monitoring.LOGGING,
            "pre_fork": _choose_role,
        }
        for name, value in chosen.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return create_app(self.settings)


class _Process(ThreadWorker):  # type: ignore[misc, unused-ignore]
    """A web process, or a worker."""

    is_web: bool
    sockets: list[Any]

    def init_process(self) -> None:
        os.setsid()  # Ctrl-C is for the first process alone
        self.cfg.set("graceful_timeout", _DRAIN_SECONDS)
        monitoring.reserve_space()
        super().init_process()

    def load_wsgi(self) -> None:
        if self.is_web:
            super().load_wsgi()
            service = self.wsgi.extensions["tfod"]
            service.is_draining = lambda: not (self.alive and self.is_parent_alive())
        if self.age == 1:
            print(self.app.greeting, file=sys.stderr, flush=True)

    def run(self) -> None:
        if self.is_web:
            super().run()
            return
        for one in self.sockets:
            one.close()
        self.sockets = []
        # The processes of checks would import the module that the user has started.
        sys.modules["__main__"] = types.ModuleType("__main__")
        worker = Worker(self.app.settings)
        worker.start()
        super().run()  # until SIGTERM comes, or the first process is gone
        worker.stop(_DRAIN_SECONDS if self.is_parent_alive() else 0)


def _choose_role(arbiter: Any, process: _Process) -> None:
    """Let a process be what is missing."""
    web = sum(one.is_web for one in arbiter.WORKERS.values())
    process.is_web = web < process.app.settings.web
    if not process.is_web:
        # It is not killed when it seems to hang: checks go on after a pause of the machine.
        process.tmp.last_update = time.monotonic


class _Arbiter(Arbiter):  # type: ignore[misc, unused-ignore]
    """The first process: Ctrl-C lets requests end, as SIGTERM does, and a second one does not."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT)
    interrupts = 0

    def signal(self, sig: int, frame: Any) -> None:
        self.interrupts += sig == signal.SIGINT
        super().signal(sig, frame)

    def handle_int(self) -> None:
        self.handle_term()
