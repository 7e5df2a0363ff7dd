"""The data folder: uploads that arrive, uploads that are complete, and the folder's mark.

An upload arrives in the folder ``incoming`` and is moved to ``uploads`` when it is complete, so
what is found there is whole. Files are stored under numbers; their names are never paths.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfod_validator.jobs.database import Database
from tfod_validator.jobs.request import UploadedFile
from tfod_validator.settings import Settings

_PROFILE_ENDINGS = (".yaml", ".yml", ".json", ".py")
_LONGEST_NAME = 255
_ORPHANED_AFTER = 60.0
_ABANDONED_AFTER = 3600.0
_log = logging.getLogger("tfod.service")


class Incoming:
    """The folder of an upload that arrives; discarded unless it is published."""

    def __init__(self, settings: Settings, key: str) -> None:
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
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
            return UploadedFile(_shown_name(name), file.tell(), role, stored)

    def publish(self) -> None:
        """Move the folder where complete uploads are."""
        os.utime(self._folder)  # its age there begins now
        self._folder.rename(self._published)
        for folder in (self._published, self._published.parent):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)  # the names in it
            finally:
                os.close(handle)

    def discard(self) -> None:
        """Remove all that has arrived."""
        for folder in (self._folder, self._published):
            shutil.rmtree(folder, ignore_errors=True)


def _shown_name(name: str) -> str:
    """What reports call a file: the last part of what the client calls it."""
    last = re.split(r"[/\\]", name)[-1].strip()
    return (last if last not in ("", ".", "..") else "upload")[-_LONGEST_NAME:]


class DataFolder:
    """The folder that all processes of the service share.

    It has a mark, which the database knows, too: on a machine where the folder is not mounted
    there is an empty folder, or another one. The first process that takes uploads makes the mark;
    without a database server any may.
    """

    def __init__(self, settings: Settings, database: Database, *, takes_uploads: bool) -> None:
        self._settings, self._database = settings, database
        self._is_here_surely = not settings.database_url  # the database itself is in the folder
        self._makes_mark = takes_uploads or self._is_here_surely
        self._mark_file = settings.data / "mark"
        self._mark: str | None = None
        self._has_warned = False

    def is_there(self) -> bool:
        """Whether it is the one of the database; the log says what to do where it is not."""
        if self._mark is None:
            self._mark = self._settle_mark() if self._makes_mark else self._database.mark()
        is_there = self._mark is not None and self._read_mark() == self._mark
        if self._mark is not None and not is_there and not self._has_warned:
            _log.error(
                f"{self._settings.data} is not the data folder of the service that uses this "
                "database: mount that one here; or, if this folder has replaced it on purpose, "
                f"write {self._mark} into {self._mark_file}"
            )
            self._has_warned = True
        return is_there

    def _read_mark(self) -> str:
        try:
            return self._mark_file.read_text().strip()
        except OSError:
            return ""

    def _settle_mark(self) -> str:
        there = self._read_mark()
        new = there or secrets.token_hex(16)
        mark = self._database.settle_mark(new)
        if mark != there and (mark == new or self._is_here_surely):
            self._mark_file.write_text(mark + "\n")
        return mark

    def free_bytes(self) -> int:
        """Space on its disk."""
        return shutil.disk_usage(self._settings.data).free

    def of_upload(self, key: str) -> Path:
        """Where the files of a complete upload are."""
        return self._settings.uploads / key

    def remove(self, key: str) -> None:
        """Remove the files of an upload, if they are still there."""
        shutil.rmtree(self.of_upload(key), ignore_errors=True)

    def clean(self) -> None:
        """Delete expired reports, and the files that are not needed any more.

        Those are complete uploads that the database does not know, and uploads that have not
        arrived, and will not.
        """
        expired = self._database.delete_expired()
        there = [path.name for path in _older_than(_ORPHANED_AFTER, self._settings.uploads)]
        for key in {*expired, *there} - self._database.needs_files(there):
            self.remove(key)
        abandoned_after = self._settings.limits.max_upload_seconds + _ABANDONED_AFTER
        for path in _older_than(abandoned_after, self._settings.incoming):
            shutil.rmtree(path, ignore_errors=True)
        if expired:
            _log.info("expired", extra={"fields": {"validations": len(expired)}})


def _older_than(age: float, folder: Path) -> Iterator[Path]:
    limit = time.time() - age
    for path in folder.iterdir():
        try:
            if path.stat().st_mtime < limit:
                yield path
        except FileNotFoundError:
            continue
