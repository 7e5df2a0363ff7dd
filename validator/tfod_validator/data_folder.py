"""The data folder: uploads that arrive, uploads that are complete, and the folder's mark.

An upload arrives in the folder ``incoming`` and is moved to ``uploads`` when it is complete, so
what is found there is whole. Files are stored under numbers; their names are never paths.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfod_validator.jobs import Store
from tfod_validator.settings import Settings
from tfod_validator.validation import UploadedFile

_PROFILE_ENDINGS = (".yaml", ".yml", ".json", ".py")
_LONGEST_NAME = 255
_MARK = "mark"


class Incoming:
    """The folder of an upload that arrives; discarded unless it is published."""

    def __init__(self, settings: Settings, key: str) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made.
        """
        self._folder = settings.incoming / key
        self._published = settings.uploads / key
        self._count = 0
        self._folder.mkdir(mode=0o700)

    def store(self, pieces: Iterable[bytes], name: str, role: str) -> UploadedFile:
        """Write a file, and wait until it is on the disk: the database will say that it is."""
        ending = os.path.splitext(name)[1].lower()
        is_profile = role == "profile" and ending in _PROFILE_ENDINGS
        stored = f"{self._count}{ending if is_profile else ''}"  # it decides how it is read
        self._count += 1
        with (self._folder / stored).open("xb", buffering=1 << 20) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            return UploadedFile(_shown_name(name), file.tell(), role, stored)

    def publish(self) -> None:
        """Move the folder where complete uploads are."""
        os.utime(self._folder)  # its age there begins now
        self._folder.rename(self._published)
        for folder in (self._published, self._published.parent):
            _sync(folder)

    def discard(self) -> None:
        """Remove all that has arrived."""
        for folder in (self._folder, self._published):
            shutil.rmtree(folder, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Let the disk know the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _shown_name(name: str) -> str:
    """What reports call a file: the last part of what the client calls it."""
    last = re.split(r"[/\\]", name)[-1].strip()
    return (last if last not in ("", ".", "..") else "upload")[-_LONGEST_NAME:]


def folder_of(settings: Settings, key: str) -> Path:
    """Where the files of a complete upload are."""
    return settings.uploads / key


def remove(settings: Settings, key: str) -> None:
    """Remove the files of an upload, if they are still there."""
    shutil.rmtree(settings.uploads / key, ignore_errors=True)


def clean(
    settings: Settings, store: Store, *, orphaned_after: float, abandoned_after: float
) -> int:
    """Delete expired reports, and the files that are not needed any more.

    Args:
        settings: of the service.
        store: its database.
        orphaned_after: age in seconds of a complete upload that the database does not know.
        abandoned_after: age in seconds of an upload that has not arrived, and will not.

    Returns:
        How many reports have expired.
    """
    expired = store.delete_expired()
    there = [path.name for path in _older_than(orphaned_after, settings.uploads)]
    for key in {*expired, *there} - store.needs_files(there):
        remove(settings, key)
    for path in _older_than(abandoned_after, settings.incoming):
        shutil.rmtree(path, ignore_errors=True)
    return len(expired)


def _older_than(age: float, folder: Path) -> Iterator[Path]:
    limit = time.time() - age
    for path in folder.iterdir():
        try:
            if path.stat().st_mtime < limit:
                yield path
        except FileNotFoundError:
            continue


def free_bytes(settings: Settings) -> int:
    """Space on the disk of the uploads."""
    return shutil.disk_usage(settings.data).free


def settle_mark(settings: Settings, store: Store, *, takes_uploads: bool) -> str | None:
    """The mark of the data folder, by which processes see that they share it.

    On a machine where the folder is not mounted there is an empty folder, or another one. The
    first process that takes uploads makes the mark; without a database server any may.

    Returns:
        The mark that the database knows; None if it is not made yet.
    """
    path = settings.data / _MARK
    try:
        there = path.read_text().strip()
    except OSError:
        there = ""
    is_here_surely = not settings.database_url  # the database itself is in the folder
    if not takes_uploads and not is_here_surely:
        return store.known_mark()
    new = there or secrets.token_hex(16)
    mark = store.mark(new)
    if mark != there and (mark == new or is_here_surely):
        path.write_text(mark + "\n")
    return mark


def sees_mark(settings: Settings, mark: str | None) -> bool:
    """Whether the data folder is the one of the database."""
    try:
        return mark is not None and (settings.data / _MARK).read_text().strip() == mark
    except OSError:
        return False


def wrong_folder(settings: Settings, mark: str | None) -> str:
    """The message for those who run the service where the mark is not seen."""
    return (
        f"{settings.data} is not the data folder of the service that uses this database: mount "
        "that one here; or, if this folder has replaced it on purpose, write "
        f"{mark} into {settings.data / _MARK}"
    )
