"""A Detection: what one record says about one image, typed.

Boxes are normalized to the image's size: ``xmin, ymin, xmax, ymax`` in 0..1, x to the right and
y down, half-open (an object that fills the image is 0, 0, 1, 1).
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

AttributeValue: TypeAlias = "int | float | str | list[Any] | dict[str, Any] | None"
"""What an object's attribute holds: JSON; None where this object has none of that name."""


class NumberText(str):
    """A number as it was typed, such as 007: written as the number and, next to it, as text."""

    __slots__ = ()


_NAN = float("nan")  # only the same object equals itself in a tuple
_NO_BOXES = np.zeros((0, 4), "<f4")


def _content(value: Any) -> Any:
    """Return what equal values share, hashable; None for what a record does not hold."""
    if is_dataclass(value):
        names = [one.name for one in fields(value) if one.compare]
        is_plain = isinstance(value, ShapeDetails) and not value
        return None if is_plain else tuple(_content(getattr(value, name)) for name in names)
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        contents = {key: _content(one) for key, one in value.items()}
        return frozenset(one for one in contents.items() if one[1] is not None) or None
    if isinstance(value, (list, tuple)):
        items = tuple(map(_content, value))
        return None if all(one is None for one in items) else items
    if isinstance(value, float):
        rounded = ctypes.c_float(value).value
        return _NAN if value != value else rounded if math.isfinite(rounded) else value
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


class _ComparedByContent:
    """Compares and hashes a dataclass that holds arrays, lists and dictionaries.

    An array equals a list of the same numbers in single precision. None equals an empty list.
    """

    def __eq__(self, other: object) -> bool:
        same_type = type(other) is type(self)
        return _content(self) == _content(other) if same_type else NotImplemented

    def __hash__(self) -> int:
        return hash(_content(self))


@dataclass(frozen=True, eq=False)
class Keypoints(_ComparedByContent):
    """The keypoints of an image's objects.

    Attributes:
        xy: normalized coordinates, x before y, of shape (objects, points, 2); float32 in records.
        visibility: 0 not labelled, 1 hidden, 2 visible; int64 of shape (objects, points).
        names: names of the points where the record has them, else empty.
    """

    xy: np.ndarray
    visibility: np.ndarray
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PngMask:
    """A mask: a one-channel PNG of the image's size; that of an object is above 0 where it is.

    ``offset`` is the byte of the uncompressed shard at which ``data`` starts; -1 when it has
    not come from a shard.
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
    """How an object was drawn, as far as its box does not say it.

    Attributes:
        box: corners in pixels of the box before it was turned: left, top, right, bottom. The
            object's own box encloses the turned one, as far as the image shows it.
        rotation: how far it was turned about its centre, in degrees, clockwise.
        z_order: its layer; what is in a higher one lies above.
        group: number that the objects of one group share; 0 for none.
    """

    box: tuple[float, float, float, float] | None = None
    rotation: float = 0.0
    z_order: int = 0
    group: int = 0

    def __bool__(self) -> bool:
        return bool(self.rotation or self.z_order or self.group)


def drawn_by_number(objects: Sequence[ShapeDetails]) -> dict[int, ShapeDetails]:
    """How objects were drawn, as far as there is something to say; a group of one is none."""
    members = Counter(one.group for one in objects)
    alone = {group for group, count in members.items() if group and count == 1}
    found = (replace(one, group=0) if one.group in alone else one for one in objects)
    return {number: one for number, one in enumerate(found) if one}


@dataclass(frozen=True, eq=False)
class Detection(_ComparedByContent):
    """One image with its objects. None is a key that the record does not have.

    Attributes:
        filename, source_id, format, sha256: texts as the record has them.
        height, width: pixels, of the image as it is encoded.
        encoded: the image file's bytes, a view into the record's buffer when read.
        boxes: of shape (n, 4), normalized ``xmin, ymin, xmax, ymax``; float32 in records.
        class_text, class_label: n names and ids.
        masks: n masks, None for an object without one.
        numerical_masks: the other way to write masks: float32 of shape (n, height, width).
        keypoints: see :class:`Keypoints`.
        attributes: name to n values, for example ``{"difficult": [0, 1]}``.
        drawn: how objects were drawn, by their number; most have nothing to say.
        image_labels: classes of the whole image.
        captions: texts about the whole image.
        image_masks: name to PNG, of :data:`tfod.detection.keys.IMAGE_MASKS`.
        image_attributes: name to a list of class ids of the whole image.
        image_extra: name to value, of whatever else belongs to the whole image.
        unread_keys: features that mean nothing to tfod.
        warnings: what was read with a liberty, as short sentences without place.
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
    drawn: Mapping[int, ShapeDetails] = field(default_factory=dict)
    image_labels: Sequence[ImageLabel] = ()
    captions: Sequence[str] = ()
    image_masks: Mapping[str, PngMask] = field(default_factory=dict)
    image_attributes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    image_extra: Mapping[str, Any] = field(default_factory=dict)
    unread_keys: Sequence[str] = field(default=(), compare=False)
    warnings: Sequence[str] = field(default=(), compare=False)
