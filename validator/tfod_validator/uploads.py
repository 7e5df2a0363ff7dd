"""Uploads: a request with files goes in; a folder of files, and a validation that waits, come out.

Bodies go to the disk as they come.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from flask import Request as FlaskRequest
from flask import current_app
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import SkipJsonSchema
from tfod.check.finding import Severity
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS
from tfod.check.records.decoding import MOST_DECODED
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio import multipart

from tfod_validator import metrics, security
from tfod_validator.data_folder import Incoming, free_bytes, sees_mark
from tfod_validator.jobs import Store
from tfod_validator.problems import ProblemError, invalid_parameter
from tfod_validator.settings import Settings
from tfod_validator.validation import Request, UploadedFile, Validation

EXAMPLES = ("good", "broken")
"""Zips that the page offers to try."""
# In the wheel, and in a clone.
_EXAMPLE_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[2] / "examples")
_FILE_FIELDS = ("file", "profile", "cvat_labels", "cvat_xml")
_FILE_TYPES = frozenset(("application/octet-stream", "application/zip", "application/gzip"))
_MAX_TEXT_BYTES = 1 << 20
_SPARE_PARTS = 20
_STEP = 64 << 10

if TYPE_CHECKING:
    Receiver: TypeAlias = str
    Profile: TypeAlias = str
    Level: TypeAlias = str
else:
    Receiver = Literal[tuple(RECEIVERS)]
    Profile = Literal[tuple(READY)]
    Level = Literal[Severity.ERROR.value, Severity.WARNING.value]
Missing = SkipJsonSchema[None]
"""What a parameter is that is not given, which a request cannot say otherwise."""


def without_nulls(schema: dict[str, Any]) -> None:
    """Leave out of a schema that a parameter which is not given is None."""
    for one in schema["properties"].values():
        if one.get("default", "") is None:
            del one["default"]


class Parameters(BaseModel):
    """Parameters of a request; others are refused, since a typing error would go unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=without_nulls)


class Options(Parameters):
    """How an upload is checked: in the address, or as fields of the form."""

    receiver: Receiver | Missing = Field(
        None,
        alias="for",
        description="What the shards are for, which decides what is an error; without it `cvat` "
        "where a CVAT task or the profile `cvat` is given, and else `any`.",
    )
    profile: Profile | Missing = Field(
        None,
        description="The expected feature description; without it that of `for`, or the one that "
        "fits best. A field of the form may also be a file (YAML, JSON, or Python with a "
        "feature_description).",
    )
    decode: Annotated[str, Field(pattern="^(all|none|[0-9]{1,9})$")] = Field(
        str(MOST_DECODED),
        description="Which images are decoded wholly: `all`, `none`, or an even sample of so many "
        "at most.",
    )
    fail_on: Level | Missing = Field(
        None, description="The least severity that makes the report invalid; without it `error`."
    )


class UploadParameters(Options):
    """Parameters of an upload's address."""

    filename: Annotated[str, Field(min_length=1, max_length=255)] | Missing = Field(
        None, description="Name of the file, when the body is the file itself and not a form."
    )
    fail: Level | Missing = None


