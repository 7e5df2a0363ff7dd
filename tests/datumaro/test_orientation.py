"""Images with an EXIF orientation: they are written upright, with all on them where it is seen."""

from __future__ import annotations

import io
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
from tfod.sources.reading import read_detections, read_examples

from tests.datumaro.conftest import dataset_of, import_dataset, refusal
from tests.files import write_files
from tests.formats import one_image
from tests.formats.one_image import NAME
from tests.image_kinds import file_of
from tests.records import encode, image, objects, write_shard

STORED, SHOWN = (200, 100), (100, 200)
BOX = (10, 20, 40, 120)  # on the image as it is shown
NORMALIZED = np.array([[0.1, 0.1, 0.4, 0.6]], np.float32)
LYING = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT, (0.6, 0.1, 0.9, 0.6)),
    3: (Image.Transpose.ROTATE_180, (0.6, 0.4, 0.9, 0.9)),
    5: (Image.Transpose.TRANSPOSE, (0.1, 0.1, 0.6, 0.4)),
    6: (Image.Transpose.ROTATE_90, (0.1, 0.6, 0.6, 0.9)),
    7: (Image.Transpose.TRANSVERSE, (0.4, 0.6, 0.9, 0.9)),
    8: (Image.Transpose.ROTATE_270, (0.4, 0.1, 0.9, 0.4)),
}
"""How the pixels are stored that an orientation turns upright, and where the box is on them."""
TURNED = "images rotated by their EXIF orientation and stored without it: 1 (the first: "
TAKEN = (
    "images with an EXIF orientation whose size does not reveal how they were shown, assumed to "
    f"be annotated upright: 1 (the first: {NAME})"
)


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
    """See that the red rectangle is where people see it, for readers of all kinds."""
    with Image.open(io.BytesIO(encoded)) as opened:
        assert 0x0112 not in opened.getexif() and opened.size == SHOWN
        pixels = np.asarray(opened)
    rows, columns = np.nonzero((pixels[..., 0] > 150) & (pixels[..., 1] < 90))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == pytest.approx(
        BOX, abs=1
    )


def coco(folder: Path, orientation: int, size: tuple[int, int], box: Any = BOX) -> Dataset:
    images, annotations = folder / "coco" / "images" / "train", folder / "coco" / "annotations"
    images.mkdir(parents=True)
    annotations.mkdir()
    (images / NAME).write_bytes(photo(orientation))
    one_image.coco(annotations, size, [box])
    (annotations / "a.json").rename(annotations / "instances_train.json")
    return Dataset.import_from(str(folder / "coco"), "coco")


def exported(dataset: Any, folder: Path, **options: Any) -> Detection:
    dataset.export(str(folder), "tf_detection_api", save_media=True, **options)
    (one,) = read_detections(str(folder))
    assert (one.width, one.height) == SHOWN
    assert_upright(one.encoded)
    return one


Warnings = Callable[[], list[str]]


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
@pytest.mark.parametrize("is_shown", [True, False])
def test_sizes_tell_what_boxes_were_drawn_on(
    tmp_path: Path, warnings: Warnings, orientation: int, is_shown: bool
) -> None:
    stored = np.multiply(LYING[orientation][1], STORED * 2).round().tolist()
    box, size = (BOX, SHOWN) if is_shown else (stored, STORED)
    one = exported(coco(tmp_path, orientation, size, box), tmp_path / "out")
    assert one.boxes == pytest.approx(NORMALIZED)
    (said,) = warnings()
    assert TURNED + f"{NAME})" in said and TAKEN not in said


@pytest.mark.parametrize("is_shown", [True, False])
def test_masks_are_turned_too(tmp_path: Path, is_shown: bool) -> None:
    box, size = (BOX, SHOWN) if is_shown else ((20, 60, 120, 90), STORED)
    one = exported(coco(tmp_path, 6, size, box), tmp_path / "out", save_masks=True)
    assert one.masks is not None and one.masks[0] is not None
    mask = decode_mask_png(one.masks[0].data)
    rows, columns = np.nonzero(mask)
    found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    assert mask.shape == SHOWN[::-1] and found == pytest.approx(BOX, abs=2)


