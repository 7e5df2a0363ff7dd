"""From the objects of a record to CVAT's shapes, and a count of what cannot come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfod.check.cvat_shapes import BOX, MASK, CvatShape
from tfod.check.cvat_xml import CvatTag
from tfod.cvat.client.shard_zip import ZipRecord
from tfod.cvat.client.task import Label
from tfod.cvat.detections import GROUP, OCCLUDED
from tfod.cvat.masks import decode_png, encode_runs
from tfod.detection.boxes import PixelBox, corners_in_pixels
from tfod.detection.masks import fills_its_box
from tfod.errors import TfodError

_DIGITS = 2  # of a pixel, as in CVAT's own XML
_CHECKBOX, _NUMBER = "checkbox", "number"


@dataclass
class NotCarried:
    """What the task has no place for, by name."""

    attributes: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def sentence(self) -> str:
        """One line about all of it; '' when everything came along."""
        parts = [f"{count} {name}" for name, count in self.others.most_common()]
        if self.attributes:
            counts = ", ".join(f"{count} {name}" for name, count in self.attributes.most_common())
            parts.append(f"attributes that the labels do not have: {counts}")
        return f"not imported: {', '.join(parts)}" if parts else ""


class ShapeBuilder:
    """Makes the shapes of one record after the other.

    Args:
        labels: of the task.
    """

    def __init__(self, labels: Mapping[str, Label]) -> None:
        self._labels = labels
        self.not_carried = NotCarried()

    def shapes(self, record: ZipRecord, size: tuple[int, int]) -> list[CvatShape]:
        """The shapes of a record's objects on a frame of this height and width.

        Raises:
            TfodError: an object has no class of the task, or its mask another size.
        """
        detection = record.detection
        if detection.keypoints is not None:
            visible = (detection.keypoints.visibility > 0).any(axis=1)
            self.not_carried.others["objects' keypoints"] += int(visible.sum())
        corners = _pixels(detection.boxes, size)
        return [
            self._shape(record, number, name, corners[number], size)
            for number, name in enumerate(record.class_names())
        ]

    def tags(self, record: ZipRecord) -> list[CvatTag]:
        """The classes of the whole image; those that are said to be absent do not come."""
        tags = []
        for one in record.detection.image_labels:
            if one.confidence is not None and one.confidence <= 0:
                self.not_carried.others["classes said to be absent"] += 1
            else:
                tags.append(CvatTag(self._known(record, one.text, one.label).name))
        return tags

    def _known(self, record: ZipRecord, text: str | None, label: int | None) -> Label:
        name = record.class_name(text, label)
        if name not in self._labels and record.label_map is not None:
            # Open Images' names are /m/01yrx: take the display name where it is the label's.
            item = record.label_map.find(name)
            name = item.display_name if item and item.display_name in self._labels else name
        if name not in self._labels:
            raise TfodError(f"{record.where}: class {name!r} is not a label of the task")
        return self._labels[name]

    def _shape(
        self, record: ZipRecord, number: int, name: str, corners: PixelBox, size: tuple[int, int]
    ) -> CvatShape:
        label = self._known(record, name, None)
        values = {
            name: column[number]
            for name, column in record.detection.attributes.items()
            if column[number] is not None
        }
        occluded, group = values.pop(OCCLUDED, 0), 0
        if GROUP not in label.input_types and isinstance(number_there := values.get(GROUP), int):
            group = number_there
            del values[GROUP]
        kind, extent = BOX, corners
        runs: tuple[int, ...] = ()
        mask = _mask(record, number, size)
        if mask is not None and not fills_its_box(mask, corners):
            encoded = encode_runs(mask)
            if encoded is None:
                self.not_carried.others["masks without a pixel, imported as boxes"] += 1
            else:
                kind, runs, extent = MASK, tuple(encoded[0]), encoded[1]
        return CvatShape(
            kind=kind,
            label=label.name,
            extent=extent,
            runs=runs,
            occluded=bool(occluded),
            group=group,
            attributes=tuple(self._attributes(label, values)),
        )

    def _attributes(self, label: Label, values: Mapping[str, Any]) -> list[tuple[str, str]]:
        found = []
        for name, value in values.items():
            text = attribute_text(label.input_types.get(name), value)
            if text is None:
                self.not_carried.attributes[name] += 1
            else:
                found.append((name, text))
        return found


def attribute_text(input_type: str | None, value: Any) -> str | None:
    """How CVAT writes the value of an attribute of a kind; None where it cannot."""
    if input_type is None or isinstance(value, (list, dict)):
        return None
    if input_type == _CHECKBOX:
        text = str(value).lower()
        return {"0": "false", "1": "true", "0.0": "false", "1.0": "true"}.get(
            text, text if text in ("true", "false") else None
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _pixels(boxes: np.ndarray, size: tuple[int, int]) -> list[PixelBox]:
    """PixelBox in pixels, clamped to the image, as CVAT's own importers have them."""
    _, corners = corners_in_pixels(boxes, size)
    return [
        (left, top, right, bottom) for left, top, right, bottom in corners.round(_DIGITS).tolist()
    ]


def _mask(record: ZipRecord, number: int, size: tuple[int, int]) -> np.ndarray | None:
    detection = record.detection
    if detection.masks is not None:
        png = detection.masks[number]
        mask = None if png is None else decode_png(bytes(png.data), record.where)
    elif detection.numerical_masks is not None:
        mask = np.asarray(detection.numerical_masks[number] > 0)
        mask = mask if mask.any() else None  # padding for an object without one
    else:
        return None
    if mask is not None and mask.shape != size:
        raise TfodError(
            f"{record.where}: a mask is {mask.shape[1]}x{mask.shape[0]}, its frame "
            f"{size[1]}x{size[0]}; make the shard from the images that the task has"
        )
    return mask
