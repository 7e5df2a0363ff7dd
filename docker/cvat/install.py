"""Install a package into a volume that other containers read, completely or not at all.

    install.py PACKAGE VOLUME

The package is copied to ``VOLUME/releases/NAME-DIGEST``, and then the link ``VOLUME/current`` is
set to it. The digest of the contents reveals damaged copies, which are replaced. The two previous
releases are kept, since processes may still use them.

Runs in the image of docker/cvat/Dockerfile, and only needs Python 3.10 or later.
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
KEPT_RELEASES = 3


def main() -> int:
    """Run the command line, and return the exit status."""
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
    """Return a one-line message; errors of copytree are lists."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][2])
    return f"{error.filename}: {error.strerror}" if error.strerror else str(error)


def release_name(package: Path) -> str:
    """Return the name and version of a package, and a digest of its contents."""
    metadata = next(package.glob("*.dist-info"), None)
    if metadata is None:
        raise FileNotFoundError(f"there is no package in {package}")
    return f"{metadata.stem}-{digest(package)}"


def digest(folder: Path) -> str:
    """Return a digest of the names and contents of all files in a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        contents = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder)}\0{contents}\n".encode())
    return total.hexdigest()[:12]


@contextmanager
def locked(volume: Path) -> Iterator[None]:
    """Lock a volume, so that a second installer waits."""
    with open(volume / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(package: Path, name: str, volume: Path) -> bool:
    """Make a package the current release, and return whether anything was changed."""
    releases = volume / "releases"
    releases.mkdir(exist_ok=True)
    for unfinished in releases.glob(UNFINISHED + "*"):
        shutil.rmtree(unfinished)
    release = releases / name
    link = volume / "current"
    is_valid = release.is_dir() and name.endswith(digest(release))
    if is_valid and link.is_symlink() and link.resolve() == release.resolve():
        return False
    if not is_valid:
        copy(package, release)
    os.utime(release)
    point(link, release)
    remove_old(releases)
    return True


def copy(package: Path, release: Path) -> None:
    """Copy a package to a temporary folder, and move it into place when it is complete."""
    staging = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=release.parent))
    try:
        shutil.copytree(package, staging / "package")
        if release.exists():
            release.rename(staging / "damaged")
        (staging / "package").rename(release)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def point(link: Path, release: Path) -> None:
    """Set the link to a release, atomically."""
    new = link.with_name(UNFINISHED + "link")
    new.unlink(missing_ok=True)
    new.symlink_to(release.relative_to(link.parent))
    new.replace(link)


def remove_old(releases: Path) -> None:
    """Remove all but the latest releases, of which the current release is the first."""
    by_age = sorted(releases.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for old in by_age[KEPT_RELEASES:]:
        shutil.rmtree(old)


if __name__ == "__main__":
    sys.exit(main())
