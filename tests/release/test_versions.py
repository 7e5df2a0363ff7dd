"""The version, the changelog and the tag of a release agree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import require
from tests.release.versions import disagreements, notes, with_date

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- Tracks.

## [0.1.0] - 2026-11-29

- The first.
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of version 0.2.0 with a commit."""
    require("git", shutil.which("git") is not None)
    (tmp_path / "plugin/tfod").mkdir(parents=True)
    (tmp_path / "plugin/tfod/version.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "all")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


def test_this_tree_agrees() -> None:
    require("git", shutil.which("git") is not None and (ROOT / ".git").exists())
    assert list(disagreements(ROOT)) == []


@pytest.mark.parametrize(
    ("heading", "tags", "named"),
    [
        ("## [0.2.0] - 2026-12-01", [], []),
        ("## [0.2.0] - 2026-12-01", ["v0.2.0"], []),
        ("## [0.2.0] - 2026-12-01", ["v0", "other"], []),
        ("## [0.2.0] - not yet released", [], []),
        ("## [0.2.0] - not yet released", ["v0.2.0"], ["no date"]),
        ("## [0.2.0] - 2026-12-01", ["v0.2.1"], ["the tag v0.2.1"]),
        ("## [0.3.0] - 2026-12-01", [], ["CHANGELOG.md is 0.3.0"]),
        ("## 0.2.0", [], ["CHANGELOG.md is 0.1.0"]),
    ],
)
def test_what_disagrees_is_named(
    heading: str, tags: list[str], named: list[str], tree: Path
) -> None:
    text = CHANGELOG.replace("## [0.2.0] - 2026-12-01", heading)
    (tree / "CHANGELOG.md").write_text(text)
    for tag in tags:
        git(tree, "tag", tag)
    found = list(disagreements(tree))
    assert len(found) == len(named)
    assert all(part in line for part, line in zip(named, found, strict=True)), found


def test_notes_are_the_section_of_the_version() -> None:
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n- Tracks.\n"
    assert notes(CHANGELOG, "0.1.0") == "- The first.\n"


def test_the_files_of_a_release_agree_with_its_tag(tree: Path) -> None:
    pytest.importorskip("tomllib")
    from tests.release.commit import write

    (tree / "CHANGELOG.md").write_text(CHANGELOG.replace("2026-12-01", "not yet released"))
    (tree / "README.md").write_text((ROOT / "README.md").read_text("utf-8"), encoding="utf-8")
    if "not on PyPI yet" not in (tree / "README.md").read_text("utf-8"):
        pytest.skip("README.md is that of a release")
    git(tree, "tag", "v0.2.0")
    assert len(list(disagreements(tree))) == 1
    write(tree, "2026-12-01")
    assert list(disagreements(tree)) == []
    assert (tree / "CHANGELOG.md").read_text() == CHANGELOG
    assert "pip install 'tfod[datumaro,validator]'" in (tree / "README.md").read_text("utf-8")


def test_the_date_replaces_the_words_once() -> None:
    planned = CHANGELOG.replace("2026-12-01", "not yet released")
    assert with_date(planned, "0.2.0", "2026-12-01") == CHANGELOG
    with pytest.raises(SystemExit, match=r"not yet released"):
        with_date(CHANGELOG, "0.2.0", "2026-12-02")
