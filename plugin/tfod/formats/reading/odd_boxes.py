"""Boxes that do not fit their image: one policy for all formats, shards and ``tfod repair``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfod.detection.box_geometry import find_pixel_boxes, have_area
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections, build_detection
from tfod.formats.options import ConversionProblems, OddBoxes, Options, Refusal
from tfod.formats.reading.files import Size

NORMALIZED = (1, 1)
"""The size to divide by for boxes that are already normalized."""
FLOAT32_ERROR = 1e-5  # relative to the image side
_DECIMAL_ERROR = 0.011  # pixels: the sum of x and width, each rounded to two decimals (COCO)
_MAX_FLOAT32 = float(np.finfo(np.float32).max)

NOT_FINITE = "boxes with a coordinate that is not a finite number"
INVERTED = "boxes whose maximum is below their minimum"
NO_AREA = "boxes without width or height"
OUTSIDE = "boxes wholly outside their image"
OVER_THE_EDGE = "boxes that extend beyond their image"
_KEPT = frozenset((NO_AREA, OUTSIDE, OVER_THE_EDGE))
_ORDER_HINT = "if there are many, check whether xmin, ymin, xmax and ymax are mixed up; "


def select_writable_boxes(
    boxes: Sequence[Sequence[float]] | np.ndarray,
    size: Size,
    locations: Sequence[str],
    options: Options,
    problems: ConversionProblems,
) -> tuple[np.ndarray, list[int]]:
    """Select the boxes that can be written, according to ``options.odd_boxes``.

    Args:
        boxes: xmin, ymin, xmax and ymax of each box, in the unit of ``size``.
        size: height and width of the image in pixels; ``NORMALIZED`` for normalized boxes.
        locations: where each box is annotated, for messages.
        options: options of the conversion.
        problems: counts the boxes that are clipped, left out or refused.

    Returns:
        The selected boxes in the unit of ``size``, clipped to the image unless the option is KEEP,
        float64 of shape (n, 4); and the index of each of them in ``boxes``.
    """
    height, width = size
    policy = options.odd_boxes
    corners = np.array(boxes, np.float64).reshape(-1, 4)
    sides = np.array((width, height, width, height), np.float64)
    in_pixels = size != NORMALIZED
    if in_pixels:
        problems.count_boxes(corners)
    if (corners >= 0).all() and (corners <= sides).all() and have_area(corners / sides).all():
        return corners, list(range(len(corners)))  # the usual case
    tolerance = FLOAT32_ERROR + (_DECIMAL_ERROR / sides if in_pixels else 0)
    defects = list_box_defects(corners / sides, tolerance)
    clipped = np.clip(corners, 0, sides)
    selected = []
    for row, defect in enumerate(defects):
        if not defect:
            selected.append(row)
            continue
        if policy is OddBoxes.KEEP and defect in _KEPT:
            selected.append(row)
            clipped[row] = corners[row]
            continue
        coordinates = "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*corners[row])
        location = f"{locations[row]}: {coordinates}" + (
            f" in {width}x{height}" if in_pixels else ""
        )
        if policy is OddBoxes.DROP:
            problems.add(f"{defect}, left out", location)
        elif policy is OddBoxes.CLIP and defect == OVER_THE_EDGE:
            problems.add(f"{defect}, clipped to it", location)
            selected.append(row)
        else:
            hint = _ORDER_HINT if defect == INVERTED else ""
            problems.add(Refusal(defect, hint + _describe_fix(policy, defect)), location)
    return clipped[selected], selected


def _describe_fix(policy: OddBoxes, defect: str) -> str:
    if policy is OddBoxes.KEEP:
        return "correct them"
    if policy is OddBoxes.CLIP:
        return "correct them, or leave their objects out with --odd-boxes drop instead of clip"
    clip = "--odd-boxes clip or " if defect == OVER_THE_EDGE else ""
    return f"correct them, or choose {clip}--odd-boxes drop"


def list_box_defects(boxes: np.ndarray, tolerance: np.ndarray | float = FLOAT32_ERROR) -> list[str]:
    """Return the defect of each normalized box of shape (n, 4); '' for a valid box."""
    # Returns early for valid boxes, which is the usual case.
    is_inside = (boxes >= 0).all() and (boxes <= 1).all()
    if is_inside and have_area(boxes).all():
        return [""] * len(boxes)
    clipped = np.clip(boxes, 0, 1)
    with np.errstate(invalid="ignore"):
        finite = (np.abs(boxes) <= _MAX_FLOAT32).all(axis=1)
        inverted = (boxes[:, 2:] < boxes[:, :2]).any(axis=1)
        outside = ~have_area(clipped)
        over_the_edge = (np.abs(boxes - clipped) > tolerance).any(axis=1)
        conditions = [~finite, inverted, ~have_area(boxes), outside, over_the_edge]
    names = [NOT_FINITE, INVERTED, NO_AREA, OUTSIDE, OVER_THE_EDGE]
    defects: list[str] = np.select(conditions, names, "").tolist()
    return defects


def fit_boxes(
    batch: Detections | list[Detection], shard: str, options: Options, problems: ConversionProblems
) -> Detections | list[Detection]:
    """Clip or leave out boxes of a shard by ``options.odd_boxes``; raises RecordError."""
    if options.odd_boxes not in (OddBoxes.CLIP, OddBoxes.DROP):
        return batch
    parts = [batch.boxes] if isinstance(batch, Detections) else [item.boxes for item in batch]
    boxes = np.concatenate([np.zeros((0, 4), np.float32), *parts])
    problems.annotated += len(boxes)
    problems.in_pixels += int(find_pixel_boxes(boxes).sum())
    if not any(list_box_defects(boxes)):
        return batch
    fitted = []
    for row in range(len(batch)):
        detection = _read(batch, row, options.odd_boxes)
        numbers = range(len(detection.boxes))
        locations = [f"{shard}: image {detection.filename!r}, box {number}" for number in numbers]
        corners, kept = select_writable_boxes(
            detection.boxes, NORMALIZED, locations, options, problems
        )
        if any(list_box_defects(detection.boxes)):
            detection = detection.select_objects(kept, corners.astype(np.float32))
        fitted.append(detection)
    return fitted


def _read(batch: Detections | list[Detection], row: int, policy: OddBoxes) -> Detection:
    """Return a row; boxes that look like pixels do not stop the conversion if they are dropped."""
    if policy is OddBoxes.DROP and isinstance(batch, Detections) and not batch.has_pixel_boxes:
        stops = {item.code for item in batch.problems if item.row == row and not item.case}
        if stops == {"BOX005"}:
            return build_detection(batch, row)
    return batch[row]
