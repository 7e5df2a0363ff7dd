"""Photos that lie on their side: every reader sees box and object together, whatever the format.

A red rectangle on a teal ground is annotated as people see it, upright; in shards, which have
their boxes on the stored pixels, as they are stored.
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
from tfod.detection.images.exif_rotation import read_orientation, rotate_image
from tfod.formats.table import FORMATS
from tfod.sources.reading import read_detections

from tests.commands import Run
from tests.image_kinds import exif_block, file_of, with_segment
from tests.records import encode, image, objects, write_shard

WIDTH, HEIGHT = 160, 96
RED = (0.2, 0.5, 0.5, 0.75)
"""The rectangle as it is shown, normalized."""
_T = Image.Transpose
LAY = {
    2: _T.FLIP_LEFT_RIGHT,
    3: _T.ROTATE_180,
    4: _T.FLIP_TOP_BOTTOM,
    5: _T.TRANSPOSE,
    6: _T.ROTATE_90,
    7: _T.TRANSVERSE,
    8: _T.ROTATE_270,
}
"""How the pixels are stored that an orientation turns upright."""
NAMES = {**{f"a{turn}.jpg": turn for turn in LAY}, "b3.png": 3, "b6.png": 6}
WEBP = {"c5.webp": 5, "c8.webp": 8}  # which TensorFlow's decode_image does not read
TURNED = "images rotated by their EXIF orientation and stored without it"


@cache
def picture(mode: str = "RGB") -> Image.Image:
    found = Image.new("RGB", (WIDTH, HEIGHT), "teal")
    box = np.multiply(RED, (WIDTH, HEIGHT, WIDTH, HEIGHT)).astype(int).tolist()
    ImageDraw.Draw(found).rectangle((box[0], box[1], box[2] - 1, box[3] - 1), "red")
    return found.convert(mode)


_BEST = {"quality": 95, "subsampling": 0}


@cache
def photo(turn: int, kind: str = "JPEG", mode: str = "RGB", **how: Any) -> bytes:
    """A file whose pixels lie, and that says how to turn them."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = turn, "tfod's camera"
    exif.get_ifd(0x8769)[0x9003] = "2026:11:27 12:00:00"
    how = {**({"lossless": True} if kind == "WEBP" else _BEST), **how}
    return file_of(picture(mode).transpose(LAY[turn]), kind, exif=exif.tobytes(), **how)


def bytes_of(name: str) -> bytes:
    return photo(int(name[1]), {"jpg": "JPEG"}.get(name[3:], name[3:].upper()))


def lying(turn: int) -> list[float]:
    """Where the red rectangle is among the stored pixels."""
    left, top, right, bottom = (round(one) for one in np.multiply(RED, (100,) * 4))
    drawn = Image.new("1", (100, 100))
    ImageDraw.Draw(drawn).rectangle((left, top, right - 1, bottom - 1), 1)
    box = drawn.transpose(LAY[turn]).getbbox()
    assert box is not None
    return [one / 100 for one in box]


def shards_of(folder: Path, names: Mapping[str, int], *, is_upright: bool) -> Path:
    records = []
    for name, turn in names.items():
        plain = file_of(picture(), "PNG") if name.endswith("png") else file_of(picture(), "JPEG")
        encoded = plain if is_upright else bytes_of(name)
        size = (HEIGHT, WIDTH) if is_upright or turn < 5 else (WIDTH, HEIGHT)
        box = objects([RED if is_upright else lying(turn)], ["cat"], [1])
        records.append(encode(image(name, *size) | {"image/encoded": encoded} | box))
    return Path(write_shard(folder, "train", *records)).parent


@pytest.fixture
def source(run: Run, tmp_path: Path) -> Callable[..., Path]:
    """A dataset of lying photos in a format; made of upright ones, whose files are replaced."""

    def make(kind: str, names: Mapping[str, int] = NAMES) -> Path:
        if kind == "shards":
            return shards_of(tmp_path / "source", names, is_upright=False)
        upright = shards_of(tmp_path / "upright", names, is_upright=True)
        target = tmp_path / "source"
        run("convert", upright, target, "--to", kind).succeeded()
        for name in names:
            (file,) = target.rglob(name)
            file.write_bytes(bytes_of(name))
        return target

    return make