@pytest.mark.parametrize("orientation", [2, 3])
def test_what_the_size_does_not_tell_is_upright_and_said(
    tmp_path: Path, warnings: Warnings, orientation: int
) -> None:
    one = exported(coco(tmp_path, orientation, SHOWN), tmp_path / "out")
    assert one.boxes == pytest.approx(NORMALIZED)
    assert TURNED in warnings()[0] and TAKEN in warnings()[0]


@pytest.mark.parametrize("has_exif_rotation", [True, False])
def test_yolo_is_upright_whatever_size_its_importer_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_exif_rotation: bool
) -> None:
    """Releases of imagesize differ; Datumaro multiplies the boxes by what they say."""
    if find_spec("imagesize"):  # the old line decodes the image
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
def test_shards_have_their_boxes_on_the_stored_pixels(
    tmp_path: Path, warnings: Warnings, orientation: int
) -> None:
    box = objects([LYING[orientation][1]], ["cat"], [1])
    data = photo(orientation)
    features = image(NAME, *size_of(data)[::-1]) | {"image/encoded": data}
    write_shard(tmp_path / "s", "train", encode(features | box))
    one = exported(import_dataset(tmp_path / "s"), tmp_path / "out")
    assert one.boxes == pytest.approx(NORMALIZED)
    assert any(TURNED in said for said in warnings()) and TAKEN not in str(warnings())


def item(orientation: int, size: tuple[int, int] | None, *annotations: Any) -> Any:
    data = photo(orientation)
    media = compat.image_from_bytes(lambda *_: data, NAME, size)
    return compat.DatasetItem(id="000001", media=media, annotations=list(annotations))


def bbox() -> Any:
    return annotation.Bbox(10, 20, 30, 100, label=0)


def test_an_image_without_a_size_is_upright(tmp_path: Path, warnings: Warnings) -> None:
    dataset = dataset_of(item(6, None, bbox()))
    assert exported(dataset, tmp_path / "out").boxes == pytest.approx(NORMALIZED)
    assert TAKEN in warnings()[0]


def test_an_image_that_gets_another_format(tmp_path: Path) -> None:
    dataset = dataset_of(item(6, SHOWN[::-1], bbox()))
    one = exported(dataset, tmp_path / "out", image_ext=".png")
    assert one.format == "png" and one.filename == "000001.png"
    assert one.boxes == pytest.approx(NORMALIZED)


def test_an_image_that_cannot_be_turned_is_an_error_of_its_item(tmp_path: Path) -> None:
    data = photo(6)[:700]
    media = compat.image_from_bytes(lambda *_: data, NAME, SHOWN[::-1])
    dataset = dataset_of(compat.DatasetItem(id="1", media=media, annotations=[bbox()]))
    refused = refusal(dataset.export, str(tmp_path), "tf_detection_api", save_media=True)
    assert "image '1.jpg' has an EXIF orientation and cannot be rotated (" in str(refused)


@pytest.mark.parametrize("is_shown", [True, False])
def test_other_formats_are_upright_too(tmp_path: Path, is_shown: bool) -> None:
    dataset = coco(tmp_path, 6, *((SHOWN, BOX) if is_shown else (STORED, (20, 60, 120, 90))))
    dataset.export(str(tmp_path / "out"), "tf_keras_coco", save_media=True)
    (one,) = read_examples(tmp_path / "out")
    assert_upright(one.byte_strings("image")[0])
    assert one.floats("bbox") == pytest.approx([10, 20, 30, 100])
    labelled = dataset_of(item(6, SHOWN[::-1], annotation.Label(0)))
    labelled.export(str(tmp_path / "c"), "tf_image_classification", save_media=True)
    (one,) = read_examples(tmp_path / "c")
    assert_upright(one.byte_strings("image_raw")[0])
    assert (one.ints("width"), one.ints("height")) == ([100], [200])
