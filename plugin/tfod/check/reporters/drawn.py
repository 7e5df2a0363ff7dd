"""An image with its boxes drawn into it, as a file of its own."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from tfod.check.reporters.drawing import drawn_boxes
from tfod.check.reporters.escaping import shortened_name
from tfod.check.reporters.fonts import Font, default_font
from tfod.check.samples import JPEG_QUALITY, Sample, shown_aspect, shrunk, why_no_image

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

LONGEST = 1280
"""Pixels of the longer side, at most."""
_SHORTEST = 640
"""Pixels of the longer side, at least: lines and names need room."""
_TINY = 16
"""Pixels of a box that gets a ring around it."""
_GREY, _WHITE, _BLACK = (138, 143, 152), (255, 255, 255), (16, 20, 24)
_RED, _BLUE = (227, 0, 27), (127, 212, 255)

Colour = tuple[int, int, int]
"""Red, green, blue."""
Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""


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
    size = _size(shown_aspect(sample, small), max(small.image.size) if small else 0)
    canvas = small.image.resize(size) if small else blank_field(size, why_no_image(sample))
    _draw_boxes(canvas, sample)
    file = io.BytesIO()
    canvas.save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()


def _size(aspect: float, longest: int) -> tuple[int, int]:
    longest = max(longest, _SHORTEST)
    return round(longest * min(aspect, 1)), round(longest / max(aspect, 1))


def blank_field(size: tuple[int, int], words: str) -> Image.Image:
    """What stands for an image that cannot be shown."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", size, _GREY)
    font = default_font(max(9, min(20, size[0] // 14)))
    ImageDraw.Draw(image).text(
        (size[0] / 2, size[1] * 0.92), words, fill=_WHITE, font=font, anchor="mm"
    )
    return image


def _draw_boxes(canvas: Image.Image, sample: Sample) -> None:
    from PIL import ImageDraw

    draw = ImageDraw.Draw(canvas)
    boxes, numbers = drawn_boxes(sample, reach=0.0)
    pixels = boxes * np.tile(np.array(canvas.size) - 1, 2)
    named = []
    for number in numbers:
        box = upright(pixels[number])
        if number in sample.offending:
            _draw_ring(draw, box)
            draw_box(draw, box, rim=(_WHITE, 7), line=(_RED, 4))
            named.append((number, box))
        else:
            draw_box(draw, box, rim=(_BLACK, 4), line=(_BLUE, 2))
    for number, box in named:
        draw_name(draw, box, _name(sample, number), default_font(16), canvas.size, _RED)


def upright(corners: np.ndarray) -> Box:
    """A box of four corners as left, top, right, bottom, though it may be inverted."""
    x, y = sorted(corners[0::2].tolist()), sorted(corners[1::2].tolist())
    return x[0], y[0], x[1], y[1]


def draw_box(
    draw: ImageDraw.ImageDraw, box: Box, rim: tuple[Colour, int], line: tuple[Colour, int]
) -> None:
    """Outline a box with a line in the middle of a wider one of another colour."""
    left, top, right, bottom = box
    for colour, width in (rim, line):
        # Pillow draws an outline inwards.
        half = width // 2
        around = (left - half, top - half, right + half, bottom + half)
        draw.rectangle(around, outline=colour, width=width)


def _draw_ring(draw: ImageDraw.ImageDraw, box: Box) -> None:
    """A ring around an offending box that is hard to see."""
    left, top, right, bottom = box
    if max(right - left, bottom - top) >= _TINY:
        return
    x, y, radius = (left + right) / 2, (top + bottom) / 2, _TINY * 1.5
    for colour, width in ((_WHITE, 7), (_RED, 4)):
        far = radius + width / 2
        draw.ellipse((x - far, y - far, x + far, y + far), outline=colour, width=width)


def _name(sample: Sample, number: int) -> str:
    """The number, too: the font may lack the letters of the class."""
    name = sample.classes[number] if number < len(sample.classes) else ""
    return f"{number} {shortened_name(name)}".rstrip()


def draw_name(
    draw: ImageDraw.ImageDraw,
    box: Box,
    name: str,
    font: Font,
    size: tuple[int, int],
    colour: Colour,
) -> None:
    """Write a name above its box, or within it where there is no room above."""
    left, top, right, bottom = draw.textbbox((0, 0), name, font=font)
    wide, high = right - left + 10, bottom - top + 8
    x = max(0.0, min(box[0] - 3, size[0] - wide))
    y = box[1] - 3 - high
    if y < 0:
        y = max(0.0, min(box[1] + 4, size[1] - high))
    draw.rectangle((x, y, x + wide, y + high), fill=colour, outline=_WHITE)
    draw.text((x + 5 - left, y + 4 - top), name, fill=_WHITE, font=font)
