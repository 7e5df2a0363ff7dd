"""Images with their boxes, as SVG."""

from __future__ import annotations

import base64
import io
import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from PIL import Image
from tfod.checker.reporters.drawing import (
    PALETTE,
    choose_class_colour,
    choose_text_colour,
    count_undrawn,
    draw,
    make_thumbnail,
)

from tests.checker.reports import HOSTILE, sample
from tests.image_kinds import plain_image

SVG = "{http://www.w3.org/2000/svg}"
IMAGE = plain_image((640, 320), 0)
PERSON, CAT = map(choose_class_colour, ("person", "cat"))
THICK, THIN = "3", "1.5"

SIMULATIONS = {
    "protanopia": (
        "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998"
    ),
    "deuteranopia": (
        "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881"
    ),
    "tritanopia": (
        "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.303900"
    ),
    "normal vision": "1 0 0 0 1 0 0 0 1",
}
"""Linear red, green and blue as people see them (Machado, Oliveira, Fernandes 2009)."""
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def drawn(image: bytes | None = IMAGE, boxes: object = (), **fields: object) -> etree._Element:
    """The SVG, parsed as XML."""
    return etree.fromstring(draw(sample(image, boxes, **fields)))


def lines(svg: etree._Element) -> list[tuple[str, str, str]]:
    """Path, colour and width of each box, the topmost last."""
    paths = [one for one in svg.iter(f"{SVG}path") if one.get("class") == "line"]
    return [(one.get("d"), one.get("stroke"), one.get("stroke-width")) for one in paths]


def to_linear(colour: str) -> np.ndarray:
    """Red, green and blue of an sRGB colour, as amounts of light."""
    parts = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def to_lab(linear: np.ndarray) -> np.ndarray:
    """CIELAB, in which distances are as large as people see them: 2.3 is just noticeable."""
    xyz = np.array(XYZ) @ linear.clip(0, 1) / np.array((0.9505, 1, 1.089))
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array((116 * y - 16, 500 * (x - y), 200 * (y - z)))


def names(svg: etree._Element) -> list[tuple[str, str]]:
    return [(one.get("class"), one.text) for one in svg.iter(f"{SVG}text") if one.get("class")]


def pixels(svg: str) -> Image.Image:
    content = re.findall('data:image/jpeg;base64,([^"]*)', svg)
    assert len(content) == 1
    return Image.open(io.BytesIO(base64.b64decode(content[0])))


@pytest.mark.parametrize("sight", SIMULATIONS)
def test_no_two_colours_look_alike(sight: str) -> None:
    matrix = np.array(SIMULATIONS[sight].split(), float).reshape(3, 3)
    seen = [to_lab(matrix @ to_linear(colour)) for colour in PALETTE]
    apart = [np.linalg.norm(a - b) for n, a in enumerate(seen) for b in seen[:n]]
    assert min(apart) > 15
    assert min(np.linalg.norm(a - b) for a, b in itertools.pairwise([*seen, seen[0]])) > 20


def test_names_can_be_read_on_each_colour() -> None:
    for colour in PALETTE:
        text = 1.0 if choose_text_colour(colour) == "#fff" else 0.0
        light, dark = sorted((text, float(np.dot(to_linear(colour), XYZ[1]))))
        assert (dark + 0.05) / (light + 0.05) >= 4.5  # WCAG 2.2


def test_colours_follow_the_name() -> None:
    names = ("person", "bicycle", "car", "motorcycle", "bus", "truck", "cat", "dog")
    assert len({*map(choose_class_colour, names)}) == 8
    assert choose_class_colour("кот") in PALETTE and choose_class_colour("\ud800") in PALETTE


def test_wrong_boxes_are_thick_and_on_top() -> None:
    boxes = [[0.25, 0.25, 0.5, 0.5], [0.5, 0.5, 0.75, 1.0]]
    svg = drawn(boxes=boxes, offending={0})
    assert svg.get("viewBox") == "0 0 1000 500"
    assert lines(svg) == [
        ("M500.0 250.0H750.0V500.0H500.0Z", CAT, THIN),
        ("M250.0 125.0H500.0V250.0H250.0Z", PERSON, THICK),
    ]
    assert names(svg) == [("tag-text", "cat"), ("tag-text bad", "! person")]
    assert [one.text for one in svg.iter(f"{SVG}title")] == ["object 1: cat", "object 0: person"]
    inverted = drawn(boxes=[[0.5, 0.5, 0.25, 0.25]], offending={0})
    assert lines(inverted) == [("M250.0 125.0H500.0V250.0H250.0Z", PERSON, THICK)]


def test_boxes_outside_the_image_are_seen() -> None:
    boxes = [[-0.1, 0.2, 0.5, 0.5], [300, 200, 400, 300], [np.inf, 0, 0.5, 0.5]]
    svg = drawn(boxes=boxes, offending={0, 1})
    x, y, width, height = map(float, svg.get("viewBox").split())
    numbers = [float(n) for path, _, _ in lines(svg) for n in re.findall(r"-?\d+\.\d", path)]
    assert x < -100 and y == 0 and x + width > 1250 and y + height > 625
    assert min(numbers) == -100 and max(numbers) == 1250
    # The far box is a point at the corner, so it gets a ring.
    rings = [(one.get("cx"), one.get("cy")) for one in svg.iter(f"{SVG}circle")]
    assert rings == [("1250.0", "625.0")]


