"""The boxes of a batch of records as arrays.

Coordinates are normalized, ``xmin, ymin, xmax, ymax``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfod.detection.box_geometry import find_far_boxes, find_pixel_boxes


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of a batch of records.

    Attributes:
        corners: float64 of shape (n, 4), normalized ``xmin, ymin, xmax, ymax``.
        counts: boxes of each record, int of shape (records,).
        height, width: of each record's image in pixels, NaN where unknown, shape (records,).
        are_pixels: whether the records have pixels, which were divided to get the corners.
    """

    corners: np.ndarray
    counts: np.ndarray
    height: np.ndarray
    width: np.ndarray
    are_pixels: bool = False

    @cached_property
    def rows(self) -> np.ndarray:
        """Which record each box is of, shape (n,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def all_valid(self) -> bool:
        """Whether all boxes lie in their images and have an area: most rules are about others."""
        corners = self.corners
        with np.errstate(invalid="ignore"):
            inside = bool((corners >= 0).all() and (corners <= 1).all())
            return inside and bool((corners[:, :2] < corners[:, 2:]).all())

    @cached_property
    def finite(self) -> np.ndarray:
        """Boxes of four numbers, bool of shape (n,)."""
        found: np.ndarray = np.isfinite(self.corners).all(axis=1)
        return found

    @cached_property
    def far(self) -> np.ndarray:
        """Boxes whose coordinates look like pixels, bool of shape (n,)."""
        return find_far_boxes(self.corners)

    @cached_property
    def in_pixels(self) -> np.ndarray:
        """Boxes that were written in pixels instead, bool of shape (n,)."""
        return (
            np.zeros(len(self.corners), bool) if self.are_pixels else find_pixel_boxes(self.corners)
        )

    @cached_property
    def normalized(self) -> np.ndarray:
        """Boxes that the other rules are about, bool of shape (n,)."""
        if self.all_valid:
            return np.ones(len(self.corners), bool)
        found: np.ndarray = self.finite & ~self.far
        return found

    @cached_property
    def size(self) -> np.ndarray:
        """Width and height of each box, normalized, shape (n, 2)."""
        with np.errstate(invalid="ignore"):
            size: np.ndarray = self.corners[:, 2:] - self.corners[:, :2]
        return size

    @cached_property
    def flat(self) -> np.ndarray:
        """Boxes whose width or height is exactly zero, and neither negative; bool of shape (n,)."""
        size = self.size
        found: np.ndarray = self.normalized & (size == 0).any(axis=1) & (size >= 0).all(axis=1)
        return found

    @cached_property
    def size_in_pixels(self) -> np.ndarray:
        """The same in pixels; NaN where the image's size is unknown."""
        with np.errstate(invalid="ignore"):
            scale = np.repeat(np.stack((self.width, self.height)), self.counts, axis=1)
            scaled: np.ndarray = self.size * scale.T
        return scaled

    @cached_property
    def overhang(self) -> np.ndarray:
        """How far each box reaches outside [0, 1] at most, shape (n,); negative for none."""
        with np.errstate(invalid="ignore"):
            beyond: np.ndarray = np.maximum(self.corners - 1, -self.corners).max(axis=1)
        return beyond

    @cached_property
    def _splits(self) -> list[int]:
        return [0, *np.cumsum(self.counts).tolist()]

    def of(self, row: int) -> np.ndarray:
        """The boxes of one record, float64 of shape (n, 4)."""
        return self.corners[self._splits[row] : self._splits[row + 1]]

    def at(self, box: int) -> tuple[int, int, list[float]]:
        """The record of a box, which of the record's boxes it is, and its corners."""
        row = int(self.rows[box])
        return row, box - self._splits[row], self.corners[box].tolist()
