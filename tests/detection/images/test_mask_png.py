"""Masks as PNGs: every decoder reads 0 and 1, and outlines fill the pixels inside."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from tfod.detection.detection import Detection, PngMask
from tfod.detection.images.exif_rotation import unrotate
from tfod.detection.images.mask_images import (
    decode_mask_png,
    decode_pixels,
    encode_mask_png,
    fill_polygon,
    is_box_png,
)


def _decode_with_tensorflow(data: bytes) -> np.ndarray:
    """The call of both, tf_example_decoder.py of object_detection and of official/vision."""
    tf = pytest.importorskip("tensorflow")
    pixels: np.ndarray = tf.io.decode_png(data, channels=1, dtype=tf.uint8).numpy()[..., 0]
    return pixels


def _decode_with_opencv(data: bytes) -> np.ndarray:
    cv2 = pytest.importorskip("cv2")
    pixels: np.ndarray = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    return pixels


DECODERS = {
    "tensorflow": _decode_with_tensorflow,
    "opencv": _decode_with_opencv,
    "pillow": lambda data: np.asarray(Image.open(io.BytesIO(data))),
    "tfod": decode_pixels,
}


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("is_box", [False, True])
def test_decoders_read_0_and_1(decode: Callable[[bytes], np.ndarray], is_box: bool) -> None:
    for size in ((1, 1), (3, 8), (5, 9), (480, 640)):
        mask = np.random.default_rng(0).random(size) < 0.5
        data = encode_mask_png(mask, is_box=is_box)
        decoded = decode(data)
        assert decoded.dtype == np.uint8
        assert np.array_equal(decoded, mask)
        assert np.array_equal(decode_mask_png(data), mask)
        assert is_box_png(data) == is_box


@pytest.mark.parametrize("colors", [2, 40])
def test_a_palette_of_gray_is_one_channel_as_tensorflow_decodes_it(colors: int) -> None:
    indices = np.arange(colors, dtype=np.uint8)[None].repeat(3, axis=0)
    for palette, is_gray in (
        ((colors - np.arange(colors))[:, None].repeat(3, 1), True),
        (np.arange(3 * colors).reshape(-1, 3), False),
    ):
        image = Image.frombytes("P", indices.shape[::-1], indices.tobytes())
        image.putpalette(palette.astype(np.uint8).tobytes())
        image.save(file := io.BytesIO(), "PNG")
        pixels = decode_pixels(file.getvalue())
        assert np.array_equal(pixels, palette[indices][..., 0] if is_gray else palette[indices])
        turned = unrotate(
            Detection(image_masks={"semantic": PngMask(file.getvalue())}), 8
        ).image_masks["semantic"]
        if is_gray:
            assert np.array_equal(pixels, _decode_with_tensorflow(file.getvalue()))
            assert decode_pixels(turned.data).shape == pixels.shape[::-1]
        else:  # several channels are kept as they are
            assert turned.data == file.getvalue()


def test_a_pixel_without_a_colour_is_black() -> None:
    data = encode_mask_png(np.ones((2, 9), bool))
    start, end = data.index(b"PLTE") - 4, data.index(b"IDAT") - 4
    chunk = b"PLTE" + bytes(3)  # only the colour of 0
    chunk = (3).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    assert not decode_pixels(data[:start] + chunk + data[end:]).any()


_COORDINATES = st.integers(-40, 120).map(lambda value: value / 4)


@given(st.lists(st.tuples(_COORDINATES, _COORDINATES), min_size=3, max_size=8))
def test_a_polygon_fills_the_pixels_whose_centre_is_inside(
    points: list[tuple[float, float]],
) -> None:
    """Compared with the definition, a pixel at a time: an odd number of edges to its left."""
    size, flat = (20, 25), [value for point in points for value in point]
    edges = list(zip(points, points[1:] + points[:1], strict=True))
    inside = np.zeros(size, bool)
    for row, column in np.ndindex(size):
        y, x = row + 0.5, column + 0.5
        crossings = (
            x0 + (y - y0) * (x1 - x0) / (y1 - y0) <= x
            for (x0, y0), (x1, y1) in edges
            if (y0 <= y) != (y1 <= y)
        )
        inside[row, column] = sum(crossings) % 2
    mask = fill_polygon(flat, size)
    assert np.array_equal(mask, inside) or (not inside.any() and mask.sum() <= 1)


@given(arrays(bool, st.tuples(st.integers(1, 20), st.integers(1, 20))))
def test_masks_round_trip(mask: np.ndarray) -> None:
    assert np.array_equal(decode_mask_png(encode_mask_png(mask)), mask)
