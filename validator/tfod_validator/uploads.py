"""How uploads come in: the files and texts of a form, an example, or what is to be repaired."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import IO, Any, cast

import prometheus_client as prometheus
from flask import Request as FlaskRequest
from flask import current_app, request
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.detection.labels.label_map import packaged_label_maps
from werkzeug.exceptions import RequestEntityTooLarge

from tfod_validator.access import hash_of, is_token, network_of
from tfod_validator.answers import ProblemError
from tfod_validator.folder import ORIGINAL, Request, UploadedFile, Validation, shown_name
from tfod_validator.settings import EXAMPLES
from tfod_validator.workers import Queue

_ROLES = ("file", "label_map", "profile", "cvat_labels")
"""Fields of the form that are files; of all but the first there is one."""
_TEXTS: dict[str, Collection[str]] = {
    "for": RECEIVERS,
    "profile": READY,
    "label_map": packaged_label_maps(),
}
"""Fields that are texts, and what they may be."""
_FIRST_PAUSE, _LOOK_EVERY = 0.02, 0.25
_bytes = prometheus.Counter("tfod_uploaded_bytes_total", "Bytes that were uploaded.")
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
        self._count += 1
        return cast("IO[bytes]", _Arriving(FileIO(self.begun() / str(self._count), "xb")))

    def begun(self) -> Path:
        """The folder of the upload that this request brings."""
        if self.folder is None:
            self.folder = queue().folder.begin_upload()
        return self.folder

    def close(self) -> None:
        """Forget what was not accepted."""
        super().close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def queue() -> Queue:
    """That of the app which answers the current request."""
    found: Queue = current_app.extensions["tfod"]
    return found


def find(key: str, token: str | None = None) -> Validation:
    """A validation.

    Args:
        key: its id.
        token: that of the upload, where only who has it may go on.

    Raises:
        ProblemError: there is none, or the token is another.
    """
    found = queue().folder.find(key)
    if found is None:
        detail = "There is no such report: it was deleted or has expired, or the link is wrong."
        raise ProblemError(404, detail)
    if token is not None and not is_token(token, found.request.token):
        detail = "Only who has the token that the upload was answered with may do this."
        raise ProblemError(403, detail)
    return found


def wait_for(found: Validation, seconds: float) -> Validation:
    """Wait until a check has ended, but not if half of the threads do, nor for who has left.

    Raises:
        ProblemError: it was deleted meanwhile.
    """
    if not seconds or found.result or not queue().wait_slots.acquire(blocking=False):
        return found
    has_left: Callable[[], bool] = request.environ.get("waitress.client_disconnected", bool)
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    try:
        while not found.result and time.monotonic() < end and not has_left():
            if queue().stopping.wait(pause):
                break
            found, pause = find(found.id), min(_LOOK_EVERY, pause * 1.3)
    finally:
        queue().wait_slots.release()
    return found


def accept(asked: Mapping[str, str]) -> tuple[Validation, str]:
    """Take the upload of this request in, and its token; its check waits when this returns.

    Args:
        asked: what the address says of it.

    Raises:
        ProblemError: the upload is refused; nothing of it is left.
    """
    client = _require_turn()
    if request.mimetype != "multipart/form-data":
        raise ProblemError(415, "Send a form, as curl -F file=@anno.zip does.")
    try:
        texts = {**asked, **{name: text for name, text in request.form.items() if text}}
        uploaded = [*request.files.items(multi=True)]
    except RequestEntityTooLarge:
        most = f"{queue().settings.max_files:,} files, and short texts"
        detail = f"A form may have at most {most}; send a zip, and long texts as files."
        raise ProblemError(413, detail, limit="max_files") from None
    folder = cast("UploadRequest", request).begun()
    files: list[UploadedFile] = []
    for role, one in uploaded:
        path = Path(cast("str", one.stream.name))
        if role not in _ROLES and (one.filename or path.stat().st_size):
            raise _no_field(role, "a field for files", _ROLES)
        if one.filename or path.stat().st_size:
            files.append(_put_away(path, role, one.filename or role, len(files) + 1))
        else:
            path.unlink()  # as browsers send fields without a file
    if labels := texts.pop("cvat_labels", "").strip():
        (folder / "labels").write_text(labels)
        files.append(_put_away(folder / "labels", "cvat_labels", "labels.json"))
    if example := texts.pop("example", ""):
        if example not in EXAMPLES:
            raise ProblemError(400, f"example is one of {', '.join(EXAMPLES)}.")
        copy = Path(shutil.copy(EXAMPLES[example], folder))
        files.append(_put_away(copy, "file", copy.name))
    _require_known(texts, files)
    return _queue(folder, files, texts, client=client)


def repair(key: str, token: str) -> tuple[Validation, str]:
    """Have a copy of an upload repaired and checked, as a validation of its own, and its token.

    Raises:
        ProblemError: the check has not ended, the upload is no longer kept, or the token is wrong.
    """
    found, client = find(key, token), _require_turn()
    if found.state != "finished":
        raise ProblemError(409, "Only what was checked can be repaired; there is no report.")
    folder, wanted = cast("UploadRequest", request).begun(), found.request
    stem = next(os.path.splitext(one.name)[0] for one in wanted.files if one.role == "file")
    files = [UploadedFile(shown_name(f"{stem}_repaired.zip"), 0)]
    try:
        for one in wanted.files:
            copy = replace(one, role=ORIGINAL) if one.role == "file" else one
            copy.place(folder).parent.mkdir(exist_ok=True)
            os.link(one.place(found.folder), copy.place(folder))
            if one.role in ("profile", "cvat_labels"):
                files.append(one)
    except FileNotFoundError:
        detail = "The upload is no longer kept; upload it again to repair it."
        raise ProblemError(410, detail, limit="upload_seconds") from None
    texts = {"for": wanted.receiver, "profile": wanted.profile, "label_map": wanted.label_map}
    return _queue(folder, files, texts, client=client, repair_of=key)


def _require_turn() -> str:
    """The address that asks, if it may have one more validation that waits."""
    client = network_of(request.remote_addr or "")
    of_client, in_all = queue().count(client)
    for count, whose, limit in (
        (of_client, "of your validations", "max_waiting_per_client"),
        (in_all, "validations", "max_waiting"),
    ):
        if count >= getattr(queue().settings, limit):
            detail = f"{count:,} {whose} wait already; try again when some are done."
            raise ProblemError(429, detail, limit=limit, headers={"Retry-After": "10"})
    return client


def _put_away(path: Path, role: str, sent: str, number: int = 1) -> UploadedFile:
    """Put a file where those of its role are; one whose name is taken gets a number."""
    folder, name = path.parent, shown_name(sent)
    one, (stem, ending) = UploadedFile(name, path.stat().st_size, role), os.path.splitext(name)
    while one.place(folder).exists():
        one = replace(one, name=f"{stem} ({number}){ending}")
        number += 1
    one.place(folder).parent.mkdir(exist_ok=True)
    path.rename(one.place(folder))
    return one


def _require_known(texts: Mapping[str, str], files: Iterable[UploadedFile]) -> None:
    roles = Counter(one.role for one in files)
    for name, text in texts.items():
        known = _TEXTS.get(name)
        if known is None:
            raise _no_field(name, "a field of the form", dict.fromkeys((*_ROLES, *_TEXTS)))
        if text not in known:
            what = "a file, or one of " if name in _ROLES else "one of "
            detail = f"{name}={text[:80]}: expected {what}{', '.join(known)}."
            raise ProblemError(400, detail, parameter=name)
    if not roles["file"]:
        detail = "There is no file in the form, or it is malformed; its field is called 'file'."
        raise ProblemError(400, detail)
    for role in _ROLES[1:]:
        if roles[role] > 1:
            raise ProblemError(400, f"There are several files for {role}; send one.")


def _no_field(name: str | None, what: str, fields: Iterable[str]) -> ProblemError:
    given = str(name)[:80]  # a part of a form may have none
    return ProblemError(
        400, f"{given} is not {what}; these are: {', '.join(fields)}.", parameter=given
    )


def _queue(
    folder: Path,
    files: Iterable[UploadedFile],
    texts: Mapping[str, str | None],
    client: str,
    repair_of: str | None = None,
) -> tuple[Validation, str]:
    token = secrets.token_urlsafe(16)
    wanted = Request(
        files=tuple(files),
        receiver=texts.get("for"),
        profile=texts.get("profile"),
        label_map=texts.get("label_map"),
        token=hash_of(token),
        client=client,
        repair_of=repair_of,
    )
    accepted = queue().folder.accept(folder, wanted)
    _bytes.inc(sum(one.bytes for one in wanted.files))
    try:
        queue().add(accepted.id, client)
    except Exception:  # it was accepted: who looks after the folder adds it later
        _log.exception("the queue does not answer")
    return accepted, token
