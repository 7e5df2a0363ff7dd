"""The findings as workflow commands of GitHub Actions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.reporters.github import render_github

from tests.checker.reports import HOSTILE, found, make_report

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
    verdict, *lines = render_github(report).splitlines()
    assert verdict.startswith("INVALID: 1 error, 1 warning, 1 info;")
    assert lines == [
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
    assert last == "22 findings more: GitHub shows 10 errors and 10 warnings per step"


@given(st.text() | st.sampled_from(HOSTILE))
def test_any_text_is_one_line(text: str) -> None:
    finding = found("BOX903", text, text, item=text, feature=text, fix=text)
    report = make_report([finding], sources=[text, "b"])
    assert len(commands(report)) == 1
