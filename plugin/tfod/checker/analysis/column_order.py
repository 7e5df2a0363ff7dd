"""The four columns of the boxes of a shard, and whether their writer has mixed them up.

A script that takes ``xmin, ymin, xmax, ymax`` by position, from a file that has them in another
order, permutes the columns of every box. Two kinds are told apart: a permutation of the fractions
as they are stored, and one that came before the division by width and height, so that each value
was divided by the side of the key that it is under.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tfod.checker.analysis.box_arrays import Boxes

SIDES = ("xmin", "ymin", "xmax", "ymax")
ROUNDING_ERROR = 1e-5
"""What float32 and a division by the size may do to a coordinate."""
MAX_COORDINATE = 1.1
"""The largest coordinate that the OD API's trainer lets pass."""
_MOST_SLIPS = 3
_MOST_SLIPS_SHARE = 0.05
_MOST_CANDIDATES = 4
_AT_ONCE = 1 << 13


class ColumnOrder(NamedTuple):
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
# By these any proper box is another proper one, by the second where the image is square.
_SWAPPED, _SWAPPED_PIXELS = (ColumnOrder((1, 0, 3, 2), in_pixels) for in_pixels in (False, True))


@dataclass(frozen=True)
class BoxColumns:
    """What the boxes of a shard say of their columns; that of its parts adds up.

    Attributes:
        boxes: how many of four numbers there are.
        invalid: how many are inverted, or reach further outside [0, 1] than the trainer lets pass.
        are_square: whether all images of boxes are as wide as they are high.
        fitting: the orders by which no box is improper.
    """

    boxes: int = 0
    invalid: int = 0
    are_square: bool = True
    fitting: frozenset[ColumnOrder] = frozenset(_ORDERS)

    @classmethod
    def of(cls, boxes: Boxes, orders: frozenset[ColumnOrder]) -> BoxColumns:
        """What these boxes say, where only some orders fit those before."""
        are_square = bool((boxes.width == boxes.height)[boxes.counts > 0].all())
        always = {_SWAPPED, _SWAPPED_PIXELS} if are_square else {_SWAPPED}
        if boxes.all_valid and orders <= always:
            return cls(len(boxes.corners), 0, are_square, orders)
        corners, rows = boxes.corners[boxes.finite], boxes.rows[boxes.finite]
        sides = np.stack((boxes.width, boxes.height) * 2, axis=1)[rows]
        start = 0
        while orders and start < len(corners):  # most orders fit no box of the first ones
            part = slice(start, start + _AT_ONCE // len(orders))
            orders = _fitting(orders, corners[part], sides[part])
            start = part.stop
        return cls(len(corners), int((~_proper(corners)).sum()), are_square, orders)

    def __add__(self, other: BoxColumns) -> BoxColumns:
        """Of both."""
        return BoxColumns(
            self.boxes + other.boxes,
            self.invalid + other.invalid,
            self.are_square and other.are_square,
            self.fitting & other.fitting,
        )

    @property
    def candidates(self) -> tuple[ColumnOrder, ...]:
        """The orders that may be the writer's, those that move fewest keys first.

        None where the boxes are proper as they are but for single ones, or where so many orders fit
        that nothing is known.
        """
        # A single one is a slip; so are two or three that are less than half of all, and any
        # number that is not more than a small share.
        is_share = self.invalid > max(1, _MOST_SLIPS_SHARE * self.boxes)
        if not is_share or (self.invalid <= _MOST_SLIPS and 2 * self.invalid < self.boxes):
            return ()
        fits = [order for order in _ORDERS if order in self.fitting]
        # Where xmin and xmax are exchanged, exchanging them with y as well fits, and explains less.
        found = [order for order in fits if order.keeps_axes] or [
            order for order in fits if not (order.in_pixels and self.are_square)
        ]
        return (
            tuple(sorted(found, key=lambda order: order.moved))
            if len(found) <= _MOST_CANDIDATES
            else ()
        )


def _fitting(
    orders: frozenset[ColumnOrder], corners: np.ndarray, sides: np.ndarray
) -> frozenset[ColumnOrder]:
    """Those of some orders that make all boxes proper.

    Args:
        orders: which.
        corners: of the boxes as they are stored, shape (n, 4).
        sides: of each box's image what belongs to its four corners, in pixels; shape (n, 4).
    """
    some = list(orders)
    stored = np.array([one.stored for one in some], np.int64).reshape(-1, 4)
    in_pixels = np.array([one.in_pixels for one in some], bool)
    found = corners[:, stored]  # of shape (boxes, orders, 4)
    found[:, in_pixels] *= sides[:, stored[in_pixels]] / sides[:, None, :]
    fits = _proper(found).all(axis=0)
    return frozenset(some[place] for place in np.flatnonzero(fits).tolist())


def _proper(corners: np.ndarray) -> np.ndarray:
    """Boxes that are neither inverted nor far outside, bool without the last axis; NaN is not."""
    with np.errstate(invalid="ignore"):
        ordered: np.ndarray = np.all(corners[..., :2] <= corners[..., 2:], axis=-1)
        least, most = 1 - MAX_COORDINATE - ROUNDING_ERROR, MAX_COORDINATE + ROUNDING_ERROR
        inside: np.ndarray = np.all((corners >= least) & (corners <= most), axis=-1)
        proper: np.ndarray = np.logical_and(ordered, inside)
    return proper
