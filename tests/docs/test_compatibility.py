"""docs/compatibility.md, the classifiers and CI name the versions that the Makefile tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import compatibility

ROOT = Path(__file__).parents[2]


def test_the_table_has_the_versions_of_the_tests() -> None:
    assert compatibility.page() == compatibility.PAGE.read_text("utf-8"), "type: make docs"


def test_a_version_that_is_not_tested_changes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "pythons", lambda: ["3.10", "3.12", "3.15", "3.16"])
    changed = compatibility.page()
    assert "| 3.16 | core, checker, service |" in changed and "| 3.15 | core |" in changed
    assert changed != compatibility.PAGE.read_text("utf-8")


def test_all_lists_of_pythons_agree() -> None:
    pythons = compatibility.pythons()
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall(r"Python :: (3\.\d+)", project) == pythons
    assert f'requires-python = ">={pythons[0]}"' in project
    yaml = pytest.importorskip("yaml")
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    assert ci["jobs"]["pythons"]["strategy"]["matrix"]["python"] == pythons
    lowest = [step["with"] for step in ci["jobs"]["lowest"]["steps"] if "with" in step]
    assert lowest == [{"python-version": pythons[0]}]
    wheels = (ROOT / ".github/workflows/wheels.yml").read_text("utf-8")
    assert f"for python in python{pythons[0]} python{pythons[-1]}; do" in wheels
    texts = "README.md Makefile action.yml docs/ci.md docs/install.md docker/validator/Dockerfile"
    for name in (*texts.split(), "tests/release/readme.py"):
        text = (ROOT / name).read_text("utf-8")
        assert re.findall(r"3\.10 to (3\.1[4-9])", text) == [pythons[-1]], name