# What a dataset says, read without tfod: names of files, and normalized boxes


def pairs(kind: str, folder: Path) -> Iterator[tuple[str, bytes, list[float]]]:
    if kind == "shards":
        for one in read_detections(str(folder)):
            assert one.filename is not None
            yield one.filename, bytes(one.encoded or b""), one.boxes[0].tolist()
        return
    for name, size, box in _READ[kind](folder):
        (file,) = (one for one in folder.rglob(name) if one.is_file())
        with Image.open(file) as opened:
            assert size in (opened.size, None)
            yield (
                name,
                file.read_bytes(),
                (np.array(box, float) / np.tile(size or (1, 1), 2)).tolist(),
            )


Row = tuple[str, "tuple[int, int] | None", list[Any]]


def _coco(folder: Path) -> Iterator[Row]:
    found = json.loads((folder / "annotations/instances_train.json").read_text())
    boxes = {one["image_id"]: one["bbox"] for one in found["annotations"]}
    for one in found["images"]:
        x, y, width, height = boxes[one["id"]]
        yield one["file_name"], (one["width"], one["height"]), [x, y, x + width, y + height]


def _voc(folder: Path) -> Iterator[Row]:
    for path in (folder / "Annotations").iterdir():
        value = {one.tag: one.text or "" for one in ET.parse(path).getroot().iter()}
        box = [value[side] for side in ("xmin", "ymin", "xmax", "ymax")]
        yield value["filename"], (int(value["width"]), int(value["height"])), box


def _yolo(folder: Path) -> Iterator[Row]:
    for path in folder.rglob("images/train/*"):
        line = (folder / "labels/train" / f"{path.stem}.txt").read_text()
        _, x, y, width, height = map(float, line.split())
        box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        yield path.name, None, box


def _csv(folder: Path) -> Iterator[Row]:
    with open(folder / "train.csv", newline="") as file:
        for row in csv.DictReader(file):
            box = [row[side] for side in ("xmin", "ymin", "xmax", "ymax")]
            yield row["filename"], (int(row["width"]), int(row["height"])), box


def _cvat_xml(folder: Path) -> Iterator[Row]:
    for frame in ET.parse(folder / "annotations.xml").getroot().iter("image"):
        box = frame.find("box")
        assert box is not None
        size = int(frame.attrib["width"]), int(frame.attrib["height"])
        yield (
            Path(frame.attrib["name"]).name,
            size,
            [box.attrib[s] for s in ("xtl", "ytl", "xbr", "ybr")],
        )


_READ = {"coco": _coco, "voc": _voc, "yolo": _yolo, "csv": _csv, "cvat_xml": _cvat_xml}


# What programs see


def _pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as opened:
        return np.asarray(opened.convert("RGB"))


def _transposed(data: bytes) -> np.ndarray:  # as CVAT and Ultralytics show it
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


def assert_on_red(pixels: np.ndarray, box: list[float]) -> None:
    red = (pixels[..., 0] > 150) & (pixels[..., 1] < 90)
    rows, columns = np.nonzero(red)
    height, width = red.shape
    seen = (
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    )
    assert box == pytest.approx(seen, abs=0.011)


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_reader_sees_the_box_on_its_object(
    run: Run, source: Callable[..., Path], tmp_path: Path, kind: str, target: str
) -> None:
    names = NAMES if "shards" in (kind, target) else NAMES | WEBP
    says = run("convert", source(kind, names), tmp_path / "out", "--to", target).succeeded()
    assert f"{TURNED}: {len(names)}" in says and says.count("\n") == 1
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
def test_kept_photos_have_their_boxes_on_the_stored_pixels(
    run: Run, source: Callable[..., Path], tmp_path: Path, kind: str, target: str
) -> None:
    out = tmp_path / "out"
    says = run("convert", source(kind), out, "--to", target, "--exif=keep").succeeded()
    what = "images whose boxes were drawn on the rotated image, moved to the stored pixels"
    assert (f"{what}: {len(NAMES)}" in says) is (kind != "shards")
    for name, data, box in pairs(target, out):
        assert data == bytes_of(name) and box == pytest.approx(lying(NAMES[name]), abs=0.011)
        for read in STORED:
            assert_on_red(read(data), box)


