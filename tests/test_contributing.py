"""CONTRIBUTING.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_PATH = re.compile(r"`((?:plugin|validator|tests|docs|benchmarks)/[\w./-]+|pyproject\.toml)[^`]*`")


def test_every_path_exists() -> None:
    paths = _PATH.findall(TEXT)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_a_change_is_in_few_places() -> None:
    table = TEXT.partition("\n## Where would I change")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith(("| a ", "| the ", "| how "))]
    assert len(rows) >= 13
    for row in rows:
        assert 1 <= len(_PATH.findall(row)) <= 3, row
