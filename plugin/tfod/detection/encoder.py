"""Encoding of a Detection, or an image with one label, as a serialized Example.

Source of the profile image_classification: tensorflow.org/tutorials/load_data/tfrecord
(``image_example``). The profile image_label is a common layout of scripts.
"""

from __future__ import annotations

import enum
import functools
import operator
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.detection.attributes import (
    Corrections,
    encode_attribute,
    is_attribute_value,
    parse_shape_details,
)
from tfod.detection.box_geometry import find_far_boxes, find_pixel_boxes
from tfod.detection.detection import Detection, Keypoints, PngMask, ShapeDetails
from tfod.detection.features.schema import PROFILES
from tfod.detection.images.image import image_size, read_image_header
from tfod.errors import TfodError, excerpt
from tfod.example.example import (
    bytes_feature,
    encode_example,
    float_feature,
    float_features,
    int64_feature,
    one_bytes_feature,
    text_feature,
)


class _FieldError(ValueError):
    """An invalid value of a field; the message is a sentence without its subject."""


def encode_detection(detection: Detection) -> bytes:
    """Encode a Detection as a serialized ``tf.train.Example``, with keys in a fixed order.

    Fields may be lists, tuples or arrays; None writes no key. ``boxes``, ``class_text`` and
    ``class_label`` write their keys even if they are empty.

    Raises:
        TfodError: a field is invalid; the message names the image and the field.
    """
    features: dict[str, bytes] = {}
    name = "boxes"
    try:
        boxes = _check_boxes(detection.boxes)
        values = {**vars(detection), "boxes": boxes}
        for name, encode in _FIELDS.items():
            value = values[name]
            if value is not None and (name not in _OPTIONAL_FIELDS or len(value)):
                features |= encode(value, detection, len(boxes))
        name, attributes = "attributes", detection.attributes
        if attributes or detection.image_extra or detection.shape_details or detection.image_labels:
            _encode_attributes(detection, features, len(boxes))
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        image = f"image {excerpt(detection.filename)}: " if detection.filename else ""
        raise TfodError(f"{image}{name} {_describe(error)}") from error
    return encode_example(features)


def _encode_attributes(detection: Detection, features: dict[str, bytes], count: int) -> None:
    lists = {name: _to_list(values, count) for name, values in detection.attributes.items()}
    corrections = Corrections.of(detection)
    for attribute in lists:
        encode_attribute(attribute, lists, features, corrections)
    _require_json(corrections.objects)
    if corrections:
        features[keys.EXTRA_ATTRIBUTES] = one_bytes_feature(corrections.to_json())


