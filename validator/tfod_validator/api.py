"""The HTTP API, and its description (OpenAPI 3.1), which is made from its views."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import flask_openapi3 as openapi
from flask import Response, current_app, request, stream_with_context, url_for
from pydantic import BaseModel, ConfigDict, Field
from tfod.check.finding import Severity
from tfod.check.profiles.file import profile_to_document
from tfod.check.profiles.profile import READY
from tfod.check.rules.registry import FAMILIES, Rule, all_rules
from tfod.version import __version__

from tfod_validator import data_folder, security, uploads
from tfod_validator.problems import CONTENT_TYPE, ProblemError, invalid_parameter
from tfod_validator.security import DOCUMENT_POLICY
from tfod_validator.settings import Limits, Settings
from tfod_validator.uploads import Level, Missing, Options, Parameters, UploadParameters
from tfod_validator.validation import IMAGE, REPORTS, State, Validation

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
_SCHEMAS = "#/components/schemas/"

if TYPE_CHECKING:
    Format: TypeAlias = str
else:
    Format = Literal[tuple(REPORTS)]


class Key(BaseModel):
    """The path of a validation."""

    key: Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$", description="Id of the validation.")]


class ImageNumber(Key):
    """The path of an image."""

    number: Annotated[int, Field(ge=0, description="Number of the image, from 0.")]


class RuleCode(BaseModel):
    """The path of a rule."""

    code: Annotated[str, Field(pattern="^[A-Z]{3}[0-9]{3}$", description="Code of the rule.")]


class ReportParameters(Parameters):
    """Parameters of a report."""

    format: Format | Missing = Field(
        None, description="Of the answer; without it the header Accept is followed."
    )


class AnswerParameters(ReportParameters):
    """Parameters of answers that have a validation."""

    wait: Annotated[float, Field(ge=0, le=Limits().max_wait_seconds, allow_inf_nan=False)] = Field(
        0, description="Seconds to wait for the report; it comes as soon as the check has ended."
    )
    fail: Level | Missing = Field(
        None,
        description="Answer with a status of 400 or more unless the check has ended and found "
        "nothing at or above this level: 422 for such findings, 409 when it has not ended in time.",
    )


class CreateParameters(AnswerParameters, UploadParameters):
    """Parameters of an upload."""


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    limit: str = Field("", description="Name of the limit that was reached.")
    parameter: str = Field("", description="Name of the parameter that is wrong.")


class File(BaseModel):
    """A file as it was uploaded."""

    name: str
    bytes: int
    role: Literal["file", "profile", "cvat_labels", "cvat_xml"]


class Amount(BaseModel):
    """How much is done; how many records there are is known when all are read."""

    done: int
    total: int | None


class Image(BaseModel):
    """What a drawn image shows."""

    href: str
    codes: list[str]
    shard: str
    record: int | None
    item: str | None


class Document(BaseModel):
    """A validation with its state, its progress and, when it is finished, its report."""

    model_config = ConfigDict(title="Validation")
    id: str
    state: State
    created: datetime
    started: datetime | None
    ended: datetime | None
    expires: datetime
    files: list[File]
    options: dict[str, str | None]
    progress: dict[Literal["bytes", "records"], Amount]
    valid: bool | None
    report: dict[str, Any] | None
    failure: Problem | None = Field(description="Why the check could not be done.")
    images: list[Image]
    links: dict[str, str]


def _answer_with(description: str, *types: str, schema: Any = None) -> dict[str, Any]:
    """An answer in OpenAPI's words."""
    schema = schema or {"type": "string"}
    content = {name: {"schema": schema} for name in types}
    return {"description": description, "content": content}


def _problem(description: str) -> dict[str, Any]:
    return _answer_with(description, CONTENT_TYPE, schema={"$ref": _SCHEMAS + "Problem"})


def _in_every_format(description: str, schema: str = "Validation") -> dict[str, Any]:
    found = _answer_with(description, *_BARE_TYPES.values())
    found["content"]["application/json"] = {"schema": {"$ref": _SCHEMAS + schema}}
    return found


_NOT_FOUND: dict[str | int, Any] = {404: _problem("It does not exist, or has expired.")}
_NO_RESULT = _in_every_format(
    "The report is invalid, and `fail` was given; or the check could not be done."
)
_NO_RESULT["content"] |= _problem("")["content"]
_NOT_ENDED = _problem("The check has not ended in time, and `fail` or a format was asked for.")
_JSON = _answer_with("As JSON.", "application/json", schema={"type": "object"})
_VALIDATIONS = [openapi.Tag(name="validations")]
_CHECKED = [openapi.Tag(name="what is checked")]

