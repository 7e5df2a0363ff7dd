"""Shards of the Keras recipe for COCO: a record for each object, with its image.

Source: keras.io/examples/keras_recipes/creating_tfrecords.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tfod.detection.box_geometry import to_pixel_corners
from tfod.detection.detection import Detection
from tfod.detection.encoder import KerasAnnotation, encode_keras_annotations
from tfod.detection.images.source_ids import FORMER, LARGEST_INT64
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats import tfrecord as shards
from tfod.formats.dataset import Dataset
from tfod.formats.format_writer import NO_PLACE, SOURCE_ID
from tfod.formats.options import Options
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.shard_sets.shard_names import RECIPE_RECORDS, recipe_file_names
from tfod.tfrecord.writer import ShardLayout

WITHOUT_OBJECTS = "images without an object, for which there is no record"


class Writer(shards.Writer):
    """Writes ``file_00-4096.tfrec``, of a subset ``train_00-4096.tfrec``, and the label map.

    An image keeps a source id that is a number, as COCO's are. Other images and all objects are
    numbered in their order.
    """

    LAYOUT = "keras_coco"
    CARRIES = frozenset(("area", SOURCE_ID))

    def __init__(
        self, output: OutputFolder, folder: str, name: str, dataset: Dataset, options: Options
    ) -> None:
        options = replace(options, largest_source_id=LARGEST_INT64)
        super().__init__(output, folder, name, dataset, options)
        self._annotations = itertools.count(1)
        self._names_by_id: dict[tuple[str, int], str] = {}

    def begin(self, subset: str) -> None:
        """Leave it to the first record: a subset without one has no file."""

    def _begin(self, subset: str) -> None:
        def name_files(count: int) -> Sequence[str]:
            writer = self._writers.get(subset)
            return recipe_file_names(subset, count, writer.count if writer else 0)

        layout = ShardLayout(shard_records=RECIPE_RECORDS)
        self._writers[subset] = self._output.add_subset(subset, layout, name_files)

    def _records(self, subset: str, one: Detection, payload: bytes) -> Iterable[bytes]:
        name, image_id = one.filename or "", int(one.source_id or 0)
        other = self._names_by_id.setdefault((subset, image_id), name)
        if other != name:
            raise TfodError(
                f"the images {other!r} and {name!r} have the number {image_id}, by which readers "
                "would join them; correct their source ids"
            )
        self.losses[NO_PLACE][SOURCE_ID] += FORMER in one.image_extra
        self.losses[WITHOUT_OBJECTS][""] += not len(one.boxes)
        if not len(one.boxes):
            return ()
        if not one.encoded:
            hint = "; leave out --no-images" if self._options.no_images else ""
            raise TfodError(f"image {name!r} is missing, which records of keras_coco hold{hint}")
        if subset not in self._writers:
            self._begin(subset)
        return encode_keras_annotations(bytes(one.encoded), name, image_id, self._objects(one))

    def finish(self, label_map: LabelMap) -> None:
        if not self._writers:
            raise TfodError("no image has an object, and keras_coco has a record for each object")
        super().finish(label_map)

    def _objects(self, one: Detection) -> Iterator[KerasAnnotation]:
        corners, _ = to_pixel_corners(one.boxes, (one.height or 1, one.width or 1))
        areas = one.attributes.get("area") or [None] * len(corners)
        for box, label, area in zip(corners.tolist(), one.class_label or (), areas, strict=True):
            known = float(area) if isinstance(area, (int, float)) else None
            yield KerasAnnotation.of(next(self._annotations), label, box, known)
