"""Uploads: the files and texts of a form, an example, or an upload to repair."""

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
from tfod.checker.analysis.decoding import parse_max_decoded
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.detection.labels.label_map import packaged_label_maps
from tfod.errors import truncate
from tfod.formats.options import OddBoxes
from werkzeug.exceptions import RequestEntityTooLarge

from tfod_validator.access import get_network, hash_token, is_token
from tfod_validator.answers import ProblemError
from tfod_validator.folder import ORIGINAL, Request, UploadedFile, Validation, clean_name
from tfod_validator.validation import EXAMPLES
from tfod_validator.workers import Queue

_ROLES = ("file", "label_map", "profile", "cvat_labels")
"""Form fields with files; all but the first accept a single file."""
_TEXTS: dict[str, Collection[str]] = {
    "for": RECEIVERS,
    "profile": READY,
    "label_map": packaged_label_maps(),
}
"""Form fields with texts, and their possible values."""
ODD_BOXES = (OddBoxes.CLIP.value, OddBoxes.DROP.value)
"""The treatments of boxes that need a decision."""
_DECODE = "decode"
"""The form field with the images to decode, which may be a number."""
_MIN_PAUSE, _MAX_PAUSE = 0.02, 0.25
_bytes = prometheus.Counter("tfod_uploaded_bytes_total", "Number of uploaded bytes.")
_log = logging.getLogger("tfod.service")


class _FormFile(BufferedWriter):
    """A file of a form, which is closed when it is complete, since forms can have many files."""

    def seek(self, *_: int) -> int:
        """Close the file: Werkzeug seeks to its start after writing it."""
        self.close()
        return 0


class UploadRequest(FlaskRequest):
    """A request whose files are written directly to the folder of an upload."""

    folder: Path | None = None
    _count = 0

    def _get_file_stream(self, *_: Any, **__: Any) -> IO[bytes]:
        """Return the stream for a file of a form (a documented hook of Werkzeug)."""
        self._count += 1
        return cast("IO[bytes]", _FormFile(FileIO(self.begin_upload() / str(self._count), "xb")))

    def begin_upload(self) -> Path:
        """Return the folder of the upload, after creating it on the first call."""
        if self.folder is None:
            self.folder = queue().folder.begin_upload()
        return self.folder

    def close(self) -> None:
        """Delete the folder of an upload that was not accepted."""
        super().close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def queue() -> Queue:
    """Return the queue of the current app."""
    result: Queue = current_app.extensions["tfod"]
    return result


def find(key: str, token: str | None = None) -> Validation:
    """Return a validation by its id, after checking its token unless that is None.

    Raises ProblemError if the validation does not exist, or the token is wrong.
    """
    validation = queue().folder.find(key)
    if validation is None:
        reasons = "It was deleted, it has expired, or the link is wrong."
        raise ProblemError(404, f"This report does not exist. {reasons}")
    if token is not None and not is_token(token, validation.request.token):
        raise ProblemError(403, "This needs the token that was returned with the upload.")
    return validation


def wait_for(validation: Validation, seconds: float) -> Validation:
    """Wait until a check has finished or the client disconnects; return the current state.

    At most half of the threads wait; other requests return immediately. Raises ProblemError if the
    validation was deleted in the meantime.
    """
    if not seconds or validation.result or not queue().wait_slots.acquire(blocking=False):
        return validation
    is_disconnected: Callable[[], bool] = request.environ.get("waitress.client_disconnected", bool)
    deadline, pause = time.monotonic() + seconds, _MIN_PAUSE
    try:
        while not validation.result and time.monotonic() < deadline and not is_disconnected():
            if queue().stopping.wait(pause):
                break
            validation, pause = find(validation.id), min(_MAX_PAUSE, pause * 1.3)
    finally:
        queue().wait_slots.release()
    return validation


def accept(parameters: Mapping[str, str]) -> tuple[Validation, str]:
    """Queue the upload of this request; return its validation and its token.

    ``parameters`` are the query parameters; form fields take precedence. Raises ProblemError if the
    upload was rejected and deleted.
    """
    client = _require_turn()
    if request.mimetype != "multipart/form-data":
        example = "curl -F file=@anno.zip"
        raise ProblemError(415, f"Send the files as multipart/form-data, for example: {example}.")
    try:
        fields = {name: text for name, text in request.form.items() if text}
        texts = {**parameters, **fields}
        uploaded = [*request.files.items(multi=True)]
    except RequestEntityTooLarge:
        cause = f"more than {queue().settings.max_files:,} files, or texts that are too long"
        detail = f"The form has {cause}. Upload a zip, and send long texts as files."
        raise ProblemError(413, detail, limit="max_files") from None
    folder = cast("UploadRequest", request).begin_upload()
    files: list[UploadedFile] = []
    for role, file in uploaded:
        path = Path(cast("str", file.stream.name))
        if role not in _ROLES and (file.filename or path.stat().st_size):
            raise _unknown_field(role, "a field for files", _ROLES)
        if file.filename or path.stat().st_size:
            files.append(_store(path, role, file.filename or role, len(files) + 1))
        else:
            path.unlink()  # browsers send an empty file for an empty field
    if labels := texts.pop("cvat_labels", "").strip():
        (folder / "labels").write_text(labels)
        files.append(_store(folder / "labels", "cvat_labels", "labels.json"))
    if example := texts.pop("example", ""):
        if example not in EXAMPLES:
            raise ProblemError(400, f"example: expected one of {', '.join(EXAMPLES)}.")
        copy = Path(shutil.copy(EXAMPLES[example], folder))
        files.append(_store(copy, "file", copy.name))
    _require_valid(texts, files)
    return _queue(folder, files, texts, client)


