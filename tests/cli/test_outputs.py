"""``--format NAME`` and ``--output FILE``: how a report is written, and where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tfod.tfrecord.storage import publishing

from tests.commands import Run
from tests.files import write_file
from tests.records import encode, frame, image, objects

LABEL_MAP = "item { id: 1 name: 'cat' }"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a shard without an image, whose box is inverted."""
    record = encode({**image(), **objects([(0.9, 0.2, 0.3, 0.4)], ["cat"], [1])})
    write_file(tmp_path / "a.record", frame(record))
    write_file(tmp_path / "label_map.pbtxt", LABEL_MAP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")} - {"a.record", "label_map.pbtxt"}


@pytest.mark.parametrize("old", [False, True])
def test_a_file_appears_whole(run: Run, folder: Path, old: bool) -> None:
    if old:
        write_file(folder / "out" / "a.json", "before")
    code, out, err = run("check", "a.record", "--format=json", "-o", "out/a.json")
    assert (code, out, err) == (1, "", "")
    found = json.loads(Path("out/a.json").read_text())["counts"]["by_code"]
    assert found == {"BOX006": 1, "EXA003": 1}
    assert names(folder) == {"out", "a.json"}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("/proc/x", "/proc: cannot write there"),
        ("./label_map.pbtxt", "./label_map.pbtxt is an input"),
        ("tfod.toml", "tfod.toml is an input"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("", "the output path is empty"),
    ],
)
def test_what_is_refused_before_the_work(run: Run, folder: Path, output: str, message: str) -> None:
    write_file(folder / "tfod.toml", "fail_on = 'error'")
    assert message in run("check", "a.record", "--quiet", "--output", output).refused()
    assert names(folder) == {"tfod.toml"}
    assert Path("label_map.pbtxt").read_text() == LABEL_MAP


def test_quiet_prints_nothing_of_valid_shards(run: Run) -> None:
    off = ("--severity=BOX=off", "--severity=EXA=off")
    assert run("check", "a.record", "--quiet", *off) == (0, "", "")
    assert run("check", "a.record", "-q").out.startswith("EXA003 error: ")


def test_a_file_keeps_what_it_had_until_then(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: str, new: str) -> None:
        raise OSError(28, "No space left on device")

    write_file(folder / "a.json", "before")
    monkeypatch.setattr(publishing, "_rename", refuse)
    wanted = ("--format=json", "--output=a.json")
    assert "a.json: cannot be written" in run("check", "a.record", *wanted).refused()
    assert names(folder) == {"a.json"} and Path("a.json").read_text() == "before"


@pytest.mark.parametrize(
    ("no_color", "force_color", "colored"),
    [(None, None, False), (None, "1", True), (None, "", False), ("1", "1", True), ("1", "", False)],
)
def test_color_by_no_color_org_and_force_color_org(
    run: Run, monkeypatch: pytest.MonkeyPatch, no_color: str, force_color: str, colored: bool
) -> None:
    for name, value in (("NO_COLOR", no_color), ("FORCE_COLOR", force_color)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert ("\x1b[" in run("check", "a.record").out) is colored
    run("check", "a.record", "--output", "a.txt")
    assert "\x1b[" not in Path("a.txt").read_text()


def test_names_do_not_steer_the_terminal(run: Run) -> None:
    bad, shown = "\x1bc\n", "\\x1bc\\n"  # which resets it
    os.rename("a.record", f"{bad}.record")
    assert run("describe", f"{bad}.zip").refused() == f"tfod: {shown}.zip: no such file or folder\n"
    done = run("reshard", f"{bad}.record", bad)
    assert done.code == 0 and f"1 shard in {shown}\n" in done.out


@pytest.mark.skipif(sys.platform == "win32", reason="no file sizes are limited there")
@pytest.mark.parametrize("command", ["check --format=json a.record", "describe a.record", "rules"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_takes_half_of_standard_output(command: str, unbuffered: str) -> None:
    import resource

    with open("half", "wb") as half:
        done = subprocess.run(
            [sys.executable, "-m", "tfod", *command.split()],
            # Python's own compiled modules would be cut, too.
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=half,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        )
    assert os.path.getsize("half") == 100
    assert (done.returncode, done.stderr) == (2, b"tfod: standard output: File too large\n")
