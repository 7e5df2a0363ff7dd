"""From the objects of a record to CVAT's shapes, and a count of what cannot come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.cvat.attributes import fit_value, text_of
from tfod.cvat.client.task import Label
from tfod.detection.boxes import PixelBox, corners_in_pixels
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.masks import decode_mask_png, fills_its_box
from tfod.detection.labels.label_map import LabelMap, load_label_map, read_label_map
from tfod.detection.labels.search import LabelMapFinder
from tfod.detection.losses import listed
from tfod.errors import TfodError
from tfod.example.columns import ExampleBatch
from tfod.formats.cvat_detections import GROUP, OCCLUDED
from tfod.formats.cvat_shapes import BOX, MASK, CvatShape, CvatTag, encode_runs, pillow
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import find_shards

_DIGITS = 2  # of a pixel, as in CVAT's own XML


@dataclass(frozen=True)
class ZipRecord:
    """A record as a Detection, and how its shard names classes.

    Attributes:
        subset: that its shard belongs to.
        where: shard and number, for messages.
        detection: valid until the next record is asked for.
        label_map: of its shard.
    """

    subset: str
    where: str
    detection: Detection
    label_map: LabelMap | None

    def class_name(self, text: str | None, label: int | None) -> str:
        """The class that an object's text and id name: the text, or what the id is called.

        Raises:
            TfodError: they name none.
        """
        if text:
            return text
        item = self.label_map.find_id(label) if self.label_map and label is not None else None
        if item is None:
            raise TfodError(f"{self.where}: an object has no class; give it one, or leave it out")
        return item.class_name

    def class_names(self) -> list[str]:
        """The classes of all objects."""
        detection = self.detection
        count = len(detection.boxes)
        texts = detection.class_text or (None,) * count
        labels = detection.class_label or (None,) * count
        return [self.class_name(*pair) for pair in zip(texts, labels, strict=True)]


def read_zip(path: str, label_map: str | None = None) -> Iterator[ZipRecord]:
    """Read all records of all shards in a zip that the checker has no errors against.

    ``label_map`` is the file or name of one for all shards, in place of those in the zip.
    """
    named = load_label_map(label_map)[0] if label_map is not None else None
    finder = LabelMapFinder()
    for group in find_shards(path):
        for shard in group.paths:
            own, source = named, finder.find(shard)[0]
            if own is None and source is not None:
                own = read_label_map(source)[0]
            for records in read_record_batches(shard):
                found = Detections(ExampleBatch.of(records))
                for number, detection in enumerate(found, records.first):
                    yield ZipRecord(group.subset, f"{shard}, record {number}", detection, own)


class ShapeBuilder:
    """Makes the shapes of one record after the other, with the labels of a task."""

    def __init__(self, labels: Mapping[str, Label]) -> None:
        self._labels = labels
        self._attributes_left: Counter[str] = Counter()
        self._others_left: Counter[str] = Counter()

    def shapes(self, record: ZipRecord, size: tuple[int, int]) -> list[CvatShape]:
        """The shapes of a record's objects on a frame of this height and width.

        Raises:
            TfodError: an object has no class of the task, or its mask another size.
        """
        detection = record.detection
        if detection.keypoints is not None:
            visible = (detection.keypoints.visibility > 0).any(axis=1)
            self._others_left["objects' keypoints"] += int(visible.sum())
        corners = _pixels(detection.boxes, size)
        return [
            self._shape(record, number, name, corners[number], size)
            for number, name in enumerate(record.class_names())
        ]

    def not_imported(self) -> str:
        """One line about what the task has no place for; '' when everything came along."""
        names = listed(self._attributes_left)
        attributes = f"attributes that the labels do not have: {names}" if names else ""
        parts = [one for one in (listed(+self._others_left), attributes) if one]
        return f"not imported: {', '.join(parts)}" if parts else ""

    def tags(self, record: ZipRecord) -> list[CvatTag]:
        """The classes of the whole image; those that are said to be absent do not come."""
        tags = []
        for one in record.detection.image_labels:
            if one.confidence is not None and one.confidence <= 0:
                self._others_left["classes said to be absent"] += 1
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
        if GROUP not in label.attributes and isinstance(number_there := values.get(GROUP), int):
            group = number_there
            del values[GROUP]
        kind, extent = BOX, corners
        runs: tuple[int, ...] = ()
        mask = _mask(record, number, size)
        if mask is not None and not fills_its_box(mask, corners):
            encoded = encode_runs(mask)
            if encoded is None:
                self._others_left["masks without a pixel, imported as boxes"] += 1
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
            spec = label.attributes.get(name)
            fit = None if spec is None else fit_value(value, spec)
            if fit is None and spec is not None and spec.input_type != "checkbox":
                fit = value  # beyond the limits or the choices: the server decides
            text = text_of(fit)
            if text is None:
                self._attributes_left[name] += 1
            else:
                found.append((name, text))
        return found


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
        mask = None if png is None else _decode(png.data, record.where)
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


def _decode(data: bytes | memoryview, where: str) -> np.ndarray:
    pillow()  # says so where it is not installed
    try:
        return decode_mask_png(data)
    except ValueError as error:
        raise TfodError(
            f"{where}: a mask cannot be decoded ({error}); export the shard again"
        ) from None
