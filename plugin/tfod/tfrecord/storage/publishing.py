"""Files that take their names together, or not at all: the one way in which they appear.

Every file is complete, in a hidden folder beside its name, before anything that is there is
touched. Then what goes is moved aside, the new files get their names, and what was moved aside is
removed. An error puts everything back; SIGINT and SIGTERM wait until it is over. A process that is
killed in between leaves what was there under hidden names beside it. What is read is never written
over.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import shutil
import signal
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import TracebackType
from typing import Any, BinaryIO

from tfod.errors import TfodError
from tfod.tfrecord.storage.urls import require_local

_BUFFER_BYTES = 1 << 17
# Not more: for one large write the system looks for large pages, and took up to 10 times as long.
_LARGEST_WRITE = 1 << 18
_LABEL_MAP = ".pbtxt"
_UNCHANGED = "what was there before is unchanged"


class OutputExistsError(TfodError):
    """There is something already where an output should go."""


class WriteError(TfodError):
    """A file could not be written: no room, no permission, no folder."""


def _rename_together(new: Mapping[str, str], obsolete: Iterable[str]) -> None:
    """Give complete files their names, in this order, and remove those that they replace.

    Args:
        new: by its path to be, the path of each complete file, on the same disk.
        obsolete: files that go.

    Raises:
        WriteError: one cannot have its name; what was there before is as it was, or the error says
            what is not.
    """
    there = [path for path in dict.fromkeys((*obsolete, *new)) if os.path.lexists(path)]
    # A file that is alone is there until another one has its name.
    kept = {} if len(new) == 1 and there == [*new] else {path: _beside(path) for path in there}
    given: set[str] = set()
    made: list[str] = []  # folders, the innermost first
    path = ""
    with _signals_held():
        try:
            for path, temporary_path in kept.items():
                _rename(path, temporary_path)
            for path, file in new.items():
                folder = os.path.dirname(path) or os.curdir
                made[:0] = _absent_folders(folder)
                os.makedirs(folder, exist_ok=True)
                _rename(file, path)
                given.add(path)
        except BaseException as error:
            left = _put_back(kept, given)
            _remove_folders(made)
            if isinstance(error, OSError) or left:
                raise _failure(path, error, left) from None
            raise
        for temporary_path in kept.values():
            with contextlib.suppress(OSError):
                os.unlink(temporary_path)


def _absent_folders(folder: str) -> list[str]:
    """The folders that have to be made for this one to be there, the innermost first."""
    above = _and_above(os.path.abspath(folder))
    return list(itertools.takewhile(lambda one: not os.path.lexists(one), above))


def _remove_folders(folders: Iterable[str]) -> None:
    """Remove folders that were made, the innermost first, as far as nothing is in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)


def _no_folder(folder: str, error: OSError) -> WriteError:
    """Why a folder cannot be made or written to."""
    is_file = isinstance(error, FileExistsError) and not os.path.isdir(folder)
    why = "it is no folder" if is_file else error.strerror
    return WriteError(f"{folder}: cannot write there ({why})")


def _beside(path: str) -> str:
    """A name beside another one that no reader takes for a shard."""
    folder, name = os.path.split(path)
    # File names may have 255 bytes.
    short = name.encode(errors="ignore")[:200].decode(errors="ignore")
    return os.path.join(folder, f".{short}.{os.urandom(8).hex()}.old")


def _rename(old: str, new: str) -> None:
    try:
        os.replace(old, new)
    except PermissionError:
        # Windows, where the file is kept open for images that were read from it?
        importlib.import_module("tfod.tfrecord.record_index").close_files()
        os.replace(old, new)


def _put_back(kept: Mapping[str, str], given: Set[str]) -> list[str]:
    """Remove files that were given names, and give these to those that had them.

    Returns where each is for which that failed.
    """
    left = []
    for path in dict.fromkeys((*kept, *given)):
        temporary_path = kept.get(path, "")
        try:
            if path in given:
                os.unlink(path)
            if os.path.lexists(temporary_path):
                os.replace(temporary_path, path)
        except OSError:
            left.append(f"{path} is {f'now {temporary_path}' if temporary_path else 'new'}")
    return left


def _failure(path: str, error: BaseException, left: Sequence[str] = ()) -> WriteError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    what = f"what was there could not be put back: {'; '.join(left)}" if left else _UNCHANGED
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


class PendingFile:
    """A file of an :class:`Output`, which is written aside.

    Attributes:
        path: what errors call it.
        temporary_path: where it is until it has its name.
    """

    def __init__(self, path: str, temporary_path: str) -> None:
        self.path, self.temporary_path = path, temporary_path
        try:
            self.stream: BinaryIO = open(temporary_path, "xb", buffering=_BUFFER_BYTES)
        except OSError as error:
            raise _no_folder(os.path.dirname(path) or os.curdir, error) from None

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
            raise _failure(self.path, error) from None

    def complete(self) -> None:
        """Hand everything to the system, which is where a full disk shows.

        Not fsync: it doubles the time of an export, and what it guards against, a power cut in
        the seconds after, ends in a shard that a reader refuses.
        """
        try:
            self.stream.close()
        except OSError as error:
            raise _failure(self.path, error) from None

    def discard(self) -> None:
        """Close it, complete or not."""
        with contextlib.suppress(OSError):
            self.stream.close()


