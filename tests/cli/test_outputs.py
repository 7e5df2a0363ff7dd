"""``--output FILE`` and standard output. No command writes over its input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tfod.tfrecord.storage import publishing

from tests.commands import Run
from tests.files import files_in, write_file, write_files
from tests.formats.conftest import IMAGES
from tests.records import encode, frame, image, objects

LABEL_MAP = "item { id: 1 name: 'cat' }"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with shards with an inverted box, and other inputs of commands."""
    record = frame(encode({**image(), **objects([(0.9, 0.2, 0.3, 0.4)], ["cat"], [1])}))
    shards = dict.fromkeys(("a.record", "b.record", "S.html", "in/train.record"), record)
    write_files(tmp_path, {**shards, "label_map.pbtxt": LABEL_MAP, "map.html": LABEL_MAP})
    write_files(tmp_path, {"labels.json": b'[{"name": "cat"}]', "images/x.jpg": b"precious"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def new_files(folder: Path) -> Callable[[], set[str]]:
    """Return the names of files that did not exist before the test."""
    before = files_in(folder).keys()
    return lambda: files_in(folder).keys() - before


@pytest.mark.parametrize("old", [False, True])
def test_a_file_appears_whole(run: Run, new_files: Callable[[], set[str]], old: bool) -> None:
    if old:
        write_file(Path("out/a.json"), "before")
    assert run("check", "a.record", "--format=json", "-o", "out/a.json") == (1, "", "")
    found = json.loads(Path("out/a.json").read_text())["counts"]["by_code"]
    assert found == {"BOX006": 1, "EXA003": 1}
    assert new_files() == {"out/a.json"}


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
def test_invalid_outputs(run: Run, folder: Path, output: str, message: str) -> None:
    write_file(folder / "tfod.toml", "fail_on = 'error'")
    before = files_in(folder)
    assert message in run("check", "a.record", "--quiet", "--output", output).refused()
    assert files_in(folder) == before


@pytest.mark.parametrize(
    "command",
    [
        "check a.record --images images -o images/x.jpg",
        "check a.record --images images -o images/new.json",
        "check a.record --cvat-labels labels.json -o labels.json",
        "check a.record --label-map label_map.pbtxt -o label_map.pbtxt",
        "check a.record --baseline b.json -o b.json",
        "diff a.record b.record --images images -o images/x.jpg",
        "diff a.record b.record --label-map label_map.pbtxt -o label_map.pbtxt",
        "diff in b.record -o in/new.json",
        "repair a.record --dry-run --profile profile.yaml -o profile.yaml --overwrite",
        "repair a.record out --label-map map.html -o map.html",
        "repair a.record out -o label_map.pbtxt",
        "repair a.record out -o out",
        "repair in in/out",
        "reshard in in/out",
        "convert in in/out.json --no-images",
        "show S.html -o S.html",
        "show a.record --label-map map.html -o map.html",
        "check a.record -o b.record",
    ],
)
def test_inputs_are_not_written_over(run: Run, folder: Path, command: str) -> None:
    write_file(folder / "profile.yaml", run("describe", "a.record", "--as-profile").out)
    write_file(folder / "b.json", run("check", "a.record", "--format", "json").out)
    before = files_in(folder)
    message = run(*command.split()).refused()
    assert any(fact in message for fact in ("is an input", "another", "shard", "rename"))
    assert files_in(folder) == before


def test_a_report_replaces_a_former_one(run: Run) -> None:
    commands = ("check a.record", "diff a.record b.record", "repair a.record --dry-run")
    for command in (*commands, "show a.record"):
        report = write_file(Path("report.html"), "former")
        run(*command.split(), "-o", "report.html")
        assert report.read_text() not in ("former", "")
    Path("cvat").mkdir()  # also the name of a profile
    run("check", "a.record", "--profile", "cvat", "-o", "cvat/report.txt")
    assert Path("cvat/report.txt").exists()


ROWS = """filename,width,height,class,xmin,ymin,xmax,ymax
shapes_01.jpg,320,240,cat,196,63,289,158
"""
XML = """<annotation><filename>shapes_01.jpg</filename><size><width>320</width><height>240</height>
</size><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>
</bndbox></object></annotation>"""


@pytest.mark.parametrize("name", ["a.xml", "shapes_01.jpg", "train.txt", "rows.csv"])
@pytest.mark.parametrize("source", ["x/rows.csv", "x"])
def test_shards_replace_only_shards(run: Run, folder: Path, name: str, source: str) -> None:
    write_files(folder / "x", {"rows.csv": ROWS, "a.xml": XML, "train.txt": "shapes_01"})
    shutil.copy(IMAGES / "shapes_01.jpg", folder / "x")
    before = files_in(folder)
    command = ("convert", source, "--from", "csv" if source.endswith("csv") else "voc")
    message = run(*command, f"x/{name}", "--to", "shards", "--overwrite").refused()
    assert "it is not a folder" in message or "is an input" in message
    assert files_in(folder) == before
    for _ in range(2):
        assert run(*command, "y/train.record", "--overwrite").code == 0


def test_quiet_prints_nothing_of_valid_shards(run: Run) -> None:
    off = ("--severity=BOX=off", "--severity=EXA=off")
    assert run("check", "a.record", "--quiet", *off) == (0, "", "")
    assert run("check", "a.record", "-q").out.startswith("EXA003 error: ")


def test_a_failure_keeps_the_former_file(
    run: Run, new_files: Callable[[], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: str, new: str) -> None:
        raise OSError(28, "No space left on device")

    write_file(Path("a.json"), "before")
    monkeypatch.setattr(publishing, "_rename", refuse)
    typed = ("--format=json", "--output=a.json")
    assert "a.json: cannot be written" in run("check", "a.record", *typed).refused()
    assert new_files() == {"a.json"} and Path("a.json").read_text() == "before"


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
@pytest.mark.parametrize(
    "command", ["check --format=json a.record", "describe a.record", "rules", "--help"]
)
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
