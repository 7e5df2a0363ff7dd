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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tfod.errors import TfodError

from tfod_validator import logs
from tfod_validator.settings import Settings

LISTENER = "TFOD_LISTENER_FD"
"""Names the descriptor of the socket that listens."""
GREETING = "TFOD_GREETING"
"""What the first web process says when it is ready."""
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
_GUNICORN = ("-m", "gunicorn", "--config", "python:tfod_validator.gunicorn_config")
# As a command, since the processes of checks would import a main module that has a name.
_WORKER = ("-c", "import sys; from tfod_validator.worker import main; sys.exit(main())")
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
        listener = socket.socket()  # without web processes it stays as it is
        if settings.web:
            listener = listen(settings.host, settings.port)
        stack.enter_context(listener)
        make_folders(settings)
        is_ours = stack.enter_context(locked(settings))
        if is_ours:
            _empty(settings.incoming)  # what a service that was killed was receiving
        metrics = stack.enter_context(_metrics_folder(settings, is_ours))
        place = f"data in {_shown(settings.data)}; Ctrl-C ends it"
        environment = {
            **_DEFAULTS,
            **os.environ,
            **settings.to_environment(),
            "PROMETHEUS_MULTIPROC_DIR": str(metrics),
        }
        children = [_Child("worker", _WORKER, environment) for _ in range(settings.workers)]
        if settings.web:
            environment[LISTENER] = str(listener.fileno())
            environment[GREETING] = f"tfod: serving on {_address_of(listener)} ({place})"
            children.append(
                _Child("web server", _GUNICORN, environment, pass_fds=[listener.fileno()])
            )
        else:
            greeting = f"tfod: working with {settings.workers} workers ({place})"
            print(greeting, file=sys.stderr, flush=True)
        logs.configure()
        _allow_many_files()
        return _supervise(children, listener)


def follow_parent(end: Callable[[], None]) -> None:
    """Call a function when the process that started this one is gone."""

    def wait() -> None:
        os.read(0, 1)
        end()

    threading.Thread(target=wait, daemon=True, name="parent").start()


class _Child:
    """A process, and the next one when it dies."""

    def __init__(
        self,
        role: str,
        arguments: tuple[str, ...],
        environment: dict[str, str],
        pass_fds: list[int] | None = None,
    ) -> None:
        self.role = role
        self._arguments = arguments
        self._environment = environment
        self._pass_fds = pass_fds or []
        self.process: subprocess.Popen[bytes] | None = None
        self._started = self._due = 0.0
        self._quick_ends = 0

    def start_if_due(self) -> None:
        """Start the process, unless it runs, or has ended a moment ago."""
        if self.process is not None or time.monotonic() < self._due:
            return
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *self._arguments],
            stdin=subprocess.PIPE,  # ends when this process does
            pass_fds=self._pass_fds,
            env=self._environment,
            umask=0o077,
            start_new_session=True,  # Ctrl-C is for this process alone
        )

    def note_end(self, status: int) -> bool:
        """Decide when to start the next; False if that makes no sense any more."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.close()
        self.process.returncode = status
        self.process = None
        if time.monotonic() - self._started >= _QUICK_SECONDS:
            self._quick_ends = 0
        elif status != -signal.SIGKILL:  # which is not its own fault
            self._quick_ends += 1
        self._due = time.monotonic() + _FIRST_PAUSE * 2**self._quick_ends
        return self._quick_ends < _MOST_QUICK_ENDS


def _supervise(children: list[_Child], listener: socket.socket) -> int:
    """Keep the processes running until a signal comes; return the exit status."""
    heard: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: heard.append(number))
    status = _EXIT_OK
    while not heard and status == _EXIT_OK:
        for child in children:
            child.start_if_due()
        time.sleep(_LOOK_EVERY)
        status = _note_ends(children, is_ending=False)
    listener.close()  # gunicorn closes its own: new clients are refused
    for child in children:
        if child.process is not None:
            os.kill(child.process.pid, signal.SIGTERM)
    end = time.monotonic() + _KILL_AFTER
    while any(child.process for child in children):
        _note_ends(children, is_ending=True)
        if heard.count(signal.SIGINT) > 1 or time.monotonic() > end:
            status = _EXIT_KILLED if heard.count(signal.SIGINT) > 1 else status
            for child in children:
                if child.process is not None:
                    os.kill(child.process.pid, signal.SIGKILL)  # kill() would reap it unseen
        time.sleep(_LOOK_EVERY / 4)
    return status


def _note_ends(children: list[_Child], *, is_ending: bool) -> int:
    """Take note of all processes that have ended; return the status to exit with.

    In a container this process is the first, to which the system gives all orphans.
    """
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return _EXIT_OK
        if not ended:
            return _EXIT_OK
        for child in children:
            if child.process is None or child.process.pid != ended:
                continue
            code = os.waitstatus_to_exitcode(status)
            makes_sense = child.note_end(code)
            if is_ending:
                continue
            how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
            if not makes_sense:
                print(
                    f"tfod: the {child.role} ended {_MOST_QUICK_ENDS} times right after its start "
                    f"({how}); what it wrote above says why",
                    file=sys.stderr,
                )
                return _EXIT_FAILED
            fields = {"role": child.role, "pid": ended, "how": how}
            _log.warning("a process has ended and is started again", extra={"fields": fields})


def _allow_many_files() -> None:
    """Connections and uploads that arrive are files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def make_folders(settings: Settings) -> None:
    """Make the folders of the service, for this user only.

    Raises:
        TfodError: one of them cannot be made, or be written to.
    """
    for folder in (settings.data, settings.uploads, settings.incoming, settings.metrics):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(folder, error.strerror) from None
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise _unusable(folder, "this user may not write here")


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
    path = settings.data / "lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(path, error.strerror) from None
    with open(handle):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise _unusable(path, error.strerror) from None
            raise TfodError(
                f"{settings.data}: another tfod serve uses this folder; stop it, or choose another "
                "folder with --data"
            ) from None
        yield True


def _unusable(folder: Path, why: str | None) -> TfodError:
    return TfodError(f"{folder}: {why}; choose a folder that can be written with --data")


@contextmanager
def _metrics_folder(settings: Settings, is_ours: bool) -> Iterator[Path]:
    """An empty folder in which the processes of this run share what they count."""
    folder = settings.metrics / f"{os.uname().nodename}-{os.getpid()}"
    if is_ours:
        _empty(settings.metrics)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True)


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
    for family, _, _, _, address in found:
        is_any = address[0] == "::" and socket.has_dualstack_ipv6()
        try:
            return socket.create_server(
                address[:2], family=family, backlog=1024, dualstack_ipv6=is_any
            )
        except OSError as error:
            is_last = address == found[-1][4]
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
