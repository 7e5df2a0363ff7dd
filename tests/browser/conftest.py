"""Pyodide, and the page of ``make browser``, for all tests of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser.pyodide import ROOT, find_pyodide, locked
from tests.commands import Result, require, run_python


@pytest.fixture(scope="session")
def pyodide() -> Path:
    """A folder with Pyodide and its packages."""
    return find_pyodide()


def build_page(output: Path, source: object, **environment: str) -> Result:
    """Run the command of ``make browser``."""
    options = ("--pyodide", source, "--output", output)
    return run_python("-m", "validator.browser.build", *options, folder=ROOT, **environment)


@pytest.fixture(scope="session")
def browser_folder(pyodide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page, which only one process of a run builds."""
    base = tmp_path_factory.getbasetemp()
    output = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "browser"
    with locked(output):
        if not output.exists():
            done = build_page(output, pyodide)
            require("rustc for WebAssembly", "libstd-rust-dev-wasm32" not in done.err)
            done.succeeded()
    return output
