"""The description of the HTTP API (OpenAPI 3.1), made from the views and what they read."""

from __future__ import annotations

import functools
import json
import re
from importlib import resources
from typing import Any

from apispec import APISpec
from flask import Flask
from tfod.version import __version__

from tfod_validator.parameters import Operation, operation_of

_VARIABLE = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")
_COUNT = {"type": "integer", "minimum": 0}
_MOMENT = {"type": ["string", "null"], "format": "date-time"}
_PROBLEM_SCHEMA = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "limit": {"type": "string", "description": "Name of the limit that was reached."},
        "parameter": {"type": "string", "description": "Name of the parameter that is wrong."},
    },
}
_VALIDATION_SCHEMA = {
    "type": "object",
    "required": ["id", "state", "progress", "valid", "report", "failure", "images", "links"],
    "properties": {
        "id": {"type": "string"},
        "state": {"enum": ["queued", "running", "finished", "failed"]},
        "created": _MOMENT,
        "started": _MOMENT,
        "ended": _MOMENT,
        "expires": _MOMENT,
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "bytes": _COUNT,
                    "role": {"enum": ["file", "profile", "cvat_labels", "cvat_xml"]},
                },
            },
        },
        "options": {"type": "object"},
        "progress": {
            "type": "object",
            "required": ["bytes", "records"],
            "properties": {
                "bytes": {
                    "type": "object",
                    "properties": {"done": _COUNT, "total": _COUNT},
                },
                "records": {
                    "type": "object",
                    "description": "How many there are is known when all are read.",
                    "properties": {
                        "done": _COUNT,
                        "total": {"type": ["integer", "null"], "minimum": 0},
                    },
                },
            },
        },
        "valid": {"type": ["boolean", "null"]},
        "report": {
            "anyOf": [{"$ref": "#/components/schemas/Report"}, {"type": "null"}],
        },
        "failure": {
            "description": "Why the check could not be done.",
            "anyOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "null"}],
        },
        "images": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "href": {"type": "string"},
                    "codes": {"type": "array", "items": {"type": "string"}},
                    "shard": {"type": "string"},
                    "record": {"type": ["integer", "null"]},
                    "item": {"type": ["string", "null"]},
                },
            },
        },
        "links": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def describe_api(app: Flask) -> dict[str, Any]:
    """The description of all views of an app that have one."""
    has_tokens = bool(app.extensions["tfod.settings"].tokens)
    spec = APISpec(
        title="tfod validator",
        version=__version__,
        openapi_version="3.1.0",
        info={
            "description": "Checks TF Object Detection API TFRecords and annotation zips before "
            "they are uploaded or trained on.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
    )
    for name, schema in _schemas().items():
        spec.components.schema(name, schema)
    if has_tokens:
        spec.components.security_scheme("token", {"type": "http", "scheme": "bearer"})
    paths: dict[str, dict[str, Any]] = {}
    for rule in app.url_map.iter_rules():
        described = operation_of(app.view_functions[rule.endpoint])
        if described is None:
            continue
        path = _VARIABLE.sub(r"{\1}", rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            name = rule.endpoint.partition(".")[2]
            paths.setdefault(path, {})[method.lower()] = _document(described, name, has_tokens)
    for path in sorted(paths):
        spec.path(path=path, operations=paths[path])
    document: dict[str, Any] = spec.to_dict()
    return document


def _document(described: Operation, name: str, has_tokens: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": name,
        "summary": described.summary,
        "tags": [described.tag],
        "parameters": [one.document() for one in described.parameters],
        "responses": {
            str(status): {"description": meaning, **_content(content)}
            for status, (meaning, content) in _responses(described, has_tokens).items()
        },
    }
    if described.description:
        document["description"] = described.description
    if described.body is not None:
        document["requestBody"] = {"required": True, **_content(described.body)}
    if has_tokens and not described.open:
        document["security"] = [{"token": []}]
    return document


def _responses(described: Operation, has_tokens: bool) -> dict[int, Any]:
    problem = {"application/problem+json": {"$ref": "#/components/schemas/Problem"}}
    responses = {**described.responses}
    if has_tokens and not described.open:
        responses[401] = ("A token is needed.", problem)
    if described.parameters:
        responses.setdefault(400, ("A parameter does not make sense.", problem))
    return dict(sorted(responses.items()))


def _content(content: Any) -> dict[str, Any]:
    if not content:
        return {}
    return {"content": {kind: {"schema": schema} for kind, schema in content.items()}}


@functools.cache
def _schemas() -> dict[str, Any]:
    """All schemas; the parts of the report's are schemas of their own here."""
    text = resources.files("tfod.check").joinpath("report.schema.json").read_text("utf-8")
    report = json.loads(text.replace("#/$defs/", "#/components/schemas/Report-"))
    parts = report.pop("$defs")
    for name in ("$schema", "$id"):
        report.pop(name)
    return {
        "Validation": _VALIDATION_SCHEMA,
        "Problem": _PROBLEM_SCHEMA,
        "Report": report,
        **{f"Report-{name}": part for name, part in parts.items()},
    }
