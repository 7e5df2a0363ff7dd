"""The HTTP API: validations, what is checked, and what those who run the service ask.

``static/openapi.json`` describes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from flask import Blueprint, Response, current_app, request, url_for
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from tfod.checker.finding import FAMILIES, Rule, Severity
from tfod.checker.profiles.file import profile_to_document
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.checker.rules.registry import all_rules
from werkzeug.wrappers import Response as AnyResponse

from tfod_validator.answers import TYPES, ProblemError, around, as_json, from_file
from tfod_validator.folder import REPORTS, Validation
from tfod_validator.uploads import accept, find, queue, wait_for
from tfod_validator.uploads import repair as repair_upload

api = Blueprint("api", __name__)
_V1 = "/api/v1"
_RETRY_AFTER = {"Retry-After": "1"}
_FORMATS = {value: name for name, value in TYPES.items()}
_DOCUMENT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
)
_ANSWER = ("wait", "format", "fail")
_REPORT = '\n  "report": '
_RULE = ("code", "severity", "title", "why", "fix", "source")


def parameters(*names: str) -> dict[str, str]:
    """The parameters of the address that are given; others than these are typing errors.

    Raises:
        ProblemError: there is another, or the value of one makes no sense.
    """
    known: dict[str, Mapping[str, object]] = {
        "format": REPORTS,
        "fail": {"error": 1, "warning": 1},
        "for": RECEIVERS,
    }
    given = request.args.to_dict()
    for name, text in given.items():
        if name not in names:
            raise ProblemError(400, f"{name[:80]} is not a parameter here.", parameter=name[:80])
        if name in known and text not in known[name]:
            detail = f"{name}={text[:80]}: expected one of {', '.join(known[name])}."
            raise ProblemError(400, detail, parameter=name)
    most = queue().settings.max_wait_seconds
    if not 0 <= _number(given.get("wait", "0")) <= most:
        detail = f"wait={given['wait'][:80]}: expected seconds, from 0 to {most}."
        raise ProblemError(400, detail, parameter="wait")
    return given


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@api.post(f"{_V1}/validations")
def create() -> AnyResponse:
    """Upload files and have them checked."""
    given = parameters(*_ANSWER, "for")
    return _answer(given, *accept({name: given[name] for name in given.keys() & {"for"}}))


@api.post(f"{_V1}/validations/<key>/repair")
def repair(key: str) -> AnyResponse:
    """Repair a copy of an upload, and check it: a validation of its own."""
    given = parameters(*_ANSWER, "token")
    return _answer(given, *repair_upload(key, given.get("token", "")))


@api.get(f"{_V1}/validations/<key>")
def validation(key: str) -> AnyResponse:
    """State, progress and report of a validation."""
    return _answer(parameters(*_ANSWER), find(key))


def _answer(given: Mapping[str, str], found: Validation, token: str = "") -> AnyResponse:
    """A validation, a new one with its token, in the format that is asked for, when it has ended.

    It says as much as there is when the time to wait is over; 409 or 422 where `fail` says so.
    """
    found, name = wait_for(found, float(given.get("wait", "0"))), given.get("format") or _accepted()
    location = {"Location": url_for("api.validation", key=found.id)}
    if "fail" in given and not found.result:
        detail = f"The check has not ended in time; it goes on at {location['Location']}."
        raise ProblemError(409, detail, headers=location | _RETRY_AFTER)
    if token and not found.result:
        response = as_json(describe(found, token), 202)
        response.headers.update(_RETRY_AFTER)
    elif name == "json" and not (found.state == "failed" and "fail" in given):
        response = _with_report(found, token)
    else:
        response = _document(found, name)
    if "fail" in given and found.result:
        least = Severity(given["fail"]).rank
        if any(found.result.findings.get(one.value) for one in Severity if one.rank >= least):
            response.status_code = 422
    if token:
        response.headers.update(location)
    return response


def _with_report(found: Validation, token: str) -> AnyResponse:
    """A validation and its report."""
    answer = as_json(describe(found, token))
    if found.state != "finished":
        return answer
    before, _, after = answer.get_data(as_text=True).partition(f"{_REPORT}null")
    path = found.document("json")
    return around(before + _REPORT, path, 0, path.stat().st_size, after, TYPES["json"])


def _document(found: Validation, name: str) -> AnyResponse:
    """The report in a format, or why there is none.

    Raises:
        ProblemError: the check has not ended, or could not be done.
    """
    if not found.result:
        raise ProblemError(409, "The check has not ended; ask again.", headers=_RETRY_AFTER)
    if found.result.failure:
        raise ProblemError(**found.result.failure)
    response = from_file(found.document(name), TYPES[name])
    if name == "html":
        response.headers["Content-Security-Policy"] = _DOCUMENT_POLICY
    return response


def _accepted() -> str:
    """The format that the header Accept prefers."""
    return _FORMATS[request.accept_mimetypes.best_match(list(_FORMATS), "application/json")]


@api.delete(f"{_V1}/validations/<key>")
def delete(key: str) -> AnyResponse:
    """Delete a validation, its report and its files, as only who has its token may."""
    queue().folder.delete(find(key, parameters("token").get("token", "")).id)
    return Response(status=204)


@api.get(f"{_V1}/validations/<key>/report")
def report(key: str) -> AnyResponse:
    """The report alone, to be saved, as `tfod check` writes it."""
    name = parameters("format").get("format") or _accepted()
    response = _document(find(key), name)
    response.headers["Content-Disposition"] = f"attachment; filename=tfod-{REPORTS[name]}"
    return response


@api.get(f"{_V1}/validations/<key>/repaired")
def repaired(key: str) -> AnyResponse:
    """The repaired zip, for as long as uploads are kept."""
    found = find(key)
    if found.request.repair_of is None:
        raise ProblemError(404, "This is no repair; POST to /repair of a validation makes one.")
    path = found.request.files[0].place(found.folder)
    if not (found.result and path.is_file()):
        raise ProblemError(410, "The repaired zip is no longer kept; repair the upload again.")
    return from_file(path, "application/zip", as_attachment=True)


@api.get(f"{_V1}/profiles")
def profiles() -> AnyResponse:
    """All profiles that have a name."""
    return as_json({"profiles": [profile_to_document(one) for one in READY.values()]})


@api.get(f"{_V1}/rules")
def rules() -> AnyResponse:
    """All rules, with why they matter and what to do."""
    return as_json({"families": FAMILIES, "rules": [_rule(one) for one in all_rules().values()]})


@api.get(f"{_V1}/rules/<code>")
def rule(code: str) -> AnyResponse:
    """A rule by its code."""
    found = all_rules().get(code)
    if found is None:
        raise ProblemError(404, f"There is no such rule; see {_V1}/rules.")
    return as_json(_rule(found))


def _rule(one: Rule) -> dict[str, str]:
    return {name: getattr(one, name) for name in _RULE}


@api.get("/healthz")
def live() -> AnyResponse:
    """Whether the process answers."""
    return as_json({"status": "ok"})


@api.get("/readyz")
def ready() -> AnyResponse:
    """Whether disk, data folder and workers are there: 503 if one is not."""
    folder, least = queue().folder, queue().settings.min_free_bytes
    checks = {
        "disk": _state_of(lambda: folder.free_bytes() > least),
        "folder": _state_of(folder.is_there),
        "workers": _state_of(queue().is_alive),
    }
    status = "failing" if "failing" in checks.values() else "ok"
    return as_json({"status": status, "checks": checks}, 200 if status == "ok" else 503)


def _state_of(is_there: Callable[[], bool]) -> str:
    try:
        return "ok" if is_there() else "failing"
    except Exception:
        current_app.logger.warning("not ready", exc_info=True)
        return "failing"


@api.get("/metrics")
def metrics() -> AnyResponse:
    """Metrics for Prometheus."""
    return Response(generate_latest(), content_type=CONTENT_TYPE_LATEST)


@api.get("/openapi.json")
def description() -> AnyResponse:
    """The description of all this, in OpenAPI 3.1."""
    return current_app.send_static_file("openapi.json")


def describe(found: Validation, token: str) -> dict[str, Any]:
    """A validation as JSON: its state and its progress, and where its report belongs."""
    key, wanted, result = found.id, found.request, found.result
    total = sum(one.bytes for one in wanted.files)
    done, records = (total, result.records) if result else found.done or (0, 0)
    links = {
        "self": url_for("api.validation", key=key),
        "page": url_for("pages.report", key=key),
        **{name: url_for("api.report", key=key, format=name) for name in REPORTS},
    }
    if wanted.repair_of is not None:
        links["repaired"] = url_for("api.repaired", key=key)
    return {
        "id": key,
        **({"token": token} if token else {}),
        "state": found.state,
        "created": _moment(wanted.created),
        "started": _moment(result.started) if result else None,
        "ended": _moment(result.ended) if result else None,
        "expires": _moment(wanted.created + queue().settings.report_seconds),
        "files": [vars(one) for one in wanted.files],
        "options": {"for": wanted.receiver, "profile": wanted.profile},
        "progress": {
            "bytes": {"done": min(done, total), "total": total},
            "records": {"done": records, "total": records if result else None},
        },
        "valid": result.valid if result else None,
        "report": None,
        "failure": result.failure if result else None,
        "repair_of": wanted.repair_of,
        "repair": result.repair if result else None,
        "links": links,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
