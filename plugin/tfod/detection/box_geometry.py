"""Boxes in pixels: what encloses what, and boxes that somebody wrote in pixels for normalized ones.

Box coordinates are parts of the image, from 0 to 1; some writers forget to divide. One coordinate
does not show that: a shape that hangs far over the edge has such coordinates, too.
:func:`pixel_boxes` decides for the importers, the writers and the checker (BOX005).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_MOST_DEGREES = 1e6  # larger numbers are something else
LOOKS_LIKE_PIXELS = 2.0
"""Parts of the image are hardly larger, pixels hardly smaller."""


def normalized(values: np.ndarray, sizes: np.ndarray, *, are_corners: bool) -> np.ndarray:
    """Return boxes as ``xmin, ymin, xmax, ymax``, divided by the image's size; float32 (n, 4).

    Args:
        values: corners, or x, y, width and height, of each box in pixels, shape (n, 4).
        sizes: height and width of each box's image in pixels, shape (n, 2) or (2,).
        are_corners: whether the values are corners.
    """
    corners = values.astype(np.float64)
    if not are_corners:
        corners[:, 2:] += corners[:, :2]
    scaled: np.ndarray = (corners / sizes[..., [1, 0, 1, 0]]).astype("<f4")
    return scaled


def corners_in_pixels(
    boxes: np.ndarray, sizes: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Left, top, right, bottom of normalized boxes in pixels, as they are and clamped to the image.

    Both are float64 of shape (n, 4), as the boxes are (``xmin, ymin, xmax, ymax``); ``sizes`` are
    height and width of the image, or of each box's image: shape (2,) or (n, 2).
    """
    limits = np.asarray(sizes, np.float64)[..., [1, 0, 1, 0]]
    with np.errstate(invalid="ignore"):
        corners = boxes * limits
    return corners, np.clip(corners, 0.0, limits)


def far_boxes(corners: np.ndarray) -> np.ndarray:
    """Which boxes have a coordinate that parts of the image hardly have, bool of shape (n,).

    Of ``xmin, ymin, xmax, ymax``, shape (n, 4). Boxes that are not finite are not far.
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


def pixel_boxes(corners: np.ndarray) -> np.ndarray:
    """Return which boxes were written in pixels, bool of shape (n,), whatever the others are.

    These have nothing to do with the image as parts of it (``xmin, ymin, xmax, ymax``), or reach
    from its first pixel to the right and down. Other far boxes hang over the edge.
    """
    far = far_boxes(corners)
    if not far.any():
        return far
    with np.errstate(invalid="ignore"):
        from_first_pixel = (corners >= 0).all(axis=1)
        from_first_pixel &= (corners.reshape(-1, 2, 2).max(axis=1) > LOOKS_LIKE_PIXELS).all(axis=1)
    in_pixels: np.ndarray = far & (from_first_pixel | ~touch_image(corners))
    return in_pixels


PixelBox = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels, half-open."""


def enclosing(boxes: Sequence[PixelBox]) -> PixelBox:
    """The smallest box around boxes, of which there is at least one."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def enclosing_points(points: Sequence[float]) -> PixelBox:
    """The smallest box around points, given as x, y, x, y, …"""
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def enclosing_visible(points: Sequence[float], size: tuple[int, int]) -> PixelBox:
    """The smallest box around what an image shows of an outline; around all if it shows nothing."""
    return enclosing_points(clipped_outline(points, size) or points)


def degrees_of(value: Any) -> float:
    """Read the degrees of a rotation; 0 for full turns, or if it is not an angle."""
    with contextlib.suppress(ValueError, TypeError):
        degrees = 0.0 if isinstance(value, bool) else float(value)
        return degrees if abs(degrees) < _MOST_DEGREES and degrees % 360 else 0.0
    return 0.0


def clipped_outline(points: Sequence[float], size: tuple[int, int]) -> list[float]:
    """The part of an outline inside the image, by Sutherland and Hodgman; empty for none.

    Points are x, y, x, y, … in pixels, ``size`` is height and width of the image.
    """
    height, width = size
    corners = list(zip(points[::2], points[1::2], strict=True))
    for axis, limit, sign in ((0, 0, 1), (0, width, -1), (1, 0, 1), (1, height, -1)):
        kept: list[tuple[float, float]] = []
        for before, here in zip([*corners[-1:], *corners[:-1]], corners, strict=True):
            reach, reach_before = (sign * (one[axis] - limit) for one in (here, before))
            if (reach < 0) != (reach_before < 0):
                share = reach_before / (reach_before - reach)
                other = before[1 - axis] + share * (here[1 - axis] - before[1 - axis])
                kept.append((limit, other) if axis == 0 else (other, limit))
            if reach >= 0:
                kept.append(here)
        corners = kept
    return [value for corner in corners for value in corner]


def enclosing_pixels(mask: np.ndarray) -> PixelBox | None:
    """The smallest box around the pixels of a mask; None where it has none."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    # Half-open: the pixel at the edge belongs to the object.
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes, of shape (..., 4) each, which are broadcast."""
    least, most = np.maximum(first, second), np.minimum(first, second)
    common = np.maximum(most[..., 2:] - least[..., :2], 0).prod(axis=-1)
    areas = [(one[..., 2:] - one[..., :2]).prod(axis=-1) for one in (first, second)]
    union = areas[0] + areas[1] - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0))
