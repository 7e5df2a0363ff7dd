"""Boxes on their way into records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfod.errors import TfodError


def normalized(boxes: Sequence[Sequence[float]], size: tuple[int, int], where: str) -> np.ndarray:
    """Boxes divided by a picture's size; nothing is clipped or rounded.

    Args:
        boxes: xmin, ymin, xmax, ymax of each, in the pixels of ``size``.
        size: height and width.
        where: for errors.

    Returns:
        float32 of shape (n, 4).

    Raises:
        TfodError: a number is beyond a float32, where it would become infinite.
    """
    height, width = size
    corners = np.array(boxes, np.float64).reshape(-1, 4)
    with np.errstate(over="ignore"):
        found: np.ndarray = (corners / (width, height, width, height)).astype(np.float32)
    odd = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(odd):
        raise TfodError(
            f"{where}: box {list(boxes[odd[0]])} goes beyond what a shard can hold; correct it"
        )
    return found