def _describe(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        # The text contains a lone surrogate, for example from a file name that is not UTF-8.
        part = ascii(error.object[max(0, error.start - 12) : error.end + 12])
        return f"{part} is not Unicode text; rename it"
    return str(error) if isinstance(error, _FieldError) else f"cannot be written ({error})"


def _check_boxes(values: Any) -> np.ndarray:
    boxes = _to_float32(values)
    if boxes.shape == (0,):
        boxes = boxes.reshape(0, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise _FieldError(f"have the shape {boxes.shape}, expected (n, 4)")
    if len(boxes) and not (boxes.min() >= 0 and boxes.max() <= 1):
        for corners in boxes[find_pixel_boxes(boxes)].tolist():
            numbers = ", ".join(map("{:g}".format, corners))
            raise _FieldError(f"are in pixels ({numbers}); {_DIVIDE_HINT}")
    return boxes


_DIVIDE_HINT = "divide x by the image width and y by the image height"


def _to_float32(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        return values
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "fiu":
        raise _FieldError(f"have the type {array.dtype}, expected numbers")
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


_PLAIN_TYPES = frozenset((int, float, str, bool, type(None)))


def _to_list(values: Any, count: int | None = None) -> list[Any]:
    """Return the values of a list; if there is a count, the list needs one value per object."""
    if isinstance(values, (str, bytes, Mapping, set)):
        raise _FieldError(f"is {reprlib.repr(values)}, expected a list")
    if type(values) is list and _PLAIN_TYPES.issuperset(map(type, values)):
        items = values  # the usual case, which needs no copy
    else:
        items = [x.item() if isinstance(x, np.generic) else x for x in values]
    if count is not None and len(items) != count:
        raise _FieldError(f"has {len(items)} values for {count} boxes")
    return items


def _encode_integers(values: Any, count: int | None = None) -> bytes:
    items = _to_list(values, count)
    is_plain = {*map(type, items)} <= {int}
    return int64_feature(items if is_plain else [operator.index(value) for value in items])


def _encode_texts(values: Any, count: int | None = None) -> bytes:
    items = _to_list(values, count)
    if not {*map(type, items)} <= {str} and not all(isinstance(x, str) for x in items):
        raise _FieldError(f"contains {reprlib.repr(items)}, expected texts")
    return text_feature(items)


def _require(value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise _FieldError(f"contains {reprlib.repr(value)}, expected {kind.__name__}")


def _require_json(value: Any) -> None:
    if not is_attribute_value(value):
        raise _FieldError(f"contains {reprlib.repr(value)}, which JSON cannot express")


def _encode_file(data: Any) -> bytes:
    view = memoryview(data)
    if view.ndim != 1 or view.itemsize != 1:
        raise _FieldError("contains pixels, expected the bytes of an image file")
    return one_bytes_feature(bytes(view))


def _encode_side(key: str, side: Any, *_: object) -> dict[str, bytes]:
    if side < 0:
        raise _FieldError(f"is {side}, expected pixels")
    return {key: _encode_side_feature(operator.index(side))}


@functools.lru_cache(1024)
def _encode_side_feature(side: int) -> bytes:
    """Encode a height or width; the same values recur."""
    return int64_feature([side])


def _encode_text(key: str, text: Any, *_: object) -> dict[str, bytes]:
    _require(text, str)
    return {key: one_bytes_feature(text.encode())}


def _encode_image_labels(labels: Any, *_: object) -> dict[str, bytes]:
    features = {}
    texts, ids, confidences = (
        [getattr(label, name) for label in labels] for name in ("text", "label", "confidence")
    )
    _require_json([dict(label.attributes) for label in labels])
    columns = [column for column in (texts, ids) if any(value is not None for value in column)]
    if not columns or any(None in column for column in columns):
        raise _FieldError("need a text for each label, or an id for each label")
    if texts in columns:
        features[keys.IMAGE_CLASS_TEXT] = _encode_texts(texts)
    if ids in columns:
        features[keys.IMAGE_CLASS_LABEL] = _encode_integers(ids)
    if any(confidence is not None for confidence in confidences):
        filled = [1.0 if confidence is None else confidence for confidence in confidences]
        features[keys.IMAGE_CLASS_CONFIDENCE] = float_feature(_to_float32(filled))
    return features


def _encode_boxes(boxes: np.ndarray, *_: object) -> dict[str, bytes]:
    if not len(boxes):
        return dict.fromkeys(keys.BOX, float_feature(()))
    return dict(zip(keys.BOX, float_features(boxes.T), strict=True))


def _encode_masks(masks: Any, _: Detection, count: int) -> dict[str, bytes]:
    values = []
    for mask in _to_list(masks, count):
        if mask is not None:
            _require(mask, PngMask)
        values.append(bytes(memoryview(mask.data)) if mask else b"")
    return {keys.MASK: bytes_feature(values)} if values else {}


def _encode_numerical_masks(masks: Any, detection: Detection, count: int) -> dict[str, bytes]:
    numbers, size = _to_float32(masks), (detection.height, detection.width)
    if not all(size):
        size = image_size(bytes(detection.encoded or b"")) or size
    if detection.masks is not None or numbers.shape != (count, *size):
        raise _FieldError(
            f"have the shape {numbers.shape}, expected {(count, *size)} and no other masks"
        )
    return {keys.MASK: float_feature(numbers.reshape(-1))} if numbers.size else {}


def _encode_keypoints(keypoints: Keypoints, _: Detection, count: int) -> dict[str, bytes]:
    _require(keypoints, Keypoints)
    xy, visibility = _to_float32(keypoints.xy), np.asarray(keypoints.visibility)
    names, shape = keypoints.names, visibility.shape
    if xy.shape != (*shape, 2) or shape[:1] != (count,) or len(names) not in (0, shape[-1]):
        raise _FieldError(
            f"have the shapes {xy.shape} and {shape} and {len(names)} names, expected "
            f"({count}, points, 2), ({count}, points) and one name per point or none"
        )
    if 2 * find_far_boxes(xy.reshape(-1, 2)).sum() > xy.any(axis=2).sum():
        raise _FieldError(f"are in pixels; {_DIVIDE_HINT}")
    if not xy.size:
        return {}
    features = {
        keys.KEYPOINT_X: float_feature(xy[:, :, 0].reshape(-1)),
        keys.KEYPOINT_Y: float_feature(xy[:, :, 1].reshape(-1)),
        keys.KEYPOINT_VISIBILITY: _encode_integers(visibility.reshape(-1)),
        keys.KEYPOINT_NUM: int64_feature((visibility > 0).sum(axis=1).tolist()),
    }
    return features | ({keys.KEYPOINT_TEXT: _encode_texts([*names] * count)} if names else {})


def _check_shapes(drawn: Mapping[int, ShapeDetails], _: Detection, count: int) -> dict[str, bytes]:
    for number, shape in drawn.items():
        if number not in range(count):
            raise _FieldError(f"has object {number}, but there are {count} boxes")
        parse_shape_details(vars(shape))
    return {}


def _check_image_extra(extra: Mapping[str, Any], *_: object) -> dict[str, bytes]:
    _require_json(dict(extra))
    return {}


_FIELDS: Mapping[str, Callable[[Any, Detection, int], dict[str, bytes]]] = {
    "height": functools.partial(_encode_side, keys.HEIGHT),
    "width": functools.partial(_encode_side, keys.WIDTH),
    "filename": functools.partial(_encode_text, keys.FILENAME),
    "source_id": functools.partial(_encode_text, keys.SOURCE_ID),
    "sha256": functools.partial(_encode_text, keys.SHA256),
    "format": functools.partial(_encode_text, keys.FORMAT),
    "encoded": lambda data, *_: {keys.ENCODED: _encode_file(data)},
    "image_labels": _encode_image_labels,
    "captions": lambda texts, *_: {keys.CAPTION: _encode_texts(texts)},
    "image_masks": lambda masks, *_: {
        keys.IMAGE_MASKS[name]: _encode_file(mask.data) for name, mask in masks.items()
    },
    "image_attributes": lambda attributes, *_: {
        keys.IMAGE_ATTRIBUTES[name]: _encode_integers(ids) for name, ids in attributes.items()
    },
    "boxes": _encode_boxes,
    "class_text": lambda texts, _, count: {keys.CLASS_TEXT: _encode_texts(texts, count)},
    "class_label": lambda labels, _, count: {keys.CLASS_LABEL: _encode_integers(labels, count)},
    "masks": _encode_masks,
    "numerical_masks": _encode_numerical_masks,
    "keypoints": _encode_keypoints,
    "shape_details": _check_shapes,
    "image_extra": _check_image_extra,
}
"""Encoders of fields in the order of the keys, called with value, Detection and number of boxes.

Attributes come last, together with their corrections."""
_OPTIONAL_FIELDS = frozenset(
    ("image_labels", "captions", "image_masks", "image_attributes", "shape_details", "image_extra")
)


class LabelProfile(str, enum.Enum):
    """A profile for images with one label; the values are names of profiles."""

    IMAGE_CLASSIFICATION = "image_classification"
    IMAGE_LABEL = "image_label"


def encode_labelled_image(
    profile: LabelProfile, encoded: bytes, filename: str, size: tuple[int, int], label: int
) -> bytes:
    """Encode an image and its label as a serialized Example, with keys in the order of the profile.

    ``size`` is height and width in pixels. Labels count from 0; -1 means unlabelled. ``filename``
    belongs to neither profile, but keeps the image's name; TensorFlow skips unrequested features.
    """
    header = read_image_header(encoded, 0, len(encoded))
    # Without a readable header, assume colour, like TensorFlow.
    channels = int64_feature([header.channels if header else 3])
    features = {
        "height": int64_feature([size[0]]),
        "width": int64_feature([size[1]]),
        **dict.fromkeys(("channels", "depth"), channels),
        "label": int64_feature([label]),
        **dict.fromkeys(("image", "image_raw"), one_bytes_feature(encoded)),
        "filename": one_bytes_feature(filename.encode()),
    }
    return encode_example({key: features[key] for key in (*PROFILES[profile.value], "filename")})


@dataclass(frozen=True)
class KerasAnnotation:
    """An annotation of the Keras recipe; box is x, y, width, height in pixels."""

    id: int
    category_id: int
    box: tuple[float, float, float, float]
    area: float

    @classmethod
    def of(
        cls, number: int, category: int, corners: Sequence[float], area: float | None = None
    ) -> KerasAnnotation:
        """Create an annotation from corners in pixels, rounded like in Datumaro."""
        left, top, right, bottom = corners
        x, y, width, height = (round(value, 2) for value in (left, top, right - left, bottom - top))
        area = width * height if area is None else area
        return cls(number, category, (x, y, width, height), area)


def encode_keras_annotations(
    encoded: bytes, path: str, image_id: int, annotations: Iterable[KerasAnnotation]
) -> Iterator[bytes]:
    """Yield an Example per annotation, in the recipe's order; OverflowError above 64 bits."""
    image = one_bytes_feature(encoded)
    for annotation in annotations:
        yield encode_example(
            {
                "image": image,
                "path": one_bytes_feature(path.encode()),
                "area": float_feature([annotation.area]),
                "bbox": float_feature(annotation.box),
                "category_id": int64_feature([annotation.category_id]),
                "id": int64_feature([annotation.id]),
                "image_id": int64_feature([image_id]),
            }
        )
