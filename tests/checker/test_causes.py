"""Causes before symptoms: findings that a rule explains follow it, without their own advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.advice import fill_in, fit_to_page
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Finding
from tfod.checker.receivers import RECEIVERS
from tfod.checker.report import Report
from tfod.checker.reporters.groups import group_findings
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.junit import render_junit
from tfod.checker.reporters.text import render_text
from tfod.checker.reporters.wording import next_steps
from tfod.checker.rules.registry import all_rules

from tests.commands import Run
from tests.files import write_files
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.sound import CAT_BOX, LABEL_MAP, first, folder, other, record, shard, with_boxes


def content(code: str, case: str) -> Any:
    (mutant,) = [one for one in all_mutants() if (one.code, one.case) == (code, case)]
    return mutant.content


PERMUTED = content("BOX013", "xmin-and-xmax-exchanged")
Check = Callable[..., Report]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Check a folder of files, or a shard with the usual label map."""

    def check_files(files: Any, **options: object) -> Report:
        files = {"a.tfrecord": files} if isinstance(files, bytes) else files
        write_files(tmp_path, {"label_map.pbtxt": LABEL_MAP, **files})
        return check_sources([str(tmp_path)], Options(**options))

    return check_files


def causes(report: Report) -> dict[str, str]:
    """The cause of each group of findings, with the number of findings."""
    return {f"{group.code} {group.total}": group.cause for group in group_findings(report)}


@pytest.mark.parametrize(
    ("code", "case", "explained"),
    [
        ("BOX013", "xmin-and-xmax-exchanged", ["BOX006"]),
        ("BOX022", "divided-twice", ["BOX008"]),
        ("BOX022", "percent", ["BOX005"]),
        ("BOX022", "x-y-width-height", ["BOX006"]),
        ("BOX022", "center-and-size", ["BOX006", "BOX013"]),
        ("BOX012", "all", ["BOX007"]),
        ("LAB012", "0-and-1", ["LAB009", "LAB013"]),
        ("LAB006", "map-of-another-dataset", ["LAB013"]),
        ("NAM013", "jpeg", ["NAM006", "EXA009", "NAM003"]),
    ],
)
def test_the_cause_comes_first(code: str, case: str, explained: list[str], check: Check) -> None:
    report = check(content(code, case))
    groups = group_findings(report)
    rest = [group for group in groups if group.cause]
    assert groups[0].code == code and not groups[0].cause
    assert {group.code: group.cause for group in rest} == dict.fromkeys(explained, code)
    step, _ = next_steps(report, groups)[0]
    assert step.startswith(f"Begin with {code}, which explains {', '.join(explained)}: ")
    for group in rest:
        assert code in group.fix and "tfod" not in group.fix
        assert not any(finding.fix for finding in group.findings)
    text = render_text(report, color=False)
    assert text.index(f"{code} ") < min(text.index(f"{other} ") for other in explained)
    anchors = re.findall(r'<div id="([A-Z0-9-]+)" class="about"', render_html(report))
    assert anchors == [code, *(f"{group.code}-{code}" for group in rest)]


def test_a_cause_explains_only_its_shard(check: Check, tmp_path: Path) -> None:
    slip = first(with_boxes([(0.5, 0.25, 0.25, 0.75), CAT_BOX]))
    report = check({"a.record": PERMUTED, "b.record": slip})
    counted = causes(report)
    assert (counted["BOX006 1"], counted["BOX006 8"]) == ("", "BOX013")
    fixes = {finding.shard: finding.fix for finding in report.findings if finding.code == "BOX006"}
    ours, theirs = (fixes[str(tmp_path / name)] for name in ("b.record", "a.record"))
    assert str(tmp_path / "b.record") in ours and "BOX013" in theirs
    assert render_junit(report).count("BOX006 box is inverted") == 2


def test_unlisted_findings_and_small_shards_are_explained(check: Check) -> None:
    """Two permuted boxes per shard are only enough together."""
    assert causes(check(PERMUTED, max_findings=3))["BOX006 8"] == "BOX013"
    boxes = [(0.5 + n / 16, 0.25, 0.25, 0.75) for n in range(6)]
    names = ({"filename": f"{n}.jpg", "source_id": str(n)} for n in range(3))
    payloads = [with_boxes(boxes[2 * n :][:2], **name) for n, name in enumerate(names)]
    files = {f"train-{n:05}-of-00003": shard(payload) for n, payload in enumerate(payloads)}
    assert causes(check({"a.tfrecord": b"", **files}))["BOX006 6"] == "BOX013"


@pytest.mark.parametrize("count", [1, 30])
def test_boxes_in_pixels_explain_others_only_if_most_are(count: int, check: Check) -> None:
    valid = [(n / 64, 0.25, n / 64 + 0.3, 0.75) for n in range(30 - count)]
    pixels = [(10.0 + n / 8, 5.0, 20.0, 15.0) for n in range(count)]
    slip = record("b.jpg", xmin=[0.5, 0.1], xmax=[0.25, 0.3])
    groups = group_findings(check(shard(with_boxes([*pixels, *valid]), slip)))
    (cause,) = [group.cause for group in groups if group.code == "BOX006"]
    assert cause == ("BOX005" if count == 30 else "")


