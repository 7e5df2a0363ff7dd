"""The four columns of the boxes of a shard, and whether their writer has mixed them up.

A script that takes ``xmin, ymin, xmax, ymax`` by position, from a file that has them in another
order, permutes the columns of every box. Two kinds are told apart: a permutation of the fractions
as they are stored, and one that came before the division by width and height, so that each value
was divided by the side of the key that it is under.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tfod.check.records.boxes import Boxes

SIDES = ("xmin", "ymin", "xmax", "ymax")
ROUNDING = 1e-5
"""What float32 and a division by the size may do to a coordinate."""
TOLERATED = 1.1
"""The largest coordinate that the OD API's trainer lets pass."""
_MOST_SLIPS = 3
_MOST_SLIPS_SHARE = 0.05
_MOST_CANDIDATES = 4
_FIRST = 64
_AT_ONCE = 1 << 12


@dataclass(frozen=True)
class ColumnOrder:
    """Which stored column each coordinate is read from.

    Attributes:
        stored: for xmin, ymin, xmax, ymax the place, among these four, of the key that holds it.
        in_pixels: whether the columns were mixed up before the division by width and height.
    """

    stored: tuple[int, ...]
    in_pixels: bool = False

    @property
    def moved(self) -> int:
        """How many coordinates are read from another key than their own."""
        return sum(place != key for place, key in enumerate(self.stored))

    @property
    def keeps_axes(self) -> bool:
        """Whether x stays x: then it does not matter which side the values were divided by."""
        return all(place % 2 == key % 2 for place, key in enumerate(self.stored))

    def __str__(self) -> str:
        """``xmin=ymin,ymin=xmin``: xmin is stored under ymin, and so on."""
        pairs = zip(SIDES, self.stored, strict=True)
        named = ",".join(f"{side}={SIDES[key]}" for side, key in pairs if side != SIDES[key])
        return f"{named}{' in pixels' * self.in_pixels}"


_ORDERS = tuple(
    order
    for in_pixels in (False, True)
    for order in (ColumnOrder(one, in_pixels) for one in itertools.permutations(range(4)))
    if order.moved and not (in_pixels and order.keeps_axes)
)
_ALL = (1 << len(_ORDERS)) - 1
# By these any proper box is another proper one, by the second where the image is square.
_SWAPPED, _SWAPPED_PIXELS = (
    1 << _ORDERS.index(ColumnOrder((1, 0, 3, 2), in_pixels)) for in_pixels in (False, True)
)


@dataclass(frozen=True)
class BoxColumns:
    """What the boxes of a shard say of their columns; that of its parts adds up.

    Attributes:
        boxes: how many of four numbers there are.
        improper: how many are inverted, or reach further outside [0, 1] than the trainer lets pass.
        are_square: whether all images of boxes are as wide as they are high.
        fitting: the orders by which no box is improper, a bit for each.
    """

    boxes: int = 0
    improper: int = 0
    are_square: bool = True
    fitting: int = _ALL

    def with_boxes(self, boxes: Boxes) -> BoxColumns:
        """Of these boxes, too. Orders that do not fit those before are not looked at again."""
        if boxes.are_proper:
            square = bool((boxes.width == boxes.height)[boxes.counts > 0].all())
            if not self.fitting & ~(_SWAPPED | (_SWAPPED_PIXELS if square else 0)):
                square &= self.are_square
                return replace(self, boxes=self.boxes + len(boxes.corners), are_square=square)
        found = self
        # Most orders fit no box of the first ones.
        for part in (slice(0, _FIRST), slice(_FIRST, None)):
            corners, rows = boxes.corners[part], boxes.rows[part]
            finite = np.isfinite(corners).all(axis=1)
            sizes = boxes.width[rows][finite], boxes.height[rows][finite]
            found = found._with(corners[finite], *sizes)
        return found

    def _with(self, corners: np.ndarray, width: np.ndarray, height: np.ndarray) -> BoxColumns:
        if not len(corners):
            return self
        improper = ~_proper(corners)
        left = [place for place in range(len(_ORDERS)) if self.fitting >> place & 1]
        fits = _fit(left, corners, width, height)
        fitting = sum(1 << place for place, does in zip(left, fits.tolist(), strict=True) if does)
        return self + BoxColumns(
            boxes=len(corners),
            improper=int(improper.sum()),
            are_square=bool((width == height).all()),
            fitting=fitting,
        )

    def __add__(self, other: BoxColumns) -> BoxColumns:
        """Of both."""
        return BoxColumns(
            self.boxes + other.boxes,
            self.improper + other.improper,
            self.are_square and other.are_square,
            self.fitting & other.fitting,
        )

    @property
    def candidates(self) -> tuple[ColumnOrder, ...]:
        """The orders that may be the writer's, those that move fewest keys first.

        None where the boxes are proper as they are but for single ones, or where so many orders fit
        that nothing is known.
        """
        if not _is_many(self.improper, self.boxes):
            return ()
        fits = [order for place, order in enumerate(_ORDERS) if self.fitting >> place & 1]
        # Where xmin and xmax are exchanged, exchanging them with y as well fits, and explains less.
        found = [order for order in fits if order.keeps_axes] or [
            order for order in fits if not (order.in_pixels and self.are_square)
        ]
        return (
            tuple(sorted(found, key=lambda order: order.moved))
            if len(found) <= _MOST_CANDIDATES
            else ()
        )


def _is_many(number: int, of: int) -> bool:
    """Whether so many wrong boxes are more than single slips.

    A single one is a slip; so are two or three that are less than half of all, and any number that
    is not more than a small share.
    """
    is_share = number > max(1, _MOST_SLIPS_SHARE * of)
    return is_share and (number > _MOST_SLIPS or 2 * number >= of)


def _fit(
    places: list[int], corners: np.ndarray, width: np.ndarray, height: np.ndarray
) -> np.ndarray:
    """Which of some orders make all boxes proper, bool of shape (orders,)."""
    stored = np.array([_ORDERS[place].stored for place in places], np.int64).reshape(-1, 4)
    in_pixels = np.array([_ORDERS[place].in_pixels for place in places], bool)
    sides = np.stack((width, height, width, height), axis=1)
    fits = np.ones(len(places), bool)
    for start in range(0, len(corners), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        found = corners[part][:, stored]  # of shape (boxes, orders, 4)
        found[:, in_pixels] *= sides[part][:, stored[in_pixels]] / sides[part, None, :]
        fits &= _proper(found).all(axis=0)
    return fits


def _proper(corners: np.ndarray) -> np.ndarray:
    """Boxes that are neither inverted nor far outside, bool without the last axis; NaN is not."""
    with np.errstate(invalid="ignore"):
        ordered: np.ndarray = np.all(corners[..., :2] <= corners[..., 2:], axis=-1)
        least, most = 1 - TOLERATED - ROUNDING, TOLERATED + ROUNDING
        inside: np.ndarray = np.all((corners >= least) & (corners <= most), axis=-1)
        proper: np.ndarray = np.logical_and(ordered, inside)
    return proper
