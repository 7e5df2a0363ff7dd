"""Attributes of objects, into an Example and out of one: natively as far as that goes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tfod.detection import keys
from tfod.detection.box_geometry import PixelBox, clipped_outline, enclosing_points
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
_NOT_UNDERSTOOD = (
    *(ValueError, AttributeError, TypeError, LookupError),
    *(RecursionError, OverflowError),
)
_PLAIN = frozenset((bool, int, float, str, type(None)))


def is_attribute_value(value: Any) -> bool:
    """Whether a value can be an attribute: anything that JSON can say."""
    if type(value) in _PLAIN:  # nearly always, and many times an image
        return True
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@dataclass
class Corrections:
    """What has to be said beside the native keys, because they cannot say it exactly."""

    image: dict[str, Any]
    objects: dict[int, dict[str, Any]] = field(default_factory=dict)
    absent: dict[int, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    drawn: dict[int, dict[str, Any]] = field(default_factory=dict)
    labels: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, detection: Detection) -> Corrections:
        """What has no native key at all: of the image, of how objects were drawn, of classes."""
        return cls(
            dict(detection.image_extra),
            drawn={
                int(number): {name: value for name, value in vars(one).items() if value}
                for number, one in detection.drawn.items()
                if one
            },
            labels={
                number: one.attributes
                for number, one in enumerate(detection.image_labels)
                if one.attributes
            },
        )

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def to_json(self) -> bytes:
        parts = {name: part for name, part in vars(self).items() if part}
        text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
        try:
            return text.encode()
        except UnicodeEncodeError:  # half a surrogate pair: only JSON's own escapes can say it
            return json.dumps(parts, separators=(",", ":")).encode()


def encode_attribute(
    name: str,
    attributes: Mapping[str, Sequence[AttributeValue]],
    features: dict[str, bytes],
    corrections: Corrections,
) -> None:
    """Write one attribute of all objects natively as far as that goes, and correct the rest.

    It goes under the OD API's own key when it has one and the values fit it, else under
    ``image/object/attribute/<name>``.
    """
    values = attributes[name]
    if all(value is None for value in values):
        return  # a list of nothing would be one of zeros, where other records may have texts
    plain = [_number_of(value) if isinstance(value, NumberText) else value for value in values]
    kind = _kind_of(plain)
    if kind is None:
        for number, value in enumerate(values):
            if value is not None:
                corrections.objects.setdefault(number, {})[name] = value
        return
    known = _ATTRIBUTE_OF_NAME.get(name)
    if known is not None and name != known.name and known.name in attributes:
        known = None
    if known is not None and kind is Kind.INT64 and kind not in known.kinds:
        kind = Kind.FLOAT if Kind.FLOAT in known.kinds else kind
    if known is not None and kind not in known.kinds:
        known = None
    default = known.default if known else _NOTHING[kind]
    filled = [default if value is None else value for value in plain]
    key = known.key if known else keys.ATTRIBUTE_PREFIX + name
    features[key] = _encode_values(kind, filled)
    if known is not None and name != known.name:
        corrections.names[known.name] = name
        name = known.name
    for number, value in enumerate(values):
        if value is None:
            corrections.absent.setdefault(number, []).append(name)
        elif (
            type(value) is not _TYPE_OF_KIND[kind] and (known is None or isinstance(value, str))
        ) or (kind is Kind.FLOAT and type(value) is int and float(np.float32(value)) != value):
            corrections.objects.setdefault(number, {})[name] = value


def with_image_attributes(text: bytes | None, attributes: Mapping[str, Any]) -> bytes | None:
    """The JSON of ``tfod/attributes`` with more attributes of the image; None where it is none."""
    try:
        parts = json.loads(text) if text else {}
        parts["image"] = {**parts.get("image", {}), **attributes}
    except _NOT_UNDERSTOOD:
        return None
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


_TYPE_OF_KIND = {Kind.INT64: int, Kind.FLOAT: float, Kind.BYTES: str}
_NOTHING: dict[Kind, int | float | str] = {Kind.INT64: 0, Kind.FLOAT: 0.0, Kind.BYTES: ""}


_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_HALF_PAIR = re.compile("[\ud800-\udfff]")  # half a surrogate pair, which UTF-8 cannot say
_BEYOND_NUMBERS = (float("inf"), -float("inf"))


def _fits_float32(value: float) -> bool:
    return abs(value) <= _LARGEST_FLOAT or value != value or value in _BEYOND_NUMBERS


def _kind_of(values: Sequence[AttributeValue]) -> Kind | None:
    """The list that holds these values; None when none does."""
    types = {type(value) for value in values if value is not None}
    if types <= {int, bool}:
        fits = all(-(1 << 63) <= value < 1 << 63 for value in values if isinstance(value, int))
        return Kind.INT64 if fits else None
    if types <= {int, bool, float}:
        fits = all(_fits_float32(value) for value in values if isinstance(value, (int, float)))
        return Kind.FLOAT if fits else None
    odd = any(_HALF_PAIR.search(value) for value in values if isinstance(value, str))
    return Kind.BYTES if types == {str} and not odd else None


def _encode_values(kind: Kind, values: Sequence[Any]) -> bytes:
    if kind is Kind.BYTES:
        return bytes_feature(value.encode() for value in values)
    if kind is Kind.FLOAT:
        return float_feature([float(value) for value in values])
    return int64_feature(int(value) for value in values)


class ExtraError(Exception):
    """``tfod/attributes`` cannot be understood."""


class Extra(NamedTuple):
    """What ``tfod/attributes`` says: of the image, of how its objects were drawn, of its classes.

    Attributes:
        image: name to value.
        drawn: by number of the object.
        labels: attributes by number of the class of the whole image.
    """

    image: Mapping[str, Any] = {}
    drawn: Mapping[int, ShapeDetails] = {}
    labels: Mapping[int, Mapping[str, AttributeValue]] = {}


def attributes_of(
    found: DetectionColumns, row: int, count: int
) -> tuple[dict[str, list[AttributeValue]], Extra]:
    """The attributes of a row's objects, by name, and what we wrote beside them ourselves.

    Raises:
        ExtraError: ``tfod/attributes`` cannot be understood.
    """
    attributes: dict[str, list[AttributeValue]] = {}
    for key in found.attribute_keys_in(row):
        values = _values(found, key, row)
        if not values:
            continue
        if len(values) != count:
            found.note(row, f"{key} is not one value an object, not read")
            continue
        attribute = _ATTRIBUTE_OF_KEY.get(key)
        name = attribute.name if attribute else key[len(keys.ATTRIBUTE_PREFIX) :]
        attributes[name] = values
    texts = found.texts_in(found.column(keys.EXTRA_ATTRIBUTES, Kind.BYTES), row)
    if not texts:
        return attributes, Extra()
    try:
        return attributes, _corrected(json.loads(texts[0] or "{}"), attributes, count)
    except _NOT_UNDERSTOOD as error:
        raise ExtraError(f"cannot be understood ({type(error).__name__}: {error})") from None


def _corrected(extra: Any, attributes: dict[str, list[AttributeValue]], count: int) -> Extra:
    """Correct the attributes by what we wrote beside them; return what else there is."""
    numbers = {str(number): number for number in range(count)}
    for number, values in extra.get("objects", {}).items():
        for name, value in values.items():
            attributes.setdefault(name, [None] * count)[numbers[number]] = value
    for number, names in extra.get("absent", {}).items():
        for name in names:
            attributes[name][numbers[number]] = None
    for name, other in dict(extra.get("names", {})).items():
        attributes[str(other)] = attributes.pop(name)
    return Extra(
        image=dict(extra.get("image", {})),
        drawn={numbers[key]: shape_details_of(one) for key, one in extra.get("drawn", {}).items()},
        labels={int(key): dict(one) for key, one in extra.get("labels", {}).items()},
    )


def shape_details_of(one: Mapping[str, Any]) -> ShapeDetails:
    """Return how an object was drawn; ValueError if a number is not finite or a box is invalid."""
    rotation, box = float(one.get("rotation", 0)), None
    if rotation:
        left, top, right, bottom = map(float, one["box"])
        box = left, top, right, bottom
    layer, group = int(one.get("z_order", 0)), int(one.get("group", 0))
    if not np.isfinite((rotation, *(box or ()))).all() or max(abs(layer), abs(group)) >= 1 << 31:
        raise ValueError("a number that is not finite, or too large")
    return ShapeDetails(box, rotation, layer, group)


_CLOSE = 0.02
"""Pixels: hundredths of one are rounded, and a record's numbers are of single precision."""


