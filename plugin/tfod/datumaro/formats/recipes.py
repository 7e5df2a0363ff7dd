"""The formats ``tf_keras_coco`` and ``tf_image_classification``, whose keys are not the OD API's.

Sources: keras.io/examples/keras_recipes/creating_tfrecords (a record per annotation);
tensorflow.org/tutorials/load_data/tfrecord (an image with one label).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from tfod.datumaro.categories import ExportClasses
from tfod.datumaro.dataset_base import TfDetectionApiBase
from tfod.datumaro.export_annotations import OUTLINES, OUTSIDE, ExportedObject, ObjectBuilder
from tfod.datumaro.exporter import EMPTY_VALUES, NO_CLASS, ShardExporter, count_image_attributes
from tfod.datumaro.formats.export_layouts import LabelsLayout, RecipeLayout
from tfod.detection.box_geometry import to_pixel_corners
from tfod.detection.detections import Detections
from tfod.detection.encoder import KerasAnnotation, encode_keras_annotations, encode_labelled_image
from tfod.detection.features.field_mapping import KERAS_COCO, FieldMapping
from tfod.detection.losses import ATTRIBUTES, ENCLOSED, UNSUPPORTED, LossCounter
from tfod.errors import ShardError, TfodError, excerpt
from tfod.example.example import Example
from tfod.formats.layouts.keras_coco import WITHOUT_OBJECTS
from tfod.sources.reading import ReadableShards

# Attributes of images that the record stores, or that are generated again.
_SUPPORTED = frozenset(("id", "filename", "source_id"))
_NOT_WRITTEN, _ONE_LABEL = "not written", "not written, because a record has only one label"
_WITHOUT_LABEL = f"without a label, written as {NO_CLASS}"


class KerasCocoBase(TfDetectionApiBase):
    """Shards of the Keras recipe. All records of an image become one item, in any order."""

    NAME = "tf_keras_coco"
    FIELD_MAPPING: ClassVar[FieldMapping | None] = KERAS_COCO


class KerasCocoExporter(ShardExporter):
    """Writes ``file_00-4096.tfrec`` or ``<subset>_00-4096.tfrec``, and the label map."""

    NAME = "tf_keras_coco"
    DESCRIPTION = "Shards of the Keras recipe, one record per annotation."
    ALWAYS_IMAGES = True
    LAYOUT = RecipeLayout
    UNLABELLED = f"without a class, written as category {NO_CLASS}"
    HAS_TEXTS = False
    LOSSES = (UNSUPPORTED, ENCLOSED, OUTLINES, OUTSIDE, WITHOUT_OBJECTS, _NOT_WRITTEN,
              ATTRIBUTES, UNLABELLED)  # fmt: skip

    def _prepare(self, classes: ExportClasses) -> None:
        """Check whether the ids of images and objects are unique; otherwise new ids are used."""
        super()._prepare(classes)
        builder = ObjectBuilder(classes, False, lambda reason: None, LossCounter(), "")
        images, objects = [], []
        for item in self._extractor:
            images.append((item.subset, _get_image_id(item)))
            with contextlib.suppress(TfodError):  # raised again when the item is written
                converted, _ = builder.convert(item.annotations)
                objects += [(item.subset, obj.id) for obj in converted]
        self._keeps_images = _are_ids(images)
        # 0 means no id in Datumaro, but is an id if other objects have ids.
        self._keeps_objects = _are_ids(objects) and any(number for _, number in objects)
        self._image_count = self._object_count = 0

    def _encode(self, item: Any) -> Iterable[bytes]:
        objects, image_labels = self._objects.convert(item.annotations)
        self._losses[WITHOUT_OBJECTS][""] += not objects
        self._losses[_NOT_WRITTEN]["class of the whole image"] += len(image_labels)
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _SUPPORTED)
        self._image_count += 1
        if not objects:
            return ()
        image = self._prepare_image(item)
        detection = image.rotate(self._objects.assemble(objects, image.frame or (1, 1)))
        self._losses[_NOT_WRITTEN]["points"] += sum(obj.points is not None for obj in objects)
        for name, values in detection.attributes.items():
            lost = [v for v in values if v not in EMPTY_VALUES]
            if name == "area":
                lost = [v for v in lost if not _is_number(v)]
            self._losses[ATTRIBUTES][name] += len(lost)
        image_id = _get_image_id(item) if self._keeps_images else self._image_count
        annotations = []
        corners, _ = to_pixel_corners(detection.boxes, image.size or (1, 1))
        labels = detection.class_label or ()
        for obj, box, label in zip(objects, corners.tolist(), labels, strict=True):
            self._object_count += 1
            number = obj.id if self._keeps_objects else self._object_count
            annotations.append(KerasAnnotation.of(number, label, box, _compute_area(obj)))
        return encode_keras_annotations(image.encoded or b"", image.filename, image_id, annotations)


def _are_ids(pairs: list[tuple[str, int]]) -> bool:
    return len(set(pairs)) == len(pairs) and all(number >= 0 for _, number in pairs)


def _get_image_id(item: Any) -> int:
    number = item.attributes.get("id")
    return number if isinstance(number, int) else -1


def _compute_area(obj: ExportedObject) -> float | None:
    """Return COCO's area: from the attribute or the outlines, or None for the area of the box."""
    if _is_number(obj.attributes.get("area")):
        return float(obj.attributes["area"])
    if obj.outlines:
        return float(sum(part.get_area() for part in obj.outlines))
    is_box = obj.shape is None or obj.shape.type.name == "bbox"
    return None if is_box else float(obj.shape.get_area())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class ImageClassificationBase(TfDetectionApiBase):
    """Shards of images with a label. The first record with both determines the keys.

    Class names come from ``labels.txt`` next to the shards or in the parent folder, else from a
    label map there, else from the records.
    """

    NAME = "tf_image_classification"
    FIRST_ID = 0

    def _find_mapping(self, shards: ReadableShards, path: str) -> FieldMapping | None:
        mapping = super()._find_mapping(shards, path)
        return mapping if mapping and not mapping.box else None

    def _has_format(self, detections: Detections) -> np.ndarray:
        return np.full(len(detections), self._field_mapping is not None)

    def _make_format_error(self, example: Example) -> TfodError:
        names = ", ".join(sorted(example)[:6]) or "no features"
        return ShardError(
            f"is not a classification shard: record {example.record.number} contains {names}; "
            "expected an image under image_raw, image or image_bytes and its label, an integer "
            "or a text, under label or class",
            shard=example.shard,
            fix="import it as tf_detection_api with a profile that lists its keys",
        )


