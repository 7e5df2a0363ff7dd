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
