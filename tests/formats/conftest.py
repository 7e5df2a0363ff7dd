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
from tfod.sources.reading import read_detections

from tests.commands import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
VOC = EXAMPLES / "shapes_voc"
COCO = EXAMPLES / "shapes_coco" / "annotations"
IMAGES = VOC / "JPEGImages"


@pytest.fixture
def convert(run: Run) -> Run:
    """Run ``tfod convert …``."""
    return partial(run, "convert")


Read = Callable[..., tuple[dict[str, Detection], str]]
"""The fixture ``read``."""
Refuse = Callable[..., str]
"""The fixture ``refuse``."""


@pytest.fixture
def read(convert: Run, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Convert to a shard (only the subset train); return its records by name, and messages."""

    def read_shard(source: Path, *options: object) -> tuple[dict[str, Detection], str]:
        out = tmp_path_factory.mktemp("out") / "x.record"
        said = convert(source, out, "--set", "train", *options).succeeded()
        return by_filename(out), said

    return read_shard


@pytest.fixture
def refuse(convert: Run, tmp_path_factory: pytest.TempPathFactory) -> Refuse:
    """Expect the refusal of a conversion to a shard, and return the line with the reason."""

    def refused_line(source: Path, *options: object) -> str:
        folder = tmp_path_factory.mktemp("out")
        line = convert(source, folder / "x.record", "--set", "train", *options).refused()
        assert line.startswith("tfod: ") and not list(folder.iterdir())
        return line

    return refused_line


def by_filename(source: object) -> dict[str, Detection]:
    """Return the records of shards by name."""
    return {one.filename or "": one for one in read_detections(str(source))}


def float32(values: Any) -> list[Any]:
    """Return values in single precision."""
    found: list[Any] = np.asarray(values, "<f4").tolist()
    return found


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """A copy of the VOC example."""
    return Path(shutil.copytree(VOC, tmp_path / "voc"))


def edited_json(path: Path, edit: Callable[[Mapping[str, Any]], None], to: Path) -> Path:
    """Write a copy of a JSON file after an edit, and return its path."""
    found = json.loads(path.read_text())
    edit(found)
    to.write_text(json.dumps(found))
    return to
