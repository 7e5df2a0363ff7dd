"""The API fits its description: schemathesis reads the description and sends requests."""

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


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_as_described(service: Service, mode: GenerationMode) -> None:
    # An upload that fits the description may contain an invalid task or profile.
    accepted = {"expected-statuses": ["2xx", 404, 409, 422]}
    config = SchemathesisConfig.from_dict({"checks": {"positive_data_acceptance": accepted}})
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json", config=config)
    tested = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            assume(not _changes_values(case))
            case.call_and_validate(timeout=90)

        with suppress(Unsatisfiable, InvalidArgument):  # without parameters, no request is invalid
            ask()
            tested.append(operation.label)
    assert "POST /api/v1/validations" in tested


def _changes_values(case: schemathesis.Case) -> bool:
    """Whether the request differs from the generated values.

    In a query or form, a list of one value becomes that value, and an empty list is absent. In a
    form, a number, a truth value, null or an object becomes its text.
    """
    form = case.body if isinstance(case.body, dict) else {}
    files = form.get("file") if isinstance(form.get("file"), list) else []
    texts = [value for name, value in form.items() if name != "file"]
    sent = [*(case.query or {}).values(), *texts]
    is_other = any(one is None or isinstance(one, (int, float, dict)) for one in texts)
    is_other |= any(not isinstance(one, (str, bytes)) for one in files or ())
    return is_other or any(isinstance(one, list) for one in sent)


def test_the_description_has_exactly_the_routes(service: Service) -> None:
    document = service.get("/openapi.json").json()
    paths = document["paths"].items()
    described = {(path, method.upper()) for path, methods in paths for method in methods}
    routes = {
        (rule.rule.replace("<", "{").replace(">", "}"), method)
        for rule in create_app(Settings(), cast("Queue", None)).url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.endpoint.startswith("api.")
    }
    assert described == routes


def test_the_description_contains_the_schema_of_the_report(service: Service) -> None:
    schemas = service.get("/openapi.json").json()["components"]["schemas"]
    text = (ROOT / "docs" / "report.schema.json").read_text()
    report = json.loads(text.replace("#/$defs/", "#/components/schemas/Report-"))
    parts = report.pop("$defs")
    assert {name: schemas[f"Report-{name}"] for name in parts} == parts
    assert schemas["Report"] == {name: value for name, value in report.items() if name != "$schema"}
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
