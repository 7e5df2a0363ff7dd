"""A contact sheet as one self-contained HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from tfod.check.reporters.html.drawing import MOST_DRAWN, UNIT, Card, make_card
from tfod.check.reporters.html.page import render_template
from tfod.check.reporters.html.thumbnails import WIDEST, data_uri
from tfod.shards.sheet.tile import Tile, mask_layer, spelled
from tfod.version import __version__

_TALLEST = 22.0
"""Height of an image on a page at most, rem."""


def render_page(tiles: Iterable[Tile], title: str) -> str:
    """Write tiles as a page, to be saved as UTF-8.

    It loads nothing and runs no script. Raises TfodError where jinja2 or Pillow is not installed.
    """
    tiles = list(tiles)
    return render_template(
        "sheet.html",
        figures=[(tile, _card(tile)) for tile in tiles],
        title=title,
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
