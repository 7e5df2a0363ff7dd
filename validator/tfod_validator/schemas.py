"""What the HTTP API takes and gives: parameters, answers, and its description (OpenAPI 3.1)."""

from __future__ import annotations

import json
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from flask import current_app
from pydantic import BaseModel, ConfigDict, Field
from tfod.check.findings.finding import Severity
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS
from tfod.check.records.images import MOST_DECODED

from tfod_validator.errors import CONTENT_TYPE
from tfod_validator.jobs.database import State
from tfod_validator.jobs.request import REPORTS
from tfod_validator.service import service
from tfod_validator.settings import Limits

_SCHEMAS = "#/components/schemas/"
# Browsers send empty texts for what is not chosen.
_RECEIVERS, _PROFILES, _FORMATS = ("", *RECEIVERS), ("", *READY), ("", *REPORTS)

if TYPE_CHECKING:
    Receiver: TypeAlias = str
    Profile: TypeAlias = str
    Level: TypeAlias = str
    Format: TypeAlias = str
else:
    Receiver = Literal[_RECEIVERS]
    Profile = Literal[_PROFILES]
    Level = Literal["", Severity.ERROR.value, Severity.WARNING.value]
    Format = Literal[_FORMATS]


class Parameters(BaseModel):
    """Parameters of a request; others are refused, since a typing error would go unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Options(Parameters):
    """How an upload is checked: in the address, or as fields of the form."""

    receiver: Receiver = Field(
        "",
        alias="for",
        description="What the shards are for, which decides what is an error; without it `cvat` "
        "where a CVAT task or the profile `cvat` is given, and else `any`.",
    )
    profile: Profile = Field(
        "",
        description="The expected feature description; without it that of `for`, or the one that "
        "fits best. A field of the form may also be a file (YAML, JSON, or Python with a "
        "feature_description).",
    )
    decode: Annotated[str, Field(pattern="^(all|none|[0-9]{1,9})$")] = Field(
        str(MOST_DECODED),
        description="Which images are decoded wholly: `all`, `none`, or an even sample of so many "
        "at most.",
    )
    fail_on: Level = Field(
        "",
        description="The least severity that makes the report invalid; without it that of "
        "`config`, or `error`.",
    )


class UploadParameters(Options):
    """Parameters of an upload's address."""

    filename: Annotated[str, Field(max_length=255)] = Field(
        "", description="Name of the file, when the body is the file itself and not a form."
    )
    fail: Level = ""


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

    format: Format = Field(
        "", description="Of the answer; without it the header Accept is followed."
    )


class AnswerParameters(ReportParameters):
    """Parameters of answers that have a validation."""

    wait: Annotated[float, Field(ge=0, le=Limits().max_wait_seconds, allow_inf_nan=False)] = Field(
        0, description="Seconds to wait for the report; it comes as soon as the check has ended."
    )
    fail: Level = Field(
        "",
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
    role: Literal["file", "profile", "config", "cvat_labels", "cvat_xml"]


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


_PROBLEMS = {
    400: "A parameter is wrong.",
    401: "A token is needed.",
    403: "Another client has uploaded it.",
    404: "It does not exist, or has expired.",
    408: "The upload took too long.",
    409: "The check has not ended in time, and `fail` or a format was asked for.",
    413: "The upload is too long, or has too many parts.",
    415: "The body is neither a form nor a named file.",
    422: "The report is invalid, and `fail` was given; or the check could not be done.",
    429: "Too many uploads in a minute, or too many validations wait already.",
    503: "The service does not find its disk, or there are too many streams of events.",
    507: "The service's disk is full.",
}


def ref(name: str) -> dict[str, str]:
    """A reference to a schema of the description."""
    return {"$ref": _SCHEMAS + name}


def answer(description: str, *types: str, schema: Any = None) -> dict[str, Any]:
    """An answer in OpenAPI's words."""
    content = {name: {"schema": schema or {"type": "string"}} for name in types}
    return {"description": description, "content": content}


def in_every_format(description: str, schema: str = "Validation") -> dict[str, Any]:
    """An answer whose content depends on the format that is asked for."""
    found = answer(description, "text/html", "application/xml", "text/plain")
    found["content"]["application/json"] = {"schema": ref(schema)}
    return found


def problems(*statuses: int) -> dict[str | int, Any]:
    """The answers that are problem documents, by their statuses."""
    found: dict[str | int, Any] = {}
    for one in statuses:
        found[one] = answer(_PROBLEMS[one], CONTENT_TYPE, schema=ref("Problem"))
    if 422 in found:  # a report, too, if `fail` was given
        found[422]["content"] |= in_every_format("")["content"]
    return found


def describe_api() -> dict[str, Any]:
    """The description of the current app, with the report's schema."""
    # The app is flask-openapi3's, which has it; the type of current_app is Flask's.
    document: dict[str, Any] = json.loads(json.dumps(current_app.api_doc))  # type: ignore[attr-defined]
    text = resources.files("tfod.check.findings").joinpath("report.schema.json").read_text("utf-8")
    report = json.loads(text.replace("#/$defs/", _SCHEMAS + "Report-"))
    parts = {f"Report-{name}": part for name, part in report.pop("$defs").items()}
    del report["$schema"], report["$id"]
    validation = Document.model_json_schema(ref_template=_SCHEMAS + "{model}")
    validation["properties"]["report"] = {"anyOf": [ref("Report"), {"type": "null"}]}
    schemas = {**validation.pop("$defs"), "Validation": validation, "Report": report, **parts}
    document["components"]["schemas"] = schemas
    operations = [one for item in document["paths"].values() for one in item.values()]
    for one in operations:  # the library joins the lines of docstrings so
        one["description"] = one.get("description", "").replace("<br/>", " ").strip()
    if not service().settings.tokens:
        del document["components"]["securitySchemes"]
        for one in operations:
            one.pop("security", None)
            one["responses"].pop("401", None)
    return document


_FILE = {"type": "string", "format": "binary"}
UPLOAD_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {
                        "type": "array",
                        "minItems": 1,
                        "items": _FILE,
                        "description": "Shards, a label map, zips; several are checked together.",
                    },
                    "config": {
                        **_FILE,
                        "description": "A tfod.toml, or a pyproject.toml with [tool.tfod], that "
                        "names no files; the other parameters are stronger.",
                    },
                    "cvat_labels": {
                        "type": "string",
                        "description": "Labels of the CVAT task, as JSON.",
                    },
                    "cvat_xml": {
                        "type": "string",
                        "description": "annotations.xml of the CVAT task.",
                    },
                    **Options.model_json_schema()["properties"],
                },
                "additionalProperties": False,
            }
        },
        "application/octet-stream": {"schema": _FILE},
    },
}
"""The body of an upload."""
