"""Puts a package into a volume that other containers read: whole, or not at all.

    install.py PACKAGE VOLUME

The package becomes ``VOLUME/releases/NAME-DIGEST``, and the link ``VOLUME/current`` leads there
once all of it is in place. The digest is of the contents, so that the same package is copied once,
and a damaged copy is found and replaced. The two releases before stay, since processes may be
running from them.

Runs in the image of docker/cvat/Dockerfile, with nothing but Python 3.10 or later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".new-"
KEPT = 3


def main() -> int:
    """The command line; returns the exit status."""
    if len(sys.argv) != 3:
        print("usage: install.py PACKAGE VOLUME", file=sys.stderr)
        return 2
    package, volume = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        name = release_name(package)
        with locked(volume):
            changed = install(package, name, volume)
    except OSError as error:
        print(f"tfod: not installed in {volume}: {reason(error)}", file=sys.stderr)
        return 1
    print(f"tfod: {name} {'installed' if changed else 'is already'} in {volume}")
    return 0


def reason(error: OSError) -> str:
    """What went wrong, in one line; copying a folder tells its errors as a list."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][2])
    return f"{error.filename}: {error.strerror}" if error.strerror else str(error)


def release_name(package: Path) -> str:
    """Name and version of the package, and a digest of its contents."""
    metadata = next(package.glob("*.dist-info"), None)
    if metadata is None:
        raise FileNotFoundError(f"there is no package in {package}")
    return f"{metadata.stem}-{digest(package)}"


def digest(folder: Path) -> str:
    """A digest of the names and contents of all files below a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        contents = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder)}\0{contents}\n".encode())
    return total.hexdigest()[:12]


@contextmanager
def locked(volume: Path) -> Iterator[None]:
    """Keeps a second installer waiting."""
    with open(volume / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(package: Path, name: str, volume: Path) -> bool:
    """Makes the package the current release; returns whether anything had to be done."""
    releases = volume / "releases"
    releases.mkdir(exist_ok=True)
    for unfinished in releases.glob(UNFINISHED + "*"):
        shutil.rmtree(unfinished)
    release = releases / name
    link = volume / "current"
    whole = release.is_dir() and name.endswith(digest(release))
    if whole and link.is_symlink() and link.resolve() == release.resolve():
        return False
    if not whole:
        copy(package, release)
    os.utime(release)
    point(link, release)
    remove_old(releases)
    return True


def copy(package: Path, release: Path) -> None:
    """Copies beside the releases, and moves the copy in when it is whole."""
    staging = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=release.parent))
    try:
        shutil.copytree(package, staging / "package")
        if release.exists():
            release.rename(staging / "damaged")
        (staging / "package").rename(release)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def point(link: Path, release: Path) -> None:
    """Makes the link lead to a release, in one step."""
    new = link.with_name(UNFINISHED + "link")
    new.unlink(missing_ok=True)
    new.symlink_to(release.relative_to(link.parent))
    new.replace(link)


def remove_old(releases: Path) -> None:
    """Removes all but the latest releases; the current one is the latest."""
    by_age = sorted(releases.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for old in by_age[KEPT:]:
        shutil.rmtree(old)


if __name__ == "__main__":
    sys.exit(main())
