"""`make release-files`: README.md and CHANGELOG.md of a release, for a person to commit and tag."""

from __future__ import annotations

import datetime
from pathlib import Path

import tomllib

from tests.release.readme import for_index
from tests.release.versions import version_of, with_date

ROOT = Path(__file__).parents[2]


def repository() -> str:
    """Return the address of the repository, which pyproject.toml has for the build hook."""
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    return str(hatch["metadata"]["hooks"]["custom"]["repository"])


def write(root: Path, date: str) -> None:
    """Write both files."""
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
