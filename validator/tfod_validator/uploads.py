"""Uploads: a request with files goes in; a folder of files, and a validation that waits, come out.

Bodies go to the disk as they come.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from flask import Request as FlaskRequest
from pydantic import ValidationError
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio import multipart

from tfod_validator import security
from tfod_validator.errors import ProblemError, disk_is_full, invalid_parameter, too_many
from tfod_validator.jobs.data_folder import Incoming
from tfod_validator.jobs.database import Validation
from tfod_validator.jobs.request import Request, UploadedFile
from tfod_validator.schemas import Options, UploadParameters
from tfod_validator.serve import monitoring
from tfod_validator.service import service
from tfod_validator.settings import Limits

EXAMPLES = ("good", "broken")
"""Zips that the page offers to try."""
# In the wheel, and in a clone.
_EXAMPLE_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[2] / "examples")
_FILE_FIELDS = ("file", "profile", "config", "cvat_labels", "cvat_xml")
_FILE_TYPES = frozenset(("application/octet-stream", "application/zip", "application/gzip"))
_MAX_TEXT_BYTES = 1 << 20
_SPARE_PARTS = 20
_STEP = 64 << 10


def accept(
    request: FlaskRequest, parameters: UploadParameters, *, owner: str | None = None
) -> Validation:
    """Take an upload in; its check waits when this returns.

    What can be refused by the head of the request is refused before its body is read.

    Args:
        request: a form with files, or a file.
        parameters: of the address.
        owner: the browser that alone may delete it; None for everybody who is the same client.

    Raises:
        ProblemError: the upload is refused; nothing of it is left.
    """
    limits = service().settings.limits
    client = security.current_client()
    _refuse_by_head(request, limits, client)
    with service().arriving(client):
        security.limit_rate("uploads", "max_uploads_per_minute", client)
        incoming = None
        try:
            incoming = Incoming(service().settings, key := security.new_id())
            wanted = _read(request, parameters, incoming, limits)
            incoming.publish()
            expires = time.time() + limits.report_seconds
            added = service().database.add(key, client, wanted, expires, owner)
        except BaseException as error:
            if incoming is not None:
                incoming.discard()
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise disk_is_full() from None
            raise
    monitoring.UPLOADED_BYTES.inc(added.bytes_total)
    return added


def _refuse_by_head(request: FlaskRequest, limits: Limits, client: str) -> None:
    folder = service().folder
    if not folder.is_there():
        detail = "The service does not find its disk; try again later."
        raise ProblemError(503, detail, headers={"Retry-After": "60"})
    length = request.content_length or 0
    if length > limits.max_body_bytes:
        raise RequestEntityTooLarge
    _require_room(length, limits)
    of_client, in_all = service().database.waiting(client)
    if of_client >= limits.max_queued_per_client:
        detail = f"{of_client:,} of your validations wait already; try again when some are done."
        raise too_many(detail, "max_queued_per_client")
    if in_all >= limits.max_queued:
        detail = f"{in_all:,} validations wait already; try again when some are done."
        raise too_many(detail, "max_queued")


def _require_room(length: int, limits: Limits) -> None:
    if service().folder.free_bytes() < length + limits.min_free_bytes:
        detail = "The service's disk has no room for this upload; try again later."
        raise ProblemError(507, detail, limit="min_free_bytes")


def _too_many_files(max_files: int) -> ProblemError:
    detail = f"There are more than the {max_files:,} files allowed; send a zip."
    return ProblemError(413, detail, limit="max_files")


def _read(
    request: FlaskRequest, parameters: UploadParameters, incoming: Incoming, limits: Limits
) -> Request:
    """Read the body; what is to be checked, once it makes sense."""
    pieces = _pieces(request, limits)
    given: Options = parameters
    if request.mimetype == "multipart/form-data":
        form = _Form(incoming, limits.max_files)
        form.read(pieces, request.mimetype_params.get("boundary", ""))
        files, names = form.files, set(Options.model_fields)
        asked = parameters.model_dump(by_alias=True, exclude_unset=True, include=names)
        try:
            given = Options(**asked | form.texts)
        except ValidationError as error:
            raise invalid_parameter(error) from None
    elif not parameters.filename and request.mimetype not in _FILE_TYPES:
        raise ProblemError(
            415,
            "Send a form (curl -F file=@anno.zip), or the file as the body and its name in the "
            "address (?filename=anno.zip).",
        )
    else:
        files = [incoming.store(pieces, parameters.filename or "upload", "file")]
    roles = Counter(one.role for one in files)
    if not roles["file"]:
        raise ProblemError(400, "There is no file in the form; its field is called 'file'.")
    for role in _FILE_FIELDS[1:]:
        if roles[role] > 1:
            raise ProblemError(400, f"There are several files for {role}; send one.")
    return Request(
        files=tuple(_with_different_names(files)),
        receiver=given.receiver or None,
        profile=given.profile or None,
        decode=given.decode,
        fail_on=given.fail_on or parameters.fail or (None if roles["config"] else "error"),
    )


def _pieces(request: FlaskRequest, limits: Limits) -> Iterator[bytes]:
    """The body of a request as it comes, as long as there is time and room for it."""
    end = time.monotonic() + limits.max_upload_seconds
    missing = request.content_length or 0
    while piece := _next_piece(request):
        missing -= len(piece)
        if time.monotonic() > end:
            most = limits.max_upload_seconds
            detail = f"An upload may take {most:,} seconds; send less, or faster."
            raise ProblemError(408, detail, limit="max_upload_seconds")
        _require_room(0, limits)
        yield piece
    if missing > 0:  # gunicorn and werkzeug take a closed connection for the end
        raise _ended_early()


def _next_piece(request: FlaskRequest) -> bytes:
    try:
        return request.stream.read(_STEP)
    except RequestEntityTooLarge:
        raise
    except Exception:  # werkzeug's, gunicorn's or the socket's
        raise _ended_early() from None


def _ended_early() -> ProblemError:
    return ProblemError(400, "The upload has ended early, or is malformed; send it again.")


class _Form:
    """The files and the options of a form.

    Flask's own reader would hold many long texts in memory, and many files open.
    """

    def __init__(self, incoming: Incoming, max_files: int) -> None:
        self.files: list[UploadedFile] = []
        self.texts: dict[str, str] = {}
        self._incoming = incoming
        self._max_files = max_files
        self._text_bytes = 0

    def read(self, pieces: Iterator[bytes], boundary: str) -> None:
        """Read the form to its end.

        Raises:
            ProblemError: it is malformed, or goes over a limit.
        """
        try:
            events = self._events(pieces, boundary)
            for part in events:
                if not isinstance(part, (multipart.Field, multipart.File)):
                    continue
                if part.name is None:
                    raise ValueError("a part has no name")
                if isinstance(part, multipart.File):
                    self._take_file(part, _content(events))
                else:
                    self._take_text(part.name, self._text(_content(events)))
        except UnicodeError:
            detail = "A name in the form is not in UTF-8; send it in UTF-8."
            raise ProblemError(400, detail) from None
        except ValueError as error:
            detail = f"The form is malformed ({str(error)[:100]}); send it as RFC 7578 says."
            raise ProblemError(400, detail) from None

    def _events(self, pieces: Iterator[bytes], boundary: str) -> Iterator[multipart.Event]:
        if not boundary or not boundary.isascii():
            raise ValueError("it has no boundary")
        max_parts = self._max_files + _SPARE_PARTS
        decoder = multipart.MultipartDecoder(
            boundary.encode(), _MAX_TEXT_BYTES + _STEP, max_parts=max_parts
        )
        event: multipart.Event = multipart.NEED_DATA
        while not isinstance(event, multipart.Epilogue):
            try:
                if isinstance(event, multipart.NeedData):
                    decoder.receive_data(next(pieces, None))
                event = decoder.next_event()
            except RequestEntityTooLarge:
                raise _too_many_files(self._max_files) from None
            yield event

    def _take_file(self, part: multipart.File, content: Iterator[bytes]) -> None:
        if len(self.files) >= self._max_files:
            raise _too_many_files(self._max_files)
        if part.name not in _FILE_FIELDS:
            names = ", ".join(_FILE_FIELDS)
            detail = f"{part.name[:80]} is not a field for files; these are: {names}."
            raise ProblemError(400, detail)
        file = self._incoming.store(content, part.filename or part.name, part.name)
        if part.filename or file.bytes:  # browsers send a field that was left empty, too
            self.files.append(file)

    def _text(self, content: Iterator[bytes]) -> str:
        text = bytearray()
        for piece in content:
            text += piece
            self._text_bytes += len(piece)
            if self._text_bytes > _MAX_TEXT_BYTES:
                detail = "The form's texts are longer than 1 MiB; send long ones as files."
                raise ProblemError(413, detail)
        return text.decode("utf-8", "replace")

    def _take_text(self, name: str, text: str) -> None:
        if name in ("cvat_labels", "cvat_xml"):
            if text.strip():
                self._store(text.encode(), name, name)
        elif name == "example":
            if text not in EXAMPLES:
                raise ProblemError(400, f"example is one of {', '.join(EXAMPLES)}.")
            zip_name = f"shapes_{text}.zip"
            folder = next(one for one in _EXAMPLE_FOLDERS if (one / zip_name).is_file())
            self._store((folder / zip_name).read_bytes(), zip_name, "file")
        elif name == "file":
            raise ProblemError(400, "file is a text; send a file: curl -F file=@anno.zip")
        elif text:
            self.texts[name] = text

    def _store(self, content: bytes, name: str, role: str) -> None:
        self.files.append(self._incoming.store([content], name, role))


def _content(events: Iterator[multipart.Event]) -> Iterator[bytes]:
    """The content of a part, which has to be read before the next."""
    for event in events:
        if isinstance(event, multipart.Data):
            yield event.data
            if not event.more_data:
                return


def _with_different_names(files: Iterable[UploadedFile]) -> Iterator[UploadedFile]:
    """The files; a name that was there before, as of files from several folders, gets a number."""
    taken: set[str] = set()
    for file in files:
        stem, ending = os.path.splitext(file.name)
        others = (f"{stem} ({number}){ending}" for number in itertools.count(2))
        name = next(one for one in itertools.chain([file.name], others) if one not in taken)
        taken.add(name)
        yield replace(file, name=name)
