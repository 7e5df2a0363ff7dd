"""Detection of permuted box columns.

A script that reads ``xmin, ymin, xmax, ymax`` by position, from a file with another order, permutes
the columns of every box, either the stored fractions, or the pixels before they are divided by the
width or height that belongs to the key.
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
"""The maximum rounding error of a coordinate after float32 and the division by the size."""
MAX_COORDINATE = 1.1
"""The largest coordinate that the OD API's trainer accepts."""
_MAX_SLIPS = 3
_MAX_SLIPS_SHARE = 0.05
_MAX_CANDIDATES = 4
_BOXES_AT_ONCE = 1 << 13  # times the number of orders


class ColumnOrder(NamedTuple):
    """A mapping from coordinates to the columns that store them.

    Attributes:
        stored: index in ``SIDES`` of the key that stores xmin, ymin, xmax and ymax.
        in_pixels: whether the columns were permuted before the division by width and height.
    """

    stored: tuple[int, ...]
    in_pixels: bool = False

    @property
    def moved(self) -> int:
        """The number of coordinates that are stored under a different key."""
        return sum(side != key for side, key in enumerate(self.stored))

    @property
    def keeps_axes(self) -> bool:
        """Whether x is stored under x, so that all values were divided by the correct side."""
        return all(side % 2 == key % 2 for side, key in enumerate(self.stored))

    def __str__(self) -> str:
        """Return, for example, ``xmin=ymin,ymin=xmin`` if xmin and ymin are swapped."""
        pairs = zip(SIDES, self.stored, strict=True)
        named = ",".join(f"{side}={SIDES[key]}" for side, key in pairs if side != SIDES[key])
        return f"{named}{' in pixels' * self.in_pixels}"


_ORDERS = tuple(
    order
    for in_pixels in (False, True)
    for order in (ColumnOrder(keys, in_pixels) for keys in itertools.permutations(range(4)))
    if order.moved and not (in_pixels and order.keeps_axes)
)
# These orders turn valid boxes into valid boxes; the second does so only for square images.
_SWAPPED, _SWAPPED_PIXELS = (ColumnOrder((1, 0, 3, 2), in_pixels) for in_pixels in (False, True))


@dataclass(frozen=True)
class BoxColumns:
    """Statistics of the box columns of a shard, which can be added up.

    Attributes:
        boxes: number of boxes with four finite coordinates.
        invalid: number of boxes that are inverted, or extend further outside [0, 1] than the
            trainer accepts.
        are_square: whether all images with boxes are square.
        fitting: the orders that make all boxes valid.
    """

    boxes: int = 0
    invalid: int = 0
    are_square: bool = True
    fitting: frozenset[ColumnOrder] = frozenset(_ORDERS)

    @classmethod
    def of(cls, boxes: Boxes, orders: frozenset[ColumnOrder]) -> BoxColumns:
        """Compute the statistics of boxes, with the orders that fit all previous boxes."""
        are_square = bool((boxes.width == boxes.height)[boxes.counts > 0].all())
        always = {_SWAPPED, _SWAPPED_PIXELS} if are_square else {_SWAPPED}
        if boxes.all_valid and orders <= always:
            return cls(len(boxes.corners), 0, are_square, orders)
        corners, rows = boxes.corners[boxes.finite], boxes.rows[boxes.finite]
        sides = np.stack((boxes.width, boxes.height) * 2, axis=1)[rows]
        start = 0
        while orders and start < len(corners):  # the first boxes rule out most orders
            part = slice(start, start + _BOXES_AT_ONCE // len(orders))
            orders = _find_fitting(orders, corners[part], sides[part])
            start = part.stop
        return cls(len(corners), int((~_are_valid(corners)).sum()), are_square, orders)

    def __add__(self, other: BoxColumns) -> BoxColumns:
        """Combine the statistics of two parts."""
        return BoxColumns(
            self.boxes + other.boxes,
            self.invalid + other.invalid,
            self.are_square and other.are_square,
            self.fitting & other.fitting,
        )

    @property
    def candidates(self) -> tuple[ColumnOrder, ...]:
        """The orders that the writer may have used, those that move the fewest keys first.

        Empty if only a few boxes are invalid, or if too many orders fit.
        """
        # One invalid box is a slip, and so are two or three if most boxes are valid, or any number
        # up to a small share of the boxes.
        are_many = self.invalid > max(1, _MAX_SLIPS_SHARE * self.boxes)
        if not are_many or (self.invalid <= _MAX_SLIPS and 2 * self.invalid < self.boxes):
            return ()
        fits = [order for order in _ORDERS if order in self.fitting]
        # If swapping xmin and xmax fits, swapping them with ymin and ymax often fits, too; the
        # simpler order is preferred.
        candidates = [order for order in fits if order.keeps_axes] or [
            order for order in fits if not (order.in_pixels and self.are_square)
        ]
        if len(candidates) > _MAX_CANDIDATES:
            return ()
        return tuple(sorted(candidates, key=lambda order: order.moved))


def _find_fitting(
    orders: frozenset[ColumnOrder], corners: np.ndarray, sides: np.ndarray
) -> frozenset[ColumnOrder]:
    """Return the orders that make all boxes valid.

    ``corners`` are the stored boxes, ``sides`` image width, height, width and height of each box.
    """
    tried = list(orders)
    stored = np.array([order.stored for order in tried], np.intp).reshape(-1, 4)
    in_pixels = np.array([order.in_pixels for order in tried], bool)
    reordered = corners[:, stored]  # of shape (boxes, orders, 4)
    reordered[:, in_pixels] *= sides[:, stored[in_pixels]] / sides[:, None, :]
    fits = _are_valid(reordered).all(axis=0)
    return frozenset(tried[index] for index in np.flatnonzero(fits).tolist())


def _are_valid(corners: np.ndarray) -> np.ndarray:
    """Return whether boxes are not inverted, far outside or NaN, bool without the last axis."""
    with np.errstate(invalid="ignore"):
        is_ordered: np.ndarray = np.all(corners[..., :2] <= corners[..., 2:], axis=-1)
        low, high = 1 - MAX_COORDINATE - ROUNDING_ERROR, MAX_COORDINATE + ROUNDING_ERROR
        is_inside: np.ndarray = np.all((corners >= low) & (corners <= high), axis=-1)
        is_valid: np.ndarray = np.logical_and(is_ordered, is_inside)
    return is_valid
