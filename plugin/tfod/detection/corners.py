"""Boxes by their corners in pixels, and what encloses what."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Corners = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels, half-open."""


def enclosing(boxes: Sequence[Corners]) -> Corners:
    """The smallest box around boxes, of which there is at least one."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def enclosing_points(points: Sequence[float]) -> Corners:
    """The smallest box around points, given as x, y, x, y, …"""
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def enclosing_rotated(cx: float, cy: float, w: float, h: float, degrees: float) -> Corners:
    """The smallest box around a box of this centre and size that is turned."""
    angle = math.radians(degrees)
    cosine, sine = abs(math.cos(angle)), abs(math.sin(angle))
    half_width = (w * cosine + h * sine) / 2
    half_height = (w * sine + h * cosine) / 2
    return cx - half_width, cy - half_height, cx + half_width, cy + half_height


def clipped_outline(points: Sequence[float], size: tuple[int, int]) -> list[float]:
    """The part of an outline inside the image, by Sutherland and Hodgman; empty for none.

    Args:
        points: x, y, x, y, … in pixels.
        size: height and width of the image.
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


def enclosing_pixels(mask: np.ndarray) -> Corners | None:
    """The smallest box around the pixels of a mask; None where it has none."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    # Half-open: the pixel at the edge belongs to the object.
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def overlap(a: Corners, b: Corners) -> float:
    """Intersection over union of two boxes."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return both / (areas - both)
