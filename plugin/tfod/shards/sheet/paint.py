"""A contact sheet as a PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfod.check.reporters.drawing import FARTHEST, drawn_boxes, extent
from tfod.check.reporters.drawn import (
    Box,
    Colour,
    blank_field,
    draw_box,
    draw_name,
    upright,
)
from tfod.check.reporters.escaping import shortened_name, visible
from tfod.check.reporters.fonts import Font, font_for
from tfod.check.samples import shown_aspect, shrunk, why_no_image
from tfod.errors import TfodError, how_to_install
from tfod.shards.sheet.tile import Tile, mask_layer

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

WIDTH, HEIGHT = 320, 240
"""Pixels of a tile's image at most."""
_LINE = 17
_MARGIN = 6
_GAP = 10
_NAME_SIZE, _CAPTION_SIZE = 12, 13
_PAPER, _FIELD, _TEXT, _FAINT, _ALERT = (
    (255, 255, 255),
    (240, 242, 244),
    (27, 31, 36),
    (87, 96, 106),
    (180, 35, 24),
)
_POINT = 3
_MOST_PIXELS = 100_000_000


def paint_sheet(tiles: Sequence[Tile], columns: int) -> bytes:
    """Paint tiles into one image, row by row.

    Below each are the record's number and the image's file name, then what is odd about it, or
    the classes of the whole image, or the shard where there are several.

    Args:
        tiles: at least one.
        columns: how many beside each other; fewer where there are fewer tiles.

    Returns:
        A PNG.

    Raises:
        TfodError: Pillow is not installed, or the sheet would have too many pixels.
    """
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    several = len({tile.sample.place.shard for tile in tiles}) > 1
    lines = 2 if any(_second_line(tile, several) for tile in tiles) else 1
    height = HEIGHT + lines * _LINE + _MARGIN
    step = WIDTH + _GAP, height + _GAP
    size = columns * step[0] + _GAP, rows * step[1] + _GAP
    if size[0] * size[1] > _MOST_PIXELS:
        raise TfodError(
            f"{len(tiles):,} images are too many for one PNG ({size[0]:,} x {size[1]:,} pixels); "
            "show fewer, or write a .html"
        )
    sheet = _new_image(size, _PAPER)
    for place, tile in enumerate(tiles):
        at = _GAP + place % columns * step[0], _GAP + place // columns * step[1]
        sheet.paste(_paint_tile(tile, height, several), at)
    file = io.BytesIO()
    sheet.save(file, "PNG", optimize=True)
    return file.getvalue()


def _new_image(size: tuple[int, int], colour: Colour) -> Image.Image:
    try:
        from PIL import Image
    except ImportError:
        raise TfodError(f"images of the sheet need Pillow; {how_to_install('validator')}") from None
    return Image.new("RGB", size, colour)


def _paint_tile(tile: Tile, height: int, several: bool) -> Image.Image:
    """A record's image in its frame, and the caption below."""
    frame = _new_image((WIDTH, HEIGHT), _FIELD)
    small = shrunk(tile.sample, max(WIDTH, HEIGHT))
    boxes, numbers = drawn_boxes(tile.sample, reach=FARTHEST)
    left, top, right, bottom = extent(boxes[numbers])
    aspect = shown_aspect(tile.sample, small)
    # The image and what reaches outside have to fit.
    scale = min(WIDTH / (aspect * (right - left)), HEIGHT / (bottom - top))
    size = max(1, round(aspect * scale)), max(1, round(scale))
    x = round((WIDTH - (right - left) * size[0]) / 2 - left * size[0])
    y = round((HEIGHT - (bottom - top) * size[1]) / 2 - top * size[1])
    image = small.image.resize(size) if small else blank_field(size, why_no_image(tile.sample))
    layer = mask_layer(tile, size)
    if layer is not None:
        image.paste(layer, (0, 0), layer)
    frame.paste(image, (x, y))
    corners = boxes * np.tile(np.array(size) - 1, 2) + np.array((x, y, x, y))
    _draw_objects(frame, tile, corners, numbers)
    _draw_points(frame, tile, size, (x, y))
    whole = _new_image((WIDTH, height), _PAPER)
    whole.paste(frame, (0, 0))
    _write_caption(whole, tile, several)
    return whole


