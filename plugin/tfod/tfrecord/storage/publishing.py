"""Files that take their names together, or not at all: the one way in which they appear.

Every file is complete, under a hidden name beside its own, before anything that is there is
touched. Then what goes is moved aside, the new files get their names, and what was moved aside is
removed. An error puts everything back; SIGINT and SIGTERM wait until it is over. For a process
that is killed in between there is a journal in the folder: a reader refuses such a folder, and the
next writer puts back what was there. So old and new files are never mixed, whatever happens.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from tfod.errors import ShardError, TfodError
from tfod.tfrecord.storage.urls import require_local

JOURNAL = ".tfod-publishing.json"
_MOST_PARENTS = 3  # as deep as a folder is searched for shards
_BUFFER_BYTES = 1 << 17
# Not more: for one large write the system looks for large pages, and took up to 10 times as long.
_LARGEST_WRITE = 1 << 18
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends
_UNCHANGED = "what was there before is unchanged"
_HIDDEN = re.compile(r"\..*\.[0-9a-f]{16}\.(old|tmp)\Z", re.DOTALL)


class WriteError(TfodError):
    """A file could not be written: no room, no permission, no folder."""


class InterruptedWriteError(ShardError):
    """A folder in which a writer was stopped while its files took their names."""


class _Step(NamedTuple):
    """What becomes of one name."""

    path: str
    aside: str | None  # where the file goes that has it, if there is one
    new: str | None  # the complete file that gets it; None where it only goes
    identity: tuple[int, ...] | None  # of that file, which it keeps under its new name

    @property
    def is_overwritten(self) -> bool:
        """Whether the name has a file that is neither the old one nor the new one."""
        there = _identity(self.path)
        moved = self.aside is None or os.path.lexists(self.aside)
        return moved and there not in (None, self.identity)


def hidden_path(path: str, ending: str = "tmp") -> str:
    """A name beside another one that no reader takes for a shard."""
    folder, name = os.path.split(path)
    # File names may have 255 bytes.
    short = name.encode(errors="ignore")[:200].decode(errors="ignore")
    return os.path.join(folder, f".{short}.{os.urandom(8).hex()}.{ending}")


def publish_together(
    new: Mapping[str, str], stale: Iterable[str] = (), folder: str | None = None
) -> None:
    """Give complete files their names, and remove those that they replace.

    Args:
        new: by its path to be, the path of each complete file, on the same disk.
        stale: files that go.
        folder: that all of them are in or below, where the journal lies; without it a killed
            process may leave some of the files.

    Raises:
        WriteError: one cannot have its name; what was there before is as it was, or the error says
            what is not.
    """
    if folder is not None:
        recover(folder)
    with _signals_held(), locked(folder):
        if folder is not None:
            _recover(folder)
        planned = (_step(path, new.get(path)) for path in dict.fromkeys([*stale, *new]))
        steps = [step for step in planned if step.aside or step.new]
        journal = _write_journal(folder, steps) if folder is not None else None
        made: list[str] = []
        try:
            for step in steps:
                if step.aside is not None:
                    _rename(step.path, step.aside)
            for step in steps:
                if step.new is not None:
                    where = os.path.dirname(step.path) or os.curdir
                    made += reversed(absent_folders(where))
                    os.makedirs(where, exist_ok=True)
                    _rename(step.new, step.path)
            if journal is not None:
                os.unlink(journal)  # from here on it has happened
        except BaseException as error:
            left = _put_back(steps)
            remove_folders(reversed(made))
            if journal is not None and not left:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(journal)
            if isinstance(error, OSError) or left:
                raise _failure(step.path, error, left) from None
            raise
        for step in steps:
            if step.aside is not None:
                with contextlib.suppress(OSError):
                    os.unlink(step.aside)


def recover(folder: str) -> None:
    """Put back what a killed writer has left half done; call before looking for shards.

    It may have written to a folder that this one is in. Raises WriteError where that fails.
    """
    for interrupted in _interrupted(folder):
        with _signals_held(), locked(interrupted):
            _recover(interrupted)


def _interrupted(path: str) -> Iterator[str]:
    """The folders of this file or folder, up to the third above, where a writer was stopped.

    While its files take their names a writer is in such a folder, too.
    """
    folder = os.path.abspath(path)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    for _ in range(1 + _MOST_PARENTS):
        if os.path.lexists(os.path.join(folder, JOURNAL)):
            yield folder
        folder = os.path.dirname(folder)


def require_published(path: str) -> None:
    """Refuse, by InterruptedWriteError, what a killed writer has left half done.

    It may have written to a folder that this one is in, as an export writes one for each subset.
    """
    for folder in _interrupted(path):
        cause = "a program was killed while the files that it wrote to this folder took their names"
        fix = "write to the folder again, which first puts back what was there"
        raise InterruptedWriteError(f"{cause}, and some are missing", shard=folder, fix=fix)


def absent_folders(folder: str) -> list[str]:
    """The folders that have to be made for this one to be there, the innermost first."""
    absent = []
    folder = os.path.abspath(folder)
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        absent.append(folder)
        folder = os.path.dirname(folder)
    return absent


def no_folder(folder: str, error: OSError) -> WriteError:
    """Why a folder cannot be made or written to."""
    is_file = isinstance(error, FileExistsError) and not os.path.isdir(folder)
    why = "it is no folder" if is_file else error.strerror
    return WriteError(f"{folder}: cannot write there ({why})")


def remove_folders(folders: Iterable[str]) -> None:
    """Remove folders that were made, the innermost first, as far as nothing is in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)


