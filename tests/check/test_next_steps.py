"""What a report proposes to do next: its commands run, and its sentences promise no more."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tfod.check.check import Options, check_sources
from tfod.check.findings.finding import Finding
from tfod.check.findings.report import Report
from tfod.check.reporters.next_steps import Step, next_steps
from tfod.cli.main import main

from tests.check.reports import found, make_report
from tests.check.test_check import training
from tests.check.test_column_order import MIXED_UP, divided, some_boxes, write_boxes
from tests.records import write_shard


def steps(*sources: object) -> list[Step]:
    return next_steps(check_sources([str(one) for one in sources], Options()))


def commands(found: list[Step]) -> list[str]:
    return [one.command for one in found if one.command]


def type_command(command: str) -> int:
    program, *arguments = shlex.split(command)
    assert program == "tfod"
    return main(arguments)


def broken(folder: Path, name: str) -> Path:
    """A shard of 20 records, the last of which has a wrong checksum."""
    path = Path(
        write_shard(folder, name, *(training(f"{name}-{number}.jpg") for number in range(20)))
    )
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path


def test_no_command_where_the_columns_of_the_boxes_are_permuted(tmp_path: Path) -> None:
    taken, _ = MIXED_UP["xmin, xmax, ymin, ymax"]
    boxes = [divided([box[at] for at in taken]) for box in some_boxes()]
    write_boxes(tmp_path / "in", boxes)
    report = check_sources([str(tmp_path / "in")], Options())
    assert report.counts.by_code["BOX013"] == 1 and commands(next_steps(report)) == []


def test_two_broken_files_of_a_folder_are_repaired_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        broken(Path("f"), name)
    reported = steps("f")
    assert commands(reported) == ["tfod repair f repaired"]
    assert "leaves out 2 damaged records" in reported[-1].text and "fix" not in reported[-1].text
    assert type_command(commands(reported)[0]) == 0
    assert check_sources(["repaired"], Options()).counts.records == 38


def test_a_record_that_is_cut_off_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(write_shard(Path("f"), "one", training("a.jpg"), training("b.jpg")))
    path.write_bytes(path.read_bytes()[:-3])
    reported = steps("f")
    assert commands(reported) == ["tfod repair f/one.tfrecord repaired"]
    assert "leaves out at least 1 damaged record, and says" in reported[-1].text
    assert type_command(commands(reported)[0]) == 0


def test_broken_files_of_two_folders_have_a_step_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("f", "g"):
        broken(Path(folder), "train")
    reported = steps("f", "g")
    assert commands(reported) == [
        "tfod repair f/train.tfrecord repaired",
        "tfod repair g/train.tfrecord repaired-2",
    ]
    assert [one.text.partition(":")[0] for one in reported if one.command] == [
        "f/train.tfrecord",
        "g/train.tfrecord",
    ]
    assert [type_command(one) for one in commands(reported)] == [0, 0]


def test_no_more_than_three_files_are_named() -> None:
    findings = [_img006(f"{name}.tfrecord") for name in "abcde"]
    reported = next_steps(make_report(findings, sources=[one.shard for one in findings]))
    assert len(commands(reported)) == 3
    assert reported[-1].text.endswith("Likewise for 2 more.")


def test_a_name_that_begins_with_another_is_another_file() -> None:
    reported = next_steps(
        make_report([_img006("a.record.gz")], sources=["a.record", "a.record.gz"])
    )
    assert commands(reported) == ["tfod repair a.record.gz repaired"]


def _img006(shard: str) -> Finding:
    return replace(found("BOX903", "x", shard=shard, record=1), code="IMG006")


def _failing() -> Report:
    findings = [
        replace(found("SET901", code, fix=f"Do {code}."), code=code)
        for code in ("LAB006", "ZIP013", "TFR001", "SET001", "EXA010")
    ]
    return make_report(findings)


def test_where_rules_differ_each_fix_of_files_is_listed() -> None:
    assert [one.text for one in next_steps(_failing())] == [
        "Do ZIP013.",
        "Do TFR001.",
        "Do SET001.",
        "Fix the others where the images were annotated, then export again and check again.",
    ]
