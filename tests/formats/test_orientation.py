"""Images with an EXIF orientation: in which frame their boxes were drawn, and where they come.

What is expected follows from Pillow's ``exif_transpose``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tfod.detection.detection import Detection
from tfod.detection.images.exif_rotation import unrotate_points
from tfod.detection.images.mask_images import decode_mask_png

from tests.commands import Run
from tests.formats.conftest import by_filename, float32
from tests.formats.one_image import FORMATS, NAME, assert_turned

STORED, SHOWN = (200, 100), (100, 200)
BOX = (10, 20, 40, 120)  # on the image as it is shown
NORMALIZED = [0.1, 0.1, 0.4, 0.6]
TURNED_BACK = {
    5: [0.1, 0.1, 0.6, 0.4],
    6: [0.1, 0.6, 0.6, 0.9],
    7: [0.4, 0.6, 0.9, 0.9],
    8: [0.4, 0.1, 0.9, 0.4],
}
"""Where it is in the stored image."""
TURNED = "images rotated by their EXIF orientation and stored without it: 1 (the first: "
PUT_BACK = (
    "images whose boxes were drawn on the rotated image, moved to the stored pixels: 1 (the first"
)
TAKEN = "images with an EXIF orientation whose size does not reveal how they were shown, assumed"


def save(folder: Path, orientation: int, size: tuple[int, int] = STORED) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", size, "teal").save(folder / NAME, exif=exif)
    return (folder / NAME).read_bytes()


def written(folder: Path, size: tuple[int, int] = SHOWN) -> Detection:
    one = by_filename(folder / "out")[NAME]
    assert (one.width, one.height) == size
    return one


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("orientation", TURNED_BACK)
def test_annotated_as_it_is_stored(
    convert: Run, tmp_path: Path, kind: str, orientation: int
) -> None:
    save(tmp_path, orientation)
    box = np.multiply(TURNED_BACK[orientation], STORED * 2).round().astype(int).tolist()
    dataset = FORMATS[kind](tmp_path, STORED, [box])
    assert TURNED in convert(*dataset).succeeded()
    assert written(tmp_path).boxes == pytest.approx(np.array([NORMALIZED], np.float32))
    says = convert(*dataset, "--exif=keep", "--overwrite").succeeded()
    assert "EXIF" not in says
    assert written(tmp_path, STORED).boxes.tolist() == [float32(TURNED_BACK[orientation])]


@pytest.mark.parametrize(
    ("kind", "orientation", "size", "output"),
    [
        *((kind, 3, STORED, STORED) for kind in FORMATS),  # no size tells of it
        *((kind, 6, (100, 100), (100, 100)) for kind in FORMATS),  # square
        *((kind, 6, STORED, None) for kind in FORMATS),
        ("coco", 2, STORED, STORED),
        ("coco", 4, STORED, STORED),
        ("voc", 6, STORED, (50, 100)),  # a smaller copy was annotated
    ],
)
def test_sizes_that_do_not_tell(
    convert: Run,
    tmp_path: Path,
    kind: str,
    orientation: int,
    size: tuple[int, int],
    output: tuple[int, int] | None,
) -> None:
    """It was drawn upright, as every tool of today shows it."""
    save(tmp_path, orientation, size)
    shown = size[::-1] if orientation > 4 else size
    dataset = FORMATS[kind](tmp_path, output, [(10, 20, 40, 80)])
    says = convert(*dataset).succeeded()
    assert TAKEN in says and TURNED in says and says.count("\n") == 1
    assert f"orientation {orientation}, {size[0]}x{size[1]})" in says
    expected = np.divide((10, 20, 40, 80), (output or shown) * 2).astype(np.float32)
    assert written(tmp_path, shown).boxes.tolist() == [expected.tolist()]
    says = convert(*dataset, "--exif=keep", "--overwrite").succeeded()
    assert TAKEN in says and PUT_BACK in says
    corners = np.sort(unrotate_points(expected.reshape(2, 2), orientation), axis=0).reshape(1, 4)
    assert written(tmp_path, size).boxes == pytest.approx(corners)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("orientation", [1, 3])
def test_sizes_exchanged_and_nothing_says_how(
    convert: Run, tmp_path: Path, kind: str, orientation: int
) -> None:
    """The tool turned the image and its export lost the EXIF; or it exchanged the numbers."""
    save(tmp_path, orientation)
    says = convert(*FORMATS[kind](tmp_path, SHOWN, [(20, 10, 90, 50)])).refused()
    assert "images whose annotated height and width are swapped" in says
    assert not (tmp_path / "out").exists()


def test_masks_and_keypoints_are_turned_too(convert: Run, tmp_path: Path) -> None:
    save(tmp_path, 6)
    source, target, *_ = FORMATS["coco"](tmp_path, SHOWN, [BOX])
    text = Path(str(source)).read_text()
    text = text.replace('"segmentation"', '"keypoints": [10, 20, 2, 0, 0, 0], "segmentation"')
    text = text.replace('"name": "cat"', '"name": "cat", "keypoints": ["ear", "tail"]')
    Path(str(source)).write_text(text)
    convert(source, target, "--masks").succeeded()
    one = written(tmp_path)
    assert one.keypoints is not None and one.masks is not None and one.masks[0] is not None
    assert one.keypoints.xy[0].tolist() == [float32([0.1, 0.1]), [0, 0]]
    shown = decode_mask_png(one.masks[0].data)
    assert shown.shape == SHOWN[::-1] and shown[21, 38] and not shown[118, 11]
    kept = convert(source, target, "--masks", "--exif=keep", "--overwrite")
    assert kept.code == 0
    one = written(tmp_path, STORED)
    assert one.keypoints is not None and one.masks is not None
    assert one.keypoints.xy[0].tolist() == [float32([0.1, 0.9]), [0, 0]]
    (mask,) = one.masks
    assert_turned(mask)
    # From shards, whose masks lie on the stored pixels, back to where they were drawn.
    convert(target, tmp_path / "again", "--to=shards").succeeded()
    (again,) = by_filename(tmp_path / "again").values()
    assert again.masks is not None and again.masks[0] is not None and again.keypoints is not None
    np.testing.assert_array_equal(decode_mask_png(again.masks[0].data), shown)
    assert again.keypoints.xy[0] == pytest.approx(np.array([[0.1, 0.1], [0, 0]]))


@pytest.mark.parametrize("kind", FORMATS)
def test_without_images_the_annotations_say_it_all(convert: Run, tmp_path: Path, kind: str) -> None:
    dataset = FORMATS[kind](tmp_path, SHOWN, [BOX])
    assert "EXIF" not in convert(*dataset, "--no-images").succeeded()
    one = written(tmp_path)
    assert one.boxes.tolist() == [float32(NORMALIZED)] and not one.encoded
