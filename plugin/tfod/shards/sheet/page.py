"""A contact sheet as one self-contained HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tfod.check.reporters.drawing import MOST_DRAWN, Card, Tag, make_card
from tfod.check.reporters.html import render_template
from tfod.check.samples import WIDEST, data_uri
from tfod.shards.sheet.colours import spelled
from tfod.shards.sheet.tile import Tile, mask_layer
from tfod.version import __version__

_TALLEST = 22.0
"""Height of an image at most, rem."""
_UNIT = 1000.0
"""Width of an image in the units of its overlay, as :class:`Card` has it."""


@dataclass(frozen=True)
class Point:
    """A keypoint."""

    x: float
    y: float
    colour: str
    filled: bool


@dataclass(frozen=True)
class Figure:
    """A tile as the template takes it.

    Attributes:
        tile: what is shown.
        card: image and boxes.
        outlines: path, colour and tooltip of each box.
        tags: the classes, and their colours.
        masks: ``data:`` URI of a PNG over the image; empty for none.
        classes: name, colour and number of objects.
    """

    tile: Tile
    card: Card
    outlines: tuple[tuple[str, str, str], ...]
    tags: tuple[tuple[Tag, str], ...]
    points: tuple[Point, ...]
    masks: str
    classes: tuple[tuple[str, str, int], ...]


def render_page(tiles: Iterable[Tile], title: str, columns: int) -> str:
    """Write tiles as a page, to be saved as UTF-8. It loads nothing and runs no script.

    Args:
        tiles: what to show.
        title: of the page, the name of the source.
        columns: how many beside each other where the window is wide enough.

    Raises:
        TfodError: jinja2 or Pillow is not installed.
    """
    figures = [_figure(tile) for tile in tiles]
    several = len({one.tile.sample.place.shard for one in figures}) > 1
    return render_template(
        "sheet.html",
        figures=figures,
        title=title,
        columns=columns,
        several=several,
        version=__version__,
    )


def _figure(tile: Tile) -> Figure:
    card = make_card(tile.sample, most_named=MOST_DRAWN, tallest=_TALLEST)
    return Figure(
        tile=tile,
        card=card,
        outlines=tuple(
            (mark.path, spelled(tile.colours[mark.number]), mark.label) for mark in card.marks
        ),
        tags=tuple((tag, spelled(tile.colours[tag.number])) for tag in card.tags),
        points=tuple(_points(tile, card)),
        masks=_masks(tile, card),
        classes=tuple(
            (name, spelled(colour), count)
            for (name, colour), count in sorted(tile.classes.items(), key=lambda one: -one[1])
        ),
    )


def _points(tile: Tile, card: Card) -> Iterator[Point]:
    if tile.keypoints is None:
        return
    xy = tile.keypoints.xy.astype(np.float64) * (_UNIT, card.image_height)
    for number, (points, seen) in enumerate(zip(xy, tile.keypoints.visibility, strict=True)):
        colour = spelled(tile.colours[number])
        for (x, y), how in zip(points.tolist(), seen.tolist(), strict=True):
            if how and np.isfinite((x, y)).all():
                yield Point(x, y, colour, how == 2)


def _masks(tile: Tile, card: Card) -> str:
    height = max(1, round(WIDEST * card.image_height / _UNIT))
    layer = mask_layer(tile, (WIDEST, min(height, 4 * WIDEST)))
    if layer is None:
        return ""
    file = io.BytesIO()
    layer.save(file, "PNG")
    return data_uri("image/png", file.getvalue())