api = openapi.APIBlueprint(
    "api",
    __name__,
    url_prefix="/api/v1",
    abp_responses={400: _problem("A parameter is wrong."), 401: _problem("A token is needed.")},
    abp_security=[{"token": []}],
    operation_id_callback=lambda name, path, method: name,
)


def _raise_invalid(error: Any) -> None:
    raise invalid_parameter(error)


class OpenAPI(openapi.OpenAPI):
    """A Flask application with a description."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            "tfod_validator",
            info=openapi.Info(
                title="tfod validator",
                version=__version__,
                description="Checks TF Object Detection API TFRecords and annotation zips before "
                "they are uploaded or trained on.",
            ),
            security_schemes={"token": {"type": "http", "scheme": "bearer"}},
            validation_error_callback=_raise_invalid,
            validation_error_status=400,
            validation_error_model=Problem,
            doc_ui=False,
        )


def describe_api() -> dict[str, Any]:
    """The description of the current app, with the report's schema."""
    document: dict[str, Any] = json.loads(json.dumps(current_app.api_doc))  # type: ignore[attr-defined]
    text = resources.files("tfod.check").joinpath("report.schema.json").read_text("utf-8")
    report = json.loads(text.replace("#/$defs/", _SCHEMAS + "Report-"))
    parts = report.pop("$defs")
    for name in ("$schema", "$id"):
        report.pop(name)
    validation = Document.model_json_schema(ref_template=_SCHEMAS + "{model}")
    validation["properties"]["report"] = {
        "anyOf": [{"$ref": _SCHEMAS + "Report"}, {"type": "null"}]
    }
    document["components"]["schemas"] = {
        **validation.pop("$defs"),
        "Validation": validation,
        "Report": report,
        **{f"Report-{name}": part for name, part in parts.items()},
    }
    operations = [one for item in document["paths"].values() for one in item.values()]
    for one in operations:  # the library joins the lines of docstrings so
        one["description"] = one.get("description", "").replace("<br/>", " ").strip()
    if not security.current_settings().tokens:
        del document["components"]["securitySchemes"]
        for one in operations:
            one.pop("security", None)
            one["responses"].pop("401", None)
    return document


def _upload_form() -> dict[str, Any]:
    """The form of an upload; browsers send empty texts for what is not chosen."""
    options: dict[str, Any] = Options.model_json_schema()["properties"]
    for one in options.values():
        if "enum" in one:
            one["enum"] = [*one["enum"], ""]
    file = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "format": "binary"},
        "description": "Shards, a label map, zips; several are checked together.",
    }
    texts = {
        "cvat_labels": {"type": "string", "description": "Labels of the CVAT task, as JSON."},
        "cvat_xml": {"type": "string", "description": "annotations.xml of the CVAT task."},
    }
    return {
        "type": "object",
        "required": ["file"],
        "properties": {"file": file, **texts, **options},
        "additionalProperties": False,
    }


_UPLOAD_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {"schema": _upload_form()},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}


@api.post(
    "/validations",
    tags=_VALIDATIONS,
    openapi_extensions={"requestBody": _UPLOAD_BODY},
    responses={
        200: _in_every_format("The check has ended within `wait`."),
        202: _answer_with(
            "The check waits or runs; `Location` says where to ask.",
            "application/json",
            schema={"$ref": _SCHEMAS + "Validation"},
        ),
        408: _problem("The upload took too long."),
        409: _NOT_ENDED,
        413: _problem("The upload is too long, or has too many parts."),
        415: _problem("The body is neither a form nor a named file."),
        422: _NO_RESULT,
        429: _problem("Too many uploads in a minute, or too many validations wait already."),
        503: _problem("The service does not find its disk."),
        507: _problem("The service's disk is full."),
    },
)
def create(query: CreateParameters) -> Response:
    """Upload files and have them checked."""
    found = _wait_for(uploads.accept(request, query), query.wait)
    location = {"Location": url_for("api.validation", key=found.id)}
    if found.is_over:
        response = _answer(found, query)
    elif query.fail:
        detail = f"The check has not ended in time; it goes on at {location['Location']}."
        raise ProblemError(409, detail, headers=location)
    else:
        response = _json(describe(found), 202)
        response.headers.update(_RETRY_AFTER)
    response.headers.update(location)
    return response


