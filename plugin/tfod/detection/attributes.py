"""Attributes of objects: encoding to an Example and decoding, with native keys if possible."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tfod.detection import keys
from tfod.detection.box_geometry import PixelBox, clip_outline, enclose_points
from tfod.detection.columns import DetectionColumns
from tfod.detection.detection import AttributeValue, Detection, NumberText, ShapeDetails
from tfod.detection.images.mask_images import box_outline
from tfod.example.example import bytes_feature, float_feature, int64_feature
from tfod.example.example_batch import Column
from tfod.example.wire import Kind

_ATTRIBUTE_OF_NAME = {
    name: attribute
    for attribute in keys.OBJECT_ATTRIBUTES
    for name in (attribute.name, *attribute.other_names)
}
_ATTRIBUTE_OF_KEY = {attribute.key: attribute for attribute in keys.OBJECT_ATTRIBUTES}
_PARSE_ERRORS = (ValueError, AttributeError, TypeError, LookupError, RecursionError, OverflowError)
_MAX_NESTING = 1000
_SCALAR_TYPES = frozenset((bool, int, float, str, type(None)))


def is_attribute_value(value: Any) -> bool:
    """Return whether a value can be an attribute, which any JSON value can."""
    if type(value) in _SCALAR_TYPES:  # fast path for most values; an image may have many
        return True
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@dataclass
class Corrections:
    """The content of ``tfod/attributes``, which the native keys cannot express."""

    image: dict[str, Any]
    objects: dict[int, dict[str, Any]] = field(default_factory=dict)
    absent: dict[int, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    drawn: dict[int, dict[str, Any]] = field(default_factory=dict)
    labels: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, detection: Detection) -> Corrections:
        """Collect what has no native key: extra values of the image, shape details, labels."""
        return cls(
            dict(detection.image_extra),
            drawn={
                int(number): {name: value for name, value in vars(details).items() if value}
                for number, details in detection.shape_details.items()
                if details
            },
            labels={
                number: label.attributes
                for number, label in enumerate(detection.image_labels)
                if label.attributes
            },
        )

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def to_json(self) -> bytes:
        """Return the JSON text of the parts that are not empty."""
        return _to_json({name: part for name, part in vars(self).items() if part})


def encode_attribute(
    name: str,
    attributes: Mapping[str, Sequence[AttributeValue]],
    features: dict[str, bytes],
    corrections: Corrections,
) -> None:
    """Encode one attribute of all objects, and add to ``corrections`` what its list cannot express.

    The key is the OD API's if it accepts the values, else ``image/object/attribute/<name>``.
    """
    values = attributes[name]
    if all(value is None for value in values):
        return  # a list of defaults would be int64, but other records may have texts
    plain_values = [
        _parse_number(value) if isinstance(value, NumberText) else value for value in values
    ]
    kind = _find_kind(plain_values)
    if kind is None:
        for number, value in enumerate(values):
            if value is not None:
                corrections.objects.setdefault(number, {})[name] = value
        return
    attribute = _ATTRIBUTE_OF_NAME.get(name)
    if attribute is not None and name != attribute.name and attribute.name in attributes:
        attribute = None
    if attribute is not None and kind is Kind.INT64 and kind not in attribute.kinds:
        kind = Kind.FLOAT if Kind.FLOAT in attribute.kinds else kind
    if attribute is not None and kind not in attribute.kinds:
        attribute = None
    default = attribute.default if attribute else _DEFAULT_OF_KIND[kind]
    filled = [default if value is None else value for value in plain_values]
    key = attribute.key if attribute else keys.ATTRIBUTE_PREFIX + name
    features[key] = _encode_values(kind, filled)
    if attribute is not None and name != attribute.name:
        corrections.names[attribute.name] = name
        name = attribute.name
    if set(map(type, values)) == {_TYPE_OF_KIND[kind]}:
        return  # the usual case
    for number, value in enumerate(values):
        if value is None:
            corrections.absent.setdefault(number, []).append(name)
        elif (
            type(value) is not _TYPE_OF_KIND[kind] and (attribute is None or isinstance(value, str))
        ) or (kind is Kind.FLOAT and type(value) is int and float(np.float32(value)) != value):
            # Readers would get a value of another type, or a rounded one.
            corrections.objects.setdefault(number, {})[name] = value


def add_image_attributes(text: bytes | None, attributes: Mapping[str, Any]) -> bytes | None:
    """Add attributes of the image to the JSON of ``tfod/attributes``; None if it is invalid."""
    try:
        parts = json.loads(text) if text else {}
        parts["image"] = {**parts.get("image", {}), **attributes}
    except _PARSE_ERRORS:
        return None
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def select_extra_attributes(text: str, numbers: Sequence[int]) -> bytes | None:
    """Return the JSON of ``tfod/attributes`` with only these objects; None if nothing remains.

    The text must be valid.
    """
    parts = json.loads(text or "{}")
    new_numbers = {str(old): str(new) for new, old in enumerate(numbers)}
    for name in ("objects", "absent", "drawn"):
        by_number = parts.get(name, {}).items()
        parts[name] = {new_numbers[x]: values for x, values in by_number if x in new_numbers}
    if not numbers:
        parts.pop("names", None)  # names of attributes without values
    parts = {name: part for name, part in parts.items() if part}
    return _to_json(parts) if parts else None


def _to_json(parts: Mapping[str, Any]) -> bytes:
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only a JSON escape can express
        return json.dumps(parts, separators=(",", ":")).encode()


_TYPE_OF_KIND = {Kind.INT64: int, Kind.FLOAT: float, Kind.BYTES: str}
_DEFAULT_OF_KIND: dict[Kind, int | float | str] = {Kind.INT64: 0, Kind.FLOAT: 0.0, Kind.BYTES: ""}
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_SURROGATE = re.compile("[\ud800-\udfff]")  # a lone surrogate, which UTF-8 cannot encode
_INFINITIES = (float("inf"), -float("inf"))


def _fits_float32(value: float) -> bool:
    return abs(value) <= _MAX_FLOAT32 or value != value or value in _INFINITIES


def _find_kind(values: Sequence[AttributeValue]) -> Kind | None:
    """Return the kind of list that can hold these values, or None."""
    types = {type(value) for value in values if value is not None}
    if types <= {int, bool}:
        fits = all(-(1 << 63) <= value < 1 << 63 for value in values if isinstance(value, int))
        return Kind.INT64 if fits else None
    if types <= {int, bool, float}:
        fits = all(_fits_float32(value) for value in values if isinstance(value, (int, float)))
        return Kind.FLOAT if fits else None
    is_invalid = any(_SURROGATE.search(value) for value in values if isinstance(value, str))
    return Kind.BYTES if types == {str} and not is_invalid else None


def _encode_values(kind: Kind, values: Sequence[Any]) -> bytes:
    if kind is Kind.BYTES:
        return bytes_feature(value.encode() for value in values)
    if kind is Kind.FLOAT:
        return float_feature([float(value) for value in values])
    return int64_feature(int(value) for value in values)


class ExtraError(Exception):
    """``tfod/attributes`` cannot be parsed."""


class Extra(NamedTuple):
    """The content of ``tfod/attributes`` that does not belong to attributes of objects.

    ``image`` is by name, the other details are by number of the object or image label.
    """

    image: Mapping[str, Any] = {}
    shape_details: Mapping[int, ShapeDetails] = {}
    labels: Mapping[int, Mapping[str, AttributeValue]] = {}


def read_attributes(
    batch: DetectionColumns, row: int, count: int
) -> tuple[dict[str, list[AttributeValue]], Extra]:
    """Read the attributes of a row, and the rest of ``tfod/attributes``; may raise ExtraError."""
    attributes: dict[str, list[AttributeValue]] = {}
    for key in batch.attribute_keys_in(row):
        values = _read_values(batch, key, row)
        if not values:
            continue
        if len(values) != count:
            batch.note(row, f"{key} does not have one value per object; ignored")
            continue
        attribute = _ATTRIBUTE_OF_KEY.get(key)
        name = attribute.name if attribute else key[len(keys.ATTRIBUTE_PREFIX) :]
        attributes[name] = values
    texts = batch.texts_in(batch.column(keys.EXTRA_ATTRIBUTES, Kind.BYTES), row)
    if not texts:
        return attributes, Extra()
    try:
        return attributes, _apply_corrections(_parse(texts[0] or "{}"), attributes, count)
    except _PARSE_ERRORS as error:
        raise ExtraError(f"cannot be parsed ({type(error).__name__}: {error})") from None


def _parse(text: str) -> Any:
    """Parse JSON; raise ValueError if it is nested so deeply that a browser's stack overflows."""
    if text.count("[") + text.count("{") > _MAX_NESTING:
        opened = ((character in "[{") - (character in "]}") for character in text)
        if max(itertools.accumulate(opened)) > _MAX_NESTING:
            raise ValueError(f"nested more than {_MAX_NESTING} times")
    return json.loads(text)


