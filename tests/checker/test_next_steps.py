"""The next steps of a report: its commands run, and remove the finding."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.receivers import OD_API, RECEIVERS
from tfod.checker.report import Report
from tfod.checker.reporters.groups import group_findings
from tfod.checker.reporters.text import render_text
from tfod.checker.reporters.wording import next_steps

from tests.checker.reports import found, make_report
from tests.checker.test_check import training
from tests.checker.test_corpus import EXAMPLES
from tests.commands import Run
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.sound import LABEL_MAP, flip, other, record, shard
from tests.records import encode, image, objects, write_shard
from tests.zip_forge import real_zip


def steps(report: Report) -> list[tuple[str, str]]:
    return next_steps(report, group_findings(report))


def commands(*sources: str) -> list[str]:
    return [command for _, command in steps(check_sources(sources)) if command]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_broken(folder: str, name: str) -> None:
    """Write a shard of 20 records, the last of which has a wrong checksum."""
    records = [training(f"{name}-{number}.jpg") for number in range(20)]
    path = Path(write_shard(Path(folder), name, *records))
    path.write_bytes(flip(path.read_bytes(), -1))


def test_the_command_runs_and_writes_nothing(folder: Path, run: Run) -> None:
    for name in ("one", "two"):
        write_broken("f", name)
    (command,) = commands("f")
    assert command == "tfod repair f repaired --dry-run"
    assert "0 records changed, 2 dropped" in run(*shlex.split(command)[1:]).out
    assert [one.name for one in folder.iterdir()] == ["f"]
    # A single shard of a folder has its own command.
    shutil.rmtree("f")
    write_shard(Path("f"), "valid", training("a.jpg"))
    write_broken("f", "one")
    write_broken("g", "train")
    assert commands("f", "g") == ["tfod repair f/one.tfrecord repaired --dry-run"]


@pytest.mark.parametrize("data", [b"{}\n", b"abc", b"<!DOCTYPE html><title>404</title>"])
def test_other_files_are_not_repaired(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(data)
    report = check_sources([str(tmp_path / "x.json")])
    assert not report.valid and [command for _, command in steps(report)] == [""]
    assert ("TFR001" in report.counts.by_code) == (data != b"abc")


@pytest.mark.parametrize(
    ("sources", "shard", "quoted"),
    [
        (["a b.record", "a b.record.gz"], "a b.record.gz", "'a b.record.gz'"),
        (["a.zip", "b.zip"], "b.zip:a.record", "b.zip"),
    ],
)
def test_the_file_of_a_shard(sources: list[str], shard: str, quoted: str) -> None:
    finding = found("BOX903", "x", shard=shard, record=1)._replace(code="IMG006")
    command = steps(make_report([finding], sources=sources))[1][1]
    assert command == f"tfod repair {quoted} repaired --dry-run"


def test_the_most_frequent_rule_comes_first() -> None:
    codes = ["LAB006", "ZIP013", "LAB006", "TFR001"]
    findings = [found("SET901", "x", fix=f"Do {code}.")._replace(code=code) for code in codes]
    assert steps(make_report(findings)) == [("Begin with LAB006: Do LAB006.", "")]
    assert steps(make_report(findings[1:])) == [("Begin with TFR001: Do TFR001.", "")]
    assert steps(make_report(findings[:1])) == [("Do LAB006.", "")]


@pytest.mark.parametrize(
    ("source", "upload"),
    [
        ("a.record", "TFRecord 1.0 and a zip of these shards and their label map."),
        ("a.zip", "TFRecord 1.0 and a.zip."),
    ],
)
def test_valid_shards_are_uploaded(source: str, upload: str) -> None:
    finding = found("LAB906", "x")._replace(code="LAB006")
    report = make_report([finding], receiver="cvat", sources=[source])
    ((sentence, command),) = steps(report)
    assert upload in sentence and not command
    assert f"\n\nNext: {sentence[:20]}" in render_text(report, color=False)
    assert steps(make_report()) == []


def test_the_line_for_the_configuration(folder: Path, run: Run) -> None:
    """It works in the folder of an unpacked zip."""
    good = EXAMPLES / "shapes_good.zip"
    ((sentence, line),) = steps(check_sources([str(good)], Options(receiver=OD_API)))
    assert sentence.startswith("Add this line, and one for each other shard")
    zipfile.ZipFile(good).extractall()
    Path("pipeline.config").write_text(f"train_input_reader {{ {line} }}")
    checked = run("check", "--pipeline-config", "pipeline.config")
    assert checked.code == 0 and "Checked: 1 shard, 12 records" in checked.out


FAILING = [mutant for mutant in all_mutants() if mutant.fires and mutant.code != "TFR013"]
COMMAND = re.compile(r"(?m)^ +(tfod (?!cvat).+)$|(?:type|run): (tfod [^;\n]+[^;.\n])")


def suggested(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a report, each with the rule of its finding."""
    codes = re.findall(r"(?m)^([A-Z]{3}\d{3}) ", text)
    for line in text.splitlines():
        if named := re.match(r"(?:Next: Begin with )?([A-Z]{3}\d{3})[ :,]", line):
            code = named[1]
        elif line.startswith("Next:"):
            code = codes[0]
        elif match := COMMAND.match(line):
            yield code, match[1]