@api.get(
    "/validations/<key>",
    tags=_VALIDATIONS,
    responses={
        200: _in_every_format("The validation; its report when the check has ended."),
        **_NOT_FOUND,
        409: _NOT_ENDED,
        422: _NO_RESULT,
    },
)
def validation(path: Key, query: AnswerParameters) -> Response:
    """State, progress and report of a validation."""
    found = _wait_for(find(path.key), query.wait)
    if query.fail and not found.is_over:
        raise ProblemError(409, "The check has not ended; ask again.", headers=_RETRY_AFTER)
    return _answer(found, query)


@api.delete(
    "/validations/<key>",
    tags=_VALIDATIONS,
    responses={204: None, 403: _problem("Another client has uploaded it."), **_NOT_FOUND},
)
def delete(path: Key) -> Response:
    """Delete a validation, its report and its files.

    Only the client that uploaded it may do so: with the same token, or, of a service without
    tokens, from the same browser or address.
    """
    security.require_owner(find(path.key))
    security.current_store().delete(path.key)
    data_folder.remove(security.current_settings(), path.key)
    return Response(status=204)


@api.get(
    "/validations/<key>/report",
    tags=_VALIDATIONS,
    responses={
        200: _in_every_format("The report.", "Report"),
        **_NOT_FOUND,
        409: _problem("The check has not ended."),
        422: _problem("The check could not be done."),
    },
)
def report(path: Key, query: ReportParameters) -> Response:
    """The report alone, to be saved, as `tfod check` writes it."""
    name = query.format or _accepted()
    response = _document(find(path.key), name)
    file_name = "tfod-" + REPORTS[name]
    response.headers["Content-Disposition"] = f"attachment; filename={file_name}"
    return response


@api.get(
    "/validations/<key>/events",
    tags=_VALIDATIONS,
    responses={
        200: _answer_with("Events.", "text/event-stream"),
        **_NOT_FOUND,
        503: _problem("There are too many streams; ask for the state instead."),
    },
)
def events(path: Key) -> Response:
    """Progress as server-sent events.

    An event `progress` at each change, and `end` when the check has ended. The stream ends as well
    when the service is stopped; clients connect again.
    """
    found = find(path.key)
    streams: threading.BoundedSemaphore = current_app.extensions["tfod.streams"]
    if not streams.acquire(blocking=False):
        detail = "There are too many streams of events; ask for the state each second instead."
        raise ProblemError(503, detail, limit="max_event_streams", headers=_RETRY_AFTER)
    response = Response(stream_with_context(_events_of(found)), mimetype="text/event-stream")
    response.headers["X-Accel-Buffering"] = "no"  # of a proxy before us
    response.call_on_close(streams.release)
    return response


@api.get(
    "/validations/<key>/images/<int:number>",
    tags=_VALIDATIONS,
    responses={200: _answer_with("The image.", "image/jpeg"), **_NOT_FOUND},
)
def image(path: ImageNumber) -> Response:
    """An image of findings with its boxes drawn, decoded and encoded again by the service."""
    find(path.key)
    content = security.current_store().document(path.key, IMAGE.format(path.number))
    if content is None:
        raise ProblemError(404, "The report has no image of this number.")
    return Response(content, mimetype="image/jpeg")


@api.get("/profiles", tags=_CHECKED, responses={200: _JSON})
def profiles() -> Response:
    """All profiles that have a name."""
    return _json({"profiles": [profile_to_document(one) for one in READY.values()]})


@api.get("/rules", tags=_CHECKED, responses={200: _JSON})
def rules() -> Response:
    """All rules, with why they matter and what to do."""
    return _json({"families": FAMILIES, "rules": [_rule(one) for one in all_rules().values()]})


@api.get("/rules/<code>", tags=_CHECKED, responses={200: _JSON, **_NOT_FOUND})
def one_rule(path: RuleCode) -> Response:
    """A rule by its code."""
    found = all_rules().get(path.code)
    if found is None:
        raise ProblemError(404, "There is no such rule; see /api/v1/rules.")
    return _json(_rule(found))


def find(key: str) -> Validation:
    """A validation.

    Raises:
        ProblemError: there is none.
    """
    found: Validation | None = security.current_store().find(key)
    if found is None:
        detail = "There is no such validation, or it has expired; upload again."
        raise ProblemError(404, detail)
    return found


