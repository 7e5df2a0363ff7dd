"""The HTTP API."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, current_app, request, stream_with_context, url_for
from tfod.check.profiles.file import profile_to_document
from tfod.check.profiles.profile import READY
from tfod.check.rules.registry import FAMILIES, Rule, all_rules

from tfod_validator import security, uploads
from tfod_validator.current import current_settings, current_store
from tfod_validator.intake import FILENAME, OPTIONS, accept
from tfod_validator.parameters import Operation, Parameter, operation, require_known
from tfod_validator.problems import CONTENT_TYPE, ProblemError
from tfod_validator.representation import job, progress
from tfod_validator.security import DOCUMENT_POLICY
from tfod_validator.settings import Limits
from tfod_validator.validation import IMAGE, REPORTS, Validation

api = Blueprint("api", __name__, url_prefix="/api/v1")

_TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "junit": "application/xml",
    "text": "text/plain; charset=utf-8",
}
_BARE_TYPES = {name: value.partition(";")[0] for name, value in _TYPES.items()}
_HEARTBEAT_SECONDS = 10.0
_LOOK_EVERY = 0.25
_RETRY_AFTER = {"Retry-After": "1"}

_KEY = Parameter(
    "key", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}, "Id of the validation.", "path"
)
_NUMBER = Parameter(
    "number", {"type": "integer", "minimum": 0}, "Number of the image, from 0.", "path"
)
_CODE = Parameter(
    "code", {"type": "string", "pattern": "^[A-Z]{3}[0-9]{3}$"}, "Code of the rule.", "path"
)
_WAIT = Parameter(
    "wait",
    {"type": "number", "minimum": 0, "maximum": Limits().max_wait_seconds, "default": 0},
    "Seconds to wait for the report; it comes as soon as the check has ended.",
)
_FAIL = Parameter(
    "fail",
    {"type": "string", "enum": ["error", "warning"]},
    "Answer with a status of 400 or more unless the check has ended and found nothing at or above "
    "this level: 422 for such findings, 409 when it has not ended in time.",
)
_FORMAT = Parameter(
    "format",
    {"type": "string", "enum": list(REPORTS)},
    "Of the answer; the header Accept is followed otherwise.",
)
_VALIDATION = {"$ref": "#/components/schemas/Validation"}
_PROBLEM = {CONTENT_TYPE: {"$ref": "#/components/schemas/Problem"}}
_REPORT_CONTENT = {
    "application/json": _VALIDATION,
    "text/html": {"type": "string"},
    "application/xml": {"type": "string"},
    "text/plain": {"type": "string"},
}
_REFUSALS = {
    400: ("The request does not make sense.", _PROBLEM),
    409: ("The check has not ended in time, and `fail` was given.", _PROBLEM),
    413: ("The upload is too long, or has too many parts.", _PROBLEM),
    415: ("The body is neither a form nor a named file.", _PROBLEM),
    422: (
        "The report is invalid, and `fail` was given; or the check could not be done.",
        {**_REPORT_CONTENT, **_PROBLEM},
    ),
    429: ("Too many uploads in a minute, or too many validations wait already.", _PROBLEM),
    503: ("The service does not find its disk.", _PROBLEM),
    507: ("The service's disk is full.", _PROBLEM),
}
_NOT_FOUND = {404: ("There is no such validation, or it has expired.", _PROBLEM)}


def _form_field(one: Parameter) -> dict[str, Any]:
    """A parameter as a field of a form, where browsers send empty texts for what is not chosen."""
    schema = {**one.schema, "description": one.description}
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], ""]
    return schema


_UPLOAD_BODY = {
    "multipart/form-data": {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "string", "format": "binary"},
                "description": "Shards, a label map, zips; several are checked together.",
            },
            "cvat_labels": {"type": "string", "description": "Labels of the CVAT task, as JSON."},
            "cvat_xml": {"type": "string", "description": "annotations.xml of the CVAT task."},
            **{one.name: _form_field(one) for one in OPTIONS},
        },
        "additionalProperties": False,
    },
    "application/octet-stream": {"type": "string", "format": "binary"},
}


@api.post("/validations")
@operation(
    Operation(
        summary="Upload files and have them checked",
        tag="validations",
        parameters=(_WAIT, _FAIL, _FORMAT, *OPTIONS, FILENAME),
        body=_UPLOAD_BODY,
        responses={
            200: ("The check has ended within `wait`.", _REPORT_CONTENT),
            202: (
                "The check waits or runs; `Location` says where to ask.",
                {"application/json": _VALIDATION},
            ),
            **_REFUSALS,
        },
    )
)
def create() -> Response:
    """Take an upload in; wait for its report if that is asked for."""
    known = (_WAIT, _FAIL, _FORMAT)
    wait, fail, _ = (one.read(request.args) for one in known)
    found = accept(request, known, fail_on=fail)
    found = _wait_for(found, wait)
    location = {"Location": url_for("api.validation", key=found.id)}
    if found.is_over:
        response = _answer(found)
    elif fail:
        detail = f"The check has not ended in time; it goes on at {location['Location']}."
        raise ProblemError(409, detail, headers=location)
    else:
        response = _json(job(found), 202)
        response.headers.update(_RETRY_AFTER)
    response.headers.update(location)
    return response


@api.get("/validations/<key>")
@operation(
    Operation(
        summary="State, progress and report of a validation",
        tag="validations",
        parameters=(_KEY, _WAIT, _FAIL, _FORMAT),
        responses={
            200: ("The validation; its report when the check has ended.", _REPORT_CONTENT),
            **_NOT_FOUND,
            409: (
                "The check has not ended within `wait`, and `fail` or a format was asked for.",
                _PROBLEM,
            ),
            422: _REFUSALS[422],
        },
    )
)
def validation(key: str) -> Response:
    """Say how far a validation is."""
    known = (_WAIT, _FAIL, _FORMAT)
    require_known(request.args, known)
    wait, fail, _ = (one.read(request.args) for one in known)
    found = _wait_for(find(key), wait)
    if fail and not found.is_over:
        raise ProblemError(409, "The check has not ended; ask again.", headers=_RETRY_AFTER)
    return _answer(found)


@api.delete("/validations/<key>")
@operation(
    Operation(
        summary="Delete a validation, its report and its files",
        tag="validations",
        parameters=(_KEY,),
        description="Only who uploaded it may do so: with the same token, or, of a service "
        "without tokens, from the same browser or address.",
        responses={
            204: ("It is gone.", {}),
            403: ("Somebody else has uploaded it.", _PROBLEM),
            **_NOT_FOUND,
        },
    )
)
def delete(key: str) -> Response:
    """Remove all of it; a check that runs ends."""
    security.require_owner(find(key))
    current_store().delete(key)
    uploads.remove(current_settings(), key)
    return Response(status=204)


@api.get("/validations/<key>/report")
@operation(
    Operation(
        summary="The report alone, to be saved",
        tag="validations",
        parameters=(_KEY, _FORMAT),
        responses={
            200: (
                "The report.",
                _REPORT_CONTENT | {"application/json": {"$ref": "#/components/schemas/Report"}},
            ),
            **_NOT_FOUND,
            409: ("The check has not ended.", _PROBLEM),
            422: ("The check could not be done.", _PROBLEM),
        },
    )
)
def report(key: str) -> Response:
    """The report as ``tfod check`` writes it."""
    require_known(request.args, (_FORMAT,))
    kind = _FORMAT.read(request.args) or _accepted()
    response = _document(find(key), kind)
    name = "tfod-" + REPORTS[kind]
    response.headers["Content-Disposition"] = f"attachment; filename={name}"
    return response


@api.get("/validations/<key>/events")
@operation(
    Operation(
        summary="Progress as server-sent events",
        tag="validations",
        description="An event `progress` at each change, and `end` when the check has ended. The "
        "stream ends as well when the service is stopped; clients connect again.",
        parameters=(_KEY,),
        responses={
            200: ("Events.", {"text/event-stream": {"type": "string"}}),
            **_NOT_FOUND,
            503: ("There are too many streams; ask for the state instead.", _PROBLEM),
        },
    )
)
def events(key: str) -> Response:
    """Tell the progress as it goes."""
    found = find(key)
    streams: threading.BoundedSemaphore = current_app.extensions["tfod.streams"]
    if not streams.acquire(blocking=False):
        detail = "There are too many streams of events; ask for the state each second instead."
        raise ProblemError(503, detail, limit="max_event_streams", headers=_RETRY_AFTER)
    stream = stream_with_context(_events_of(found))
    response = Response(stream, mimetype="text/event-stream")
    response.headers["X-Accel-Buffering"] = "no"  # of a proxy before us
    response.call_on_close(streams.release)
    return response


@api.get("/validations/<key>/images/<int:number>")
@operation(
    Operation(
        summary="An image of findings with its boxes drawn",
        tag="validations",
        parameters=(_KEY, _NUMBER),
        responses={
            200: ("The image.", {"image/jpeg": {"type": "string", "format": "binary"}}),
            404: ("There is no such image.", _PROBLEM),
        },
    )
)
def image(key: str, number: int) -> Response:
    """An image, decoded and encoded again by the service."""
    find(key)
    content = current_store().document(key, IMAGE.format(number))
    if content is None:
        raise ProblemError(404, "The report has no image of this number.")
    return Response(content, mimetype="image/jpeg")


@api.get("/profiles")
@operation(
    Operation(
        summary="The ready profiles",
        tag="what is checked",
        responses={200: ("Profiles.", {"application/json": {"type": "object"}})},
    )
)
def profiles() -> Response:
    """All profiles that have a name."""
    return _json({"profiles": [profile_to_document(one) for one in READY.values()]})


@api.get("/rules")
@operation(
    Operation(
        summary="All rules",
        tag="what is checked",
        responses={200: ("Rules.", {"application/json": {"type": "object"}})},
    )
)
def rules() -> Response:
    """All rules, with why they matter and what to do."""
    return _json({"families": FAMILIES, "rules": [_rule(one) for one in all_rules().values()]})


@api.get("/rules/<code>")
@operation(
    Operation(
        summary="A rule",
        tag="what is checked",
        parameters=(_CODE,),
        responses={
            200: ("The rule.", {"application/json": {"type": "object"}}),
            404: ("There is no such rule.", _PROBLEM),
        },
    )
)
def one_rule(code: str) -> Response:
    """A rule by its code."""
    found = all_rules().get(code.upper())
    if found is None:
        raise ProblemError(404, "There is no such rule; see /api/v1/rules.")
    return _json(_rule(found))


def find(key: str) -> Validation:
    """A validation.

    Raises:
        ProblemError: there is none.
    """
    found = current_store().find(key)
    if found is None:
        raise _no_such_validation()
    return found


def _no_such_validation() -> ProblemError:
    return ProblemError(404, "There is no such validation, or it has expired; upload again.")


def _wait_for(found: Validation, seconds: float) -> Validation:
    """Wait until a check has ended, but not for longer than allowed, nor if too many wait."""
    waiting: threading.BoundedSemaphore = current_app.extensions["tfod.waiting"]
    if not seconds or not waiting.acquire(blocking=False):
        return found
    draining: threading.Event = current_app.extensions["tfod.draining"]
    end = time.monotonic() + min(seconds, current_settings().limits.max_wait_seconds)
    pause = 0.02
    try:
        while not found.is_over and time.monotonic() < end and not draining.is_set():
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(_LOOK_EVERY, pause * 1.3)
            found = current_store().find(found.id) or found
    finally:
        waiting.release()
    return found


def _answer(found: Validation) -> Response:
    """A validation in the format that is asked for."""
    kind = _FORMAT.read(request.args) or _accepted()
    fail = _FAIL.read(request.args)
    if found.failure is not None and (fail or kind != "json"):
        raise _failure_of(found)
    response = _json(job(found)) if kind == "json" else _document(found, kind)
    if fail and found.valid is False:
        response.status_code = 422
    return response


def _document(found: Validation, kind: str) -> Response:
    """The report in a format."""
    if found.failure is not None:
        raise _failure_of(found)
    content = current_store().document(found.id, REPORTS[kind])
    if content is None:
        raise ProblemError(409, "The check has not ended; ask again.", headers=_RETRY_AFTER)
    response = Response(content, content_type=_TYPES[kind])
    if kind == "html":
        response.headers["Content-Security-Policy"] = DOCUMENT_POLICY
    return response


def _failure_of(found: Validation) -> ProblemError:
    """Why a check could not be done, as an answer."""
    failure = dict(found.failure or {})
    status, detail = failure.pop("status", 500), failure.pop("detail", "The check has failed.")
    return ProblemError(status, detail, **{k: v for k, v in failure.items() if k == "limit"})


def _accepted() -> str:
    """The format that the header Accept prefers."""
    best = request.accept_mimetypes.best_match(list(_BARE_TYPES.values()), "application/json")
    return next(name for name, value in _BARE_TYPES.items() if value == best)


def _events_of(found: Validation) -> Iterator[str]:
    draining: threading.Event = current_app.extensions["tfod.draining"]
    told: dict[str, Any] = {}
    spoken = time.monotonic()
    yield "retry: 1000\n\n"
    while not draining.is_set():
        now: dict[str, Any] = {"state": found.state, "progress": progress(found)}
        if now != told:
            told, spoken = now, time.monotonic()
            yield f"event: progress\ndata: {json.dumps(now)}\n\n"
        if found.is_over:
            yield f"event: end\ndata: {json.dumps({'state': found.state})}\n\n"
            return
        if time.monotonic() - spoken > _HEARTBEAT_SECONDS:
            spoken = time.monotonic()
            yield ": still there\n\n"  # and it shows whether the client is
        time.sleep(_LOOK_EVERY)
        again = current_store().find(found.id)
        if again is None:
            yield 'event: end\ndata: {"state": "deleted"}\n\n'
            return
        found = again


def _rule(one: Rule) -> dict[str, str]:
    return {
        "code": one.code,
        "severity": one.severity.value,
        "title": one.title,
        "why": one.why,
        "fix": one.fix,
        "source": one.source,
    }


def _json(document: object, status: int = 200) -> Response:
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return Response(text + "\n", status, content_type="application/json")
