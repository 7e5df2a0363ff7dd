"""Images with their boxes: as SVG over a thumbnail, or drawn into the pixels."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tfod.check.reporters.escaping import shortened_name
from tfod.check.reporters.html.samples import Sample
from tfod.check.reporters.html.thumbnails import (
    JPEG_QUALITY,
    shown_aspect,
    shrunk,
    thumbnail,
    why_no_image,
)

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

Colour: TypeAlias = tuple[int, int, int]
"""Red, green, blue."""
MOST_DRAWN = 200
REACH = 0.25
"""How far outside its image a box is drawn, as a part of the image; farther ones end there."""
UNIT = 1000.0
"""Width of an image in the units of its SVG."""
LONGEST = 1280
"""Pixels of the longer side of a drawn image, at most."""
_SHORTEST = 640
"""Pixels of the longer side of a drawn image, at least: lines and names need room."""
_AIR = 0.03
"""Room around boxes that reach outside, so that their lines are seen."""
_TINY, _TINY_PIXELS = 0.025, 16
"""A box that is smaller, as a part of the image or in pixels, gets a ring around it."""
_TALLEST, _USUAL_WIDTH, _LETTER = 12.0, 20.0, 0.8
"""Height of an image and of its names, and the width of most images in a report, rem."""
_MOST_NAMED = 24
_GREY, _WHITE, _BLACK = (138, 143, 152), (255, 255, 255), (16, 20, 24)
_RED, _BLUE = (227, 0, 27), (127, 212, 255)


def drawn_boxes(sample: Sample, reach: float = REACH) -> tuple[np.ndarray, list[int]]:
    """Boxes of a sample as they are drawn; those that reach farther outside end at ``reach``.

    Returns:
        All boxes, shape (n, 4), normalized, the smaller coordinate first, and the numbers of those
        to draw: with no NaN among them, not too many, the offending ones last.
    """
    boxes = np.asarray(sample.boxes, np.float64).reshape(-1, 4)
    known = np.nonzero(~np.isnan(boxes).any(axis=1))[0].tolist()
    numbers = sorted(known, key=lambda one: one not in sample.offending)
    upright = np.sort(boxes.reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    return np.clip(upright, -reach, 1 + reach), numbers[:MOST_DRAWN][::-1]


def extent(boxes: np.ndarray) -> tuple[float, float, float, float]:
    """The image and all that reaches outside: left, top, right, bottom, normalized."""
    corners = np.vstack((boxes, (0.0, 0.0, 1.0, 1.0)))
    left, top = (one - _AIR * (one < 0) for one in corners[:, :2].min(axis=0).tolist())
    right, bottom = (one + _AIR * (one > 1) for one in corners[:, 2:].max(axis=0).tolist())
    return left, top, right, bottom


def _name(sample: Sample, number: int) -> str:
    return sample.classes[number] if number < len(sample.classes) else ""


# As SVG


@dataclass(frozen=True)
class Mark:
    """A box as an SVG path, with a tooltip, and a ring ``x, y`` if it is hard to see.

    ``tag`` is its class as it is written into the image, at ``tag_x`` and ``tag_y``, where the text
    ends if ``tag_ends`` says so; empty for none.
    """

    path: str
    label: str
    offending: bool
    colour: str
    ring: tuple[float, float] | None
    tag: str = ""
    tag_x: float = 0
    tag_y: float = 0
    tag_ends: bool = False


@dataclass(frozen=True)
class Card:
    """A sample as a page shows it, in an SVG in which the image is ``0 0 1000 image_height``.

    Attributes:
        uri: its thumbnail.
        view_box: with a margin around the image if boxes are outside.
        width, height: of the SVG at most, rem.
        marks: boxes, the offending ones last, on top of the others; with their classes, unless
            they are too many. ``letter`` is the height of these.
        undrawn: boxes that are too many, or not finite.
        link: where a larger image is; empty for none.
        masks: ``data:`` URI of an image of the masks; empty for none.
        points: keypoints: x, y, colour, and whether they are filled.
    """

    sample: Sample
    uri: str
    view_box: str
    image_height: float
    width: float
    height: float
    marks: Sequence[Mark]
    letter: float
    undrawn: int
    link: str
    masks: str = ""
    points: Sequence[tuple[float, float, str, bool]] = ()


def make_card(
    sample: Sample,
    link: str = "",
    *,
    colours: Sequence[str] = (),
    most_named: int = _MOST_NAMED,
    tallest: float = _TALLEST,
) -> Card:
    """Prepare a sample for a page, an image ``tallest`` rem at most.

    Without colours of the boxes the offending ones are red and the others blue. Where there are
    more than ``most_named`` only the classes of the offending ones are written.
    """
    uri, aspect = thumbnail(sample)
    boxes, drawn = drawn_boxes(sample)
    height = UNIT / aspect
    scale = (UNIT, height, UNIT, height)
    left, top, right, bottom = np.multiply(extent(boxes[drawn]), scale).tolist()
    wide = right - left
    width = tallest * wide / (bottom - top)
    letter = _LETTER * wide / min(_USUAL_WIDTH, width)
    marks = []

    for number in drawn:
        name, bad = _name(sample, number), number in sample.offending
        x1, y1, x2, y2 = (boxes[number] * scale).tolist()
        is_tiny = bad and max(x2 - x1, y2 - y1) < _TINY * UNIT
        path = f"M{x1:.1f} {y1:.1f}H{x2:.1f}V{y2:.1f}H{x1:.1f}Z"
        ring = ((x1 + x2) / 2, (y1 + y2) / 2) if is_tiny else None
        # The class above the box's corner, or within it where there is no room.
        end = x1 > left + 0.7 * wide
        x = min(x2, right - letter / 2) if end else max(x1, left + letter / 2)
        y = y1 + 1.1 * letter if y1 - 1.3 * letter < top else y1 - 0.35 * letter
        title = f"object {number}" + (f": {name}" if name else "")
        tag = shortened_name(name) if bad or len(drawn) <= most_named else ""
        colour = colours[number] if colours else ""
        marks.append(Mark(path, title, bad, colour, ring, tag, x, y, end))
    return Card(
        sample=sample,
        uri=uri,
        view_box=f"{left:.0f} {top:.0f} {wide:.0f} {bottom - top:.0f}",
        image_height=height,
        width=width,
        height=tallest,
        marks=marks,
        letter=letter,
        undrawn=len(boxes) - len(drawn),
        link=link,
    )


# Into the pixels


@dataclass(frozen=True)
class Outline:
    """A box to draw into an image: left, top, right and bottom in pixels, and how it looks."""

    box: tuple[float, float, float, float]
    colour: Colour
    width: int = 2
    rim: Colour = _WHITE
    rim_width: int = 4
    name: str = ""
    ringed: bool = False


def draw_image(sample: Sample) -> bytes:
    """Draw the boxes of a sample into its image.

    The offending ones are red, with a white rim and their classes; the others are light blue. An
    image that does not decode is a grey field. Boxes that reach outside end at the edge.

    Returns:
        A JPEG; its pixels are as they are stored: EXIF orientation is not applied.

    Raises:
        TfodError: Pillow is not installed.
    """
    small = shrunk(sample, LONGEST)
    aspect = shown_aspect(sample, small)
    longest = max(_SHORTEST, *small.image.size) if small else _SHORTEST
    size = round(longest * min(aspect, 1)), round(longest / max(aspect, 1))
    canvas = small.image.resize(size) if small else blank_field(size, why_no_image(sample))
    boxes, numbers = drawn_boxes(sample, reach=0.0)
    pixels = (boxes * np.tile(np.array(size) - 1, 2)).tolist()

    def outline(number: int) -> Outline:
        if number not in sample.offending:
            return Outline(pixels[number], _BLUE, rim=_BLACK)
        # Pillow's own font has no other letters; the page has all.
        own = _name(sample, number)
        name = f"{number} {shortened_name(own) if own.isascii() else ''}".rstrip()
        return Outline(pixels[number], _RED, 4, _WHITE, 7, name, ringed=True)

    draw_outlines(canvas, map(outline, numbers), 16)
    file = io.BytesIO()
    canvas.save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def blank_field(size: tuple[int, int], words: str) -> Image.Image:
    """What stands for an image that cannot be shown."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", size, _GREY)
    ImageDraw.Draw(image).text(
        (size[0] / 2, size[1] * 0.92),
        words,
        fill=_WHITE,
        font_size=max(9, min(20, size[0] // 14)),
        anchor="mm",
    )
    return image


def draw_outlines(canvas: Image.Image, outlines: Iterable[Outline], letter: int) -> None:
    """Draw boxes, each a line in the middle of a wider one, and then their names.

    ``canvas`` is RGB, and ``letter`` the height of the names in pixels.
    """
    from PIL import ImageDraw

    draw = ImageDraw.Draw(canvas)
    named = []
    for one in outlines:
        left, top, right, bottom = one.box
        lines = ((one.rim, one.rim_width), (one.colour, one.width))
        if one.ringed and max(right - left, bottom - top) < _TINY_PIXELS:
            x, y = (left + right) / 2, (top + bottom) / 2
            for colour, width in lines:
                far = _TINY_PIXELS * 1.5 + width / 2
                draw.ellipse((x - far, y - far, x + far, y + far), outline=colour, width=width)
        for colour, width in lines:
            half = width // 2  # Pillow draws an outline inwards
            around = (left - half, top - half, right + half, bottom + half)
            draw.rectangle(around, outline=colour, width=width)
        if one.name:
            named.append(one)
    for one in named:
        _write_name(draw, one, letter, canvas.size)


def _write_name(
    draw: ImageDraw.ImageDraw, outline: Outline, letter: int, size: tuple[int, int]
) -> None:
    """Above its box, or within it where there is no room above."""
    left, top, right, bottom = draw.textbbox((0, 0), outline.name, font_size=letter)
    wide, high = right - left + 10, bottom - top + 8
    x = max(0.0, min(outline.box[0] - 3, size[0] - wide))
    y = outline.box[1] - 3 - high
    if y < 0:
        y = max(0.0, min(outline.box[1] + 4, size[1] - high))
    draw.rectangle((x, y, x + wide, y + high), fill=outline.colour, outline=_WHITE)
    draw.text((x + 5 - left, y + 4 - top), outline.name, fill=_WHITE, font_size=letter)
