"""Attributes of objects on their way into an Example: natively as far as that goes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.detection.detection import AttributeValue
from tfod.example.example import bytes_feature, float_feature, int64_feature
from tfod.example.wire import Kind

_ATTRIBUTE_OF_NAME = {attribute.name: attribute for attribute in keys.OBJECT_ATTRIBUTES}
_ATTRIBUTE_OF_OTHER_NAME = {
    name: attribute for attribute in keys.OBJECT_ATTRIBUTES for name in attribute.other_names
}


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

    def __bool__(self) -> bool:
        return bool(self.image or self.objects or self.absent or self.names)

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
    kind = _kind_of(values)
    if kind is None:
        for number, value in enumerate(values):
            if value is not None:
                corrections.objects.setdefault(number, {})[name] = value
        return
    known = _ATTRIBUTE_OF_NAME.get(name) or _ATTRIBUTE_OF_OTHER_NAME.get(name)
    if known is not None and name != known.name and known.name in attributes:
        known = None
    if known is not None and kind is Kind.INT64 and kind not in known.kinds:
        kind = Kind.FLOAT if Kind.FLOAT in known.kinds else kind
    if known is not None and kind not in known.kinds:
        known = None
    default = known.default if known else _NOTHING[kind]
    filled = [default if value is None else value for value in values]
    key = known.key if known else keys.ATTRIBUTE_PREFIX + name
    features[key] = _encode_values(kind, filled)
    if known is not None and name != known.name:
        corrections.names[known.name] = name
        name = known.name
    for number, value in enumerate(values):
        if value is None:
            corrections.absent.setdefault(number, []).append(name)
        elif known is None and type(value) is not _TYPE_OF_KIND[kind]:
            corrections.objects.setdefault(number, {})[name] = value


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
