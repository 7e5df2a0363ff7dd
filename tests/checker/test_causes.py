"""Causes before symptoms: what a rule explains follows it, and has no advice of its own."""

from __future__ import annotations

import json
import re
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

INVERTED = with_boxes([(0.5, 0.25, 0.25, 0.75)])


def check(path: Path, **options: object) -> Report:
    return check_sources([str(path)], Options(**options))


def causes(report: Report) -> dict[str, str]:
    """The cause of each group of findings, with its number of findings."""
    return {f"{group.code} {group.total}": group.cause for group in group_findings(report)}


def content(code: str, case: str) -> object:
    (mutant,) = [one for one in all_mutants() if (one.code, one.case) == (code, case)]
    return mutant.content


PERMUTED = content("BOX013", "xmin-and-xmax-exchanged")


@pytest.mark.parametrize(
    ("code", "case", "explained"),
    [
        ("BOX013", "xmin-and-xmax-exchanged", {"BOX006": 8}),
        ("BOX022", "divided-twice", {"BOX008": 20}),
        ("BOX022", "percent", {"BOX005": 20}),
        ("BOX022", "x-y-width-height", {"BOX006": 12}),
        ("BOX022", "center-and-size", {"BOX006": 12, "BOX013": 1}),
        ("BOX012", "all", {"BOX007": 10}),
        ("LAB012", "0-and-1", {"LAB009": 2, "LAB013": 1}),
        ("LAB006", "map-of-another-dataset", {"LAB013": 2}),
        ("NAM013", "jpeg", {"NAM006": 1, "EXA009": 1, "NAM003": 1}),
    ],
)
def test_the_cause_comes_first(
    code: str, case: str, explained: dict[str, int], run: Run, tmp_path: Path
) -> None:
    files = content(code, case)
    if isinstance(files, bytes):
        files = {"a.tfrecord": files, "label_map.pbtxt": LABEL_MAP}
    write_files(tmp_path, files)
    report = check(tmp_path)
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
    page = render_html(report)
    anchors = re.findall(r'<div id="([A-Z0-9-]+)" class="about"', page)
    assert anchors == [code, *(f"{group.code}-{code}" for group in rest)]


def test_only_findings_of_the_same_shard_are_explained(tmp_path: Path) -> None:
    slip = first(with_boxes([(0.5, 0.25, 0.25, 0.75), CAT_BOX]))
    write_files(tmp_path, {"a.record": PERMUTED, "b.record": slip, "label_map.pbtxt": LABEL_MAP})
    report = check(tmp_path)
    counted = causes(report)
    assert (counted["BOX006 1"], counted["BOX006 8"]) == ("", "BOX013")
    fixes = {finding.shard: finding.fix for finding in report.findings if finding.code == "BOX006"}
    ours, theirs = (fixes[str(tmp_path / name)] for name in ("b.record", "a.record"))
    assert str(tmp_path / "b.record") in ours and "BOX013" in theirs
    junit = render_junit(report)
    assert junit.count("BOX006 box is inverted") == 2


def test_a_small_shard_is_covered_with_the_others(tmp_path: Path) -> None:
    """Two permuted boxes per shard are only enough together."""
    boxes = [(0.5 + n / 16, 0.25, 0.25, 0.75) for n in range(6)]
    files = {
        f"train-{n:05}-of-00003": shard(
            with_boxes(boxes[2 * n : 2 * n + 2], filename=f"{n}.jpg", source_id=str(n))
        )
        for n in range(3)
    }
    write_files(tmp_path, {**files, "label_map.pbtxt": LABEL_MAP})
    groups = {group.code: group for group in group_findings(check(tmp_path))}
    assert (groups["BOX006"].cause, groups["BOX006"].total) == ("BOX013", 6)


@pytest.mark.parametrize("count", [1, 30])
def test_a_box_in_pixels_explains_others_only_if_most_are(count: int, tmp_path: Path) -> None:
    sound = [(n / 64, 0.25, n / 64 + 0.3, 0.75) for n in range(30 - count)]
    pixels = [(10.0 + n / 8, 5.0, 20.0, 15.0) for n in range(count)]
    slip = record("b.jpg", xmin=[0.5, 0.1], xmax=[0.25, 0.3])
    data = shard(with_boxes([*pixels, *sound]), slip)
    write_files(tmp_path, {"a.record": data, "label_map.pbtxt": LABEL_MAP})
    groups = {group.code: group for group in group_findings(check(tmp_path))}
    assert groups["BOX006"].cause == ("BOX005" if count == 30 else "")


