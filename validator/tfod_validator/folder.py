"""The data folder, which is the queue: what is in it says how far each validation is.

An upload arrives in ``incoming/ID`` and is moved to ``waiting/ID`` when it is complete: what is
there was accepted, and is checked, after a crash too. Each attempt of a check has a folder in it,
and the first that ends is moved to ``reports/ID``, all documents at once. The upload is then kept
in ``uploads/ID`` for as long as it may be repaired.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tfod_validator.settings import Settings

REPORTS = {
    "json": "report.json",
    "html": "report.html",
    "junit": "report.xml",
    "text": "report.txt",
}
"""Names of the documents that are the report, by format."""
FILES = "files"
"""The folder of an upload with what is to be checked; each other role has one of its name."""
PROGRESS = "progress"
"""In the folder of an attempt: the bytes and records read so far, as JSON."""
SCRATCH = "scratch"
"""In the folder of an attempt: what is needed only while it lasts."""
_REQUEST, _RESULT, _ATTEMPT = "request.json", "result.json", "attempt-"
_IDS = re.compile(r"[A-Za-z0-9_-]{22}")
_ABANDONED_AFTER = 3600.0
_LONGEST_NAME = 200


@dataclass(frozen=True)
class UploadedFile:
    """A file as it was uploaded.

    Attributes:
        name: the last part of what the client called it, which no other of its role has.
        bytes: its length.
        role: ``file``, ``label_map``, ``profile`` or ``cvat_labels``.
    """

    name: str
    bytes: int
    role: str = "file"

    @property
    def path(self) -> str:
        """Where it is in the upload's folder."""
        return os.path.join(FILES if self.role == "file" else self.role, self.name)


@dataclass(frozen=True)
class Request:
    """What is to be checked, and how.

    Attributes:
        files: all that was uploaded.
        receiver: name of who reads the shards next; None where it is not said.
        profile, label_map: names of ready ones; None where there is none, or a file.
        client: the address that has uploaded it.
        token: SHA-256 of what allows to delete or to repair it.
        created: seconds since 1970.
        repair_of: id of the validation whose upload is repaired, which then is what is checked.
    """

    files: tuple[UploadedFile, ...] = ()
    receiver: str | None = None
    profile: str | None = None
    label_map: str | None = None
    client: str = ""
    token: str = ""
    created: float = field(default_factory=time.time)
    repair_of: str | None = None

    @property
    def title(self) -> str:
        """What people call it: the first file, and how many more there are."""
        names = [one.name for one in self.files if one.role == "file"] or ["upload"]
        more = len(names) - 1
        return names[0] + (f" and {more} more file{'s' if more > 1 else ''}" if more else "")


@dataclass(frozen=True)
class Result:
    """How a check has ended: with a report, or with a failure.

    Attributes:
        valid: whether the upload is valid; None for a failure.
        started, ended: seconds since 1970.
        records: how many were read.
        repair: what a repair has changed, before its result was checked.
        failure: why it could not be done: ``status``, ``detail`` and maybe ``limit``.
    """

    valid: bool | None
    started: float
    ended: float
    records: int = 0
    repair: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None


