"""Figures of the data as shapes for the page: bars, columns, heat map, map of sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.check.records.figures.details import AREAS, RATIOS, Details
from tfod.check.records.figures.statistics import GRID, Statistics

SIDE = 320
"""Side of a map in the units of its SVG."""
WIDTH, HEIGHT = 480, 240
"""Of the chart of columns, likewise."""
_CELL = SIDE / GRID
_LEVELS = 8
_SELDOM = 0.01


def class_bars(statistics: Statistics) -> list[tuple[str, int, float]]:
    """Boxes of each class, the most frequent first: name, count, percent of the longest bar."""
    return _bars(sorted(statistics.classes.items(), key=lambda pair: (-pair[1], pair[0])))


def size_bars(statistics: Statistics) -> list[tuple[str, int, float]]:
    """Images of each size, likewise."""
    sizes = sorted(statistics.image_sizes.items(), key=lambda pair: (-pair[1], pair[0]))
    return _bars([(f"{width} × {height}", count) for (height, width), count in sizes])


def _bars(pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int, float]]:
    most = max((count for _, count in pairs), default=0) or 1
    return [(label, count, count / most * 100) for label, count in pairs]


def boxes_per_image(statistics: Statistics) -> dict[str, object]:
    """How many images have 0, 1, 2, … boxes; empty without images.

    ``columns`` are x, y, width, height and what is said when they are pointed at; ``ticks`` are x
    and label; ``highest`` is the largest count.
    """
    counts, cut = _without_tail(statistics.boxes_in_image)
    filled = np.nonzero(counts)[0].tolist()
    if not filled:
        return {}
    last, most = filled[-1], int(counts.max())
    names = [*map(str, range(last)), f"{last}+" if cut else str(last)]
    step = WIDTH / max(last + 1, 12)
    heights = {number: max(counts[number] / most * HEIGHT, 1.5) for number in filled}
    every = next(one for one in (1, 2, 5, 10, 20) if (last + 1) / one <= 14)
    marked = [*(number for number in range(0, last + 1, every) if last - number >= every), last]
    return {
        "columns": [
            (number * step + step * 0.1, HEIGHT - high, step * 0.8, high,
             f"{names[number]} boxes: {counts[number]:,}")
            for number, high in heights.items()
        ],
        "ticks": [((number + 0.5) * step, names[number]) for number in marked],
        "highest": most,
    }  # fmt: skip


def centres(statistics: Statistics) -> list[tuple[str, float]]:
    """Heat map of the boxes' centres, y down as in the image: SVG paths with their opacity."""
    square = f"h{_CELL:g}v{_CELL:g}h-{_CELL:g}z"
    return [
        ("".join(f"M{x * _CELL:g} {y * _CELL:g}{square}" for y, x in cells), level / _LEVELS)
        for level, cells in _levels(statistics.centres)
    ]


def sizes(statistics: Statistics) -> list[tuple[str, float]]:
    """Map of the boxes' sizes, height up: a dot a cell, larger and darker for more."""
    layers = []
    for level, cells in _levels(statistics.sizes):
        radius = _CELL * (0.2 + 0.3 * level / _LEVELS)
        half = f"a{radius:.2f} {radius:.2f} 0 1 0"
        path = "".join(
            f"M{(x + 0.5) * _CELL - radius:.2f} {SIDE - (y + 0.5) * _CELL:.2f}"
            f"{half} {2 * radius:.2f} 0{half} {-2 * radius:.2f} 0z"
            for y, x in cells
        )
        layers.append((path, 0.35 + 0.65 * level / _LEVELS))
    return layers


@dataclass(frozen=True)
class Lines:
    """A distribution in each subset, as lines of one chart.

    ``lines`` are the subset's name and its path; ``ticks`` are x and label; ``highest`` is the
    share at the top.
    """

    title: str
    what: str
    lines: Sequence[tuple[str, str]]
    ticks: Sequence[tuple[float, str]]
    highest: str = ""


def by_subset(subsets: Mapping[str, Statistics]) -> list[Lines]:
    """Objects in an image and, where they were counted, areas and ratios of boxes by subset."""
    found = [_lines("Objects in an image", "share of a subset's images", subsets, _objects, str)]
    if all(one.details is not None for one in subsets.values()):
        what = "share of a subset's boxes"
        found.append(_lines("Box areas", f"of the image; {what}", subsets, _areas, _area))
        found.append(_lines("Box shapes", f"width : height; {what}", subsets, _ratios, _ratio))
    return [one for one in found if one.lines]


def _objects(one: Statistics) -> np.ndarray:
    return one.boxes_in_image


def _areas(one: Statistics) -> np.ndarray:
    return (one.details or Details()).areas


def _ratios(one: Statistics) -> np.ndarray:
    return (one.details or Details()).ratios


def _area(place: int) -> str:
    return _percent(2.0 ** ((place - AREAS + 1) / 2))


def _percent(share: float) -> str:
    """Two digits and no exponent: ``0.078 %``, ``100 %``."""
    return f"{np.format_float_positional(100 * share, precision=2, fractional=False, trim='-')} %"


def _ratio(place: int) -> str:
    power = (place - RATIOS // 2) / 4
    return f"{2**power:.2g} : 1" if power >= 0 else f"1 : {2**-power:.2g}"


def _lines(
    title: str,
    what: str,
    subsets: Mapping[str, Statistics],
    counts_of: Callable[[Statistics], np.ndarray],
    label: Callable[[int], str],
) -> Lines:
    counts = {name: counts_of(one) for name, one in subsets.items()}
    shares = {name: one / one.sum() for name, one in counts.items() if one.any()}
    filled = np.flatnonzero(sum(shares.values(), np.zeros(1)))
    if not len(filled):
        return Lines(title, what, (), ())
    start, end = int(filled[0]), max(int(filled[-1]), int(filled[0]) + 4)
    step, highest = WIDTH / (end - start), max(one.max() for one in shares.values())
    lines = [
        (name, "M" + "L".join(
            f"{(at - start) * step:.1f} {HEIGHT * (1 - one[at] / highest):.1f}"
            for at in range(start, min(end, len(one) - 1) + 1)
        ))
        for name, one in shares.items()
    ]  # fmt: skip
    every = max(1, math.ceil((end - start) / 6))
    ticks = [((at - start) * step, label(at)) for at in range(start, end, every)]
    return Lines(title, what, lines, ticks, _percent(highest))


def _levels(grid: np.ndarray) -> list[tuple[int, list[tuple[int, int]]]]:
    """Filled cells ``(row, column)`` by the logarithm of their count, 1 to ``_LEVELS``."""
    found: dict[int, list[tuple[int, int]]] = {}
    for y, x in np.argwhere(grid).tolist():
        share = math.log1p(int(grid[y, x])) / math.log1p(int(grid.max()))
        found.setdefault(max(1, math.ceil(share * _LEVELS)), []).append((y, x))
    return sorted(found.items())


def _without_tail(counts: np.ndarray) -> tuple[np.ndarray, bool]:
    """Counts whose last entry holds all above it, if few are so far out; and whether it does."""
    above = counts[::-1].cumsum()[::-1]  # images with at least so many boxes
    often = np.nonzero(above > above[0] * _SELDOM)[0]
    last = min(int(often[-1]) + 1, len(counts) - 1) if len(often) else 0
    cut = last == len(counts) - 1 or bool(above[last + 1])
    return np.append(counts[:last], above[last]), cut and bool(above[last])
