"""Photos with an EXIF orientation: readers of every format see the box on its object.

A red rectangle on a teal ground is annotated on the rotated image, but in shards on the stored
pixels. The expected values are from Pillow's ``exif_transpose``.
"""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms, ImageDraw, ImageOps
from PIL.JpegImagePlugin import get_sampling
from tfod.detection.detection import Detection
from tfod.detection.images.exif_rotation import read_orientation, rotate_image, unrotate_points
from tfod.detection.images.mask_images import decode_mask_png
from tfod.formats.table import FORMATS
from tfod.sources.reading import read_detections

from tests.commands import Run
from tests.files import write_file
from tests.formats import one_image
from tests.formats.conftest import by_filename, float32
from tests.formats.one_image import NAME, assert_turned
from tests.image_kinds import exif_block, file_of, plain_image, with_segment
from tests.records import encode, image, objects, write_shard

WIDTH, HEIGHT = 160, 96
RED = (0.2, 0.5, 0.5, 0.75)
"""The rectangle on the rotated image, normalized."""
_T = Image.Transpose
STORE = {
    2: _T.FLIP_LEFT_RIGHT,
    3: _T.ROTATE_180,
    4: _T.FLIP_TOP_BOTTOM,
    5: _T.TRANSPOSE,
    6: _T.ROTATE_90,
    7: _T.TRANSVERSE,
    8: _T.ROTATE_270,
}
"""The inverse of each orientation."""
NAMES = {**{f"a{orientation}.jpg": orientation for orientation in STORE}, "b3.png": 3, "b6.png": 6}
WEBP = {"c5.webp": 5, "c8.webp": 8}  # which TensorFlow's decode_image does not read
ROTATED = "images rotated by their EXIF orientation and stored without it"
MOVED = "images whose boxes were drawn on the rotated image, moved to the stored pixels"
ASSUMED = "images with an EXIF orientation whose size does not reveal how they were shown, assumed"


@cache
def picture(mode: str = "RGB") -> Image.Image:
    found = Image.new("RGB", (WIDTH, HEIGHT), "teal")
    left, top, right, bottom = np.multiply(RED, (WIDTH, HEIGHT) * 2).astype(int).tolist()
    ImageDraw.Draw(found).rectangle((left, top, right - 1, bottom - 1), "red")
    return found.convert(mode)


