"""The commands of README, the recipes and some pages of docs."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.commands import require, run_program
from tests.docs.page import Step, environment, run, steps_of

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
SESSIONS = {"checker.md": 1, "library.md": 9}
"""Pages of docs that are one session, and their numbers of Python blocks."""
_WALK_THROUGH = re.compile(r"^## Annotate in CVAT and train.*?(?=^## )", re.MULTILINE | re.DOTALL)
_INDENTED_BLOCK = re.compile(r"^ +```\n(.*?)^ +```$", re.MULTILINE | re.DOTALL)
_PACKAGES = {
    "datum ": "datumaro",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "import grain": "grain",
}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the examples and label maps of a fresh clone."""
    for name in ("examples", "label_maps"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "docs" / "ci.md", *PAGES],
    ids=lambda page: f"{page.parent.name}-{page.stem}",
)
def test_page(page: Path, desk: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for sign, package in _PACKAGES.items():
        if sign in text and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    steps = list(steps_of(text))
    assert steps or page == PAGES[0].parent / "README.md", "the page has no commands"
    for step in steps:
        wrong = run(step, desk, environment(desk))
        assert wrong is None, f"{page.name}:{step.line}: {step.command}{wrong}"


@pytest.mark.parametrize(("name", "scripts"), SESSIONS.items())
def test_page_that_is_one_session(name: str, scripts: int, desk: Path) -> None:
    """Each script continues the ones before it; adjacent ones are run together."""
    session = ""
    steps = list(steps_of((ROOT / "docs" / name).read_text(encoding="utf-8")))
    assert sum(step.script for step in steps) == scripts
    for step, following in zip_longest(steps, steps[1:]):
        if step.script:
            session += "\n" * (step.line - 1 - session.count("\n")) + step.command
            if following and following.script:
                continue
            step = replace(step, command=session)
        wrong = run(step, desk, environment(desk))
        assert wrong is None, f"{name}:{step.line}: {step.command}{wrong}"


def test_the_walk_through_from_voc_to_cvat(tmp_path: Path) -> None:
    """The commands of docs/cvat.md, without a server."""
    require("zip", shutil.which("zip") is not None)
    year = tmp_path / "VOCdevkit" / "VOC2007"
    shutil.copytree(ROOT / "examples" / "shapes_voc", year)
    train = year / "ImageSets" / "Main" / "train.txt"
    names = train.read_text().split()
    jpegs = [name for name in names if (year / f"JPEGImages/{name}.jpg").exists()]
    train.write_text("\n".join(jpegs) + "\n")  # VOC has no other images
    section = _WALK_THROUGH.search((ROOT / "docs" / "cvat.md").read_text(encoding="utf-8"))
    assert section
    typed = "".join(_INDENTED_BLOCK.findall(section[0]))
    assert "--cvat task 42" in typed
    verdict = "...VALID for CVAT: 0 errors...\n"
    step = Step(1, typed.replace("--cvat task 42", "--for cvat"), output=verdict)
    assert run(step, tmp_path, environment(tmp_path)) is None
    with zipfile.ZipFile(tmp_path / "images.zip") as images:
        assert sorted(images.namelist()) == sorted(f"{name}.jpg" for name in jpegs)
    with zipfile.ZipFile(tmp_path / "anno.zip") as annotations:
        assert sorted(annotations.namelist()) == ["label_map.pbtxt", "pascal.tfrecord"]


def test_the_demo_shows_the_report_of_a_broken_shard(tmp_path: Path) -> None:
    pytest.importorskip("datumaro")
    path = str(ROOT / "examples" / "demo.py")
    script = f"import runpy, sys; del sys.argv[1:]; runpy.run_path({path!r}, run_name='__main__')"
    code, printed = run_program(["python", "-c", script], tmp_path, environment(tmp_path))
    assert code == 0, printed
    good, _, broken = printed.partition(": nothing changed.\n")
    assert "$ tfod check demo_output/tfrecord\nVALID: " in good
    assert "$ tfod check demo_output/broken --quiet\nTFR004 error: checksum" in broken
    assert "train.tfrecord, record 3, byte " in broken


def test_no_page_installs_tfod_from_pypi_before_its_first_release() -> None:
    if "tfod is not on PyPI yet" not in (ROOT / "README.md").read_text(encoding="utf-8"):
        pytest.skip("README.md belongs to a release")
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for top in ("README.md", "CONTRIBUTING.md", "docs", "plugin", "validator", "examples")
        for path in [ROOT / top, *sorted((ROOT / top).rglob("*.*"))]
        if path.suffix in (".md", ".html")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install (-\S+ )*['\"]?tfod\b", line)
    ]
    assert found == []


def test_every_page_is_listed() -> None:
    listed = (ROOT / "docs" / "recipes" / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in listed, page.name
