"""Pyodide and its packages; ``pyodide.json`` and ``wheels.txt`` have their versions and hashes."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_HERE = Path(__file__).parent
_CORE = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
_LOCK = "pyodide-lock.json"
_COMPILED = ("numpy", "pillow")
_PACKAGES = (*_COMPILED, "jinja2", "lxml", "protobuf", "pyyaml")
"""The packages of the page, without their dependencies.

PyPI has all except the compiled ones and lxml, which only Pascal VOC and CVAT's XML need.
"""
_DISTRIBUTION = "https://cdn.jsdelivr.net/pyodide/v{version}/full"
_PLACES = (
    "download Pyodide elsewhere, and name its folder, its URL or the .tar.bz2 of its release: "
    "make browser PYODIDE=FOLDER_OR_URL"
)


class BrowserBuildError(RuntimeError):
    """The page cannot be built; the text says what to do."""


def read_pins(path: Path = _HERE / "pyodide.json") -> dict[str, Any]:
    """Return ``version``, ``core`` (hashes by file name) and ``lock``: Pyodide's lock file.

    The lock file has only the packages of the page.
    """
    pins: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return pins


def write_pins(version: str, source: str, path: Path = _HERE / "pyodide.json") -> None:
    """Write the hashes of another version of Pyodide from its lock file."""
    source = source or _DISTRIBUTION.format(version=version)
    files = _read_files(source, [*_CORE, _LOCK])
    _require(files, [*_CORE, _LOCK], source, version)
    lock = json.loads(files.pop(_LOCK))
    packages, missing = {}, [*_PACKAGES]
    while missing:
        name = missing.pop()
        if package := lock["packages"].get(name):
            packages[name] = package
            missing += package["depends"]
    pins = {
        "version": version,
        "core": {name: _hash(content) for name, content in sorted(files.items())},
        "lock": {**lock, "packages": dict(sorted(packages.items()))},
    }
    path.write_text(json.dumps(pins, indent=2) + "\n", "utf-8")


def copy_pyodide(source: str, folder: Path, pins: Mapping[str, Any], reusable: Path) -> list[str]:
    """Write Pyodide and the packages that the source has, with a lock file; return their names.

    Args:
        source: folder, URL or ``.tar.bz2``; '' for Pyodide's own distribution.
        folder: folder to write to.
        pins: versions and hashes.
        reusable: folder of an earlier build, whose files need no download.
    """
    source = source or _DISTRIBUTION.format(version=pins["version"])
    packages = pins["lock"]["packages"]
    hashes = {**pins["core"], **{each["file_name"]: each["sha256"] for each in packages.values()}}
    files = {
        name: content
        for name, content in _read_files(str(reusable), hashes).items()
        if _hash(content) == hashes[name]
    }
    files |= _read_files(source, hashes.keys() - files)
    compiled = [packages[name]["file_name"] for name in _COMPILED]
    _require(files, [*pins["core"], *compiled], source, pins["version"])
    folder.mkdir(parents=True)
    for name, content in files.items():
        if (found := _hash(content)) != hashes[name]:
            raise BrowserBuildError(
                f"{source}: {name} has the SHA-256 {found}, but in Pyodide {pins['version']} "
                f"{hashes[name]}; use this version, or pin another one: make browser-pin VERSION=…"
            )
        (folder / name).write_bytes(content)
    existing = {name: each for name, each in packages.items() if each["file_name"] in files}
    lock = {**pins["lock"], "packages": existing}
    (folder / _LOCK).write_text(json.dumps(lock, indent=1) + "\n", "utf-8")
    return list(existing)


def download_wheels(folder: Path, without: Collection[str]) -> None:
    """Download the wheels of ``wheels.txt`` from PyPI, except for some packages."""
    lines = (_HERE / "wheels.txt").read_text("utf-8").splitlines(keepends=True)
    pins = dict(line.split("==") for line in lines if "==" in line)
    requirements = [f"{name}=={pin}" for name, pin in pins.items() if name not in without]
    if not requirements:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(requirements)
        file.flush()
        options = ["--only-binary=:all:", "--platform=manylinux2014_x86_64"]
        options += ["--python-version=3.12", "--no-deps", "--require-hashes"]
        run_pip(["download", *options, "--dest", str(folder), "--requirement", file.name])
    for path in folder.glob("*linux*.whl"):
        _remove_libraries(path)


def _remove_libraries(wheel: Path) -> None:
    """Make a wheel pure: its package uses its Python code if it has no compiled module."""
    name, version, *_ = wheel.name.split("-")
    pure = wheel.with_name(f"{name}-{version}-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(pure, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".so"):
                target.writestr(entry, source.read(entry))
    wheel.unlink()


def run_pip(arguments: Iterable[str], environment: Mapping[str, str] | None = None) -> None:
    """Run pip; its last line is the reason if it fails."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise BrowserBuildError(f"pip {command[5]} failed: {lines[-1]}")


def _read_files(source: str, names: Collection[str]) -> dict[str, bytes]:
    """Return the files of a source that exist."""
    files = {}
    try:
        if source.endswith(".tar.bz2") and names:
            with _open(source) as file, tarfile.open(fileobj=file, mode="r|bz2") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    if content and (name := Path(member.name).name) in names:
                        files[name] = content.read()
        else:
            for name in sorted(names):
                with suppress(FileNotFoundError), _open(f"{source.rstrip('/')}/{name}") as file:
                    files[name] = file.read()
    except (OSError, http.client.HTTPException, tarfile.TarError) as error:
        reason = getattr(error, "reason", error)  # of URLs, without "<urlopen error"
        raise BrowserBuildError(f"{source} cannot be read: {reason}; {_PLACES}") from None
    return files


def _open(source: str) -> IO[bytes]:
    if not source.startswith(("https://", "http://")):
        return open(source, "rb")
    try:
        response: IO[bytes] = urllib.request.urlopen(source, timeout=60)
        return response
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise FileNotFoundError(source) from None
        raise


def _require(files: Collection[str], names: Iterable[str], source: str, version: str) -> None:
    if missing := [name for name in names if name not in files]:
        raise BrowserBuildError(
            f"{source} does not have {missing[0]} of Pyodide {version}; {_PLACES}"
        )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
