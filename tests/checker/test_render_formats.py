"""Reports for programs: JSON, JUnit XML, and workflow commands of GitHub Actions."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from tfod.checker.report import Report
from tfod.checker.reporters.github import render_github
from tfod.checker.reporters.json import render_json
from tfod.checker.reporters.junit import render_junit

from tests.checker import FILES
from tests.checker.report_schema import SCHEMA, VALIDATOR
from tests.checker.reports import HOSTILE, WARNING, found, hostile_report, make_report, some_figures

pytestmark = pytest.mark.usefixtures("made_up_rules")
JUNIT = etree.RelaxNG(etree.parse(str(FILES / "junit.rng")))
COMMAND = re.compile(r"::(error|warning|notice) file=([^:,]*),title=([^:,]*)::([^\r\n]*)\Z")
"""GitHub's syntax of a command."""


def read_json(report: Report) -> dict[str, Any]:
    """Parse like a strict reader, and validate with the schema."""
    document: dict[str, Any] = json.loads(render_json(report).encode(), parse_constant=pytest.fail)
    VALIDATOR.validate(document)
    return document


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
def test_json_follows_the_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = read_json(report)
    assert document["counts"]["findings"] == report.total
    assert len(document["findings"]) == len(report.findings)


@pytest.mark.parametrize(
    "path",
    [(), ("counts",), ("profile",), ("tool",), ("statistics",), ("findings", 0), ("sources", 0)],
)
def test_the_schema_is_strict(path: tuple[str | int, ...]) -> None:
    document = read_json(make_report([found("BOX903", "x")]))
    part: Any = document
    for step in path:
        part = part[step]
    part["surprise"] = 1
    assert not VALIDATOR.is_valid(document)
    del part["surprise"]
    part.popitem()
    assert not VALIDATOR.is_valid(document)


def test_json_has_words_for_infinite_numbers() -> None:
    value = {"box": [float("nan"), float("inf"), -float("inf"), np.float32(0.5), np.int64(3)]}
    document = read_json(make_report([found("BOX903", "x", value=value)]))
    assert document["findings"][0]["value"] == {"box": ["NaN", "Infinity", "-Infinity", 0.5, 3]}


def test_hostile_texts_are_equal_in_json() -> None:
    report = hostile_report()
    written = render_json(report)
    assert all(character == "\n" or character.isprintable() for character in written)
    texts = [one["shard"] for one in read_json(report)["findings"]]
    assert [one for one in texts if "\\ud800" not in one] == [
        one.shard for one in report.findings if "\ud800" not in one.shard
    ]


def suites(report: Report) -> dict[str, ElementTree.Element]:
    """The suites by name, of XML with the right structure and counts."""
    document = render_junit(report).encode()
    JUNIT.assertValid(etree.fromstring(document))
    root = ElementTree.fromstring(document)
    for total, path in (("tests", ".//testcase"), ("failures", ".//failure")):
        for one in (root, *root):
            assert int(one.get(total, "")) == len(one.findall(path))
    return {one.get("name", ""): one for one in root}


def names(suite: ElementTree.Element, path: str = "testcase") -> list[str]:
    return [one.get("name", "") for one in suite.findall(path)]


def failures(suite: ElementTree.Element) -> list[str]:
    return names(suite, "testcase[failure]")


def test_junit_has_a_suite_per_file_and_a_test_per_rule() -> None:
    findings = [
        found("BOX903", "box 1 is outside", record=1, offset=2, item="1.jpg"),
        found("BOX903", "box 2 is outside", record=3, offset=4),
        found("LAB906", "'A' is 'a' in the map", record=1),
    ]
    both = suites(make_report(findings, sources=["a.record", "b.record"]))
    assert list(both) == ["a.record", "b.record"]
    bad, clean = both.values()
    assert failures(bad) == ["BOX903 box outside the image"]
    failure = bad.find(".//failure")
    assert failure is not None and failure.get("type") == "error"
    assert failure.get("message") == "2 findings, the first: box 1 is outside"
    assert (failure.text or "").splitlines() == [
        "a.record, record 1, byte 2 (1.jpg): box 1 is outside",
        "a.record, record 3, byte 4: box 2 is outside",
        "Why: The trainer stops on coordinates above 1.1.",
        "Fix: Clip boxes to the image.",
    ]
    assert "'A' is 'a' in the map" in (bad.findtext("testcase/system-out") or "")
    assert names(clean) == ["no findings that fail (error or worse)"] and failures(clean) == []
    # Jenkins makes a package of the part before a dot.
    assert [one.get("classname") for one in clean] == [None, "tfod.b_record"]
    assert list(suites(make_report(sources=[]))) == ["the dataset"]


