"""The commands of the walk-through of docs/cvat.md, without a server."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

from tests.commands import require
from tests.docs.page import Step, environment, run

ROOT = Path(__file__).parents[2]
_SECTION = re.compile(r"^## Annotate in CVAT and train.*?(?=^## )", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^ +```\n(.*?)^ +```$", re.MULTILINE | re.DOTALL)


def test_from_voc_to_a_zip_for_cvat(tmp_path: Path) -> None:
    require("zip", shutil.which("zip") is not None)
    year = tmp_path / "VOCdevkit" / "VOC2007"
    shutil.copytree(ROOT / "examples" / "shapes_voc", year)
    train = year / "ImageSets" / "Main" / "train.txt"
    names = train.read_text().split()
    jpegs = [name for name in names if (year / f"JPEGImages/{name}.jpg").exists()]
    train.write_text("\n".join(jpegs) + "\n")  # VOC has no other images
    section = _SECTION.search((ROOT / "docs" / "cvat.md").read_text(encoding="utf-8"))
    assert section
    typed = "".join(_BLOCK.findall(section[0]))
    assert "--cvat task 42" in typed
    verdict = "...VALID for CVAT: 0 errors...\n"
    step = Step(1, typed.replace("--cvat task 42", "--for cvat"), output=verdict)
    assert run(step, tmp_path, environment(tmp_path)) is None
    with zipfile.ZipFile(tmp_path / "images.zip") as images:
        assert sorted(images.namelist()) == sorted(f"{name}.jpg" for name in jpegs)
    with zipfile.ZipFile(tmp_path / "anno.zip") as annotations:
        assert sorted(annotations.namelist()) == ["label_map.pbtxt", "pascal.tfrecord"]
