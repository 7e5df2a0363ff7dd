"""No command writes over its input. A report replaces reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands import Run
from tests.files import files_in, write_file, write_files
from tests.formats.conftest import IMAGES
from tests.records import encode, frame, image, objects

ROWS = """filename,width,height,class,xmin,ymin,xmax,ymax
shapes_01.jpg,320,240,cat,196,63,289,158
"""
XML = """<annotation><filename>shapes_01.jpg</filename><size><width>320</width><height>240</height>
</size><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>
</bndbox></object></annotation>"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """Write equal shards, one named like a page, and the other inputs of commands."""
    record = frame(encode({**image(), **objects([(0.1, 0.2, 0.3, 0.4)], ["cat"], [1])}))
    for name in ("a.record", "b.record", "S.html", "in/train.record"):
        write_file(tmp_path / name, record)
    for name in ("label_map.pbtxt", "map.html"):
        write_file(tmp_path / name, "item { id: 1 name: 'cat' }")
    write_files(tmp_path, {"labels.json": b'[{"name": "cat"}]', "images/x.jpg": b"precious"})
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path / "profile.yaml", run("describe", "a.record", "--as-profile").out)
    write_file(tmp_path / "b.json", run("check", "a.record", "--format", "json").out)
    return tmp_path


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
    before = files_in(folder)
    message = run(*command.split()).refused()
    assert any(fact in message for fact in ("is an input", "another", "shard", "rename"))
    assert files_in(folder) == before


def test_a_report_replaces_a_former_one(run: Run, folder: Path) -> None:
    commands = ("check a.record", "diff a.record b.record", "repair a.record --dry-run")
    for command in (*commands, "show a.record"):
        report = write_file(folder / "report.html", "former")
        run(*command.split(), "-o", "report.html")
        assert report.read_text() not in ("former", "")
    (folder / "cvat").mkdir()  # also the name of a profile
    assert run("check", "a.record", "--profile", "cvat", "-o", "cvat/report.txt").code == 0
    assert (folder / "cvat" / "report.txt").exists()


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
