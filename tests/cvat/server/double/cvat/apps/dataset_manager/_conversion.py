"""``convert_cvat_anno_to_dm``: what is drawn on a frame, as Datumaro's annotations.

Facts: tags come first. Boxes have ``rotation``, everything ``occluded``, tracks ``track_id`` and
``keyframe``; each attribute of the label is there, with its default if it was not set, and one that
does not convert ends the export. An ellipse is a mask on old servers. Groups are numbers of the
item, 0 for none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import datumaro as dm

import cvat
from cvat.apps.dataset_manager._errors import CvatExportError
from cvat.apps.dataset_manager.formats.transformations import EllipsesToMasks, MaskConverter
from cvat.apps.engine.models import AttributeType, DimensionType, ShapeType

Specs = Mapping[str, Any]
MapLabel = Callable[..., int]


def convert_cvat_anno_to_dm(
    cvat_frame_anno: Any,
    label_attrs: Specs,
    map_label: MapLabel,
    format_name: str | None = None,
    dimension: DimensionType = DimensionType.DIM_2D,
) -> list[Any]:
    found = [
        dm.Label(
            label=map_label(tag.label),
            attributes=_attributes(tag, label_attrs),
            group=tag.group or 0,
        )
        for tag in cvat_frame_anno.tags
    ]
    convert = partial(_shape, cvat_frame_anno, label_attrs, map_label)
    shapes = map(convert, cvat_frame_anno.labeled_shapes)
    return found + [one for one in shapes if one is not None]


def _shape(frame: Any, specs: Specs, map_label: MapLabel, shape: Any) -> Any:
    attributes = _attributes(shape, specs)
    attributes["occluded"] = shape.occluded
    if shape.type == ShapeType.RECTANGLE or (shape.type == ShapeType.ELLIPSE and cvat.IS_NEW):
        attributes["rotation"] = shape.rotation
    if hasattr(shape, "track_id"):
        attributes.update(track_id=shape.track_id, keyframe=shape.keyframe)
    common = {
        "label": map_label(shape.label),
        "attributes": attributes,
        "group": shape.group or 0,
        "z_order": shape.z_order,
    }
    size = (frame.height, frame.width)
    return _make_shape(ShapeType(shape.type), list(shape.points), shape.rotation, size, common)


def _attributes(one: Any, specs: Specs) -> dict[str, Any]:
    values = dict(one.attributes)
    converted: dict[str, Any] = {}
    for _, spec in specs[one.label]:
        name = spec["name"]
        value = values.get(name, spec["default_value"])
        try:
            converted[name] = _typed(value, spec["input_type"])
        except ValueError as error:
            kind = CvatExportError if cvat.IS_NEW else Exception
            raise kind(f"Failed to convert attribute '{name}'='{value}': {error}") from None
    return converted


def _make_shape(
    kind: ShapeType,
    points: list[float],
    rotation: float,
    size: tuple[int, int],
    common: dict[str, Any],
) -> Any:
    if kind == ShapeType.RECTANGLE:
        x0, y0, x1, y1 = points
        return dm.Bbox(x0, y0, x1 - x0, y1 - y0, **common)
    if kind == ShapeType.ELLIPSE and cvat.IS_NEW:
        x, y, right, top = points
        return dm.Ellipse(x1=2 * x - right, y1=top, x2=right, y2=2 * y - top, **common)
    if kind == ShapeType.ELLIPSE:
        return EllipsesToMasks.convert_ellipse(points, rotation, *size, **common)
    if kind == ShapeType.MASK:
        return MaskConverter.cvat_rle_to_dm_rle(points, *size, **common)
    shapes = {
        ShapeType.POLYGON: dm.Polygon,
        ShapeType.POLYLINE: dm.PolyLine,
        ShapeType.POINTS: dm.Points,
    }
    make = shapes.get(kind)
    return make(points, **common) if make else None  # cuboids have no place in two dimensions


def _typed(value: str, input_type: str) -> Any:
    if input_type == AttributeType.NUMBER:
        return float(value)
    return value.lower() == "true" if input_type == AttributeType.CHECKBOX else value