def _apply_corrections(
    extra: Any, attributes: dict[str, list[AttributeValue]], count: int
) -> Extra:
    """Correct the attributes, and return the remaining content."""
    numbers = {str(number): number for number in range(count)}
    for number, values in extra.get("objects", {}).items():
        for name, value in values.items():
            attributes.setdefault(name, [None] * count)[numbers[number]] = value
    for number, names in extra.get("absent", {}).items():
        for name in names:
            attributes[name][numbers[number]] = None
    for name, original in dict(extra.get("names", {})).items():
        attributes[str(original)] = attributes.pop(name)
    return Extra(
        image=dict(extra.get("image", {})),
        shape_details={
            numbers[key]: parse_shape_details(x) for key, x in extra.get("drawn", {}).items()
        },
        labels={int(key): dict(values) for key, values in extra.get("labels", {}).items()},
    )


def parse_shape_details(values: Mapping[str, Any]) -> ShapeDetails:
    """Parse ShapeDetails; ValueError if a number is not finite or a box is invalid."""
    rotation, box = float(values.get("rotation", 0)), None
    if rotation:
        left, top, right, bottom = map(float, values["box"])
        box = left, top, right, bottom
    layer, group = int(values.get("z_order", 0)), int(values.get("group", 0))
    if not np.isfinite((rotation, *(box or ()))).all() or max(abs(layer), abs(group)) >= 1 << 31:
        raise ValueError("a number is not finite or too large")
    return ShapeDetails(box, rotation, layer, group)