def photo(orientation: int, kind: str = "JPEG", mode: str = "RGB", **how: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = orientation, "tfod's camera"
    exif.get_ifd(0x8769)[0x9003] = "2026:11:27 12:00:00"
    best = {"lossless": True} if kind == "WEBP" else {"quality": 95, "subsampling": 0}
    stored = picture(mode).transpose(STORE[orientation])
    return file_of(stored, kind, exif=exif.tobytes(), **{**best, **how})


@cache
def bytes_of(name: str) -> bytes:
    return photo(int(name[1]), {"jpg": "JPEG"}.get(name[3:], name[3:].upper()))


def stored_box(orientation: int, box: Any = RED) -> list[float]:
    """Return the box on the stored pixels of a box on the rotated image; both are normalized."""
    left, top, right, bottom = (round(side) for side in np.multiply(box, 100))
    drawn = Image.new("1", (100, 100))
    ImageDraw.Draw(drawn).rectangle((left, top, right - 1, bottom - 1), 1)
    extent = drawn.transpose(STORE[orientation]).getbbox()
    assert extent is not None
    return [side / 100 for side in extent]


def write_shards(folder: Path, names: Mapping[str, int], *, is_upright: bool) -> Path:
    records = []
    for name, orientation in names.items():
        plain = file_of(picture(), "PNG" if name.endswith("png") else "JPEG")
        size = (HEIGHT, WIDTH) if is_upright or orientation < 5 else (WIDTH, HEIGHT)
        box = objects([RED if is_upright else stored_box(orientation)], ["cat"], [1])
        data = {"image/encoded": plain if is_upright else bytes_of(name)}
        records.append(encode(image(name, *size) | data | box))
    return Path(write_shard(folder, "train", *records)).parent


@pytest.fixture
def source(run: Run, tmp_path: Path) -> Callable[..., Path]:
    """Write a dataset of photos in a format; the annotations are on upright images."""

    def write(kind: str, names: Mapping[str, int] = NAMES) -> Path:
        target = tmp_path / "source"
        if kind == "shards":
            return write_shards(target, names, is_upright=False)
        upright = write_shards(tmp_path / "upright", names, is_upright=True)
        run("convert", upright, target, "--to", kind).succeeded()
        for name in names:
            (file,) = target.rglob(name)
            file.write_bytes(bytes_of(name))
        return target

    return write


# Datasets, read without tfod: names of files, sizes and boxes

Row = tuple[str, "tuple[int, int] | None", list[Any]]


def _coco(folder: Path) -> Iterator[Row]:
    found = json.loads((folder / "annotations/instances_train.json").read_text())
    boxes = {one["image_id"]: one["bbox"] for one in found["annotations"]}
    for one in found["images"]:
        x, y, width, height = boxes[one["id"]]
        yield one["file_name"], (one["width"], one["height"]), [x, y, x + width, y + height]


def _row(value: Mapping[str, str]) -> Row:
    box = [value[side] for side in ("xmin", "ymin", "xmax", "ymax")]
    return value["filename"], (int(value["width"]), int(value["height"])), box


def _voc(folder: Path) -> Iterator[Row]:
    for path in (folder / "Annotations").iterdir():
        yield _row({one.tag: one.text or "" for one in ET.parse(path).getroot().iter()})


def _csv(folder: Path) -> Iterator[Row]:
    with open(folder / "train.csv", newline="") as file:
        yield from map(_row, csv.DictReader(file))


def _yolo(folder: Path) -> Iterator[Row]:
    for path in folder.rglob("images/train/*"):
        line = (folder / "labels/train" / f"{path.stem}.txt").read_text()
        _, x, y, width, height = map(float, line.split())
        yield path.name, None, [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def _cvat_xml(folder: Path) -> Iterator[Row]:
    for frame in ET.parse(folder / "annotations.xml").getroot().iter("image"):
        (box,) = frame.findall("box")
        size = int(frame.attrib["width"]), int(frame.attrib["height"])
        sides = [box.attrib[side] for side in ("xtl", "ytl", "xbr", "ybr")]
        yield Path(frame.attrib["name"]).name, size, sides


_READ = {"coco": _coco, "voc": _voc, "yolo": _yolo, "csv": _csv, "cvat_xml": _cvat_xml}


def pairs(kind: str, folder: Path) -> Iterator[tuple[str, bytes, list[float]]]:
    """Yield the name, the bytes and the normalized box of each image."""
    if kind == "shards":
        for one in read_detections(str(folder)):
            yield one.filename or "", bytes(one.encoded or b""), one.boxes[0].tolist()
        return
    for name, size, box in _READ[kind](folder):
        (file,) = (one for one in folder.rglob(name) if one.is_file())
        with Image.open(file) as opened:
            assert size in (opened.size, None)
        yield (
            name,
            file.read_bytes(),
            np.divide(np.array(box, float), (size or (1, 1)) * 2).tolist(),
        )


# Decoders


def _pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as opened:
        return np.asarray(opened.convert("RGB"))


def _transposed(data: bytes) -> np.ndarray:  # the view of CVAT and Ultralytics
    with Image.open(io.BytesIO(data)) as opened:
        return np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))


def _opencv(flags: int) -> Callable[[bytes], np.ndarray]:
    return lambda data: np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), flags))[..., ::-1]


def _tensorflow(data: bytes) -> np.ndarray:
    import tensorflow as tf

    decode = tf.io.decode_jpeg if data[:2] == b"\xff\xd8" else tf.io.decode_png
    return np.asarray(decode(data, channels=3).numpy()) if data[:4] != b"RIFF" else _pillow(data)


STORED = [_pillow, _opencv(cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)]
STORED += [_tensorflow] if find_spec("tensorflow") else []
SHOWN = [_transposed, _opencv(cv2.IMREAD_COLOR)]


