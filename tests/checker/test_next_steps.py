"""What a report proposes to do next: its commands run, and its sentences promise no more."""

from __future__ import annotations

import shlex
import zipfile
from pathlib import Path

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Finding
from tfod.checker.receivers import OD_API
from tfod.checker.report import Report
from tfod.checker.reporters.text import render_text
from tfod.checker.reporters.wording import group_findings, next_steps
from tfod.cli.main import main

from tests.checker.reports import found, make_report
from tests.checker.test_check import training
from tests.checker.test_examples import EXAMPLES
from tests.mutants.sound import flip
from tests.records import write_shard


def steps(report: Report) -> list[tuple[str, str]]:
    return next_steps(report, group_findings(report))


def commands(*sources: object) -> list[str]:
    report = check_sources([str(one) for one in sources], Options())
    return [command for _, command in steps(report) if command]


def broken(folder: Path, name: str) -> Path:
    """A shard of 20 records, the last of which has a wrong checksum."""
    records = [training(f"{name}-{number}.jpg") for number in range(20)]
    path = Path(write_shard(folder, name, *records))
    path.write_bytes(flip(path.read_bytes(), -1))
    return path


def test_the_command_runs_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        broken(Path("f"), name)
    (command,) = commands("f")
    assert command == "tfod repair f repaired --dry-run"
    program, *arguments = shlex.split(command)
    assert program == "tfod" and main(arguments) == 0
    assert "0 records changed, 2 dropped" in capsys.readouterr().out
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_one_of_several_files_is_named_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shard(Path("f"), "sound", training("a.jpg"))
    broken(Path("f"), "one")
    broken(Path("g"), "train")
    assert commands("f", "g") == ["tfod repair f/one.tfrecord repaired --dry-run"]


@pytest.mark.parametrize("data", [b"{}\n", b"abc", b"<!DOCTYPE html><title>404</title>"])
def test_nothing_of_repair_for_what_is_no_shard(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(data)
    report = check_sources([str(tmp_path / "x.json")], Options())
    assert not report.valid and [command for _, command in steps(report)] == [""]
    assert ("TFR001" in report.counts.by_code) == (data != b"abc")


def test_a_name_that_begins_with_another_is_another_file() -> None:
    report = make_report([_img006("a b.record.gz")], sources=["a b.record", "a b.record.gz"])
    assert steps(report)[1][1] == "tfod repair 'a b.record.gz' repaired --dry-run"
    report = make_report([_img006("b.zip:a.record")], sources=["a.zip", "b.zip"])
    assert steps(report)[1][1] == "tfod repair b.zip repaired --dry-run"


def _img006(shard: str) -> Finding:
    return found("BOX903", "x", shard=shard, record=1)._replace(code="IMG006")


def test_the_most_frequent_rule_comes_first() -> None:
    codes = ["LAB006", "ZIP013", "LAB006", "TFR001"]
    findings = [found("SET901", "x", fix=f"Do {code}.")._replace(code=code) for code in codes]
    assert steps(make_report(findings)) == [("Begin with LAB006: Do LAB006.", "")]
    assert steps(make_report(findings[1:])) == [("Begin with TFR001: Do TFR001.", "")]
    assert steps(make_report(findings[:1])) == [("Do LAB006.", "")]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a.record", "TFRecord 1.0 and a zip of these shards and their label map."),
        ("a.zip", "TFRecord 1.0 and a.zip."),
    ],
)
def test_what_is_valid_is_uploaded(source: str, said: str) -> None:
    report = make_report(
        [found("LAB906", "x")._replace(code="LAB006")], receiver="cvat", sources=[source]
    )
    ((sentence, command),) = steps(report)
    assert said in sentence and not command
    assert f"\n\nNext: {sentence[:20]}" in render_text(report, color=False)
    assert steps(make_report()) == []


def test_the_line_for_the_configuration_works_where_a_zip_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = EXAMPLES / "shapes_good.zip"
    ((sentence, line),) = steps(check_sources([str(good)], Options(receiver=OD_API)))
    assert sentence.startswith("Add this line, and one for each other shard")
    monkeypatch.chdir(tmp_path)
    zipfile.ZipFile(good).extractall()
    Path("pipeline.config").write_text(f"train_input_reader {{ {line} }}")
    assert main(["check", "--pipeline-config", "pipeline.config"]) == 0
    assert "Checked: 1 shard, 12 records" in capsys.readouterr().out
