"""The findings as workflow commands of GitHub Actions, and as GitLab's code quality."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.reporters.github_and_gitlab import (
    protect_from_commands,
    render_github,
    render_gitlab,
)

from tests.check.reports import found, hostile_report, make_report

pytestmark = pytest.mark.usefixtures("made_up_rules")

COMMAND = re.compile(r"::(error|warning|notice) file=([^:,]*),title=([^:,]*)::([^\r\n]*)\Z")
"""As the runner takes a line apart."""


def commands(report) -> list[tuple[str, ...]]:
    """What GitHub shows: the command, the file, the title, the message."""
    found = [COMMAND.match(line) for line in render_github(report).splitlines()]
    return [match.groups() for match in found if match]


def test_a_workflow_command_for_each_finding() -> None:
    findings = [
        found("ZIP917", "stray: 100%", "anno.zip"),
        found("LAB906", "'A' is 'a', in the map"),
        found("BOX903", "box 1", "a,b:1.record", record=1, offset=2, item="1.jpg"),
    ]
    report = make_report(findings, sources=["a,b:1.record", "anno.zip", "a.record"])
    assert render_github(report).splitlines() == [
        "::error file=a%2Cb%3A1.record,title=BOX903 box outside the image"
        "::record 1, byte 2 (1.jpg): box 1%0AFix: Clip boxes to the image.",
        "::warning file=a.record,title=LAB906 class differs from the map by case or spaces"
        "::'A' is 'a', in the map%0AFix: Write the class as the label map has it.",
        "::notice file=anno.zip,title=ZIP917 stray files"
        "::stray: 100%25%0AFix: Leave them out when zipping.",
    ]


def test_github_is_given_what_it_shows() -> None:
    findings = [found("LAB906", f"x {n}") for n in range(2)]
    findings += [found("TFR904", f"y {n}") for n in range(30)]
    findings += [found("BOX903", f"z {n}") for n in range(2)]
    report = make_report(findings)
    titles = [title[:6] for _, _, title, _ in commands(report)]
    assert titles == [*["TFR904", "BOX903"] * 2, *["TFR904"] * 6, "LAB906", "LAB906"]
    last = render_github(report).splitlines()[-1]
    assert last == "22 findings more: GitHub shows 10 errors and 10 warnings of a step"


def test_nothing_found() -> None:
    assert render_github(make_report()) == ""
    assert json.loads(render_gitlab(make_report())) == []


def test_hostile_texts_are_no_commands() -> None:
    for line in render_github(hostile_report()).splitlines():
        assert COMMAND.match(line), line
    begin, text, end = protect_from_commands("::error::x\n").splitlines()
    assert begin == f"::stop-commands::{end.strip(':')}" and text == "::error::x"


@given(st.text())
def test_any_text_is_one_line_for_github_and_valid_for_gitlab(text: str) -> None:
    finding = found("BOX903", text, text, item=text, feature=text, fix=text)
    report = make_report([finding], sources=[text, "b"])
    assert len(commands(report)) == 1
    (issue,) = json.loads(render_gitlab(report))
    assert issue["location"]["path"] and issue["fingerprint"]


def test_gitlab_has_an_issue_for_each_finding() -> None:
    findings = [found("BOX903", "box 1", record=1), found("BOX903", "box 1", record=2)]
    findings += [found("LAB906", "x"), found("ZIP917", "y")]
    issues = json.loads(render_gitlab(make_report(findings)))
    assert [one["severity"] for one in issues] == ["critical", "critical", "minor", "info"]
    assert len({one["fingerprint"] for one in issues}) == 4, "GitLab shows those that differ"
    assert {**issues[0], "fingerprint": ""} == {
        "description": "BOX903 box outside the image: record 1: box 1\nFix: Clip boxes to "
        "the image.",
        "check_name": "BOX903",
        "fingerprint": "",
        "severity": "critical",
        "location": {"path": "a.record", "lines": {"begin": 1}},
    }