def test_at_most_two_hundred_are_drawn_with_the_wrong_ones() -> None:
    many = np.tile([0.1, 0.1, 0.2, 0.2], (230, 1))
    many[0, 0] = np.nan
    assert count_undrawn(sample(IMAGE, many)) == 30
    found = lines(drawn(boxes=many, offending={229}))
    assert len(found) == 200 and [width for *_, width in found].index(THICK) == 199


side = st.floats(-0.25, 1.25, width=32)
name = st.sampled_from(("a", "person", "汽车", "x" * 30))
some_boxes = st.lists(st.tuples(side, side, side, side, name), max_size=20)


@given(some_boxes, st.sets(st.integers(0, 19)), st.sampled_from(((320, 640), (640, 320), (9, 300))))
def test_names_do_not_cover_each_other(
    objects: list[tuple[Any, ...]], offending: set[int], size: tuple[int, int]
) -> None:
    boxes, classes = [one[:4] for one in objects], tuple(one[4] for one in objects)
    sizes = {"height": size[0], "width": size[1]}
    svg = drawn(None, boxes, classes=classes, offending=offending, **sizes)
    left, top, width, height = map(float, svg.get("viewBox").split())
    shown = [area_of(one) for one in svg.iter(f"{SVG}text") if one.get("class")]
    assert bool(shown) == bool(objects)
    for (x1, y1, x2, y2), *others in (shown[number:] for number in range(len(shown))):
        assert x1 >= left - 1 and y1 >= top - 1 and y2 <= top + height + 1
        assert x2 <= left + width + 1 or x1 <= left + 3  # a long name begins at the edge
        for other in others:
            assert x2 <= other[0] or other[2] <= x1 or y2 <= other[1] or other[3] <= y1


def area_of(text: etree._Element) -> tuple[float, float, float, float]:
    """The area of a name with its margin; letters usually have 0.65 of their height as width."""
    x, y, letter = (float(text.get(name)) for name in ("x", "y", "font-size"))
    wide = sum(2 if ord(one) > 0x2E80 else 1 for one in text.text)
    margin = 0.22 * letter
    return x - margin, y - letter, x + 0.65 * wide * letter + margin, y + margin


def test_a_name_without_room_is_in_the_tooltip() -> None:
    """The name of the wrong box is above the boxes at the same position."""
    svg = drawn(boxes=[[0.4, 0.4, 0.6, 0.6]] * 20, offending={7}, classes=("cat",) * 20)
    assert 1 < len(names(svg)) <= 3 and names(svg)[-1] == ("tag-text bad", "! cat")
    bad = next(one for one in svg.iter(f"{SVG}text") if one.get("class") == "tag-text bad")
    assert 180 < float(bad.get("y")) < 200
    assert len(list(svg.iter(f"{SVG}title"))) == 20


@given(st.text() | st.sampled_from([*HOSTILE, "автомобиль", "汽车", "x" * 5000, "🚗"]))
def test_any_text_is_xml(text: str) -> None:
    svg = drawn(None, [[0, 0, 1, 1]], classes=(text,), item=text, offending={0})
    tags = {element.tag for element in svg.iter()}
    assert tags <= {SVG + name for name in ("svg", "rect", "g", "title", "path", "text")}


KINDS = (
    "JPEG RGB,JPEG L,JPEG CMYK,PNG RGBA,PNG LA,PNG P,PNG I;16,PNG 1,GIF P,BMP RGB,WEBP RGB,TIFF F"
)


@pytest.mark.parametrize("kind", KINDS.split(","))
def test_images_of_any_kind_become_small_jpegs(kind: str) -> None:
    svg = draw(sample(plain_image((1000, 500), 0, *kind.split())))
    assert 'viewBox="0 0 1000 500"' in svg and pixels(svg).size == (960, 480)


def test_sixteen_bits_are_not_all_white() -> None:
    file = io.BytesIO()
    Image.fromarray(np.tile(np.arange(0, 60000, 600, dtype=np.uint16), (50, 1))).save(file, "PNG")
    values = np.asarray(pixels(draw(sample(file.getvalue()))).convert("L"))
    assert values.min() < 20 and values.max() > 230 and 100 < values.mean() < 155


def test_sizes_are_bounded() -> None:
    for size, shown in (((20, 10), (20, 10)), ((4000, 2000), (480, 240)), ((10, 4000), (1, 480))):
        image, aspect = make_thumbnail(sample(plain_image(size, 0, "PNG")), 480)
        assert image is not None and image.size == shown and 1 / 6 <= aspect <= 6
    for height, width in ((0, 0), (-5, 10), (1, 2**62)):
        assert 1 / 6 <= make_thumbnail(sample(None, height=height, width=width), 480)[1] <= 6


def test_exif_orientation_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert pixels(draw(sample(plain_image((400, 200), exif=exif)))).size == (400, 200)


PNG = plain_image((640, 320), 0, "PNG")
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n"


@pytest.mark.parametrize("image", [None, b"", b"no image", IMAGE[:200], PNG[:-30], POSTSCRIPT])
def test_images_that_do_not_decode_are_blank(image: bytes | None) -> None:
    svg = drawn(image, [[0, 0, 1, 1]], offending={0})
    words = "image cannot be decoded" if image else "no image in the record"
    assert words in svg.itertext() and svg.find(f"{SVG}image") is None
    assert svg.get("viewBox") == "0 0 1000 500" and len(lines(svg)) == 1


def test_a_decompression_bomb_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    image = plain_image((300, 300), 0, "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 300 - 1)
    assert "image cannot be decoded" in draw(sample(image))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 300)
    assert pixels(draw(sample(image))).size == (300, 300)
