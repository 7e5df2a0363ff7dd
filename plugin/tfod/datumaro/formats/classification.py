"""``tf_image_classification``: images with one label each, in the keys that are usual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses
from tfod.datumaro.export_annotations import ATTRIBUTES
from tfod.datumaro.exporter import NO_CLASS, ShardExporter, count_image_attributes
from tfod.datumaro.images import media_size
from tfod.datumaro.importer import ShardImporter, first_example
from tfod.datumaro.reader import CountedShardsBase
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.encoder import encode_labelled_image
from tfod.detection.features.field_mapping import FieldMapping, classification_field_mapping
from tfod.detection.labels.labels_file import labels_text
from tfod.errors import ShardError, TfodError
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.tfrecord.label_files import LABELS_FILE, LabelMapFinder, find_labels
from tfod.tfrecord.storage.urls import folder_of

# What follows from the image, or from the label: channels, size, a vector of zeros and a one.
_REPEATING = frozenset(("depth", "channels", "format", "colorspace", "size", "one_hot_class"))
_ONE_LABEL = "not written, a record has one label"
_WITHOUT_LABEL = f"without a label, written as {NO_CLASS}"
_KNOWN_OF_IMAGES = frozenset(("id", "filename", "source_id"))


class ImageClassificationBase(CountedShardsBase):
    """Shards of images with a label; which keys they have shows in the first record.

    Names of the classes come from ``labels.txt`` beside the shards or one folder up, else from a
    label map there, else from the records.
    """

    NAME = "tf_image_classification"
    FIRST_ID = 0

    def _find_label_map(
        self, shard: str, finder: LabelMapFinder
    ) -> tuple[str | None, Sequence[str]]:
        labels = find_labels(folder_of(shard))
        return (labels, ()) if labels else super()._find_label_map(shard, finder)

    def _detections(self, examples: ExampleBatch) -> Detections:
        first = next((row for row in range(len(examples)) if row not in examples.refused), None)
        if self._field_mapping is None and first is not None:
            self._field_mapping = classification_field_mapping(Example(examples, first))
        return Detections(examples, self._field_mapping or FieldMapping(), _REPEATING)

    def _is_of_format(self, found: Detections) -> np.ndarray:
        return np.full(len(found), self._field_mapping is not None)

    def _refuse_format(self, example: Example) -> TfodError:
        there = ", ".join(sorted(example)[:6]) or "no features"
        return ShardError(
            f"is not a classification shard: record {example.record.number} holds {there}; "
            "expected an image under image_raw, image or image_bytes and its label under "
            "label or class",
            shard=example.shard,
            fix="read it as tf_detection_api with a profile that says what its keys are",
        )


class ImageClassificationImporter(ShardImporter):
    """Shards of images with a label: a file, a folder, a glob."""

    NAME = "tf_image_classification"

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Take what has an image and a label under the usual keys, and none of the OD API's."""
        example = first_example(context.root_path)
        is_other = example is None or not keys.KNOWN_KEYS.isdisjoint(example)
        if example is None or is_other or classification_field_mapping(example) is None:
            context.fail("there must be TFRecord shards with an image and its label")
        return compat.FormatDetectionConfidence.MEDIUM


class ImageClassificationExporter(ShardExporter):
    """Writes ``<subset>.tfrecord`` files and ``labels.txt``.

    Images are always written: a record needs one. The option ``profile`` says which keys to write,
    ``image_classification`` or ``image_label``.
    """

    NAME = "tf_image_classification"
    DESCRIPTION = "Shards of images with one label each."
    OPTIONS = ("profile", "num_shards", "shard_size", "compression", "label_map")
    FIRST_ID = 0
    ALWAYS_IMAGES = True
    LOSSES = (_ONE_LABEL, ATTRIBUTES, _WITHOUT_LABEL)

    @property
    def can_stream(self) -> bool:
        """The dataset is walked through once, one image at a time."""
        return True

    def _prepare(self, classes: ExportClasses) -> None:
        super()._prepare(classes)
        self._names = labels_text(classes.label_map.items)  # may refuse, better now than at the end

    def _texts(self) -> dict[str, str]:
        return {LABELS_FILE: self._names}

    def _payloads(self, item: Any) -> Iterable[bytes]:
        media, encoded = self._images.required(item)
        size = media_size(media, encoded)
        if size is None:
            raise TfodError(f"item {item.id!r} has an image of unknown size")
        label = self._label(item)
        name = self._images.filename(item, media, encoded)
        return (encode_labelled_image(self._options.profile, encoded, name, size, label),)

    def _label(self, item: Any) -> int:
        """The id of the first label; what else there is, is counted."""
        labels = [one for one in item.annotations if one.type.name == "label"]
        self._losses[_ONE_LABEL].update(
            one.type.name for one in item.annotations if one.type.name != "label"
        )
        self._losses[_ONE_LABEL]["further label"] += max(len(labels) - 1, 0)
        for one in labels[:1]:
            self._losses[ATTRIBUTES].update(list(one.attributes))
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _KNOWN_OF_IMAGES)
        if not labels:
            self._losses[_WITHOUT_LABEL][""] += 1
            return NO_CLASS
        return self._classes.of(labels[0].label).label
