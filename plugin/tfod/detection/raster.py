"""Outlines as pixels: a pixel belongs to a shape when its centre does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfod.detection.corners import Corners


def fill_polygon(points: Sequence[float], size: tuple[int, int]) -> np.ndarray:
    """The pixels inside a polygon, which may cross itself (even-odd).

    So a box from 10 to 20 is the pixels 10 to 19. A polygon so thin that no pixel's centre is in
    it is the one pixel nearest to its middle, as far as that is in the image.

    Args:
        points: x, y, x, y, … in pixels; at least one pair.
        size: height and width of the image.

    Returns:
        bool of shape (height, width).
    """
    height, width = size
    mask = np.zeros((height, width), bool)
    corners = np.asarray(points, np.float64).reshape(-1, 2)
    x0, y0 = corners[:, 0], corners[:, 1]
    x1, y1 = np.roll(x0, -1), np.roll(y0, -1)
    first = max(0, math.ceil(y0.min() - 0.5))
    last = min(height, math.ceil(y0.max() - 0.5))
    for row in range(first, last):
        middle = row + 0.5
        crossed = (y0 <= middle) != (y1 <= middle)
        above, left = y0[crossed], x0[crossed]
        crossings = left + (middle - above) * (x1[crossed] - left) / (y1[crossed] - above)
        edges = np.clip(np.ceil(np.sort(crossings) - 0.5), 0, width).astype(int).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            mask[row, start:end] = True
    if not mask.any():
        column, row = (int(value) for value in np.floor(corners.mean(axis=0)))
        if 0 <= row < height and 0 <= column < width:
            mask[row, column] = True
    return mask


def fill_box(corners: Corners, size: tuple[int, int]) -> np.ndarray:
    """The pixels inside a box that is not turned, as :func:`fill_polygon` finds them.

    Args:
        corners: left, top, right, bottom in pixels.
        size: height and width of the image.

    Returns:
        bool of shape (height, width).
    """
    mask = np.zeros(size, bool)
    left, top, right, bottom = corners
    first_column, first_row, last_column, last_row = (
        max(0, math.ceil(value - 0.5)) for value in corners
    )
    mask[first_row:last_row, first_column:last_column] = True
    if mask.any():
        return mask
    return fill_polygon([left, top, right, top, right, bottom, left, bottom], size)


def fills_its_box(mask: np.ndarray, corners: Corners) -> bool:
    """Whether a mask is nothing but what a box of these corners covers."""
    return bool(np.array_equal(mask, fill_box(corners, (mask.shape[0], mask.shape[1]))))


def ellipse_outline(
    cx: float, cy: float, rx: float, ry: float, degrees: float = 0.0
) -> list[float]:
    """The outline of an ellipse as x, y, x, y, …; off by less than a pixel up to 2,000 pixels.

    Args:
        cx: its centre.
        cy: its centre.
        rx: half its width before it is turned.
        ry: half its height before it is turned.
        degrees: how far it is turned, clockwise as images have y down.
    """
    turn = np.linspace(0.0, 2 * np.pi, 128, endpoint=False)
    return turned(rx * np.cos(turn), ry * np.sin(turn), (cx, cy), degrees)


def box_outline(corners: tuple[float, float, float, float], degrees: float = 0.0) -> list[float]:
    """The four corners of a box that is turned about its centre, as x, y, x, y, …"""
    left, top, right, bottom = corners
    half_width, half_height = (right - left) / 2, (bottom - top) / 2
    xs = np.array((-half_width, half_width, half_width, -half_width))
    ys = np.array((-half_height, -half_height, half_height, half_height))
    return turned(xs, ys, (left + half_width, top + half_height), degrees)


def turned(
    xs: np.ndarray, ys: np.ndarray, centre: tuple[float, float], degrees: float
) -> list[float]:
    """Points about a centre, turned about it, as x, y, x, y, …"""
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    points = np.stack(
        (centre[0] + xs * cosine - ys * sine, centre[1] + xs * sine + ys * cosine), axis=1
    )
    flat: list[float] = points.reshape(-1).tolist()
    return flat
