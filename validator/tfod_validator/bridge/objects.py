"""From an image of CVAT's XML to a Detection, and a count of what cannot come."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tfod.detection import AttributeValue, Detection, ImageLabel, PngMask
from tfod.errors import TfodError
from tfod.label_map import LabelMap
from tfod.naming import split_extension
from tfod.picture import EXTENSION_OF_FORMAT, FORMAT_OF_EXTENSION, picture_size, sniff_format
from tfod.png import encode_mask_png

from tfod_validator.bridge.masks import draw_shape
from tfod_validator.cvat_shapes import BOX, CvatShape
from tfod_validator.cvat_xml import CvatImage

OCCLUDED = "occluded"
GROUP = "group_id"
_CHECKBOX, _NUMBER = "checkbox", "number"
_TRUTH = {"true": True, "false": False}
_DEFAULT_EXTENSION = ".jpg"  # video frames have none


@dataclass
class Losses:
    """What did not come along, and what came in another shape.

    Attributes:
        shapes: shapes that no box can stand for, by kind.
        attributes: attributes that have no place, by name.
        enclosed: shapes of which only the enclosing box came, by kind.
        outside: boxes that reach outside their picture.
    """

    shapes: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)
    enclosed: Counter[str] = field(default_factory=Counter)
    outside: int = 0

    def sentence(self) -> str:
        """One line about all of it; '' when nothing was lost."""
        parts = []
        if self.shapes:
            parts.append(f"not written, the format has no place for them: {_counts(self.shapes)}")
        if self.attributes:
            parts.append(f"attributes not written: {_counts(self.attributes)}")
        if self.enclosed:
            parts.append(f"written as their enclosing box: {_counts(self.enclosed)}")
        if self.outside:
            parts.append(f"boxes that reach outside the picture, written so: {self.outside}")
        return "; ".join(parts)


class DetectionBuilder:
    """Makes a Detection of one image after the other; counts what does not come along.

    Args:
        label_map: the classes.
        input_types: of attributes, by class and name, as the document's head says.
        save_masks: write a mask for each object.
    """

    def __init__(
        self, label_map: LabelMap, input_types: Mapping[tuple[str, str], str], save_masks: bool
    ) -> None:
        self._ids = {item.name: item.id for item in label_map.items}
        self._input_types = input_types
        self._save_masks = save_masks
        self.losses = Losses()

    def build(self, image: CvatImage, encoded: bytes | None) -> Detection:
        """Make the Detection of an image; ``encoded`` is its picture, if that is to be saved.

        Raises:
            TfodError: a class is none of the label map, or the size is not known.
        """
        size = _size(image, encoded)
        filename = _filename(image.name, encoded)
        self.losses.shapes.update(image.others)
        masks = None
        if self._save_masks and image.shapes:
            masks = [PngMask(encode_mask_png(draw_shape(one, size))) for one in image.shapes]
        return Detection(
            filename=filename,
            source_id=filename,
            format=_format(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=size[0],
            width=size[1],
            encoded=encoded or b"",
            boxes=self._boxes(image.shapes, size),
            class_text=[one.label for one in image.shapes],
            class_label=[self._id(one.label, image) for one in image.shapes],
            masks=masks,
            attributes=self._attributes(image.shapes),
            image_labels=self._image_labels(image),
        )

    def _id(self, label: str, image: CvatImage) -> int:
        if label not in self._ids:
            raise TfodError(
                f"image {image.name!r} has the class {label!r}, which is no label of the task; "
                "export it again"
            )
        return self._ids[label]

    def _boxes(self, shapes: Sequence[CvatShape], size: tuple[int, int]) -> np.ndarray:
        height, width = size
        corners = np.array([one.corners for one in shapes], np.float64).reshape(-1, 4)
        limits = np.array((width, height, width, height), np.float64)
        for shape in shapes:
            # A mask carries what its box does not say.
            if shape.rotation or (shape.kind != BOX and not self._save_masks):
                self.losses.enclosed[f"rotated {shape.kind}" if shape.rotation else shape.kind] += 1
        self.losses.outside += int(((corners < 0) | (corners > limits)).any(axis=1).sum())
        return np.asarray((corners / limits).astype(np.float32))

    def _attributes(self, shapes: Sequence[CvatShape]) -> dict[str, list[AttributeValue]]:
        found: list[dict[str, AttributeValue]] = [
            {
                name: self._value(shape.label, name, text)
                for name, text in shape.attributes
                if name != OCCLUDED
            }
            for shape in shapes
        ]
        for shape, own in zip(shapes, found, strict=True):
            # CVAT's own mark and an attribute of that name cannot both be written.
            self.losses.attributes[OCCLUDED] += sum(n == OCCLUDED for n, _ in shape.attributes)
            own[OCCLUDED] = int(shape.occluded)
            if shape.group:
                own.setdefault(GROUP, shape.group)
        self.losses.attributes += Counter()  # drops those that are 0
        names = dict.fromkeys(name for own in found for name in own)
        return {name: [own.get(name) for own in found] for name in names}

    def _value(self, label: str, name: str, text: str) -> AttributeValue:
        """The value that a text means, by the kind of the attribute."""
        kind = self._input_types.get((label, name), "")
        if kind == _CHECKBOX:
            return _TRUTH.get(text.lower(), text)
        if kind == _NUMBER:
            for convert in (int, float):
                try:
                    return convert(text) if len(text) <= 20 else text
                except ValueError:
                    continue
        return text

    def _image_labels(self, image: CvatImage) -> list[ImageLabel]:
        for tag in image.tags:
            self.losses.attributes.update(f"{name} (of a tag)" for name, _ in tag.attributes)
        return [ImageLabel(tag.label, self._id(tag.label, image)) for tag in image.tags]


def _size(image: CvatImage, encoded: bytes | None) -> tuple[int, int]:
    if image.height and image.width:
        return image.height, image.width
    size = picture_size(encoded) if encoded else None
    if size is None:
        raise TfodError(f"image {image.name!r} has no size, so its boxes cannot be normalized")
    return size


def _filename(name: str, encoded: bytes | None) -> str:
    """The frame's name; what has no extension, as frames of videos, gets one."""
    if split_extension(name)[1]:
        return name
    sniffed = sniff_format(encoded[:16]) if encoded else None
    return name + EXTENSION_OF_FORMAT.get(sniffed or "", _DEFAULT_EXTENSION)


def _format(encoded: bytes | None, filename: str) -> str:
    """``image/format``: what the bytes are, or else what the name says; '' without a picture."""
    if not encoded:
        return ""
    extension = split_extension(filename)[1].lower()
    return sniff_format(encoded[:16]) or FORMAT_OF_EXTENSION.get(extension, "")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())
