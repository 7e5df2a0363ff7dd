"""Feature descriptions, as for ``tf.io.parse_example``: expected features with kind and shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tfod.detection import keys
from tfod.example.wire import Kind

Value = bytes | int | float
_DTYPE_NAMES = {Kind.BYTES: "tf.string", Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32"}


@dataclass(frozen=True)
class FeatureSpec:
    """The expected kind and shape of a feature.

    Attributes:
        kind: kind of list.
        shape: fixed shape (``()`` is exactly one value); None for any number of values.
        default: value of a missing fixed feature, a tuple for several; None if required.
        meaning: description for users.
        is_mandatory: whether the feature is required even if TensorFlow parses records without it.
        other_kinds: further kinds of list that readers accept.
    """

    kind: Kind
    shape: tuple[int, ...] | None = None
    default: Value | tuple[Value, ...] | None = None
    meaning: str = ""
    is_mandatory: bool = False
    other_kinds: tuple[Kind, ...] = ()

    def accepts(self, kind: Kind) -> bool:
        """Return whether a list of this kind is accepted."""
        return kind is self.kind or kind in self.other_kinds

    @property
    def required(self) -> bool:
        """Whether a record is invalid without the feature."""
        return self.is_mandatory or (self.shape is not None and self.default is None)

    @property
    def length(self) -> int | None:
        """The number of values of a fixed feature; None for any number."""
        return None if self.shape is None else math.prod(self.shape)

    def to_source(self) -> str:
        """Return the ``tf.io`` object as Python source."""
        dtype = _DTYPE_NAMES[self.kind]
        if self.shape is None:
            return f"tf.io.VarLenFeature({dtype})"
        shape = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        default = f", default_value={self.default!r}" if self.default is not None else ""
        return f"tf.io.FixedLenFeature(({shape}), {dtype}{default})"


FeatureDescription = Mapping[str, FeatureSpec]
"""Specification of each feature by key."""


def to_source(description: FeatureDescription) -> str:
    """Return a description as Python source to paste after ``import tensorflow as tf``."""
    lines = [f"    {key!r}: {spec.to_source()},\n" for key, spec in description.items()]
    return "feature_description = {\n" + "".join(lines) + "}\n"


def _single(kind: Kind, meaning: str, default: Value | None = None) -> FeatureSpec:
    return FeatureSpec(kind, (), default, meaning)


def _variable(kind: Kind, meaning: str) -> FeatureSpec:
    return FeatureSpec(kind, None, None, meaning)


def _attributes(*names: str) -> FeatureDescription:
    return {
        attribute.key: _variable(attribute.kinds[0], f"{attribute.name} of each object")
        for attribute in keys.OBJECT_ATTRIBUTES
        if attribute.name in names
    }


_ENCODED = _single(Kind.BYTES, "the image file's bytes, JPEG or PNG")
_FORMAT = _single(Kind.BYTES, "jpeg or png")
_FILENAME = _single(Kind.BYTES, "the image's file name")
_HEIGHT = _WIDTH = _single(Kind.INT64, "pixels")
_OBJECTS: FeatureDescription = {
    **{
        key: _variable(Kind.FLOAT, f"{key.rpartition('/')[2]} of each box, divided by the size")
        for key in keys.BOX
    },
    keys.CLASS_TEXT: _variable(Kind.BYTES, "class of each box, by name"),
    keys.CLASS_LABEL: _variable(Kind.INT64, "class of each box, by id of the label map"),
}

CVAT: FeatureDescription = {
    keys.FILENAME: _FILENAME,
    keys.SOURCE_ID: _single(Kind.BYTES, "the image's id"),
    keys.HEIGHT: _HEIGHT,
    keys.WIDTH: _WIDTH,
    **_OBJECTS,
}
"""The ten features that CVAT documents for "TFRecord 1.0"."""

TF_DETECTION_API: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.FORMAT: _single(Kind.BYTES, _FORMAT.meaning, b"jpeg"),
    keys.FILENAME: _single(Kind.BYTES, _FILENAME.meaning, b""),
    keys.SHA256: _single(Kind.BYTES, "SHA-256 of image/encoded in lower-case hexadecimal", b""),
    keys.SOURCE_ID: _single(Kind.BYTES, "the image's id, unique in the dataset", b""),
    keys.HEIGHT: _single(Kind.INT64, "pixels", 1),
    keys.WIDTH: _single(Kind.INT64, "pixels", 1),
    **_OBJECTS,
    **_attributes("difficult", "is_crowd", "group_of", "area", "weight"),
}
"""Training data: the features that the OD API's decoder reads, with its defaults; image required.

