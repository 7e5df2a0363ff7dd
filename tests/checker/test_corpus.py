"""Real shards have no false findings; the zips of examples/ have exactly their defects."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.report import Report

EXAMPLES = Path(__file__).parents[2] / "examples"
# NAM010: the OD API's scripts and their successors write the file name as the source id, which
# is an info for each shard.
EXPECTED = {
    "anki-overdrive-cars": ("tf_detection_api", {"NAM010": 1}),
    # BloodImage_00343.jpg has a platelet from 181, 329 to 181, 329: a slip of the mouse.
    "blood-cells": ("tf_detection_api", {"BOX007": 1, "NAM010": 1}),
    # For the tests of a reader: image/encoded is empty in all three records.
    "datumaro-roboflow": ("roboflow", {"IMG001": 3}),
    # For the tests of a reader: an object without a class (id 0, no text), few classes in use.
    "datumaro-tf-detection-api": ("tf_detection_api", {"LAB009": 1, "LAB010": 1, "LAB013": 8}),
    "drawn-rectangles": ("tf_detection_api", {"NAM010": 2}),
    "hyphal-tips": ("tf_detection_api", {"NAM010": 2}),
    # A table of passengers, and one of widths and heights: no images, no boxes.
    "titanic-table": ("none", {"EXA010": 1}),
    "viewer-sample": ("none", {"EXA010": 1}),
}


def check(path: Path) -> Report:
    return check_sources([str(path)], Options(decode=None))


def test_all_folders_are_expected(corpus: Path) -> None:
    assert {path.name for path in corpus.iterdir() if path.is_dir()} == set(EXPECTED)


@pytest.mark.parametrize("folder", EXPECTED)
def test_findings_in_real_shards(corpus: Path, figures: dict[str, Any], folder: str) -> None:
    profile, codes = EXPECTED[folder]
    report = check(corpus / folder)
    assert report.profile.name == profile
    assert report.counts.by_code == codes, report.flatten("code", "message", "record")
    shards = [one for name, one in figures.items() if name.startswith(f"{folder}/")]
    assert report.counts.shards == len(shards)
    assert report.counts.records == sum(one["records"] for one in shards)
    if profile != "none":
        assert report.counts.boxes == sum(one["boxes"] for one in shards)
        texts = sum((Counter(one["class_text"]) for one in shards), Counter[str]())
        del texts[""]
        assert {k: v for k, v in report.classes.items() if k in texts} == texts


def test_examples() -> None:
    good, broken = (check(EXAMPLES / f"shapes_{name}.zip") for name in ("good", "broken"))
    assert good.valid and not good.findings and not broken.valid
    assert (good.counts.records, good.counts.boxes) == (12, 34)
    assert {(one.code, one.item) for one in broken.findings} == {
        ("BOX003", "shapes_02.jpg"),
        ("LAB006", "shapes_04.jpg"),
        ("BOX006", "shapes_05.jpg"),
        ("BOX009", "shapes_08.jpg"),
        ("IMG009", "shapes_10.jpg"),
        ("IMG006", "shapes_11.jpg"),
        ("TFR004", None),
    }


def test_the_script_writes_the_examples(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "pack_shapes.py", tmp_path], check=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["shapes_broken.zip", "shapes_good.zip"]
    for name in names:
        assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes()
