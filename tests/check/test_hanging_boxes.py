"""Boxes in pixels are told from boxes that hang over the edge by all boxes of their shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tfod.check.check import Options
from tfod.check.check import check_sources as check
from tfod.check.profiles.profile import OFF, READY
from tfod.detection.boxes import BoxCounts

from tests.records import encode, image, objects, write_shard

BOX = (0.25, 0.25, 0.5, 0.75)
HANGING = (-0.5, 0.25, 1.5, 2.25)
IN_PIXELS = (10.0, 5.0, 20.0, 15.0)


def shard(folder: Path, name: str, *boxes: tuple[float, ...]) -> str:
    """A record for each box."""
    records = [
        encode(image(f"{number}.jpg", 20, 40) | objects([one], ["cat"], [1]))
        for number, one in enumerate(boxes)
    ]
    return write_shard(folder, name, *records)


@pytest.mark.parametrize("part_bytes", [1 << 30, 300])
def test_each_shard_is_checked_by_all_its_boxes(tmp_path: Path, part_bytes: int) -> None:
    """However it is cut into parts, and beyond what is listed."""
    shard(tmp_path, "fractions", *[BOX] * 20, *[HANGING] * 9, *[IN_PIXELS] * 2)
    shard(tmp_path, "pixels", HANGING, HANGING, BOX)
    options = Options(profile=READY["cvat"], part_bytes=part_bytes, max_findings=12)
    report = check([str(tmp_path)], options)
    by_shard = {
        name: {code: count for code, count in counts.items() if code in ("BOX003", "BOX005")}
        for name, counts in report.counts.by_shard.items()
    }
    fractions, pixels = (
        by_shard[str(tmp_path / f"{name}.tfrecord")] for name in ("fractions", "pixels")
    )
    assert fractions == {"BOX003": 9, "BOX005": 2}
    assert pixels == {"BOX005": 2}
    output = [one.message for one in report.findings if one.code == "BOX003"]
    assert set(output) == {
        "box 0 reaches 1.25 of the image's side outside [0, 1]: "
        "xmin -0.5, ymin 0.25, xmax 1.5, ymax 2.25"
    }
    assert report.severities["BOX003"].value == "warning"


def test_a_rule_that_is_off_stays_off(tmp_path: Path) -> None:
    path = shard(tmp_path, "s", BOX, HANGING)
    options = Options(profile=READY["cvat"], severities={"BOX003": OFF})
    report = check([path], options)
    assert not {"BOX003", "BOX005"} & report.counts.by_code.keys()
    assert not {"BOX003", "BOX005"} & {one.code for one in report.findings}
    assert not {"BOX003", "BOX005"} & report.severities.keys()


def test_an_inverted_box_that_hangs_over_is_inverted(tmp_path: Path) -> None:
    path = shard(tmp_path, "s", BOX, BOX, (2.25, 0.25, 0.5, 0.75))
    report = check([path], Options(profile=READY["cvat"]))
    assert {"BOX003": 1, "BOX006": 1}.items() <= report.counts.by_code.items()


@pytest.mark.parametrize(
    ("boxes", "in_pixels"),
    [
        ([HANGING], 1),
        ([HANGING, BOX], 0),
        ([HANGING, HANGING, BOX], 2),
        ([IN_PIXELS, BOX, BOX], 1),
        ([(np.nan, 0, 9, 9), BOX], 0),
        ([], 0),
    ],
)
def test_tally(boxes: list[tuple[float, ...]], in_pixels: int) -> None:
    corners = np.array(boxes, np.float64).reshape(-1, 4)
    whole = BoxCounts.of(corners)
    parts = sum((BoxCounts.of(corners[n : n + 1]) for n in range(len(boxes))), BoxCounts())
    assert whole == parts
    assert whole.in_pixels == in_pixels
