"""A Detection: what one record says about one picture, typed. From an Example and back.

Boxes are normalized to the picture's size: ``xmin, ymin, xmax, ymax`` in 0..1, x to the right and
y down, half-open (an object that fills the picture is 0, 0, 1, 1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tfod import keys
from tfod.example import (
    Example,
    Kind,
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
)
from tfod.picture import picture_size

AttributeValue: TypeAlias = "int | float | str | list[Any] | dict[str, Any] | None"
"""What an object's attribute holds: JSON; None where this object has none of that name."""

_NO_BOXES = np.zeros((0, 4), "<f4")
_ATTRIBUTE_OF_KEY = {attribute.key: attribute for attribute in keys.OBJECT_ATTRIBUTES}
_ATTRIBUTE_OF_NAME = {attribute.name: attribute for attribute in keys.OBJECT_ATTRIBUTES}


@dataclass(frozen=True)
class Keypoints:
    """The keypoints of a picture's objects.

    Attributes:
        xy: normalized coordinates, x before y, float32 of shape (objects, points, 2).
        visibility: 0 not labelled, 1 hidden, 2 visible; int64 of shape (objects, points).
        names: names of the points where the record has them, else empty.
    """

    xy: np.ndarray
    visibility: np.ndarray
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PngMask:
    """An object's mask: a one-channel PNG of the picture's size, above 0 where the object is.

    ``offset`` is the byte of the uncompressed shard at which ``data`` starts; -1 when it has
    not come from a shard.
    """

    data: memoryview | bytes
    offset: int = -1


@dataclass(frozen=True)
class ImageLabel:
    """A class of the whole picture; confidence 1 is present, 0 is verified to be absent."""

    text: str | None
    label: int | None
    confidence: float | None = None


@dataclass(frozen=True)
class Detection:
    """One picture with its objects. None is a key that the record does not have.

    Attributes:
        filename, source_id, format, sha256: texts as the record has them.
        height, width: pixels, of the picture as it is encoded.
        encoded: the picture file's bytes, a view into the record's buffer when read.
        encoded_offset: byte of the uncompressed shard at which they start; -1 otherwise.
        boxes: float32 of shape (n, 4), normalized ``xmin, ymin, xmax, ymax``.
        class_text, class_label: n names and ids.
        masks: n masks, None for an object without one.
        numerical_masks: the other way to write masks: float32 of shape (n, height, width).
        keypoints: see :class:`Keypoints`.
        attributes: name to n values, for example ``{"difficult": [0, 1]}``.
        image_labels: classes of the whole picture.
        image_attributes: name to a list of class ids of the whole picture.
        image_extra: name to value, of whatever else belongs to the whole picture.
        unread_keys: features that mean nothing to tfod.
        oddities: what was read with a liberty, as short sentences without place.
    """

    filename: str | None = None
    source_id: str | None = None
    format: str | None = None
    sha256: str | None = None
    height: int | None = None
    width: int | None = None
    encoded: memoryview | bytes | None = None
    encoded_offset: int = -1
    boxes: np.ndarray = field(default_factory=lambda: _NO_BOXES)
    class_text: Sequence[str] | None = None
    class_label: Sequence[int] | None = None
    masks: Sequence[PngMask | None] | None = None
    numerical_masks: np.ndarray | None = None
    keypoints: Keypoints | None = None
    attributes: Mapping[str, Sequence[AttributeValue]] = field(default_factory=dict)
    image_labels: Sequence[ImageLabel] = ()
    image_attributes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    image_extra: Mapping[str, Any] = field(default_factory=dict)
    unread_keys: Sequence[str] = ()
    oddities: Sequence[str] = ()