class ImageClassificationExporter(ShardExporter):
    """Writes ``<subset>.tfrecord`` files and ``labels.txt``; ``profile`` determines the keys."""

    NAME = "tf_image_classification"
    DESCRIPTION = "Shards of images with one label each."
    OPTIONS = ("profile", "num_shards", "shard_size", "compression", "label_map")
    FIRST_ID = 0
    ALWAYS_IMAGES = True
    LOSSES = (_ONE_LABEL, ATTRIBUTES, _WITHOUT_LABEL)
    LAYOUT = LabelsLayout

    def _encode(self, item: Any) -> Iterable[bytes]:
        image = self._prepare_image(item)
        if image.size is None:
            raise TfodError(f"item {excerpt(item.id)} has an image of unknown size")
        labels = [label for label in item.annotations if label.type.name == "label"]
        shapes = [shape.type.name for shape in item.annotations if shape.type.name != "label"]
        self._losses[_ONE_LABEL].update([*shapes, *["further label"] * (len(labels) - 1)])
        self._losses[ATTRIBUTES].update(name for label in labels[:1] for name in label.attributes)
        self._losses[_WITHOUT_LABEL][""] += not labels
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _SUPPORTED)
        label = self._classes.get(labels[0].label).label if labels else NO_CLASS
        data, name = image.encoded or b"", image.filename
        return (encode_labelled_image(self._options.profile, data, name, image.size, label),)
