"""Real shards: no false alarm, and everything that does fire has its reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options, check_sources

# What fires, how often, and why that is right. NAM010: the OD API's scripts and those after them
# write the file name as the source id, which an info says of each shard.
EXPECTED = {
    "anki-overdrive-cars": ("tf_detection_api", {"NAM010": 1}),
    # BloodImage_00343.jpg has a platelet from 181, 329 to 181, 329: a slip of the mouse.
    "blood-cells": ("tf_detection_api", {"BOX007": 1, "NAM010": 1}),
    # Made for the tests of a reader: image/encoded is empty in all three records.
    "datumaro-roboflow": ("roboflow", {"IMG001": 3}),
    # Made for the tests of a reader: an object without a class (id 0, no text), few classes in use.
    "datumaro-tf-detection-api": ("tf_detection_api", {"LAB009": 1, "LAB010": 1, "LAB013": 8}),
    "drawn-rectangles": ("tf_detection_api", {"NAM010": 2}),
    "hyphal-tips": ("tf_detection_api", {"NAM010": 2}),
    # A table of passengers, and one of widths and heights: no images, no boxes.
    "titanic-table": ("none", {"EXA010": 1}),
    "viewer-sample": ("none", {"EXA010": 1}),
}


def test_every_folder_of_the_corpus_is_here(corpus: Path) -> None:
    assert {path.name for path in corpus.iterdir() if path.is_dir()} == set(EXPECTED)


@pytest.mark.parametrize("folder", EXPECTED)
def test_what_fires(corpus: Path, figures: dict[str, Any], folder: str) -> None:
    profile, codes = EXPECTED[folder]
    report = check_sources([str(corpus / folder)], Options(decode=None))
    assert report.profile.name == profile
    assert report.counts.by_code == codes, report.flatten("code", "message", "record")
    shards = {name: one for name, one in figures.items() if name.startswith(f"{folder}/")}
    assert report.counts.shards == len(shards)
    assert report.counts.records == sum(one["records"] for one in shards.values())
    if profile != "none":
        assert report.counts.boxes == sum(one["boxes"] for one in shards.values())
        texts = sum((Counter(one["class_text"]) for one in shards.values()), Counter[str]())
        del texts[""]
        assert {k: v for k, v in report.classes.items() if k in texts} == texts
