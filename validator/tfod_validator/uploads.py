"""Uploads on the disk: a folder each, files under numbers. What clients call them is not a path.

An upload arrives in ``incoming`` and is moved to ``uploads`` when it is complete, so whatever is
found there is whole.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from tfod_validator.jobs import Store
from tfod_validator.settings import Settings
from tfod_validator.validation import UploadedFile

_LONGEST_NAME = 255
_MARK = "mark"
_PROFILE_ENDINGS = (".yaml", ".yml", ".json", ".py")


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

    def new_file(self) -> BinaryIO:
        """A new file to write and read."""
        path = self._folder / str(self._count)
        self._count += 1
        return path.open("w+b", buffering=1 << 20)

    def keep(self, file: BinaryIO, name: str, role: str) -> UploadedFile:
        """Take a file that was written, once it is on the disk, and close it."""
        file.flush()
        os.fsync(file.fileno())  # the database will say that it is there
        size = os.fstat(file.fileno()).st_size
        file.close()
        stored = Path(str(file.name))
        ending = os.path.splitext(name)[1].lower()
        if role == "profile" and ending in _PROFILE_ENDINGS:
            stored = stored.rename(stored.with_suffix(ending))  # it decides how it is read
        return UploadedFile(shown_name(name), size, role, stored.name)

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


def shown_name(name: str) -> str:
    """What reports call a file: the last part of what the client calls it."""
    last = re.split(r"[/\\]", name)[-1].strip()
    if last in ("", ".", ".."):
        last = "upload"
    return last[-_LONGEST_NAME:]


def folder_of(settings: Settings, key: str) -> Path:
    """Where the files of a complete upload are."""
    return settings.uploads / key


def settle_mark(settings: Settings, store: Store, *, takes_uploads: bool) -> str | None:
    """The mark of the data folder, by which processes see that they share it.

    On a machine where the folder is not mounted there is an empty place, or another folder. The
    first process that takes uploads makes the mark; without a database elsewhere any may.

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
    """What is said to those who run the service, where the mark is not seen."""
    return (
        f"{settings.data} is not the data folder of the service that uses this database: mount "
        "that one here; or, if this folder has replaced it on purpose, write "
        f"{mark} into {settings.data / _MARK}"
    )


def remove(settings: Settings, key: str) -> None:
    """Remove the files of an upload, if they are still there."""
    shutil.rmtree(settings.uploads / key, ignore_errors=True)


def complete_ones(settings: Settings, older_than: float) -> list[str]:
    """The complete uploads that are older than so many seconds."""
    return [path.name for path in _old(settings.uploads, older_than)]


def remove_abandoned(settings: Settings, older_than: float) -> None:
    """Remove what has been arriving for longer than so many seconds: nobody sends it any more."""
    for path in _old(settings.incoming, older_than):
        shutil.rmtree(path, ignore_errors=True)


def free_bytes(settings: Settings) -> int:
    """Space on the disk of the uploads."""
    return shutil.disk_usage(settings.data).free


def with_names_of_their_own(files: Iterable[UploadedFile]) -> Iterator[UploadedFile]:
    """The files; where names come again, as those of files from several folders, with a number."""
    taken: set[str] = set()
    for file in files:
        name, (stem, ending) = file.name, os.path.splitext(file.name)
        for number in itertools.count(2):
            if name not in taken:
                break
            name = f"{stem} ({number}){ending}"
        taken.add(name)
        yield replace(file, name=name)


def _sync(folder: Path) -> None:
    """Let the disk know the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _old(folder: Path, age: float) -> Iterator[Path]:
    limit = time.time() - age
    for path in folder.iterdir():
        try:
            if path.stat().st_mtime < limit:
                yield path
        except FileNotFoundError:
            continue
