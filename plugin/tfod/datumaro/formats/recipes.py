"""``tf_keras_coco`` and ``tf_image_classification``, read: the reader of any shards, by their keys.

Sources: keras.io/examples/keras_recipes/creating_tfrecords, which has a record for each annotation;
tensorflow.org/tutorials/load_data/tfrecord, which has an image with one label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tfod.datumaro import compat
from tfod.datumaro.importer import ShardImporter, first_example
from tfod.datumaro.reader import TfDetectionApiBase
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import (
    KERAS_COCO,
    FieldMapping,
    classification_field_mapping,
    is_keras_coco,
)
from tfod.detection.labels.search import LabelMapFinder, find_labels
from tfod.errors import ShardError, TfodError
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.tfrecord.shard_sets.names import stated_name
from tfod.tfrecord.storage.urls import folder_of

# What follows from the image, or from the label: channels, size, a vector of zeros and a one.
_REPEATING = frozenset(("depth", "channels", "format", "colorspace", "size", "one_hot_class"))


class CountedShardsBase(TfDetectionApiBase):
    """Sees whether a shard has as many records as its name says."""

    def _note_length(self, shard: str, records: int) -> None:
        stated = stated_name(shard).records
        if stated not in (None, records):
            self._report.odd_lengths.append(
                f"{shard} has {records} records where its name says {stated}"
            )


class KerasCocoBase(CountedShardsBase):
    """Shards of the Keras recipe. The records of an image become one item, wherever they are."""

    NAME = "tf_keras_coco"
    FIELD_MAPPING: ClassVar[FieldMapping | None] = KERAS_COCO


class KerasCocoImporter(ShardImporter):
    """Shards of the Keras recipe: a file, a folder, a glob."""

    NAME = "tf_keras_coco"

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Take what has the recipe's features with their dtypes."""
        example = first_example(context.root_path)
        if example is None or not is_keras_coco(example):
            context.fail("there must be TFRecord shards with the features of the Keras recipe")
        return compat.FormatDetectionConfidence.MEDIUM


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
            "expected an image under image_raw, image or image_bytes and its label, an integer "
            "or a text, under label or class",
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
