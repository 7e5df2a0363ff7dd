"""The version, the changelog, the tag and README.md of a release."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import require
from tests.docs.page import steps_of
from tests.files import write_files
from tests.release.readme import for_index
from tests.release.versions import disagreements, notes, with_date, write

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
ADDRESS = "https://github.com/somebody/tfod-fork"
DATED = "## [0.2.0] - 2026-12-01"
CHANGELOG = f"""# Changelog

## [Unreleased]

{DATED}

### Added

- Tracks.

## [0.1.0] - 2026-11-29

- The first.
"""
PLANNED = CHANGELOG.replace("2026-12-01", "not yet released")
before_a_release = pytest.mark.skipif(
    "tfod is not on PyPI yet" not in README, reason="README.md belongs to a release"
)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of version 0.2.0 with a commit."""
    require("git", shutil.which("git") is not None)
    version = '__version__ = "0.2.0"\n'
    write_files(tmp_path, {"plugin/tfod/version.py": version, "CHANGELOG.md": CHANGELOG})
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "all")
    return tmp_path


def test_this_tree_agrees() -> None:
    require("git", shutil.which("git") is not None and (ROOT / ".git").exists())
    assert list(disagreements(ROOT)) == []


@pytest.mark.parametrize(
    ("heading", "tags", "expected"),
    [
        (DATED, [], ""),
        (DATED, ["v0.2.0"], ""),
        (DATED, ["v0", "other"], ""),
        ("## [0.2.0] - not yet released", [], ""),
        ("## [0.2.0] - not yet released", ["v0.2.0"], "no date"),
        (DATED, ["v0.2.1"], "the tag v0.2.1"),
        ("## [0.3.0] - 2026-12-01", [], "CHANGELOG.md is 0.3.0"),
        ("## 0.2.0", [], "CHANGELOG.md is 0.1.0"),
    ],
)
def test_a_disagreement_is_named(heading: str, tags: list[str], expected: str, tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(CHANGELOG.replace(DATED, heading))
    for tag in tags:
        git(tree, "tag", tag)
    found = list(disagreements(tree))
    assert len(found) == bool(expected) and expected in "".join(found)


def test_notes_are_the_section_of_the_version() -> None:
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n- Tracks.\n"
    assert notes(CHANGELOG, "0.1.0") == "- The first.\n"


@before_a_release
def test_the_files_of_a_release_agree_with_its_tag(tree: Path) -> None:
    pytest.importorskip("tomllib")
    write_files(tree, {"CHANGELOG.md": PLANNED, "README.md": README})
    git(tree, "tag", "v0.2.0")
    assert len(list(disagreements(tree))) == 1
    write(tree, "2026-12-01")
    assert list(disagreements(tree)) == []
    assert (tree / "CHANGELOG.md").read_text() == CHANGELOG
    assert "pip install 'tfod[datumaro,validator]'" in (tree / "README.md").read_text("utf-8")


def test_the_date_replaces_the_words_once() -> None:
    assert with_date(PLANNED, "0.2.0", "2026-12-01") == CHANGELOG
    with pytest.raises(SystemExit, match=r"not yet released"):
        with_date(CHANGELOG, "0.2.0", "2026-12-02")


@before_a_release
def test_readme_of_a_release_needs_no_clone() -> None:
    """All other text and the commands stay."""
    text = for_index(README, "1.2.3", ADDRESS)
    assert "'.[" not in text and "this/clone" not in text and "not on PyPI" not in text
    assert "pip install 'tfod[datumaro,validator]'" in text
    assert f"{ADDRESS}/archive/refs/tags/v1.2.3.tar.gz |" in text
    assert f"{ADDRESS}/raw/v1.2.3/docker/cvat/docker-compose.tfrecord.yml" in text
    assert "tfod-fork-1.2.3/examples" in text
    assert f"TFOD_SOURCE={ADDRESS}.git#v1.2.3" in text

    def parts(page: str) -> list[str]:
        headings = [line for line in page.splitlines() if line.startswith("## ")]
        return [*headings, *(step.command for step in steps_of(page))]

    assert parts(text) == parts(README)


@before_a_release
def test_a_later_release_changes_only_the_version() -> None:
    first = for_index(README, "0.1.0", ADDRESS)
    assert for_index(first, "0.1.0", ADDRESS) == first
    assert for_index(first, "0.12.0", ADDRESS) == for_index(README, "0.12.0", ADDRESS)


@before_a_release
@pytest.mark.parametrize("lost", ["## Install\n", "'.[cvat]'", "/path/to/this/clone"])
def test_a_missing_text_of_readme_is_an_error(lost: str) -> None:
    with pytest.raises(SystemExit, match=r"readme\.py"):
        for_index(README.replace(lost, ""), "1.2.3", ADDRESS)
