"""The exporter: a Datumaro dataset to shards and their label map, or to Roboflow's folders."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.export_annotations import ATTRIBUTES, ENCLOSED, OBJECT_LOSSES, OUTLINES
from tfod.datumaro.exporter import EMPTY_VALUES, ShardExporter, count_image_attributes
from tfod.datumaro.formats.export_layouts import RoboflowLayout
from tfod.datumaro.formats.export_options import ROBOFLOW
from tfod.datumaro.media import OF_IMAGE
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
from tfod.errors import TfodError
from tfod.formats.layouts.roboflow import encode

_NO_PLACE = "not written, Roboflow's records have no place for them"


class TfDetectionApiExporter(ShardExporter):
    """Writes ``<subset>.tfrecord`` files and ``label_map.pbtxt``, or Roboflow's folders.

    In the layout ``roboflow`` each subset has a folder with the shard and its label map, records
    have Roboflow's eleven keys, and ids count from 1 in alphabetical order.

    Raises:
        DatasetExportError: something cannot be written; what was there before is unchanged.
    """

    NAME = "tf_detection_api"
    DESCRIPTION = "TF Object Detection API shards and their label map."
    OPTIONS = (
        *("save_masks", "num_shards", "shard_size", "compression", "label_map", "label_key"),
        *("layout", "name", "receiver"),
    )
    LOSSES = (*OBJECT_LOSSES, _NO_PLACE)

    def __init__(self, extractor: Any, save_dir: str, **options: Any) -> None:
        super().__init__(extractor, save_dir, **options)
        self._is_roboflow = self._options.layout == ROBOFLOW
        if self._is_roboflow:
            self._layout = RoboflowLayout(save_dir, self._options)

    def _prepare(self, classes: ExportClasses) -> None:
        super()._prepare(classes)
        largest = LARGEST_FOR.get(self._options.receiver)
        # Of all items, also those that are not written.
        own = (_own_id(item.attributes) for item in self._extractor)
        last = find_last_number((str(one) for one in own if one is not _NO_ID), largest)
        self._numbers = SourceIdNumbers(largest, lambda: last)
        self._new_ids = _new_ids(self._extractor.categories(), classes)

    def _export_classes(self) -> ExportClasses:
        if self._is_roboflow and not self._options.label_map:
            labels = self._extractor.categories().get(compat.AnnotationType.label) or ()
            names = LabelMap.from_names(sorted(label.name for label in labels))
            return export_classes(self._extractor.categories(), names)
        return super()._export_classes()

    def _payloads(self, item: Any) -> Iterable[bytes]:
        detection = self._detection(item)
        if self._is_roboflow:
            _count_lost(detection, self._losses[_NO_PLACE])
            return (encode(detection),)
        return (encode_detection(detection),)

    def _detection(self, item: Any) -> Detection:
        image = self._image(item)
        if image.size is None and any(one.type not in OF_IMAGE for one in item.annotations):
            raise TfodError(
                f"item {item.id!r:.81} has no image size, so its boxes cannot be normalized; "
                "give it an image or a size"
            )
        height, width = image.size or (None, None)
        encoded, filename = image.encoded, image.filename
        attributes = dict(item.attributes)
        source_id = self._source_id(attributes, filename)
        found = self._objects.build(
            item.annotations,
            image.frame or (1, 1),
            filename=filename,
            source_id=source_id,
            format=find_format(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=height,
            width=width,
            encoded=encoded or b"",
            image_attributes=self._take_known(attributes, filename) if attributes else {},
            image_extra=attributes,
        )
        if self._options.label_key == "id":
            found = replace(found, class_text=None)
        elif self._options.label_key == "text":
            found = replace(found, class_label=None)
        return image.place(found)

    def _source_id(self, attributes: dict[str, Any], filename: str) -> str | None:
        """What the image had, or a number; the former is kept in an attribute.

        Takes it out of the attributes.
        """
        found = _own_id(attributes)
        attributes.pop("source_id" if "source_id" in attributes else "id", None)
        own = None if found in (None, _NO_ID) else str(found)
        numbers = self._numbers
        stays = numbers.largest is None or (own is not None and numbers.keeps(own))
        if self._is_roboflow or (found is not _NO_ID and stays):  # whose records have none
            return own
        attributes |= former_source_id(own, filename)
        return numbers.next()

    def _take_known(self, attributes: dict[str, Any], filename: str) -> dict[str, list[int]]:
        """Take what has a key of its own out of an image's attributes; return lists of classes.

        What the format cannot carry goes, too, and is counted.
        """
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
            losses = [one + hint if one.startswith(areas) else one for one in losses]
        return losses


def _count_lost(detection: Detection, lost: Counter[str]) -> None:
    """Count what those keys do not hold."""
    for name, values in detection.attributes.items():
        lost[name] += sum(value not in EMPTY_VALUES for value in values)
    if detection.keypoints is not None:
        lost["keypoints"] += int((detection.keypoints.visibility > 0).sum())
    lost["classes of an image"] += len(detection.image_labels)
    lost["captions"] += len(detection.captions)
    count_image_attributes(lost, {**detection.image_attributes, **detection.image_extra})
    lost["source_id (of the image)"] += detection.source_id not in (None, detection.filename)


_NO_ID: Any = object()
"""Of an item; None is a source id that it had and that was not written."""


def _own_id(attributes: Mapping[str, Any]) -> Any:
    """What the source had as id of an image: COCO's number, or what a shard said."""
    return attributes.get("source_id", attributes.get("id", _NO_ID))


def _new_ids(categories: Any, classes: ExportClasses) -> dict[int, int]:
    """Which id of the label map that the dataset came with becomes which."""
    source = getattr(categories.get(compat.AnnotationType.label), "label_map", None)
    if source is None:
        return {}
    written = {one.text: one.label for one in classes.classes}
    pairs = (
        (item.id, written.get(name))
        for item in source.items
        for name in (item.display_name, item.class_name)
    )
    return {old: new for old, new in pairs if new is not None}
