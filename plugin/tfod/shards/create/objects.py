"""Objects on their way into records: which of their boxes can be written, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfod.detection.detection import AttributeValue, Detection
from tfod.detection.images.image import UPRIGHT, boxes_turned_back
from tfod.shards.create.image_files import AnnotatedSize, ImageFile, Size, by, frame_of
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.problems import OddBoxes, Problems, Refusal

_ROUNDING = 1e-5  # of the image's side: what float32 does
_DECIMALS = 0.011  # pixels: x and width of two decimals, as COCO has them, add up to so much

_NORMALIZED = (1, 1)
_ORDER = "where many are, look whether xmin, ymin, xmax and ymax are mixed up; "
_FIX = "correct them"
_CHOICE = ", or choose --odd-boxes=clip or --odd-boxes=drop"
_NOT_FINITE = "boxes with a number that is not finite"
_INVERTED = "boxes whose maximum is below their minimum"
_FLAT = "boxes without width or height"
_OUTSIDE = "boxes that reach outside their image"
_LARGEST = float(np.finfo(np.float32).max)
_LEAST_SIDE = float(np.finfo(np.float32).eps)


def sound_boxes(
    boxes: Sequence[Sequence[float]], size: Size, places: Sequence[str], problems: Problems
) -> tuple[np.ndarray, list[int]]:
    """Find the boxes that can be written, by one policy, whatever format they are from.

    Boxes are xmin, ymin, xmax, ymax in the pixels of ``size``, which is 1, 1 for normalized ones;
    messages say by ``places`` where each is written.

    Returns:
        Those boxes, float64 of shape (n, 4), clipped to the image unless the policy keeps them, in
        the unit in which they came; and which of the boxes that were given these are.
    """
    height, width = size
    odd = problems.policy.odd_boxes
    given = np.array(boxes, np.float64).reshape(-1, 4)
    sides = np.array((width, height, width, height), np.float64)
    in_pixels = size != _NORMALIZED
    if in_pixels:
        furthest = float(np.abs(given[np.isfinite(given)]).max(initial=0))
        problems.furthest = max(problems.furthest, furthest)
    clipped = np.clip(given, 0, sides)
    rounding = _ROUNDING + (_DECIMALS / sides if in_pixels else 0)
    kept = []
    for row, oddity in enumerate(_oddities(given / sides, clipped / sides, rounding)):
        if not oddity:
            kept.append(row)
            continue
        if odd is OddBoxes.KEEP and oddity in (_FLAT, _OUTSIDE):
            kept.append(row)
            clipped[row] = given[row]
            continue
        spelled = "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*given[row])
        where = f"{places[row]}: {spelled}" + f" in {width}x{height}" * in_pixels
        if odd in (OddBoxes.REFUSE, OddBoxes.KEEP):
            choice = _CHOICE * (odd is OddBoxes.REFUSE)
            problems.add(Refusal(oddity, _ORDER * (oddity == _INVERTED) + _FIX + choice), where)
        elif odd is OddBoxes.CLIP and oddity == _OUTSIDE and _has_area(clipped[row] / sides):
            problems.add(f"{oddity}, clipped to it", where)
            kept.append(row)
        else:
            problems.add(f"{oddity}, left out", where)
    return clipped[kept], kept


def _oddities(given: np.ndarray, clipped: np.ndarray, rounding: np.ndarray | float) -> list[str]:
    """What is odd about each normalized box; '' for nothing."""
    with np.errstate(invalid="ignore"):
        finite = (np.abs(given) <= _LARGEST).all(axis=1)
        inverted = (given[:, 2:] < given[:, :2]).any(axis=1)
        flat = (given[:, 2:] - given[:, :2] <= _LEAST_SIDE).any(axis=1)
        outside = (np.abs(given - clipped) > rounding).any(axis=1)
        outside |= ~_has_area(clipped)
    conditions = [~finite, inverted, flat, outside]
    found: list[str] = np.select(conditions, [_NOT_FINITE, _INVERTED, _FLAT, _OUTSIDE], "").tolist()
    return found


def _has_area(boxes: np.ndarray) -> np.ndarray:
    found: np.ndarray = (boxes[..., 2:] - boxes[..., :2] > _LEAST_SIDE).all(axis=-1)
    return found


def normalized(boxes: np.ndarray, size: Size, orientation: int = UPRIGHT) -> np.ndarray:
    """Boxes divided by their image's size, in the frame of its stored pixels; float32, (n, 4).

    They come as xmin, ymin, xmax, ymax, float64 of shape (n, 4), in the pixels of ``size``, the
    image's when it was annotated; ``orientation`` is EXIF's that was applied then.
    """
    height, width = size
    found = boxes_turned_back(boxes / (width, height, width, height), orientation)
    return found.astype(np.float32)


def detection_of(
    image: ImageFile,
    filename: str,
    chosen: ChosenLabelMap,
    problems: Problems,
    *,
    where: str,
    names: Sequence[str],
    boxes: Sequence[Sequence[float]],
    places: Sequence[str],
    attributes: Mapping[str, Sequence[AttributeValue]] | None = None,
    annotated: AnnotatedSize = (None, None),
    is_normalized: bool = False,
    **fields: Any,
) -> Detection:
    """The record of an image, with its objects as far as their boxes can be written.

    Boxes are xmin, ymin, xmax, ymax, in pixels of the ``annotated`` size, or normalized. For
    messages ``where`` is the annotation, and ``places`` are where each object is written.
    ``attributes`` are more values of each object by name, ``fields`` more of the Detection.

    Raises:
        TfodError: the label map lacks a class.
    """
    frame = frame_of(image, annotated, boxes, where, problems)
    if frame.size != frame.own:
        problems.add(
            "images of another size than their annotation says; their boxes are divided by "
            "the annotation's",
            f"{where}: {by(frame.size)}, the image {by(frame.own)}",
        )
    size = _NORMALIZED if is_normalized else frame.size
    corners, kept = sound_boxes(boxes, size, places, problems)
    return Detection(
        **{**image.fields(filename), **fields},
        boxes=normalized(corners, size, frame.orientation),
        class_text=[names[row] for row in kept],
        class_label=[chosen.id_of(names[row], places[row]) for row in kept],
        attributes={
            name: [values[row] for row in kept] for name, values in (attributes or {}).items()
        },
    )
