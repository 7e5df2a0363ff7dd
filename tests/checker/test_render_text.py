"""The report as text: verdict, groups, folded repeats, and safe for a terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.baseline import Baseline
from tfod.checker.finding import Severity
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import columns, visible
from tfod.checker.reporters.github import render_github
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.junit import render_junit
from tfod.checker.reporters.text import render_text

from tests.checker import FILES
from tests.checker.reports import ERROR, INFO, WARNING, found, hostile_report, make_report

pytestmark = pytest.mark.usefixtures("made_up_rules")

EXPECTED = (FILES / "report.txt").read_text(encoding="utf-8")
LONG = "data/2024 warehouse/" + "train-" * 15 + "00003-of-00010.record"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def middle_sized() -> Report:
    """Five rules, one with many findings in several shards, some of which are listed."""
    findings = [
        found("ZIP917", "__MACOSX/._a.record comes from macOS", "anno.zip"),
        found("TFR904", "the data's CRC is 0x2db30013, not 0x390ce32c", "b.record", record=7)
        ._replace(offset=4096),
        found("SET901", "shard 4 of 10 is missing", ""),
    ]  # fmt: skip
    for number in range(20):
        message = f"box {number} reaches {number}.5 beyond the right side"
        if number % 5 == 0:
            message = f"box {number} lies outside altogether, with no part of it in the image"
        box = found("BOX903", message, f"{'abcdef'[number // 4]}.record", record=number)
        box = box._replace(offset=number * 1000, item=f"{number:06d}.jpg")
        box = box._replace(feature="image/object/bbox/xmax")
        findings.append(box._replace(fix="Divide x by the width.") if number == 2 else box)
    for number in range(4):
        message = "'Person ' is 'person' in the map"
        findings.append(found("LAB906", message, record=number, offset=number * 512))
    return make_report(
        findings,
        most=24,
        sources=[f"{name}.record" for name in "abcdef"],
        name="tf_detection_api",
        reason="12 of its 12 features are in all of the first 100 records of the first shard",
    )


def text(report: Report, **options: Any) -> str:
    return render_text(report, **{"color": False, **options})


def test_the_whole_text() -> None:
    assert text(middle_sized()) == EXPECTED
    plain, coloured = text(middle_sized()), text(middle_sized(), color=True)
    assert "\x1b" not in plain and COLOUR.sub("", coloured) == plain
    assert coloured.startswith("\x1b[1;31mINVALID\x1b[0m: 22 errors")
    assert text(make_report(), color=True).startswith("\x1b[1;32mVALID\x1b[0m")
    assert text(make_report()) == (
        "VALID: 0 errors, 0 warnings, 0 infos; 1,000 of 1,200 images decoded, spread over\n"
        "  all shards\n"
        "Checked: 1 shard, 1,204 records, 1,200 images, 1 box\n"
        "Decoded: 1,000 of 1,200 images (to decode all: --decode all)\n"
        "Profile: cvat (requested)\n"
        "Label map: label_map.pbtxt\n"
    )


def test_quiet_prints_only_findings_that_fail() -> None:
    assert text(make_report(), quiet=True) == ""
    assert text(make_report([found("LAB906", "x")]), quiet=True) == ""
    findings = EXPECTED[EXPECTED.index("TFR904") : EXPECTED.index("\nNext:")]
    assert text(middle_sized(), quiet=True) == findings


def test_warnings_that_fail_are_in_the_verdict() -> None:
    one = found("LAB906", "x")
    assert text(make_report([one])).startswith("VALID: 0 errors, 1 warning, 0 infos;")
    failed = text(make_report([one], fail_on=WARNING))
    assert failed.startswith("INVALID: 0 errors, 1 warning, 0 infos (warnings fail, too);")


@pytest.mark.parametrize(
    ("known", "worst", "new", "how", "headline"),
    [
        (7, ERROR, 0, {"receiver": "cvat", "sources": ["a.zip"]}, "CVAT would refuse this zip"),
        (7, ERROR, 0, {"receiver": "cvat"}, "CVAT would refuse these shards"),
        (7, WARNING, 0, {"receiver": "cvat"}, None),
        (7, ERROR, 2, {"receiver": "od-api"}, "these shards are still invalid for the OD API"),
        (7, WARNING, 0, {"fail_on": WARNING, "sources": ["a.zip", "b.zip"]}, "these zips are"),
        (1, INFO, 0, {}, None),
        (0, None, 0, {"receiver": "cvat", "sources": ["a.zip"]}, None),
    ],
)
def test_with_a_baseline_shards_are_never_called_valid(
    known: int, worst: Severity | None, new: int, how: dict[str, Any], headline: str | None
) -> None:
    """Neither in the verdict nor in the next step, in any format."""
    baseline = Baseline("b.json", {}, known, worst)
    report = make_report([found("LAB906", "x")] * new, baseline=baseline, **how)
    assert report.valid
    remaining = {0: "no known ones remain", 1: "1 known one remains"}
    pages = (text(report), render_github(report), render_junit(report), render_html(report))
    for page in (" ".join(page.split()) for page in pages):
        assert "VALID" not in page and "Ready" not in page and "Upload annotations" not in page
        assert ("No new errors; " if new else "No new findings; ") in page
        assert remaining.get(known, f"{known} known ones remain") in page
        if headline:
            assert f"remain, and {headline}" in page.replace("&#39;", "'")
        else:
            assert "refuse" not in page and "still" not in page
    assert text(make_report([found("BOX903", "x")], baseline=baseline)).startswith("INVALID: 1 err")


def test_totals_are_right_if_none_is_listed() -> None:
    findings = [found("BOX903", "x", f"{number}.record", record=0) for number in range(7)]
    written = text(make_report(findings, most=0))
    assert "BOX903 error: box outside the image (7 in 7 files)" in written
    assert "  and 7 more\n  Fix: Clip boxes to the image.\n" in written


def test_findings_of_each_feature_are_listed() -> None:
    findings = [found("BOX903", f"box {n} is wide", record=n, feature="xmin") for n in range(50)]
    findings.append(found("BOX903", "the lists differ in length", record=50, feature="ymin"))
    written = text(make_report(findings))
    assert written.count("wide") == 2 and "the lists differ in length" in written
    assert "and 48 more" in written


def test_lines_fit_and_names_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [found("BOX903", "many words " * 30, LONG, record=1, offset=2, item="фото " * 30)]
    lines = text(make_report(findings)).splitlines()
    (wide,) = [line for line in lines if columns(line) > 80]
    assert LONG in wide
    assert "'two  blanks'" in text(make_report([found("LAB906", "class 'two  blanks' is odd")]))
    monkeypatch.setattr("tfod.checker.reporters.text.WIDTH", 40)
    lines = text(middle_sized()).splitlines()
    assert [line for line in lines if columns(line) > 40 and "byte" not in line] == []


def test_shards_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfod.checker.reporters.text._EXAMPLES", 100)
    written = text(hostile_report())
    assert all(character == "\n" or character.isprintable() for character in written)
    assert r"\x1b]0;title\x07\x1b[31mred" in written and r"\u202egpj.exe" in written
    assert COLOUR.sub("", text(hostile_report(), color=True)) == written
    written.encode()


@given(st.text())
def test_visible_texts(message: str) -> None:
    shown = visible(message)
    shown.encode()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", shown)
    assert visible(shown) == shown


@pytest.mark.parametrize("name", ["автомобиль", "信号機", "كلب", "نمی‌خواهم", "👩‍🚒", "a\\b", "Ünï"])
def test_names_in_any_script_stay_the_same(name: str) -> None:
    assert visible(name) == name