def assert_on_red(pixels: np.ndarray, box: Any = RED) -> None:
    rows, columns = np.nonzero((pixels[..., 0] > 150) & (pixels[..., 1] < 90))
    extent = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    assert box == pytest.approx(np.divide(extent, (*pixels.shape[1::-1],) * 2), abs=0.011)


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_reader_sees_the_box_on_its_object(
    run: Run, source: Callable[..., Path], tmp_path: Path, kind: str, target: str
) -> None:
    names = NAMES if "shards" in (kind, target) else NAMES | WEBP
    says = run("convert", source(kind, names), tmp_path / "out", "--to", target).succeeded()
    assert f"{ROTATED}: {len(names)}" in says and says.count("\n") == 1
    found = list(pairs(target, tmp_path / "out"))
    assert {name for name, _, _ in found} == set(names)
    for _, data, box in found:
        with Image.open(io.BytesIO(data)) as opened:
            assert 0x0112 not in opened.getexif() and opened.size == (WIDTH, HEIGHT)
        assert box == pytest.approx(RED, abs=1e-6 if kind != "voc" else 0.011)
        for read in STORED + SHOWN:
            assert_on_red(read(data), box)


@pytest.mark.parametrize(
    ("kind", "target"),
    [*((kind, "shards") for kind in FORMATS), *(("shards", target) for target in FORMATS)],
)
def test_boxes_of_kept_photos_are_on_the_stored_pixels(
    run: Run, source: Callable[..., Path], tmp_path: Path, kind: str, target: str
) -> None:
    out = tmp_path / "out"
    says = run("convert", source(kind), out, "--to", target, "--exif=keep").succeeded()
    assert (f"{MOVED}: {len(NAMES)}" in says) is (kind != "shards")
    for name, data, box in pairs(target, out):
        assert data == bytes_of(name) and box == pytest.approx(stored_box(NAMES[name]), abs=0.011)
        for read in STORED:
            assert_on_red(read(data), box)


# Rotated files


def upright_file(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(rotate_image(data, "a photo")))


@pytest.mark.parametrize("quality", [30, 75, 95])
@pytest.mark.parametrize("subsampling", [0, 1, 2], ids=["4:4:4", "4:2:2", "4:2:0"])
def test_a_jpeg_keeps_its_tables_and_its_subsampling(quality: int, subsampling: int) -> None:
    data = photo(6, quality=quality, subsampling=subsampling)
    with Image.open(io.BytesIO(data)) as before, upright_file(data) as after:
        assert before.quantization == after.quantization
        assert get_sampling(after) == get_sampling(before) == subsampling
        apart = np.abs(np.asarray(ImageOps.exif_transpose(before), int) - np.asarray(after, int))
    assert apart.mean() < 2


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", STORE)
def test_profile_and_other_tags_are_kept(kind: str, orientation: int) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    with upright_file(photo(orientation, kind, icc_profile=profile)) as found:
        assert found.format == kind and found.info["icc_profile"] == profile
        exif = found.getexif()
        assert exif.get_ifd(0x8769) == {0x9003: "2026:11:27 12:00:00"}
        assert exif[0x010F] == "tfod's camera" and 0x0112 not in exif
        assert kind == "JPEG" or found.convert("RGB").tobytes() == picture().tobytes()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [*(("PNG", x) for x in ("P", "1", "L", "LA", "RGBA", "I;16")), ("JPEG", "L"), ("JPEG", "CMYK")],
)
def test_other_modes(kind: str, mode: str) -> None:
    with upright_file(photo(5, kind, mode)) as found:
        assert (found.mode, found.size, found.format) == (mode, (WIDTH, HEIGHT), kind)
        assert kind == "JPEG" or found.tobytes() == picture(mode).tobytes()
        apart = np.asarray(found, int) - np.asarray(picture(mode), int)
        assert np.abs(apart).mean() < 2


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "jpeg"])
@pytest.mark.parametrize("orientation", STORE)
def test_a_tiff_which_pillow_rotates_itself(orientation: int, compression: str) -> None:
    tags = {274: orientation, 271: "Cam"}
    stored = picture().transpose(STORE[orientation])
    data = file_of(stored, "TIFF", tiffinfo=tags, compression=compression)
    assert read_orientation(data) == orientation
    rotated = rotate_image(data, "a photo")
    assert read_orientation(rotated) == 1
    with Image.open(io.BytesIO(rotated)) as found:
        assert (found.format, found.size, found.getexif()[271]) == ("TIFF", (WIDTH, HEIGHT), "Cam")
    for read in STORED[:2] + SHOWN:
        assert_on_red(read(rotated))


