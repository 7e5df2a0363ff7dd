"""Shards of the Keras recipe for COCO: one record per object, each with the image.

Source: keras.io/examples/keras_recipes/creating_tfrecords.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tfod.detection.box_geometry import to_pixel_corners
from tfod.detection.detection import Detection
from tfod.detection.encoder import KerasAnnotation, encode_keras_annotations
from tfod.detection.images.source_ids import FORMER, LARGEST_INT64
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.losses import UNSUPPORTED
from tfod.errors import TfodError, excerpt
from tfod.formats import tfrecord as shards
from tfod.formats.dataset import Dataset
from tfod.formats.format_writer import SOURCE_ID
from tfod.formats.options import Options
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.shard_sets.shard_names import RECIPE_RECORDS
from tfod.tfrecord.writer import ShardLayout

WITHOUT_OBJECTS = "images not written, because each record needs an object"


class Writer(shards.Writer):
    """Writes ``file_00-4096.tfrec``, or ``train_00-4096.tfrec`` for a subset, and the label map.

    Images keep numeric source ids, as in COCO; other images and all objects are numbered.
    """

    LAYOUT = "keras_coco"
    SUPPORTED = frozenset(("area", SOURCE_ID))

    def __init__(
        self, output: OutputFolder, folder: str, name: str, dataset: Dataset, options: Options
    ) -> None:
        options = replace(options, largest_source_id=LARGEST_INT64)
        super().__init__(output, folder, name, dataset, options)
        self._annotation_ids = itertools.count(1)
        self._names_by_id: dict[tuple[str, int], str] = {}

    def begin(self, subset: str) -> None:
        """Do nothing: the first record begins a subset; subsets without records have no file."""

    def _encode(self, subset: str, detection: Detection, payload: bytes) -> Iterable[bytes]:
        name, image_id = detection.filename or "", int(detection.source_id or 0)
        other = self._names_by_id.setdefault((subset, image_id), name)
        if other != name:
            raise TfodError(
                f"the images {excerpt(other)} and {excerpt(name)} have the same id, {image_id}, "
                "so readers would join them; correct their source ids"
            )
        self.losses[UNSUPPORTED][SOURCE_ID] += FORMER in detection.image_extra
        self.losses[WITHOUT_OBJECTS][""] += not len(detection.boxes)
        if not len(detection.boxes):
            return ()
        if not detection.encoded:
            hint = "; remove --no-images" if self._options.no_images else ""
            raise TfodError(
                f"image {excerpt(name)} is missing, but keras_coco records need it{hint}"
            )
        if subset not in self._writers:
            layout = ShardLayout(shard_records=RECIPE_RECORDS)
            self._writers[subset] = self._output.add_subset(subset, layout)
        encoded = bytes(detection.encoded)
        return encode_keras_annotations(encoded, name, image_id, self._annotations(detection))

    def finish(self, label_map: LabelMap) -> None:
        if not self._writers:
            raise TfodError("no image has an object, but each keras_coco record needs one")
        super().finish(label_map)

    def _annotations(self, detection: Detection) -> Iterator[KerasAnnotation]:
        size = detection.height or 1, detection.width or 1
        boxes = to_pixel_corners(detection.boxes, size)[0].tolist()
        areas = detection.attributes.get("area") or [None] * len(boxes)
        for box, label, value in zip(boxes, detection.class_label or (), areas, strict=True):
            area = float(value) if isinstance(value, (int, float)) else None
            yield KerasAnnotation.of(next(self._annotation_ids), label, box, area)
