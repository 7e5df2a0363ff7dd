"""Figures of the data as shapes for the page: bars, columns, heat map, map of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfod.check.statistics import GRID, Statistics

SIDE = 320
"""Side of a map in the units of its SVG."""
_CELL = SIDE / GRID
_LEVELS = 8
_CHART = (480, 240)
_SELDOM = 0.01


@dataclass(frozen=True)
class Bar:
    """A line of a histogram; ``part`` is of the longest bar, percent."""

    label: str
    count: int
    part: float


@dataclass(frozen=True)
class Layer:
    """The shapes of a map that have the same strength, as one SVG path; opacity in 0..1."""

    path: str
    opacity: float


@dataclass(frozen=True)
class Column:
    """A column of a chart, in the units of its SVG, and what it says when pointed at."""

    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True)
class Columns:
    """A chart of columns; ``ticks`` are places and labels below it."""

    columns: tuple[Column, ...]
    ticks: tuple[tuple[float, str], ...]
    highest: int
    width: int = _CHART[0]
    height: int = _CHART[1]


def bars(pairs: Sequence[tuple[str, int]]) -> list[Bar]:
    """A histogram of named things, in their order."""
    most = max((count for _, count in pairs), default=0) or 1
    return [Bar(label, count, count / most * 100) for label, count in pairs]


def classes(statistics: Statistics) -> list[Bar]:
    """Boxes of each class, the most frequent first."""
    return bars(sorted(statistics.classes.items(), key=lambda pair: (-pair[1], pair[0])))


def image_sizes(statistics: Statistics) -> list[Bar]:
    """Images of each size, the most frequent first."""
    sizes = sorted(statistics.image_sizes.items(), key=lambda pair: (-pair[1], pair[0]))
    return bars([(f"{width} × {height}", count) for (height, width), count in sizes])


def boxes_in_image(statistics: Statistics) -> Columns | None:
    """How many images have 0, 1, 2, … boxes; None without images."""
    counts, cut = _without_tail(statistics.boxes_in_image)
    filled = np.nonzero(counts)[0]
    if not len(filled):
        return None
    last = int(filled[-1])

    def name(number: int) -> str:
        return f"{number}+" if cut and number == last else str(number)

    wide, high = _CHART
    step = wide / max(last + 1, 12)
    most = int(counts.max())
    columns = [
        Column(
            x=number * step + step * 0.1,
            y=high - (height := max(float(counts[number]) / most * high, 1.5)),
            width=step * 0.8,
            height=height,
            label=f"{name(number)} boxes: {int(counts[number]):,}",
        )
        for number in filled.tolist()
    ]
    every = next(one for one in (1, 2, 5, 10, 20) if (last + 1) / one <= 14)
    shown = [number for number in range(0, last + 1, every) if last - number >= every]
    ticks = [((number + 0.5) * step, name(number)) for number in [*shown, last]]
    return Columns(tuple(columns), tuple(ticks), most)


def centres(statistics: Statistics) -> list[Layer]:
    """Heat map of the boxes' centres; y goes down as in the image."""
    return [
        Layer(
            "".join(
                f"M{x * _CELL:g} {y * _CELL:g}h{_CELL:g}v{_CELL:g}h-{_CELL:g}z" for y, x in cells
            ),
            level / _LEVELS,
        )
        for level, cells in _levels(statistics.centres)
    ]


def sizes(statistics: Statistics) -> list[Layer]:
    """Map of the boxes' sizes: a dot a cell, larger and darker for more; height goes up."""
    layers = []
    for level, cells in _levels(statistics.sizes):
        radius = _CELL * (0.2 + 0.3 * level / _LEVELS)
        path = "".join(
            f"M{(x + 0.5) * _CELL - radius:.2f} {SIDE - (y + 0.5) * _CELL:.2f}"
            f"a{radius:.2f} {radius:.2f} 0 1 0 {2 * radius:.2f} 0"
            f"a{radius:.2f} {radius:.2f} 0 1 0 {-2 * radius:.2f} 0z"
            for y, x in cells
        )
        layers.append(Layer(path, 0.35 + 0.65 * level / _LEVELS))
    return layers


def _levels(grid: np.ndarray) -> list[tuple[int, list[tuple[int, int]]]]:
    """Filled cells ``(row, column)`` by the logarithm of their count, 1 to ``_LEVELS``."""
    most = int(grid.max())
    found: dict[int, list[tuple[int, int]]] = {}
    for y, x in zip(*(axis.tolist() for axis in np.nonzero(grid)), strict=True):
        share = math.log1p(int(grid[y, x])) / math.log1p(most)
        found.setdefault(max(1, math.ceil(share * _LEVELS)), []).append((y, x))
    return sorted(found.items())


def _without_tail(counts: np.ndarray) -> tuple[np.ndarray, bool]:
    """Counts whose last place holds all above it, if few are so far out; and whether it does."""
    above = counts[::-1].cumsum()[::-1]  # images with at least so many boxes
    often = np.nonzero(above > above[0] * _SELDOM)[0]
    last = min(int(often[-1]) + 1, len(counts) - 1) if len(often) else 0
    cut = last == len(counts) - 1 or bool(above[last + 1])
    return np.append(counts[:last], above[last]), cut and bool(above[last])