@dataclass(frozen=True)
class Validation:
    """A validation as it is now; ``state`` is queued, running, finished or failed."""

    id: str
    folder: Path
    request: Request
    state: str
    result: Result | None = None
    done: tuple[int, int] = (0, 0)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to come."""
        return self.result is not None


class DataFolder:
    """The folder that all processes of the service share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._incoming, self._waiting, self._reports, self._uploads = (
            settings.data / name for name in ("incoming", "waiting", "reports", "uploads")
        )

    def make(self) -> None:
        """Make the folders.

        Raises:
            OSError: they cannot be made.
        """
        for one in (self._incoming, self._waiting, self._reports, self._uploads):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)

    def free_bytes(self) -> int:
        """Space on its disk."""
        return shutil.disk_usage(self._settings.data).free

    def is_there(self) -> bool:
        """Whether it can be written to, as this process has made it."""
        return all(os.access(one, os.W_OK) for one in (self._incoming, self._waiting))

    # An upload, until it is accepted

    def begin_upload(self) -> Path:
        """An empty folder for an upload that arrives, or is made; its name is its id."""
        folder = self._incoming / secrets.token_urlsafe(16)
        folder.mkdir(mode=0o700)
        return folder

    def accept(self, folder: Path, request: Request) -> Validation:
        """Queue an upload that is complete; it is on the disk when this returns."""
        _write(folder / _REQUEST, asdict(request))
        for place, folders, files in os.walk(folder, topdown=False):
            for name in (*files, *folders):
                _sync(os.path.join(place, name))
        _sync(folder)
        accepted = self._waiting / folder.name
        folder.rename(accepted)
        _sync(self._waiting)
        return Validation(folder.name, accepted, request, "queued")

    # What waits

    def waiting(self) -> list[tuple[str, Request]]:
        """All that waits or runs, the oldest first."""
        found = []
        for one in self._waiting.iterdir():
            if (self._reports / one.name).exists():  # it was published, and then all was killed
                self._keep_upload(one.name)
            elif not (one / _REQUEST).exists():  # a check has written it after it was deleted
                self._remove(one)
            elif (request := _request_in(one)) is not None:
                found.append((one.name, request))
        return sorted(found, key=lambda one: one[1].created)

    @contextmanager
    def held(self, key: str) -> Iterator[bool]:
        """Hold what waits, that no other process on this machine begins it; False if one does."""
        try:
            handle = os.open(self._waiting / key, os.O_RDONLY)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(handle)

    def begin_attempt(self, key: str) -> tuple[Path, int]:
        """A folder for the documents of an attempt, and its number; it counts until it is removed.

        Raises:
            FileNotFoundError: it waits no more.
        """
        folder = self._waiting / key
        number = 1 + sum(one.name.startswith(_ATTEMPT) for one in folder.iterdir())
        while True:
            try:
                (attempt := folder / f"{_ATTEMPT}{number}").mkdir()
                return attempt, number
            except FileExistsError:
                number += 1

    def forget_attempt(self, attempt: Path) -> None:
        """Remove what an attempt has written: it does not count."""
        shutil.rmtree(attempt, ignore_errors=True)

    def write_result(self, attempt: Path, result: Result) -> None:
        """Say in the folder of an attempt how it has ended, as the last of its documents."""
        _write(attempt / _RESULT, asdict(result))

    def publish(self, attempt: Path) -> Result | None:
        """Make the documents of an attempt the report; None if there is one, or it was deleted."""
        key = attempt.parent.name
        (attempt / PROGRESS).unlink(missing_ok=True)
        for one in attempt.parent.glob(f"{_ATTEMPT}*/{SCRATCH}"):  # of a repair that was killed
            shutil.rmtree(one, ignore_errors=True)
        try:
            os.link(attempt.parent / _REQUEST, attempt / _REQUEST)
            attempt.rename(self._reports / key)  # fails where there is one already
        except OSError:
            return None
        self._keep_upload(key)
        return _result_in(self._reports / key)

    def _keep_upload(self, key: str) -> None:
        with suppress(OSError):
            os.utime(self._waiting / key)  # its time there begins now
            (self._waiting / key).rename(self._uploads / key)

    # All that is kept

    def find(self, key: str) -> Validation | None:
        """A validation; None if it was deleted, has expired, or never was."""
        if not _IDS.fullmatch(key):
            return None
        # A report may come, and the upload go, between two looks.
        for folder in (self._reports / key, self._waiting / key, self._reports / key):
            request = _request_in(folder)
            if request is None:
                continue
            if result := _result_in(folder):
                state = "failed" if result.valid is None else "finished"
                return Validation(key, folder, request, state, result)
            found = Validation(key, folder, request, "queued")
            for one in folder.glob(f"{_ATTEMPT}*"):
                found = replace(found, state="running", done=_progress_in(one))
            return found
        return None

    def upload_of(self, key: str) -> Path | None:
        """The folder of an upload that was checked; None when it is no longer kept."""
        folder = self._uploads / key
        return folder if folder.is_dir() else None

    def upload_ends(self, key: str) -> float | None:
        """When an upload that was checked is removed, in seconds since 1970; None when it was."""
        with suppress(FileNotFoundError):
            return (self._uploads / key).stat().st_mtime + self._settings.upload_seconds
        return None

    def delete(self, key: str) -> None:
        """Remove all of a validation, of which a check may be running."""
        for one in (self._waiting, self._reports, self._uploads):  # the way that it moves
            self._remove(one / key)

    def _remove(self, folder: Path) -> None:
        """Take a folder away at once, so that nobody writes to it while it goes, nor reads half."""
        gone = self._incoming / secrets.token_urlsafe(16)
        with suppress(FileNotFoundError):
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def clean(self) -> None:
        """Remove what has expired, and uploads that have not arrived and will not."""
        abandoned_after = self._settings.max_upload_seconds + _ABANDONED_AFTER
        for folder, seconds in (
            (self._incoming, abandoned_after),
            (self._uploads, self._settings.upload_seconds),
            (self._reports, self._settings.report_seconds),
        ):
            oldest = time.time() - seconds
            for one in os.scandir(folder):
                with suppress(FileNotFoundError):
                    if one.stat().st_mtime < oldest:
                        self._remove(Path(one.path))


def shown_name(name: str) -> str:
    """What a file is called that a client calls so: the last part, which is a file's name here."""
    last = re.split(r"[/\\\0]", name)[-1].strip()
    last = last if last not in ("", ".", "..") else "upload"
    return last.encode("utf-8", "replace")[-_LONGEST_NAME:].decode("utf-8", "ignore")


def _write(path: Path, document: object) -> None:
    with path.open("x") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: str | Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _request_in(folder: Path) -> Request | None:
    """None where there is none, or what no version of this service has written."""
    try:
        found = json.loads((folder / _REQUEST).read_bytes())
        files = tuple(UploadedFile(**one) for one in found["files"])
        return Request(**{**found, "files": files})
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        return None


def _result_in(folder: Path) -> Result | None:
    try:
        return Result(**json.loads((folder / _RESULT).read_bytes()))
    except FileNotFoundError:
        return None


def _progress_in(attempt: Path) -> tuple[int, int]:
    try:
        done, records = json.loads((attempt / PROGRESS).read_bytes())
    except (FileNotFoundError, ValueError):  # it is being written
        return 0, 0
    return done, records
