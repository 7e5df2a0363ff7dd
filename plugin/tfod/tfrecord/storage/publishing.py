"""Files that take their names together, or not at all: the one way in which they appear.

Every file is complete, under a hidden name beside its own, before anything that is there is
touched. Then what goes is moved aside, the new files get their names, and what was moved aside is
removed. An error puts everything back; SIGINT and SIGTERM wait until it is over. A process that is
killed in between leaves what was there under hidden names beside it. What is read is never written
over.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from tfod.errors import TfodError
from tfod.tfrecord.storage.urls import require_local

_BUFFER_BYTES = 1 << 17
# Not more: for one large write the system looks for large pages, and took up to 10 times as long.
_LARGEST_WRITE = 1 << 18
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends
_UNCHANGED = "what was there before is unchanged"


class OutputExistsError(TfodError):
    """There is something already where an output should go."""


class WriteError(TfodError):
    """A file could not be written: no room, no permission, no folder."""


class _Step(NamedTuple):
    """What becomes of one name."""

    path: str
    aside: str | None  # where the file goes that has it, if there is one
    new: str | None  # the complete file that gets it; None where it only goes


def hidden_path(path: str, ending: str = "tmp") -> str:
    """A name beside another one that no reader takes for a shard."""
    folder, name = os.path.split(path)
    # File names may have 255 bytes.
    short = name.encode(errors="ignore")[:200].decode(errors="ignore")
    return os.path.join(folder, f".{short}.{os.urandom(8).hex()}.{ending}")


def publish_together(new: Mapping[str, str], stale: Iterable[str] = ()) -> None:
    """Give complete files their names, in this order, and remove those that they replace.

    Args:
        new: by its path to be, the path of each complete file, on the same disk.
        stale: files that go.

    Raises:
        WriteError: one cannot have its name; what was there before is as it was, or the error says
            what is not.
    """
    with _signals_held():
        planned = (_step(path, new.get(path)) for path in dict.fromkeys([*stale, *new]))
        steps = [step for step in planned if step.aside or step.new]
        made: list[str] = []
        done: list[_Step] = []
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
                    done.append(step)
        except BaseException as error:
            left = _put_back(steps, done)
            remove_folders(reversed(made))
            if isinstance(error, OSError) or left:
                raise _failure(step.path, error, left) from None
            raise
        for step in steps:
            if step.aside is not None:
                with contextlib.suppress(OSError):
                    os.unlink(step.aside)


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
    return _Step(path, hidden_path(path, "old") if os.path.lexists(path) else None, new)


def _rename(old: str, new: str) -> None:
    try:
        os.replace(old, new)
    except PermissionError:
        # Windows, where the file is kept open for images that were read from it?
        importlib.import_module("tfod.tfrecord.record_index").close_files()
        os.replace(old, new)


def _put_back(steps: Iterable[_Step], done: Sequence[_Step]) -> list[_Step]:
    """Undo what was done of some steps; return those for which that failed."""
    left = []
    for step in steps:
        try:
            if step in done:
                os.unlink(step.path)
            if step.aside is not None and os.path.lexists(step.aside):
                os.replace(step.aside, step.path)
        except OSError:
            left.append(step)
    return left


def _failure(path: str, error: BaseException, left: Sequence[_Step]) -> WriteError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    now = "; ".join(f"{one.path} is {f'now {one.aside}' if one.aside else 'new'}" for one in left)
    what = f"what was there could not be put back: {now}" if left else _UNCHANGED
    return WriteError(f"{path}: cannot be written ({reason}); {what}")


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


class ReadPaths:
    """Files and folders that a command reads, of a folder all that is in it.

    Args:
        paths: of this machine; others (URLs, names of entries in a zip) protect nothing, nor does
            None, an option that was not given.
    """

    def __init__(self, paths: Iterable[str | None]) -> None:
        self._read = {_identity(path) for path in paths if path}

    def require_other(self, output: str) -> None:
        """See that a file or a folder that is to be written is none of them, and lies in none.

        Links are followed. Raises OutputExistsError.
        """
        for path in _and_above(os.path.realpath(output)):
            if _identity(path) in self._read:
                is_other = path != os.path.realpath(output)
                where = f"lies in {path}, which is read" if is_other else "is read"
                raise OutputExistsError(f"{output}: {where} and not written to; name another place")


def _and_above(path: str) -> Iterator[str]:
    yield path
    while path != (path := os.path.dirname(path)):
        yield path


def _identity(path: str) -> tuple[int, int] | str:
    """Which file a path means, by whatever name; of one that is not there its name."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.abspath(path)
    return status.st_dev, status.st_ino