@pytest.mark.parametrize(
    ("texts", "is_foreign"),
    [("ship ferry", True), ("ship cat", False), ("ship dgo", False), ("ship Dog", False)],
)
def test_another_label_map(texts: str, is_foreign: bool, run: Run, tmp_path: Path) -> None:
    classes = {"text": texts.split()}
    write_files(tmp_path, folder(record(**classes), record("b.png", **classes)))
    out = " ".join(run("check", tmp_path).out.split())
    path = tmp_path / "label_map.pbtxt"
    assert (f"this label map may belong to another dataset: {path}" in out) is is_foreign
    command = f"tfod convert {tmp_path / 'default.tfrecord'} labelled --to shards"
    assert (command in out) is (not is_foreign and "LAB006" in out)


def test_no_rule_explains_itself_or_its_cause() -> None:
    rules = all_rules()
    for rule in rules.values():
        assert rule.explains <= rules.keys()
        for code in rule.explains:
            assert rule.code != code and rule.code not in rules[code].explains


@pytest.mark.parametrize(
    ("receiver", "tool"), [("any", "CVAT"), ("cvat", "CVAT"), ("od-api", "the annotation tool")]
)
def test_the_fix_names_the_box_and_the_image(receiver: str, tool: str, check: Check) -> None:
    two = [record(name, xmin=[0.25, 0.8], xmax=[0.5, 0.6]) for name in ("a.jpg", "c.jpg")]
    report = check(shard(*two, other()), receiver=RECEIVERS[receiver])
    sentence, _ = next_steps(report, group_findings(report))[0]
    fix = f"In {tool}, redraw box 'dog' in a.jpg"
    assert f"{fix} (the same applies to 1 more image), or drop such" in sentence
    first, second = (item.fix for item in report.findings if item.code == "BOX006")
    assert f"{fix}, or" in first and "in c.jpg, or" in second
    (group,) = (item for item in group_findings(report, on_page=True) if item.code == "BOX006")
    assert group.fix == f"{fix} (the same applies to 1 more image)."


def test_the_fix_of_the_rule_is_first_if_a_box_has_its_own(check: Check) -> None:
    """A box that is wholly outside cannot be clipped."""
    boxes = [(0.5, 0.25, 1.3, 0.75), (1.5, 0.25, 1.8, 0.75), CAT_BOX]
    (group, *_) = group_findings(check(shard(with_boxes(boxes))))
    assert group.code == "BOX003" and group.fix.endswith("--odd-boxes clip")
    assert sorted(item.fix.rpartition(" ")[2] for item in group.findings) == ["", "drop"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"item": "a.jpg", "record": 1}, "§ the record of a.jpg: a.jpg, s"),
        ({"record": 1}, "§ record 1 of s: record 1 of s, s"),
        ({}, "§ s: the image, s"),
        ({"item": "{file}", "record": 1}, "§ the record of {file}: {file}, s"),
    ],
)
def test_the_script_the_image_and_the_file_are_named(fields: Any, expected: str) -> None:
    text = fill_in("{script}: {image}, {file}", [Finding("x", shard="s", **fields)])
    assert text.replace("the script that wrote", "§") == expected


@pytest.mark.parametrize(
    ("fix", "on_page"),
    [
        ("In {script}, sort, or let me: tfod repair a b", "Ask the author of {script} to sort."),
        ("In {file}, do or die. Then sort: tfod repair a b", "In {file}, do or die. Then sort."),
        ("Read it. To look at the boxes: tfod show a", "Read it."),
        ("Sort, or unpack it first; then type: datum convert -i a", "Sort."),
        ("Sort it with --sort.", "Choose Sort."),
        ("Sort it: tfod repair a", "Choose Sort."),
        ("Sort it.", "Sort it."),
    ],
)  # fmt: skip
def test_the_page_has_no_commands(fix: str, on_page: str) -> None:
    own = "Choose Sort." if fix.startswith("Sort it") else ""
    assert fit_to_page(fix, all_rules()["BOX001"]._replace(on_page=own)) == on_page


ON_PAGE: Sequence[Mutant] = [
    one
    for one in all_mutants()
    if one.fires and "pipeline_config" not in one.options and one.code != "TFR013"
]
COMMAND = re.compile(r"\btfod (?!do)|\bdatum |--[a-z]|TFOD_|SOURCE|\{[a-z]+\}")


@pytest.mark.parametrize("mutant", ON_PAGE, ids=lambda one: one.name)
def test_the_page_needs_no_command_line(mutant: Mutant, mutants: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(mutants)
    report = check_sources([mutant.path("")], Options())
    for group in group_findings(report, on_page=True):
        for fix in (group.fix, *(item.fix for item in group.findings)):
            fix = fix.replace("--save-images or --save-media", "").replace("without --symlinks", "")
            assert not COMMAND.search(fix), fix
