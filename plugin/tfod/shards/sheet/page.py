"""A contact sheet as a PNG, or as one self-contained HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tfod.check.reporters.escaping import shortened_name, visible
from tfod.check.reporters.html.drawing import (
    MOST_DRAWN,
    UNIT,
    Card,
    Colour,
    Outline,
    blank_field,
    draw_outlines,
    drawn_boxes,
    extent,
    font_for,
    make_card,
)
from tfod.check.reporters.html.page import render_template
from tfod.check.reporters.html.thumbnails import (
    WIDEST,
    data_uri,
    shown_aspect,
    shrunk,
    why_no_image,
)
from tfod.errors import TfodError, how_to_install
from tfod.shards.sheet.tile import Tile, mask_layer, spelled
from tfod.version import __version__

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

WIDTH, HEIGHT = 320, 240
"""Pixels of a tile's image at most."""
_TALLEST = 22.0
"""Height of an image on a page at most, rem."""
_LINE, _MARGIN, _GAP, _POINT = 17, 6, 10, 3
_NAME_SIZE, _CAPTION_SIZE = 12, 13
_PAPER, _FIELD, _TEXT = (255, 255, 255), (240, 242, 244), (27, 31, 36)
_FAINT, _ALERT = (87, 96, 106), (180, 35, 24)
_MOST_PIXELS = 100_000_000


def render_page(tiles: Iterable[Tile], title: str, columns: int) -> str:
    """Write tiles as a page, so many beside each other, to be saved as UTF-8.

    It loads nothing and runs no script. Raises TfodError where jinja2 or Pillow is not installed.
    """
    tiles = list(tiles)
    return render_template(
        "sheet.html",
        figures=[(tile, _card(tile)) for tile in tiles],
        title=title,
        columns=columns,
        several=len({tile.sample.place.shard for tile in tiles}) > 1,
        spelled=spelled,
        version=__version__,
    )


def _card(tile: Tile) -> Card:
    colours = [spelled(one) for one in tile.colours]
    card = make_card(tile.sample, colours=colours, most_named=MOST_DRAWN, tallest=_TALLEST)
    height = max(1, round(WIDEST * card.image_height / UNIT))
    layer, masks = mask_layer(tile, (WIDEST, min(height, 4 * WIDEST))), ""
    if layer is not None:
        layer.save(file := io.BytesIO(), "PNG")
        masks = data_uri("image/png", file.getvalue())
    points = [
        (x, y, colours[number], filled)
        for number, x, y, filled in _points(tile, (UNIT, card.image_height))
    ]
    return replace(card, masks=masks, points=points)


def _points(tile: Tile, size: tuple[float, float]) -> Iterator[tuple[int, float, float, bool]]:
    """Keypoints: number of the object, x and y in an image of a size, whether it is visible."""
    if tile.keypoints is None:
        return
    pixels = tile.keypoints.xy.astype(np.float64) * size
    how = tile.keypoints.visibility
    shown = (how != 0) & np.isfinite(pixels).all(axis=2) & (np.abs(pixels) < 1e6).all(axis=2)
    for number, place in np.argwhere(shown).tolist():
        x, y = pixels[number, place].tolist()
        yield number, x, y, bool(how[number, place] == 2)


def paint_sheet(tiles: Sequence[Tile], columns: int) -> bytes:
    """Paint at least one tile into a PNG, row by row, so many beside each other.

    Below each are the record's number and the image's file name, then what is odd about it, or the
    classes of the whole image, or the shard where there are several.

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
    sheet.save(file := io.BytesIO(), "PNG", optimize=True)
    return file.getvalue()


def _new_image(size: tuple[int, int], colour: Colour) -> Image.Image:
    try:
        from PIL import Image
    except ImportError:
        raise TfodError(f"images of the sheet need Pillow; {how_to_install('validator')}") from None
    return Image.new("RGB", size, colour)


def _paint_tile(tile: Tile, height: int, several: bool) -> Image.Image:
    """A record's image in its frame, and the caption below."""
    from PIL import ImageDraw

    frame = _new_image((WIDTH, HEIGHT), _FIELD)
    small = shrunk(tile.sample, max(WIDTH, HEIGHT))
    boxes, numbers = drawn_boxes(tile.sample)
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
    corners = (boxes * np.tile(np.array(size) - 1, 2) + (x, y, x, y)).tolist()
    outlines = (
        Outline(corners[n], tile.colours[n], name=shortened_name(tile.sample.classes[n]))
        for n in numbers
    )
    draw_outlines(frame, outlines, _NAME_SIZE)
    draw = ImageDraw.Draw(frame)
    for number, px, py, filled in _points(tile, size):
        colour = tile.colours[number]
        point = (_POINT, colour if filled else _PAPER, colour)
        for far, fill, line in ((_POINT + 1, _PAPER, _PAPER), point):
            around = (x + px - far, y + py - far, x + px + far, y + py + far)
            draw.ellipse(around, fill=fill, outline=line, width=2)
    whole = _new_image((WIDTH, height), _PAPER)
    whole.paste(frame, (0, 0))
    _write_caption(ImageDraw.Draw(whole), tile, several)
    return whole


def _write_caption(draw: ImageDraw.ImageDraw, tile: Tile, several: bool) -> None:
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
    draw: ImageDraw.ImageDraw, at: tuple[float, float], text: str, colour: Colour, keep_end: bool
) -> None:
    """Write on a base line; cut to the tile, of a name the end says more than the beginning."""
    text = visible(text[-200:] if keep_end else text[:200])
    font = font_for(text, _CAPTION_SIZE)
    shown = text
    while shown and font.getlength(shown) > WIDTH - at[0]:
        text = text[1:] if keep_end else text[:-1]
        shown = f"…{text}" if keep_end else f"{text}…"
    draw.text(at, shown, fill=colour, font=font, anchor="ls")
