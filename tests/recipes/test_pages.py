"""The pages of docs/recipes, typed as they are written."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.recipes.page import Step, run, steps_of

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
_PACKAGES = {"datum ": "datumaro", "tensorflow": "tensorflow", "torch": "torch"}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with what the repository carries, as a fresh clone has it."""
    for name in ("examples", "label_maps"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, desk: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for sign, package in _PACKAGES.items():
        if sign in text:
            pytest.importorskip(package)
    home = desk / ".home"
    home.mkdir()
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "COLUMNS": "100",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    steps = list(steps_of(text))
    assert steps or page.stem == "README", "nothing on this page is typed"
    for step in steps:
        wrong = run(step, desk, environment)
        assert wrong is None, f"{page.name}:{step.line}: {step.command}{wrong}"


def test_every_page_is_listed() -> None:
    """A page that nobody finds is none."""
    listed = (ROOT / "docs" / "recipes" / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in listed, page.name


def test_steps_of_a_page() -> None:
    text = "Text.\n\n```console\n$ one \\\n    more\nout\n...\n$ two\n```\n"
    text += "\n```python\nprint(1)\n```\n"
    assert list(steps_of(text)) == [
        Step(4, "one \\\n    more\n", output="out\n...\n"),
        Step(8, "two\n"),
        Step(12, "print(1)\n", script=True),
    ]


@pytest.mark.parametrize(
    ("step", "wrong"),
    [
        (Step(1, "echo a; echo b >&2", output="a\nb\n"), False),
        (Step(1, "echo a; echo b; echo c", output="a\n...\nc\n"), False),
        (Step(1, "echo a", output="b\n"), True),
        (Step(1, "false"), True),
        (Step(1, "false | cat"), True),
        (Step(1, "raise SystemExit(3)", script=True), True),
        (Step(1, "print(1)", script=True), False),
    ],
)
def test_a_step_can_fail(step: Step, wrong: bool, tmp_path: Path) -> None:
    assert (run(step, tmp_path, os.environ) is not None) is wrong