Masks are omitted, since one key may hold PNGs or numbers. So are truncated, occluded and view:
writers disagree about their type (KITTI's truncated is a float), and the decoder ignores them.
"""

TF_VISION: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.SOURCE_ID: _single(Kind.BYTES, "the image's number, unique in the dataset"),
    keys.HEIGHT: _single(Kind.INT64, "pixels", -1),
    keys.WIDTH: _single(Kind.INT64, "pixels", -1),
    **{key: spec for key, spec in _OBJECTS.items() if key != keys.CLASS_TEXT},
    **_attributes("area", "is_crowd"),
    keys.MASK: _variable(Kind.BYTES, "mask of each object, a PNG of 0 and 1"),
}
"""The features that TF-Vision and MediaPipe Model Maker parse; -1 is the size of the decoded image.

Source: official/vision/dataloaders/tf_example_decoder.py, TfExampleDecoder, with include_mask.
"""

ROBOFLOW: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.FILENAME: _FILENAME,
    keys.FORMAT: _FORMAT,
    keys.HEIGHT: _HEIGHT,
    keys.WIDTH: _WIDTH,
    **_OBJECTS,
}
"""The eleven features of Roboflow's "Tensorflow TFRecord" export, without id and checksum."""

OPEN_IMAGES: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.FILENAME: _FILENAME,
    keys.SOURCE_ID: _single(Kind.BYTES, "id of the image in Open Images, hexadecimal"),
    **_OBJECTS,
    **_attributes("group_of", "occluded", "truncated", "depiction"),
    keys.IMAGE_CLASS_TEXT: _variable(Kind.BYTES, "classes of the whole image, by name"),
    keys.IMAGE_CLASS_LABEL: _variable(Kind.INT64, "classes of the whole image, by id"),
}
"""The features of create_oid_tf_record.py, without format and size."""

KERAS_COCO: FeatureDescription = {
    "image": _ENCODED,
    "path": _single(Kind.BYTES, "path of the image file"),
    "area": _single(Kind.FLOAT, "area of the object in pixels"),
    "bbox": _variable(Kind.FLOAT, "x, y, width, height of the box in pixels"),
    "category_id": _single(Kind.INT64, "COCO's class id"),
    "id": _single(Kind.INT64, "id of the annotation"),
    "image_id": _single(Kind.INT64, "id of the image"),
}
"""One record per annotation. Source: keras.io/examples/keras_recipes/creating_tfrecords."""

SLIM_CLASSIFICATION: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.FORMAT: _single(Kind.BYTES, _FORMAT.meaning, b"jpeg"),
    keys.IMAGE_CLASS_LABEL: _single(Kind.INT64, "class of the image"),
    keys.HEIGHT: _single(Kind.INT64, "pixels", 0),
    keys.WIDTH: _single(Kind.INT64, "pixels", 0),
}
"""Source: tensorflow/models: research/slim/datasets/dataset_utils.py, image_to_tfexample."""

IMAGE_CLASSIFICATION: FeatureDescription = {
    "height": _HEIGHT,
    "width": _WIDTH,
    "depth": _single(Kind.INT64, "channels"),
    "label": _single(Kind.INT64, "class of the image"),
    "image_raw": _ENCODED,
}
"""Source: tensorflow.org/tutorials/load_data/tfrecord, the walkthrough with images."""

IMAGE_LABEL: FeatureDescription = {
    "width": _WIDTH,
    "height": _HEIGHT,
    "channels": _single(Kind.INT64, "channels"),
    "label": _single(Kind.INT64, "class of the image"),
    "image": _single(Kind.BYTES, "the image file's bytes, or its raw pixels"),
}
"""An image and one label: a common layout of scripts."""

PROFILES: Mapping[str, FeatureDescription] = {
    "cvat": CVAT,
    "tf_detection_api": TF_DETECTION_API,
    "tf_vision": TF_VISION,
    "roboflow": ROBOFLOW,
    "open_images": OPEN_IMAGES,
    "keras_coco": KERAS_COCO,
    "slim_classification": SLIM_CLASSIFICATION,
    "image_classification": IMAGE_CLASSIFICATION,
    "image_label": IMAGE_LABEL,
}
"""Named feature descriptions."""
