"""The examples, as Datumaro's own importers of their formats want them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tfod

from tests.commands import run_program

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("source", "source_format", "boxes"),
    [
        ("shapes_voc", "voc", 34),
        ("shapes_coco", "coco", 35),  # and a crowd
        ("shapes_roboflow.zip", "roboflow_tfrecord", 34),
    ],
)
def test_every_example_is_converted_as_it_lies(
    source: str, source_format: str, boxes: int, tmp_path: Path
) -> None:
    command = ["datum", "convert", "-i", str(EXAMPLES / source), "-if", source_format]
    command += ["-f", "tf_detection_api", "-o", "out", "--", "--save-media"]
    code, printed = run_program(command, tmp_path, os.environ)
    assert code == 0, printed
    found = list(tfod.read_detections(str(tmp_path / "out")))
    assert sum(len(one.boxes) for one in found) == boxes
    assert all(one.encoded for one in found)
