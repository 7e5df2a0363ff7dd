"""Takes uploads in: to the disk, into the store, into the queue, in an order that loses nothing."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flask import Request as FlaskRequest
from flask import current_app
from tfod.check.decoding import MOST_DECODED
from tfod.check.finding import Severity
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS
from werkzeug.exceptions import ClientDisconnected
from werkzeug.wrappers import Request as WsgiRequest

from tfod_validator import metrics, security
from tfod_validator.current import (
    current_mark,
    current_queue,
    current_settings,
    current_store,
)
from tfod_validator.form import FILE_FIELD_MAPPING, read_form
from tfod_validator.jobs import Store
from tfod_validator.parameters import Parameter, require_known
from tfod_validator.problems import ProblemError
from tfod_validator.settings import Settings
from tfod_validator.uploads import (
    Incoming,
    free_bytes,
    sees_mark,
    with_names_of_their_own,
)
from tfod_validator.validation import Request, UploadedFile, Validation

FILENAME = Parameter(
    "filename",
    {"type": "string", "maxLength": 255, "minLength": 1},
    "Name of the file, when the body is the file itself and no form.",
)
OPTIONS = (
    Parameter(
        "for",
        {"type": "string", "enum": list(RECEIVERS)},
        "Who reads the shards next, which decides what is an error; without it `cvat` where a CVAT "
        "task or the profile `cvat` is given, and else `any`.",
    ),
    Parameter(
        "profile",
        {"type": "string", "enum": list(READY)},
        "The expected feature description; without it that of `for`, or the one that fits best. A "
        "field of the form may also be a file (YAML, JSON, or Python with a feature_description).",
    ),
    Parameter(
        "decode",
        {
            "type": "string",
            "pattern": "^(all|none|[0-9]{1,9})$",
            "default": str(MOST_DECODED),
            "examples": ["all", "none", str(MOST_DECODED)],
        },
        "Which images are decoded wholly: `all`, `none`, or an even sample of so many at most.",
    ),
    Parameter(
        "fail_on",
        {"type": "string", "enum": [Severity.ERROR.value, Severity.WARNING.value]},
        "The least severity that makes the report invalid: error, unless said otherwise.",
    ),
)
_TEXTS_OR_FILES = tuple(
    Parameter(name, {"type": "string"}, "") for name in ("file", "cvat_labels", "cvat_xml")
)
EXAMPLES = ("good", "broken")
"""Zips that the page offers to try."""
# In the wheel, and in a clone.
_EXAMPLE_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[2] / "examples")
_STEP = 1 << 20
_FILE_TYPES = frozenset(("application/octet-stream", "application/zip", "application/gzip"))


def accept(
    request: FlaskRequest,
    known: tuple[Parameter, ...] = (),
    *,
    fail_on: str | None = None,
    owner: str | None = None,
) -> Validation:
    """Take an upload in; its check waits when this returns.

    Args:
        request: a form with files, or a file.
        known: parameters of the address that others read.
        fail_on: what makes the report invalid, unless the request says so.
        owner: the browser that alone may delete it; None for all that is the same client.

    Raises:
        ProblemError: the upload is refused; nothing of it is left.
    """
    settings = current_settings()
    store = current_store()
    client = security.current_client()
    require_known(request.args, (*known, *OPTIONS, FILENAME))
    for one in (*OPTIONS, FILENAME):
        one.read(request.args)  # also what a field of the form will say otherwise
    if not sees_mark(settings, current_mark()):
        detail = "The service does not find its disk; try again later."
        raise ProblemError(503, detail, headers={"Retry-After": "60"})
    refuse_crowds(settings, store, client)
    security.refuse_haste("uploads", "max_uploads_per_minute", client)
    key = security.new_id()
    try:
        incoming = Incoming(settings, key)
        try:
            return _take(request, incoming, key, (client, owner), fail_on)
        except ClientDisconnected:
            incoming.discard()
            raise ProblemError(400, "The upload has ended early; send it again.") from None
        except BaseException:
            incoming.discard()
            raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ProblemError(507, "The service's disk is full; try again later.") from None
        raise


def _take(
    request: FlaskRequest,
    incoming: Incoming,
    key: str,
    who: tuple[str, str | None],
    fail_on: str | None,
) -> Validation:
    settings = current_settings()
    store = current_store()
    queue = current_queue()
    if request.mimetype == "multipart/form-data":
        files, values = _form(request, incoming)
    else:
        files, values = [_body(request, incoming)], dict(request.args)
    wanted = _request(files, values, settings, fail_on)
    incoming.publish()
    total = sum(one.bytes for one in wanted.sources)
    expires = time.time() + settings.limits.report_seconds
    client, owner = who
    added = store.add(key, client, wanted, total, expires, owner)
    metrics.UPLOADED_BYTES.inc(total)
    try:
        queue.wake()
    except Exception:
        # It is kept: workers look for what waits now and then.
        current_app.logger.exception("the queue does not answer")
    return added


def _form(request: FlaskRequest, incoming: Incoming) -> tuple[list[UploadedFile], dict[str, str]]:
    """The files and the texts of a form."""
    settings = current_settings()
    files, texts = read_form(request, incoming, settings.limits.max_files)
    values = dict(request.args)
    for role, text in texts:
        if role in ("cvat_labels", "cvat_xml") and text.strip():
            file = incoming.new_file()
            file.write(text.encode("utf-8", "surrogatepass"))
            files.append(incoming.keep(file, role, role))
        elif role == "example":
            files.append(_example(incoming, text))
        elif role == "file":
            raise ProblemError(400, "file is a text; send a file: curl -F file=@anno.zip")
        elif text:
            values[role] = text
    known = (*(one.name for one in OPTIONS), *request.args, "cvat_labels", "cvat_xml")
    require_known(values, tuple(Parameter(name, {}, "") for name in known))
    return files, values


def _example(incoming: Incoming, name: str) -> UploadedFile:
    """One of the zips that the page offers to try."""
    if name not in EXAMPLES:
        raise ProblemError(400, f"example is one of {', '.join(EXAMPLES)}.")
    file_name = f"shapes_{name}.zip"
    folder = next(one for one in _EXAMPLE_FOLDERS if (one / file_name).is_file())
    file = incoming.new_file()
    file.write((folder / file_name).read_bytes())
    return incoming.keep(file, file_name, "file")


def _body(request: FlaskRequest, incoming: Incoming) -> UploadedFile:
    """The one file that the body is."""
    name = FILENAME.read(request.args)
    if name is None and request.mimetype in _FILE_TYPES:
        name = "upload"
    if name is None:
        raise ProblemError(
            415,
            "Send a form (curl -F file=@anno.zip), or the file as the body and its name in the "
            "address (?filename=anno.zip).",
        )
    file = incoming.new_file()
    shutil.copyfileobj(request.stream, file, _STEP)
    return incoming.keep(file, name, "file")


def _request(
    files: list[UploadedFile], values: Mapping[str, str], settings: Settings, fail_on: str | None
) -> Request:
    """What is to be checked, once it makes sense."""
    limits = settings.limits
    chosen: dict[str, Any] = {one.name: one.read(values) for one in OPTIONS}
    wanted = Request(
        files=tuple(with_names_of_their_own(files)),
        receiver=chosen["for"],
        profile=chosen["profile"],
        decode=chosen["decode"],
        fail_on=chosen["fail_on"] or fail_on or Severity.ERROR.value,
    )
    if not wanted.sources:
        raise ProblemError(400, "There is no file in the form; its field is called 'file'.")
    if len(files) > limits.max_files:
        detail = f"There are more than the {limits.max_files:,} files allowed; send a zip."
        raise ProblemError(413, detail, limit="max_files")
    for role in FILE_FIELD_MAPPING[1:]:
        if sum(one.role == role for one in files) > 1:
            raise ProblemError(400, f"There are several files for {role}; send one.")
    return wanted


def refuse_crowds(settings: Settings, store: Store, client: str) -> None:
    """Refuse another upload when too many wait.

    Raises:
        ProblemError: that is so.
    """
    limits = settings.limits
    of_client, in_all = store.waiting(client)
    for name, count, most, whose in (
        ("max_queued_per_client", of_client, limits.max_queued_per_client, " of yours"),
        ("max_queued", in_all, limits.max_queued, ""),
    ):
        if count >= most:
            detail = f"{count:,} validations{whose} wait already; try again when some are done."
            raise ProblemError(429, detail, limit=name, headers={"Retry-After": "10"})


def refuse_by_head(given: WsgiRequest, settings: Settings, arriving: int) -> ProblemError | None:
    """Why an upload is refused before its body arrives.

    Args:
        given: the request, without its body.
        settings: the service's.
        arriving: how many bodies of the same client arrive at this moment.
    """
    limits = settings.limits
    if arriving >= limits.max_uploads_per_client:
        detail = f"{arriving:,} uploads of yours arrive already; wait until some have arrived."
        limit = "max_uploads_per_client"
        return ProblemError(429, detail, limit=limit, headers={"Retry-After": "10"})
    # The body is on the disk twice for a moment: as it came, and as the files it holds.
    needed = 2 * (given.content_length or 0) + limits.min_free_bytes
    if free_bytes(settings) < needed:
        detail = "The service's disk has no room for this upload; try again later."
        return ProblemError(507, detail, limit="min_free_bytes")
    return None
