"""The exporter: a Datumaro dataset to shards and their label map."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.export_annotations import ATTRIBUTES, ENCLOSED, OBJECT_LOSSES, OUTLINES
from tfod.datumaro.exporter import OF_IMAGE, ShardExporter
from tfod.datumaro.formats.roboflow import LOST, RoboflowLayout
from tfod.datumaro.options import DEFAULT_NAME, ROBOFLOW
from tfod.detection import keys
from tfod.detection.attributes import is_attribute_value
from tfod.detection.detection import Detection
from tfod.detection.encoder import encode_detection
from tfod.detection.images.image import format_name
from tfod.detection.images.source_ids import (
    LARGEST_FOR,
    SourceIdNumbers,
    former_source_id,
    last_before_free,
)
from tfod.detection.labels.label_map import LabelMap, comment_on_empty
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.errors import TfodError


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
    LOSSES = (*OBJECT_LOSSES, LOST)

    def __init__(self, extractor: Any, save_dir: str, **options: Any) -> None:
        super().__init__(extractor, save_dir, **options)
        self._roboflow: RoboflowLayout | None = None
        if self._options.layout == ROBOFLOW:
            name = self._options.name or DEFAULT_NAME
            self._roboflow = RoboflowLayout(save_dir, name, self._losses[LOST])

    @property
    def can_stream(self) -> bool:
        """The dataset is walked through once, one image at a time."""
        return True

    def _prepare(self, classes: ExportClasses) -> None:
        super()._prepare(classes)
        largest, last = LARGEST_FOR.get(self._options.receiver), 0
        if not self._is_stream:  # which is walked through only once
            # Of all items, also those that are not written.
            own = (str(_own_id(item.attributes)) for item in self._extractor)
            last = last_before_free(own, largest)
        self._numbers = SourceIdNumbers(largest, lambda: last)
        self._new_ids = _new_ids(self._extractor.categories(), classes)

    @property
    def _is_stream(self) -> bool:
        return bool(getattr(self._extractor, "is_stream", False))

    def _texts(self) -> dict[str, str]:
        label_map = self._classes.label_map
        if self._roboflow:  # has no folder for a subset without images
            return self._roboflow.texts(label_map, self._writers)
        return {LABEL_MAP_FILE: label_map.to_text(comment_on_empty(self._add_empty_subsets()))}

    def _add_empty_subsets(self) -> list[str]:
        """Subsets without an image get a shard too, and are remembered as empty on purpose."""
        if self._is_stream:
            return []
        names = self._extractor.subsets() if self._changed is None else self._changed
        empty = [name for name in names if name not in self._writers]
        for name in empty:
            self._writer(name)
        return empty

    def _place(self, subset: str) -> tuple[str, str]:
        if self._roboflow:
            return self._roboflow.place(subset, self._writers)
        return super()._place(subset)

    def _own_shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        if self._roboflow:
            return self._roboflow.shards(subsets)
        return super()._own_shards(subsets)

    def _export_classes(self) -> ExportClasses:
        if self._roboflow and not self._options.label_map:
            labels = self._extractor.categories().get(compat.AnnotationType.label) or ()
            names = LabelMap.from_names(sorted(label.name for label in labels))
            return export_classes(self._extractor.categories(), names)
        return super()._export_classes()

    def _payloads(self, item: Any) -> Iterable[bytes]:
        detection = self._detection(item)
        if self._roboflow:
            return (self._roboflow.encode(detection, item.subset),)
        return (encode_detection(detection),)

    def _detection(self, item: Any) -> Detection:
        image = self._image(item)
        if image.size is None and any(one.type not in OF_IMAGE for one in item.annotations):
            raise TfodError(
                f"item {item.id!r} has no image size, so its boxes cannot be normalized; "
                "give it an image or a size"
            )
        height, width = image.size or (None, None)
        encoded, filename = image.encoded, image.filename
        objects = image.place(self._objects.build(item.annotations, image.frame or (1, 1)))
        if self._options.label_key == "id":
            objects = replace(objects, class_text=None)
        elif self._options.label_key == "text":
            objects = replace(objects, class_label=None)
        attributes = dict(item.attributes)
        source_id = self._source_id(attributes, filename)
        return replace(
            objects,
            filename=filename,
            source_id=source_id,
            format=format_name(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=height,
            width=width,
            encoded=encoded or b"",
            image_attributes=self._take_known(attributes, filename) if attributes else {},
            image_extra=attributes,
        )

    def _source_id(self, attributes: dict[str, Any], filename: str) -> str | None:
        """What the image had, or a number; the former is kept in an attribute.

        Takes it out of the attributes.
        """
        found = _own_id(attributes)
        attributes.pop("source_id" if "source_id" in attributes else "id", None)
        own = None if found in (None, _NO_ID) else str(found)
        numbers = self._numbers
        stays = numbers.largest is None or (own is not None and numbers.stays(own))
        if self._roboflow or (found is not _NO_ID and stays):  # whose records have none
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
        if not (self._options.save_masks or self._roboflow):
            hint = " (--save-masks writes their masks too)"
            areas = ENCLOSED, OUTLINES
            losses = [one + hint if one.startswith(areas) else one for one in losses]
        return losses


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