# The turned file


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
@pytest.mark.parametrize("turn", LAY)
def test_profile_and_other_tags_stay(kind: str, turn: int) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = photo(turn, kind, icc_profile=profile)
    with upright_file(data) as found:
        assert found.format == kind and found.info["icc_profile"] == profile
        exif = found.getexif()
        assert exif.get_ifd(0x8769) == {0x9003: "2026:11:27 12:00:00"}
        assert exif[0x010F] == "tfod's camera" and 0x0112 not in exif
        if kind != "JPEG":
            assert found.convert("RGB").tobytes() == picture().tobytes()


@pytest.mark.parametrize("mode", ["P", "1", "L", "LA", "RGBA", "I;16"])
def test_pngs_of_other_kinds(mode: str) -> None:
    with upright_file(photo(5, "PNG", mode)) as found:
        assert found.mode == mode and found.size == (WIDTH, HEIGHT)
        assert found.tobytes() == picture(mode).tobytes()


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "jpeg"])
@pytest.mark.parametrize("turn", LAY)
def test_a_tiff_which_pillow_turns_itself(turn: int, compression: str) -> None:
    lying = picture().transpose(LAY[turn])
    data = file_of(lying, "TIFF", tiffinfo={274: turn, 271: "Cam"}, compression=compression)
    assert read_orientation(data) == turn
    turned = rotate_image(data, "a photo")
    assert read_orientation(turned) == 1
    with Image.open(io.BytesIO(turned)) as found:
        assert (found.format, found.size, found.getexif()[271]) == ("TIFF", (WIDTH, HEIGHT), "Cam")
    for see in STORED[:2] + SHOWN:
        assert_on_red(see(turned), list(RED))


def test_a_photo_that_cannot_be_turned_is_named(run: Run, tmp_path: Path) -> None:
    data = photo(6)[:600]
    box = objects([lying(6)], ["cat"], [1])
    record = encode(image("a.jpg", WIDTH, HEIGHT) | {"image/encoded": data} | box)
    shards = write_shard(tmp_path / "s", "train", record)
    says = run("convert", shards, tmp_path / "out", "--to", "yolo").refused()
    assert "image 'a.jpg' has an EXIF orientation and cannot be rotated (" in says
    assert not (tmp_path / "out").exists()
    run("convert", shards, tmp_path / "out", "--to", "yolo", "--exif=keep").succeeded()
    assert (tmp_path / "out/images/train/a.jpg").read_bytes() == data


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpegs_of_other_colours(mode: str) -> None:
    with upright_file(photo(8, mode=mode, quality=95)) as found:
        assert (found.mode, found.size, found.format) == (mode, (WIDTH, HEIGHT), "JPEG")
        apart = np.asarray(found, int) - np.asarray(picture(mode), int)
        assert np.abs(apart).mean() < 2


def test_an_mpo_is_its_first_picture() -> None:
    """As phones write two of one scene; the second one has a lens of its own."""
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = picture().transpose(LAY[6])
    others = [Image.new("RGB", lying.size, "blue")]
    data = file_of(lying, "MPO", save_all=True, append_images=others, exif=exif.tobytes())
    with upright_file(data) as found:
        assert (found.format, found.size) == ("JPEG", (WIDTH, HEIGHT))
        assert_on_red(np.asarray(found), list(RED))


BROKEN = {
    "cut off": exif_block(6)[:20],
    "no TIFF": b"XX*\0" + exif_block(6)[4:],
    "points beyond its end": exif_block(6)[:4] + b"\xff\xff\0\0" + exif_block(6)[8:],
    "orientation 9": exif_block(9),
    "empty": b"",
}


@pytest.mark.parametrize("block", BROKEN.values(), ids=BROKEN)
def test_a_broken_exif_turns_nothing(run: Run, tmp_path: Path, block: bytes) -> None:
    plain = file_of(picture(), "JPEG", quality=95, subsampling=0)
    data = with_segment(plain, 0xE1, b"Exif\0\0" + block)
    box = objects([RED], ["cat"], [1])
    record = encode(image("a.jpg", HEIGHT, WIDTH) | {"image/encoded": data} | box)
    shards = write_shard(tmp_path / "s", "train", record)
    assert run("convert", shards, tmp_path / "out", "--to", "yolo").code == 0
    assert (tmp_path / "out/images/train/a.jpg").read_bytes() == data
