"""Images with an EXIF orientation: they are rotated, and written with rotated annotations."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.dataset import Dataset
from PIL import Image, ImageDraw
from tfod.datumaro import compat
from tfod.datumaro.compat import annotation
from tfod.detection.detection import Detection
from tfod.detection.images.mask_images import decode_mask_png
from tfod.sources.reading import read_examples

from tests.datumaro.conftest import dataset_of, export, import_dataset, refusal
from tests.files import write_file, write_files
from tests.formats import one_image
from tests.formats.one_image import NAME
from tests.image_kinds import file_of
from tests.records import encode, image, objects, write_shard

STORED, SHOWN = (200, 100), (100, 200)
BOX = (10, 20, 40, 120)  # on the rotated image
NORMALIZED = np.array([[0.1, 0.1, 0.4, 0.6]], np.float32)
LYING = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT, (0.6, 0.1, 0.9, 0.6)),
    3: (Image.Transpose.ROTATE_180, (0.6, 0.4, 0.9, 0.9)),
    5: (Image.Transpose.TRANSPOSE, (0.1, 0.1, 0.6, 0.4)),
    6: (Image.Transpose.ROTATE_90, (0.1, 0.6, 0.6, 0.9)),
    7: (Image.Transpose.TRANSVERSE, (0.4, 0.6, 0.9, 0.9)),
    8: (Image.Transpose.ROTATE_270, (0.4, 0.1, 0.9, 0.4)),
}
"""The inverse of each orientation, and the box on the stored pixels."""
ROTATED = "images rotated by their EXIF orientation and stored without it: 1 (the first: "
ASSUMED = "images with an EXIF orientation whose size does not reveal how they were shown, assumed"


def photo(orientation: int) -> bytes:
    shown = Image.new("RGB", SHOWN, "teal")
    ImageDraw.Draw(shown).rectangle((10, 20, 39, 119), "red")
    exif = Image.Exif()
    exif[0x0112] = orientation
    return file_of(shown.transpose(LYING[orientation][0]), "JPEG", exif=exif, subsampling=0)


def size_of(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as opened:
        return opened.size


def assert_upright(encoded: Any) -> None:
    """Check that the red rectangle is in the same location for all readers."""
    with Image.open(io.BytesIO(encoded)) as opened:
        assert 0x0112 not in opened.getexif() and opened.size == SHOWN
        pixels = np.asarray(opened)
    assert extent((pixels[..., 0] > 150) & (pixels[..., 1] < 90)) == pytest.approx(BOX, abs=1)


def extent(mask: Any) -> tuple[int, int, int, int]:
    rows, columns = np.nonzero(mask)
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def coco(folder: Path, orientation: int, is_shown: bool = True) -> Dataset:
    """A photo in COCO, annotated on the rotated image or on the stored pixels."""
    stored = np.multiply(LYING[orientation][1], STORED * 2).round().tolist()
    size, box = (SHOWN, BOX) if is_shown else (STORED, stored)
    write_file(folder / "coco" / "images" / "train" / NAME, photo(orientation))
    annotations = folder / "coco" / "annotations"
    annotations.mkdir()
    one_image.coco(annotations, size, [box])
    (annotations / "a.json").rename(annotations / "instances_train.json")
    return Dataset.import_from(str(folder / "coco"), "coco")


def exported(dataset: Any, folder: Path, **options: Any) -> Detection:
    (one,) = export(dataset, folder, save_media=True, **options)
    assert (one.width, one.height) == SHOWN
    assert_upright(one.encoded)
    return one


Warnings = Callable[[], list[str]]


@pytest.mark.parametrize(
    ("orientation", "is_shown"),
    [*itertools.product((5, 6, 7, 8), (True, False)), (2, True), (3, True)],
)
def test_the_size_reveals_the_frame_of_boxes(
    tmp_path: Path, warnings: Warnings, orientation: int, is_shown: bool
) -> None:
    """Unless the orientation does not exchange height and width."""
    one = exported(coco(tmp_path, orientation, is_shown), tmp_path / "out", save_masks=True)
    assert one.boxes == pytest.approx(NORMALIZED)
    assert one.masks is not None and one.masks[0] is not None
    mask = decode_mask_png(one.masks[0].data)
    assert mask.shape == SHOWN[::-1] and extent(mask) == pytest.approx(BOX, abs=2)
    (message,) = warnings()
    assert ROTATED + f"{NAME})" in message
    assert (ASSUMED in message) is (orientation < 5)


@pytest.mark.parametrize("has_exif_rotation", [True, False])
def test_yolo_with_either_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_exif_rotation: bool
) -> None:
    """Releases of imagesize differ; Datumaro multiplies the boxes by their sizes."""
    if find_spec("imagesize"):  # Datumaro 0.3 decodes the image
        size = SHOWN if has_exif_rotation else STORED
        monkeypatch.setattr("imagesize.get", lambda *_, **__: size)
    files = {
        "obj.names": "cat\n",
        "obj.data": "classes = 1\nnames = data/obj.names\ntrain = data/train.txt\n",
        "train.txt": "data/obj_train_data/a.jpg\n",
        "obj_train_data/a.txt": "0 0.25 0.35 0.3 0.5\n",
        "obj_train_data/a.jpg": photo(6),
    }
    dataset = Dataset.import_from(str(write_files(tmp_path / "y", files)), "yolo")
    assert exported(dataset, tmp_path / "out").boxes == pytest.approx(NORMALIZED, abs=1e-4)


@pytest.mark.parametrize("orientation", LYING)
def test_boxes_of_shards_are_on_the_stored_pixels(
    tmp_path: Path, warnings: Warnings, orientation: int
) -> None:
    box = objects([LYING[orientation][1]], ["cat"], [1])
    data = photo(orientation)
    features = image(NAME, *size_of(data)[::-1]) | {"image/encoded": data}
    write_shard(tmp_path / "s", "train", encode(features | box))
    one = exported(import_dataset(tmp_path / "s"), tmp_path / "out")
    assert one.boxes == pytest.approx(NORMALIZED)
    assert any(ROTATED in line for line in warnings()) and ASSUMED not in str(warnings())


def dataset(data: bytes, size: tuple[int, int] | None, *annotations: Any) -> Any:
    media = compat.image_from_bytes(lambda *_: data, NAME, size)
    return dataset_of(compat.DatasetItem(id="a", media=media, annotations=list(annotations)))


BBOX = annotation.Bbox(10, 20, 30, 100, label=0)


def test_an_image_without_a_size(tmp_path: Path, warnings: Warnings) -> None:
    one = exported(dataset(photo(6), None, BBOX), tmp_path / "out")
    assert one.boxes == pytest.approx(NORMALIZED)
    assert ASSUMED in warnings()[0]


def test_an_image_in_another_format(tmp_path: Path) -> None:
    source = dataset(photo(6), SHOWN[::-1], BBOX)
    one = exported(source, tmp_path / "out", image_ext=".png")
    assert one.format == "png" and one.filename == "a.png"
    assert one.boxes == pytest.approx(NORMALIZED)


def test_an_image_that_cannot_be_rotated_is_an_error_of_its_item(tmp_path: Path) -> None:
    source = dataset(photo(6)[:700], SHOWN[::-1], BBOX)
    refused = refusal(source.export, str(tmp_path), "tf_detection_api", save_media=True)
    assert "image 'a.jpg' has an EXIF orientation and cannot be rotated (" in str(refused)


@pytest.mark.parametrize("is_shown", [True, False])
def test_other_formats(tmp_path: Path, is_shown: bool) -> None:
    source = coco(tmp_path, 6, is_shown)
    source.export(str(tmp_path / "out"), "tf_keras_coco", save_media=True)
    (one,) = read_examples(tmp_path / "out")
    assert_upright(one.byte_strings("image")[0])
    assert one.floats("bbox") == pytest.approx([10, 20, 30, 100])
    labelled = dataset(photo(6), SHOWN[::-1], annotation.Label(0))
    labelled.export(str(tmp_path / "c"), "tf_image_classification", save_media=True)
    (one,) = read_examples(tmp_path / "c")
    assert_upright(one.byte_strings("image_raw")[0])
    assert (one.ints("width"), one.ints("height")) == ([100], [200])