def decode_detection(example: Example) -> Detection:
    """Read an Example as a Detection. Copies no pictures and no masks.

    Raises:
        RecordError: a feature has the wrong kind or lists of one object differ in length.
    """
    reader = _Reader(example)
    boxes = reader.boxes()
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

    def per_object(self, key: str, values: list, count: int) -> list | None:  # type: ignore[type-arg]
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
            for number, values in extra.get("objects", {}).items():
                for name, value in values.items():
                    attributes.setdefault(name, [None] * count)[int(number)] = value
            for number, names in extra.get("absent", {}).items():
                for name in names:
                    attributes[name][int(number)] = None
            return dict(extra.get("image", {}))
        except (ValueError, AttributeError, TypeError, LookupError) as error:
            raise self.example.error(
                f"cannot be understood ({error})", feature=keys.EXTRA_ATTRIBUTES
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


def encode_detection(detection: Detection) -> bytes:
    """Write a Detection as a serialized ``tf.train.Example``, keys in a fixed order.

    A field that is None or empty writes no key, but ``encoded``, ``format``, ``source_id`` and the
    like may be an empty text, which writes the key with an empty value.

    Raises:
        TypeError: an attribute's value is not JSON (see :func:`is_attribute_value`).
    """
    features: dict[str, bytes] = {}
    for key, size in ((keys.HEIGHT, detection.height), (keys.WIDTH, detection.width)):
        if size is not None:
            features[key] = int64_feature([size])
    for key, text in (
        (keys.FILENAME, detection.filename),
        (keys.SOURCE_ID, detection.source_id),
        (keys.SHA256, detection.sha256),
        (keys.FORMAT, detection.format),
    ):
        if text is not None:
            features[key] = bytes_feature([text.encode()])
    if detection.encoded is not None:
        features[keys.ENCODED] = bytes_feature([bytes(detection.encoded)])
    _encode_image_labels(detection, features)
    for name, ids in detection.image_attributes.items():
        features[keys.IMAGE_ATTRIBUTES[name]] = int64_feature(ids)
    corrections = _Corrections(dict(detection.image_extra))
    if len(detection.boxes):
        _encode_objects(detection, features)
        for name, values in detection.attributes.items():
            _encode_attribute(name, values, features, corrections)
    if corrections:
        features[keys.EXTRA_ATTRIBUTES] = bytes_feature([corrections.to_json()])
    return encode_example(features)


def _encode_image_labels(detection: Detection, features: dict[str, bytes]) -> None:
    labels = detection.image_labels
    if not labels:
        return
    if all(label.text is not None for label in labels):
        features[keys.IMAGE_CLASS_TEXT] = bytes_feature((x.text or "").encode() for x in labels)
    if all(label.label is not None for label in labels):
        features[keys.IMAGE_CLASS_LABEL] = int64_feature(x.label or 0 for x in labels)
    if any(label.confidence is not None for label in labels):
        features[keys.IMAGE_CLASS_CONFIDENCE] = float_feature(
            [1.0 if x.confidence is None else x.confidence for x in labels]
        )


def _encode_objects(detection: Detection, features: dict[str, bytes]) -> None:
    for side, key in enumerate(keys.BOX):
        features[key] = float_feature(detection.boxes[:, side])
    if detection.class_text is not None:
        features[keys.CLASS_TEXT] = bytes_feature(text.encode() for text in detection.class_text)
    if detection.class_label is not None:
        features[keys.CLASS_LABEL] = int64_feature(detection.class_label)
    if detection.masks is not None:
        features[keys.MASK] = bytes_feature(
            b"" if mask is None else bytes(mask.data) for mask in detection.masks
        )
    elif detection.numerical_masks is not None:
        features[keys.MASK] = float_feature(detection.numerical_masks.reshape(-1))
    if detection.keypoints is not None:
        _encode_keypoints(detection.keypoints, features)


def _encode_keypoints(keypoints: Keypoints, features: dict[str, bytes]) -> None:
    visibility = keypoints.visibility
    features[keys.KEYPOINT_X] = float_feature(keypoints.xy[:, :, 0].reshape(-1))
    features[keys.KEYPOINT_Y] = float_feature(keypoints.xy[:, :, 1].reshape(-1))
    features[keys.KEYPOINT_VISIBILITY] = int64_feature(visibility.reshape(-1).tolist())
    features[keys.KEYPOINT_NUM] = int64_feature((visibility > 0).sum(axis=1).tolist())
    if keypoints.names:
        names = [name.encode() for name in keypoints.names] * len(visibility)
        features[keys.KEYPOINT_TEXT] = bytes_feature(names)


def is_attribute_value(value: Any) -> bool:
    """Whether a value can be an attribute: anything that JSON can say."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


@dataclass
class _Corrections:
    """What has to be said beside the native keys, because they cannot say it exactly."""

    image: dict[str, Any]
    objects: dict[int, dict[str, Any]] = field(default_factory=dict)
    absent: dict[int, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.image or self.objects or self.absent)

    def to_json(self) -> bytes:
        parts = {name: part for name, part in vars(self).items() if part}
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()


def _encode_attribute(
    name: str,
    values: Sequence[AttributeValue],
    features: dict[str, bytes],
    corrections: _Corrections,
) -> None:
    """Write one attribute of all objects natively as far as that goes, and correct the rest.

    It goes under the OD API's own key when it has one and the values fit it, else under
    ``image/object/attribute/<name>``.
    """
    kind = _kind_of(values)
    if kind is None:
        for number, value in enumerate(values):
            if value is not None:
                corrections.objects.setdefault(number, {})[name] = value
        return
    known = _ATTRIBUTE_OF_NAME.get(name)
    if known is not None and kind is Kind.INT64 and kind not in known.kinds:
        kind = Kind.FLOAT if Kind.FLOAT in known.kinds else kind
    if known is not None and kind not in known.kinds:
        known = None
    default = known.default if known else _NOTHING[kind]
    filled = [default if value is None else value for value in values]
    key = known.key if known else keys.ATTRIBUTE_PREFIX + name
    features[key] = _encode_values(kind, filled)
    for number, value in enumerate(values):
        if value is None:
            corrections.absent.setdefault(number, []).append(name)
        elif known is None and type(value) is not _TYPE_OF_KIND[kind]:
            corrections.objects.setdefault(number, {})[name] = value


_TYPE_OF_KIND = {Kind.INT64: int, Kind.FLOAT: float, Kind.BYTES: str}
_NOTHING: dict[Kind, int | float | str] = {Kind.INT64: 0, Kind.FLOAT: 0.0, Kind.BYTES: ""}


def _kind_of(values: Sequence[AttributeValue]) -> Kind | None:
    """The list that holds these values; None when none does."""
    types = {type(value) for value in values if value is not None}
    if types <= {int, bool}:
        fits = all(-(1 << 63) <= value < 1 << 63 for value in values if isinstance(value, int))
        return Kind.INT64 if fits else None
    if types <= {int, bool, float}:
        return Kind.FLOAT
    return Kind.BYTES if types == {str} else None


def _encode_values(kind: Kind, values: Sequence[Any]) -> bytes:
    if kind is Kind.BYTES:
        return bytes_feature(value.encode() for value in values)
    if kind is Kind.FLOAT:
        return float_feature([float(value) for value in values])
    return int64_feature(int(value) for value in values)
