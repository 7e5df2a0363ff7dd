"""Detection: the typed content of one record, an image with its annotations.

Boxes are half-open, ``xmin, ymin, xmax, ymax``, with y down; 0, 0, 1, 1 fills the image.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

import numpy as np

_Value = TypeVar("_Value")
AttributeValue: TypeAlias = "int | float | str | list[Any] | dict[str, Any] | None"
"""JSON value of an attribute; None if the object lacks the attribute."""


class NumberText(str):
    """A number with its original spelling, such as 007: written as number and as text."""

    __slots__ = ()


_NAN = float("nan")  # in a tuple, NaN only equals the identical object
_NO_BOXES = np.zeros((0, 4), "<f4")


def _comparison_key(value: Any) -> Any:
    """Return a hashable key that is shared by equal values; None for values that records omit."""
    if is_dataclass(value):
        names = [attribute.name for attribute in fields(value) if attribute.compare]
        is_empty = isinstance(value, ShapeDetails) and not value
        return None if is_empty else tuple(_comparison_key(getattr(value, name)) for name in names)
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        contents = {key: _comparison_key(entry) for key, entry in value.items()}
        return frozenset(entry for entry in contents.items() if entry[1] is not None) or None
    if isinstance(value, (list, tuple)):
        items = tuple(map(_comparison_key, value))
        return None if all(item is None for item in items) else items
    if isinstance(value, float):
        rounded = ctypes.c_float(value).value
        return _NAN if value != value else rounded if math.isfinite(rounded) else value
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


class _ComparedByContent:
    """Base of dataclasses that compare by content: arrays equal lists, None an empty list."""

    def __eq__(self, other: object) -> bool:
        same_type = type(other) is type(self)
        return _comparison_key(self) == _comparison_key(other) if same_type else NotImplemented

    def __hash__(self) -> int:
        return hash(_comparison_key(self))


@dataclass(frozen=True, eq=False)
class Keypoints(_ComparedByContent):
    """The keypoints of the objects of an image.

    Attributes:
        xy: normalized x and y, shape (objects, points, 2); float32 if read from a record.
        visibility: 0 not labelled, 1 hidden, 2 visible; int64 of shape (objects, points).
        names: names of the points, empty if the record has none.
    """

    xy: np.ndarray
    visibility: np.ndarray
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PngMask:
    """A mask as a one-channel PNG of the image's size; pixels of an object are above 0.

    ``offset`` is the position of ``data`` in the uncompressed shard, or -1 outside of shards.
    """

    data: memoryview | bytes
    offset: int = field(default=-1, compare=False)


@dataclass(frozen=True, eq=False)
class ImageLabel(_ComparedByContent):
    """A class of the whole image; confidence 1 is present, 0 is verified to be absent."""

    text: str | None
    label: int | None
    confidence: float | None = None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True)
class ShapeDetails:
    """The properties of a shape that its box does not contain.

    Attributes:
        box: left, top, right, bottom in pixels before the rotation; the object's own box encloses
            the visible part after it.
        rotation: rotation about the centre in degrees, clockwise.
        z_order: layer; higher layers cover lower ones.
        group: number that is shared by the objects of a group; 0 for no group.
    """

    box: tuple[float, float, float, float] | None = None
    rotation: float = 0.0
    z_order: int = 0
    group: int = 0

    def __bool__(self) -> bool:
        return bool(self.rotation or self.z_order or self.group)


def index_shape_details(objects: Sequence[ShapeDetails]) -> dict[int, ShapeDetails]:
    """Return the non-empty details by object number, without groups of a single object."""
    members = Counter(details.group for details in objects)
    single = {group for group, count in members.items() if group and count == 1}
    kept = (replace(x, group=0) if x.group in single else x for x in objects)
    return {number: details for number, details in enumerate(kept) if details}


@dataclass(frozen=True, eq=False)
class Detection(_ComparedByContent):
    """An image with its annotations. None stands for a key that the record lacks.

    Attributes:
        filename, source_id, format, sha256: texts of the record.
        height, width: size of the encoded image in pixels.
        encoded: bytes of the image file; a view into the record's buffer if read.
        boxes: normalized ``xmin, ymin, xmax, ymax`` of shape (n, 4); float32 if read.
        class_text, class_label: n names and ids.
        masks: n masks, None for an object without a mask.
        numerical_masks: masks as numbers instead of PNGs, float32 of shape (n, height, width).
        keypoints: see :class:`Keypoints`.
        attributes: n values by name, for example ``{"difficult": [0, 1]}``.
        shape_details: details by object number; most objects have none.
        image_labels: classes of the whole image.
        captions: texts about the whole image.
        image_masks: PNGs by name, see :data:`tfod.detection.keys.IMAGE_MASKS`.
        image_attributes: lists of class ids of the whole image by name.
        image_extra: further values of the whole image by name.
        unread_keys: features that tfod does not know.
        warnings: tolerated deviations as short sentences without a location.
    """

    filename: str | None = None
    source_id: str | None = None
    format: str | None = None
    sha256: str | None = None
    height: int | None = None
    width: int | None = None
    encoded: memoryview | bytes | None = None
    boxes: np.ndarray = field(default_factory=lambda: _NO_BOXES)
    class_text: Sequence[str] | None = None
    class_label: Sequence[int] | None = None
    masks: Sequence[PngMask | None] | None = None
    numerical_masks: np.ndarray | None = None
    keypoints: Keypoints | None = None
    attributes: Mapping[str, Sequence[AttributeValue]] = field(default_factory=dict)
    shape_details: Mapping[int, ShapeDetails] = field(default_factory=dict)
    image_labels: Sequence[ImageLabel] = ()
    captions: Sequence[str] = ()
    image_masks: Mapping[str, PngMask] = field(default_factory=dict)
    image_attributes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    image_extra: Mapping[str, Any] = field(default_factory=dict)
    unread_keys: Sequence[str] = field(default=(), compare=False)
    warnings: Sequence[str] = field(default=(), compare=False)

    def _repr_html_(self) -> str | None:
        """Draw the image with its objects for notebooks; None without Pillow or jinja2.

        The module is imported by name, because packages above this one draw.
        """
        drawing: str | None = import_module("tfod.viewer.notebook").draw_detection(self)
        return drawing

    def select_objects(self, numbers: Sequence[int], boxes: np.ndarray) -> Detection:
        """Return the image with only these objects, in this order, and their new boxes."""
        masks, keypoints = self.numerical_masks, self.keypoints
        index, details = list(numbers), self.shape_details

        def select(values: Sequence[_Value] | None) -> list[_Value] | None:
            return [values[number] for number in index] if values is not None else None

        return replace(
            self,
            boxes=boxes,
            class_text=select(self.class_text),
            class_label=select(self.class_label),
            masks=select(self.masks),
            numerical_masks=None if masks is None else masks[index],
            keypoints=keypoints
            and replace(keypoints, xy=keypoints.xy[index], visibility=keypoints.visibility[index]),
            attributes={name: select(values) or [] for name, values in self.attributes.items()},
            shape_details={new: details[old] for new, old in enumerate(index) if old in details},
        )