def assert_removes(
    command: str, code: str, options: Sequence[str], run: Run, tried: tuple[str, ...] = ()
) -> None:
    """Assert that a command works, and that it or the next one removes the finding."""
    assert command not in tried, f"a cycle: {command}"
    _, name, *arguments = shlex.split(command)
    output = run(name, *arguments)
    told = f"{command}\n{output.out}{output.err}"
    assert "unrecognized arguments" not in told and "Traceback" not in told, told
    if name in ("show", "describe"):  # they change nothing
        assert output.code == 0, told
        return
    if "--dry-run" in arguments:
        assert output.code == 0, told
        arguments.remove("--dry-run")
        output = run(name, *arguments)
    target = arguments[: 1 if name == "check" else 2][-1]
    if output.code < 2 and os.path.exists(target):
        more = [] if name == "check" else options
        given = arguments[1:] if name == "check" else []
        checked = run("check", target, *given, *more, "--format", "json")
        report = json.loads(checked.out)
        if code not in report["counts"]["by_code"]:
            return
        told += str([found["message"] for found in report["findings"] if found["code"] == code])
    named = ["".join(found) for found in COMMAND.findall(output.out + output.err)]
    assert named, f"leads nowhere: {told}"
    assert_removes(named[0], code, options, run, (*tried, command))


def test_a_label_map_in_a_zip(run: Run, folder: Path) -> None:
    """No command can name it."""
    data = shard(record(text=["ship", "cat"]), other())
    files = {"a.record": data, "b_label_map.pbtxt": LABEL_MAP}
    Path("a.zip").write_bytes(real_zip(files.items()))
    ((code, command),) = dict.fromkeys(suggested(run("check", "a.zip").out))
    assert (code, command) == ("LAB006", "tfod convert a.zip labelled --to shards")
    assert_removes(command, code, [], run)
    Path("b.zip").write_bytes(real_zip([*files.items(), ("c_label_map.pbtxt", LABEL_MAP)]))
    assert "Remove the others from the zip." in run("check", "b.zip").out


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_the_command_for_a_receiver(receiver: str, run: Run, folder: Path) -> None:
    """It accepts each receiver of ``check --for``."""
    boxes = objects([(0.1, 0.2, 1.15, 0.6), (0.3, 0.3, 0.8, 0.9)], ["cat", "cat"], [1, 1])
    write_shard(Path("f"), "train", encode(image() | boxes))
    options = ["--for", receiver]
    lines = [line for line in suggested(run("check", "f", *options).out) if line[0] == "BOX003"]
    assert lines
    for code, command in lines:
        assert command.split()[:2] == ["tfod", "repair"]
        assert_removes(command, code, options, run)


@pytest.mark.parametrize("mutant", FAILING, ids=lambda mutant: mutant.name)
def test_suggested_commands_remove_the_finding(
    mutant: Mutant, run: Run, folder: Path, mutants: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in mutant.environment.items():
        monkeypatch.setenv(name, value)
    source, path = Path(mutant.path(mutants)), Path(mutant.path(""))
    path.parent.mkdir()
    if mutant.is_folder:
        shutil.copytree(source, path, symlinks=True)
    else:
        shutil.copy(source, path)
        shutil.copy(source.parent / "label_map.pbtxt", path.parent)
    if "pipeline_config" in mutant.options:
        monkeypatch.chdir(path)
    arguments = mutant.arguments("" if path.exists() else folder)
    checked = run("check", *arguments)
    for code, command in dict.fromkeys(suggested(checked.out)):
        if code == mutant.code:
            assert_removes(command, mutant.code, arguments[1:], run)
            for one in filter(Path.is_dir, folder.iterdir()):  # the next command is independent
                if one.name != mutant.code[:3]:
                    shutil.rmtree(one)
