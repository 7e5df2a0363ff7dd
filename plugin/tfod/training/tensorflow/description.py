"""Feature descriptions as ``tf.io`` objects, and what decodes records that have no boxes: an image
and its label, Keras' recipe, or anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tensorflow as tf

from tfod.detection.features.schema import KERAS_COCO, PROFILES, FeatureDescription, FeatureSpec
from tfod.errors import TfodError
from tfod.example.wire import Kind
from tfod.training.tensorflow.images import (
    Size,
    decode_image,
    decode_raw_or_encoded,
    resize_image,
)

DTYPES = {Kind.BYTES: tf.string, Kind.INT64: tf.int64, Kind.FLOAT: tf.float32}


class HasFeatures(Protocol):
    """A profile, such as ``tfod.check.profiles.file.load_profile`` reads from a file."""

    @property
    def features(self) -> FeatureDescription:
        """What its records are expected to hold."""


ProfileLike = str | FeatureDescription | HasFeatures
"""The name of a profile, a feature description, or a profile that was read from a file."""


def feature_description(profile: ProfileLike = "tf_detection_api") -> dict[str, Any]:
    """The description as ``tf.io`` objects, for ``tf.io.parse_example``.

    Args:
        profile: the name of a profile, a description, or what a profile file was read to.

    Raises:
        TfodError: there is no profile of that name.
    """
    return {
        key: tf.io.VarLenFeature(DTYPES[spec.kind])
        if spec.shape is None
        else tf.io.FixedLenFeature(spec.shape, DTYPES[spec.kind], spec.default)
        for key, spec in features_of(profile).items()
    }


def features_of(profile: ProfileLike) -> FeatureDescription:
    """The feature description that is meant.

    Raises:
        TfodError: there is no profile of that name.
    """
    if isinstance(profile, str):
        if profile not in PROFILES:
            raise TfodError(f"{profile}: no such profile; there are {', '.join(PROFILES)}")
        return PROFILES[profile]
    return profile if isinstance(profile, Mapping) else profile.features


_IMAGES = ("image_raw", "image_bytes", "image")
_LABELS = ("label", "class")
_SIDES = ("height", "width")


def record_decoder(
    description: FeatureDescription, decode: bool, size: Size | None
) -> Callable[[Any], Any]:
    """What decodes one serialized record of a feature description.

    An image with a label becomes a pair of these, as Keras' own loaders of images yield them;
    anything else a dict of its features, the image decoded.
    """
    image = _first_of(description, _IMAGES, Kind.BYTES)
    label = _first_of(description, _LABELS, Kind.INT64)
    is_pair = image is not None and label is not None
    wanted = {image, label, *_SIDES} if is_pair else description.keys()
    features = {key: _dense(spec) for key, spec in description.items() if key in wanted}
    is_recipe = description.keys() >= KERAS_COCO.keys()

    def decode_record(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, features)
        if is_recipe:
            parsed["bbox"] = tf.ensure_shape(parsed["bbox"], (4,))
        if image is not None and decode:
            parsed[image] = resize_image(_decode(parsed, image), size)
        return (parsed[image], parsed[label]) if is_pair else parsed

    return decode_record


def _first_of(description: FeatureDescription, names: tuple[str, ...], kind: Kind) -> str | None:
    singles = {key for key, spec in description.items() if spec.kind is kind and spec.shape == ()}
    return next((name for name in names if name in singles), None)


def _dense(spec: FeatureSpec) -> Any:
    if spec.shape is None:
        return tf.io.RaggedFeature(DTYPES[spec.kind])
    return tf.io.FixedLenFeature(spec.shape, DTYPES[spec.kind], spec.default)


def _decode(parsed: Mapping[str, Any], image: str) -> Any:
    if parsed.keys() >= set(_SIDES):
        return decode_raw_or_encoded(parsed[image], *(parsed[side] for side in _SIDES))
    return decode_image(parsed[image])
