"""What the API and the pages do alike: take uploads, find, wait for, repair and delete them."""

from __future__ import annotations

import hmac
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import IO, Any, cast

from flask import Request as FlaskRequest
from flask import current_app, request
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS
from tfod.detection.labels.label_map import packaged_label_maps
from werkzeug.datastructures import FileStorage
from werkzeug.exceptions import RequestEntityTooLarge

from tfod_validator import metrics
from tfod_validator.access import hash_of, network_of, new_token
from tfod_validator.errors import ProblemError
from tfod_validator.folder import (
    FILES,
    DataFolder,
    Request,
    UploadedFile,
    Validation,
    shown_name,
)
from tfod_validator.settings import Settings
from tfod_validator.workers import Queue

EXAMPLES = ("good", "broken")
"""Zips that the page offers to try."""
# In the wheel, and in a clone.
_EXAMPLE_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[2] / "examples")
_ROLES = ("file", "label_map", "profile", "cvat_labels")
"""Fields of the form that are files; of all but the first there is one."""
_TEXTS: dict[str, Collection[str]] = {
    "for": RECEIVERS,
    "profile": READY,
    "label_map": packaged_label_maps(),
}
"""Fields that are texts, and what they may be."""
_FIRST_PAUSE, _LOOK_EVERY = 0.02, 0.25
_log = logging.getLogger("tfod.service")


class _Arriving(BufferedWriter):
    """A file of a form, which is closed when it is complete: there may be very many."""

    def seek(self, *_: int) -> int:
        """What Werkzeug does with a file when all of it was written."""
        self.close()
        return 0