def test_an_mpo_is_its_first_picture() -> None:
    """Phones write two pictures of a scene, each with its own lens."""
    others = [Image.new("RGB", picture().transpose(STORE[6]).size, "blue")]
    with upright_file(photo(6, "MPO", save_all=True, append_images=others)) as found:
        assert (found.format, found.size) == ("JPEG", (WIDTH, HEIGHT))
        assert_on_red(np.asarray(found))


BROKEN = {
    "cut off": exif_block(6)[:20],
    "no TIFF": b"XX*\0" + exif_block(6)[4:],
    "beyond its end": exif_block(6)[:4] + b"\xff\xff\0\0" + exif_block(6)[8:],
    "orientation 9": exif_block(9),
    "empty": b"",
}


@pytest.mark.parametrize("case", [*BROKEN, "a cut off photo"])
def test_a_broken_photo_is_kept_or_refused(run: Run, tmp_path: Path, case: str) -> None:
    is_cut = case not in BROKEN
    plain = file_of(picture(), "JPEG", quality=95, subsampling=0)
    data = photo(6)[:600] if is_cut else with_segment(plain, 0xE1, b"Exif\0\0" + BROKEN[case])
    size = (WIDTH, HEIGHT) if is_cut else (HEIGHT, WIDTH)
    record = image("a.jpg", *size) | {"image/encoded": data} | objects([RED], ["cat"], [1])
    shards = write_shard(tmp_path / "s", "train", encode(record))
    command = ("convert", shards, tmp_path / "out", "--to", "yolo")
    if is_cut:
        says = run(*command).refused()
        assert "image 'a.jpg' has an EXIF orientation and cannot be rotated (" in says
        assert not (tmp_path / "out").exists()
    run(*command, *["--exif=keep"] * is_cut).succeeded()
    assert (tmp_path / "out/images/train/a.jpg").read_bytes() == data


# The size in the annotations reveals on which image boxes were drawn, or does not

BOX = (10, 20, 40, 120)
NORMALIZED = (0.1, 0.1, 0.4, 0.6)
LYING, UPRIGHT = (200, 100), (100, 200)


def save(folder: Path, orientation: int, size: tuple[int, int] = LYING) -> None:
    plain = with_segment(plain_image(size, "teal"), 0xE1, b"Exif\0\0" + exif_block(orientation))
    write_file(folder / NAME, plain)


def written(folder: Path, size: tuple[int, int] = UPRIGHT) -> Detection:
    one = by_filename(folder / "out")[NAME]
    assert (one.width, one.height) == size
    return one


@pytest.mark.parametrize("kind", one_image.FORMATS)
@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_boxes_on_the_stored_pixels(
    convert: Run, tmp_path: Path, kind: str, orientation: int
) -> None:
    save(tmp_path, orientation)
    stored = stored_box(orientation, NORMALIZED)
    box = np.multiply(stored, LYING * 2).round().astype(int).tolist()
    dataset = one_image.FORMATS[kind](tmp_path, LYING, [box])
    assert f"{ROTATED}: 1 (the first: " in convert(*dataset).succeeded()
    assert written(tmp_path).boxes == pytest.approx(np.array([NORMALIZED], np.float32))
    assert "EXIF" not in convert(*dataset, "--exif=keep", "--overwrite").succeeded()
    assert written(tmp_path, LYING).boxes.tolist() == [float32(stored)]


