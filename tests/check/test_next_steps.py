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
from tests.records import write_shard
from tests.shards.repair.test_columns import MIXED_UP, divided, some_boxes, write_boxes


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


@pytest.mark.parametrize("name", MIXED_UP)
def test_the_command_for_permuted_boxes_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    taken, output = MIXED_UP[name]
    boxes = [divided([box[at] for at in taken]) for box in some_boxes()]
    write_boxes(tmp_path / "in", boxes)
    (command,) = commands(steps("in"))
    option = "--columns" if taken == (2, 3, 0, 1) else "--pixel-columns"
    assert command == f"tfod repair in/train.tfrecord -o repaired {option}={output}"
    assert type_command(command) == 0
    assert (
        check_sources(["repaired"], Options())
        .counts.by_code.keys()
        .isdisjoint({"BOX003", "BOX006", "BOX013"})
    )


def test_no_command_where_one_of_two_shards_is_permuted(tmp_path: Path) -> None:
    """The option would mix up the columns of the other."""
    taken, _ = MIXED_UP["xmin, xmax, ymin, ymax"]
    true = [divided(box) for box in some_boxes()]
    source = write_boxes(tmp_path / "in", true)
    (source / "train.tfrecord").rename(source / "val.tfrecord")
    write_boxes(source, [divided([box[at] for at in taken]) for box in some_boxes()])
    assert check_sources([str(source)], Options()).counts.by_code["BOX013"] == 1
    assert commands(steps(source)) == []


@pytest.mark.parametrize(("wrong", "proposed"), [(3, True), (4, False)])
def test_more_inverted_boxes_than_slips_are_not_proposed(
    wrong: int, proposed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    true = [divided(box) for box in some_boxes()]
    slips = [(box[2], box[1], box[0], box[3]) for box in true[:wrong]]
    write_boxes(tmp_path / "in", [*slips, *true[wrong:]])
    report = check_sources(["in"], Options())
    assert "BOX013" not in report.counts.by_code and report.counts.by_code["BOX006"] == wrong
    reported = commands(next_steps(report))
    assert reported == ["tfod repair in/train.tfrecord -o repaired"] * proposed
    assert [type_command(one) for one in reported] == [0] * proposed


def test_many_inverted_boxes_are_skipped_beside_what_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    true = [divided(box) for box in some_boxes()]
    slips = [(box[2], box[1], box[0], box[3]) for box in true[:4]]
    source = write_boxes(tmp_path / "in", [*slips, *true[4:]])
    path = source / "train.tfrecord"
    path.write_bytes(path.read_bytes()[:-3])
    (command,) = commands(steps("in"))
    assert command == "tfod repair in/train.tfrecord -o repaired --skip BOX006"
    assert type_command(command) == 1  # repaired, and the inverted boxes are left


def test_two_broken_files_of_a_folder_are_repaired_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        broken(Path("f"), name)
    reported = steps("f")
    assert commands(reported) == ["tfod repair f -o repaired"]
    assert "leaves out 2 damaged records" in reported[-1].text and "fix" not in reported[-1].text
    assert type_command(commands(reported)[0]) == 0
    assert check_sources(["repaired"], Options()).counts.records == 38


def test_where_much_is_removed_it_is_looked_at_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(write_shard(Path("f"), "one", training("a.jpg"), training("b.jpg")))
    path.write_bytes(path.read_bytes()[:-3])
    reported = steps("f")
    assert commands(reported) == ["tfod repair f/one.tfrecord --dry-run"]
    assert "leaves out at least 1 damaged record, and says" in reported[-1].text
    assert reported[-1].text.endswith("look first at what would be left out.")


def test_broken_files_of_two_folders_have_a_step_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("f", "g"):
        broken(Path(folder), "train")
    reported = steps("f", "g")
    assert commands(reported) == [
        "tfod repair f/train.tfrecord -o repaired",
        "tfod repair g/train.tfrecord -o repaired-2",
    ]
    assert [one.text.partition(":")[0] for one in reported if one.command] == [
        "f/train.tfrecord",
        "g/train.tfrecord",
    ]
    assert [type_command(one) for one in commands(reported)] == [0, 0]


def test_no_more_than_three_files_are_named() -> None:
    findings = [_box003(f"{name}.tfrecord") for name in "abcde"]
    reported = next_steps(make_report(findings, sources=[one.shard for one in findings]))
    assert len(commands(reported)) == 3
    assert reported[-1].text.endswith("Likewise for 2 more.")


def test_a_name_that_begins_with_another_is_another_file() -> None:
    reported = next_steps(
        make_report([_box003("a.record.gz")], sources=["a.record", "a.record.gz"])
    )
    assert commands(reported) == ["tfod repair a.record.gz -o repaired"]


def _box003(shard: str) -> Finding:
    return replace(found("BOX903", "x", shard=shard, record=1), code="BOX003")


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