class Arriving:
    """How many uploads of each client arrive at this moment, in this process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self, client: str, most: int) -> Iterator[None]:
        """Count an upload until the block ends.

        Raises:
            ProblemError: there are too many.
        """
        with self._lock:
            if self._counts[client] >= most:
                detail = f"{most:,} of your uploads arrive already; wait until some have arrived."
                raise _too_many(detail, "max_uploads_per_client")
            self._counts[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._counts[client] -= 1
                if not self._counts[client]:
                    del self._counts[client]


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
    settings = security.current_settings()
    store = security.current_store()
    client = security.current_client()
    _refuse_by_head(request, settings, store, client)
    most = settings.limits.max_uploads_per_client
    with current_app.extensions["tfod.arriving"].one_more(client, most):
        security.refuse_haste("uploads", "max_uploads_per_minute", client)
        key = security.new_id()
        incoming = None
        try:
            incoming = Incoming(settings, key)
            wanted = _read(request, parameters, incoming, settings)
            incoming.publish()
            total = sum(one.bytes for one in wanted.sources)
            expires = time.time() + settings.limits.report_seconds
            added = store.add(key, client, wanted, total, expires, owner)
        except BaseException as error:
            if incoming is not None:
                incoming.discard()
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ProblemError(507, "The service's disk is full; try again later.") from None
            raise
    metrics.UPLOADED_BYTES.inc(total)
    return added


def _refuse_by_head(request: FlaskRequest, settings: Settings, store: Store, client: str) -> None:
    limits = settings.limits
    if not sees_mark(settings, current_app.extensions["tfod.mark"]):
        detail = "The service does not find its disk; try again later."
        raise ProblemError(503, detail, headers={"Retry-After": "60"})
    length = request.content_length or 0
    if length > limits.max_body_bytes:
        raise RequestEntityTooLarge
    if free_bytes(settings) < length + limits.min_free_bytes:
        raise _no_room()
    of_client, in_all = store.waiting(client)
    if of_client >= limits.max_queued_per_client:
        detail = f"{of_client:,} of your validations wait already; try again when some are done."
        raise _too_many(detail, "max_queued_per_client")
    if in_all >= limits.max_queued:
        detail = f"{in_all:,} validations wait already; try again when some are done."
        raise _too_many(detail, "max_queued")


def _too_many(detail: str, limit: str) -> ProblemError:
    return ProblemError(429, detail, limit=limit, headers={"Retry-After": "10"})


def _too_many_files(max_files: int) -> ProblemError:
    detail = f"There are more than the {max_files:,} files allowed; send a zip."
    return ProblemError(413, detail, limit="max_files")


def _no_room() -> ProblemError:
    detail = "The service's disk has no room for this upload; try again later."
    return ProblemError(507, detail, limit="min_free_bytes")


def _read(
    request: FlaskRequest, parameters: UploadParameters, incoming: Incoming, settings: Settings
) -> Request:
    """Read the body; what is to be checked, once it makes sense."""
    pieces = _pieces(request, settings)
    options = parameters.model_dump(include=set(Options.model_fields), exclude_unset=True)
    if request.mimetype == "multipart/form-data":
        boundary = request.mimetype_params.get("boundary", "")
        files, texts = _read_form(pieces, boundary, incoming, settings.limits.max_files)
        try:
            options |= Options(**texts).model_dump(exclude_unset=True)
        except ValidationError as error:
            raise invalid_parameter(error) from None
    else:
        files = [_read_file(request, pieces, parameters.filename, incoming)]
    wanted = Request(
        files=tuple(_with_different_names(files)),
        receiver=options.get("receiver"),
        profile=options.get("profile"),
        decode=options.get("decode", str(MOST_DECODED)),
        fail_on=options.get("fail_on") or parameters.fail or Severity.ERROR.value,
    )
    if not wanted.sources:
        raise ProblemError(400, "There is no file in the form; its field is called 'file'.")
    for role in _FILE_FIELDS[1:]:
        if sum(one.role == role for one in files) > 1:
            raise ProblemError(400, f"There are several files for {role}; send one.")
    return wanted


def _pieces(request: FlaskRequest, settings: Settings) -> Iterator[bytes]:
    """The body of a request as it comes, as long as there is time and room for it."""
    limits = settings.limits
    end = time.monotonic() + limits.max_upload_seconds
    while True:
        try:
            piece = request.stream.read(_STEP)
        except RequestEntityTooLarge:
            raise
        except Exception:  # werkzeug's, gunicorn's or the socket's
            detail = "The upload has ended early, or is malformed; send it again."
            raise ProblemError(400, detail) from None
        if not piece:
            return
        if time.monotonic() > end:
            most = limits.max_upload_seconds
            detail = f"An upload may take {most:,} seconds; send less, or faster."
            raise ProblemError(408, detail, limit="max_upload_seconds")
        if free_bytes(settings) < limits.min_free_bytes:
            raise _no_room()
        yield piece


def _read_file(
    request: FlaskRequest, pieces: Iterator[bytes], name: str | None, incoming: Incoming
) -> UploadedFile:
    """The one file that the body is."""
    if name is None and request.mimetype not in _FILE_TYPES:
        raise ProblemError(
            415,
            "Send a form (curl -F file=@anno.zip), or the file as the body and its name in the "
            "address (?filename=anno.zip).",
        )
    return incoming.store(pieces, name or "upload", "file")


def _read_form(
    pieces: Iterator[bytes], boundary: str, incoming: Incoming, max_files: int
) -> tuple[list[UploadedFile], dict[str, str]]:
    """The files and the options of a form.

    Flask's own reader would hold many long texts in memory, and many files open.
    """
    files: list[UploadedFile] = []
    texts: dict[str, str] = {}
    try:
        parts = _parts(_events(pieces, boundary, max_files + _SPARE_PARTS))
        text_bytes = 0
        for part, content in parts:
            if part.name is None:
                raise ValueError("a part has no name")
            if isinstance(part, multipart.File):
                if len(files) >= max_files:
                    raise _too_many_files(max_files)
                if part.name not in _FILE_FIELDS:
                    names = ", ".join(_FILE_FIELDS)
                    detail = f"{part.name[:80]} is not a field for files; these are: {names}."
                    raise ProblemError(400, detail)
                file = incoming.store(content, part.filename or part.name, part.name)
                if part.filename or file.bytes:  # browsers send a field that was left empty, too
                    files.append(file)
                continue
            text = bytearray()
            for piece in content:
                text += piece
                text_bytes += len(piece)
                if text_bytes > _MAX_TEXT_BYTES:
                    detail = "The form's texts are longer than 1 MiB; send long ones as files."
                    raise ProblemError(413, detail)
            _note_text(part.name, text.decode("utf-8", "replace"), files, texts, incoming)
    except UnicodeError:
        raise ProblemError(400, "A name in the form is not in UTF-8; send it in UTF-8.") from None
    except ValueError as error:
        detail = f"The form is malformed ({str(error)[:100]}); send it as RFC 7578 says."
        raise ProblemError(400, detail) from None
    return files, texts


def _note_text(
    name: str, text: str, files: list[UploadedFile], texts: dict[str, str], incoming: Incoming
) -> None:
    if name in ("cvat_labels", "cvat_xml"):
        if text.strip():
            files.append(incoming.store([text.encode("utf-8", "surrogatepass")], name, name))
    elif name == "example":
        if text not in EXAMPLES:
            raise ProblemError(400, f"example is one of {', '.join(EXAMPLES)}.")
        zip_name = f"shapes_{text}.zip"
        folder = next(one for one in _EXAMPLE_FOLDERS if (one / zip_name).is_file())
        files.append(incoming.store([(folder / zip_name).read_bytes()], zip_name, "file"))
    elif name == "file":
        raise ProblemError(400, "file is a text; send a file: curl -F file=@anno.zip")
    elif text:
        texts[name] = text


def _events(pieces: Iterator[bytes], boundary: str, max_parts: int) -> Iterator[multipart.Event]:
    if not boundary or not boundary.isascii():
        raise ValueError("it has no boundary")
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
            raise _too_many_files(max_parts - _SPARE_PARTS) from None
        yield event


def _parts(
    events: Iterator[multipart.Event],
) -> Iterator[tuple[multipart.Field | multipart.File, Iterator[bytes]]]:
    """The parts of a form with their contents; each has to be read before the next."""

    def content() -> Iterator[bytes]:
        for event in events:
            if isinstance(event, multipart.Data):
                yield event.data
                if not event.more_data:
                    return

    for event in events:
        if isinstance(event, (multipart.Field, multipart.File)):
            yield event, content()


def _with_different_names(files: Iterable[UploadedFile]) -> Iterator[UploadedFile]:
    """The files; a name that was there before, as of files from several folders, gets a number."""
    taken: set[str] = set()
    for file in files:
        name, (stem, ending) = file.name, os.path.splitext(file.name)
        for number in itertools.count(2):
            if name not in taken:
                break
            name = f"{stem} ({number}){ending}"
        taken.add(name)
        yield replace(file, name=name)
