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
    """Decode an image like the OD API, which uses the Image handler of tf_slim."""
    if bool(tf.io.is_jpeg(data)):
        return tf.io.decode_jpeg(data, channels=3)
    return tf.io.decode_image(data, channels=3)


def is_usable(data: bytes, height: int = HEIGHT, width: int = WIDTH) -> bool:
    """Whether TensorFlow decodes the image to height x width x 3 bytes."""
    try:
        pixels = decode(data)
    except tf.errors.InvalidArgumentError:
        return False
    return pixels.dtype == tf.uint8 and tuple(pixels.shape) == (height, width, 3)


def codes(data: bytes) -> set[str]:
    """The rules that fire for an image without declared values."""
    facts = ImageFacts(-1, read_image_header(data, 0, len(data)))
    return {*problems_by_code(facts)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str) -> None:
    data = image_of(kind)
    assert ("IMG005" in codes(data)) == (not is_usable(data))


def sized_jpeg(height: int, width: int, mode: str = "RGB") -> bytes:
    jpeg = saved(mode, "JPEG")
    place = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:place] + struct.pack(">HH", height, width) + jpeg[place + 4 :]


def made_png(height: int, width: int, bits: int, color: int, rows: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(starmap(chunk, parts))


def sized_png(height: int, width: int) -> bytes:
    return made_png(height, width, 8, 0, bytes((1 + WIDTH) * HEIGHT))


@pytest.mark.parametrize(
    ("code", "data"),
    [
        # Images that are cut short.
        ("IMG009", saved("RGB", "JPEG", (200, 150))[:-200]),
        ("IMG009", saved("L", "JPEG", (200, 150), progressive=True)[:-200]),
        ("IMG009", png(8, 2)[:-14]),
        ("IMG009", bmp(24)[:-40]),
        # A long side, 2**29 samples or pixels, no rows.
        ("IMG005", sized_jpeg(65501, 16)),
        ("IMG005", sized_jpeg(13378, 13378)),
        ("IMG005", sized_png(1, 1_000_001)),
        ("IMG005", sized_png(1 << 15, 1 << 14)),
        ("IMG005", sized_png(0, 5)),
    ],
)
def test_images_that_tensorflow_refuses(code: str, data: bytes) -> None:
    assert code in codes(data)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(data)


def test_large_images_within_the_limits() -> None:
    data = made_png(1, 1_000_000, 1, 0, bytes(1 + 125_000))  # one pixel within libpng's limit
    assert is_usable(data, 1, 1_000_000)
    for large in (data, sized_jpeg(65500, 2000), sized_jpeg(13377, 13377)):
        assert "IMG005" not in codes(large)


def test_orientation_is_not_applied() -> None:
    """Pillow and browsers rotate an image, TensorFlow does not: IMG007."""
    data = exif_jpeg(6)
    assert "IMG007" in codes(data)
    assert tuple(decode(data).shape) == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("largest", [255, 4095, 4096])
@pytest.mark.parametrize("channels", [1, 3])
def test_only_the_high_byte_of_a_deep_png_is_read(
    largest: int, channels: int, run: Run, tmp_path: Path
) -> None:
    """IMG017 for gray and for colors, which Pillow does not write."""
    rows = (b"\0" + struct.pack(">H", largest) * channels * WIDTH) * HEIGHT
    data = made_png(HEIGHT, WIDTH, 16, channels - 1, rows)
    (highest,) = set(decode(data).numpy().ravel().tolist())
    record = image("a.png", HEIGHT, WIDTH) | {"image/encoded": data}
    says = run("check", write_shard(tmp_path, "x", encode(record))).out
    assert (f"up to {largest} become at most {highest} of 255" in says) == (highest < 16)


def test_the_palette_of_a_bmp_is_not_applied() -> None:
    """Indices are read as gray values: IMG013; the palette of a gray BMP has the same values."""
    for mode, has_other_colours in (("P", True), ("L", False)):
        data = saved(mode, "BMP")
        with Image.open(io.BytesIO(data)) as image:
            seen = image.convert("RGB").tobytes()
        assert (decode(data).numpy().tobytes() != seen) == has_other_colours
        assert ("IMG013" in codes(data)) == has_other_colours
