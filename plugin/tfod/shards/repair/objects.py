"""Removing objects from a record, with every list that says something about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.example.example import bytes_feature
from tfod.example.wire import Kind
from tfod.shards.repair.record import FEATURES, EditedRecord

_OBJECT_PREFIX = "image/object/"
_IMAGE_PREFIX = "image/"
_ONE_EACH = frozenset([*(one.key for one in keys.OBJECT_ATTRIBUTES), keys.KEYPOINT_NUM])
_SEVERAL_EACH = frozenset(
    (
        keys.MASK,
        keys.KEYPOINT_X,
        keys.KEYPOINT_Y,
        keys.KEYPOINT_TEXT,
        keys.KEYPOINT_VISIBILITY,
        "image/object/keypoint/z",
        "image/object/keypoint/z/weights",
        "image/object/class/multiclass_scores",
    )
)
# What tfod's own JSON has by the numbers of the objects.
_BY_OBJECT = ("objects", "absent")


class CannotDropError(Exception):
    """A list of the record cannot be shared out among the objects; nothing was changed."""


def drop_objects(record: EditedRecord, numbers: Sequence[int]) -> None:
    """Remove objects, by their numbers, from all lists of a record.

    Raises:
        CannotDropError: of a list it is not known which values are those of which object.
    """
    shares = object_values(record)
    count = len(record.boxes.corners)
    kept = [number for number in range(count) if number not in set(numbers)]
    extra = _renumbered(record, kept)
    for key, rows in shares.items():
        kind = record.kind(key)
        assert kind is not None  # it has values
        parts = [rows[number] for number in kept]
        is_array = kind is Kind.FLOAT and bool(parts)
        record.set(key, FEATURES[kind](np.concatenate(parts) if is_array else [*chain(*parts)]))
    if extra is not None:
        record.set(keys.EXTRA_ATTRIBUTES, extra)


def object_values(record: EditedRecord) -> dict[str, list[Any]]:
    """The values of each object in every list over the objects that has values, by key.

    Raises:
        CannotDropError: of a list it is not known which values are those of which object.
    """
    count, mapping = len(record.boxes.corners), record.field_mapping
    named = {*mapping.box, mapping.class_text, mapping.class_label, mapping.area}
    named.add(mapping.annotation_id)
    points = record.count(keys.KEYPOINT_X) // count
    found = {}
    for key in record.names():
        length = record.count(key)
        if (key not in named and _is_about_the_image(record, key)) or not length:
            continue
        if key == keys.KEYPOINT_TEXT and length == points and count > 1:
            continue  # names of the points, the same for all objects
        one = key in named or key in _ONE_EACH or key.startswith(keys.ATTRIBUTE_PREFIX)
        if (one and length == count) or (key in _SEVERAL_EACH and length % count == 0):
            found[key] = _shared_out(record, key, count)
        elif key.startswith(_OBJECT_PREFIX) or length % count == 0:
            raise CannotDropError(key)
    return found


def own_attributes(record: EditedRecord) -> list[str]:
    """What tfod's own JSON says of each object; equal texts say the same.

    Raises:
        CannotDropError: it cannot be read.
    """
    extra = _own_json(record)
    try:
        parts = [extra.get(part, {}) for part in _BY_OBJECT]
        numbers = map(str, range(len(record.boxes.corners)))
        said = ([part.get(number) for part in parts] for number in numbers)
        return [json.dumps(one, sort_keys=True) for one in said]
    except (AttributeError, RecursionError):
        raise CannotDropError(keys.EXTRA_ATTRIBUTES) from None


def _is_about_the_image(record: EditedRecord, key: str) -> bool:
    """Whether a key is known to say nothing of single objects."""
    if key.startswith(_OBJECT_PREFIX):
        return False
    if key in keys.KNOWN_KEYS or key in record.field_mapping.all_keys:
        return True
    spec = record.profile.features.get(key)
    of_one = spec is not None and spec.shape == ()
    return of_one or (key.startswith(_IMAGE_PREFIX) and record.count(key) == 1)


def _shared_out(record: EditedRecord, key: str, count: int) -> list[Any]:
    """The values of a list, in as many equal parts as there are objects."""
    kind = record.kind(key)
    if kind is Kind.FLOAT:
        return list(record.floats(key).reshape(count, -1))
    values: Sequence[Any] = record.ints(key) if kind is Kind.INT64 else record.values(key)
    step = len(values) // count
    return [tuple(values[at : at + step]) for at in range(0, len(values), step)]


def _renumbered(record: EditedRecord, kept: Sequence[int]) -> bytes | None:
    """Our own JSON of attributes for the objects that are kept; None where there is none."""
    if not record.count(keys.EXTRA_ATTRIBUTES):
        return None
    places = {str(number): str(place) for place, number in enumerate(kept)}
    extra = _own_json(record)
    try:
        for part in _BY_OBJECT:
            if part in extra:
                by_number = extra[part].items()
                extra[part] = {places[one]: said for one, said in by_number if one in places}
        text = json.dumps(extra, ensure_ascii=False, separators=(",", ":"))
        return bytes_feature([text.encode()])
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise CannotDropError(keys.EXTRA_ATTRIBUTES) from None


def _own_json(record: EditedRecord) -> dict[str, Any]:
    """tfod's own JSON of attributes; nothing where there is none."""
    if not record.count(keys.EXTRA_ATTRIBUTES):
        return {}
    try:
        extra = json.loads(record.text(keys.EXTRA_ATTRIBUTES) or "")
    except (ValueError, RecursionError):
        extra = None
    if not isinstance(extra, dict):
        raise CannotDropError(keys.EXTRA_ATTRIBUTES)
    return extra
