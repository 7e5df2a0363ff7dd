"""One row of Detections in columns as a :class:`~tfod.detection.detection.Detection`.

A row is a view: what is wrong with it the columns have found already, so nothing is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfod.detection import keys
from tfod.detection.detection import AttributeValue, Detection, ImageLabel, Keypoints, PngMask
from tfod.example.columns import Column
from tfod.example.wire import Kind

if TYPE_CHECKING:
    from tfod.detection.columns import Detections

_ATTRIBUTE_OF_KEY = {attribute.key: attribute for attribute in keys.OBJECT_ATTRIBUTES}
_NOT_UNDERSTOOD = (ValueError, AttributeError, TypeError, LookupError, RecursionError)


class ExtraError(Exception):
    """``tfod/attributes`` cannot be understood."""


def detection_of(found: Detections, row: int) -> Detection:
    """A row that has no problem. Copies no images and no masks."""
    first, end = found.box_splits[row : row + 2].tolist()
    start, stop = found.encoded[row].tolist()
    records = found.examples.records
    texts = found.column(keys.CLASS_TEXT, Kind.BYTES).row_splits[row : row + 2].tolist()
    labels = found.column(keys.CLASS_LABEL, Kind.INT64)[row].tolist()
    return Detection(
        filename=found.filenames[row],
        source_id=found.source_ids[row],
        format=found.formats[row],
        sha256=found.sha256s[row],
        height=found.heights[row],
        width=found.widths[row],
        encoded=memoryview(records.buffer)[start:stop] if start >= 0 else None,
        encoded_offset=records.base + start if start >= 0 else -1,
        boxes=found.boxes[first:end],
        class_text=found.class_text_values[texts[0] : texts[1]] or None,
        class_label=labels or None,
        **(_rare_fields(found, row, end - first) if found.other_keys else {}),
        oddities=found.oddities(row),
    )


def _rare_fields(found: Detections, row: int, count: int) -> dict[str, Any]:
    """The fields of a Detection that most records have no keys for."""
    there = found.other_keys_in(row)
    if not there:
        return {}
    attributes, extra = attributes_of(found, row, count)
    masks = found.column(keys.MASK, Kind.BYTES)
    numbers = found.column(keys.MASK, Kind.FLOAT)[row]
    return {
        "masks": _png_masks(found, masks[row].tolist()) or None,
        "numerical_masks": numbers.reshape(count, *found.sizes[row]) if len(numbers) else None,
        "keypoints": _keypoints(found, row, count),
        "image_extra": extra,
        "attributes": attributes,
        "image_labels": _image_labels(found, row),
        "captions": _captions(found, row),
        "image_attributes": {
            name: found.column(key, Kind.INT64)[row].tolist()
            for name, key in keys.IMAGE_ATTRIBUTES.items()
            if key in there
        },
        "unread_keys": [key for key in there if _is_unread(found, key)],
    }


def _is_unread(found: Detections, key: str) -> bool:
    return not (
        key in keys.KNOWN_KEYS
        or key in found.mapping.all_keys
        or key.startswith(keys.ATTRIBUTE_PREFIX)
    )


def _png_masks(found: Detections, spans: Sequence[tuple[int, int]]) -> list[PngMask | None]:
    records = found.examples.records
    view = memoryview(records.buffer)
    return [
        PngMask(view[start : start + length], records.base + start) if length else None
        for start, length in spans
    ]


def _keypoints(found: Detections, row: int, count: int) -> Keypoints | None:
    column_x = found.column(keys.KEYPOINT_X, Kind.FLOAT)
    x, y = column_x[row], found.column(keys.KEYPOINT_Y, Kind.FLOAT)[row]
    if not len(x):
        return None
    visibility = found.column(keys.KEYPOINT_VISIBILITY, Kind.INT64)[row]
    if len(visibility) != len(x):
        # The OD API's decoder does the same: points that are numbers are visible.
        visibility = np.where(np.isfinite(x) & np.isfinite(y), 2, 0)
    names = found.texts_in(found.column(keys.KEYPOINT_TEXT, Kind.BYTES), row)
    points = len(x) // count
    return Keypoints(
        xy=np.stack((x, y), axis=-1).reshape(count, points, 2),
        visibility=visibility.reshape(count, points),
        names=tuple(names[:points]) if len(names) in (points, points * count) else (),
    )


def attributes_of(
    found: Detections, row: int, count: int
) -> tuple[dict[str, list[AttributeValue]], Mapping[str, Any]]:
    """The attributes of a row's objects, by name, and those of its image that we wrote ourselves.

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
        return attributes, {}
    try:
        return attributes, _corrected(json.loads(texts[0] or "{}"), attributes, count)
    except _NOT_UNDERSTOOD as error:
        raise ExtraError(f"cannot be understood ({type(error).__name__}: {error})") from None


def _corrected(
    extra: Any, attributes: dict[str, list[AttributeValue]], count: int
) -> Mapping[str, Any]:
    """Correct the attributes by what we wrote beside them; return those of the image."""
    numbers = {str(number): number for number in range(count)}
    for number, values in extra.get("objects", {}).items():
        for name, value in values.items():
            attributes.setdefault(name, [None] * count)[numbers[number]] = value
    for number, names in extra.get("absent", {}).items():
        for name in names:
            attributes[name][numbers[number]] = None
    for name, other in dict(extra.get("names", {})).items():
        attributes[str(other)] = attributes.pop(name)
    return dict(extra.get("image", {}))


def _values(found: Detections, key: str, row: int) -> list[AttributeValue]:
    column = _column_of(found.columns_of(key), row)
    if column is None:
        return []
    if column.kind is Kind.BYTES:
        return list(found.texts_in(column, row))
    values: list[AttributeValue] = column[row].tolist()
    return values


def _column_of(columns: Sequence[Column], row: int) -> Column | None:
    return next((one for one in columns if one.kind is not None and one.has(row)), None)


def _image_labels(found: Detections, row: int) -> list[ImageLabel]:
    texts = found.texts_in(found.column(keys.IMAGE_CLASS_TEXT, Kind.BYTES), row)
    labels = found.column(keys.IMAGE_CLASS_LABEL, Kind.INT64)[row].tolist()
    confidences = found.column(keys.IMAGE_CLASS_CONFIDENCE, Kind.FLOAT)[row].tolist()
    nothing = [None] * (len(texts) or len(labels))
    columns = (texts or nothing, labels or nothing, confidences or nothing)
    return [ImageLabel(*one) for one in zip(*columns, strict=True)]


def _captions(found: Detections, row: int) -> list[str]:
    column = _column_of(found.columns_of(keys.CAPTION), row)
    if column is not None and column.kind is not Kind.BYTES:
        found.note(row, f"{keys.CAPTION} is not a list of texts, not read")
    return found.texts_in(found.column(keys.CAPTION, Kind.BYTES), row)
