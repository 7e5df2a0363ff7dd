"""Publishing of output files: all of them get their names, or none does.

Files are first completed in a hidden folder next to their destinations. Publishing then moves the
existing files to hidden names, renames the new files, and deletes the old ones. If an error
occurs, the old files are restored; SIGINT and SIGTERM are delayed in the meantime. If the process
is killed, the old files remain under their hidden names. Inputs are never overwritten.
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
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from tfod.errors import TfodError
from tfod.tfrecord.storage.urls import require_local

_BUFFER_BYTES = 1 << 17
# For a larger write the kernel looks for large pages, which took up to 10 times as long.
_MAX_WRITE_BYTES = 1 << 18
_LABEL_MAP_EXTENSION = ".pbtxt"


class OutputExistsError(TfodError):
    """An output file or folder already exists and may not be replaced."""


class WriteError(TfodError):
    """A file could not be written, for example because the disk is full."""


def _rename_all(new_files: Mapping[str, str], obsolete: Iterable[str]) -> None:
    """Rename files to their destinations, in this order; delete existing and obsolete files."""
    existing = [path for path in dict.fromkeys((*obsolete, *new_files)) if os.path.lexists(path)]
    # A single file is replaced atomically, so that no backup is needed.
    backups = (
        {}
        if len(new_files) == 1 and existing == [*new_files]
        else {path: _backup_path(path) for path in existing}
    )
    renamed: set[str] = set()
    new_folders: list[str] = []  # innermost first
    path = ""
    with _delay_signals():
        try:
            for path, backup in backups.items():
                _rename(path, backup)
            for path, file in new_files.items():
                folder = os.path.dirname(path) or os.curdir
                new_folders[:0] = _missing_folders(folder)
                os.makedirs(folder, exist_ok=True)
                _rename(file, path)
                renamed.add(path)
        except BaseException as error:
            not_restored = _restore(backups, renamed)
            _remove_empty_folders(new_folders)
            if isinstance(error, OSError) or not_restored:
                raise _write_error(path, error, not_restored) from None
            raise
        for backup in backups.values():
            with contextlib.suppress(OSError):
                os.unlink(backup)


def _missing_folders(folder: str) -> list[str]:
    """Return the folders of a path that do not exist, innermost first."""
    path = Path(os.path.abspath(folder))
    missing = itertools.takewhile(lambda part: not os.path.lexists(part), (path, *path.parents))
    return list(map(str, missing))


def _remove_empty_folders(folders: Iterable[str]) -> None:
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)


def _folder_error(folder: str, error: OSError) -> WriteError:
    is_file = isinstance(error, FileExistsError) and not os.path.isdir(folder)
    reason = "it is not a folder" if is_file else error.strerror
    return WriteError(f"{folder}: cannot write there ({reason})")


def _backup_path(path: str) -> str:
    """Return a hidden name in the same folder that no reader takes for a shard."""
    folder, name = os.path.split(path)
    # File names are limited to 255 bytes.
    short = name.encode(errors="ignore")[:200].decode(errors="ignore")
    return os.path.join(folder, f".{short}.{os.urandom(8).hex()}.old")


def _rename(source: str, destination: str) -> None:
    try:
        os.replace(source, destination)
    except PermissionError:
        # On Windows the file may still be open because images were read from it.
        importlib.import_module("tfod.tfrecord.record_index").close_files()
        os.replace(source, destination)


def _restore(backups: Mapping[str, str], renamed: Set[str]) -> list[str]:
    """Delete the renamed files and restore the previous ones; return a message for each failure."""
    not_restored = []
    for path in dict.fromkeys((*backups, *renamed)):
        backup = backups.get(path, "")
        try:
            if path in renamed:
                os.unlink(path)
            if os.path.lexists(backup):
                os.replace(backup, path)
        except OSError:
            not_restored.append(f"{path} is {f'now {backup}' if backup else 'new'}")
    return not_restored


def _write_error(path: str, error: BaseException, not_restored: Sequence[str] = ()) -> WriteError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    state = "existing files are unchanged"
    if not_restored:
        state = f"these files could not be restored: {'; '.join(not_restored)}"
    return WriteError(f"{path}: cannot be written ({reason}); {state}")


@contextlib.contextmanager
def _delay_signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers: dict[int, Any] = {}
    try:
        for number in map(int, (signal.SIGINT, signal.SIGTERM)):
            handlers[number] = signal.signal(number, lambda number, _: received.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # None: the handler was not set from Python
                signal.signal(number, handler)
        for number in received[:1]:
            signal.raise_signal(number)


class PendingFile:
    """A file of an :class:`Output` that is written to a temporary path until it is published.

    Attributes:
        path: destination, which error messages name.
        temporary_path: path until the file is published.
    """

    def __init__(self, path: str, temporary_path: str) -> None:
        self.path, self.temporary_path = path, temporary_path
        try:
            self.stream: BinaryIO = open(temporary_path, "xb", buffering=_BUFFER_BYTES)
        except OSError as error:
            raise _folder_error(os.path.dirname(path) or os.curdir, error) from None

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes to the file, or raise WriteError."""
        try:
            if len(data) <= _MAX_WRITE_BYTES:
                self.stream.write(data)
                return
            view = memoryview(data)
            for start in range(0, len(view), _MAX_WRITE_BYTES):
                self.stream.write(view[start : start + _MAX_WRITE_BYTES])
        except OSError as error:
            raise _write_error(self.path, error) from None

    def complete(self) -> None:
        """Flush and close the file; raise WriteError if the disk is full.

        fsync is not called, because it doubles the time of an export. After a power cut within
        the next seconds, a shard may be truncated, which every reader detects.
        """
        try:
            self.stream.close()
        except OSError as error:
            raise _write_error(self.path, error) from None

    def discard(self) -> None:
        """Close the file, whether or not it is complete."""
        with contextlib.suppress(OSError):
            self.stream.close()


