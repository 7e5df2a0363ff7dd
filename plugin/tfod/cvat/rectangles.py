"""Rectangles from CVAT's frames to Datumaro's boxes, the short way.

Nearly all shapes are plain rectangles, and CVAT's own conversion of one, which checks every field
several times, takes longer than to write it. What is anything else goes CVAT's way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfod.datumaro.lines import make_boxes, round_points

_RECTANGLE = "rectangle"  # ShapeType.RECTANGLE
# A label may have attributes of these names, which CVAT overwrites with its own.
_OF_CVAT = frozenset(("rotation", "occluded", "outside", "keyframe", "track_id", "source"))
Convert = Callable[..., list[Any]]


class RectangleConverter:
    """For the parameter ``convert_annotations`` of CVAT's ``GetCVATDataExtractor``.

    Args:
        convert: CVAT's ``convert_cvat_anno_to_dm``.
    """

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._numbers: dict[str, int] = {}
        self._is_odd: bool | None = None

    def __call__(
        self,
        frame: Any,
        label_attrs: Mapping[str, Any],
        map_label: Callable[[str], int],
        *rest: Any,
    ) -> list[Any]:
        """Convert the annotations of a frame.

        Args:
            frame: CVAT's, with ``tags`` and ``labeled_shapes``.
            label_attrs: the attributes that each label has.
            map_label: gives a label's number.
            rest: what CVAT's conversion gets.
        """
        shapes = frame.labeled_shapes
        if self._is_odd is None:
            self._is_odd = any(
                spec["name"] in _OF_CVAT for specs in label_attrs.values() for _, spec in specs
            )
        if self._is_odd or frame.tags or not all(map(_is_plain, shapes)):
            return self._convert(frame, label_attrs, map_label, *rest)
        try:
            attributes = [_attributes(one, label_attrs[one.label]) for one in shapes]
        except (ValueError, TypeError, AttributeError):
            return self._convert(frame, label_attrs, map_label, *rest)  # which says what is wrong
        labels = [self._number(one.label, map_label) for one in shapes]
        corners = round_points([one.points for one in shapes]) if shapes else []
        return make_boxes(corners, labels, attributes)

    def _number(self, label: str, map_label: Callable[[str], int]) -> int:
        number = self._numbers.get(label)
        if number is None:
            number = self._numbers[label] = map_label(label)
        return number


def _is_plain(shape: Any) -> bool:
    return (
        shape.type == _RECTANGLE
        and not shape.rotation
        and not shape.group
        and len(shape.points) == 4
    )


def _attributes(shape: Any, specs: Any) -> dict[str, Any]:
    """The attributes that the label has, typed as CVAT types them, and CVAT's own."""
    found: dict[str, Any] = {}
    if specs:
        values = {one.name: one.value for one in shape.attributes}
        for _, spec in specs:
            value = values.get(spec["name"], spec["default_value"])
            if spec["input_type"] == "number":
                value = float(value)
            elif spec["input_type"] == "checkbox":
                value = value.lower() == "true"
            found[spec["name"]] = value
    found["occluded"] = shape.occluded
    track = getattr(shape, "track_id", None)
    if track is not None:
        found["track_id"] = track
    return found
