"""The installer's script, run like in its container, with folders as PACKAGE and VOLUME."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docker/cvat/install.py"
# Python ignores SIGXFSZ, so a file that grows too large is an error. By default, the system kills
# the process in the middle of the copy.
KILLED = (
    "import runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_DFL);"
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
LARGE = 1_000_000


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def install(tmp_path: Path, volume: Path) -> Install:
    """Install a version of a package, killed or with a limit for the size of its files."""

    def run(
        version: str, into: Path = volume, *, killed: bool = False, limit: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        package = tmp_path / f"package-{version}"
        if version and not package.exists():
            (package / f"tfod-{version}.dist-info").mkdir(parents=True)
            (package / "tfod").mkdir()
            (package / "tfod/__init__.py").write_text(f"version = {version!r}\n")
            (package / "tfod/large.bin").write_bytes(version.encode() * LARGE)

        def set_limit() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        command = [sys.executable, *(["-c", KILLED] if killed else []), str(SCRIPT)]
        command += [str(package if version else tmp_path), str(into)]
        return subprocess.run(command, preexec_fn=set_limit, capture_output=True, text=True)

    return run


def versions(volume: Path) -> tuple[str, list[str]]:
    """Return the current version, and all versions in the volume."""
    current = (volume / "current/tfod/__init__.py").read_text().split("'")[1]
    return current, sorted(path.name.split("-")[1] for path in (volume / "releases").iterdir())


def test_a_version_is_installed_once(install: Install, volume: Path) -> None:
    done = install("1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tfod: tfod-1-") and "installed in" in done.stdout
    assert versions(volume) == ("1", ["1"])
    assert not os.path.isabs(os.readlink(volume / "current"))
    assert (volume / "current/tfod/large.bin").stat().st_size == LARGE
    assert (volume / "current").stat().st_mode & 0o777 == 0o755
    inode = (volume / "current/tfod").stat().st_ino
    done = install("1")
    assert not done.returncode and "is already in" in done.stdout
    assert (volume / "current/tfod").stat().st_ino == inode


def test_the_last_three_versions_remain(install: Install, volume: Path) -> None:
    """Processes keep the files of the version that they started with. An old one can return."""
    install("1")
    started_with = (volume / "current").resolve()
    install("2")
    assert versions(volume) == ("2", ["1", "2"])
    assert (started_with / "tfod/__init__.py").read_text() == "version = '1'\n"
    install("3")
    install("4")
    assert versions(volume) == ("4", ["2", "3", "4"])
    install("2")
    assert versions(volume) == ("2", ["2", "3", "4"])


@pytest.mark.parametrize("killed", [False, True])
def test_an_incomplete_copy_is_never_current(install: Install, volume: Path, killed: bool) -> None:
    install("1")
    done = install("2", killed=killed, limit=LARGE // 2)
    assert versions(volume)[0] == "1"
    if killed:
        assert done.returncode < 0
    else:
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "not installed" in done.stderr and "File too large" in done.stderr
        assert versions(volume) == ("1", ["1"])
    assert not install("2").returncode
    assert versions(volume) == ("2", ["1", "2"])


@pytest.mark.parametrize("damaged", ["file", "link"])
def test_a_damaged_copy_is_replaced(install: Install, volume: Path, damaged: str) -> None:
    install("1")
    if damaged == "file":
        (volume / "current/tfod/__init__.py").write_text("vers")
    else:
        (volume / "current").unlink()
    done = install("1")
    assert not done.returncode and ("installed in" in done.stdout or damaged == "link")
    assert versions(volume) == ("1", ["1"])


@pytest.mark.parametrize("name", ["/proc", "absent", "file"])
def test_a_volume_that_cannot_be_written(install: Install, tmp_path: Path, name: str) -> None:
    """Not even root can create a file in /proc, like in a read-only mount."""
    (tmp_path / "file").touch()
    done = install("1", tmp_path / name)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"tfod: not installed in {tmp_path / name}: ")


def test_an_image_without_a_package(install: Install, tmp_path: Path, volume: Path) -> None:
    done = install("")
    assert done.returncode == 1
    assert done.stderr == f"tfod: not installed in {volume}: there is no package in {tmp_path}\n"


def test_usage() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: install.py PACKAGE VOLUME\n")