def test_junit_fails_at_the_failing_level() -> None:
    one = [found("LAB906", "x", record=1)]
    passed, failed = suites(make_report(one)), suites(make_report(one, fail_on=WARNING))
    assert failures(passed["a.record"]) == [] and len(names(passed["a.record"])) == 2
    assert len(failures(failed["a.record"])) == 1


def test_junit_has_findings_of_other_files_and_of_the_set() -> None:
    findings = [found("SET901", "one is missing", ""), found("BOX903", "x", "z.zip/b.record")]
    found_suites = suites(make_report(findings))
    assert set(found_suites) == {"a.record", "the dataset", "z.zip/b.record"}
    assert failures(found_suites["the dataset"]) == ["SET901 a shard of the set is missing"]


def test_junit_fails_with_findings_that_are_not_listed() -> None:
    findings = [found("BOX903", f"x {n}", "ab"[n > 2] + ".record", record=n) for n in range(9)]
    both = suites(make_report(findings, most=2, sources=["a.record", "b.record"]))
    assert [name for name in both if failures(both[name])] == ["a.record", "b.record"]
    for name, remaining in (("a.record", 1), ("b.record", 6)):
        assert f"and {remaining} more\n" in (both[name].findtext(".//failure") or "")


def commands(report: Report) -> list[tuple[str, ...]]:
    """The commands, files, titles and messages that GitHub shows."""
    matches = [COMMAND.match(line) for line in render_github(report).splitlines()]
    return [match.groups() for match in matches if match]


def test_github_has_a_command_for_each_finding() -> None:
    findings = [
        found("ZIP917", "stray: 100%", "anno.zip"),
        found("LAB906", "'A' is 'a', in the map"),
        found("BOX903", "box 1", "a,b:1.record", record=1, offset=2, item="1.jpg"),
    ]
    report = make_report(findings, sources=["a,b:1.record", "anno.zip", "a.record"])
    verdict, *lines = render_github(report).splitlines()
    assert verdict.startswith("INVALID: 1 error, 1 warning, 1 info;")
    assert lines == [
        "::error file=a%2Cb%3A1.record,title=BOX903 box outside the image"
        "::record 1, byte 2 (1.jpg): box 1%0AFix: Clip boxes to the image.",
        "::warning file=a.record,title=LAB906 class differs from the map by case or spaces"
        "::'A' is 'a', in the map%0AFix: Use the name in the label map.",
        "::notice file=anno.zip,title=ZIP917 stray files"
        "::stray: 100%25%0AFix: Leave them out when zipping.",
    ]


def test_github_has_only_the_findings_that_it_shows() -> None:
    counts = {"LAB906": 2, "TFR904": 30, "BOX903": 2}
    report = make_report(found(code, f"x {n}") for code in counts for n in range(counts[code]))
    titles = [title[:6] for _, _, title, _ in commands(report)]
    assert titles == [*["TFR904", "BOX903"] * 2, *["TFR904"] * 6, "LAB906", "LAB906"]
    last = render_github(report).splitlines()[-1]
    assert last == "22 findings more: GitHub shows 10 errors and 10 warnings per step"


@given(st.text() | st.sampled_from(HOSTILE))
def test_any_text_is_valid(text: str) -> None:
    finding = found("BOX903", text, text, item=text, feature=text, fix=text)
    report = make_report([finding], sources=[text, "b"])
    suites(report)
    assert len(commands(report)) == 1
