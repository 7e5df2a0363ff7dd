"""The example data sets, and the command run in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.detection import Detection
from tfod.detection.stream import read_detections

from tests.commands import Run

EXAMPLES = Path(__file__).parents[3] / "examples"
VOC = EXAMPLES / "shapes_voc"
COCO = EXAMPLES / "shapes_coco" / "annotations"
IMAGES = VOC / "JPEGImages"


@pytest.fixture
def run(run: Run) -> Run:
    """Run ``tfod create …``."""
    return partial(run, "create")


def coco_arguments(name: str = "train", file: Path | None = None) -> list[object]:
    """The options that name a set of the example."""
    file = file or COCO / f"instances_{name}.json"
    return ["coco", f"--{name}-image-dir", IMAGES, f"--{name}-annotations-file", file]


def by_filename(source: object) -> dict[str | None, Detection]:
    """The records of shards."""
    return {one.filename: one for one in read_detections(str(source))}


def float32(values: Any) -> list[Any]:
    """Values as a float_list gives them back."""
    found: list[Any] = np.asarray(values, "<f4").tolist()
    return found


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """A copy of the VOC example, to be spoiled."""
    return Path(shutil.copytree(VOC, tmp_path / "voc"))


def edited_json(path: Path, edit: Callable[[Mapping[str, Any]], None], to: Path) -> Path:
    """A copy of a JSON file after an edit."""
    found = json.loads(path.read_text())
    edit(found)
    to.write_text(json.dumps(found))
    return to
