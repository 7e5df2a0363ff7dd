"""Box geometry: enclosing boxes, conversion to pixels, and detection of boxes in pixels.

Coordinates are fractions of the image size, but some writers forget to divide. A single coordinate
does not prove that, since shapes may extend far beyond the edge: see :func:`find_pixel_boxes`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_MIN_SIDE = float(np.finfo(np.float32).eps)
_MAX_DEGREES = 1e6  # larger numbers are not angles
LOOKS_LIKE_PIXELS = 2.0
"""A limit that normalized coordinates rarely exceed, and pixel coordinates usually do."""


def normalize_boxes(values: np.ndarray, sizes: np.ndarray, *, are_corners: bool) -> np.ndarray:
    """Convert boxes to float32 ``xmin, ymin, xmax, ymax``, divided by the image size.

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


def to_pixel_corners(
    boxes: np.ndarray, sizes: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return normalized boxes in pixels, and clamped to the image, both float64 of shape (n, 4).

    ``sizes`` is the height and width of the image, shape (2,), or of each box's image, (n, 2).
    """
    limits = np.asarray(sizes, np.float64)[..., [1, 0, 1, 0]]
    with np.errstate(invalid="ignore"):
        corners = boxes * limits
    return corners, np.clip(corners, 0.0, limits)


def find_far_boxes(corners: np.ndarray) -> np.ndarray:
    """Return which finite boxes have a coordinate too large for a normalized one, bool (n,)."""
    with np.errstate(invalid="ignore"):
        large = (np.abs(corners) > LOOKS_LIKE_PIXELS).any(axis=1)
    far: np.ndarray = large & np.isfinite(corners).all(axis=1)
    return far


def touch_image(corners: np.ndarray) -> np.ndarray:
    """Return which boxes would overlap the image if they were normalized, bool of shape (n,)."""
    pairs = corners.reshape(-1, 2, 2)
    with np.errstate(invalid="ignore"):
        inside = (pairs.min(axis=1) < 1) & (pairs.max(axis=1) > 0)
    touching: np.ndarray = inside.all(axis=1)
    return touching


def have_area(corners: np.ndarray) -> np.ndarray:
    """Return which normalized boxes have a width and a height in float32, bool of shape (n,)."""
    with np.errstate(invalid="ignore"):
        is_wide: np.ndarray = (corners[:, 2:] - corners[:, :2] > _MIN_SIDE).all(axis=1)
    return is_wide


def find_pixel_boxes(corners: np.ndarray) -> np.ndarray:
    """Return which boxes are in pixels, judging each box alone, bool of shape (n,).

    Such a box is far and, if normalized, would miss the image or extend from its first pixel to the
    right and down. Other far boxes extend beyond the edge. Used by importers, writers and BOX005.
    """
    far = find_far_boxes(corners)
    if not far.any():
        return far
    with np.errstate(invalid="ignore"):
        from_first_pixel = (corners >= 0).all(axis=1)
        from_first_pixel &= (corners.reshape(-1, 2, 2).max(axis=1) > LOOKS_LIKE_PIXELS).all(axis=1)
    in_pixels: np.ndarray = far & (from_first_pixel | ~touch_image(corners))
    return in_pixels


PixelBox = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels, half-open."""


def enclose_boxes(boxes: Sequence[PixelBox]) -> PixelBox:
    """Return the smallest box around one or more boxes."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def enclose_points(points: Sequence[float]) -> PixelBox:
    """Return the smallest box around points x, y, x, y, …"""
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def enclose_visible(points: Sequence[float], size: tuple[int, int]) -> PixelBox:
    """Return the smallest box around the visible part of an outline, or all of it if hidden."""
    return enclose_points(clip_outline(points, size) or points)


def parse_degrees(value: Any) -> float:
    """Parse the degrees of a rotation; 0 for full turns and if it is not an angle."""
    if not value:
        return 0.0  # the usual case
    with contextlib.suppress(ValueError, TypeError):
        degrees = 0.0 if isinstance(value, bool) else float(value)
        return degrees if abs(degrees) < _MAX_DEGREES and degrees % 360 else 0.0
    return 0.0


def clip_outline(points: Sequence[float], size: tuple[int, int]) -> list[float]:
    """Clip an outline x, y, x, y, … to the image (Sutherland-Hodgman); empty if outside."""
    height, width = size
    corners = list(zip(points[::2], points[1::2], strict=True))
    for axis, limit, sign in ((0, 0, 1), (0, width, -1), (1, 0, 1), (1, height, -1)):
        kept: list[tuple[float, float]] = []
        for previous, corner in zip([*corners[-1:], *corners[:-1]], corners, strict=True):
            depth, previous_depth = (sign * (x[axis] - limit) for x in (corner, previous))
            if (depth < 0) != (previous_depth < 0):  # the edge crosses the side of the image
                share = previous_depth / (previous_depth - depth)
                other = previous[1 - axis] + share * (corner[1 - axis] - previous[1 - axis])
                kept.append((limit, other) if axis == 0 else (other, limit))
            if depth >= 0:
                kept.append(corner)
        corners = kept
    return [value for corner in corners for value in corner]


def enclose_pixels(mask: np.ndarray) -> PixelBox | None:
    """Return the smallest box around the pixels of a mask, or None if it is empty."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    # The box is half-open: the last row and column belong to the object.
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection over union of boxes of shape (..., 4), with broadcasting."""
    lower, upper = np.maximum(first, second), np.minimum(first, second)
    intersection = np.maximum(upper[..., 2:] - lower[..., :2], 0).prod(axis=-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(axis=-1) for boxes in (first, second)]
    union = areas[0] + areas[1] - intersection
    ious = np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
    return np.asarray(ious)
