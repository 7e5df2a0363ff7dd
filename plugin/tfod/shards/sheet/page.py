"""A contact sheet as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from tfod.check.reporters.drawing import MOST_DRAWN, draw
from tfod.check.reporters.html import Card, render_cards
from tfod.check.reporters.wording import record_name
from tfod.shards.sheet.tile import Tile, mask_layer, spelled

_TALLEST = 22.0
"""Height of an image on a page at most, rem."""


def render_page(tiles: Iterable[Tile], title: str) -> str:
    """Write tiles as a page, to be saved as UTF-8.

    It loads nothing and runs no script. Raises TfodError where jinja2 or Pillow is not installed.
    """
    tiles = list(tiles)
    several = len({tile.sample.shard for tile in tiles}) > 1
    return render_cards([_card(tile, several=several) for tile in tiles], title)


def _card(tile: Tile, *, several: bool) -> Card:
    sample, colours = tile.sample, [spelled(one) for one in tile.colours]
    where = record_name(sample.record)
    classes = tile.classes.most_common()
    return Card(
        svg=draw(
            sample,
            colours=colours,
            most_named=MOST_DRAWN,
            tallest=_TALLEST,
            masks=partial(mask_layer, tile),
            points=[(x, y, colours[number], filled) for number, x, y, filled in _points(tile)],
        ),
        name=sample.item or "",
        where=f"{sample.shard}, {where}" if several else where,
        notes=tile.notes,
        classes=[
            *((name, "", 1) for name in tile.labels),
            *((name, spelled(colour), count) for (name, colour), count in classes),
        ],
    )


def _points(tile: Tile) -> Iterator[tuple[int, float, float, bool]]:
    """Keypoints: number of the object, x and y, normalized, and whether it is visible."""
    if tile.keypoints is None:
        return
    places = tile.keypoints.xy.astype(np.float64)
    how = tile.keypoints.visibility
    shown = (how != 0) & np.isfinite(places).all(axis=2) & (np.abs(places) < 1e3).all(axis=2)
    for number, place in np.argwhere(shown).tolist():
        x, y = places[number, place].tolist()
        yield number, x, y, bool(how[number, place] == 2)
