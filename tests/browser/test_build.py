"""``make browser`` builds a page that needs nothing else."""

from __future__ import annotations

from pathlib import Path


def test_pyodide(pyodide: Path) -> None:
    assert (pyodide / "pyodide-lock.json").is_file()
