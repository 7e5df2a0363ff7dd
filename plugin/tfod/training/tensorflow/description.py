"""Feature descriptions as ``tf.io`` objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf

from tfod.detection.schema import PROFILES, FeatureDescription
from tfod.errors import TfodError
from tfod.example.wire import Kind

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
