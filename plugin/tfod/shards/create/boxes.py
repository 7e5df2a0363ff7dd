"""Boxes on their way into records: which can be written, and in which frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfod.detection.image import UPRIGHT, boxes_turned_back
from tfod.shards.create.policy import OddBoxes
from tfod.shards.create.tally import Refusal, Tally

_ROUNDING = 1e-5  # of the image's side: what float32 does
_DECIMALS = 0.011  # pixels: x and width of two decimals, as COCO has them, add up to so much

_NORMALIZED = (1, 1)
_FIX = "correct them, or choose --odd_boxes=clip or --odd_boxes=drop"
_NOT_FINITE = "boxes with a number that is not finite"
_INVERTED = "boxes whose maximum is below their minimum"
_FLAT = "boxes without width or height"
_OUTSIDE = "boxes that reach outside their image"
_LARGEST = float(np.finfo(np.float32).max)
_LEAST_SIDE = float(np.finfo(np.float32).eps)


class SoundBoxes(NamedTuple):
    """Boxes that can be written.

    Attributes:
        corners: float64 of shape (n, 4), clipped to the image; in the unit in which they came.
        kept: which of the boxes that were given these are, n indices.
    """

    corners: np.ndarray
    kept: list[int]


def sound_boxes(
    boxes: Sequence[Sequence[float]],
    size: tuple[int, int],
    places: Sequence[str],
    odd: OddBoxes,
    tally: Tally,
) -> SoundBoxes:
    """Judge boxes by one policy, whatever format they are from.

    Args:
        boxes: xmin, ymin, xmax, ymax of each, in the pixels of ``size``.
        size: height and width of the image; 1, 1 for normalized boxes.
        places: where each box is written, for messages.
        odd: what to do with those that are odd.
        tally: counts them.
    """
    height, width = size
    given = np.array(boxes, np.float64).reshape(-1, 4)
    sides = np.array((width, height, width, height), np.float64)
    if size != _NORMALIZED:
        tally.furthest = max(
            tally.furthest, float(np.abs(given[np.isfinite(given)]).max(initial=0))
        )
    clipped = np.clip(given, 0, sides)
    rounding = _ROUNDING + (0 if size == _NORMALIZED else _DECIMALS / sides)
    kept = []
    for row, kind in enumerate(_kinds(given / sides, clipped / sides, rounding)):
        if not kind:
            kept.append(row)
            continue
        where = f"{places[row]}: {_spelled(given[row])}"
        if size != _NORMALIZED:
            where += f" in {width}x{height}"
        if odd is OddBoxes.REFUSE:
            tally.refuse(Refusal(kind, _FIX), where)
        elif odd is OddBoxes.CLIP and kind == _OUTSIDE and _has_area(clipped[row] / sides):
            tally.add(f"{kind}, clipped to it", where)
            kept.append(row)
        else:
            tally.add(f"{kind}, left out", where)
    return SoundBoxes(clipped[kept], kept)


def _kinds(given: np.ndarray, clipped: np.ndarray, rounding: np.ndarray | float) -> list[str]:
    """What is odd about each normalized box; '' for nothing."""
    with np.errstate(invalid="ignore"):
        finite = (np.abs(given) <= _LARGEST).all(axis=1)
        inverted = (given[:, 2:] < given[:, :2]).any(axis=1)
        flat = (given[:, 2:] - given[:, :2] <= _LEAST_SIDE).any(axis=1)
        outside = (np.abs(given - clipped) > rounding).any(axis=1)
        outside |= ~_has_area(clipped)
    conditions = [~finite, inverted, flat, outside]
    kinds = np.select(conditions, [_NOT_FINITE, _INVERTED, _FLAT, _OUTSIDE], "")
    found: list[str] = kinds.tolist()
    return found


def _has_area(boxes: np.ndarray) -> np.ndarray:
    found: np.ndarray = (boxes[..., 2:] - boxes[..., :2] > _LEAST_SIDE).all(axis=-1)
    return found


def _spelled(box: np.ndarray) -> str:
    return "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*box)


def normalized(boxes: np.ndarray, size: tuple[int, int], orientation: int = UPRIGHT) -> np.ndarray:
    """Boxes divided by their image's size, in the frame of its stored pixels.

    Args:
        boxes: xmin, ymin, xmax, ymax of each, float64 of shape (n, 4), in the pixels of ``size``.
        size: height and width, of the image as it was annotated.
        orientation: EXIF's, that was applied to the image when it was annotated.

    Returns:
        float32 of shape (n, 4).
    """
    height, width = size
    found = boxes_turned_back(boxes / (width, height, width, height), orientation)
    return found.astype(np.float32)
