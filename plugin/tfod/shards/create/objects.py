"""Objects on their way into records: which of their boxes can be written, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfod.detection.detection import AttributeValue, Detection
from tfod.detection.image import UPRIGHT, boxes_turned_back
from tfod.shards.create.image_files import ImageFile, by, frame_of
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.problems import OddBoxes, Policy, Problems, Refusal

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


def sound_boxes(
    boxes: Sequence[Sequence[float]],
    size: tuple[int, int],
    places: Sequence[str],
    odd: OddBoxes,
    problems: Problems,
) -> tuple[np.ndarray, list[int]]:
    """Find the boxes that can be written, by one policy, whatever format they are from.

    Args:
        boxes: xmin, ymin, xmax, ymax of each, in the pixels of ``size``.
        size: height and width of the image; 1, 1 for normalized boxes.
        places: where each box is written, for messages.
        odd: what to do with those that are odd.
        problems: counts them.

    Returns:
        Those boxes, float64 of shape (n, 4), clipped to the image, in the unit in which they came;
        and which of the boxes that were given these are.
    """
    height, width = size
    given = np.array(boxes, np.float64).reshape(-1, 4)
    sides = np.array((width, height, width, height), np.float64)
    if size != _NORMALIZED:
        problems.furthest = max(
            problems.furthest, float(np.abs(given[np.isfinite(given)]).max(initial=0))
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
            problems.refuse(Refusal(kind, _FIX), where)
        elif odd is OddBoxes.CLIP and kind == _OUTSIDE and _has_area(clipped[row] / sides):
            problems.add(f"{kind}, clipped to it", where)
            kept.append(row)
        else:
            problems.add(f"{kind}, left out", where)
    return clipped[kept], kept


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


@dataclass(frozen=True)
class Objects:
    """The objects of an image as its annotation has them, one value each.

    Attributes:
        names: their classes.
        boxes: xmin, ymin, xmax, ymax, in pixels or normalized.
        places: where each is written, for messages.
        attributes: more values by name.
    """

    names: Sequence[str]
    boxes: Sequence[Sequence[float]]
    places: Sequence[str]
    attributes: Mapping[str, Sequence[AttributeValue]] = field(default_factory=dict)


def detection_of(
    image: ImageFile,
    filename: str,
    objects: Objects,
    chosen: ChosenLabelMap,
    policy: Policy,
    problems: Problems,
    *,
    where: str,
    said: tuple[int | None, int | None] = (None, None),
    is_normalized: bool = False,
    **fields: Any,
) -> Detection:
    """The record of an image, with its objects as far as their boxes can be written.

    Args:
        image: the image.
        filename: what ``image/filename`` says.
        objects: its objects.
        chosen: the label map.
        policy: what to do with what does not fit.
        problems: counts it.
        where: the annotation, for messages.
        said: height and width that the annotation gives; None where it does not.
        is_normalized: whether boxes are parts of the image; else pixels.
        fields: more fields of the Detection.

    Raises:
        TfodError: the label map lacks a class.
    """
    frame = frame_of(image, said, objects.boxes, policy.exif_orientation, where, problems)
    if frame.size != frame.own:
        problems.add(
            "images of another size than their annotation says; their boxes are divided by "
            "the annotation's",
            f"{where}: {by(frame.size)}, the image {by(frame.own)}",
        )
    size = _NORMALIZED if is_normalized else frame.size
    corners, kept = sound_boxes(objects.boxes, size, objects.places, policy.odd_boxes, problems)
    attributes = {name: [all[row] for row in kept] for name, all in objects.attributes.items()}
    return Detection(
        **{**image.fields(filename), **fields},
        boxes=normalized(corners, size, frame.orientation),
        class_text=[objects.names[row] for row in kept],
        class_label=[chosen.id_of(objects.names[row], objects.places[row]) for row in kept],
        attributes=attributes,
    )