def test_unlisted_findings_are_counted_with_their_cause(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.record": PERMUTED, "label_map.pbtxt": LABEL_MAP})
    assert causes(check(tmp_path, max_findings=3))["BOX006 8"] == "BOX013"


@pytest.mark.parametrize(
    ("texts", "is_foreign"),
    [(["ship", "ferry"], True), (["ship", "cat"], False), (["ship", "dgo"], False),
     (["ship", "Dog"], False)],
)  # fmt: skip
def test_a_label_map_of_another_dataset(
    texts: list[str], is_foreign: bool, run: Run, tmp_path: Path
) -> None:
    write_files(tmp_path, folder(record(text=texts), record("b.png", text=texts)))
    out = " ".join(run("check", tmp_path).out.split())
    path = tmp_path / "label_map.pbtxt"
    said = f"this label map may belong to another dataset: {path}"
    assert (said in out) is is_foreign
    command = f"tfod convert {tmp_path / 'default.tfrecord'} labelled --to shards"
    assert (command in out) is (not is_foreign and "LAB006" in out)


def test_the_json_has_the_same_keys_as_before(run: Run, tmp_path: Path) -> None:
    write_files(tmp_path, {"a.record": PERMUTED, "label_map.pbtxt": LABEL_MAP})
    report = json.loads(run("check", tmp_path, "--format", "json").out)
    keys = {"code", "severity", "message", "fix", "shard", "record", "offset", "feature", "value"}
    assert all(finding.keys() == {*keys, "item"} for finding in report["findings"])


def test_no_rule_explains_itself_or_its_cause() -> None:
    rules = all_rules()
    for rule in rules.values():
        assert rule.explains <= rules.keys()
        for code in rule.explains:
            assert rule.code != code and rule.code not in rules[code].explains


@pytest.mark.parametrize(
    ("receiver", "tool"), [("any", "CVAT"), ("cvat", "CVAT"), ("od-api", "the annotation tool")]
)
def test_the_annotator_is_told_the_box_and_the_image(
    receiver: str, tool: str, tmp_path: Path
) -> None:
    two = [record(name, xmin=[0.25, 0.8], xmax=[0.5, 0.6]) for name in ("a.jpg", "c.jpg")]
    write_files(tmp_path, {"a.record": shard(*two, other()), "label_map.pbtxt": LABEL_MAP})
    report = check(tmp_path, receiver=RECEIVERS[receiver])
    sentence, _ = next_steps(report, group_findings(report))[0]
    told = f"In {tool}, redraw box 'dog' in a.jpg (the same applies to 1 more image), or drop such"
    assert told in sentence
    first, second = (item.fix for item in report.findings if item.code == "BOX006")
    assert f"In {tool}, redraw box 'dog' in a.jpg, or" in first and "in c.jpg, or" in second
    (group,) = (item for item in group_findings(report, on_page=True) if item.code == "BOX006")
    assert group.fix == f"In {tool}, redraw box 'dog' in a.jpg (the same applies to 1 more image)."


def test_the_fix_of_the_rule_is_first_if_a_box_has_its_own(tmp_path: Path) -> None:
    """A box wholly outside cannot be clipped."""
    boxes = [(0.5, 0.25, 1.3, 0.75), (1.5, 0.25, 1.8, 0.75), CAT_BOX]
    write_files(tmp_path, {"a.record": shard(with_boxes(boxes)), "label_map.pbtxt": LABEL_MAP})
    (group, *_) = group_findings(check(tmp_path))
    assert group.code == "BOX003" and group.fix.endswith("--odd-boxes clip")
    assert sorted(item.fix.rpartition(" ")[2] for item in group.findings) == ["", "drop"]


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (Finding("x", item="a.jpg", record=1, shard="s"), "§ the record of a.jpg: a.jpg, s"),
        (Finding("x", record=1, shard="s"), "§ record 1 of s: record 1 of s, s"),
        (Finding("x", shard="s"), "§ s: the image, s"),
        (Finding("x", item="{file}", record=1, shard="s"), "§ the record of {file}: {file}, s"),
    ],
)
def test_the_script_the_image_and_the_file_are_named(finding: Finding, expected: str) -> None:
    text = fill_in("{script}: {image}, {file}", [finding])
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
def test_the_page_leaves_out_commands(fix: str, on_page: str) -> None:
    rule = all_rules()["BOX001"]._replace(
        on_page="Choose Sort." if fix.startswith("Sort it") else ""
    )
    assert fit_to_page(fix, rule) == on_page


@pytest.mark.parametrize(
    "mutant", [one for one in all_mutants() if one.fires], ids=lambda one: one.name
)
def test_the_page_needs_no_command_line(mutant: Mutant, mutants: Path, monkeypatch: Any) -> None:
    if "pipeline_config" in mutant.options or mutant.code == "TFR013":
        pytest.skip("not on the page")
    monkeypatch.chdir(mutants)
    report = check_sources([mutant.path("")], Options())
    for group in group_findings(report, on_page=True):
        for fix in (group.fix, *(item.fix for item in group.findings)):
            fix = fix.replace("--save-images or --save-media", "").replace("without --symlinks", "")
            assert not re.search(r"\btfod (?!do)|\bdatum |--[a-z]|TFOD_|SOURCE|\{[a-z]+\}", fix), (
                fix
            )
