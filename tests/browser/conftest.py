"""Pyodide, and the page of ``make browser``, for all tests of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.pyodide import find_pyodide


@pytest.fixture(scope="session")
def pyodide() -> Path:
    """A folder with Pyodide and its packages."""
    return find_pyodide()
