"""The exporter of shards and their label map, in one folder or in Roboflow's folders."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, assign_ids
from tfod.datumaro.export_annotations import OBJECT_LOSSES, OUTLINES
from tfod.datumaro.exporter import EMPTY_VALUES, ShardExporter, count_image_attributes
from tfod.datumaro.formats.export_layouts import RoboflowLayout
from tfod.datumaro.formats.export_options import ROBOFLOW
from tfod.datumaro.media import IMAGE_LEVEL_TYPES
from tfod.detection import keys
from tfod.detection.attributes import is_attribute_value
from tfod.detection.detection import Detection
from tfod.detection.encoder import encode_detection
from tfod.detection.images.image import find_format
from tfod.detection.images.source_ids import (
    LARGEST_FOR,
    SourceIdNumbers,
    find_last_number,
    former_source_id,
)
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.losses import ATTRIBUTES, ENCLOSED
from tfod.errors import TfodError, excerpt
from tfod.formats.layouts.roboflow import encode

_NOT_IN_ROBOFLOW = "not written, because Roboflow's records cannot store them"


class TfDetectionApiExporter(ShardExporter):
    """Writes ``<subset>.tfrecord`` files and ``label_map.pbtxt``, or Roboflow's folders.

    In the layout ``roboflow`` each subset has a folder with the shard and its label map. Records
    have Roboflow's eleven keys, and ids count from 1 in alphabetical order.
    """

    NAME = "tf_detection_api"
    DESCRIPTION = "TF Object Detection API shards and their label map."
    OPTIONS = (
        *("save_masks", "num_shards", "shard_size", "compression", "label_map", "label_key"),
        *("layout", "name", "receiver"),
    )
    LOSSES = (*OBJECT_LOSSES, _NOT_IN_ROBOFLOW)

    def __init__(self, extractor: Any, save_dir: str, **options: Any) -> None:
        super().__init__(extractor, save_dir, **options)
        self._is_roboflow = self._options.layout == ROBOFLOW
        if self._is_roboflow:
            self._layout = RoboflowLayout(save_dir, self._options)

    def _prepare(self, classes: ExportClasses) -> None:
        super()._prepare(classes)
        max_id = LARGEST_FOR.get(self._options.receiver)
        # Ids of all items, including those that will not be written.
        ids = (_get_id(item.attributes) for item in self._extractor)
        last = find_last_number((str(value) for value in ids if value is not _NO_ID), max_id)
        self._numbers = SourceIdNumbers(max_id, lambda: last)
        self._new_ids = _map_ids(self._extractor.categories(), classes)

    def _assign_ids(self) -> ExportClasses:
        if self._is_roboflow and not self._options.label_map:
            labels = self._extractor.categories().get(compat.AnnotationType.label) or ()
            names = LabelMap.from_names(sorted(label.name for label in labels))
            return assign_ids(self._extractor.categories(), names)
        return super()._assign_ids()

    def _encode(self, item: Any) -> Iterable[bytes]:
        detection = self._make_detection(item)
        if self._is_roboflow:
            _count_lost(detection, self._losses[_NOT_IN_ROBOFLOW])
            return (encode(detection),)
        return (encode_detection(detection),)

    def _make_detection(self, item: Any) -> Detection:
        image = self._prepare_image(item)
        if image.size is None and any(
            shape.type not in IMAGE_LEVEL_TYPES for shape in item.annotations
        ):
            raise TfodError(
                f"item {excerpt(item.id)} has no image size, so its boxes cannot be normalized; "
                "give it an image or a size"
            )
        height, width = image.size or (None, None)
        encoded, filename = image.encoded, image.filename
        attributes = dict(item.attributes)
        source_id = self._take_source_id(attributes, filename)
        detection = self._objects.build(
            item.annotations,
            image.frame or (1, 1),
            filename=filename,
            source_id=source_id,
            format=find_format(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=height,
            width=width,
            encoded=encoded or b"",
            image_attributes=self._take_classes(attributes, filename) if attributes else {},
            image_extra=attributes,
        )
        if self._options.label_key == "id":
            detection = replace(detection, class_text=None)
        elif self._options.label_key == "text":
            detection = replace(detection, class_label=None)
        return image.rotate(detection)

    def _take_source_id(self, attributes: dict[str, Any], filename: str) -> str | None:
        """Remove the source id from attributes; return it, or a number instead."""
        value = _get_id(attributes)
        attributes.pop("source_id" if "source_id" in attributes else "id", None)
        source_id = None if value in (None, _NO_ID) else str(value)
        numbers = self._numbers
        is_kept = numbers.largest is None or (source_id is not None and numbers.keeps(source_id))
        if self._is_roboflow or (value is not _NO_ID and is_kept):  # Roboflow has no source id
            return source_id
        attributes |= former_source_id(source_id, filename)
        return numbers.next()

    def _take_classes(self, attributes: dict[str, Any], filename: str) -> dict[str, list[int]]:
        """Remove unsupported attributes, and those with their own keys; return lists of classes."""
        if attributes.get("filename") == filename:
            del attributes["filename"]
        image_attributes = {
            name: [self._new_ids.get(class_id, class_id) for class_id in attributes.pop(name)]
            for name in keys.IMAGE_ATTRIBUTES
            if name in attributes
        }
        for name in [name for name, value in attributes.items() if not is_attribute_value(value)]:
            del attributes[name]
            self._losses[ATTRIBUTES][f"{name} (of the image)"] += 1
        return image_attributes

    def _loss_sentences(self) -> list[str]:
        losses = super()._loss_sentences()
        if not (self._options.save_masks or self._is_roboflow):
            hint = " (--save-masks writes their masks too)"
            areas = ENCLOSED, OUTLINES
            losses = [loss + hint if loss.startswith(areas) else loss for loss in losses]
        return losses


def _count_lost(detection: Detection, lost: Counter[str]) -> None:
    for name, values in detection.attributes.items():
        lost[name] += sum(value not in EMPTY_VALUES for value in values)
    if detection.keypoints is not None:
        lost["keypoints"] += int((detection.keypoints.visibility > 0).sum())
    lost["classes of an image"] += len(detection.image_labels)
    lost["captions"] += len(detection.captions)
    count_image_attributes(lost, {**detection.image_attributes, **detection.image_extra})
    lost["source_id (of the image)"] += detection.source_id not in (None, detection.filename)


_NO_ID: Any = object()
"""Returned for an item without a source id; None is a source id that was read as missing."""


def _get_id(attributes: Mapping[str, Any]) -> Any:
    """Return the source id of an image, such as COCO's number."""
    return attributes.get("source_id", attributes.get("id", _NO_ID))


def _map_ids(categories: Any, classes: ExportClasses) -> dict[int, int]:
    """Map ids of the label map that the dataset was imported with to the written ids."""
    source = getattr(categories.get(compat.AnnotationType.label), "label_map", None)
    if source is None:
        return {}
    written = {item.text: item.label for item in classes.classes}
    pairs = (
        (item.id, written.get(name))
        for item in source.items
        for name in (item.display_name, item.class_name)
    )
    return {old: new for old, new in pairs if new is not None}
