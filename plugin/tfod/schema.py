"""Feature descriptions: which features a record is expected to have, of which kind and shape.

What ``tf.io.parse_example`` calls a feature description, as data of ours, and the named profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfod import keys
from tfod.wire import Kind

Value = bytes | int | float
_DTYPE_NAMES = {Kind.BYTES: "tf.string", Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32"}


@dataclass(frozen=True)
class FeatureSpec:
    """What one feature is expected to be.

    Attributes:
        kind: its list.
        shape: the fixed shape (``()`` is exactly one value); None for any number of values.
        default: value of a missing fixed feature; None makes it required.
    """

    kind: Kind
    shape: tuple[int, ...] | None = None
    default: Value | None = None

    @property
    def required(self) -> bool:
        """Whether a record without it cannot be parsed."""
        return self.shape is not None and self.default is None

    def to_source(self) -> str:
        """The ``tf.io`` object as Python source."""
        dtype = _DTYPE_NAMES[self.kind]
        if self.shape is None:
            return f"tf.io.VarLenFeature({dtype})"
        shape = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        default = f", default_value={self.default!r}" if self.default is not None else ""
        return f"tf.io.FixedLenFeature(({shape}), {dtype}{default})"


FeatureDescription = Mapping[str, FeatureSpec]
"""Key of each feature to what it is expected to be."""


def to_source(description: FeatureDescription) -> str:
    """A feature description as Python source, ready to paste beside ``import tensorflow as tf``."""
    lines = [f"    {key!r}: {spec.to_source()},\n" for key, spec in description.items()]
    return "feature_description = {\n" + "".join(lines) + "}\n"


def _one(kind: Kind, default: Value | None = None) -> FeatureSpec:
    return FeatureSpec(kind, (), default)


_OBJECTS: FeatureDescription = {
    **{key: FeatureSpec(Kind.FLOAT) for key in keys.BOX},
    keys.CLASS_TEXT: FeatureSpec(Kind.BYTES),
    keys.CLASS_LABEL: FeatureSpec(Kind.INT64),
}

CVAT: FeatureDescription = {
    keys.FILENAME: _one(Kind.BYTES),
    keys.SOURCE_ID: _one(Kind.BYTES),
    keys.HEIGHT: _one(Kind.INT64),
    keys.WIDTH: _one(Kind.INT64),
    **_OBJECTS,
}
"""The ten features that CVAT documented for "TFRecord 1.0"."""

TF_DETECTION_API: FeatureDescription = {
    keys.ENCODED: _one(Kind.BYTES),
    keys.FORMAT: _one(Kind.BYTES),
    keys.FILENAME: _one(Kind.BYTES, b""),
    keys.SHA256: _one(Kind.BYTES, b""),
    keys.SOURCE_ID: _one(Kind.BYTES, b""),
    keys.HEIGHT: _one(Kind.INT64, 1),
    keys.WIDTH: _one(Kind.INT64, 1),
    **_OBJECTS,
    **{
        attribute.key: FeatureSpec(attribute.kinds[0])
        for attribute in keys.OBJECT_ATTRIBUTES
        if attribute.name
        in ("difficult", "truncated", "occluded", "is_crowd", "group_of", "area", "weight", "view")
    },
    keys.MASK: FeatureSpec(Kind.BYTES),
}
"""Ready to train: what the OD API's decoder reads, with its defaults, picture required."""

PROFILES: Mapping[str, FeatureDescription] = {
    "cvat": CVAT,
    "tf_detection_api": TF_DETECTION_API,
}
"""The feature descriptions that have a name."""
