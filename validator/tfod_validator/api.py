"""The HTTP API: validations, what is checked, and what those who run the service ask."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import flask_openapi3 as openapi
from flask import Response, request, stream_with_context, url_for
from prometheus_client import CONTENT_TYPE_LATEST
from tfod.check.findings.finding import FAMILIES, Rule, Severity
from tfod.check.profiles.file import profile_to_document
from tfod.check.profiles.profile import READY
from tfod.check.rules.registry import all_rules

from tfod_validator import schemas, security, uploads
from tfod_validator.errors import ProblemError
from tfod_validator.jobs.database import Validation
from tfod_validator.jobs.request import IMAGE, REPORTS
from tfod_validator.schemas import answer, in_every_format, problems
from tfod_validator.serve import monitoring
from tfod_validator.service import service

_HEARTBEAT_SECONDS = 10.0
_RETRY_AFTER = {"Retry-After": "1"}
_TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "junit": "application/xml",
    "text": "text/plain; charset=utf-8",
}
_RULE = ("code", "severity", "title", "why", "fix", "source")
_JSON = answer("As JSON.", "application/json", schema={"type": "object"})
_log = logging.getLogger("tfod.service")


def _blueprint(name: str, tag: str, **options: Any) -> openapi.APIBlueprint:
    return openapi.APIBlueprint(
        name,
        __name__,
        abp_tags=[openapi.Tag(name=tag)],
        operation_id_callback=lambda name, path, method: name,
        **options,
    )


_TOKEN: list[dict[str, list[str]]] = [{"token": []}]
_V1: dict[str, Any] = {
    "url_prefix": "/api/v1",
    "abp_responses": problems(400, 401),
    "abp_security": _TOKEN,
}
api = _blueprint("api", "validations", **_V1)
checked = _blueprint("checked", "what is checked", **_V1)
operation = _blueprint("operation", "operation")


@api.post(
    "/validations",
    openapi_extensions={"requestBody": schemas.UPLOAD_BODY},
    responses={
        200: in_every_format("The check has ended within `wait`."),
        202: answer(
            "The check waits or runs; `Location` says where to ask.",
            "application/json",
            schema=schemas.ref("Validation"),
        ),
        **problems(408, 409, 413, 415, 422, 429, 503, 507),
    },
)
def create(query: schemas.CreateParameters) -> Response:
    """Upload files and have them checked."""
    found = service().wait_for(uploads.accept(request, query), query.wait)
    location = {"Location": url_for("api.validation", key=found.id)}
    if found.is_over:
        response = _state_or_report(found, query)
    elif query.fail:
        detail = f"The check has not ended in time; it goes on at {location['Location']}."
        raise ProblemError(409, detail, headers=location)
    else:
        response = _json(_describe(found), 202)
        response.headers.update(_RETRY_AFTER)
    response.headers.update(location)
    return response


@api.get(
    "/validations/<key>",
    responses={
        200: in_every_format("The validation; its report when the check has ended."),
        **problems(404, 409, 422),
    },
)
def validation(path: schemas.Key, query: schemas.AnswerParameters) -> Response:
    """State, progress and report of a validation."""
    found = service().wait_for(service().find(path.key), query.wait)
    if query.fail and not found.is_over:
        raise ProblemError(409, "The check has not ended; ask again.", headers=_RETRY_AFTER)
    return _state_or_report(found, query)


@api.delete("/validations/<key>", responses={204: None, **problems(403, 404)})
def delete(path: schemas.Key) -> Response:
    """Delete a validation, its report and its files.

    Only the client that uploaded it may do so: with the same token, or, of a service without
    tokens, from the same browser or address.
    """
    security.delete(service().find(path.key))
    return Response(status=204)


@api.get(
    "/validations/<key>/report",
    responses={200: in_every_format("The report.", "Report"), **problems(404, 409, 422)},
)
def report(path: schemas.Key, query: schemas.ReportParameters) -> Response:
    """The report alone, to be saved, as `tfod check` writes it."""
    name = query.format or _accepted()
    response = _document(service().find(path.key), name)
    response.headers["Content-Disposition"] = f"attachment; filename=tfod-{REPORTS[name]}"
    return response


@api.get(
    "/validations/<key>/events",
    responses={200: answer("Events.", "text/event-stream"), **problems(404, 503)},
)
def events(path: schemas.Key) -> Response:
    """Progress as server-sent events.

    An event `progress` at each change, and `end` when the check has ended. The stream ends as well
    when the service is stopped; clients connect again.
    """
    found = service().find(path.key)
    streams = service().streams
    if not streams.acquire(blocking=False):
        detail = "There are too many streams of events; ask for the state each second instead."
        raise ProblemError(503, detail, limit="max_event_streams", headers=_RETRY_AFTER)
    response = Response(stream_with_context(_events_of(found)), mimetype="text/event-stream")
    response.headers["X-Accel-Buffering"] = "no"  # of a proxy before us
    response.call_on_close(streams.release)
    return response


@api.get(
    "/validations/<key>/images/<int:number>",
    responses={200: answer("The image.", "image/svg+xml"), **problems(404)},
)
def image(path: schemas.ImageNumber) -> Response:
    """An image of findings with its boxes drawn, decoded and encoded again by the service."""
    service().find(path.key)
    content = service().database.document(path.key, IMAGE.format(path.number))
    if content is None:
        raise ProblemError(404, "The report has no image of this number.")
    response = Response(content, mimetype="image/svg+xml")
    response.headers["Content-Security-Policy"] = security.DOCUMENT_POLICY
    return response


@checked.get("/profiles", responses={200: _JSON})
def profiles() -> Response:
    """All profiles that have a name."""
    return _json({"profiles": [profile_to_document(one) for one in READY.values()]})


@checked.get("/rules", responses={200: _JSON})
def rules() -> Response:
    """All rules, with why they matter and what to do."""
    return _json({"families": FAMILIES, "rules": [_rule(one) for one in all_rules().values()]})


@checked.get("/rules/<code>", responses={200: _JSON, **problems(404)})
def one_rule(path: schemas.RuleCode) -> Response:
    """A rule by its code."""
    found = all_rules().get(path.code)
    if found is None:
        raise ProblemError(404, "There is no such rule; see /api/v1/rules.")
    return _json(_rule(found))


def _rule(one: Rule) -> dict[str, str]:
    return {name: getattr(one, name) for name in _RULE}


@operation.get("/healthz", responses={200: _JSON})
def live() -> Response:
    """Whether the process answers."""
    return _json({"status": "ok"})


@operation.get("/readyz", responses={200: _JSON, 503: _JSON})
def ready() -> Response:
    """Whether database, disk, data folder and workers are there: 503 if one is not.

    The data folder is there if it is the one of the service that uses the database, and not
    another, or a place where nothing is mounted.
    """
    database, folder = service().database, service().folder
    least = service().settings.limits.min_free_bytes
    checks = {
        "database": _state_of(database.ping),
        "disk": _state_of(lambda: folder.free_bytes() > least),
        "folder": _state_of(folder.is_there),
        "workers": _state_of(lambda: database.count_workers() > 0),
    }
    status = "failing" if "failing" in checks.values() else "ok"
    return _json({"status": status, "checks": checks}, 200 if status == "ok" else 503)


def _state_of(is_there: Callable[[], bool]) -> str:
    try:
        return "ok" if is_there() else "failing"
    except Exception:
        _log.warning("not ready", exc_info=True)
        return "failing"


@operation.get("/metrics", security=_TOKEN, responses={200: answer("Metrics.", "text/plain")})
def metrics() -> Response:
    """Metrics for Prometheus, of all processes."""
    text = monitoring.exposition(service().database.counts())
    return Response(text, content_type=CONTENT_TYPE_LATEST)


@operation.get("/openapi.json", security=_TOKEN, responses={200: _JSON})
def description() -> Response:
    """This description, in OpenAPI 3.1."""
    return _json(schemas.describe_api())


def _describe(found: Validation) -> dict[str, Any]:
    key, wanted = found.id, found.request
    saved = found.state == "finished" and service().database.document(key, REPORTS["json"])
    columns = [name for name in schemas.Document.model_fields if hasattr(found, name)]
    document = schemas.Document.model_validate(
        {
            **{name: getattr(found, name) for name in columns},
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
            "links": {
                "self": url_for("api.validation", key=key),
                "page": url_for("pages.report", key=key),
                "events": url_for("api.events", key=key),
                **{name: url_for("api.report", key=key, format=name) for name in REPORTS},
            },
        }
    )
    return document.model_dump(mode="json", exclude_unset=True)


def _progress(found: Validation) -> dict[str, dict[str, int | None]]:
    records = found.records_done
    return {
        "bytes": {"done": found.bytes_done, "total": found.bytes_total},
        "records": {"done": records, "total": records if found.is_over else None},
    }


def _state_or_report(found: Validation, query: schemas.AnswerParameters) -> Response:
    """A validation in the format that is asked for; 422 where `fail` says so."""
    name = query.format or _accepted()
    if found.failure is not None and (query.fail or name != "json"):
        raise _failure_of(found)
    response = _json(_describe(found)) if name == "json" else _document(found, name)
    if query.fail and found.is_over:
        saved = service().database.document(found.id, REPORTS["json"])
        counts = json.loads(saved)["counts"]["by_severity"] if saved else {}
        least = Severity(query.fail).rank  # which need not be that of the verdict
        if any(counts.get(one.value) for one in Severity if one.rank >= least):
            response.status_code = 422
    return response


def _document(found: Validation, name: str) -> Response:
    if found.failure is not None:
        raise _failure_of(found)
    content = service().database.document(found.id, REPORTS[name])
    if content is None:
        if found.is_over:
            service().find(found.id)  # 404 when it was deleted meanwhile
        raise ProblemError(409, "The check has not ended; ask again.", headers=_RETRY_AFTER)
    response = Response(content, content_type=_TYPES[name])
    if name == "html":
        response.headers["Content-Security-Policy"] = security.DOCUMENT_POLICY
    return response


def _failure_of(found: Validation) -> ProblemError:
    """Why a check could not be done, as an answer."""
    failure = found.failure or {}
    limit = {name: failure[name] for name in ("limit",) if name in failure}
    return ProblemError(failure["status"], failure["detail"], **limit)


def _accepted() -> str:
    """The format that the header Accept prefers."""
    names = {value.partition(";")[0]: name for name, value in _TYPES.items()}
    return names[request.accept_mimetypes.best_match(list(names), "application/json")]


def _events_of(found: Validation) -> Iterator[str]:
    sent, sent_at = "", time.monotonic()
    yield "retry: 1000\n\n"
    for one in service().follow(found):
        if one is None:
            yield 'event: end\ndata: {"state": "deleted"}\n\n'
            return
        now = json.dumps({"state": one.state, "progress": _progress(one)})
        if now != sent:
            sent, sent_at = now, time.monotonic()
            yield f"event: progress\ndata: {now}\n\n"
        elif time.monotonic() - sent_at > _HEARTBEAT_SECONDS:
            sent_at = time.monotonic()
            yield ": still there\n\n"  # and it shows whether the client is
        if one.is_over:
            yield f"event: end\ndata: {json.dumps({'state': one.state})}\n\n"


def _json(document: object, status: int = 200) -> Response:
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return Response(text + "\n", status, content_type="application/json")