@pytest.mark.parametrize(
    ("kind", "orientation", "size", "output"),
    [
        *((kind, 3, LYING, LYING) for kind in one_image.FORMATS),
        *((kind, 6, (100, 100), (100, 100)) for kind in one_image.FORMATS),
        *((kind, 6, LYING, None) for kind in one_image.FORMATS),
        ("coco", 2, LYING, LYING),
        ("coco", 4, LYING, LYING),
        ("voc", 6, LYING, (50, 100)),  # a smaller copy was annotated
    ],
)
def test_sizes_that_do_not_reveal_it(
    convert: Run, tmp_path: Path, kind: str, orientation: int, size: Any, output: Any
) -> None:
    """The box was drawn on the rotated image, which today's tools show."""
    save(tmp_path, orientation, size)
    shown = size[::-1] if orientation > 4 else size
    dataset = one_image.FORMATS[kind](tmp_path, output, [(10, 20, 40, 80)])
    says = convert(*dataset).succeeded()
    assert ASSUMED in says and ROTATED in says and says.count("\n") == 1
    assert f"orientation {orientation}, {size[0]}x{size[1]})" in says
    expected = np.divide((10, 20, 40, 80), (output or shown) * 2).astype(np.float32)
    assert written(tmp_path, shown).boxes.tolist() == [expected.tolist()]
    says = convert(*dataset, "--exif=keep", "--overwrite").succeeded()
    assert ASSUMED in says and f"{MOVED}: 1 (the first" in says
    corners = np.sort(unrotate_points(expected.reshape(2, 2), orientation), axis=0).reshape(1, 4)
    assert written(tmp_path, size).boxes == pytest.approx(corners)


@pytest.mark.parametrize("kind", one_image.FORMATS)
@pytest.mark.parametrize("orientation", [1, 3])
def test_swapped_sizes_are_refused(
    convert: Run, tmp_path: Path, kind: str, orientation: int
) -> None:
    """A tool rotated the image and lost the EXIF orientation, or it swapped the numbers."""
    save(tmp_path, orientation)
    says = convert(*one_image.FORMATS[kind](tmp_path, UPRIGHT, [(20, 10, 90, 50)])).refused()
    assert "images whose annotated height and width are swapped" in says
    assert not (tmp_path / "out").exists()


def test_masks_and_keypoints_are_rotated_too(convert: Run, tmp_path: Path) -> None:
    save(tmp_path, 6)
    source, target, *_ = one_image.coco(tmp_path, UPRIGHT, [BOX])
    text = Path(str(source)).read_text()
    text = text.replace('"segmentation"', '"keypoints": [10, 20, 2, 0, 0, 0], "segmentation"')
    text = text.replace('"name": "cat"', '"name": "cat", "keypoints": ["ear", "tail"]')
    Path(str(source)).write_text(text)
    convert(source, target, "--masks").succeeded()
    one = written(tmp_path)
    assert one.keypoints is not None and one.masks is not None and one.masks[0] is not None
    assert one.keypoints.xy[0].tolist() == [float32([0.1, 0.1]), [0, 0]]
    shown = decode_mask_png(one.masks[0].data)
    assert shown.shape == UPRIGHT[::-1] and shown[21, 38] and not shown[118, 11]
    convert(source, target, "--masks", "--exif=keep", "--overwrite").succeeded()
    one = written(tmp_path, LYING)
    assert one.keypoints is not None and one.masks is not None
    assert one.keypoints.xy[0].tolist() == [float32([0.1, 0.9]), [0, 0]]
    assert_turned(one.masks[0])
    # Masks of shards are on the stored pixels, and are rotated, too.
    convert(target, tmp_path / "again", "--to=shards").succeeded()
    (again,) = by_filename(tmp_path / "again").values()
    assert again.masks is not None and again.masks[0] is not None and again.keypoints is not None
    np.testing.assert_array_equal(decode_mask_png(again.masks[0].data), shown)
    assert again.keypoints.xy[0] == pytest.approx(np.array([[0.1, 0.1], [0, 0]]))


@pytest.mark.parametrize("kind", one_image.FORMATS)
def test_without_images_annotations_need_a_size(convert: Run, tmp_path: Path, kind: str) -> None:
    dataset = one_image.FORMATS[kind](tmp_path, UPRIGHT, [BOX])
    assert "EXIF" not in convert(*dataset, "--no-images").succeeded()
    one = written(tmp_path)
    assert one.boxes.tolist() == [float32(NORMALIZED)] and not one.encoded
    dataset = one_image.FORMATS[kind](tmp_path, None, [BOX])
    says = convert(*dataset, "--no-images", "--overwrite").refused()
    assert "normalize boxes in pixels: 1 (" in says and NAME.partition(".")[0] in says
    assert "; add width and" in says and "outside" not in says
