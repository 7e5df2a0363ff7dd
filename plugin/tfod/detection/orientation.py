"""EXIF orientation: from an image as it is shown back to its stored pixels.

Source: CIPA DC-008, tag 0x0112.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tfod.detection.detection import Keypoints

UPRIGHT = 1
"""The orientation of an image that is shown as it is stored."""
QUARTER = 5
"""From this orientation on height and width are exchanged."""


def boxes_turned_back(boxes: np.ndarray, orientation: int) -> np.ndarray:
    """Normalized boxes, ``xmin, ymin, xmax, ymax`` of each, of shape (n, 4)."""
    points = turned_back(boxes.reshape(-1, 2, 2), orientation)
    found: np.ndarray = np.concatenate((points.min(axis=1), points.max(axis=1)), axis=1)
    return found


def keypoints_turned_back(keypoints: Keypoints | None, orientation: int) -> Keypoints | None:
    """Keypoints; unlabelled ones stay 0, 0."""
    if keypoints is None:
        return None
    labelled = (keypoints.visibility > 0)[..., None] | keypoints.xy.any(axis=-1, keepdims=True)
    xy = np.where(labelled, turned_back(keypoints.xy, orientation), keypoints.xy)
    return replace(keypoints, xy=xy.astype(np.float32))


def turned_back(points: np.ndarray, orientation: int) -> np.ndarray:
    """Normalized points of an image as EXIF shows it, as points of its stored pixels.

    Args:
        points: x, y in the last axis.
        orientation: that was applied.
    """
    x, y = points[..., 0], points[..., 1]
    back = {
        2: (1 - x, y),
        3: (1 - x, 1 - y),
        4: (x, 1 - y),
        5: (y, x),
        6: (y, 1 - x),
        7: (1 - y, 1 - x),
        8: (1 - y, x),
    }
    return np.stack(back[orientation], axis=-1) if orientation in back else points


def mask_turned_back(mask: np.ndarray, orientation: int) -> np.ndarray:
    """A mask of an image as EXIF shows it, as one of its stored pixels, rows first."""
    if orientation >= QUARTER:
        mask, orientation = mask.T, _TRANSPOSED[orientation]
    rows, columns = _FLIPPED.get(orientation, (1, 1))
    return mask[::rows, ::columns]


_TRANSPOSED = {5: 1, 6: 4, 7: 3, 8: 2}  # what is left to do when rows and columns are exchanged
_FLIPPED = {2: (1, -1), 3: (-1, -1), 4: (-1, 1)}