def _step(path: str, new: str | None) -> _Step:
    if os.path.isdir(path):
        raise WriteError(f"{path}: cannot be replaced (it is a folder); nothing was changed")
    aside = hidden_path(path, "old") if os.path.lexists(path) else None
    return _Step(path, aside, new, _identity(new) if new is not None else None)


def _identity(path: str) -> tuple[int, ...] | None:
    """What a file keeps when it is renamed; None where there is none.

    Not the number of the disk, which may be another one when a container is started again.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _rename(old: str, new: str) -> None:
    try:
        os.replace(old, new)
    except PermissionError:
        # Windows, where the file is kept open for images that were read from it?
        importlib.import_module("tfod.tfrecord.record_index").close_files()
        os.replace(old, new)


def _put_back(steps: Iterable[_Step]) -> list[_Step]:
    """Undo the steps that were taken; return those for which that failed."""
    left = []
    for step in steps:
        try:
            if step.is_overwritten:
                left.append(step)
            elif step.aside is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(step.path)
            elif os.path.lexists(step.aside):
                os.replace(step.aside, step.path)
        except OSError:
            left.append(step)
    return left


def _failure(path: str, error: BaseException, left: Sequence[_Step]) -> WriteError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    now = "; ".join(f"{one.path} is {f'now {one.aside}' if one.aside else 'new'}" for one in left)
    what = f"what was there could not be put back: {now}" if left else _UNCHANGED
    return WriteError(f"{path}: cannot be written ({reason}); {what}")


# The journal


def _write_journal(folder: str, steps: Sequence[_Step]) -> str:
    """Say what is about to be done; return the journal's path."""
    path = os.path.join(folder, JOURNAL)
    names = [
        (*(one and os.path.relpath(one, folder) for one in files), identity)
        for *files, identity in steps
    ]
    aside = hidden_path(path)
    try:
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(names, file)
        os.replace(aside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        reason = f"cannot write there ({error.strerror})"
        raise WriteError(f"{folder}: {reason}; {_UNCHANGED}") from None
    return path


def _recover(folder: str) -> None:
    journal = os.path.join(folder, JOURNAL)
    try:
        with open(journal, encoding="utf-8") as file:
            steps = [_parsed(folder, names) for names in json.load(file)]
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, RecursionError):
        raise WriteError(f"{journal} cannot be read; look at the folder, and delete it") from None
    for step in steps:
        if step.is_overwritten:
            raise WriteError(
                f"{step.path} was written after a program was killed that wrote to {folder}; "
                f"nothing was changed; see which files are there, delete {journal}, or write to "
                "another folder"
            )
    left = _put_back(steps)
    if left:
        raise WriteError(f"{left[0].path}: cannot be put back; write to another folder")
    for step in steps:
        if step.new is not None:
            with contextlib.suppress(OSError):
                os.unlink(step.new)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(journal)


