"""Boxes whose columns are in the wrong order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tfod.tfrecord.writer import write_records

from tests.commands import Run
from tests.files import write_files
from tests.mutants.sound import HEIGHT, LABEL_MAP, WIDTH, png, with_boxes

Box = tuple[float, float, float, float]


def some_boxes(count: int = 40) -> list[Box]:
    """Boxes all over an image of 40 x 20 pixels: xmin, ymin, xmax, ymax."""
    random = np.random.default_rng(3)
    low = random.uniform((0, 0), (WIDTH - 4, HEIGHT - 4), (count, 2))
    high = low + random.uniform(2, (WIDTH, HEIGHT) - low, (count, 2))
    return [tuple(box) for box in np.hstack((low, high)).tolist()]


def divided(box: Sequence[float]) -> Box:
    """Divide like a script that expects xmin, ymin, xmax, ymax."""
    return box[0] / WIDTH, box[1] / HEIGHT, box[2] / WIDTH, box[3] / HEIGHT


def write_boxes(folder: Path, boxes: Sequence[Sequence[float]]) -> Path:
    """A shard with a record for each box, and its label map."""
    records = (
        # Each image is different.
        with_boxes([box], name=f"{n}.png", encoded=png() + bytes([n]))
        for n, box in enumerate(boxes)
    )
    write_records(folder, "train", records)
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    return folder


# Orders of real scripts, and the order that would be right.
ORDERS = {
    # The children of bndbox in the order of Open Images, read by position.
    (0, 2, 1, 3): "ymin=xmax,xmax=ymin in pixels",
    (1, 0, 3, 2): "xmin=ymin,ymin=xmin,xmax=ymax,ymax=xmax in pixels",
    (2, 3, 0, 1): "xmin=xmax,ymin=ymax,xmax=xmin,ymax=ymin",
    (1, 3, 0, 2): "xmin=xmax,ymin=xmin,xmax=ymax,ymax=ymin in pixels",
}


@pytest.mark.parametrize("columns", ORDERS)
def test_the_order_is_named(columns: tuple[int, ...], tmp_path: Path, run: Run) -> None:
    boxes = [divided([box[column] for column in columns]) for box in some_boxes()]
    source = write_boxes(tmp_path / "in", boxes)
    for command in (["check", source], ["repair", source, tmp_path / "out"]):
        status, out, _ = run(*command)
        assert status == 1 and "\nBOX013 error: " in out
        assert f"if the columns were read as {ORDERS[columns]}" in " ".join(out.split())


def test_fractions_fit_two_orders_and_both_are_named(tmp_path: Path, run: Run) -> None:
    """Fractions in another order also fit if they are mirrored: a person has to look."""
    boxes = [divided(box) for box in some_boxes()]
    source = write_boxes(tmp_path / "in", [(box[0], box[2], box[1], box[3]) for box in boxes])
    out = " ".join(run("check", source).out.split())
    assert "read as ymin=xmax,xmax=ymin or xmin=xmax,ymin=xmin,xmax=ymax" in out


def test_a_set_of_small_shards_is_checked_as_one(tmp_path: Path, run: Run) -> None:
    """Three boxes per shard are too few for a finding."""
    boxes = [divided([box[column] for column in (0, 2, 1, 3)]) for box in some_boxes(30)]
    for n in range(10):
        part = write_boxes(tmp_path / f"{n}", boxes[3 * n : 3 * n + 3]) / "train.tfrecord"
        write_files(tmp_path / "in", {f"train-{n:05d}-of-00010.tfrecord": part.read_bytes()})
    write_files(tmp_path / "in", {"label_map.pbtxt": LABEL_MAP})
    status, out, _ = run("check", tmp_path / "in")
    assert status == 1 and out.count("BOX013 error") == 1 and ORDERS[0, 2, 1, 3] in out
