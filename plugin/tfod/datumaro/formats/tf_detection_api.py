"""The exporter: a Datumaro dataset to shards and their label map."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.export_annotations import (
    ATTRIBUTES,
    ENCLOSED,
    OBJECT_LOSSES,
    OUTLINES,
)
from tfod.datumaro.exporter import OF_IMAGE, ShardExporter, came_from, text_without_comments
from tfod.datumaro.formats.roboflow import LOST, RoboflowLayout
from tfod.datumaro.options import DEFAULT_NAME, LabelKey, Layout
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
from tfod.example.columns import ExampleBatch
from tfod.example.wire import Kind
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import read_record_batches, shard_compression

# Options that change shards whose images did not change.
_LAYOUT_OPTIONS = frozenset(
    (
        *("num_shards", "shard_size", "compression", "label_key", "save_masks", "image_ext"),
        *("layout", "name", "receiver"),
    )
)


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
        if self._options.layout is Layout.ROBOFLOW:
            self._roboflow = RoboflowLayout(
                save_dir, self._options.name or DEFAULT_NAME, self._losses[LOST]
            )
        self._changed: Collection[str] | None = None  # subsets that are written; None for all

    @property
    def can_stream(self) -> bool:
        """The dataset is walked through once, one image at a time."""
        return True

    def _prepare(self, classes: ExportClasses) -> None:
        super()._prepare(classes)
        largest = LARGEST_FOR.get(self._options.receiver.value)
        last = self._last_source_id(largest)
        self._numbers = SourceIdNumbers(largest, lambda: last)
        self._new_ids = _new_ids(self._extractor.categories(), classes)

    def _last_source_id(self, largest: int | None) -> int:
        """Of all items, also those that are not written; a stream is walked through only once."""
        if getattr(self._extractor, "is_stream", False):
            return 0
        own = (str(_own_id(item.attributes)) for item in self._extractor)
        return last_before_free(own, largest)

    def _texts(self) -> dict[str, str]:
        label_map = self._classes.label_map
        if self._roboflow:  # has no folder for a subset without images
            return self._roboflow.texts(label_map, self._writers)
        return {LABEL_MAP_FILE: label_map.to_text(comment_on_empty(self._add_empty_subsets()))}

    def _own_shards(self, folder: str) -> dict[str, list[str]]:
        if self._roboflow:
            return self._roboflow.shards(self._writers)
        return super()._own_shards(folder)

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write the subsets that changed over the shards that the dataset came from.

        Shards of subsets that are gone go too. Everything is written anew, in our own layout,
        where the folder has another one, the classes changed, or other options are given.
        Where the shards that are replaced hold images, the new ones do, asked for or not: they
        may be the only place that has them.
        """
        exporter = cls(dataset, save_dir, **options)
        present = list(dataset.subsets())
        gone = [name for name in patch.updated_subsets if name not in present]
        if exporter._roboflow:
            ours = exporter._roboflow.shards([*present, *gone])
        else:
            ours = exporter._own_shards(save_dir)
        sources = came_from(dataset, save_dir)
        before = {*sources, *(path for paths in ours.values() for path in paths)}
        if not exporter._images.save_media and _hold_images(before):
            exporter._images = replace(exporter._images, save_media=True)
        if (
            any(path not in ours.get(subset, ()) for path, subset in sources.items())
            or _LAYOUT_OPTIONS & options.keys()
            or exporter._label_map_would_change()
        ):
            changed = present
        else:
            changed = [name for name in patch.updated_subsets if name in present]
        exporter._changed = changed
        if not _LAYOUT_OPTIONS & options.keys():
            exporter._layouts = {name: _layout_of(ours[name]) for name in changed if name in ours}
        stale = {path for path, subset in sources.items() if subset in {*changed, *gone}}
        if exporter._roboflow:  # has no folder for a subset that has become empty
            gone += present
        stale.update(path for name in gone for path in ours.get(name, ()))
        exporter._stale = stale
        exporter.apply()

    def _export_classes(self) -> ExportClasses:
        if self._roboflow and not self._options.label_map:
            labels = self._extractor.categories().get(compat.AnnotationType.label) or ()
            names = LabelMap.from_names(sorted(label.name for label in labels))
            return export_classes(self._extractor.categories(), names)
        classes = super()._export_classes()
        if self._options.label_key is LabelKey.ID:  # without a text, 0 could be a class
            return replace(classes, unlabelled_id=-1)
        return classes

    def _label_map_would_change(self) -> bool:
        path = os.path.join(self._save_dir, LABEL_MAP_FILE)
        wanted = self._export_classes().label_map.to_text()
        return text_without_comments(path) != wanted

    def _place(self, subset: str) -> tuple[str, str]:
        if not self._roboflow:
            return super()._place(subset)
        folder = self._roboflow.new_folder(subset, self._writers)
        return os.path.join(self._save_dir, folder), self._roboflow.name

    def _payloads(self, item: Any) -> Iterable[bytes]:
        if self._changed is not None and item.subset not in self._changed:
            return ()
        detection = self._detection(item)
        if self._roboflow:
            return (self._roboflow.encode(detection, item.subset),)
        return (encode_detection(detection),)

    def _add_empty_subsets(self) -> list[str]:
        """Subsets without an image get a shard too, and are remembered as empty on purpose."""
        if getattr(self._extractor, "is_stream", False):
            return []
        names = self._extractor.subsets() if self._changed is None else self._changed
        empty = [name for name in names if name not in self._writers]
        for name in empty:
            self._writer(name)
        return empty

    def _detection(self, item: Any) -> Detection:
        media = item.media if isinstance(item.media, compat.Image) else None
        encoded = self._images.encoded(item, media)
        filename = self._images.filename(item, media, encoded)
        image = self._upright(item, media, encoded, filename)
        encoded, size = image.encoded, image.size
        if size is None and any(one.type not in OF_IMAGE for one in item.annotations):
            raise TfodError(
                f"item {item.id!r} has no image size, so its boxes cannot be normalized; "
                "give it an image or a size"
            )
        objects = image.place(self._objects.build(item.annotations, image.frame or (1, 1)))
        if self._options.label_key is LabelKey.ID:
            objects = replace(objects, class_text=None)
        elif self._options.label_key is LabelKey.TEXT:
            objects = replace(objects, class_label=None)
        attributes = dict(item.attributes)
        source_id = _own_id(attributes)
        image_attributes = self._take_known(attributes, filename) if attributes else {}
        is_there = source_id not in (None, _NO_ID)
        if self._roboflow:  # whose records have none
            source_id = source_id if is_there else None
        elif source_id is _NO_ID or (
            self._numbers.largest is not None
            and not (is_there and self._numbers.stays(str(source_id)))
        ):
            attributes |= former_source_id(str(source_id) if is_there else None, filename)
            source_id = self._numbers.next()
        return replace(
            objects,
            filename=filename,
            source_id=None if source_id is None else str(source_id),
            format=format_name(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=size[0] if size else None,
            width=size[1] if size else None,
            encoded=encoded or b"",
            image_attributes=image_attributes,
            image_extra=attributes,
        )

    def _take_known(self, attributes: dict[str, Any], filename: str) -> dict[str, list[int]]:
        """Take what has a key of its own out of an image's attributes; return lists of classes.

        What the format cannot carry goes, too, and is counted.
        """
        if attributes.get("filename") == filename:
            del attributes["filename"]
        attributes.pop("source_id" if "source_id" in attributes else "id", None)
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


def _hold_images(paths: Iterable[str]) -> bool:
    """Whether any record of these shards has an image's bytes."""
    return any(
        ExampleBatch.of(records).column(keys.ENCODED, Kind.BYTES).values[:, 1].any()
        for path in paths
        if os.path.getsize(path)
        for records in read_record_batches(path)
    )


def _layout_of(paths: list[str]) -> tuple[int, Compression]:
    """Number of shards and compression of a subset that is to be written again."""
    with open(paths[0], "rb") as file:
        return len(paths), shard_compression(file.read(HEADER_BYTES))


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
