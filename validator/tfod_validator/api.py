"""The HTTP API, which ``static/openapi.json`` describes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from flask import Blueprint, Response, current_app, request, url_for
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from tfod.checker.advice import fill_in
from tfod.checker.finding import FAMILIES, Rule, Severity
from tfod.checker.profiles.file import profile_to_document
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.checker.rules.registry import all_rules
from tfod.errors import truncate
from werkzeug.wrappers import Response as AnyResponse

from tfod_validator.answers import TYPES, ProblemError, send_json, stream_file, stream_part
from tfod_validator.folder import REPORTS, Validation
from tfod_validator.uploads import ODD_BOXES, accept, change, find, queue, wait_for

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


def read_parameters(*names: str) -> dict[str, str]:
    """Return the query parameters; raise ProblemError if one has another name or is invalid."""
    choices: dict[str, Mapping[str, object]] = {
        "format": REPORTS,
        "fail": {"error": 1, "warning": 1},
        "for": RECEIVERS,
        "odd_boxes": dict.fromkeys(ODD_BOXES),
    }
    query = request.args.to_dict()
    for name, text in query.items():
        if name not in names:
            detail = f"{truncate(name)} is not a parameter of this request."
            raise ProblemError(400, detail, parameter=truncate(name))
        if name in choices and text not in choices[name]:
            detail = f"{name}={truncate(text)}: expected one of {', '.join(choices[name])}."
            raise ProblemError(400, detail, parameter=name)
    max_seconds = queue().settings.max_wait_seconds
    if not 0 <= _parse_number(query.get("wait", "0")) <= max_seconds:
        detail = f"wait={truncate(query['wait'])}: expected seconds, from 0 to {max_seconds}."
        raise ProblemError(400, detail, parameter="wait")
    return query


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@api.post(f"{_V1}/validations")
def create() -> AnyResponse:
    """Upload files and check them."""
    query = read_parameters(*_ANSWER, "for")
    return _send_validation(query, *accept({name: query[name] for name in query.keys() & {"for"}}))


@api.post(f"{_V1}/validations/<key>/repair", defaults={"converts": False})
@api.post(f"{_V1}/validations/<key>/convert", defaults={"converts": True})
def change_copy(key: str, *, converts: bool) -> AnyResponse:
    """Repair a copy of an upload or convert it to shards, and check it as a new validation."""
    query = read_parameters(*_ANSWER, "token", "odd_boxes")
    odd_boxes = query.get("odd_boxes", request.form.get("odd_boxes"))
    copy = change(key, query.get("token", ""), odd_boxes, converts=converts)
    return _send_validation(query, *copy)


@api.get(f"{_V1}/validations/<key>")
def validation(key: str) -> AnyResponse:
    """Return the state, progress and report of a validation."""
    return _send_validation(read_parameters(*_ANSWER), find(key))


def _send_validation(
    query: Mapping[str, str], validation: Validation, token: str = ""
) -> AnyResponse:
    """Send a validation in the requested format when it has finished, or after the time to wait.

    A new validation has a token. The parameter ``fail`` makes the status 409 or 422.
    """
    validation = wait_for(validation, float(query.get("wait", "0")))
    name = query.get("format") or _accepted_format()
    location = {"Location": url_for("api.validation", key=validation.id)}
    if "fail" in query and not validation.result:
        detail = f"The check has not finished in time. It continues at {location['Location']}."
        raise ProblemError(409, detail, headers=location | _RETRY_AFTER)
    if token and not validation.result:
        response = send_json(describe(validation, token), 202)
        response.headers.update(_RETRY_AFTER)
    elif name == "json" and not (validation.state == "failed" and "fail" in query):
        response = _send_with_report(validation, token)
    else:
        response = _send_report(validation, name)
    if "fail" in query and validation.result:
        counts, min_rank = validation.result.findings, Severity(query["fail"]).rank
        if any(counts.get(level.value) for level in Severity if level.rank >= min_rank):
            response.status_code = 422
    if token:
        response.headers.update(location)
    return response


def _send_with_report(validation: Validation, token: str) -> AnyResponse:
    response = send_json(describe(validation, token))
    if validation.state != "finished":
        return response
    before, _, after = response.get_data(as_text=True).partition(f"{_REPORT}null")
    path = validation.document("json")
    return stream_part(before + _REPORT, path, 0, path.stat().st_size, after, TYPES["json"])


def _send_report(validation: Validation, name: str) -> AnyResponse:
    """Send the report in a format; raise ProblemError if there is none."""
    if not validation.result:
        detail = "The check has not finished. Try again later."
        raise ProblemError(409, detail, headers=_RETRY_AFTER)
    if validation.result.failure:
        raise ProblemError(**validation.result.failure)
    response = stream_file(validation.document(name), TYPES[name])
    if name == "html":
        response.headers["Content-Security-Policy"] = _DOCUMENT_POLICY
    return response


def _accepted_format() -> str:
    """Return the report format that the header Accept prefers."""
    return _FORMATS[request.accept_mimetypes.best_match(list(_FORMATS), "application/json")]


@api.delete(f"{_V1}/validations/<key>")
def delete(key: str) -> AnyResponse:
    """Delete a validation with its report and files; needs the token of the upload."""
    queue().folder.delete(find(key, read_parameters("token").get("token", "")).id)
    return Response(status=204)


@api.get(f"{_V1}/validations/<key>/report")
def report(key: str) -> AnyResponse:
    """Return only the report, as a download in the format of `tfod check`."""
    name = read_parameters("format").get("format") or _accepted_format()
    response = _send_report(find(key), name)
    response.headers["Content-Disposition"] = f"attachment; filename=tfod-{REPORTS[name]}"
    return response


@api.get(f"{_V1}/validations/<key>/repaired", defaults={"action": "repair"})
@api.get(f"{_V1}/validations/<key>/converted", defaults={"action": "convert"})
def changed_copy(key: str, *, action: str) -> AnyResponse:
    """Return the zip of the repaired or converted copy, which is deleted with the upload."""
    validation = find(key)
    if getattr(validation.request, f"{action}_of") is None:
        start = f"Send a POST request to /{action} of a validation to start one."
        raise ProblemError(404, f"This validation has no such zip. {start}")
    path = validation.request.files[0].path_in(validation.folder)
    if not (validation.result and path.is_file()):
        raise ProblemError(410, f"The zip was deleted. {action.capitalize()} the upload again.")
    return stream_file(path, "application/zip", as_attachment=True)


@api.get(f"{_V1}/profiles")
def profiles() -> AnyResponse:
    """Return all named profiles."""
    documents = [profile_to_document(profile) for profile in READY.values()]
    return send_json({"profiles": documents})


@api.get(f"{_V1}/rules")
def rules() -> AnyResponse:
    """Return all rules, with the reason and the fix of each."""
    rules = [_rule_to_json(rule) for rule in all_rules().values()]
    return send_json({"families": FAMILIES, "rules": rules})


@api.get(f"{_V1}/rules/<code>")
def rule(code: str) -> AnyResponse:
    """Return a rule by its code."""
    rule = all_rules().get(code)
    if rule is None:
        raise ProblemError(404, f"This rule does not exist. {_V1}/rules lists all rules.")
    return send_json(_rule_to_json(rule))


def _rule_to_json(rule: Rule) -> dict[str, str]:
    return {**{name: getattr(rule, name) for name in _RULE}, "fix": fill_in(rule.fix)}


@api.get("/healthz")
def live() -> AnyResponse:
    """Confirm that the process is running."""
    return send_json({"status": "ok"})


@api.get("/readyz")
def ready() -> AnyResponse:
    """Check disk, data folder and workers; the status is 503 if one of them fails."""
    folder, min_free = queue().folder, queue().settings.min_free_bytes
    checks = {
        "disk": _check_state(lambda: folder.free_bytes() > min_free),
        "folder": _check_state(folder.is_writable),
        "workers": _check_state(queue().is_alive),
    }
    status = "failing" if "failing" in checks.values() else "ok"
    return send_json({"status": status, "checks": checks}, 200 if status == "ok" else 503)


def _check_state(is_ok: Callable[[], bool]) -> str:
    try:
        return "ok" if is_ok() else "failing"
    except Exception:
        current_app.logger.warning("not ready", exc_info=True)
        return "failing"


@api.get("/metrics")
def metrics() -> AnyResponse:
    """Return metrics for Prometheus."""
    return Response(generate_latest(), content_type=CONTENT_TYPE_LATEST)


@api.get("/openapi.json")
def description() -> AnyResponse:
    """Return this description of the API, in OpenAPI 3.1."""
    return current_app.send_static_file("openapi.json")


def describe(validation: Validation, token: str) -> dict[str, Any]:
    """Return a validation as a JSON object, whose ``report`` is null."""
    key, submission, result = validation.id, validation.request, validation.result
    total = sum(file.bytes for file in submission.files)
    done, records = (total, result.records) if result else validation.progress or (0, 0)
    links = {
        "self": url_for("api.validation", key=key),
        "page": url_for("pages.report", key=key),
        **{name: url_for("api.report", key=key, format=name) for name in REPORTS},
    }
    for name, action in (("repaired", "repair"), ("converted", "convert")):
        if getattr(submission, f"{action}_of") is not None:
            links[name] = url_for("api.changed_copy", key=key, action=action)
    return {
        "id": key,
        **({"token": token} if token else {}),
        "state": validation.state,
        "created": _to_iso(submission.created),
        "started": _to_iso(result.started) if result else None,
        "ended": _to_iso(result.ended) if result else None,
        "expires": _to_iso(submission.created + queue().settings.report_seconds),
        "files": [vars(file) for file in submission.files],
        "options": {
            "for": submission.receiver,
            "profile": submission.profile,
            "decode": submission.decode,
        },
        "progress": {
            "bytes": {"done": min(done, total), "total": total},
            "records": {"done": records, "total": records if result else None},
        },
        "valid": result.valid if result else None,
        "report": None,
        "failure": result.failure if result else None,
        "repair_of": submission.repair_of,
        "repair": result.repair if result else None,
        "convert_of": submission.convert_of,
        "conversion": result.conversion if result else None,
        "links": links,
    }


def _to_iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
