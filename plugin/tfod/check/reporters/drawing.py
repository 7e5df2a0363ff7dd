"""Sample images of the HTML report: a thumbnail and its boxes over it, in one SVG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tfod.check.reporters.escaping import shortened_name
from tfod.check.samples import Sample, thumbnail

_UNIT = 1000.0
"""Width of an image in the units of the overlay."""
FARTHEST = 0.25
"""How far outside its image a box is drawn, as a part of the image; farther ones end there."""
_AIR = 0.03
"""Room around boxes that reach outside, so that their lines are seen."""
_TINY = 0.025
"""A box smaller than this part of the image gets a ring around it."""
TALLEST = 12.0
"""Height of an image of a report at most, rem."""
MOST_DRAWN = 200
_MOST_NAMED = 24
_USUAL_WIDTH = 20.0
"""Of an image on the page, rem."""
_LETTER = 0.8
"""Height of the names in an image, rem."""


@dataclass(frozen=True)
class Mark:
    """A box as drawn: SVG path, class as tooltip, and a ring ``x, y`` if it is hard to see.

    ``number`` is the object's; ``top`` is its upper edge: x, y, x in
    units of the overlay.
    """

    number: int
    path: str
    label: str
    offending: bool
    ring: tuple[float, float] | None
    top: tuple[float, float, float]


@dataclass(frozen=True)
class Tag:
    """A name written into an image; ``end`` says that the text ends at ``x``.

    ``number`` is the object's; ``x, y`` are in units of the overlay.
    """

    number: int
    text: str
    x: float
    y: float
    end: bool
    offending: bool


@dataclass(frozen=True)
class Card:
    """A sample as the page shows it.

    Attributes:
        sample: what is shown.
        uri: its thumbnail.
        view_box: of the SVG: the image is ``0 0 1000 image_height`` in it, with a margin around
            it if boxes are outside.
        image_height: see above.
        width, height: of the SVG at most, rem.
        marks: boxes, the offending ones last, on top of the others.
        tags: the classes of the boxes, unless they are too many.
        letter: height of the tags, in units of the overlay.
        undrawn: boxes that are too many, or not finite.
        link: where a larger image is; empty for none.
    """

    sample: Sample
    uri: str
    view_box: str
    image_height: float
    width: float
    height: float
    marks: tuple[Mark, ...]
    tags: tuple[Tag, ...]
    letter: float
    undrawn: int
    link: str


def make_card(
    sample: Sample, link: str = "", *, most_named: int = _MOST_NAMED, tallest: float = TALLEST
) -> Card:
    """Prepare a sample for the page.

    Args:
        sample: what to show.
        link: where a larger image is.
        most_named: boxes of an image whose classes are written beside them; where there are more,
            only those of the offending ones are.
        tallest: height of the image at most, rem.
    """
    small = thumbnail(sample)
    boxes, drawn = drawn_boxes(sample, reach=FARTHEST)
    left, top, right, bottom = extent(boxes[drawn])
    wide, high = right - left, bottom - top
    height = _UNIT / small.aspect
    view_box = " ".join(
        f"{one:.0f}" for one in (left * _UNIT, top * height, wide * _UNIT, high * height)
    )
    width = tallest * small.aspect * wide / high
    letter = _LETTER * wide * _UNIT / min(_USUAL_WIDTH, width)
    marks = tuple(_marks(sample, boxes, drawn, height))
    sides = (left * _UNIT, top * height, right * _UNIT)
    return Card(
        sample=sample,
        uri=small.uri,
        view_box=view_box,
        image_height=height,
        width=width,
        height=tallest,
        marks=marks,
        tags=tuple(_tags(sample, marks, letter, sides, most_named)),
        letter=letter,
        undrawn=len(boxes) - len(drawn),
        link=link,
    )


def drawn_boxes(sample: Sample, reach: float) -> tuple[np.ndarray, list[int]]:
    """Boxes of a sample as they are drawn.

    Args:
        sample: the sample.
        reach: how far outside the image, as a part of it, a box is drawn; farther ones end there.

    Returns:
        All boxes, shape (n, 4), normalized, and the numbers of those to draw: with no NaN among
        them, not too many, the offending ones last.
    """
    boxes = np.asarray(sample.boxes, np.float64).reshape(-1, 4)
    known = np.nonzero(~np.isnan(boxes).any(axis=1))[0].tolist()
    numbers = sorted(known, key=lambda one: one not in sample.offending)
    return np.clip(boxes, -reach, 1 + reach), numbers[:MOST_DRAWN][::-1]


def extent(boxes: np.ndarray) -> tuple[float, float, float, float]:
    """The image and all that reaches outside: left, top, right, bottom, normalized."""
    if not len(boxes):
        return 0.0, 0.0, 1.0, 1.0
    x, y = boxes[:, 0::2], boxes[:, 1::2]
    low = [min(0.0, float(side.min())) for side in (x, y)]
    high = [max(1.0, float(side.max())) for side in (x, y)]
    low = [one - _AIR if one < 0 else one for one in low]
    high = [one + _AIR if one > 1 else one for one in high]
    return low[0], low[1], high[0], high[1]


def _marks(sample: Sample, boxes: np.ndarray, drawn: list[int], height: float) -> Iterator[Mark]:
    for number in drawn:
        # Inverted ones are drawn, too.
        x1, x2 = sorted(boxes[number, 0::2] * _UNIT)
        y1, y2 = sorted(boxes[number, 1::2] * height)
        name = sample.classes[number] if number < len(sample.classes) else ""
        tiny = max(x2 - x1, y2 - y1) < _TINY * _UNIT
        offending = number in sample.offending
        yield Mark(
            number=number,
            path=f"M{x1:.1f} {y1:.1f}H{x2:.1f}V{y2:.1f}H{x1:.1f}Z",
            label=f"object {number}" + (f": {name}" if name else ""),
            offending=offending,
            ring=((x1 + x2) / 2, (y1 + y2) / 2) if offending and tiny else None,
            top=(x1, y1, x2),
        )


def _tags(
    sample: Sample,
    marks: tuple[Mark, ...],
    letter: float,
    sides: tuple[float, float, float],
    most_named: int,
) -> Iterator[Tag]:
    """The class of each box above its corner, or within it where there is no room."""
    left, top, right = sides
    for mark in marks:
        name = sample.classes[mark.number] if mark.number < len(sample.classes) else ""
        if not name or (len(marks) > most_named and not mark.offending):
            continue
        x, y, far = mark.top
        end = x > left + 0.7 * (right - left)
        inside = y - 1.3 * letter < top
        yield Tag(
            number=mark.number,
            text=shortened_name(name),
            x=min(far, right - letter / 2) if end else max(x, left + letter / 2),
            y=y + 1.1 * letter if inside else y - 0.35 * letter,
            end=end,
            offending=mark.offending,
        )