def change(
    key: str, token: str, odd_boxes: str | None = None, *, converts: bool = False
) -> tuple[Validation, str]:
    """Queue the repair or conversion of a copy of an upload; return the validation and its token.

    Args:
        key: id of the validation.
        token: token of the upload.
        odd_boxes: treatment of boxes that need a decision, one of ``ODD_BOXES``; None to leave
            them, or to refuse the conversion.
        converts: whether the copy is converted to shards instead of repaired.

    Raises:
        ProblemError: the check has not finished, the upload was deleted, the token is wrong, or
            there is no such treatment.
    """
    if odd_boxes is not None and odd_boxes not in ODD_BOXES:
        detail = f"odd_boxes={truncate(odd_boxes)}: expected one of {', '.join(ODD_BOXES)}."
        raise ProblemError(400, detail, parameter="odd_boxes")
    verb = "converted" if converts else "repaired"
    validation, client = find(key, token), _require_turn()
    if validation.state != "finished":
        raise ProblemError(409, f"An upload can only be {verb} after a successful check.")
    folder, original = cast("UploadRequest", request).begin_upload(), validation.request
    stem = next(os.path.splitext(file.name)[0] for file in original.files if file.role == "file")
    files = [UploadedFile(clean_name(f"{stem.removesuffix(f'_{verb}')}_{verb}.zip"), 0)]
    try:
        for file in original.files:
            copy = replace(file, role=ORIGINAL) if file.role == "file" else file
            copy.path_in(folder).parent.mkdir(exist_ok=True)
            os.link(file.path_in(validation.folder), copy.path_in(folder))
            if file.role in ("profile", "cvat_labels"):
                files.append(file)
    except FileNotFoundError:
        detail = "The upload was deleted. Upload it again."
        raise ProblemError(410, detail, limit="upload_seconds") from None
    texts = {
        "for": original.receiver,
        "profile": original.profile,
        "label_map": original.label_map,
        "odd_boxes": odd_boxes,
        "convert_of" if converts else "repair_of": key,
        _DECODE: original.decode,
    }
    return _queue(folder, files, texts, client)


def _require_turn() -> str:
    """Return the address of the client, unless too many validations are waiting."""
    client = get_network(request.remote_addr or "")
    client_count, total = queue().count(client)
    for count, noun, limit in (
        (client_count, "of your checks", "max_waiting_per_client"),
        (total, "checks", "max_waiting"),
    ):
        if count >= getattr(queue().settings, limit):
            detail = f"{count:,} {noun} are already waiting. Try again when some have finished."
            raise ProblemError(429, detail, limit=limit, headers={"Retry-After": "10"})
    return client


def _store(path: Path, role: str, client_name: str, number: int = 1) -> UploadedFile:
    """Move a file to the folder of its role; a name that exists there gets a number."""
    folder, name = path.parent, clean_name(client_name)
    stem, ending = os.path.splitext(name)
    file = UploadedFile(name, path.stat().st_size, role)
    while file.path_in(folder).exists():
        file = replace(file, name=f"{stem} ({number}){ending}")
        number += 1
    file.path_in(folder).parent.mkdir(exist_ok=True)
    path.rename(file.path_in(folder))
    return file


def _require_valid(texts: Mapping[str, str], files: Iterable[UploadedFile]) -> None:
    roles = Counter(file.role for file in files)
    for name, text in texts.items():
        if name == _DECODE:
            _require_decode(text)
            continue
        choices = _TEXTS.get(name)
        if choices is None:
            names = dict.fromkeys((*_ROLES, *_TEXTS, _DECODE))
            raise _unknown_field(name, "a field of the form", names)
        if text not in choices:
            expected = "a file, or one of " if name in _ROLES else "one of "
            detail = f"{name}={truncate(text)}: expected {expected}{', '.join(choices)}."
            raise ProblemError(400, detail, parameter=name)
    if not roles["file"]:
        detail = "The form has no file in the field 'file', or it is malformed."
        raise ProblemError(400, detail)
    for role in _ROLES[1:]:
        if roles[role] > 1:
            raise ProblemError(400, f"The field {role} has several files. Send only one.")


def _require_decode(text: str) -> None:
    try:
        parse_max_decoded(text)
    except ValueError:
        detail = f"decode={truncate(text)}: expected all, none, or the number of images per shard."
        raise ProblemError(400, detail, parameter=_DECODE) from None


def _unknown_field(name: str | None, kind: str, fields: Iterable[str]) -> ProblemError:
    short_name = truncate(str(name))  # a part of a form may have no name
    detail = f"{short_name} is not {kind}. Expected one of {', '.join(fields)}."
    return ProblemError(400, detail, parameter=short_name)


def _queue(
    folder: Path, files: Iterable[UploadedFile], texts: Mapping[str, str | None], client: str
) -> tuple[Validation, str]:
    token = secrets.token_urlsafe(16)
    upload = Request(
        files=tuple(files),
        receiver=texts.get("for"),
        profile=texts.get("profile"),
        label_map=texts.get("label_map"),
        decode=texts.get(_DECODE),
        token=hash_token(token),
        client=client,
        repair_of=texts.get("repair_of"),
        convert_of=texts.get("convert_of"),
        odd_boxes=texts.get("odd_boxes"),
    )
    accepted = queue().folder.accept(folder, upload)
    _bytes.inc(sum(file.bytes for file in upload.files))
    try:
        queue().add(accepted.id, client)
    except Exception:  # the maintenance of the folder will add it later
        _log.exception("the queue does not respond")
    return accepted, token