_TOLERANCE = 0.02
"""Pixels: CVAT rounds to hundredths, and records store single precision."""


def find_unrotated_box(
    details: ShapeDetails, corners: PixelBox, size: tuple[int, int]
) -> PixelBox | None:
    """Return the box before its rotation; None if it no longer matches the object's own box.

    Args:
        details: shape details of the object.
        corners: the object's own box in pixels; other programs may change it, but not the details.
        size: height and width of the image, which may show only a part of the object.
    """
    if details.box is None:
        return None
    visible = clip_outline(box_outline(details.box, details.rotation), size)
    if not visible or not np.allclose(enclose_points(visible), corners, rtol=0, atol=_TOLERANCE):
        return None
    return details.box


def _read_values(batch: DetectionColumns, key: str, row: int) -> list[AttributeValue]:
    column = find_column(batch.find_columns(key), row)
    if column is None:
        return []
    if column.kind is Kind.BYTES:
        return list(batch.texts_in(column, row))
    values = column[row].tolist()
    return [_shortest(value) for value in values] if column.kind is Kind.FLOAT else values


def _shortest(value: float) -> float:
    """Return the shortest decimal with the same single-precision value, such as 12.34."""
    return value if isinstance(value, int) or value.is_integer() else float(str(np.float32(value)))


def _parse_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_typed_number(text: str) -> int | float | str:
    """Parse a number: NumberText if its spelling would be lost; other texts are unchanged."""
    try:
        number = _parse_number(text)
    except ValueError:
        return text
    is_plain = abs(number) < 1 << 63 if isinstance(number, int) else not number.is_integer()
    return number if is_plain and str(_shortest(number)) == text else NumberText(text)


def find_column(columns: Sequence[Column], row: int) -> Column | None:
    """Return the first column that has a list for the record, or None."""
    return next((column for column in columns if column.kind and column.has(row)), None)
