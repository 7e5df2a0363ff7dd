"""A Detection: what one record says about one image, typed.

Boxes are normalized to the image's size: ``xmin, ymin, xmax, ymax`` in 0..1, x to the right and
y down, half-open (an object that fills the image is 0, 0, 1, 1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

AttributeValue: TypeAlias = "int | float | str | list[Any] | dict[str, Any] | None"
"""What an object's attribute holds: JSON; None where this object has none of that name."""


class NumberText(str):
    """A number as it was typed, such as 007: written as the number and, next to it, as text."""

    __slots__ = ()

    @property
    def number(self) -> int | float:
        """The number that the text means."""
        try:
            return int(self)
        except ValueError:
            return float(self)


_NO_BOXES = np.zeros((0, 4), "<f4")


@dataclass(frozen=True)
class Keypoints:
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
    offset: int = -1


@dataclass(frozen=True)
class ImageLabel:
    """A class of the whole image; confidence 1 is present, 0 is verified to be absent."""

    text: str | None
    label: int | None
    confidence: float | None = None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawn:
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


def drawn_by_number(objects: Sequence[Drawn]) -> dict[int, Drawn]:
    """How objects were drawn, as far as there is something to say; a group of one is none."""
    members = Counter(one.group for one in objects)
    alone = {group for group, count in members.items() if group and count == 1}
    found = (replace(one, group=0) if one.group in alone else one for one in objects)
    return {number: one for number, one in enumerate(found) if one}


@dataclass(frozen=True)
class Detection:
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
        oddities: what was read with a liberty, as short sentences without place.
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
    drawn: Mapping[int, Drawn] = field(default_factory=dict)
    image_labels: Sequence[ImageLabel] = ()
    captions: Sequence[str] = ()
    image_masks: Mapping[str, PngMask] = field(default_factory=dict)
    image_attributes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    image_extra: Mapping[str, Any] = field(default_factory=dict)
    unread_keys: Sequence[str] = ()
    oddities: Sequence[str] = ()
