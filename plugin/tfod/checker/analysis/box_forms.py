"""Detection of boxes in a different form than the normalized coordinates of two corners.

Some writers divide by the image size twice, write percent, or write width and height as xmax and
ymax. This cannot be recognized in a single box, but in a sample of the boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfod.detection.box_geometry import find_far_boxes

if TYPE_CHECKING:
    from tfod.checker.analysis.box_arrays import Boxes

TWICE, PERCENT, THOUSANDTHS = "divided by the image's size twice", "percent", "parts per thousand"
SIZES, CENTERS = "x, y, width, height", "x and y of the center, width, height"
FIXES = {
    TWICE: "divide pixels by the image size only once, and not at all if the layout uses pixels",
    PERCENT: "divide all coordinates by 100",
    THOUSANDTHS: "divide all coordinates by 1,000",
    SIZES: "write xmax = x + width and ymax = y + height, where x and y are the corner",
    CENTERS: "write xmin = x - width / 2 and xmax = x + width / 2, and ymin and ymax from y",
}
SAMPLE_SIZE = 64
"""The maximum number of boxes in the sample of a shard."""
_MIN_BOXES = 4
_MIN_BOXES_FOR_FORM = 10
_MIN_BOXES_FOR_PERCENT = 20  # to judge by boxes within the first percent of the image
_ALMOST_ALL, _SLIPS, _MARGIN = 0.95, 0.05, 0.02


def sample_boxes(boxes: Boxes) -> np.ndarray:
    """Return a sample of a batch's boxes, with the sides of their images in pixels: (n, 6)."""
    chosen = np.arange(0, len(boxes.corners), 1 + len(boxes.corners) // SAMPLE_SIZE)
    sides = np.stack((boxes.width, boxes.height), axis=1)[boxes.rows[chosen]]
    return np.concatenate((boxes.corners[chosen], sides), axis=1).astype(np.float32)


def find_box_forms(sample: np.ndarray) -> list[str]:
    """Return the forms that explain a sample of boxes; empty for coordinates of corners."""
    count, low, high, sides = len(sample), sample[:, :2], sample[:, 2:4], sample[:, 4:]
    if count < _MIN_BOXES:
        return []
    with np.errstate(all="ignore"):
        has_area = ((low >= 0) & (low < high)).all(axis=1)
        in_first_pixels = ((high * sides <= 1 + _MARGIN) & (high < 0.1)).any(axis=1)
        in_first_percent = (high <= 0.0101).all(axis=1) & (count >= _MIN_BOXES_FOR_PERCENT)
        if np.mean(has_area & (in_first_pixels | in_first_percent)) >= _ALMOST_ALL:
            return [TWICE]
        far = find_far_boxes(sample[:, :4])
        if 2 * far.sum() > count:
            ends, fractions = high[far].max(axis=0), high[far] / sides[far]
            is_outside = np.mean((fractions > 1 + _SLIPS).any(axis=1)) > _SLIPS
            if is_outside or fractions.max() < 0.5:  # otherwise they may be pixels
                for form, end in ((PERCENT, 100), (THOUSANDTHS, 1000)):
                    if 0.8 * end < ends.min() and ends.max() <= (1 + _MARGIN) * end:
                        return [form]
        inverted = np.sum((high < low).any(axis=1))
        if count < _MIN_BOXES_FOR_FORM or inverted <= max(3, _SLIPS * count):
            return []
        if (np.corrcoef(low.T, high.T)[[0, 1], [2, 3]] > 0.5).all():  # the values are two corners
            return []
        fits = {SIZES: 0, CENTERS: 0}
        for form, start in ((SIZES, low), (CENTERS, low - high / 2)):
            inside = (start >= -_MARGIN) & (start + high <= 1 + _MARGIN) & (high > 0)
            fits[form] = int(inside.all(axis=1).sum())
    best = max(0.99 * count, *fits.values())
    return [form for form, number in fits.items() if number >= best]
