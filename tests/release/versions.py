"""The version of a release in version.py, CHANGELOG.md, README.md and the tag.

`make release-files` writes README.md and CHANGELOG.md of a release, for a person to commit and tag.
"""

from __future__ import annotations

import datetime
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.release.readme import for_index

ROOT = Path(__file__).parents[2]
NOT_YET = "not yet released"
_SECTION = re.compile(r"^## \[(?P<version>\d+\.\d+\.\d+)\] - (?P<date>.+)$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def version_of(root: Path) -> str:
    """Return the version in version.py."""
    return str(runpy.run_path(str(root / "plugin/tfod/version.py"))["__version__"])


def disagreements(root: Path) -> Iterator[str]:
    """Yield what contradicts version.py: the newest section of the changelog, or a tag of HEAD."""
    version = version_of(root)
    section = _SECTION.search((root / "CHANGELOG.md").read_text("utf-8"))
    if section is None or section["version"] != version:
        newest = section["version"] if section else "missing"
        yield f"version.py has {version}; the newest release in CHANGELOG.md is {newest}"
    for tag in tags_of_head(root):
        if tag != f"v{version}":
            yield f"version.py has {version}; HEAD has the tag {tag}"
        if section and not _DATE.fullmatch(section["date"]):
            yield f"HEAD has the tag {tag}; CHANGELOG.md has no date for {section['version']}"


def tags_of_head(root: Path) -> list[str]:
    """Return the tags of releases at HEAD, such as ``v0.1.0``."""
    command = ["git", "-C", str(root), "-c", "safe.directory=*", "tag", "--points-at", "HEAD"]
    done = subprocess.run([*command, "v*.*.*"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def notes(changelog: str, version: str) -> str:
    """Return the section of a version in the changelog, without its heading."""
    sections = re.split(r"^(?=## \[)", changelog, flags=re.MULTILINE)
    (section,) = (each for each in sections if each.startswith(f"## [{version}]"))
    return section.partition("\n")[2].strip() + "\n"


def with_date(changelog: str, version: str, date: str) -> str:
    """Return the changelog with the date of a release, which it must not have yet."""
    heading = f"## [{version}] - {NOT_YET}"
    if changelog.count(heading) != 1:
        raise SystemExit(f"CHANGELOG.md has no heading {heading!r}")
    return changelog.replace(heading, f"## [{version}] - {date}")


def repository() -> str:
    """Return the address of the repository, which pyproject.toml has for the build hook."""
    import tomllib  # Python 3.11

    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    return str(hatch["metadata"]["hooks"]["custom"]["repository"])


def write(root: Path, date: str) -> None:
    """Write README.md and CHANGELOG.md of a release."""
    version = version_of(root)
    readme, changelog = root / "README.md", root / "CHANGELOG.md"
    texts = {
        readme: for_index(readme.read_text("utf-8"), version, repository()),
        changelog: with_date(changelog.read_text("utf-8"), version, date),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(ROOT, datetime.datetime.now(datetime.timezone.utc).date().isoformat())
