"""Images with their boxes drawn into them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from tfod.check.findings.finding import Place
from tfod.check.reporters.html.drawing import LONGEST, draw_image
from tfod.check.reporters.html.samples import Sample

from tests.image_kinds import plain_image, saved

SIZE = (800, 400)
WHITE = plain_image(SIZE, kind="PNG")


def drawn(image: bytes | None, boxes: object = (), **fields: object) -> np.ndarray:
    """The pixels of a drawn image, uint8, shape (height, width, 3)."""
    given = {
        "place": Place("a.record", 1, 2, "1.jpg"),
        "codes": ("BOX003",),
        "height": 400,
        "width": 800,
        "classes": ("person", "cat"),
        **fields,
    }
    array = np.asarray(boxes, np.float64).reshape(-1, 4)
    sample = Sample(image=image, boxes=array, **given)
    content = draw_image(sample)
    assert content.startswith(b"\xff\xd8\xff")
    return np.asarray(Image.open(io.BytesIO(content)))


def reds(pixels: np.ndarray) -> np.ndarray:
    red, green, blue = (pixels[..., one].astype(int) for one in range(3))
    return (red > 170) & (green < 90) & (blue < 110)


def blues(pixels: np.ndarray) -> np.ndarray:
    red, green, blue = (pixels[..., one].astype(int) for one in range(3))
    return (blue > 180) & (blue - red > 60) & (green > red)


def test_offending_boxes_are_red_and_named_and_the_others_blue() -> None:
    boxes = [[0.1, 0.5, 0.3, 0.9], [0.6, 0.5, 0.9, 0.9]]
    pixels = drawn(WHITE, boxes, offending={1})
    assert pixels.shape == (400, 800, 3)
    assert reds(pixels)[250, 480 - 4 : 480 + 4].any() and not reds(pixels)[:, :400].any()
    assert blues(pixels)[250, 80 - 4 : 80 + 4].any() and not blues(pixels)[:, 440:].any()
    # The name is a field above the offending box, and nowhere else.
    assert reds(pixels)[175:195, 480:500].mean() > 0.5
    assert (pixels[:180, :400] > 240).all()


def test_boxes_outside_end_at_the_edge() -> None:
    far = [[-3, -3, 0.5, 0.5], [0.5, 0.5, np.inf, 300], [2, 2, 3, 3]]
    pixels = drawn(WHITE, far, offending={0, 1, 2})
    assert reds(pixels)[:3, 200:380].any() and reds(pixels)[-3:, 600:].any()


def test_inverted_tiny_and_unfinished_boxes() -> None:
    inverted = drawn(WHITE, [[0.8, 0.8, 0.2, 0.2]], offending={0})
    assert reds(inverted)[150, 156:164].any()
    tiny = drawn(WHITE, [[0.5, 0.5, 0.5, 0.5]], offending={0})
    assert reds(tiny)[200, 420:432].any()  # the ring around it
    unfinished = drawn(WHITE, [[np.nan, 0, 1, 1]], offending={0})
    assert not reds(unfinished).any()


def test_at_most_two_hundred_are_drawn_the_offending_ones_surely() -> None:
    boxes = [[0.1, 0.1, 0.2, 0.2]] * 400 + [[0.6, 0.6, 0.9, 0.9]]
    assert reds(drawn(WHITE, boxes, offending={400})).any()
    assert not blues(drawn(WHITE, boxes, offending={*range(300)})).any()


@pytest.mark.parametrize("image", [None, b"no image", WHITE[:200]], ids=["none", "odd", "cut"])
def test_what_does_not_decode_is_a_field_with_its_boxes(image: bytes | None) -> None:
    pixels = drawn(image, [[0.25, 0.25, 0.75, 0.75]], offending={0})
    assert pixels.shape == (320, 640, 3)
    assert np.abs(pixels[5, 5].astype(int) - (138, 143, 152)).max() < 12
    assert reds(pixels).any()


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((20, 10), (320, 640)),
        ((4000, 2000), (LONGEST // 2, LONGEST)),
        ((10, 4000), (LONGEST, round(LONGEST / 6))),
    ],
)
def test_sizes_are_bounded(size: tuple[int, int], shape: tuple[int, int]) -> None:
    assert drawn(plain_image(size, kind="PNG"), [[0, 0, 1, 1]]).shape[:2] == shape


def test_exif_orientation_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert drawn(plain_image(SIZE, exif=exif)).shape == (400, 800, 3)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "I;16", "1"])
def test_pixels_of_any_kind(mode: str) -> None:
    image = saved("L", "PNG") if mode == "I;16" else saved(mode, "PNG")
    assert reds(drawn(image, [[0.2, 0.2, 0.8, 0.8]], offending={0})).any()


@pytest.mark.parametrize(
    "name", ["", "\u202egpj", "a\nb\0c", "автомобиль", "汽车", "x" * 5000, "\ud800", "🚗"]
)
def test_names_of_any_kind(name: str) -> None:
    pixels = drawn(WHITE, [[0.2, 0.4, 0.8, 0.8]], classes=(name,), offending={0})
    assert reds(pixels).any()
