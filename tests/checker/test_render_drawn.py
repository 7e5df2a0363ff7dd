"""Images with their boxes, as SVG: on a page and by themselves."""

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
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
    "normal vision": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}
"""What people see of linear red, green and blue (Machado, Oliveira, Fernandes 2009)."""
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def drawn(image: bytes | None = IMAGE, boxes: object = (), **fields: object) -> etree._Element:
    """The SVG, as strict readers of XML read it."""
    return etree.fromstring(draw(sample(image, boxes, **fields)))


def lines(svg: etree._Element) -> list[tuple[str, str, str]]:
    """Path, colour and width of each box, the one on top last."""
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
    seen = [to_lab(np.array(SIMULATIONS[sight]) @ to_linear(colour)) for colour in PALETTE]
    apart = [np.linalg.norm(a - b) for n, a in enumerate(seen) for b in seen[:n]]
    assert min(apart) > 15
    assert min(np.linalg.norm(a - b) for a, b in itertools.pairwise([*seen, seen[0]])) > 20


def test_names_can_be_read_on_each_colour() -> None:
    for colour in PALETTE:
        light, dark = sorted(
            (1.0 if choose_text_colour(colour) == "#fff" else 0.0, luminance(colour))
        )
        assert (dark + 0.05) / (light + 0.05) >= 4.5  # WCAG 2.2


def luminance(colour: str) -> float:
    return float(np.dot(to_linear(colour), XYZ[1]))


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
    # The far one is a point at the corner: it gets a ring.
    rings = [(one.get("cx"), one.get("cy")) for one in svg.iter(f"{SVG}circle")]
    assert rings == [("1250.0", "625.0")]


def test_at_most_two_hundred_are_drawn_the_wrong_ones_surely() -> None:
    many = np.tile([0.1, 0.1, 0.2, 0.2], (230, 1))
    many[0, 0] = np.nan
    assert count_undrawn(sample(IMAGE, many)) == 30
    found = lines(drawn(boxes=many, offending={229}))
    assert len(found) == 200 and [width for *_, width in found].index(THICK) == 199


some_boxes = st.lists(
    st.tuples(
        *[st.floats(-0.25, 1.25, width=32)] * 4, st.sampled_from(("a", "person", "汽车", "x" * 30))
    ),
    max_size=20,
)


@given(some_boxes, st.sets(st.integers(0, 19)), st.sampled_from(((320, 640), (640, 320), (9, 300))))
def test_names_do_not_cover_each_other(
    objects: list[tuple[Any, ...]], offending: set[int], size: tuple[int, int]
) -> None:
    svg = drawn(
        None,
        [one[:4] for one in objects],
        classes=tuple(one[4] for one in objects),
        offending=offending,
        height=size[0],
        width=size[1],
    )
    left, top, width, height = map(float, svg.get("viewBox").split())
    shown = [area_of(one) for one in svg.iter(f"{SVG}text") if one.get("class")]
    assert bool(shown) == bool(objects)
    for (x1, y1, x2, y2), *others in (shown[number:] for number in range(len(shown))):
        assert x1 >= left - 1 and y1 >= top - 1 and y2 <= top + height + 1
        assert x2 <= left + width + 1 or x1 <= left + 3  # what is too long begins at the edge
        for other in others:
            assert x2 <= other[0] or other[2] <= x1 or y2 <= other[1] or other[3] <= y1


def area_of(text: etree._Element) -> tuple[float, float, float, float]:
    """What a name takes, with its rim; letters are mostly 0.65 of their height wide."""
    x, y, letter = (float(text.get(name)) for name in ("x", "y", "font-size"))
    wide = sum(2 if ord(one) > 0x2E80 else 1 for one in text.text)
    rim = 0.22 * letter
    return x - rim, y - letter, x + 0.65 * wide * letter + rim, y + rim


def test_a_name_without_room_is_in_the_tooltip() -> None:
    """Of many boxes at one place; that of the wrong one is written above it."""
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


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("JPEG", mode) for mode in ("RGB", "L", "CMYK")),
        *(("PNG", mode) for mode in ("RGBA", "LA", "P", "I;16", "1")),
        *(("GIF", "P"), ("BMP", "RGB"), ("WEBP", "RGB"), ("TIFF", "F")),
    ],
)
def test_images_of_any_kind_become_small_jpegs(kind: str, mode: str) -> None:
    svg = draw(sample(plain_image((1000, 500), 0, kind, mode)))
    assert 'viewBox="0 0 1000 500"' in svg and pixels(svg).size == (960, 480)


def test_sixteen_bits_are_not_all_white() -> None:
    file = io.BytesIO()
    Image.fromarray(np.tile(np.arange(0, 60000, 600, dtype=np.uint16), (50, 1))).save(file, "PNG")
    values = np.asarray(pixels(draw(sample(file.getvalue()))).convert("L"))
    assert values.min() < 20 and values.max() > 230 and 100 < values.mean() < 155


@pytest.mark.parametrize(
    ("size", "longest", "shown"),
    [((20, 10), 480, (20, 10)), ((4000, 2000), 480, (480, 240)), ((10, 4000), 480, (1, 480))],
)
def test_sizes_are_bounded(size: tuple[int, int], longest: int, shown: tuple[int, int]) -> None:
    image, aspect = make_thumbnail(sample(plain_image(size, 0, "PNG")), longest)
    assert image is not None and image.size == shown and 1 / 6 <= aspect <= 6


def test_exif_orientation_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert pixels(draw(sample(plain_image((400, 200), exif=exif)))).size == (400, 200)


@pytest.mark.parametrize(
    "image",
    [
        *(None, b"", b"not an image", IMAGE[:200]),
        *(plain_image((640, 320), 0, "PNG")[:-30], b"%!PS-Adobe-3.0 EPSF-3.0\n"),
    ],
    ids=["none", "empty", "garbage", "cut JPEG", "cut PNG", "PostScript"],
)
def test_what_does_not_decode_is_a_field_of_the_same_shape(image: bytes | None) -> None:
    svg = drawn(image, [[0, 0, 1, 1]], offending={0})
    words = "image cannot be decoded" if image else "no image in the record"
    assert words in svg.itertext() and svg.find(f"{SVG}image") is None
    assert svg.get("viewBox") == "0 0 1000 500" and len(lines(svg)) == 1


@pytest.mark.parametrize("size", [(0, 0), (-5, 10), (1, 2**62)])
def test_absurd_sizes_of_records(size: tuple[int, int]) -> None:
    assert 1 / 6 <= make_thumbnail(sample(None, height=size[0], width=size[1]), 480)[1] <= 6


def test_a_decompression_bomb_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    image = plain_image((300, 300), 0, "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 300 - 1)
    assert "image cannot be decoded" in draw(sample(image))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 300)
    assert pixels(draw(sample(image))).size == (300, 300)
