"""The examples, as Datumaro's own importers of their formats want them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tfod

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("source", "source_format", "boxes"),
    [
        ("shapes_voc", "voc", 34),
        ("shapes_coco", "coco", 35),  # and a crowd
        ("shapes_csv", "tf_detection_csv", 34),
        ("shapes_kitti", "kitti", 7),
        ("shapes_open_images", "open_images", 4),
        ("shapes_roboflow.zip", "roboflow_tfrecord", 34),
    ],
)
def test_every_example_is_converted_as_it_lies(
    source: str, source_format: str, boxes: int, tmp_path: Path
) -> None:
    subprocess.run(
        [Path(sys.executable).with_name("datum"), "convert", "-i", EXAMPLES / source,
         "-if", source_format, "-f", "tf_detection_api", "-o", "out", "--", "--save-media"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )  # fmt: skip
    found = list(tfod.read_detections(str(tmp_path / "out")))
    assert sum(len(one.boxes) for one in found) == boxes
    assert all(one.encoded for one in found)
