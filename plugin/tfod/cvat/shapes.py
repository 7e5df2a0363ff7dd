"""Frames as CVAT hands them to a format, as the XML of "CVAT for images 1.1" has them.

The same values, rounded to the same digits, so that an export of the server's and one of the
bridge's are the same. Source: ``dump_as_cvat_annotation`` in CVAT's
``dataset_manager/formats/cvat.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tfod.detection.boxes import PixelBox, enclosing_points
from tfod.formats.cvat_shapes import (
    BOX,
    ELLIPSE,
    MASK,
    POLYGON,
    CvatImage,
    CvatShape,
    CvatTag,
)

KINDS = {"rectangle": BOX, "polygon": POLYGON, "ellipse": ELLIPSE, "mask": MASK}
"""The shapes of CVAT that cover an area (its ShapeType), and what its XML calls them."""
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
        if str(one.type) not in KINDS:
            others[str(one.type)] += 1
            continue
        marks = {
            "label": one.label,
            "occluded": bool(one.occluded),
            "group": one.group or 0,
            "attributes": _attributes(one.attributes),
            "track": getattr(one, "track_id", None),
            "z_order": one.z_order or 0,
        }
        shapes.append(make_shape(str(one.type), one.points, one.rotation, **marks))
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


def make_shape(
    kind: str, points: Sequence[float], rotation: float = 0.0, **marks: Any
) -> CvatShape:
    """A shape from the points that CVAT has of it, rounded as its XML is.

    Args:
        kind: CVAT's ShapeType, one of :data:`KINDS`.
        points: of a rectangle its corners, of a polygon its outline, of an ellipse its centre and
            the rightmost x and topmost y, of a mask its runs and then its extent.
        rotation: in degrees; counts for rectangles and ellipses.
        marks: the other fields of the shape.
    """
    extent: PixelBox
    if kind == "mask":
        first_column, first_row, last_column, last_row = (int(value) for value in points[-4:])
        marks["runs"] = tuple(int(value) for value in points[:-4])
        extent = first_column, first_row, last_column + 1, last_row + 1
    elif kind == "polygon":
        marks["points"] = _rounded(points)
        extent = enclosing_points(marks["points"])
    elif kind == "ellipse":
        x, y, right, top = points
        cx, cy, rx, ry = _rounded((x, y, right - x, y - top))
        extent = cx - rx, cy - ry, cx + rx, cy + ry
    else:
        left, top, right, bottom = _rounded(points)
        extent = left, top, right, bottom
    turns = kind in ("rectangle", "ellipse")
    return CvatShape(
        kind=KINDS[kind],
        extent=extent,
        rotation=round(float(rotation), _DIGITS) if turns and rotation else 0.0,
        **marks,
    )


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)


def _attributes(attributes: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((one.name, str(one.value)) for one in attributes)
