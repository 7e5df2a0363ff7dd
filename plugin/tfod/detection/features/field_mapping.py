"""FieldMapping: the keys of the image, its boxes and so on, in shards of any format.

The default is the TF Object Detection API. Other formats are recognized by their keys; for sources
see :mod:`tfod.detection.features.schema`.
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
    """The keys of the fields that tfod reads; None if a format lacks a field.

    Attributes:
        encoded: bytes of the image file.
        format, filename, source_id, sha256: texts about the image.
        height, width: size of the image in pixels.
        class_text, class_label: class of each box, by name and by id.
        box: keys of the normalized xmin, ymin, xmax and ymax, lists over the objects; or a single
            key with x, y, width and height in pixels of all objects.
        image_class_text, image_class_label, area: classes of the whole image by name and by id, and
            area of each object in pixels, if not under the keys of the OD API.
        image_id: number or text of the image. Records with the same id are one image.
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
    def only(cls, *, box: tuple[str, ...] = (), **given_keys: Any) -> FieldMapping:
        """Create a mapping that has only the given fields."""
        no_keys = {field.name: None for field in fields(cls) if field.name != "box"}
        return cls(**{**no_keys, **given_keys}, box=box)

    @cached_property
    def by_name(self) -> Mapping[str, str | None]:
        """The key of every field except the box, by name."""
        names = (field.name for field in fields(self) if field.name != "box")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def all_keys(self) -> frozenset[str]:
        """The keys of all fields."""
        return frozenset({key for key in self.by_name.values() if key} | set(self.box))

    @property
    def has_pixel_boxes(self) -> bool:
        """Whether boxes are x, y, width and height in pixels."""
        return len(self.box) == 1

    @cached_property
    def box_prefix(self) -> str:
        """The common prefix of the box keys, such as ``image/object/bbox``; may be empty."""
        if len(self.box) == 1:
            return self.box[0]
        return commonprefix(self.box).rstrip("/_")  # noqa: RUF071 (a prefix of characters)


KERAS_COCO = FieldMapping.only(
    encoded="image",
    filename="path",
    class_label="category_id",
    box=("bbox",),
    area="area",
    image_id="image_id",
    annotation_id="id",
)
"""One record per annotation."""

SLIM_CLASSIFICATION = FieldMapping.only(
    encoded=keys.ENCODED,
    filename=keys.FILENAME,
    source_id=keys.SOURCE_ID,
    format=keys.FORMAT,
    height=keys.HEIGHT,
    width=keys.WIDTH,
    image_class_label=keys.IMAGE_CLASS_LABEL,
)
"""The keys of TF-Slim, and of scripts that add file names and source ids."""

IMAGE_CLASSIFICATION = FieldMapping.only(
    encoded="image_raw", height="height", width="width", image_class_label="label"
)

IMAGE_LABEL = FieldMapping.only(
    encoded="image", height="height", width="width", image_class_label="label"
)
"""An image, encoded or raw, and its label: a common layout of scripts."""

# FiftyOne writes image_bytes and a text as label. The flowers of Google's codelabs have a number as
# class and a text as label, Kaggle's petals only the number. In many tutorials, img_raw contains
# pixels, usually without their size.
_IMAGE_KEYS = ("image_raw", "image_bytes", "image", "img_raw", "img")
_LABEL_KEYS = ("label", "class")
_NAMES = ("filename", "file_name", "image_name")


def classification_field_mapping(kinds: Mapping[str, Kind | None]) -> FieldMapping | None:
    """Find the keys of an image and its label among common keys; None if one is missing."""

    def find_first(names: tuple[str, ...], kind: Kind) -> str | None:
        return next((name for name in names if kinds.get(name) is kind), None)

    encoded = find_first(_IMAGE_KEYS, Kind.BYTES)
    label, text = find_first(_LABEL_KEYS, Kind.INT64), find_first(_LABEL_KEYS, Kind.BYTES)
    if encoded is None or (label is None and text is None):
        return None
    return FieldMapping.only(
        encoded=encoded,
        filename=find_first(_NAMES, Kind.BYTES),
        height=find_first(("height",), Kind.INT64),
        width=find_first(("width",), Kind.INT64),
        image_class_text=text,
        image_class_label=label,
    )
