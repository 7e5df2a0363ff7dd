"""``--format NAME[=FILE]`` and ``--output FILE``: several formats of one run, and where they go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tfod.cli.outputs import Output
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


def test_several_formats_of_one_run(run: Run, folder: Path) -> None:
    wanted = ("--format", "text", "--format=json=out/a.json", "--format", "junit=a.xml")
    code, out, err = run("check", "a.record", *wanted)
    assert (code, err) == (1, "") and out.startswith("INVALID: 2 errors")
    found = json.loads(Path("out/a.json").read_text())["counts"]["by_code"]
    assert found == {"BOX006": 1, "EXA003": 1}
    assert "BOX006" in Path("a.xml").read_text()
    assert names(folder) == {"out", "a.json", "a.xml"}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            ("--format=text", "--format=json"),
            "both go to standard output; write --format json=FILE",
        ),
        (("--format=json=x", "--format=junit=./x"), "both go to ./x"),
        (("--format=json=x", "--format=junit=y", "--output=z"), "write --format NAME=FILE"),
        (("--format=json=x", "--output=z"), "write --format NAME=FILE"),
        (("--format=json=x", "--format=junit=/proc/x"), "/proc: cannot write there"),
        (("--format=json=x", "--format=junit=a.record"), "a.record: this is one of the sources"),
        (("--format=json=x", "--output=label_map.pbtxt"), "write --format NAME=FILE"),
        (("--format=json=x", "--format=text=label_map.pbtxt"), "this is one of the sources"),
        (("--format=json=s3://bucket/x",), "s3://bucket/x"),
    ],
)
def test_what_is_refused_before_the_work(
    run: Run, folder: Path, wanted: tuple[str, ...], message: str
) -> None:
    assert message in run("check", "a.record", *wanted).refused()
    assert names(folder) == set()
    assert Path("label_map.pbtxt").read_text() == LABEL_MAP


@pytest.mark.parametrize("wanted", ["xml", "json=", "=x"])
def test_unknown_formats(run: Run, wanted: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("check", "a.record", "--format", wanted)


@pytest.mark.parametrize("option", ["--baseline=", "--config=", "--select=,"])
def test_nothing_is_no_name(run: Run, capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("check", "a.record", option)
    assert "is empty; name a file" in (err := capsys.readouterr().err) or "names no rule" in err


def test_on_github_actions_the_log_has_annotations(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    begin, *_, last = run("check", "a.record").out.splitlines()
    assert begin.startswith("::stop-commands::") and last.startswith("::error file=a.record,title=")
    assert run("check", "a.record", "--format=json=a.json").out == ""
    assert run("check", "a.record", "--format=text=a.txt").out == ""
    assert "::" not in Path("a.txt").read_text()
    out = run("check", "a.record", "--format=github").out
    assert out.count("::error file=a.record,") == 2 and "stop-commands" not in out


def test_quiet_prints_nothing_of_valid_shards(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    off = ("--severity=BOX=off", "--severity=EXA=off")
    assert run("check", "a.record", "--quiet", *off) == (0, "", "")
    assert run("check", "a.record", "-q").out.startswith("EXA003 error: ")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert run("check", "a.record", "--quiet", *off) == (0, "", "")


def test_files_appear_together_or_not_at_all(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: str, new: str) -> None:
        if new.endswith("b.xml"):
            raise OSError(28, "No space left on device")
        os.replace(old, new)

    write_file(folder / "a.json", "before")
    monkeypatch.setattr(publishing, "_rename", refuse)
    wanted = ("--format=text", "--format=json=a.json", "--format=junit=b.xml")
    assert "b.xml: cannot be written" in run("check", "a.record", *wanted).refused()
    assert names(folder) == {"a.json"} and Path("a.json").read_text() == "before"


@pytest.mark.parametrize(
    ("no_color", "force_color", "colored"),
    [(None, None, False), (None, "1", True), (None, "", False), ("1", "1", True), ("1", "", False)],
)
def test_color_by_no_color_org_and_force_color_org(
    monkeypatch: pytest.MonkeyPatch,
    no_color: str | None,
    force_color: str | None,
    colored: bool,
) -> None:
    for name, value in (("NO_COLOR", no_color), ("FORCE_COLOR", force_color)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert Output("text").color is colored
    assert not Output("text", "file").color


def test_the_name_of_what_is_written_is_not_empty(run: Run) -> None:
    assert "the name of what to write is empty" in run("create", "coco", "--output-dir=").refused()


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
    assert (done.returncode, done.stderr) == (2, b"tfod: File too large\n")
