"""FieldMapping: which key holds the image, which its boxes, … in shards of any keys.

The keys of the TF Object Detection API are the usual ones; other formats are told by the keys that
they have in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from os.path import commonprefix
from typing import Any

from tfod.detection import keys
from tfod.example.wire import Kind


@dataclass(frozen=True)
class FieldMapping:
    """The keys that play a part, whatever they are called; None where a format has none.

    Attributes:
        encoded: the image file's bytes.
        format, filename, source_id, sha256: texts about the image.
        height, width: of the image in pixels.
        class_text, class_label: the class of each box, by name and by id.
        box: one key for each of xmin, ymin, xmax and ymax, normalized, lists over the objects; or a
            single key that holds x, y, width and height in pixels of one object after the other.
        image_class_text, image_class_label, area: classes of the whole image, by name and by id,
            and the area of each object in pixels, where they are not under the API's own keys.
        image_id: number or text of the image. Records that share it are one image.
        annotation_id: number of each object.
    """

    encoded: str | None = keys.ENCODED
    format: str | None = keys.FORMAT
    filename: str | None = keys.FILENAME
    source_id: str | None = keys.SOURCE_ID
    sha256: str | None = keys.SHA256
    height: str | None = keys.HEIGHT
    width: str | None = keys.WIDTH
    class_text: str | None = keys.CLASS_TEXT
    class_label: str | None = keys.CLASS_LABEL
    box: tuple[str, ...] = keys.BOX
    image_class_text: str | None = None
    image_class_label: str | None = None
    area: str | None = None
    image_id: str | None = None
    annotation_id: str | None = None

    @classmethod
    def only(cls, *, box: tuple[str, ...] = (), **named: Any) -> FieldMapping:
        """A mapping of the fields that are named, and no others."""
        nothing = {each.name: None for each in fields(cls) if each.name != "box"}
        return cls(**{**nothing, **named}, box=box)

    @cached_property
    def by_name(self) -> Mapping[str, str | None]:
        """Every role but the box, by its name."""
        names = (each.name for each in fields(self) if each.name != "box")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def all_keys(self) -> frozenset[str]:
        """Every key that plays a part."""
        return frozenset({key for key in self.by_name.values() if key} | set(self.box))

    @property
    def has_pixel_boxes(self) -> bool:
        """Whether boxes are x, y, width and height in pixels."""
        return len(self.box) == 1

    @cached_property
    def box_prefix(self) -> str:
        """What the keys of the boxes have in common: ``image/object/bbox``; "" where nothing."""
        if len(self.box) == 1:
            return self.box[0]
        return commonprefix(self.box).rstrip("/_")  # noqa: RUF071 (letter by letter)


KERAS_COCO = FieldMapping.only(
    encoded="image",
    filename="path",
    class_label="category_id",
    box=("bbox",),
    area="area",
    image_id="image_id",
    annotation_id="id",
)
"""One record an annotation. Source: keras.io/examples/keras_recipes/creating_tfrecords."""

SLIM_CLASSIFICATION = FieldMapping.only(
    encoded=keys.ENCODED,
    filename=keys.FILENAME,
    source_id=keys.SOURCE_ID,
    format=keys.FORMAT,
    height=keys.HEIGHT,
    width=keys.WIDTH,
    image_class_label=keys.IMAGE_CLASS_LABEL,
)
"""Source: tensorflow/models: research/slim/datasets/dataset_utils.py, image_to_tfexample.

Other scripts add names and ids of images.
"""

IMAGE_CLASSIFICATION = FieldMapping.only(
    encoded="image_raw", height="height", width="width", image_class_label="label"
)
"""Source: tensorflow.org/tutorials/load_data/tfrecord, the walkthrough with images."""

IMAGE_LABEL = FieldMapping.only(
    encoded="image", height="height", width="width", image_class_label="label"
)
"""An image, encoded or raw, and its label, as many scripts write them."""

# FiftyOne has image_bytes and a text in label; the flowers of Google's codelabs have a number in
# class and a text in label, those of Kaggle's petals only the number.
# In many tutorials, img_raw is pixels, usually without their size.
_IMAGE_KEYS = ("image_raw", "image_bytes", "image", "img_raw", "img")
_LABEL_KEYS = ("label", "class")
_NAMES = ("filename", "file_name", "image_name")


def classification_field_mapping(kinds: Mapping[str, Kind | None]) -> FieldMapping | None:
    """Return the field mapping of records of an image and its label, by usual keys and kinds.

    Returns:
        None if the records have no image or no label.
    """

    def first(names: tuple[str, ...], kind: Kind) -> str | None:
        return next((name for name in names if kinds.get(name) is kind), None)

    encoded = first(_IMAGE_KEYS, Kind.BYTES)
    label, text = first(_LABEL_KEYS, Kind.INT64), first(_LABEL_KEYS, Kind.BYTES)
    if encoded is None or (label is None and text is None):
        return None
    return FieldMapping.only(
        encoded=encoded,
        filename=first(_NAMES, Kind.BYTES),
        height=first(("height",), Kind.INT64),
        width=first(("width",), Kind.INT64),
        image_class_text=text,
        image_class_label=label,
    )
