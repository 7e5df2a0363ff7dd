"""Every long command shows its progress, only on a terminal."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

import pytest
from tfod.cli import progress_line
from tfod.cli.main import main
from tfod.tfrecord.progress import BYTES, Progress

from tests.commands import Run, wait_until
from tests.records import encode, image, objects, write_shard

EXAMPLES = Path(__file__).parents[2] / "examples"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of two shards, and Pascal VOC."""
    record = encode({**image(), **objects([(0.1, 0.2, 0.3, 0.4)], ["cat"], [1])})
    for name in ("a-00000-of-00002", "a-00001-of-00002"):
        write_shard(tmp_path / "in", name, record, label_map="item { id: 1 name: 'cat' }")
    shutil.copytree(EXAMPLES / "shapes_voc", tmp_path / "voc")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal on which each kind of work waits until it is shown for the first time."""
    terminal, add, shown = Terminal(), Progress.add, set()

    def add_and_wait(self: Progress, description: str, count: int = 1) -> None:
        add(self, description, count)
        if count and description not in shown:
            shown.add(description)
            text = f"{'MB ' if description in BYTES else ''}{description}, "
            wait_until(lambda: text in terminal.getvalue())

    monkeypatch.setattr(progress_line, "DELAY", 0)
    monkeypatch.setattr(progress_line, "INTERVAL", 0.001)
    monkeypatch.setattr(progress_line, "_terminal_width", lambda: 200)
    monkeypatch.setattr(Progress, "add", add_and_wait)
    return terminal


READ = ("1 records read, ", " MB read, ")


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        ("check in --jobs 1", (*READ, " of 0 MB read, ")),
        ("check in --jobs 2", (" records read, ", " of 0 MB read, ")),
        ("describe in", READ),
        ("show in", READ),
        ("repair in out", READ),
        ("reshard in out", READ),
        ("reshard in out --shuffle 1", ("records written, ",)),
        ("diff in in", READ),
        ("convert in out --to coco --no-images", READ),
        ("convert voc out", ("files read, ", "records written, ")),
    ],
)
def test_a_command_shows_its_work(command: str, texts: tuple[str, ...], terminal: Terminal) -> None:
    with contextlib.redirect_stderr(terminal):
        assert main(command.split()) in (0, 1)
    shown = terminal.getvalue()
    assert all(text in shown for text in texts)
    assert f"\rtfod {command.split()[0]}: " in shown
    assert shown.endswith("\r"), "the line is erased"


@pytest.mark.parametrize("command", ["check in --quiet", "rules", "check in --runner direct"])
def test_a_command_that_shows_nothing(
    command: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--runner" in command:
        pytest.importorskip("apache_beam")
    monkeypatch.setattr(progress_line, "DELAY", 2 if command == "rules" else 0)
    monkeypatch.setattr(Progress, "add", lambda *_: None)
    with contextlib.redirect_stderr(terminal):
        assert main(command.split()) in (0, 1)
    assert "records" not in terminal.getvalue() and "\rtfod" not in terminal.getvalue()


def test_without_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "DELAY", 0)
    assert run("check", "in").err == ""
