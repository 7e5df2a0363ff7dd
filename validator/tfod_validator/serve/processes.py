"""The processes of the service: gunicorn, which serves the app, and workers, which run checks.

The process that a user starts opens the port, starts the others, and starts again what dies. The
others end when it does, however it ends: their standard input is a pipe of it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tfod.errors import TfodError

from tfod_validator.serve.monitoring import METRICS_FOLDER, configure_logging
from tfod_validator.settings import Settings

LISTENER = "TFOD_LISTENER_FD"
"""The variable with the descriptor of the socket that listens."""
GREETING = "TFOD_GREETING"
"""The variable with what the first web process says when it is ready."""
DRAIN_SECONDS = 25
"""Requests and checks that run may take so long to end after SIGTERM."""
_KILL_AFTER = DRAIN_SECONDS + 5.0
_EXIT_OK, _EXIT_FAILED, _EXIT_KILLED = 0, 1, 130
_LOOK_EVERY = 0.2
_QUICK_SECONDS = 10.0
_MOST_QUICK_ENDS = 5
_FIRST_PAUSE = 0.25
_MOST_FILES = 16_384
_DEFAULTS = {
    "OPENBLAS_NUM_THREADS": "1",  # a check is one thread; idle ones cost memory
    "MALLOC_ARENA_MAX": "2",  # or each of many threads keeps memory of its own
    "PYTHONSAFEPATH": "1",  # nothing is imported from the folder that the user is in
}
# As a command, since the processes of checks would import a main module that has a name.
_COMMAND = "from {module} import main; main()"
_log = logging.getLogger("tfod.processes")


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT comes.

    Returns:
        The exit status: 0 after a signal, 1 when a process dies again and again at its start, 130
        when a second Ctrl-C came and the processes were killed.

    Raises:
        TfodError: the port is taken, the data folder cannot be written, or belongs to another
            service that runs.
    """
    with ExitStack() as stack:
        listener = listen(settings.host, settings.port) if settings.web else socket.socket()
        stack.enter_context(listener)
        make_folders(settings)
        if stack.enter_context(locked(settings)):  # what a service that was killed has left
            for path in (*settings.incoming.iterdir(), *settings.metrics.iterdir()):
                shutil.rmtree(path, ignore_errors=True)
        metrics = TemporaryDirectory(dir=settings.metrics, ignore_cleanup_errors=True)
        environment = {**_DEFAULTS, **os.environ, **settings.to_environment()}
        environment[METRICS_FOLDER] = stack.enter_context(metrics)
        environment[LISTENER] = str(listener.fileno())
        children = [
            _Child("worker", "tfod_validator.jobs.worker", environment)
            for _ in range(settings.workers)
        ]
        place = f"data in {_shown(settings.data)}; Ctrl-C ends it"
        if settings.web:
            environment[GREETING] = f"tfod: serving on {_address_of(listener)} ({place})"
            web = _Child("web server", "tfod_validator.app", environment, [listener.fileno()])
            children.append(web)
        else:
            greeting = f"tfod: working with {settings.workers} workers ({place})"
            print(greeting, file=sys.stderr, flush=True)
        configure_logging()
        _allow_many_files()
        return _supervise(children, listener)


def follow_parent(end: Callable[[], None]) -> None:
    """Call a function when the process that started this one is gone."""

    def wait() -> None:
        os.read(0, 1)
        end()

    threading.Thread(target=wait, daemon=True, name="parent").start()


class _DiesAtOnceError(Exception):
    """A process ends again and again right after its start."""


