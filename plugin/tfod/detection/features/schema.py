"""Feature descriptions: which features a record is expected to have, of which kind and shape.

What ``tf.io.parse_example`` calls a feature description, as data of ours, and the named profiles.
"""

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
    """What one feature is expected to be.

    Attributes:
        kind: its list.
        shape: the fixed shape (``()`` is exactly one value); None for any number of values.
        default: value of a missing fixed feature, for more than one value a tuple of them in row
            order; None makes it required.
        meaning: what it says, for people.
        demanded: a record without it will not do, although TensorFlow would parse it.
        also: further lists that readers take in place of ``kind``.
    """

    kind: Kind
    shape: tuple[int, ...] | None = None
    default: Value | tuple[Value, ...] | None = None
    meaning: str = ""
    demanded: bool = False
    also: tuple[Kind, ...] = ()

    def takes(self, kind: Kind) -> bool:
        """Whether a list of this kind will do."""
        return kind is self.kind or kind in self.also

    @property
    def required(self) -> bool:
        """Whether a record without it will not do."""
        return self.demanded or (self.shape is not None and self.default is None)

    @property
    def length(self) -> int | None:
        """How many values a fixed feature has; None for any number."""
        return None if self.shape is None else math.prod(self.shape)

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


def _one(kind: Kind, meaning: str, default: Value | None = None) -> FeatureSpec:
    return FeatureSpec(kind, (), default, meaning)


def _many(kind: Kind, meaning: str) -> FeatureSpec:
    return FeatureSpec(kind, None, None, meaning)


def _attributes(*names: str) -> FeatureDescription:
    """Those of the API, in its order."""
    return {
        one.key: _many(one.kinds[0], f"{one.name} of each object")
        for one in keys.OBJECT_ATTRIBUTES
        if one.name in names
    }


_ENCODED = _one(Kind.BYTES, "the image file's bytes, JPEG or PNG")
_FORMAT = _one(Kind.BYTES, "jpeg or png")
_FILENAME = _one(Kind.BYTES, "the image's file name")
_HEIGHT = _one(Kind.INT64, "pixels")
_WIDTH = _one(Kind.INT64, "pixels")
_OBJECTS: FeatureDescription = {
    **{
        key: _many(Kind.FLOAT, f"{key.rpartition('/')[2]} of each box, divided by the size")
        for key in keys.BOX
    },
    keys.CLASS_TEXT: _many(Kind.BYTES, "class of each box, by name"),
    keys.CLASS_LABEL: _many(Kind.INT64, "class of each box, by id of the label map"),
}

CVAT: FeatureDescription = {
    keys.FILENAME: _FILENAME,
    keys.SOURCE_ID: _one(Kind.BYTES, "the image's id"),
    keys.HEIGHT: _HEIGHT,
    keys.WIDTH: _WIDTH,
    **_OBJECTS,
}
"""The ten features that CVAT documented for "TFRecord 1.0"."""

TF_DETECTION_API: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.FORMAT: _one(Kind.BYTES, _FORMAT.meaning, b"jpeg"),
    keys.FILENAME: _one(Kind.BYTES, _FILENAME.meaning, b""),
    keys.SHA256: _one(Kind.BYTES, "SHA-256 of image/encoded in lower-case hexadecimal", b""),
    keys.SOURCE_ID: _one(Kind.BYTES, "the image's id, unique in the dataset", b""),
    keys.HEIGHT: _one(Kind.INT64, "pixels", 1),
    keys.WIDTH: _one(Kind.INT64, "pixels", 1),
    **_OBJECTS,
    **_attributes("difficult", "is_crowd", "group_of", "area", "weight"),
}
"""Ready to train: what the OD API's decoder reads, with its defaults, image required.

Masks are left out, since one key may hold PNGs or numbers; so are truncated, occluded and view,
which writers spell differently (KITTI's truncated is a float) and the decoder does not read.
"""

TF_VISION: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.SOURCE_ID: _one(Kind.BYTES, "the image's number, unique in the dataset"),
    keys.HEIGHT: _one(Kind.INT64, "pixels", -1),
    keys.WIDTH: _one(Kind.INT64, "pixels", -1),
    **{key: spec for key, spec in _OBJECTS.items() if key != keys.CLASS_TEXT},
    **_attributes("area", "is_crowd"),
    keys.MASK: _many(Kind.BYTES, "mask of each object, a PNG of 0 and 1"),
}
"""What TF-Vision parses, MediaPipe Model Maker too; -1 is the size of the decoded image.

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
"""The eleven features of Roboflow's "Tensorflow TFRecord" export: no id, no checksum."""

OPEN_IMAGES: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.FILENAME: _FILENAME,
    keys.SOURCE_ID: _one(Kind.BYTES, "id of the image in Open Images, hexadecimal"),
    **_OBJECTS,
    **_attributes("group_of", "occluded", "truncated", "depiction"),
    keys.IMAGE_CLASS_TEXT: _many(Kind.BYTES, "classes of the whole image, by name"),
    keys.IMAGE_CLASS_LABEL: _many(Kind.INT64, "classes of the whole image, by id"),
}
"""What create_oid_tf_record.py writes: neither format nor size."""

KERAS_COCO: FeatureDescription = {
    "image": _ENCODED,
    "path": _one(Kind.BYTES, "path of the image file"),
    "area": _one(Kind.FLOAT, "area of the object in pixels"),
    "bbox": _many(Kind.FLOAT, "x, y, width, height of the box in pixels"),
    "category_id": _one(Kind.INT64, "COCO's class id"),
    "id": _one(Kind.INT64, "id of the annotation"),
    "image_id": _one(Kind.INT64, "id of the image"),
}
"""One record an annotation. Source: keras.io/examples/keras_recipes/creating_tfrecords."""

SLIM_CLASSIFICATION: FeatureDescription = {
    keys.ENCODED: _ENCODED,
    keys.FORMAT: _one(Kind.BYTES, _FORMAT.meaning, b"jpeg"),
    keys.IMAGE_CLASS_LABEL: _one(Kind.INT64, "class of the image"),
    keys.HEIGHT: _one(Kind.INT64, "pixels", 0),
    keys.WIDTH: _one(Kind.INT64, "pixels", 0),
}
"""Source: tensorflow/models: research/slim/datasets/dataset_utils.py, image_to_tfexample."""

IMAGE_CLASSIFICATION: FeatureDescription = {
    "height": _HEIGHT,
    "width": _WIDTH,
    "depth": _one(Kind.INT64, "channels"),
    "label": _one(Kind.INT64, "class of the image"),
    "image_raw": _ENCODED,
}
"""Source: tensorflow.org/tutorials/load_data/tfrecord, the walkthrough with images."""

IMAGE_LABEL: FeatureDescription = {
    "width": _WIDTH,
    "height": _HEIGHT,
    "channels": _one(Kind.INT64, "channels"),
    "label": _one(Kind.INT64, "class of the image"),
    "image": _one(Kind.BYTES, "the image file's bytes, or its raw pixels"),
}
"""An image and one label, as many scripts write them."""

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
"""The feature descriptions that have a name."""