def _draw_objects(
    frame: Image.Image, tile: Tile, corners: np.ndarray, numbers: Sequence[int]
) -> None:
    from PIL import ImageDraw

    draw = ImageDraw.Draw(frame)
    named: list[tuple[Box, int]] = []
    for number in numbers:
        box = upright(corners[number])
        draw_box(draw, box, rim=(_PAPER, 4), line=(tile.colours[number], 2))
        named.append((box, number))
    for box, number in named:
        name = shortened_name(tile.sample.classes[number])
        if name:
            font = font_for(name, _NAME_SIZE)
            draw_name(draw, box, name, font, frame.size, tile.colours[number])


def _draw_points(
    frame: Image.Image, tile: Tile, size: tuple[int, int], at: tuple[int, int]
) -> None:
    """Keypoints: filled where they are visible, hollow where they are hidden."""
    if tile.keypoints is None:
        return
    from PIL import ImageDraw

    draw = ImageDraw.Draw(frame)
    pixels = tile.keypoints.xy.astype(np.float64) * size + at
    for number, (points, visible_) in enumerate(
        zip(pixels, tile.keypoints.visibility, strict=True)
    ):
        for (x, y), seen in zip(points.tolist(), visible_.tolist(), strict=True):
            if seen and np.isfinite((x, y)).all() and max(abs(x), abs(y)) < 1e6:
                fill = tile.colours[number] if seen == 2 else None
                _draw_point(draw, x, y, tile.colours[number], fill)


def _draw_point(
    draw: ImageDraw.ImageDraw, x: float, y: float, colour: Colour, fill: Colour | None
) -> None:
    rim = _POINT + 1
    draw.ellipse((x - rim, y - rim, x + rim, y + rim), fill=_PAPER)
    around = (x - _POINT, y - _POINT, x + _POINT, y + _POINT)
    draw.ellipse(around, fill=fill, outline=colour, width=2)


def _write_caption(whole: Image.Image, tile: Tile, several: bool) -> None:
    from PIL import ImageDraw

    draw = ImageDraw.Draw(whole)
    place = tile.sample.place
    number, y = f"{place.record}", HEIGHT + _LINE
    font = font_for(number, _CAPTION_SIZE)
    draw.text((2, y), number, fill=_TEXT, font=font, anchor="ls")
    indent = 2 + font.getlength(number) + 8
    _write(draw, (indent, y), place.item or "", _FAINT, keep_end=True)
    second = _second_line(tile, several)
    if second:
        text, colour = second
        _write(draw, (2, y + _LINE), text, colour, keep_end=text == place.shard)


def _second_line(tile: Tile, several: bool) -> tuple[str, Colour] | None:
    """What else there is to say of a record: the most urgent of it."""
    if tile.notes:
        return "; ".join(tile.notes), _ALERT
    if tile.labels:
        return ", ".join(tile.labels), _TEXT
    return (tile.sample.place.shard, _FAINT) if several else None


def _write(
    draw: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    colour: Colour,
    keep_end: bool = False,
) -> None:
    """Write on a base line; cut to the tile, of a name the end says more than the beginning."""
    text = visible(text[-200:] if keep_end else text[:200])
    font: Font = font_for(text, _CAPTION_SIZE)
    shown = text
    while shown and font.getlength(shown) > WIDTH - at[0]:
        text = text[1:] if keep_end else text[:-1]
        shown = f"…{text}" if keep_end else f"{text}…"
    draw.text(at, shown, fill=colour, font=font, anchor="ls")
