"""The checker of the page, outside of a browser."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tfod_validator.browser import Checker

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a zip that can be repaired; the working folder is restored."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    shutil.copy(EXAMPLES / "shapes_broken.zip", tmp_path / "files")
    return tmp_path / "files"


def check(checker: Checker, folder: Path, **choices: str) -> dict[str, Any]:
    checking = checker.check(str(folder), json.dumps(choices), lambda *_: None)
    document: dict[str, Any] = json.loads(asyncio.run(checking))
    return document


def change(checker: Checker, odd_boxes: str = "", action: str = "repair") -> dict[str, Any]:
    changing = checker.change(action, odd_boxes, lambda *_: None)
    document: dict[str, Any] = json.loads(asyncio.run(changing))
    return document


def test_a_copy_is_changed_again_and_deleted_afterwards(folder: Path) -> None:
    checker = Checker()
    first = check(checker, folder, receiver="cvat")
    assert first["zip"] == "" and first["title"].startswith("Invalid: shapes_broken.zip")
    copies = [change(checker)["zip"], change(checker, "drop")["zip"]]
    assert [os.path.basename(copy) for copy in copies] == ["shapes_broken_repaired.zip"] * 2
    assert [os.path.exists(copy) for copy in copies] == [False, True]
    assert "cannot be converted" in change(checker, action="convert")["problem"]
    assert json.loads(check(checker, folder)["texts"]["json"])["valid"] is False
    assert not os.path.exists(copies[1])


def test_a_copy_that_is_too_large_for_32_bits(folder: Path) -> None:
    checker = Checker()
    check(checker, folder)
    with open(folder / "shapes_broken.zip", "ab") as file:
        file.truncate(2_000_000_001)
    problem = change(checker)["problem"]
    assert "2.0 GB" in problem and "tfod repair" in problem


def test_stop_and_invalid_requests(folder: Path) -> None:
    checker = Checker()
    checking = checker.check(str(folder), "{}", lambda *_: checker.stop())
    assert json.loads(asyncio.run(checking)) == {}
    assert "gpu" in check(checker, folder, profile="gpu")["problem"]
    check(checker, folder)
    assert json.loads(checker.ask("overview", "{}"))["records"] == 12
    assert "no such record" in json.loads(checker.ask("record", '{"number": -1}'))["problem"]
