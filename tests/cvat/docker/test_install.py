"""The installer's own script, run as its container runs it: PACKAGE and VOLUME are folders."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docker/cvat/install.py"
# Python ignores this signal, which is why a file that grows too large is an error; as it is by
# default, the system kills the process in the middle of its copy.
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


@pytest.fixture
def package(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a package of a version."""

    def make(version: str) -> Path:
        folder = tmp_path / f"package-{version}"
        (folder / f"tfod-{version}.dist-info").mkdir(parents=True)
        (folder / "tfod").mkdir()
        (folder / "tfod/__init__.py").write_text(f"version = {version!r}\n")
        (folder / "tfod/large.bin").write_bytes(version.encode() * LARGE)
        return folder

    return make


def install(
    package: Path, volume: Path, *, killed: bool = False, limit: int | None = None
) -> subprocess.CompletedProcess[str]:
    def set_limit() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, *(["-c", KILLED] if killed else []), str(SCRIPT)]
    return subprocess.run(
        [*command, str(package), str(volume)], preexec_fn=set_limit, capture_output=True, text=True
    )


def releases(volume: Path) -> list[str]:
    return sorted(path.name.split("-")[1] for path in (volume / "releases").iterdir())


def current(volume: Path) -> str:
    return (volume / "current/tfod/__init__.py").read_text().split("'")[1]


def test_a_new_volume(package: Callable[[str], Path], volume: Path) -> None:
    done = install(package("1"), volume)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tfod: tfod-1-") and "installed in" in done.stdout
    assert current(volume) == "1"
    assert not os.path.isabs(os.readlink(volume / "current"))
    assert (volume / "current/tfod/large.bin").stat().st_size == LARGE
    assert (volume / "current").stat().st_mode & 0o777 == 0o755


def test_the_same_version_again_changes_nothing(
    package: Callable[[str], Path], volume: Path
) -> None:
    one = package("1")
    install(one, volume)
    inode = (volume / "current/tfod").stat().st_ino
    done = install(one, volume)
    assert not done.returncode and "is already in" in done.stdout
    assert (volume / "current/tfod").stat().st_ino == inode


def test_a_newer_version_leaves_the_files_of_running_processes(
    package: Callable[[str], Path], volume: Path
) -> None:
    install(package("1"), volume)
    started_with = (volume / "current").resolve()
    install(package("2"), volume)
    assert current(volume) == "2"
    assert (started_with / "tfod/__init__.py").read_text() == "version = '1'\n"
    assert releases(volume) == ["1", "2"]


def test_old_versions_go_and_an_older_one_can_return(
    package: Callable[[str], Path], volume: Path
) -> None:
    packages = [package(version) for version in "1234"]
    for one in packages:
        install(one, volume)
    assert releases(volume) == ["2", "3", "4"]
    install(packages[1], volume)
    assert current(volume) == "2"
    assert releases(volume) == ["2", "3", "4"]


@pytest.mark.parametrize("killed", [False, True])
def test_half_a_copy_is_never_current(
    package: Callable[[str], Path], volume: Path, killed: bool
) -> None:
    install(package("1"), volume)
    two = package("2")
    done = install(two, volume, killed=killed, limit=LARGE // 2)
    assert current(volume) == "1"
    if killed:
        assert done.returncode < 0
    else:
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "not installed" in done.stderr and "File too large" in done.stderr
        assert releases(volume) == ["1"]
    assert not install(two, volume).returncode
    assert current(volume) == "2"
    assert releases(volume) == ["1", "2"]


def test_a_damaged_copy_is_replaced(package: Callable[[str], Path], volume: Path) -> None:
    one = package("1")
    install(one, volume)
    (volume / "current/tfod/__init__.py").write_text("vers")
    done = install(one, volume)
    assert not done.returncode and "installed in" in done.stdout
    assert current(volume) == "1"
    assert releases(volume) == ["1"]


def test_a_removed_link_returns(package: Callable[[str], Path], volume: Path) -> None:
    one = package("1")
    install(one, volume)
    (volume / "current").unlink()
    assert not install(one, volume).returncode
    assert current(volume) == "1"


@pytest.mark.parametrize("place", ["/proc", "absent", "file"])
def test_what_cannot_be_written_is_said_in_a_line(
    package: Callable[[str], Path], tmp_path: Path, place: str
) -> None:
    """/proc takes no new file, not even from root, as a read-only mount does not."""
    (tmp_path / "file").touch()
    volume = tmp_path / place
    done = install(package("1"), volume)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tfod: not installed in {volume}: ")
    assert done.stderr.count("\n") == 1


def test_an_image_without_a_package_is_said_in_a_line(tmp_path: Path, volume: Path) -> None:
    done = install(tmp_path, volume)
    assert done.returncode == 1
    assert done.stderr == f"tfod: not installed in {volume}: there is no package in {tmp_path}\n"


def test_usage() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: install.py PACKAGE VOLUME\n")