def _parsed(folder: str, entry: Sequence[Any]) -> _Step:
    """A step of a journal; raises ValueError where it names files outside its folder."""
    path, aside, new, identity = entry
    if path is None or not isinstance(identity, list | None):
        raise ValueError(entry)
    for name in (one for one in (path, aside, new) if one is not None):
        is_outside = os.path.isabs(name) or os.pardir in name.replace(os.sep, "/").split("/")
        if is_outside or (name is not path and not _HIDDEN.match(os.path.basename(name))):
            raise ValueError(name)
    path, aside, new = (one and os.path.join(folder, one) for one in (path, aside, new))
    return _Step(path or "", aside, new, tuple(identity) if identity is not None else None)


@contextlib.contextmanager
def locked(folder: str | None) -> Iterator[None]:
    """Let another process that publishes in this folder come to its end first."""
    handle = lock_folder(folder) if folder is not None else None
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def lock_folder(folder: str, *, waits: bool = True) -> int | None:
    """Lock a folder until the handle that is returned is closed, or this process is killed.

    None where another process has it, if that is not waited for, and where there are no locks.
    """
    handle = None
    with contextlib.suppress(ImportError, OSError):  # Windows; disks without locks
        fcntl: Any = importlib.import_module("fcntl")
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except OSError:
            os.close(handle)
            handle = None
    return handle


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let Ctrl-C and a request to end wait for a moment: names change together or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in map(int, (signal.SIGINT, signal.SIGTERM)):
            before[number] = signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # else it was not set from Python
                signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


class AtomicFile(contextlib.AbstractContextManager["AtomicFile"]):
    """A file that is written aside and takes its name only when it is complete.

    Use as a context manager: leaving it publishes the file, leaving it by an exception discards
    it. Of several files that belong together none is published itself, but all by
    :func:`publish_together`.

    Attributes:
        path: where it will be.
        aside: where it is until then.
    """

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path) or os.curdir
        require_local(folder)
        self._made = absent_folders(folder)
        try:
            os.makedirs(folder, exist_ok=True)
            self.path, self.aside = path, hidden_path(path)
            handle = os.open(self.aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        except OSError as error:
            remove_folders(self._made)
            raise no_folder(folder, error) from None
        self.stream: BinaryIO = os.fdopen(handle, "wb", buffering=_BUFFER_BYTES)

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes; raises WriteError where the disk does not take them, as do the others."""
        try:
            if len(data) <= _LARGEST_WRITE:
                self.stream.write(data)
                return
            view = memoryview(data)
            for start in range(0, len(view), _LARGEST_WRITE):
                self.stream.write(view[start : start + _LARGEST_WRITE])
        except OSError as error:
            raise self._failure(error) from None

    def complete(self) -> None:
        """Hand everything to the system, which is where a full disk shows.

        Not fsync: it doubles the time of an export, and what it guards against, a power cut in
        the seconds after, ends in a shard that a reader refuses.
        """
        try:
            self.stream.close()
        except OSError as error:
            raise self._failure(error) from None

    def pending(self) -> dict[str, str]:
        """Where the complete file is, by the path that it will have."""
        return {self.path: self.aside}

    def publish(self) -> None:
        """Complete the file and give it its name, which until then keeps whatever it had."""
        self.complete()
        try:
            _rename(self.aside, self.path)  # in one step: the name always has a whole file
        except OSError as error:
            raise self._failure(error) from None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what was written aside, and the folders that were made for it."""
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(OSError):
            os.unlink(self.aside)
        remove_folders(self._made)

    def _failure(self, error: OSError) -> WriteError:
        return _failure(self.path, error, ())
