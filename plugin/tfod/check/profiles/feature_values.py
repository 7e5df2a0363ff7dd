"""From the values of a profile file to a :class:`~tfod.detection.schema.FeatureSpec`, checked.

A description that TensorFlow would refuse (a default of another type, of too few values) is
refused here as well.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

from tfod.detection import keys
from tfod.detection.schema import PROFILES, FeatureSpec, Value
from tfod.example.wire import Kind

DTYPES = {"string": Kind.BYTES, "int64": Kind.INT64, "float32": Kind.FLOAT}
"""What an Example can hold, by the name that TensorFlow gives it."""
DTYPE_NAMES = {kind: name for name, kind in DTYPES.items()}

_MEANINGS: dict[str, str] = {
    keys.MASK: "mask of each object, as PNGs or numbers",
    keys.EXTRA_ATTRIBUTES: "what the other keys cannot say, as JSON; for tfod only",
    **{attribute.key: f"{attribute.name} of each object" for attribute in keys.OBJECT_ATTRIBUTES},
    **{
        key: spec.meaning
        for features in reversed(list(PROFILES.values()))
        for key, spec in features.items()
    },
}
_NOUNS = {Kind.BYTES: "a text", Kind.INT64: "an integer of 64 bits", Kind.FLOAT: "a number"}

_LARGEST_SIZE = (1 << 31) - 1
_MOST_SIZES = 254
"""Of a shape; TensorFlow has no more."""
_LARGEST_DEFAULT = 1 << 20
_LARGEST_FLOAT = sys.float_info.max


class FeatureValueError(ValueError):
    """A shape or a default that no feature has; the message says what was expected."""


def known_meaning(key: str) -> str:
    """What a key of the known formats says; "" for others."""
    return _MEANINGS.get(key, "")


def fixed_length(
    kind: Kind, shape: Any, default: Any, *, meaning: str = "", demanded: bool = False
) -> FeatureSpec:
    """What ``tf.io.FixedLenFeature`` expects.

    Args:
        kind: its list.
        shape: a list of sizes, or one size.
        default: None, a value, or nested lists of as many values as the shape has.
        meaning: as in the result.
        demanded: as in the result.

    Raises:
        FeatureValueError: shape or default will not do.
    """
    sizes = _sizes(shape)
    if default is None:
        return FeatureSpec(kind, sizes, None, meaning, demanded)
    values = tuple(_values(kind, default))
    length = math.prod(sizes)
    if len(values) != length:
        raise FeatureValueError(
            f"a shape of {length} {'value' if length == 1 else 'values'} has a default of "
            f"{len(values)}"
        )
    return FeatureSpec(kind, sizes, values if length > 1 else values[0], meaning, demanded)


def shown(value: object) -> str:
    """A value from a file for a message of one line: its repr, shortened."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:59] + "…"


def is_utf8(text: str) -> bool:
    """Whether it can be written: escapes such as ``\\ud800`` are half a character."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _sizes(shape: Any) -> tuple[int, ...]:
    if shape is None or (isinstance(shape, (list, tuple)) and None in shape):
        raise FeatureValueError(
            "the shape must be known, or TensorFlow refuses it; for any number of values write "
            "VarLenFeature"
        )
    given = shape if isinstance(shape, (list, tuple)) else [shape]
    if len(given) > _MOST_SIZES:
        raise FeatureValueError(f"a shape has {_MOST_SIZES} sizes at most, and not {len(given):,}")
    sizes = tuple(_size(one) for one in given)
    if math.prod(sizes) > _LARGEST_SIZE:
        raise FeatureValueError(
            f"a feature holds {_LARGEST_SIZE:,} values at most, and the shape has more"
        )
    return sizes


def _size(size: Any) -> int:
    is_whole = isinstance(size, int) or (isinstance(size, float) and size.is_integer())
    if isinstance(size, bool) or not is_whole or not 1 <= size <= _LARGEST_SIZE:
        raise FeatureValueError(
            f"the sizes of a shape are whole numbers from 1, and {shown(size)} is not"
        )
    return int(size)


def _values(kind: Kind, default: Any) -> Iterator[Value]:
    """The values of a default, of which names can make more than their file holds."""
    room = _LARGEST_DEFAULT
    for one in _flat(default):
        value = _value(kind, one)
        room -= len(value) if isinstance(value, bytes) else 1
        if room < 0:
            raise FeatureValueError(f"a default has {_LARGEST_DEFAULT >> 20} MiB at most")
        yield value


def _flat(default: Any) -> Iterator[Any]:
    if isinstance(default, (list, tuple)):
        for one in default:
            yield from _flat(one)
    else:
        yield default


def _value(kind: Kind, value: Any) -> Value:
    """One value as the list of that kind holds it."""
    if kind is Kind.BYTES and isinstance(value, bytes):
        return value
    if kind is Kind.BYTES and isinstance(value, str) and is_utf8(value):
        return value.encode()
    if kind is Kind.FLOAT and isinstance(value, (int, float)) and abs(value) <= _LARGEST_FLOAT:
        return float(value)
    if kind is Kind.FLOAT and isinstance(value, float):  # NaN and infinity
        return value
    if kind is Kind.INT64 and isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    raise FeatureValueError(
        f"the default of dtype {DTYPE_NAMES[kind]} is {_NOUNS[kind]}, and {shown(value)} is none"
    )
