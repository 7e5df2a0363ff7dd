"""A folder with a data set, given where Datumaro wants a project."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod.datumaro.commands import without_project


@pytest.mark.parametrize(
    ("typed", "has_export", "meant"),
    [
        ("transform -t a -p x -o y", True, "transform -t a -o y x"),
        ("transform --project x -t a -o y -- -e b", False, "transform -t a -o y x -- -e b"),
        ("transform -t a -o y -- -p x", True, "transform -t a -o y -- -p x"),
        ("transform x -t a", True, "transform x -t a"),
        ("transform -t a -p", True, "transform -t a -p"),
        ("transform -t a -p project", False, "transform -t a -p project"),
        ("export -f a -p x -o y -- -b", True, "export -f a -p x -o y -- -b"),
        ("export -f a -p x -o y -- -b", False, "convert -f a -i x -o y -- -b"),
        ("export -f a -p project", False, "export -f a -p project"),
        ("stats -p x", True, "stats -p x"),
        ("", True, ""),
    ],
)
def test_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, has_export: bool, meant: str
) -> None:
    (tmp_path / "project" / ".datumaro").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert without_project(typed.split(), has_export=has_export) == meant.split()
