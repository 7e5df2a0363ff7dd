"""The report as JSON: strict, described by its schema, the same each time."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import numpy as np
import pytest
from tfod.checker.report import Report
from tfod.checker.reporters.json import render_json

from tests.checker.reports import (
    SCHEMA,
    VALIDATOR,
    found,
    hostile_report,
    make_report,
    some_figures,
)


def read_report(report: Report) -> dict[str, Any]:
    """Parse as strict readers do, and hold it against the schema."""
    document: dict[str, Any] = json.loads(render_json(report).encode(), parse_constant=pytest.fail)
    VALIDATOR.validate(document)
    return document


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "report",
    [
        make_report(),
        make_report(figures=some_figures()),
        make_report([found("BOX903", "x", record=3, offset=99, value=[1, 2.5, None])]),
        make_report([found("BOX903", "x") for _ in range(9)], most=2),
        hostile_report(),
    ],
    ids=["empty", "statistics", "finding", "capped", "hostile"],
)
def test_reports_follow_the_schema(report: Report) -> None:
    document = read_report(report)
    assert document["counts"]["findings"] == report.total
    assert len(document["findings"]) == len(report.findings)


@pytest.mark.parametrize(
    "path",
    [(), ("counts",), ("profile",), ("tool",), ("statistics",), ("findings", 0), ("sources", 0)],
)
def test_the_schema_is_strict(path: tuple[str | int, ...]) -> None:
    document = read_report(make_report([found("BOX903", "x")]))
    part: Any = document
    for step in path:
        part = part[step]
    part["surprise"] = 1
    assert not VALIDATOR.is_valid(document)
    del part["surprise"]
    part.popitem()
    assert not VALIDATOR.is_valid(document)


def test_numbers_that_json_cannot_say_are_words() -> None:
    value = {"box": [float("nan"), float("inf"), -float("inf"), np.float32(0.5), np.int64(3)]}
    document = read_report(make_report([found("BOX903", "x", value=value)]))
    assert document["findings"][0]["value"] == {"box": ["NaN", "Infinity", "-Infinity", 0.5, 3]}


def test_texts_come_back_but_steer_nothing() -> None:
    report = hostile_report()
    written = render_json(report)
    assert all(character == "\n" or character.isprintable() for character in written)
    read_back = [one["shard"] for one in read_report(report)["findings"]]
    assert [one for one in read_back if "\\ud800" not in one] == [
        one.shard for one in report.findings if "\ud800" not in one.shard
    ]
