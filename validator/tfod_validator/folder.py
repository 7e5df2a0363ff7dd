"""The data folder, which is also the queue: the location of a validation is its state.

An upload arrives in ``incoming/ID``. When it is complete, it is moved to ``waiting/ID``: it is
accepted, and will be checked, even after a crash. Each attempt of a check has a folder there. The
folder of the first attempt that ends is renamed to ``report``, and ``waiting/ID`` is moved to
``reports/ID``. The upload in it is kept for a while, so that it can be repaired.
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
"""File names of the report, by format."""
UPLOAD, ORIGINAL = "upload", "original"
"""The folder of an upload, and its subfolder with the files to repair."""
PROGRESS = "progress"
"""The file of an attempt with the numbers of bytes and records read so far, as JSON."""
_REPORT, _ATTEMPT = "report", "attempt-"
_REQUEST, _RESULT = "request.json", "result.json"
_IDS = re.compile(r"[A-Za-z0-9_-]{22}")
_ABANDONED_AFTER = 3600.0
_MAX_NAME_BYTES = 200


@dataclass(frozen=True)
class UploadedFile:
    """A file of an upload.

    Attributes:
        name: last part of the client's name for the file, unique among files of the same role.
        role: ``file``, ``label_map``, ``profile`` or ``cvat_labels``; also the name of its folder.
    """

    name: str
    bytes: int
    role: str = "file"

    def path_in(self, folder: Path) -> Path:
        """Return the path of the file in the folder of its validation."""
        return folder / UPLOAD / self.role / self.name


@dataclass(frozen=True)
class Request:
    """The files to check, and the options.

    Attributes:
        receiver: name of the program that will read the shards; None if not specified.
        profile, label_map: names of a built-in profile and label map; None if not specified.
        decode: images to decode, as for ``tfod check --decode``; None if not specified.
        token: SHA-256 of the token that is needed to delete or repair the upload.
        created: seconds since 1970.
        repair_of: id of the validation whose upload is repaired before the check.
        convert_of: id of the validation whose upload is converted to shards before the check.
        odd_boxes: "clip" or "drop"; None to leave boxes that need a decision, or to refuse them.
    """

    files: tuple[UploadedFile, ...] = ()
    receiver: str | None = None
    profile: str | None = None
    label_map: str | None = None
    decode: str | None = None
    client: str = ""
    token: str = ""
    created: float = field(default_factory=time.time)
    repair_of: str | None = None
    convert_of: str | None = None
    odd_boxes: str | None = None

    @property
    def copy_of(self) -> str | None:
        """The id of the validation whose upload is repaired or converted."""
        return self.repair_of or self.convert_of

    @property
    def title(self) -> str:
        """The name of the first file, and the number of further files."""
        names = [file.name for file in self.files if file.role == "file"] or ["upload"]
        more = len(names) - 1
        return names[0] + (f" and {more} more file{'s' if more > 1 else ''}" if more else "")


@dataclass(frozen=True)
class Result:
    """The result of a check: a report or a failure.

    Attributes:
        valid: whether the upload is valid; None if the check failed.
        started, ended: seconds since 1970.
        records: number of records that were read.
        findings: number of findings of each severity.
        offers: repairs that the page offers, see :mod:`tfod_validator.offers`.
        convertible: format of the annotations in the upload, if it can be converted to shards.
        repair: changes of the repair before the check, if there was one.
        conversion: what was converted before the check, if anything.
        failure: problem details, if the check failed.
    """

    valid: bool | None
    started: float
    ended: float
    records: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    offers: list[dict[str, Any]] = field(default_factory=list)
    convertible: str = ""
    repair: dict[str, Any] | None = None
    conversion: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None


@dataclass(frozen=True)
class Validation:
    """The state of a validation; ``progress`` has the bytes and records read so far."""

    id: str
    folder: Path
    request: Request
    result: Result | None = None
    progress: tuple[int, int] | None = None

    @property
    def state(self) -> str:
        """The state: queued, running, finished or failed."""
        if self.result is not None:
            return "failed" if self.result.valid is None else "finished"
        return "queued" if self.progress is None else "running"

    def document(self, name: str) -> Path:
        """Return the path of the report in a format."""
        return self.folder / _REPORT / REPORTS[name]


class DataFolder:
    """The folder that all processes of the service share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._incoming, self._waiting, self._reports = self._folders = [
            settings.data / name for name in ("incoming", "waiting", "reports")
        ]

    def create(self) -> None:
        """Create the folders; raises OSError if this is not possible."""
        for folder in self._folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def free_bytes(self) -> int:
        """Return the free space on the disk of the folder."""
        return shutil.disk_usage(self._settings.data).free

    def is_writable(self) -> bool:
        """Check whether the folders exist and can be written."""
        return all(os.access(folder, os.W_OK) for folder in self._folders)

    # Incoming uploads

    def begin_upload(self) -> Path:
        """Create the folder of a new upload; its name is the id."""
        folder = self._incoming / secrets.token_urlsafe(16)
        (folder / UPLOAD / "file").mkdir(mode=0o700, parents=True)
        return folder

    def accept(self, folder: Path, request: Request) -> Validation:
        """Queue a complete upload, after flushing it to the disk."""
        _write(folder / _REQUEST, request)
        for parent, folders, files in os.walk(folder, topdown=False):
            for name in (*files, *folders):
                _sync(os.path.join(parent, name))
        _sync(folder)
        accepted = self._waiting / folder.name
        folder.rename(accepted)
        _sync(self._waiting)
        return Validation(folder.name, accepted, request)

    # Waiting uploads

    def list_waiting(self) -> list[tuple[str, Request]]:
        """Return the ids and requests of all waiting or running validations, the oldest first."""
        waiting = []
        for folder in self._waiting.iterdir():
            if (folder / _REPORT).exists():  # the process was killed after publishing the report
                self._move_to_reports(folder)
            elif not (folder / _REQUEST).exists():  # left by a check whose upload was deleted
                self._remove(folder)
            elif (request := _read_request(folder)) is not None:
                waiting.append((folder.name, request))
        return sorted(waiting, key=lambda item: item[1].created)

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Lock a waiting upload; False if another process on this machine has locked it."""
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
        """Create a folder for an attempt, and return it and the number of existing attempts.

        Raises FileNotFoundError if the upload was deleted.
        """
        folder = self._waiting / key
        attempt = Path(tempfile.mkdtemp(prefix=_ATTEMPT, dir=folder))
        return attempt, len([*folder.glob(f"{_ATTEMPT}*")])

    def write_result(self, attempt: Path, result: Result) -> None:
        """Write the result of an attempt, which must be its last file."""
        _write(attempt / _RESULT, result)

    def publish(self, attempt: Path) -> Result | None:
        """Publish an attempt; None if there is a report already, or the upload was deleted."""
        try:
            attempt.rename(attempt.parent / _REPORT)  # fails if it exists
        except OSError:
            return None
        return _read_result(self._move_to_reports(attempt.parent))

    def _move_to_reports(self, folder: Path) -> Path:
        """Move a validation to the reports, without the folders of other attempts."""
        for attempt in folder.glob(f"{_ATTEMPT}*"):
            shutil.rmtree(attempt, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder.rename(self._reports / folder.name)
        return self._reports / folder.name

    # All validations

    def find(self, key: str) -> Validation | None:
        """Return a validation; None if it was deleted, has expired, or never existed."""
        if not _IDS.fullmatch(key):
            return None
        # It may be moved from waiting to reports after the first look: look there again.
        for folder in (self._reports / key, self._waiting / key, self._reports / key):
            request = _read_request(folder)
            if request is None:
                continue
            if folder.parent == self._reports:
                return Validation(key, folder, request, _read_result(folder))
            progress = [_read_progress(attempt) for attempt in folder.glob(f"{_ATTEMPT}*")]
            return Validation(key, folder, request, progress=max(progress, default=None))
        return None

    def upload_ends(self, key: str) -> float | None:
        """Return when the upload of a report expires, in seconds since 1970; None if it has."""
        folder = self._reports / key
        with suppress(FileNotFoundError):
            (folder / UPLOAD).stat()
            return (folder / _REPORT).stat().st_mtime + self._settings.upload_seconds
        return None

    def delete(self, key: str) -> None:
        """Delete a validation, even if it is running."""
        for folder in (self._waiting, self._reports):  # in the order in which validations move
            self._remove(folder / key)

    def _remove(self, folder: Path) -> None:
        """Rename a folder before deleting it, so that no process sees a part of it."""
        renamed = self._incoming / secrets.token_urlsafe(16)
        with suppress(FileNotFoundError):
            folder.rename(renamed)
            shutil.rmtree(renamed, ignore_errors=True)

    def clean(self) -> None:
        """Delete expired uploads and reports, and uploads that were never completed."""
        abandoned_after = self._settings.max_upload_seconds + _ABANDONED_AFTER
        for folder in self._incoming.iterdir():
            if _get_age(folder) > abandoned_after:
                self._remove(folder)
        for folder in self._reports.iterdir():
            age = _get_age(folder / _REPORT)  # unlike its parent, never changed
            if age > self._settings.report_seconds:
                self._remove(folder)
            elif age > self._settings.upload_seconds:
                self._remove(folder / UPLOAD)


def clean_name(name: str) -> str:
    """Return a valid file name for a file that a client calls ``name``."""
    last = re.split(r"[/\\\0]", name)[-1].strip()
    last = last if last not in ("", ".", "..") else "upload"
    return last.encode("utf-8", "replace")[-_MAX_NAME_BYTES:].decode("utf-8", "ignore")


def _get_age(path: Path) -> float:
    """Return the seconds since the last change; 0 if the path does not exist."""
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


def _read_request(folder: Path) -> Request | None:
    """Return the request of a validation; None if there is no valid one."""
    try:
        document = json.loads((folder / _REQUEST).read_bytes())
        files = tuple(UploadedFile(**file) for file in document["files"])
        return Request(**{**document, "files": files})
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        return None


def _read_result(folder: Path) -> Result | None:
    try:
        document = json.loads((folder / _REPORT / _RESULT).read_bytes())
    except FileNotFoundError:
        return None
    names = Result.__dataclass_fields__.keys()  # an older version wrote other fields
    return Result(**{name: value for name, value in document.items() if name in names})


def _read_progress(attempt: Path) -> tuple[int, int]:
    try:
        done, records = json.loads((attempt / PROGRESS).read_bytes())
    except (FileNotFoundError, ValueError):  # it does not exist yet, or is being written
        return 0, 0
    return done, records
