"""What differs, as one HTML page with the pairs drawn; it loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tfod.check.findings.finding import Place
from tfod.check.reporters.html.drawing import MOST_DRAWN, Card, make_card
from tfod.check.reporters.html.page import render_template
from tfod.check.reporters.html.samples import Sample
from tfod.shards.diff.result import CHANGES, Diff, Difference
from tfod.shards.diff.side import records_again
from tfod.version import __version__

COLOURS = {
    "box_removed": "#c3002f",
    "box_added": "#12803c",
    "box_moved": "#b35900",
    "box_relabelled": "#7a30c0",
}
"""Of boxes; white on each has a contrast of 4.5 to 1 or more, as WCAG 2.2 asks for."""
_SAME, _BEFORE = "#7fd4ff", "#e2ad6c"
_OF_IMAGE = frozenset(("image_changed", "size_changed"))


@dataclass(frozen=True)
class Pair:
    """An image with its differences, and how it is drawn: once, or A beside B."""

    differences: Sequence[Difference]
    cards: Sequence[tuple[str, Card]] = ()

    @property
    def rows(self) -> tuple[int | None, int | None]:
        return self.differences[0].rows


def render_page(found: Diff, most_drawn: int) -> str:
    """Write a page, to be saved as UTF-8; as many kinds of change as possible are drawn.

    Raises:
        TfodError: jinja2 or Pillow is not installed, or a side cannot be read again.
    """
    groups = [list(some) for _, some in groupby(found.listed, lambda one: (one.subset, one.rows))]
    pairs = [Pair(some) for some in groups if some[0].rows != (None, None)]
    drawn = _chosen(pairs, most_drawn)
    sides = found.a, found.b
    wanted = [[pair.rows[at] or 0 for pair in drawn if at in _shown(pair)] for at in (0, 1)]
    images = [
        {row: bytes(one.encoded or b"") for row, one in records_again(side.read, rows)}
        for side, rows in zip(sides, wanted, strict=True)
    ]
    shown = [
        Pair(
            pair.differences,
            [("AB"[at], _card(found, pair, at, images[at][pair.rows[at] or 0]))
             for at in _shown(pair)],
        )
        for pair in drawn
    ]  # fmt: skip
    others = [pair for pair in pairs if not any(pair is one for one in drawn)]
    return render_template(
        "diff.html",
        found=found,
        sides=zip("AB", sides, strict=True),
        colours={
            **{CHANGES[change]: one for change, one in COLOURS.items()},
            "before": _BEFORE,
            "equal": _SAME,
        },
        classes=[one for one in found.listed if one.rows == (None, None)],
        pairs=shown,
        others=others,
        version=__version__,
    )


def _chosen(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """So many, in their order: first those with a change that none before them has."""
    seen: set[str] = set()
    first: list[Pair] = []
    others: list[Pair] = []
    for pair in pairs:
        new = {one.change for one in pair.differences} - seen
        seen |= new
        (first if new else others).append(pair)
    chosen = {id(one) for one in (*first, *others)[:most]}
    return [one for one in pairs if id(one) in chosen]


def _shown(pair: Pair) -> tuple[int, ...]:
    """Which sides are drawn: both where the image differs, else the one that there is, B of two."""
    if None in pair.rows:
        return (pair.rows.index(None) ^ 1,)
    return (0, 1) if any(one.change in _OF_IMAGE for one in pair.differences) else (1,)


def _card(found: Diff, pair: Pair, at: int, image: bytes) -> Card:
    side, row = (found.a, found.b)[at], pair.rows[at]
    assert row is not None
    outlines = list(_outlines(found, pair, at))
    colours = [colour for _, _, colour in outlines]
    height, width = side.sizes[row].tolist()
    sample = Sample(
        Place("", row, item=pair.differences[0].image),
        (),
        image,
        height,
        width,
        np.array([corners for corners, _, _ in outlines], np.float64).reshape(-1, 4),
        tuple(name for _, name, _ in outlines),
        frozenset(number for number, colour in enumerate(colours) if colour != _SAME),
    )
    return make_card(sample, colours=colours, most_named=MOST_DRAWN)


def _outlines(found: Diff, pair: Pair, at: int) -> Iterator[tuple[np.ndarray, str, str]]:
    """Boxes of a drawing with what is written beside them, and their colours."""
    differing = {
        box.number: one for one in pair.differences if (box := (one.before, one.after)[at])
    }
    for number, (corners, name) in enumerate(found.boxes_of(at, pair.rows[at])):
        one = differing.get(number)
        if None in pair.rows:
            yield corners, name, COLOURS["box_added" if at else "box_removed"]
        elif one is None:
            yield corners, "", _SAME
        else:
            yield corners, _label(one), COLOURS[one.change]
    if len(_shown(pair)) == 1 and at == 1:
        before = list(found.boxes_of(0, pair.rows[0]))
        for one in pair.differences:
            if one.before is not None:
                gone = one.after is None
                colour = COLOURS[one.change] if gone else _BEFORE
                yield before[one.before.number][0], _label(one) if gone else "", colour


def _label(one: Difference) -> str:
    """What is written beside a box: ``− cat``, ``+ cat``, ``cat``, ``→ dog``."""
    if one.before is None or one.after is None:
        return f"− {one.before.name}" if one.before else f"+ {one.after.name if one.after else ''}"
    return "→ " * (one.before.name != one.after.name) + one.after.name
