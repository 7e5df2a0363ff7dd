"""From an Example to a Detection."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.detection.detection import AttributeValue, Detection, ImageLabel, Keypoints, PngMask
from tfod.detection.picture import picture_size
from tfod.example.example import Example
from tfod.example.wire import Kind

_ATTRIBUTE_OF_KEY = {attribute.key: attribute for attribute in keys.OBJECT_ATTRIBUTES}


def decode_detection(example: Example, boxes: np.ndarray | None = None) -> Detection:
    """Read an Example as a Detection. Copies no pictures and no masks.

    Args:
        example: the record.
        boxes: the boxes of its objects, float32 of shape (n, 4), normalized ``xmin, ymin, xmax,
            ymax``, where they do not come from the four lists of the format.

    Raises:
        RecordError: a feature has the wrong kind or lists of one object differ in length.
    """
    reader = _Reader(example)
    boxes = reader.boxes() if boxes is None else boxes
    count = len(boxes)
    encoded, offset = reader.encoded()
    return Detection(
        filename=reader.text(keys.FILENAME),
        source_id=reader.text(keys.SOURCE_ID),
        format=reader.recurring_text(keys.FORMAT),
        sha256=reader.text(keys.SHA256),
        height=reader.integer(keys.HEIGHT),
        width=reader.integer(keys.WIDTH),
        encoded=encoded,
        encoded_offset=offset,
        boxes=boxes,
        class_text=reader.texts(keys.CLASS_TEXT, count),
        class_label=reader.per_object(keys.CLASS_LABEL, example.ints(keys.CLASS_LABEL), count),
        **(reader.rare_fields(count) if reader.other_keys else {}),
        oddities=reader.oddities,
    )


class _Reader:
    """Takes an Example apart; one method for each part of a Detection."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.oddities: list[str] = []
        self.other_keys = example.keys_besides(_PLAIN_KEYS)

    def rare_fields(self, count: int) -> dict[str, Any]:
        """The fields of a Detection that most records have no keys for."""
        masks, numerical_masks = self.masks(count)
        attributes = self.attributes(count)
        return {
            "masks": masks,
            "numerical_masks": numerical_masks,
            "keypoints": self.keypoints(count),
            "image_extra": self.extra(attributes, count),
            "attributes": attributes,
            "image_labels": self.image_labels(),
            "captions": self.captions(),
            "image_attributes": {
                name: self.example.ints(key)
                for name, key in keys.IMAGE_ATTRIBUTES.items()
                if key in self.other_keys
            },
            "unread_keys": self.unread_keys(),
        }

    def text(self, key: str) -> str | None:
        """A feature of one text."""
        values = self.example.byte_strings(key)
        if not values:
            return None
        if len(values) > 1:
            raise self.example.error(f"holds {len(values)} values, expected one", feature=key)
        return self._decode(values[0], key)

    def recurring_text(self, key: str) -> str | None:
        """A feature of one text that most records share."""
        try:
            texts = self.example.texts(key)
        except UnicodeDecodeError:
            texts = []
        return texts[0] if len(texts) == 1 else self.text(key)

    def texts(self, key: str, count: int) -> list[str] | None:
        try:
            texts = self.example.texts(key)
        except UnicodeDecodeError:
            texts = [self._decode(value, key) for value in self.example.byte_strings(key)]
        return self.per_object(key, texts, count)

    def _decode(self, value: bytes, key: str) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.oddities.append(f"{key} is not UTF-8, read as Latin-1")
            return value.decode("latin-1")

    def integer(self, key: str) -> int | None:
        values = self.example.ints(key)
        if len(values) > 1:
            raise self.example.error(f"holds {len(values)} values, expected one", feature=key)
        return values[0] if values else None

    def encoded(self) -> tuple[memoryview | None, int]:
        spans = self.example.byte_spans(keys.ENCODED)
        if not spans:
            return None, -1
        if len(spans) > 1:
            raise self.example.error(
                f"holds {len(spans)} values, expected one", feature=keys.ENCODED
            )
        start, end = spans[0]
        return memoryview(self.example.buffer)[start:end], self.example.file_offset(start)

    def boxes(self) -> np.ndarray:
        example = self.example
        rows = example.float_rows(keys.BOX)
        if rows is None:
            lengths = ", ".join(
                f"{len(example.floats(key))} {key.rpartition('/')[2]}" for key in keys.BOX
            )
            raise example.error(
                f"lists of different lengths: {lengths}",
                feature="image/object/bbox",
                remedy="write the record again with one value for each object",
            )
        boxes: np.ndarray = rows.T
        return boxes

    def per_object(self, key: str, values: list[Any], count: int) -> list[Any] | None:
        """Hand the values on if there is none or one for each object."""
        if values and len(values) != count:
            raise self.example.error(
                f"holds {len(values)} values for {count} boxes",
                feature=key,
                remedy="write the record again with one value for each object",
            )
        return values or None

    def masks(self, count: int) -> tuple[list[PngMask | None] | None, np.ndarray | None]:
        example, key = self.example, keys.MASK
        if key not in example:
            return None, None
        if example.kind(key) is Kind.FLOAT:
            return None, self._numerical_masks(count)
        spans = example.byte_spans(key)
        self.per_object(key, spans, count)
        view = memoryview(example.buffer)
        masks = [
            PngMask(view[start:end], example.file_offset(start)) if end > start else None
            for start, end in spans
        ]
        return masks or None, None

    def _numerical_masks(self, count: int) -> np.ndarray | None:
        values = self.example.floats(keys.MASK)
        if not len(values):
            return None
        height, width = self.integer(keys.HEIGHT) or 0, self.integer(keys.WIDTH) or 0
        if not (height and width):
            encoded = self.encoded()[0]
            height, width = (encoded and picture_size(bytes(encoded))) or (0, 0)
        if len(values) != count * height * width:
            raise self.example.error(
                f"holds {len(values)} numbers, expected {count} x {height} x {width} "
                "(objects, image/height, image/width)",
                feature=keys.MASK,
            )
        return values.reshape(count, height, width)

    def keypoints(self, count: int) -> Keypoints | None:
        if keys.KEYPOINT_X not in self.other_keys:
            return None
        example = self.example
        x, y = example.floats(keys.KEYPOINT_X), example.floats(keys.KEYPOINT_Y)
        if not len(x) and not len(y):
            return None
        if len(x) != len(y) or not count or len(x) % count:
            raise example.error(
                f"{len(x)} x and {len(y)} y for {count} objects",
                feature="image/object/keypoint",
                remedy="write the same number of points for each object",
            )
        visibility = np.array(example.ints(keys.KEYPOINT_VISIBILITY), np.int64)
        if len(visibility) != len(x):
            # The OD API's decoder does the same: points that are numbers are visible.
            visibility = np.where(np.isfinite(x) & np.isfinite(y), 2, 0)
        names = [self._decode(v, keys.KEYPOINT_TEXT) for v in self._keypoint_texts()]
        points = len(x) // count
        return Keypoints(
            xy=np.stack((x, y), axis=-1).reshape(count, points, 2),
            visibility=visibility.reshape(count, points),
            names=tuple(names[:points]) if len(names) in (points, points * count) else (),
        )

    def _keypoint_texts(self) -> list[bytes]:
        return self.example.byte_strings(keys.KEYPOINT_TEXT)

    def attributes(self, count: int) -> dict[str, list[AttributeValue]]:
        found: dict[str, list[AttributeValue]] = {}
        for key in self.other_keys:
            attribute = _ATTRIBUTE_OF_KEY.get(key)
            generic = key.startswith(keys.ATTRIBUTE_PREFIX)
            if attribute is None and not generic:
                continue
            values = self._values(key)
            if not values:
                continue
            if len(values) != count:
                self.oddities.append(f"{key} is not one value an object, not read")
                continue
            name = attribute.name if attribute else key[len(keys.ATTRIBUTE_PREFIX) :]
            found[name] = values
        return found

    def _values(self, key: str) -> list[AttributeValue]:
        kind = self.example.kind(key)
        if kind is Kind.INT64:
            return list(self.example.ints(key))
        if kind is Kind.FLOAT:
            return list(self.example.floats(key).tolist())
        return [self._decode(value, key) for value in self.example.byte_strings(key)]

    def extra(self, attributes: dict[str, list[AttributeValue]], count: int) -> dict[str, Any]:
        """Correct the attributes by what we wrote beside them; return those of the picture."""
        if keys.EXTRA_ATTRIBUTES not in self.other_keys:
            return {}
        try:
            extra = json.loads(self.text(keys.EXTRA_ATTRIBUTES) or "{}")
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
        except (ValueError, AttributeError, TypeError, LookupError, RecursionError) as error:
            raise self.example.error(
                f"cannot be understood ({type(error).__name__}: {error})",
                feature=keys.EXTRA_ATTRIBUTES,
                remedy="export the shard again",
            ) from None

    def image_labels(self) -> list[ImageLabel]:
        if not any(key in self.other_keys for key in _IMAGE_CLASS_KEYS):
            return []
        example = self.example
        labels: Sequence[int | None] = example.ints(keys.IMAGE_CLASS_LABEL)
        confidences: Sequence[float | None] = example.floats(keys.IMAGE_CLASS_CONFIDENCE).tolist()
        texts: Sequence[str | None] = [
            self._decode(value, keys.IMAGE_CLASS_TEXT)
            for value in example.byte_strings(keys.IMAGE_CLASS_TEXT)
        ]
        count = len(texts) or len(labels)
        if len(labels) not in (0, count) or len(confidences) not in (0, count):
            raise example.error(
                f"{len(texts)} text, {len(labels)} label, {len(confidences)} confidence",
                feature="image/class",
                remedy="write the record again with lists of one length",
            )
        nothing = [None] * count
        return [
            ImageLabel(*label)
            for label in zip(
                texts or nothing, labels or nothing, confidences or nothing, strict=True
            )
        ]

    def captions(self) -> list[str]:
        if keys.CAPTION not in self.other_keys:
            return []
        if self.example.kind(keys.CAPTION) not in (Kind.BYTES, None):
            self.oddities.append(f"{keys.CAPTION} is no list of texts, not read")
            return []
        return [
            self._decode(value, keys.CAPTION) for value in self.example.byte_strings(keys.CAPTION)
        ]

    def unread_keys(self) -> list[str]:
        return [
            key
            for key in self.other_keys
            if key not in keys.KNOWN_KEYS and not key.startswith(keys.ATTRIBUTE_PREFIX)
        ]


_IMAGE_CLASS_KEYS = (
    keys.IMAGE_CLASS_TEXT,
    keys.IMAGE_CLASS_LABEL,
    keys.IMAGE_CLASS_CONFIDENCE,
)
# Keys that nearly every record has; whatever else it has is looked at one by one.
_PLAIN_KEYS = frozenset(
    key.encode()
    for key in (
        keys.FILENAME,
        keys.SOURCE_ID,
        keys.FORMAT,
        keys.SHA256,
        keys.HEIGHT,
        keys.WIDTH,
        keys.ENCODED,
        *keys.BOX,
        keys.CLASS_TEXT,
        keys.CLASS_LABEL,
    )
)
