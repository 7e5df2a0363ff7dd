"""The help of every command fits on a screen, with options in one style."""

from __future__ import annotations

import re

import pytest
from tfod.cli.arguments import COMMANDS
from tfod.cli.main import main

BELOW = ("cvat export", "cvat import")
MOST_LINES, MOST_OPTIONS, MOST_OPTIONS_OF_CHECK = 45, 20, 24


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="0"):
        main([*command.split(), "--help"])
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("command", [*COMMANDS, *BELOW])
def test_fits_on_a_screen(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tfod_validator" if command == "serve" else "tfod")
    text = help_of(command, capsys)
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 80
    options = re.findall(r"^  (?:-\w(?: [A-Z]+)?, )?(-\S+)", text, re.MULTILINE)
    most = MOST_OPTIONS_OF_CHECK if command == "check" else MOST_OPTIONS
    assert "--help" in options and len(options) <= most
    assert all(re.fullmatch(r"--[a-z0-9]+(-[a-z0-9]+)*", one) for one in options)
    assert lines[0].startswith(f"usage: tfod {command} ")
    assert len(lines[1]) == 0, "the usage is one line"


def test_usage_names_what_is_read_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    first = [help_of(one, capsys).splitlines()[0] for one in ("check", "rules", "cvat export")]
    assert first == [
        "usage: tfod check [options] SOURCE...",
        "usage: tfod rules [options] [CODE|FAMILY]",
        "usage: tfod cvat export [options] KIND ID OUT.zip",
    ]