def box_as_drawn(drawn: ShapeDetails, corners: PixelBox, size: tuple[int, int]) -> PixelBox | None:
    """The box of a turned object before it was turned; None where its own box is another by now.

    Args:
        drawn: what was noted of it.
        corners: its own box in pixels, which whoever changes it leaves the note beside.
        size: height and width of the image, which may show a part of it only.
    """
    if drawn.box is None:
        return None
    seen = clipped_outline(box_outline(drawn.box, drawn.rotation), size)
    if not seen or not np.allclose(enclosing_points(seen), corners, rtol=0, atol=_CLOSE):
        return None
    return drawn.box


def _values(found: DetectionColumns, key: str, row: int) -> list[AttributeValue]:
    column = column_of(found.columns_of(key), row)
    if column is None:
        return []
    if column.kind is Kind.BYTES:
        return list(found.texts_in(column, row))
    values = column[row].tolist()
    return [_shortest(value) for value in values] if column.kind is Kind.FLOAT else values


def _shortest(value: float) -> float:
    """12.34, which somebody typed, for the number of single precision beside it."""
    return value if isinstance(value, int) or value.is_integer() else float(str(np.float32(value)))


def _number_of(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def number_as_typed(text: str) -> int | float | str:
    """Return the number that a text means, or the text if it is not a number.

    It is a NumberText if the number would come back as another text.
    """
    try:
        number = _number_of(text)
    except ValueError:
        return text
    is_plain = abs(number) < 1 << 63 if isinstance(number, int) else not number.is_integer()
    return number if is_plain and str(_shortest(number)) == text else NumberText(text)


def column_of(columns: Sequence[Column], row: int) -> Column | None:
    """The one of a key's columns that has values of a record; None without any."""
    return next((one for one in columns if one.kind is not None and one.has(row)), None)
