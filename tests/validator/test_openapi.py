"""The API does what its description says: schemathesis reads one and asks the other."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import cast

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis.errors import InvalidArgument, Unsatisfiable
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from tfod_validator.app import create_app
from tfod_validator.settings import Settings
from tfod_validator.workers import Queue

from tests.validator.conftest import Service

ROOT = Path(__file__).parents[2]

_EXAMPLES = int(os.environ.get("TFOD_API_EXAMPLES", "10"))


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda one: one.value)
def test_as_described(service: Service, mode: GenerationMode) -> None:
    # An upload that fits the description may hold a task or a profile that makes no sense.
    accepted = {"expected-statuses": ["2xx", 404, 409, 422]}
    config = SchemathesisConfig.from_dict({"checks": {"positive_data_acceptance": accepted}})
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json", config=config)
    asked = []
    for one in schema.get_all_operations():
        operation = one.ok()

        @settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            assume(not _says_something_else(case))
            case.call_and_validate(timeout=90)

        with suppress(Unsatisfiable, InvalidArgument):  # nothing can be wrong without parameters
            ask()
            asked.append(operation.label)
    assert "POST /api/v1/validations" in asked


def _says_something_else(case: schemathesis.Case) -> bool:
    """Whether a value, as it is sent, is another than the one that was made.

    In a query or a form a list of one value is that value, and an empty one is nothing; in a form,
    whose fields are all texts, a number, a truth value, null or an object is its text.
    """
    form = case.body if isinstance(case.body, dict) else {}
    files = form.get("file") if isinstance(form.get("file"), list) else []
    texts = [value for name, value in form.items() if name != "file"]
    sent = [*(case.query or {}).values(), *texts]
    is_other = any(one is None or isinstance(one, (int, float, dict)) for one in texts)
    is_other |= any(not isinstance(one, (str, bytes)) for one in files or ())
    return is_other or any(isinstance(one, list) for one in sent)


def test_the_description_has_every_route_and_no_other(service: Service) -> None:
    document = service.get("/openapi.json").json()
    described = {
        (path, method.upper())
        for path, operations in document["paths"].items()
        for method in operations
    }
    routes = {
        (one.rule.replace("<", "{").replace(">", "}"), method)
        for one in create_app(Settings(), cast("Queue", None)).url_map.iter_rules()
        for method in (one.methods or set()) - {"HEAD", "OPTIONS"}
        if one.endpoint.startswith("api.")
    }
    assert described == routes


def test_the_report_is_as_its_schema_says(service: Service) -> None:
    schemas = service.get("/openapi.json").json()["components"]["schemas"]
    text = (ROOT / "docs" / "report.schema.json").read_text()
    report = json.loads(text.replace("#/$defs/", "#/components/schemas/Report-"))
    parts = report.pop("$defs")
    assert {name: schemas[f"Report-{name}"] for name in parts} == parts
    assert schemas["Report"] == {name: value for name, value in report.items() if name != "$schema"}
    for one in schemas.values():
        jsonschema.Draft202012Validator.check_schema(one)
