"""``tf_keras_coco`` and ``tf_image_classification``: records of other keys, each with its image.

Sources: keras.io/examples/keras_recipes/creating_tfrecords, which has a record for each annotation;
tensorflow.org/tutorials/load_data/tfrecord, which has an image with one label.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from tfod.datumaro.categories import ExportClasses
from tfod.datumaro.dataset_base import TfDetectionApiBase
from tfod.datumaro.export_annotations import (
    ATTRIBUTES,
    ENCLOSED,
    NOT_CARRIED,
    OUTLINES,
    OUTSIDE,
    ExportedObject,
    ObjectBuilder,
)
from tfod.datumaro.exporter import EMPTY_VALUES, NO_CLASS, ShardExporter, count_image_attributes
from tfod.datumaro.formats.export_layouts import LabelsLayout, RecipeLayout
from tfod.detection.box_geometry import to_pixel_corners
from tfod.detection.detections import Detections
from tfod.detection.encoder import KerasAnnotation, encode_keras_annotations, encode_labelled_image
from tfod.detection.features.field_mapping import KERAS_COCO, FieldMapping
from tfod.detection.losses import LossCounter
from tfod.errors import ShardError, TfodError
from tfod.example.example import Example
from tfod.sources.reading import ReadableShards

# Of images: carried by the record, or made anew.
_KNOWN_OF_IMAGES = frozenset(("id", "filename", "source_id"))
_WITHOUT_OBJECTS = "images without an object, for which there is no record"
_NOT_WRITTEN, _ONE_LABEL = "not written", "not written, a record has one label"
_WITHOUT_LABEL = f"without a label, written as {NO_CLASS}"


class KerasCocoBase(TfDetectionApiBase):
    """Shards of the Keras recipe. The records of an image become one item, wherever they are."""

    NAME = "tf_keras_coco"
    FIELD_MAPPING: ClassVar[FieldMapping | None] = KERAS_COCO


class KerasCocoExporter(ShardExporter):
    """Writes ``file_00-4096.tfrec``, of a subset ``train_00-4096.tfrec``, and the label map."""

    NAME = "tf_keras_coco"
    DESCRIPTION = "Shards of the Keras recipe, one record an annotation."
    ALWAYS_IMAGES = True
    LAYOUT = RecipeLayout
    UNLABELLED = f"without a class, written as category {NO_CLASS}"
    HAS_TEXTS = False
    LOSSES = (NOT_CARRIED, ENCLOSED, OUTLINES, OUTSIDE, _WITHOUT_OBJECTS, _NOT_WRITTEN,
              ATTRIBUTES, UNLABELLED)  # fmt: skip

    def _prepare(self, classes: ExportClasses) -> None:
        """See whether images, and objects, have ids, each once in its subset; else count them."""
        super()._prepare(classes)
        builder = ObjectBuilder(classes, False, lambda reason: None, LossCounter(), "")
        images, objects = [], []
        for item in self._extractor:
            images.append((item.subset, _image_id(item)))
            with contextlib.suppress(TfodError):  # stated when the item is written
                found, _ = builder.objects(item.annotations)
                objects += [(item.subset, one.id) for one in found]
        self._keeps_images = _are_ids(images)
        # Datumaro has 0 for an object without an id, so one 0 is an id where others have some.
        self._keeps_objects = _are_ids(objects) and any(number for _, number in objects)
        self._images_done = self._objects_done = 0

    def _payloads(self, item: Any) -> Iterable[bytes]:
        found, image_labels = self._objects.objects(item.annotations)
        self._losses[_WITHOUT_OBJECTS][""] += not found
        self._losses[_NOT_WRITTEN]["class of the whole image"] += len(image_labels)
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _KNOWN_OF_IMAGES)
        self._images_done += 1
        if not found:
            return ()
        image = self._image(item)
        objects = image.place(self._objects.assemble(found, image.frame or (1, 1)))
        self._losses[_NOT_WRITTEN]["points"] += sum(one.points is not None for one in found)
        for name, values in objects.attributes.items():
            carried = (v in EMPTY_VALUES or (name == "area" and _is_number(v)) for v in values)
            self._losses[ATTRIBUTES][name] += sum(not one for one in carried)
        image_id = _image_id(item) if self._keeps_images else self._images_done
        annotations = []
        corners, _ = to_pixel_corners(objects.boxes, image.size or (1, 1))
        labels = objects.class_label or ()
        for one, box, label in zip(found, corners.tolist(), labels, strict=True):
            self._objects_done += 1
            number = one.id if self._keeps_objects else self._objects_done
            annotations.append(KerasAnnotation.of(number, label, box, _area(one)))
        return encode_keras_annotations(image.encoded or b"", image.filename, image_id, annotations)


def _are_ids(found: list[tuple[str, int]]) -> bool:
    return len(set(found)) == len(found) and all(number >= 0 for _, number in found)


def _image_id(item: Any) -> int:
    number = item.attributes.get("id")
    return number if isinstance(number, int) else -1


def _area(one: ExportedObject) -> float | None:
    """Return COCO's area: the attribute's, or that of the outline; None for that of the box."""
    if _is_number(one.attributes.get("area")):
        return float(one.attributes["area"])
    if one.outlines:
        return float(sum(part.get_area() for part in one.outlines))
    is_box = one.shape is None or one.shape.type.name == "bbox"
    return None if is_box else float(one.shape.get_area())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class ImageClassificationBase(TfDetectionApiBase):
    """Shards of images with a label; which keys they have shows in the first record with
    an image and a label.

    Names of the classes come from ``labels.txt`` beside the shards or one folder up, else from a
    label map there, else from the records.
    """

    NAME = "tf_image_classification"
    FIRST_ID = 0

    def _mapping_of(self, shards: ReadableShards, path: str) -> FieldMapping | None:
        mapping = super()._mapping_of(shards, path)
        return mapping if mapping and not mapping.box else None

    def _is_of_format(self, found: Detections) -> np.ndarray:
        return np.full(len(found), self._field_mapping is not None)

    def _refuse_format(self, example: Example) -> TfodError:
        there = ", ".join(sorted(example)[:6]) or "no features"
        return ShardError(
            f"is not a classification shard: record {example.record.number} holds {there}; "
            "expected an image under image_raw, image or image_bytes and its label, an integer "
            "or a text, under label or class",
            shard=example.shard,
            fix="read it as tf_detection_api with a profile that says what its keys are",
        )


class ImageClassificationExporter(ShardExporter):
    """Writes ``<subset>.tfrecord`` files and ``labels.txt``; ``profile`` says with which keys."""

    NAME = "tf_image_classification"
    DESCRIPTION = "Shards of images with one label each."
    OPTIONS = ("profile", "num_shards", "shard_size", "compression", "label_map")
    FIRST_ID = 0
    ALWAYS_IMAGES = True
    LOSSES = (_ONE_LABEL, ATTRIBUTES, _WITHOUT_LABEL)

    LAYOUT = LabelsLayout

    def _payloads(self, item: Any) -> Iterable[bytes]:
        image = self._image(item)
        if image.size is None:
            raise TfodError(f"item {item.id!r:.81} has an image of unknown size")
        labels = [one for one in item.annotations if one.type.name == "label"]
        others = [one.type.name for one in item.annotations if one.type.name != "label"]
        self._losses[_ONE_LABEL].update([*others, *["further label"] * (len(labels) - 1)])
        self._losses[ATTRIBUTES].update(name for one in labels[:1] for name in one.attributes)
        self._losses[_WITHOUT_LABEL][""] += not labels
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _KNOWN_OF_IMAGES)
        label = self._classes.of(labels[0].label).label if labels else NO_CLASS
        data, name = image.encoded or b"", image.filename
        return (encode_labelled_image(self._options.profile, data, name, image.size, label),)
