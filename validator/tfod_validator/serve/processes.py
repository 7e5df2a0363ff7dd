"""What the first process prepares: the port, the data folder, the database. gunicorn does the rest.

It forks the other processes, and starts again what dies; they end when it does, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from sqlalchemy.exc import OperationalError, SQLAlchemyError
from tfod.errors import TfodError

from tfod_validator.jobs.data_folder import DataFolder
from tfod_validator.jobs.database import Database
from tfod_validator.settings import METRICS_FOLDER, Settings

_MOST_FILES = 16_384
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to reach the database at the start."""
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",  # or each of many threads keeps memory of its own
    "PYTHONSAFEPATH": "1",  # nothing is imported from the folder that the user is in
}


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT comes.

    Returns:
        The exit status: 0 after a signal, 1 when a process cannot start, 130 when a second Ctrl-C
        came and the processes were killed.

    Raises:
        TfodError: the port is taken, the data folder cannot be written, or belongs to another
            service that runs, or the database does not answer.
    """
    with ExitStack() as stack:
        listener = listen(settings.host, settings.port) if settings.web else socket.socket()
        stack.enter_context(listener)
        make_folders(settings)
        if stack.enter_context(locked(settings)):  # what a service that was killed has left
            for path in (*settings.incoming.iterdir(), *settings.metrics.iterdir()):
                shutil.rmtree(path, ignore_errors=True)
        os.environ[METRICS_FOLDER] = metrics = mkdtemp(dir=settings.metrics)
        stack.callback(_remove, metrics, os.getpid())
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        os.umask(0o077)
        _allow_many_files()
        # Imported here, since prometheus-client looks for its folder when it is imported.
        from tfod_validator.serve import monitoring, server

        monitoring.configure_logging()
        _prepare_database(settings)
        does = f"working with {settings.workers} workers"
        if settings.web:
            does = f"serving on {_address_of(listener)}"
        greeting = f"tfod: {does} (data in {_shown(settings.data)}; Ctrl-C ends it)"
        return server.serve(settings, listener.detach() if settings.web else None, greeting)


def _remove(folder: str, owner: int) -> None:
    """Remove a folder, unless this is a process that its owner has forked."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare_database(settings: Settings) -> None:
    """Create the tables and the folder's mark, as soon as the database answers."""
    database = Database(settings)
    for pause in (*_PAUSES, 0.0):
        try:
            database.create_tables()
            DataFolder(settings, database, takes_uploads=settings.web > 0).is_there()
            database.close()  # processes that are forked have connections of their own
            return
        except SQLAlchemyError as error:
            if not pause or not isinstance(error, OperationalError):
                why = str(error.__cause__ or error).splitlines()[0]
                raise TfodError(f"the database cannot be used: {why}") from None
            time.sleep(pause)


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
    this service's alone. The system lets go of the lock when this process ends, however it ends;
    processes that it has forked do not hold it.
    """
    if settings.database_url:
        yield False
        return
    with (settings.data / "lock").open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _shown(folder: Path) -> str:
    """A folder as users would write it where they are."""
    relative = os.path.relpath(folder)
    if relative == ".":
        return "this folder"
    return str(folder) if relative.startswith("..") else f"./{relative}"