def describe(found: Validation) -> dict[str, Any]:
    """A validation as JSON."""
    key, wanted = found.id, found.request
    links = {
        "self": url_for("api.validation", key=key),
        "page": url_for("pages.report", key=key),
        "events": url_for("api.events", key=key),
    }
    saved = None
    if found.state == "finished":
        saved = security.current_store().document(key, REPORTS["json"])
    document = Document.model_validate(
        {
            **vars(found),
            "files": [vars(one) for one in wanted.files],
            "options": {
                "for": wanted.receiver,
                "profile": wanted.profile,
                "decode": wanted.decode,
                "fail_on": wanted.fail_on,
            },
            "progress": _progress(found),
            "report": json.loads(saved) if saved else None,
            "images": [
                {"href": url_for("api.image", key=key, number=number), **about}
                for number, about in enumerate(found.images)
            ],
            "links": links
            | {name: url_for("api.report", key=key, format=name) for name in REPORTS},
        }
    )
    return document.model_dump(mode="json", exclude_unset=True)


def _progress(found: Validation) -> dict[str, dict[str, int | None]]:
    records = found.records_done
    return {
        "bytes": {"done": found.bytes_done, "total": found.bytes_total},
        "records": {"done": records, "total": records if found.is_over else None},
    }


def _wait_for(found: Validation, seconds: float) -> Validation:
    """Wait until a check has ended, but not for longer than allowed, nor if too many wait."""
    waiting: threading.BoundedSemaphore = current_app.extensions["tfod.waiting"]
    if not seconds or not waiting.acquire(blocking=False):
        return found
    draining: threading.Event = current_app.extensions["tfod.draining"]
    most = security.current_settings().limits.max_wait_seconds
    end = time.monotonic() + min(seconds, most)
    pause = 0.02
    try:
        while not found.is_over and time.monotonic() < end and not draining.is_set():
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(_LOOK_EVERY, pause * 1.3)
            found = find(found.id)  # 404 when it was deleted meanwhile
    finally:
        waiting.release()
    return found


def _answer(found: Validation, query: AnswerParameters) -> Response:
    """A validation in the format that is asked for."""
    name = query.format or _accepted()
    if found.failure is not None and (query.fail or name != "json"):
        raise _failure_of(found)
    response = _json(describe(found)) if name == "json" else _document(found, name)
    if query.fail and found.is_over and _has_findings(found, Severity(query.fail)):
        response.status_code = 422
    return response


def _has_findings(found: Validation, level: Severity) -> bool:
    """Whether there are any at or above a level, which need not be that of the verdict."""
    saved = security.current_store().document(found.id, REPORTS["json"])
    counts = json.loads(saved)["counts"]["by_severity"] if saved else {}
    return any(counts.get(one.value) for one in Severity if one.rank >= level.rank)


def _document(found: Validation, name: str) -> Response:
    """The report in a format."""
    if found.failure is not None:
        raise _failure_of(found)
    content = security.current_store().document(found.id, REPORTS[name])
    if content is None:
        if found.is_over:
            find(found.id)  # 404 when it was deleted meanwhile
        raise ProblemError(409, "The check has not ended; ask again.", headers=_RETRY_AFTER)
    response = Response(content, content_type=_TYPES[name])
    if name == "html":
        response.headers["Content-Security-Policy"] = DOCUMENT_POLICY
    return response


def _failure_of(found: Validation) -> ProblemError:
    """Why a check could not be done, as an answer."""
    failure = found.failure or {}
    return ProblemError(failure["status"], failure["detail"], limit=failure.get("limit"))


def _accepted() -> str:
    """The format that the header Accept prefers."""
    best = request.accept_mimetypes.best_match(list(_BARE_TYPES.values()), "application/json")
    return next(name for name, value in _BARE_TYPES.items() if value == best)


def _events_of(found: Validation) -> Iterator[str]:
    draining: threading.Event = current_app.extensions["tfod.draining"]
    sent = ""
    sent_at = time.monotonic()
    yield "retry: 1000\n\n"
    while not draining.is_set():
        now = json.dumps({"state": found.state, "progress": _progress(found)})
        if now != sent:
            sent, sent_at = now, time.monotonic()
            yield f"event: progress\ndata: {now}\n\n"
        if found.is_over:
            yield f"event: end\ndata: {json.dumps({'state': found.state})}\n\n"
            return
        if time.monotonic() - sent_at > _HEARTBEAT_SECONDS:
            sent_at = time.monotonic()
            yield ": still there\n\n"  # and it shows whether the client is
        time.sleep(_LOOK_EVERY)
        again = security.current_store().find(found.id)
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
