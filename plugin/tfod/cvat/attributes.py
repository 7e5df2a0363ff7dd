"""Values of attributes as CVAT's labels allow them, and as its tables can hold them."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_LONGEST_TEXT = 4096  # of CVAT's tables
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_TRUE, _FALSE = frozenset(("true", "1", "yes")), frozenset(("false", "0", "no"))


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute that a label has.

    Attributes:
        input_type: ``checkbox``, ``number``, ``select``, ``radio`` or ``text``.
        values: what may be chosen; of a number the least, the largest and the step.
    """

    input_type: str
    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, attribute: Mapping[str, Any]) -> AttributeSpec:
        """From CVAT's description, in its tables or from its API."""
        values = attribute.get("values") or ()
        choices = values.split("\n") if isinstance(values, str) else values
        if list(choices) == [""]:  # CVAT's API splits a text without any
            choices = ()
        return cls(str(attribute.get("input_type", "")), tuple(str(one) for one in choices))


def fit_value(value: Any, spec: AttributeSpec) -> bool | int | float | str | None:
    """A value as CVAT stores it for such an attribute; None where the attribute cannot have it."""
    text = text_of(value)
    if text is None:
        return None
    if spec.input_type == "checkbox":
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else None
    if spec.input_type == "number":
        return _number(value, spec)
    if spec.input_type == "text" or not spec.values or text in spec.values:
        return text
    for synonyms in ({text.lower()}, _TRUE, _FALSE):
        if text.lower() in synonyms:
            for choice in spec.values:
                if choice.lower() in synonyms:
                    return choice
    return None


def storable(value: Any) -> bool | int | float | str | None:
    """A value for an attribute that CVAT makes; None where its tables have no place for it."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT and not _UNSTORABLE.search(value) else None
    if isinstance(value, float):
        return _shortest(value) if math.isfinite(value) else None
    return value if isinstance(value, (bool, int)) and abs(value) < 1 << 63 else None


def text_of(value: Any) -> str | None:
    """How CVAT writes a value; None where it cannot."""
    if isinstance(value, bool):
        return "true" if value else "false"
    kept = storable(value)
    if isinstance(kept, float) and kept.is_integer():
        return str(int(kept))
    return None if kept is None else str(kept)


def _number(value: Any, spec: AttributeSpec) -> int | float | None:
    """A number within the label's limits: the least, the largest, the step."""
    with contextlib.suppress(ValueError, OverflowError):
        number = _shortest(float(value))
        limits = [float(one) for one in spec.values[:2]]
        if math.isfinite(number) and (len(limits) < 2 or limits[0] <= number <= limits[1]):
            return int(number) if number.is_integer() else number
    return None


def _shortest(value: float) -> float:
    """12.34 for the float32 next to it: shards hold numbers so, and people typed the former."""
    with np.errstate(over="ignore"):  # beyond float32 it was none
        single = np.float32(value)
    return float(str(single)) if np.isfinite(single) and float(single) == value else value