class Output(contextlib.ExitStack):
    """Files and folders that are published together.

    Use it as a context manager. Leaving the block publishes everything; leaving it with an
    exception, including KeyboardInterrupt, discards everything and keeps the existing files.
    Every method raises OutputExistsError for a file that exists and may not be replaced, and
    WriteError for a file that cannot be written.

    Args:
        sources: files and folders that the command reads, which must not be overwritten.
        overwrite: whether existing files may be replaced.
        dry_run: whether to discard everything instead of publishing it.

    Attributes:
        obsolete: further files to delete when the output is published.
        published: paths of the published files, label maps last; also in a dry run.
    """

    def __init__(
        self, sources: Iterable[str] = (), overwrite: bool = True, dry_run: bool = False
    ) -> None:
        super().__init__()
        self.obsolete: Collection[str] = ()
        self.published: Sequence[str] = ()
        self._protected = ProtectedPaths(sources)
        self._overwrite = overwrite
        self._dry_run = dry_run
        self._temporary_paths: dict[str, str] = {}  # by destination, of files and folders
        self._work_folders: dict[str, str] = {}  # by folder of the destination
        self._files: list[PendingFile] = []

    def begin(self, path: str) -> PendingFile:
        """Create a file in the folder of ``path``; :meth:`replace` later sets its final name."""
        folder = os.path.dirname(path) or os.curdir
        if folder not in self._work_folders:
            self._work_folders[folder] = self.enter_context(temporary_folder(folder))
        file = PendingFile(path, os.path.join(self._work_folders[folder], str(len(self._files))))
        self._files.append(file)
        self.callback(file.discard)
        return file

    def file(self, path: str) -> PendingFile:
        """Create a file that will be published as ``path``."""
        file = self.begin(path)
        self.replace(path, file.temporary_path)
        return file

    def add(self, path: str, is_file: bool = False) -> str:
        """Return a temporary folder whose files will be published in the folder ``path``.

        With ``is_file``, it is for the file ``path`` under any name; then call :meth:`replace`.

        Raises:
            TfodError: ``path`` is a URL, or it contains, or is inside, another output.
        """
        absolute = os.path.abspath(path)
        for other in map(os.path.abspath, self._temporary_paths):
            if os.path.commonpath((absolute, other)) in (absolute, other):
                raise TfodError(
                    f"{path}: images cannot be written there, because {other} is written, too; "
                    "choose a folder that neither contains it nor is inside it, or omit --images"
                )
        is_empty = os.path.isdir(path) and not os.listdir(path)
        if os.path.lexists(path) and not is_empty:
            self._require_replaceable([path])
        parent = os.path.dirname(path) or "." if is_file else path
        temporary_path = self.enter_context(temporary_folder(parent))
        self._temporary_paths[path] = temporary_path
        return temporary_path

    def replace(self, path: str, temporary_path: str) -> None:
        """Publish the complete file ``temporary_path``, on the same disk, as ``path``."""
        self._temporary_paths[path] = temporary_path

    def publish(self) -> None:
        """Complete all files and rename them to their destinations, label maps last."""
        for file in self._files:
            file.complete()
        pending = dict(pair for pairs in self._temporary_paths.items() for pair in _walk(*pairs))
        for path in pending:
            if os.path.exists(path) and not os.path.isfile(path):
                kind = "a folder" if os.path.isdir(path) else "not a regular file"
                raise OutputExistsError(f"{path} is {kind} and cannot be replaced; rename it")
            if os.path.lexists(path):
                self._require_replaceable([path])
        ordered = sorted(pending, key=lambda path: (path.endswith(_LABEL_MAP_EXTENSION), path))
        if not self._dry_run:
            _rename_all({path: pending[path] for path in ordered}, self.obsolete)
        self.published = [os.path.normpath(path) for path in ordered]

    def discard(self) -> None:
        """Delete everything that was written, including the folders created for it."""
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
            super().__exit__(kind, error, trace)  # innermost folders first
        if isinstance(error, OSError | WriteError):
            self._raise_with_destination(error)

    def _raise_with_destination(self, error: OSError | WriteError) -> None:
        """Raise the error with the destination instead of the temporary path."""
        text = str(error)
        if isinstance(error, OSError):
            name = error.filename or next(iter(self._temporary_paths.values()), "")
            text = f"{name}: cannot be written ({error.strerror or error})"
        for path, temporary_path in self._temporary_paths.items():
            if temporary_path in text:
                raise WriteError(text.replace(temporary_path, path)) from None

    def _require_replaceable(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._protected.require_unprotected(path)
        if paths and not self._overwrite:
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            raise OutputExistsError(
                f"{paths[0]}{more} already exists; write to another folder, or pass --overwrite "
                "to replace it"
            )


def _walk(path: str, temporary_path: str) -> Iterator[tuple[str, str]]:
    """Yield the destination and the current path of a file, or of each file in a folder."""
    if not os.path.isdir(temporary_path):
        yield path, temporary_path
        return
    for folder, _, names in os.walk(temporary_path):
        target = os.path.normpath(os.path.join(path, os.path.relpath(folder, temporary_path)))
        yield from ((os.path.join(target, name), os.path.join(folder, name)) for name in names)


@contextlib.contextmanager
def temporary_folder(parent: str) -> Iterator[str]:
    """Yield the absolute path of a new hidden folder in ``parent``, and thus on the same disk.

    On exit, it is deleted, with the empty folders that were created for it.
    """
    require_local(parent)
    folder = os.path.abspath(parent)
    path = os.path.join(folder, f".tfod.{os.urandom(8).hex()}.tmp")
    new_folders = _missing_folders(folder)
    try:
        try:
            os.makedirs(folder, exist_ok=True)
            os.mkdir(path)
        except OSError as error:
            raise _folder_error(parent, error) from None
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _remove_empty_folders(new_folders)


class ProtectedPaths:
    """Files and folders that a command reads and must not overwrite.

    Args:
        paths: local paths; a folder protects its content. None, URLs and zip entries are ignored.
    """

    def __init__(self, paths: Iterable[str | None]) -> None:
        self._protected = {_identity(path) for path in paths if path}

    def require_unprotected(self, output: str) -> None:
        """Check that a path, with links followed, is not protected; raise OutputExistsError."""
        target = Path(os.path.realpath(output))
        for path in (target, *target.parents):
            if _identity(str(path)) in self._protected:
                is_inside = path != target
                reason = f"is inside {path}, which is an input" if is_inside else "is an input"
                raise OutputExistsError(f"{output} {reason}; choose another location")


def _identity(path: str) -> tuple[int, int] | str:
    """Return the device and inode of a file, or its absolute path if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.abspath(path)
    return status.st_dev, status.st_ino
