"""The boxes of a batch of records, as arrays."""

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
        counts: number of boxes of each record, intp of shape (records,).
        height, width: image size of each record in pixels, NaN if unknown, shape (records,).
        are_pixels: whether the boxes are stored in pixels, and were normalized when reading.
    """

    corners: np.ndarray
    counts: np.ndarray
    height: np.ndarray
    width: np.ndarray
    are_pixels: bool = False

    @cached_property
    def rows(self) -> np.ndarray:
        """The index of the record of each box, shape (n,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def all_valid(self) -> bool:
        """Whether all boxes are in their images and have an area, so that most rules pass."""
        corners = self.corners
        with np.errstate(invalid="ignore"):
            inside = bool((corners >= 0).all() and (corners <= 1).all())
            return inside and bool((corners[:, :2] < corners[:, 2:]).all())

    @cached_property
    def finite(self) -> np.ndarray:
        """Whether all coordinates of each box are finite, bool of shape (n,)."""
        is_finite: np.ndarray = np.isfinite(self.corners).all(axis=1)
        return is_finite

    @cached_property
    def far(self) -> np.ndarray:
        """Whether the coordinates of each box look like pixels, bool of shape (n,)."""
        return find_far_boxes(self.corners)

    @cached_property
    def in_pixels(self) -> np.ndarray:
        """Whether each box is in pixels instead of normalized, bool of shape (n,)."""
        corners = self.corners
        return np.zeros(len(corners), bool) if self.are_pixels else find_pixel_boxes(corners)

    @cached_property
    def normalized(self) -> np.ndarray:
        """Whether other rules apply to each box, bool of shape (n,)."""
        if self.all_valid:
            return np.ones(len(self.corners), bool)
        is_normalized: np.ndarray = self.finite & ~self.far
        return is_normalized

    @cached_property
    def size(self) -> np.ndarray:
        """The width and height of each box, normalized, shape (n, 2)."""
        with np.errstate(invalid="ignore"):
            size: np.ndarray = self.corners[:, 2:] - self.corners[:, :2]
        return size

    @cached_property
    def flat(self) -> np.ndarray:
        """Whether a side of each box is zero and none is negative, bool of shape (n,)."""
        size = self.size
        is_flat: np.ndarray = self.normalized & (size == 0).any(axis=1) & (size >= 0).all(axis=1)
        return is_flat

    @cached_property
    def size_in_pixels(self) -> np.ndarray:
        """The width and height in pixels, shape (n, 2); NaN if the image size is unknown."""
        with np.errstate(invalid="ignore"):
            scale = np.repeat(np.stack((self.width, self.height)), self.counts, axis=1)
            scaled: np.ndarray = self.size * scale.T
        return scaled

    @cached_property
    def overhang(self) -> np.ndarray:
        """The distance that each box extends beyond [0, 1], shape (n,); negative if it does not."""
        with np.errstate(invalid="ignore"):
            beyond: np.ndarray = np.maximum(self.corners - 1, -self.corners).max(axis=1)
        return beyond

    @cached_property
    def _splits(self) -> list[int]:
        return [0, *np.cumsum(self.counts).tolist()]

    def of(self, row: int) -> np.ndarray:
        """Return the boxes of a record, float64 of shape (n, 4)."""
        return self.corners[self._splits[row] : self._splits[row + 1]]

    def at(self, box: int) -> tuple[int, int, list[float]]:
        """Return the record of a box, the number of the box in the record, and its corners."""
        row = int(self.rows[box])
        return row, box - self._splits[row], self.corners[box].tolist()
