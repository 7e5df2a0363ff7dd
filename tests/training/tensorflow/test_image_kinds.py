"""Rule IMG005 against TensorFlow: it fires exactly for the kinds that training cannot use."""

from __future__ import annotations

import io
import struct
import zlib
from itertools import starmap
from pathlib import Path

import pytest
import tensorflow as tf
from PIL import Image
from tfod.checker.analysis.encoded_images import ImageFacts
from tfod.detection.images.image import read_image_header

from tests.commands import Run
from tests.image_kinds import HEIGHT, KINDS, WIDTH, bmp, chunk, exif_jpeg, image_of, png, saved
from tests.image_rules import problems_by_code
from tests.records import encode, image, write_shard


def decode(data: bytes) -> tf.Tensor:
    """As tf_slim's Image handler does it for the TF Object Detection API."""
    if bool(tf.io.is_jpeg(data)):
        return tf.io.decode_jpeg(data, channels=3)
    return tf.io.decode_image(data, channels=3)


def is_usable(data: bytes, height: int = HEIGHT, width: int = WIDTH) -> bool:
    """Whether TensorFlow makes height x width x 3 bytes of it."""
    try:
        pixels = decode(data)
    except tf.errors.InvalidArgumentError:
        return False
    return pixels.dtype == tf.uint8 and tuple(pixels.shape) == (height, width, 3)


def codes(data: bytes) -> set[str]:
    """The rules that fire for an image of which nothing is declared."""
    facts = ImageFacts(-1, read_image_header(data, 0, len(data)))
    return {*problems_by_code(facts)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str) -> None:
    data = image_of(kind)
    assert ("IMG005" in codes(data)) == (not is_usable(data))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(saved("RGB", "JPEG", (200, 150))[:-200], id="jpeg"),
        pytest.param(saved("L", "JPEG", (200, 150), progressive=True)[:-200], id="progressive"),
        pytest.param(png(8, 2)[:-14], id="png"),
        pytest.param(bmp(24)[:-40], id="bmp"),
    ],
)
def test_cut_short(data: bytes) -> None:
    """An image that lacks its end is refused, and IMG009 says so."""
    assert "IMG009" in codes(data)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(data)


def sized_jpeg(height: int, width: int, mode: str = "RGB") -> bytes:
    jpeg = saved(mode, "JPEG")
    place = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:place] + struct.pack(">HH", height, width) + jpeg[place + 4 :]


def sized_png(height: int, width: int) -> bytes:
    plain = png(8, 0)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return plain[:8] + chunk(b"IHDR", header) + plain[33:]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(sized_jpeg(65501, 16), id="jpeg with a long side"),
        pytest.param(sized_jpeg(13378, 13378), id="jpeg of 2**29 samples"),
        pytest.param(sized_png(1, 1_000_001), id="png with a long side"),
        pytest.param(sized_png(1 << 15, 1 << 14), id="png of 2**29 pixels"),
        pytest.param(sized_png(0, 5), id="png without rows"),
    ],
)
def test_too_large(data: bytes) -> None:
    assert "IMG005" in codes(data)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(data)


def test_a_long_image_that_is_not_too_large() -> None:
    """One pixel within libpng's limit."""
    header = struct.pack(">IIBBBBB", 1_000_000, 1, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1 + 125_000))
    data = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )
    assert "IMG005" not in codes(data)
    assert is_usable(data, 1, 1_000_000)
    assert "IMG005" not in codes(sized_jpeg(65500, 2000))
    assert "IMG005" not in codes(sized_jpeg(13377, 13377))


def test_orientation_is_not_applied() -> None:
    """Why IMG007 warns: Pillow and browsers turn it, TensorFlow does not."""
    data = exif_jpeg(6)
    assert "IMG007" in codes(data)
    assert tuple(decode(data).shape) == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("largest", [255, 4095, 4096])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_high_byte_of_a_deep_png_is_all(
    largest: int, channels: int, run: Run, tmp_path: Path
) -> None:
    """IMG017, also of colors, which Pillow does not write."""
    rows = (b"\0" + struct.pack(">H", largest) * channels * WIDTH) * HEIGHT
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, channels - 1, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(starmap(chunk, parts))
    (highest,) = set(decode(data).numpy().ravel().tolist())
    record = image("a.png", HEIGHT, WIDTH) | {"image/encoded": data}
    says = run("check", write_shard(tmp_path, "x", encode(record))).out
    assert (f"up to {largest} become at most {highest} of 255" in says) == (highest < 16)


def test_the_palette_of_a_bmp_is_not_applied() -> None:
    """IMG013: the indices are taken for gray values; a gray BMP is its own palette."""
    for mode, has_other_colours in (("P", True), ("L", False)):
        data = saved(mode, "BMP")
        with Image.open(io.BytesIO(data)) as image:
            seen = image.convert("RGB").tobytes()
        assert (decode(data).numpy().tobytes() != seen) == has_other_colours
        assert ("IMG013" in codes(data)) == has_other_colours
