"""Images with an EXIF orientation: what goes into a record is of the stored pixels."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from datumaro.components.dataset import Dataset
from PIL import Image
from tfod.detection.detection import Detection
from tfod.detection.stream import read_detections

from tests.shards.create import one_image

STORED, SHOWN = (200, 100), (100, 200)
BOX = (10, 20, 40, 120)


def exported(folder: Path, orientation: int, size: tuple[int, int], **options: bool) -> Detection:
    """A COCO dataset of one image, through Datumaro."""
    images, annotations = folder / "coco" / "images" / "train", folder / "coco" / "annotations"
    images.mkdir(parents=True)
    annotations.mkdir()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", STORED, "teal").save(images / one_image.NAME, exif=exif)
    one_image.coco(annotations, size, [BOX])
    (annotations / "a.json").rename(annotations / "instances_train.json")
    dataset = Dataset.import_from(str(folder / "coco"), "coco")
    dataset.export(str(folder / "out"), "tf_detection_api", save_media=True, **options)
    (detection,) = read_detections(str(folder / "out"))
    return detection


@pytest.mark.parametrize(
    ("orientation", "box"),
    [
        (5, [0.1, 0.1, 0.6, 0.4]),
        (6, [0.1, 0.6, 0.6, 0.9]),
        (7, [0.4, 0.6, 0.9, 0.9]),
        (8, [0.4, 0.1, 0.9, 0.4]),
    ],
)
def test_boxes_of_the_turned_image_are_turned_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, orientation: int, box: list[float]
) -> None:
    with caplog.at_level(logging.WARNING):
        one = exported(tmp_path, orientation, SHOWN)
    assert (one.width, one.height) == STORED
    assert one.boxes == pytest.approx(np.array([box], np.float32))
    assert "turned back to the stored pixels: 1 (the first: 000001.jpg)" in caplog.text


def test_masks_are_turned_back(tmp_path: Path) -> None:
    one = exported(tmp_path, 6, SHOWN, save_masks=True)
    assert one.masks is not None
    (mask,) = one.masks
    one_image.assert_turned(mask)


def test_boxes_of_the_stored_pixels_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        one = exported(tmp_path, 6, STORED)
    assert one.boxes == pytest.approx(np.array([[0.05, 0.2, 0.2, 1.2]], np.float32))
    assert "EXIF" not in caplog.text


def test_what_the_size_does_not_tell_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        exported(tmp_path, 3, STORED)
    assert (
        "EXIF orientation, taken to be of the stored pixels, which nothing tells: 1" in caplog.text
    )
