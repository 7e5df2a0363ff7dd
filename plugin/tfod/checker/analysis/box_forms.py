"""The unit and the form of the boxes of a shard, if they are not fractions of two corners.

Some writers divide by the image's size twice, leave percent as they are, or write width and height
under xmax and ymax. A single box does not show that, but a sample of the boxes does.
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
    TWICE: "Divide pixels by the image's size once, and not at all where a layout has pixels.",
    PERCENT: "Divide all coordinates by 100.",
    THOUSANDTHS: "Divide all coordinates by 1,000.",
    SIZES: "From a corner, write xmax = x + width and ymax = y + height.",
    CENTERS: "From a center, write xmin = x - width / 2 and xmax = x + width / 2, y likewise.",
}
SAMPLE_SIZE = 64
"""The most boxes of a shard that are in its sample."""
_MIN_BOXES, _MIN_FORMS, _MANY = 4, 10, 20  # for pixels; for a form; for the first percent
_ALMOST_ALL, _SLIPS, _MARGIN = 0.95, 0.05, 0.02


def sample_of(boxes: Boxes) -> np.ndarray:
    """Return some boxes of a batch and the sides of their images in pixels, shape (n, 6)."""
    some = np.arange(0, len(boxes.corners), 1 + len(boxes.corners) // SAMPLE_SIZE)
    sides = np.stack((boxes.width, boxes.height), axis=1)[boxes.rows[some]]
    return np.concatenate((boxes.corners[some], sides), axis=1).astype(np.float32)


def forms_of(sample: np.ndarray) -> list[str]:
    """Return the forms that explain the boxes; none if they are fractions of corners.

    Args:
        sample: as :func:`sample_of` returns it, also of several batches.
    """
    count, low, high, sides = len(sample), sample[:, :2], sample[:, 2:4], sample[:, 4:]
    if count < _MIN_BOXES:
        return []
    with np.errstate(all="ignore"):
        has_area = ((low >= 0) & (low < high)).all(axis=1)
        in_first_pixels = ((high * sides <= 1 + _MARGIN) & (high < 0.1)).any(axis=1)
        in_first_percent = (high <= 0.0101).all(axis=1) & (count >= _MANY)
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
        if count < _MIN_FORMS or np.sum((high < low).any(axis=1)) <= max(3, _SLIPS * count):
            return []
        if (np.corrcoef(low.T, high.T)[[0, 1], [2, 3]] > 0.5).all():  # these are two corners
            return []
        fits = {SIZES: 0, CENTERS: 0}
        for form, start in ((SIZES, low), (CENTERS, low - high / 2)):
            inside = (start >= -_MARGIN) & (start + high <= 1 + _MARGIN) & (high > 0)
            fits[form] = int(inside.all(axis=1).sum())
    best = max(0.99 * count, *fits.values())
    return [form for form, number in fits.items() if number >= best]
