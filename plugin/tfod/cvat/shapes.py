"""Frames as CVAT hands them to a format, as the XML of "CVAT for images 1.1" has them.

The same values, rounded to the same digits, so that an export of the server's and one of the
bridge's are the same. Source: ``dump_as_cvat_annotation`` in CVAT's
``dataset_manager/formats/cvat.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tfod.check.cvat_shapes import BOX, ELLIPSE, MASK, POLYGON, CvatShape
from tfod.check.cvat_xml import CvatImage, CvatTag
from tfod.detection.boxes import PixelBox, enclosing_points

_KINDS = {"rectangle": BOX, "polygon": POLYGON, "ellipse": ELLIPSE, "mask": MASK}  # ShapeType
_DIGITS = 2


def convert_frame(frame: Any, *_: object) -> list[CvatImage]:
    """What is drawn on a frame, and its name and size.

    For the parameter ``convert_annotations`` of CVAT's ``GetCVATDataExtractor``: the list is then
    what the extractor's item has for annotations. It hands the frame itself over, whose name is as
    people see it; items have lost the case of its extension since 2.73.

    Args:
        frame: CVAT's, with ``tags`` and ``labeled_shapes``.
    """
    shapes: list[CvatShape] = []
    others: Counter[str] = Counter()
    for one in frame.labeled_shapes:
        kind = _KINDS.get(str(one.type))
        if kind is None:
            others[str(one.type)] += 1
        else:
            shapes.append(_shape(kind, one))
    return [
        CvatImage(
            number=frame.frame,
            name=frame.name,
            subset="",
            height=frame.height,
            width=frame.width,
            shapes=tuple(shapes),
            tags=tuple(CvatTag(tag.label, _attributes(tag.attributes)) for tag in frame.tags),
            others=others,
        )
    ]


def _shape(kind: str, shape: Any) -> CvatShape:
    points: Sequence[float] = shape.points
    runs: tuple[int, ...] = ()
    rotation = 0.0
    extent: PixelBox
    if kind == MASK:
        runs = tuple(int(value) for value in points[:-4])
        first_column, first_row, last_column, last_row = (int(value) for value in points[-4:])
        extent = first_column, first_row, last_column + 1, last_row + 1
    elif kind == POLYGON:
        extent = enclosing_points(_rounded(points))
    elif kind == ELLIPSE:
        x, y, right, top = points
        cx, cy, rx, ry = _rounded((x, y, right - x, y - top))
        extent = cx - rx, cy - ry, cx + rx, cy + ry
    else:
        left, top, right, bottom = _rounded(points)
        extent = left, top, right, bottom
    if kind in (BOX, ELLIPSE) and shape.rotation:
        rotation = round(float(shape.rotation), _DIGITS)
    return CvatShape(
        kind=kind,
        label=shape.label,
        extent=extent,
        rotation=rotation,
        points=_rounded(points) if kind == POLYGON else (),
        runs=runs,
        occluded=bool(shape.occluded),
        group=shape.group or 0,
        attributes=_attributes(shape.attributes),
        track=getattr(shape, "track_id", None),
    )


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)


def _attributes(attributes: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((one.name, str(one.value)) for one in attributes)
