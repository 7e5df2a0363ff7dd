"""Masks to outlines, the opposite of ``fill_polygon``.

OpenCV's findContours is not used: it connects the centres of pixels, so that a box from 10 to 20
would become one from 10 to 19, and tfod does not depend on OpenCV.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_TOLERANCE = 0.35
"""Pixels by which an outline may move: less than half of the diagonal of half a pixel, which is the
distance of a cut corner from the centre of its pixel."""


def trace_mask(mask: np.ndarray) -> np.ndarray:
    """Return one outline around all parts of a mask, without its holes, float64 (n, 2) of x and y.

    ``fill_polygon`` restores the mask. Lines of no width, there and back, connect parts and holes,
    as in Ultralytics' merge_multi_segment. An empty mask has no points.
    """
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return np.zeros((0, 2))
    start = columns[0], rows[0]
    part = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.asarray(_connect(list(map(_simplify, _find_loops(part)))) + start)


def _connect(loops: Sequence[np.ndarray]) -> np.ndarray:
    """Connect each loop with the next: a part is on the way there, the rest on the way back."""
    there, back = [], []
    loop, last = loops[0], len(loops) - 1
    for number in range(last):
        following = loops[number + 1]
        end = _find_nearest(loop, following[0])
        there.append(loop[: end + 1])
        back += [loop[:1], loop[end:]]
        loop = np.roll(following, -_find_nearest(following, loop[end]), axis=0)
    return np.concatenate([*there, loop, loop[:1], *reversed(back)])[:-1]


def _find_nearest(points: np.ndarray, point: np.ndarray) -> int:
    return int(((points - point) ** 2).sum(axis=1).argmin())


def _find_loops(mask: np.ndarray) -> list[np.ndarray]:
    """Return the corners of the outline of each part and hole; every other side is horizontal."""
    padded = np.pad(mask != 0, 1).astype(np.int8)
    # 0 along a straight edge, 1 or -1 at a corner, 2 or -2 where two pixels touch at a corner.
    turns = abs(np.diff(np.diff(padded, axis=0), axis=1)).astype(np.intp)
    y, x = (np.repeat(side, turns[turns > 0]) for side in np.nonzero(turns))
    # In each row, corners are connected in pairs: the first and second, the third and fourth, …
    # The same applies to each column.
    by_column = np.lexsort((y, x))
    partners = np.empty_like(by_column)
    partners[by_column] = by_column.reshape(-1, 2)[:, ::-1].ravel()
    next_corner = partners.tolist()
    corners, remaining = np.stack([x, y], axis=1).astype(np.float64), [True] * len(x)
    loops = []
    for first in range(len(x)):
        loop, corner = [], first
        while remaining[corner]:
            loop += [corner, corner ^ 1]
            remaining[corner] = remaining[corner ^ 1] = False
            corner = next_corner[corner ^ 1]
        if loop:
            loops.append(corners[loop])
    return loops


def _simplify(corners: np.ndarray) -> np.ndarray:
    """Return an outline with fewer points, by the algorithm of Douglas and Peucker.

    The outermost points on each side are kept, so that the box around the outline is the same.
    """
    if len(corners) == 4:
        return corners
    # Cutting corners by half a pixel turns stairs into lines.
    following = np.roll(corners, -1, axis=0)
    half_pixel = np.sign(following - corners) / 2
    points = np.stack([corners + half_pixel, following - half_pixel], axis=1).reshape(-1, 2)
    points = points[(points != np.roll(points, 1, axis=0)).any(axis=1)]
    points = np.concatenate([points, points[:1]])
    is_kept = np.zeros(len(points), bool)
    is_kept[[0, -1, *points.argmin(axis=0), *points.argmax(axis=0)]] = True
    while True:
        kept = np.flatnonzero(is_kept)
        lines = np.cumsum(is_kept[:-1]) - 1  # the line of each point, except for the last one
        start, vector = points[kept[lines]], np.diff(points[kept], axis=0)[lines]
        offset = points[:-1] - start
        along = (offset * vector).sum(axis=1) / (vector**2).sum(axis=1)
        distances = np.hypot(*(offset - along.clip(0, 1)[:, None] * vector).T)
        farthest = np.maximum.reduceat(distances, kept[:-1])
        is_farthest = (distances == farthest[lines]) & (distances > _TOLERANCE)
        if not is_farthest.any():
            return np.asarray(points[kept[:-1]])
        is_kept[:-1] |= is_farthest
