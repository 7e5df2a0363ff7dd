"""What a service takes for itself before it begins: a port, folders, a lock."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod_validator.settings import Settings


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


def empty(folder: Path) -> None:
    """Remove what is in a folder."""
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True)


def _unusable(folder: Path, why: str | None) -> TfodError:
    return TfodError(f"{folder}: {why}; choose a folder that can be written with --data")


@contextmanager
def locked(settings: Settings) -> Iterator[bool]:
    """Hold the data folder for this service alone, unless servers keep what processes share.

    SQLite is for one machine, and a second service on the same folder is most often a mistake:
    nobody would know which of the two did what. With PostgreSQL and Redis several services may
    share the folder of uploads. Yields whether the folder is ours alone. The system lets go of the
    lock when this process ends, however it ends.
    """
    if settings.database_url and settings.redis_url:
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


@contextmanager
def metrics_folder(settings: Settings, is_ours: bool) -> Iterator[Path]:
    """An empty folder in which the processes of this run share what they count."""
    folder = settings.metrics / f"{os.uname().nodename}-{os.getpid()}"
    for old in list(settings.metrics.iterdir()) if is_ours else [folder]:
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens.

    Raises:
        TfodError: it cannot.
    """
    try:
        listener = _bind(host, port)
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
    with listener:
        yield listener


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


def address_of(listener: socket.socket) -> str:
    """Where clients find a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def shown(folder: Path) -> str:
    """A folder as users would write it where they are."""
    relative = os.path.relpath(folder)
    if relative == ".":
        return "this folder"
    return str(folder) if relative.startswith("..") else f"./{relative}"