class Output(contextlib.ExitStack):
    """Files and folders that are written beside their names, and get these together.

    Use as a context manager: leaving it publishes all, leaving it by an exception (also
    KeyboardInterrupt) leaves nothing, and what was there before as it was. Every method raises
    OutputExistsError where a file is there that may not be replaced, and WriteError where one
    cannot be written.

    Args:
        sources: the files and folders that are read: nothing is written to them.
        overwrite: whether files that are there may be replaced.

    Attributes:
        obsolete: files that go with those that are replaced.
    """

    def __init__(self, sources: Iterable[str] = (), overwrite: bool = True) -> None:
        super().__init__()
        self.obsolete: Collection[str] = ()
        self._read = ProtectedPaths(sources)
        self._overwrite = overwrite
        self._temporary_paths: dict[str, str] = {}  # by the path of each file or folder to be
        self._work: dict[str, str] = {}  # by folder, where its files are until then
        self._begun: list[PendingFile] = []

    def begin(self, path: str) -> PendingFile:
        """A file to write; by which name it goes into that folder :meth:`replace` says."""
        folder = os.path.dirname(path) or os.curdir
        if folder not in self._work:
            self._work[folder] = self.enter_context(temporary_folder(folder))
        file = PendingFile(path, os.path.join(self._work[folder], str(len(self._begun))))
        self._begun.append(file)
        self.callback(file.discard)
        return file

    def file(self, path: str) -> PendingFile:
        """A file to write, of this name."""
        file = self.begin(path)
        self.replace(path, file.temporary_path)
        return file

    def add(self, path: str, is_file: bool = False) -> str:
        """A folder to write in, whose files will be in the one of that path.

        Of a file it is where to write it, by whatever name: then :meth:`replace` says by which.

        Raises:
            TfodError: it is a URL, or lies within another one, or around it.
        """
        whole = os.path.abspath(path)
        for other in map(os.path.abspath, self._temporary_paths):
            if os.path.commonpath((whole, other)) in (whole, other):
                raise TfodError(
                    f"{path} cannot be where the images go, since {other} is written, too; name a "
                    "folder that is neither in it nor around it, or leave out --images"
                )
        is_empty = os.path.isdir(path) and not os.listdir(path)
        if os.path.lexists(path) and not is_empty:
            self._require_replaceable([path])
        temporary_path = self.enter_context(
            temporary_folder(os.path.dirname(path) or "." if is_file else path)
        )
        self._temporary_paths[path] = temporary_path
        return temporary_path

    def replace(self, path: str, temporary_path: str) -> None:
        """Let a path have a complete file, that lies on the same disk."""
        self._temporary_paths[path] = temporary_path

    def publish(self) -> None:
        """Complete all files and give them their names, label maps last; all of them, or none."""
        for file in self._begun:
            file.complete()
        pending = dict(pair for pairs in self._temporary_paths.items() for pair in _files(*pairs))
        for path in pending:
            if os.path.exists(path) and not os.path.isfile(path):
                what = "a folder" if os.path.isdir(path) else "not a regular file"
                raise OutputExistsError(f"{path} is {what}, where a file is to go; move it away")
            if os.path.lexists(path):
                self._require_replaceable([path])
        last = sorted(pending, key=lambda path: path.endswith(_LABEL_MAP))
        _rename_together({path: pending[path] for path in last}, self.obsolete)

    def discard(self) -> None:
        """Remove what was written, and the folders that were made for it."""
        super().__exit__(None, None, None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            super().__exit__(kind, error, trace)  # the last one first: the first made the folder
        if isinstance(error, OSError | WriteError):
            self._raise_named(error)

    def _raise_named(self, error: OSError | WriteError) -> None:
        """Name a file as it was asked for, not where it lies until then."""
        text = str(error)
        if isinstance(error, OSError):
            name = error.filename or next(
                iter(self._temporary_paths.values()), ""
            )  # some name no file
            text = f"{name}: cannot be written ({error.strerror or error})"
        for path, temporary_path in self._temporary_paths.items():
            if temporary_path in text:
                raise WriteError(text.replace(temporary_path, path)) from None

    def _require_replaceable(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._read.require_unprotected(path)
        if paths and not self._overwrite:
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            raise OutputExistsError(
                f"{paths[0]}{more} is there already; write to another folder, or replace it with "
                "--overwrite"
            )


def _files(path: str, temporary_path: str) -> Iterator[tuple[str, str]]:
    """Each file by the path that it will have, where it is now."""
    if not os.path.isdir(temporary_path):
        yield path, temporary_path
        return
    for folder, _, names in os.walk(temporary_path):
        above = os.path.normpath(os.path.join(path, os.path.relpath(folder, temporary_path)))
        yield from ((os.path.join(above, name), os.path.join(folder, name)) for name in names)


@contextlib.contextmanager
def temporary_folder(inside: str) -> Iterator[str]:
    """A hidden folder inside the one that is written to, on the same disk; gives its whole path.

    It goes in the end with all that is in it, and so do the folders that were made for it, as far
    as nothing else is in them.
    """
    require_local(inside)
    folder = os.path.abspath(inside)
    path = os.path.join(folder, f".tfod.{os.urandom(8).hex()}.tmp")
    made = _absent_folders(folder)
    try:
        try:
            os.makedirs(folder, exist_ok=True)
            os.mkdir(path)
        except OSError as error:
            raise _no_folder(inside, error) from None
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _remove_folders(made)


class ProtectedPaths:
    """Files and folders that a command reads, of a folder all that is in it.

    Args:
        paths: of this machine; others (URLs, names of entries in a zip) protect nothing, nor does
            None, an option that was not given.
    """

    def __init__(self, paths: Iterable[str | None]) -> None:
        self._read = {_identity(path) for path in paths if path}

    def require_unprotected(self, output: str) -> None:
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
