"""The data folder, which is the queue: what is in it says how far each validation is.

An upload arrives in ``incoming/ID`` and is moved to ``waiting/ID`` when it is complete: what is
there was accepted, and is checked, after a crash too. Each attempt of a check has a folder in it,
and the first that ends becomes ``report``, all documents at once; then all is moved to
``reports/ID``. The upload in it is kept for as long as it may be repaired.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
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
UPLOAD, ORIGINAL = "upload", "original"
"""The folder of what was uploaded, and in it of what is to be repaired."""
PROGRESS = "progress"
"""In the folder of an attempt: the bytes and records read so far, as JSON."""
_REPORT, _ATTEMPT = "report", "attempt-"
_REQUEST, _RESULT = "request.json", "result.json"
_IDS = re.compile(r"[A-Za-z0-9_-]{22}")
_ABANDONED_AFTER = 3600.0
_LONGEST_NAME = 200


@dataclass(frozen=True)
class UploadedFile:
    """A file as it was uploaded.

    Attributes:
        name: the last part of what the client called it, which no other of its role has.
        bytes: its length.
        role: ``file``, ``label_map``, ``profile`` or ``cvat_labels``; also that of its folder.
    """

    name: str
    bytes: int
    role: str = "file"

    def place(self, folder: Path) -> Path:
        """Where it is in the folder of its validation."""
        return folder / UPLOAD / self.role / self.name


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
        findings: how many there are of each severity.
        repairs: codes of the rules whose findings can be repaired, and what is done about them.
        repair: what a repair has changed, before its result was checked.
        failure: why it could not be done, as problem details.
    """

    valid: bool | None
    started: float
    ended: float
    records: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    repairs: dict[str, str] = field(default_factory=dict)
    repair: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None


@dataclass(frozen=True)
class Validation:
    """A validation as it is now; ``done`` are the bytes and records that were read so far."""

    id: str
    folder: Path
    request: Request
    result: Result | None = None
    done: tuple[int, int] | None = None

    @property
    def state(self) -> str:
        """One of queued, running, finished and failed."""
        if self.result is not None:
            return "failed" if self.result.valid is None else "finished"
        return "queued" if self.done is None else "running"

    def document(self, name: str) -> Path:
        """The report in a format."""
        return self.folder / _REPORT / REPORTS[name]


class DataFolder:
    """The folder that all processes of the service share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._incoming, self._waiting, self._reports = self._folders = [
            settings.data / name for name in ("incoming", "waiting", "reports")
        ]

    def make(self) -> None:
        """Make the folders.

        Raises:
            OSError: they cannot be made.
        """
        for one in self._folders:
            one.mkdir(mode=0o700, parents=True, exist_ok=True)

    def free_bytes(self) -> int:
        """Space on its disk."""
        return shutil.disk_usage(self._settings.data).free

    def is_there(self) -> bool:
        """Whether it can be written to, as this process has made it."""
        return all(os.access(one, os.W_OK) for one in self._folders)

    # An upload, until it is accepted

    def begin_upload(self) -> Path:
        """An empty folder for an upload that arrives, or is made; its name is its id."""
        folder = self._incoming / secrets.token_urlsafe(16)
        (folder / UPLOAD / "file").mkdir(mode=0o700, parents=True)
        return folder

    def accept(self, folder: Path, request: Request) -> Validation:
        """Queue an upload that is complete; it is on the disk when this returns."""
        _write(folder / _REQUEST, request)
        for place, folders, files in os.walk(folder, topdown=False):
            for name in (*files, *folders):
                _sync(os.path.join(place, name))
        _sync(folder)
        accepted = self._waiting / folder.name
        folder.rename(accepted)
        _sync(self._waiting)
        return Validation(folder.name, accepted, request)

    # What waits

    def waiting(self) -> list[tuple[str, Request]]:
        """All that waits or runs, the oldest first."""
        found = []
        for one in self._waiting.iterdir():
            if (one / _REPORT).exists():  # it was published, and then all was killed
                self._file_away(one)
            elif not (one / _REQUEST).exists():  # a check has written it after it was deleted
                self._remove(one)
            elif (request := _request_in(one)) is not None:
                found.append((one.name, request))
        return sorted(found, key=lambda one: one[1].created)

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
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
        attempt = Path(tempfile.mkdtemp(prefix=_ATTEMPT, dir=folder))
        return attempt, len([*folder.glob(f"{_ATTEMPT}*")])

    def write_result(self, attempt: Path, result: Result) -> None:
        """Say in the folder of an attempt how it has ended, as the last of its documents."""
        _write(attempt / _RESULT, result)

    def publish(self, attempt: Path) -> Result | None:
        """Make the documents of an attempt the report; None if there is one, or it was deleted."""
        try:
            attempt.rename(attempt.parent / _REPORT)  # fails where there is one already
        except OSError:
            return None
        return _result_in(self._file_away(attempt.parent))

    def _file_away(self, folder: Path) -> Path:
        """Move what was published to the reports, without what other attempts have written."""
        for one in folder.glob(f"{_ATTEMPT}*"):
            shutil.rmtree(one, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder.rename(self._reports / folder.name)
        return self._reports / folder.name

    # All that is kept

    def find(self, key: str) -> Validation | None:
        """A validation; None if it was deleted, has expired, or never was."""
        if not _IDS.fullmatch(key):
            return None
        # What waits may be moved to the reports between two looks.
        for folder in (self._reports / key, self._waiting / key, self._reports / key):
            request = _request_in(folder)
            if request is None:
                continue
            if folder.parent == self._reports:
                return Validation(key, folder, request, _result_in(folder))
            done = [_progress_in(one) for one in folder.glob(f"{_ATTEMPT}*")]
            return Validation(key, folder, request, done=max(done, default=None))
        return None

    def upload_ends(self, key: str) -> float | None:
        """When an upload that was checked is removed, in seconds since 1970; None when it was."""
        folder = self._reports / key
        with suppress(FileNotFoundError):
            (folder / UPLOAD).stat()
            return (folder / _REPORT).stat().st_mtime + self._settings.upload_seconds
        return None

    def delete(self, key: str) -> None:
        """Remove all of a validation, of which a check may be running."""
        for one in (self._waiting, self._reports):  # the way that it moves
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
        for one in self._incoming.iterdir():
            if _age(one) > abandoned_after:
                self._remove(one)
        for one in self._reports.iterdir():
            age = _age(one / _REPORT)  # which nobody changes
            if age > self._settings.report_seconds:
                self._remove(one)
            elif age > self._settings.upload_seconds:
                self._remove(one / UPLOAD)


def shown_name(name: str) -> str:
    """What a file is called that a client calls so: the last part, which is a file's name here."""
    last = re.split(r"[/\\\0]", name)[-1].strip()
    last = last if last not in ("", ".", "..") else "upload"
    return last.encode("utf-8", "replace")[-_LONGEST_NAME:].decode("utf-8", "ignore")


def _age(path: Path) -> float:
    """Seconds since it was changed; none where it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _write(path: Path, document: Request | Result) -> None:
    with path.open("w") as file:
        json.dump(asdict(document), file)
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
        return Result(**json.loads((folder / _REPORT / _RESULT).read_bytes()))
    except FileNotFoundError:
        return None


def _progress_in(attempt: Path) -> tuple[int, int]:
    try:
        done, records = json.loads((attempt / PROGRESS).read_bytes())
    except (FileNotFoundError, ValueError):  # it is being written
        return 0, 0
    return done, records
