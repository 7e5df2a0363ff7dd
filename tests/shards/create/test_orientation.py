"""Images with an EXIF orientation: TensorFlow decodes the pixels as they are stored.

What is expected follows from Pillow's ``exif_transpose``: a box is drawn on the image as it is
shown, and has to be where the same pixels are in the stored one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from tfod.detection.images.image import mask_turned_back, turned_back

from tests.commands import Run
from tests.shards.create.conftest import by_filename, float32
from tests.shards.create.one_image import FORMATS, NAME, assert_turned

STORED, SHOWN = (200, 100), (100, 200)
BOX = (10, 20, 40, 120)  # on the image as it is shown
TURNED = {
    5: [0.1, 0.1, 0.6, 0.4],
    6: [0.1, 0.6, 0.6, 0.9],
    7: [0.4, 0.6, 0.9, 0.9],
    8: [0.4, 0.1, 0.9, 0.4],
}
"""Where it is in the stored image."""
WITH_SIZES = ["coco", "pascal", "csv"]


def save(folder: Path, orientation: int, size: tuple[int, int] = STORED) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", size, "teal").save(folder / NAME, exif=exif)


def boxes_of(folder: Path) -> list[list[float]]:
    one = by_filename(folder / "out")[NAME]
    assert (one.width, one.height) == STORED
    found: list[list[float]] = one.boxes.tolist()
    return found


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pillow_turns_the_same_way(orientation: int) -> None:
    shown_size = STORED if orientation < 5 else SHOWN
    shown = np.zeros(shown_size[::-1], np.uint8)
    left, top, right, bottom = box = 10, 20, 40, 80
    shown[top:bottom, left:right] = 255
    stored = mask_turned_back(shown, orientation)
    assert stored.shape == STORED[::-1]
    image = Image.fromarray(stored)
    image.getexif()[0x0112] = orientation
    assert (np.asarray(ImageOps.exif_transpose(image)) == shown).all()
    corners = np.array(box, float).reshape(2, 2) / shown_size
    (x0, y0), (x1, y1) = np.sort(turned_back(corners, orientation), axis=0) * STORED
    rows, columns = np.nonzero(stored)
    filled = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert [x0, y0, x1, y1] == pytest.approx(filled)


@pytest.mark.parametrize("kind", WITH_SIZES)
@pytest.mark.parametrize("orientation", TURNED)
def test_annotated_as_it_is_shown(run: Run, tmp_path: Path, kind: str, orientation: int) -> None:
    save(tmp_path, orientation)
    ran = run(*FORMATS[kind](tmp_path, SHOWN, [BOX]))
    assert ran.code == 0, ran.err
    assert boxes_of(tmp_path) == pytest.approx(np.array([TURNED[orientation]], np.float32))
    assert ran.err.count("\n") == 1 and f"orientation {orientation})" in ran.err
    assert "1 images annotated as their EXIF orientation shows them, their annotations" in ran.err


@pytest.mark.parametrize("kind", WITH_SIZES)
@pytest.mark.parametrize("orientation", TURNED)
def test_annotated_as_it_is_stored(run: Run, tmp_path: Path, kind: str, orientation: int) -> None:
    save(tmp_path, orientation)
    ran = run(*FORMATS[kind](tmp_path, STORED, [(20, 10, 100, 50)]))
    assert ran.code == 0 and ran.err == ""
    assert boxes_of(tmp_path) == [float32([0.1, 0.1, 0.5, 0.5])]


@pytest.mark.parametrize(
    ("kind", "orientation", "size", "output"),
    [
        *((kind, 3, STORED, STORED) for kind in FORMATS),  # no size tells of it
        *((kind, 6, (100, 100), (100, 100)) for kind in FORMATS),  # square
        ("coco", 2, STORED, STORED),
        ("coco", 4, STORED, STORED),
        ("pascal", 6, STORED, None),
        ("csv", 6, STORED, None),
        ("coco", 6, STORED, None),
        ("pascal", 6, STORED, (50, 100)),  # a smaller copy was annotated
    ],
)
def test_sizes_that_do_not_tell(
    run: Run,
    tmp_path: Path,
    kind: str,
    orientation: int,
    size: tuple[int, int],
    output: tuple[int, int] | None,
) -> None:
    save(tmp_path, orientation, size)
    dataset = FORMATS[kind](tmp_path, output, [(10, 20, 40, 80)])
    ran = run(*dataset)
    assert ran.code == 2 and ran.err.count("\n") == 1 and not (tmp_path / "out").exists()
    assert "images with an EXIF orientation, and their sizes do not tell" in ran.err
    assert f"orientation {orientation}, {size[0]}x{size[1]}); look at one" in ran.err
    shown = size[::-1] if orientation > 4 else size
    width, height = output or shown
    if kind == "csv":
        width, height = shown
    box = np.array([[10 / width, 20 / height], [40 / width, 80 / height]])
    ran = run(*dataset, "--exif-orientation=applied")
    assert ran.code == 0 and "turned back to the stored pixels" in ran.err
    one = by_filename(tmp_path / "out")[NAME]
    expected = np.sort(turned_back(box, orientation), axis=0).reshape(1, 4)
    assert one.boxes == pytest.approx(expected.astype(np.float32))


@pytest.mark.parametrize("kind", FORMATS)
def test_annotations_that_ignore_it(run: Run, tmp_path: Path, kind: str) -> None:
    save(tmp_path, 3)
    dataset = FORMATS[kind](tmp_path, STORED, [(20, 10, 100, 50)])
    ran = run(*dataset, "--exif-orientation=ignored")
    assert ran.code == 0 and ran.err == ""
    assert boxes_of(tmp_path) == [float32([0.1, 0.1, 0.5, 0.5])]


@pytest.mark.parametrize("kind", WITH_SIZES)
@pytest.mark.parametrize("choice", ["applied", "ignored"])
def test_sizes_are_stronger_than_the_option(
    run: Run, tmp_path: Path, kind: str, choice: str
) -> None:
    save(tmp_path, 6)
    assert run(*FORMATS[kind](tmp_path, SHOWN, [BOX]), f"--exif-orientation={choice}").code == 0
    assert boxes_of(tmp_path) == pytest.approx(np.array([TURNED[6]], np.float32))


@pytest.mark.parametrize("kind", WITH_SIZES)
@pytest.mark.parametrize("orientation", [1, 3])
def test_sizes_exchanged_and_nothing_says_how(
    run: Run, tmp_path: Path, kind: str, orientation: int
) -> None:
    """The tool turned the image and its export lost the EXIF; or it exchanged the numbers."""
    save(tmp_path, orientation)
    dataset = FORMATS[kind](tmp_path, SHOWN, [(20, 10, 90, 50)])
    ran = run(*dataset)
    assert ran.code == 2 and not (tmp_path / "out").exists()
    assert "images whose annotation exchanges their height and width" in ran.err
    ran = run(*dataset, "--exif-orientation=ignored")
    assert ran.code == 0 and boxes_of(tmp_path) == [float32([0.1, 0.1, 0.45, 0.5])]


@pytest.mark.parametrize("kind", ["pascal", "csv"])
def test_boxes_that_contradict_the_size(run: Run, tmp_path: Path, kind: str) -> None:
    """The stored size is written, but the boxes fit only the turned image."""
    save(tmp_path, 6)
    ran = run(*FORMATS[kind](tmp_path, STORED, [BOX]), "--odd-boxes=clip")
    assert ran.code == 2 and not (tmp_path / "out").exists()
    assert "images whose boxes fit them only as their EXIF orientation shows them" in ran.err


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize("kind", [*WITH_SIZES, "coco --include-masks"])
def test_an_image_without_objects_has_no_box_of_another_size(
    run: Run, tmp_path: Path, kind: str, orientation: int
) -> None:
    """Nothing is divided by the size that its annotation gives, and no mask has to fit it."""
    save(tmp_path, orientation)
    name, *options = kind.split()
    ran = run(*FORMATS[name](tmp_path, SHOWN, []), *options)
    assert ran.code == 0 and ran.err == "", ran.err
    assert boxes_of(tmp_path) == []


def test_masks_and_keypoints_are_turned_too(run: Run, tmp_path: Path) -> None:
    save(tmp_path, 6)
    dataset = FORMATS["coco"](tmp_path, SHOWN, [BOX])
    found = (tmp_path / "a.json").read_text()
    points = found.replace('"segmentation"', '"keypoints": [10, 20, 2, 0, 0, 0], "segmentation"')
    points = points.replace('"name": "cat"', '"name": "cat", "keypoints": ["ear", "tail"]')
    (tmp_path / "k.json").write_text(points)
    ran = run(*dataset, "--include-masks", "--train-keypoint-annotations-file", tmp_path / "k.json")
    assert ran.code == 0, ran.err
    one = by_filename(tmp_path / "out")[NAME]
    assert one.keypoints is not None and one.masks is not None
    assert one.keypoints.xy[0].tolist() == [float32([0.1, 0.9]), [0, 0]]
    (mask,) = one.masks
    assert_turned(mask)