class UploadRequest(FlaskRequest):
    """A request whose files are written where uploads arrive, once."""

    folder: Path | None = None
    _count = 0

    def _get_file_stream(self, *_: Any, **__: Any) -> IO[bytes]:
        """Where Werkzeug writes a file of a form; its documentation names this hook."""
        if self.folder is None:
            self.folder = service().folder.begin_upload()
        self._count += 1
        return cast("IO[bytes]", _Arriving(FileIO(self.folder / str(self._count), "xb")))

    def close(self) -> None:
        """Forget what was not accepted."""
        super().close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class Service:
    """What views need; ``is_stopping`` is set at SIGTERM, and nobody waits any more."""

    def __init__(self, settings: Settings, queue: Queue) -> None:
        self.settings, self.queue = settings, queue
        self.folder = DataFolder(settings)
        self.is_stopping = threading.Event()
        self._places = threading.BoundedSemaphore(settings.threads // 2)

    def find(self, key: str) -> Validation:
        """A validation.

        Raises:
            ProblemError: there is none.
        """
        found = self.folder.find(key)
        if found is None:
            detail = "There is no such report: it was deleted or has expired, or the link is wrong."
            raise ProblemError(404, detail)
        return found

    def wait_for(self, found: Validation, seconds: float) -> Validation:
        """Wait until a check has ended, but not if half of the threads do, nor for who has left.

        Raises:
            ProblemError: it was deleted meanwhile.
        """
        if not seconds or found.is_over or not self._places.acquire(blocking=False):
            return found
        has_left: Callable[[], bool] = request.environ.get(
            "waitress.client_disconnected", lambda: False
        )
        end, pause = time.monotonic() + seconds, _FIRST_PAUSE
        try:
            while not found.is_over and time.monotonic() < end and not has_left():
                if self.is_stopping.wait(pause):
                    break
                found, pause = self.find(found.id), min(_LOOK_EVERY, pause * 1.3)
        finally:
            self._places.release()
        return found

    def accept(self, asked: dict[str, str]) -> tuple[Validation, str]:
        """Take the upload of this request in, and its token; its check waits when this returns.

        Args:
            asked: what the address says of it.

        Raises:
            ProblemError: the upload is refused; nothing of it is left.
        """
        client = self._require_turn()
        if request.mimetype != "multipart/form-data":
            raise ProblemError(415, "Send a form, as curl -F file=@anno.zip does.")
        try:
            texts = asked | {name: text for name, text in request.form.items() if text}
            uploaded = request.files
        except RequestEntityTooLarge:
            most = f"{self.settings.max_files:,} files, and short texts"
            detail = f"A form may have at most {most}; send a zip, and long texts as files."
            raise ProblemError(413, detail, limit="max_files") from None
        upload = cast("UploadRequest", request)
        folder = upload.folder = upload.folder or self.folder.begin_upload()
        example, labels = texts.pop("example", None), texts.pop("cvat_labels", "")
        _require_known(texts)
        taken = [_take(folder, role, one) for role, one in uploaded.items(multi=True)]
        files = [one for one in taken if one is not None]
        if labels.strip():
            files.append(_put(folder, "cvat_labels", "labels.json", labels.encode()))
        if example is not None:
            files.append(_put(folder, "file", *_example(example)))
        _require_files(files)
        return self._queue(folder, client, files, texts)

    def _require_turn(self) -> str:
        """The address that asks, if it may have one more validation that waits."""
        client = network_of(request.remote_addr or "")
        of_client, in_all = self.queue.count(client)
        for count, whose, limit in (
            (of_client, "of your validations", "max_waiting_per_client"),
            (in_all, "validations", "max_waiting"),
        ):
            if count >= getattr(self.settings, limit):
                detail = f"{count:,} {whose} wait already; try again when some are done."
                raise ProblemError(429, detail, limit=limit, headers={"Retry-After": "10"})
        return client

    def _queue(
        self,
        folder: Path,
        client: str,
        files: list[UploadedFile],
        texts: dict[str, str],
        repair_of: str | None = None,
    ) -> tuple[Validation, str]:
        token = new_token()
        wanted = Request(
            files=tuple(files),
            receiver=texts.get("for"),
            profile=texts.get("profile"),
            label_map=texts.get("label_map"),
            client=client,
            token=hash_of(token),
            repair_of=repair_of,
        )
        accepted = self.folder.accept(folder, wanted)
        metrics.UPLOADED_BYTES.inc(sum(one.bytes for one in files))
        try:
            self.queue.add(accepted.id, wanted)
        except Exception:  # it was accepted: who looks after the folder adds it later
            _log.exception("the queue does not answer")
        return accepted, token

    def require_token(self, found: Validation, token: str) -> None:
        """Refuse who does not have the token of an upload.

        Raises:
            ProblemError: it is another.
        """
        if not hmac.compare_digest(hash_of(token), found.request.token):
            detail = "Only who has the token that the upload was answered with may do this."
            raise ProblemError(403, detail)

    def repair(self, found: Validation) -> tuple[Validation, str]:
        """Have a copy of an upload repaired and checked, as a validation of its own, and its token.

        Raises:
            ProblemError: the check has not ended, or the upload is no longer kept.
        """
        client = self._require_turn()
        if found.state != "finished":
            raise ProblemError(409, "Only what was checked can be repaired; there is no report.")
        source, wanted = self.folder.upload_of(found.id), found.request
        if source is None:
            detail = "The upload is no longer kept; upload it again to repair it."
            raise ProblemError(410, detail, limit="upload_seconds")
        upload = cast("UploadRequest", request)
        folder = upload.folder = self.folder.begin_upload()
        (folder / FILES).mkdir()
        stem = next(os.path.splitext(one.name)[0] for one in wanted.files if one.role == "file")
        files = [UploadedFile(shown_name(f"{stem}_repaired.zip"), 0)]
        for one in wanted.files:
            if one.role in ("profile", "cvat_labels"):
                (folder / one.role).mkdir()
                os.link(source / one.path, folder / one.path)
                files.append(one)
        texts = {"for": wanted.receiver, "profile": wanted.profile}
        given = {name: text for name, text in texts.items() if text}
        return self._queue(folder, client, files, given, found.id)


def service() -> Service:
    """That of the app which answers the current request."""
    found: Service = current_app.extensions["tfod"]
    return found


def _require_known(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        known = _TEXTS.get(name)
        if known is None:
            fields = ", ".join(dict.fromkeys((*_ROLES, *_TEXTS)))
            detail = f"{str(name)[:80]} is not a field of the form; these are: {fields}."
            raise ProblemError(400, detail, parameter=str(name)[:80])
        if text not in known:
            what = "a file, or one of " if name in _ROLES else "one of "
            detail = f"{name}={text[:80]}: expected {what}{', '.join(known)}."
            raise ProblemError(400, detail, parameter=name)


def _require_files(files: list[UploadedFile]) -> None:
    roles = [one.role for one in files]
    if "file" not in roles:
        detail = "There is no file in the form, or it is malformed; its field is called 'file'."
        raise ProblemError(400, detail)
    for role in _ROLES[1:]:
        if roles.count(role) > 1:
            raise ProblemError(400, f"There are several files for {role}; send one.")


def _take(folder: Path, role: str, uploaded: FileStorage) -> UploadedFile | None:
    """Put a file that has arrived where files of its role are; browsers send empty fields, too."""
    arrived = Path(uploaded.stream.name)
    if not uploaded.filename and not arrived.stat().st_size:
        arrived.unlink()
        return None
    if role not in _ROLES:
        detail = f"{str(role)[:80]} is not a field for files; these are: {', '.join(_ROLES)}."
        raise ProblemError(400, detail, parameter=str(role)[:80])
    place = _free_place(folder, role, shown_name(uploaded.filename or role))
    arrived.rename(folder / place.path)
    return replace(place, bytes=(folder / place.path).stat().st_size)


def _put(folder: Path, role: str, name: str, content: bytes) -> UploadedFile:
    place = replace(_free_place(folder, role, name), bytes=len(content))
    (folder / place.path).write_bytes(content)
    return place


def _free_place(folder: Path, role: str, name: str) -> UploadedFile:
    """A place for a file; one whose name is taken, as of another folder, gets a number."""
    stem, ending = os.path.splitext(name)
    place, number = UploadedFile(name, 0, role), 2
    (folder / place.path).parent.mkdir(exist_ok=True)
    while (folder / place.path).exists():
        place, number = UploadedFile(f"{stem} ({number}){ending}", 0, role), number + 1
    return place


def _example(name: str) -> tuple[str, bytes]:
    if name not in EXAMPLES:
        raise ProblemError(400, f"example is one of {', '.join(EXAMPLES)}.")
    zip_name = f"shapes_{name}.zip"
    folder = next(one for one in _EXAMPLE_FOLDERS if (one / zip_name).is_file())
    return zip_name, (folder / zip_name).read_bytes()
