"""Records without boxes of the OD API: a picture and its label, Keras' recipe, or anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfod.detection.schema import KERAS_COCO, FeatureDescription, FeatureSpec
from tfod.example.wire import Kind
from tfod.training.tensorflow.description import DTYPES
from tfod.training.tensorflow.pictures import (
    Size,
    decode_picture,
    decode_raw_or_encoded,
    resize_picture,
)

_PICTURES = ("image_raw", "image_bytes", "image")
_LABELS = ("label", "class")
_SIDES = ("height", "width")


def record_decoder(
    description: FeatureDescription, decode: bool, size: Size | None
) -> Callable[[Any], Any]:
    """What decodes one serialized record of a feature description.

    A picture with a label becomes a pair of these, as Keras' own loaders of pictures yield them;
    anything else a dict of its features, the picture decoded.
    """
    picture = _first_of(description, _PICTURES, Kind.BYTES)
    label = _first_of(description, _LABELS, Kind.INT64)
    is_pair = picture is not None and label is not None
    wanted = {picture, label, *_SIDES} if is_pair else description.keys()
    features = {key: _dense(spec) for key, spec in description.items() if key in wanted}
    is_recipe = description.keys() >= KERAS_COCO.keys()

    def decode_record(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, features)
        if is_recipe:
            parsed["bbox"] = tf.ensure_shape(parsed["bbox"], (4,))
        if picture is not None and decode:
            parsed[picture] = resize_picture(_decode(parsed, picture), size)
        return (parsed[picture], parsed[label]) if is_pair else parsed

    return decode_record


def _first_of(description: FeatureDescription, names: tuple[str, ...], kind: Kind) -> str | None:
    singles = {key for key, spec in description.items() if spec.kind is kind and spec.shape == ()}
    return next((name for name in names if name in singles), None)


def _dense(spec: FeatureSpec) -> Any:
    if spec.shape is None:
        return tf.io.RaggedFeature(DTYPES[spec.kind])
    return tf.io.FixedLenFeature(spec.shape, DTYPES[spec.kind], spec.default)


def _decode(parsed: Mapping[str, Any], picture: str) -> Any:
    if parsed.keys() >= set(_SIDES):
        return decode_raw_or_encoded(parsed[picture], *(parsed[side] for side in _SIDES))
    return decode_picture(parsed[picture])
