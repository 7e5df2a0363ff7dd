"""Masks between CVAT's runs, PNG images and arrays of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfod.convert.cvat_xml.shapes import BOX, MASK, MOST_PIXELS, CvatShape
from tfod.detection.boxes import PixelBox, enclosing_pixels
from tfod.detection.images.masks import fill_box, fill_polygon, run_lengths
from tfod.errors import TfodError, how_to_install


def draw_shape(shape: CvatShape, size: tuple[int, int]) -> np.ndarray:
    """The pixels of a shape, bool of shape (height, width); what is outside is cut off.

    Raises:
        TfodError: there are more than any frame has.
    """
    _require_drawable(size)
    if shape.kind == MASK:
        return decode_runs(shape.runs, shape.extent, size)
    if shape.kind == BOX and not shape.rotation:
        return fill_box(shape.extent, size)
    return fill_polygon(shape.outline, size)


def decode_runs(runs: Sequence[int], extent: PixelBox, size: tuple[int, int]) -> np.ndarray:
    """A mask from CVAT's runs: row by row in its extent, so many pixels outside, inside, …

    Args:
        runs: as many pixels in all as the extent has.
        extent: left, top, right, bottom, half-open.
        size: height and width of the image; what lies outside of it is cut off.

    Raises:
        TfodError: there are more pixels than any frame has.
    """
    _require_drawable(size)
    left, top, right, bottom = (int(value) for value in extent)
    inside = np.arange(len(runs)) % 2 == 1
    part = np.repeat(inside, runs).reshape(bottom - top, right - left)
    height, width = size
    mask = np.zeros(size, bool)
    rows = slice(max(top, 0), min(bottom, height))
    columns = slice(max(left, 0), min(right, width))
    part = part[
        rows.start - top : max(rows.stop - top, 0),
        columns.start - left : max(columns.stop - left, 0),
    ]
    mask[rows, columns] = part
    return mask


def _require_drawable(size: tuple[int, int]) -> None:
    height, width = size
    if height * width > MOST_PIXELS:
        raise TfodError(f"a frame of {width}x{height} is too large for masks; correct its size")


def encode_runs(mask: np.ndarray) -> tuple[list[int], PixelBox] | None:
    """CVAT's runs of a mask and their extent, half-open; None where the mask is empty."""
    corners = enclosing_pixels(mask)
    if corners is None:
        return None
    left, top, right, bottom = (int(value) for value in corners)
    return run_lengths(mask[top:bottom, left:right].ravel()), corners


def pillow() -> Any:
    """Pillow's ``Image`` module. Raises TfodError: it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise TfodError(f"masks need Pillow; {how_to_install('cvat')}") from None
    return Image
