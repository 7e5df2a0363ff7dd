"""Boxes in pixels: those of normalized boxes, and those that somebody wrote for normalized ones.

Box coordinates are parts of the image, from 0 to 1; some writers forget to divide. One coordinate
does not show that: a shape that hangs far over the edge has such coordinates, too. The importers
and the checker (BOX005) ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LOOKS_LIKE_PIXELS = 2.0
"""Parts of the image are hardly larger, pixels hardly smaller."""


def corners_in_pixels(
    boxes: np.ndarray, sizes: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The corners of normalized boxes in pixels, as they are and clamped to the image.

    Args:
        boxes: ``xmin, ymin, xmax, ymax``, shape (n, 4).
        sizes: height and width of the image, or of each box's image: shape (2,) or (n, 2).

    Returns:
        Left, top, right, bottom, float64 of shape (n, 4), twice.
    """
    limits = np.asarray(sizes, np.float64)[..., [1, 0, 1, 0]]
    with np.errstate(invalid="ignore"):
        corners = boxes * limits
    return corners, np.clip(corners, 0.0, limits)


def far_boxes(corners: np.ndarray) -> np.ndarray:
    """Which boxes have a coordinate that parts of the image hardly have, bool of shape (n,).

    Args:
        corners: ``xmin, ymin, xmax, ymax``, shape (n, 4). Boxes that are not finite are not far.
    """
    with np.errstate(invalid="ignore"):
        large = (np.abs(corners) > LOOKS_LIKE_PIXELS).any(axis=1)
    far: np.ndarray = large & np.isfinite(corners).all(axis=1)
    return far


def touch_image(corners: np.ndarray) -> np.ndarray:
    """Which boxes have a part in the image if they are parts of it, bool of shape (n,).

    Boxes in pixels have none, but for those that begin in the first pixel.
    """
    pairs = corners.reshape(-1, 2, 2)
    with np.errstate(invalid="ignore"):
        inside = (pairs.min(axis=1) < 1) & (pairs.max(axis=1) > 0)
    touching: np.ndarray = inside.all(axis=1)
    return touching


@dataclass(frozen=True)
class BoxTally:
    """The boxes of a shard, or of a part of it.

    Attributes:
        boxes: how many there are.
        far: how many are far (:func:`far_boxes`).
        hanging: how many of those touch the image.
    """

    boxes: int = 0
    far: int = 0
    hanging: int = 0

    @classmethod
    def of(cls, corners: np.ndarray) -> BoxTally:
        """Of boxes, shape (n, 4)."""
        far = far_boxes(corners)
        hanging = int((far & touch_image(corners)).sum()) if far.any() else 0
        return cls(len(corners), int(far.sum()), hanging)

    def __add__(self, other: BoxTally) -> BoxTally:
        """Of two parts."""
        return BoxTally(
            self.boxes + other.boxes, self.far + other.far, self.hanging + other.hanging
        )

    @property
    def in_pixels(self) -> int:
        """How many boxes are in pixels: all far ones where most boxes are far.

        Elsewhere those that have nothing to do with the image; the others hang over its edge.
        """
        return self.far if 2 * self.far > self.boxes else self.far - self.hanging