class _Child:
    """A process, and the next one when it dies."""

    process: subprocess.Popen[bytes] | None = None

    def __init__(
        self, role: str, module: str, environment: Mapping[str, str], fds: Sequence[int] = ()
    ) -> None:
        self._role, self._module, self._environment, self._fds = role, module, environment, fds
        self._started = self._due = 0.0
        self._quick_ends = 0

    def keep_running(self) -> None:
        """Start the process, unless it runs, or has ended a moment ago."""
        if self.process is not None and self.process.poll() is not None:
            self._note_end(self.process)
        if self.process is None and time.monotonic() >= self._due:
            self._started = time.monotonic()
            self.process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND.format(module=self._module)],
                stdin=subprocess.PIPE,  # ends when this process does
                pass_fds=self._fds,
                env=self._environment,
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for this process alone
            )

    def _note_end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        code, self.process = process.returncode, None
        how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        if time.monotonic() - self._started >= _QUICK_SECONDS:
            self._quick_ends = 0
        elif code != -signal.SIGKILL:  # which is not its own fault
            self._quick_ends += 1
        if self._quick_ends == _MOST_QUICK_ENDS:
            raise _DiesAtOnceError(
                f"the {self._role} ended {_MOST_QUICK_ENDS} times right after its start ({how}); "
                "what it wrote above says why"
            )
        self._due = time.monotonic() + _FIRST_PAUSE * 2**self._quick_ends
        fields = {"role": self._role, "pid": process.pid, "how": how}
        _log.warning("a process has ended and is started again", extra={"fields": fields})


def _supervise(children: Sequence[_Child], listener: socket.socket) -> int:
    """Keep the processes running until a signal comes; return the exit status."""
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    status = _EXIT_OK
    try:
        while not signals:
            for child in children:
                child.keep_running()
            time.sleep(_LOOK_EVERY)
    except _DiesAtOnceError as error:
        print(f"tfod: {error}", file=sys.stderr)
        status = _EXIT_FAILED
    listener.close()  # gunicorn closes its own: new clients are refused
    running = [child.process for child in children if child.process is not None]
    for process in running:
        process.terminate()
    end = time.monotonic() + _KILL_AFTER
    while any(process.poll() is None for process in running):
        is_second = signals.count(signal.SIGINT) > 1
        if is_second or time.monotonic() > end:
            status = _EXIT_KILLED if is_second else status
            for process in running:
                process.kill()
        time.sleep(_LOOK_EVERY / 4)
    return status


def _allow_many_files() -> None:
    """Connections and uploads that arrive are files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def make_folders(settings: Settings) -> None:
    """Make the folders of the service, for this user only.

    Raises:
        TfodError: one of them cannot be made, or be written to.
    """
    for folder in (settings.data, settings.uploads, settings.incoming, settings.metrics):
        why = "this user may not write here"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                continue
        except OSError as error:
            why = error.strerror or str(error)
        raise TfodError(f"{folder}: {why}; choose a folder that can be written with --data")


@contextmanager
def locked(settings: Settings) -> Iterator[bool]:
    """Hold the data folder for this service alone, unless a database server is shared.

    SQLite is for one machine, and a second service on the same folder is most often a mistake.
    With PostgreSQL several services may share the folder of uploads. Yields whether the folder is
    this service's alone. The system lets go of the lock when this process ends, however it ends.
    """
    if settings.database_url:
        yield False
        return
    with (settings.data / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TfodError(
                f"{settings.data}: another tfod serve uses this folder; stop it, or choose another "
                "folder with --data"
            ) from None
        yield True


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        TfodError: it cannot.
    """
    try:
        return _bind(host, port)
    except UnicodeError:  # of names that no host can have
        raise TfodError(f"--host {host}: no host can have this name; give another") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = "is taken; stop what listens there, or choose another with --port"
        elif error.errno in (errno.EACCES, errno.EPERM):
            what = "needs more rights than this user has; choose one from 1024 on with --port"
        else:
            what = f"cannot be opened ({error.strerror or error}); choose another --host"
        raise TfodError(f"port {port} of {host} {what}") from None


def _bind(host: str, port: int) -> socket.socket:
    """Bind the first address of a host that this machine has."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for number, (family, _, _, _, (address, *_)) in enumerate(found, 1):
        is_any = address == "::" and socket.has_dualstack_ipv6()
        try:
            return socket.create_server(
                (address, port), family=family, backlog=1024, dualstack_ipv6=is_any
            )
        except OSError as error:
            is_last = number == len(found)
            if is_last or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    raise OSError(f"{host} has no address")


def _address_of(listener: socket.socket) -> str:
    """Where clients find a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _shown(folder: Path) -> str:
    """A folder as users would write it where they are."""
    relative = os.path.relpath(folder)
    if relative == ".":
        return "this folder"
    return str(folder) if relative.startswith("..") else f"./{relative}"
