"""``tf_keras_coco`` and ``tf_image_classification``, written: each record with its image."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

from tfod.datumaro.categories import ExportClasses
from tfod.datumaro.export_annotations import (
    ATTRIBUTES,
    ENCLOSED,
    NOT_CARRIED,
    OUTLINES,
    OUTSIDE,
    ExportedObject,
    ObjectBuilder,
)
from tfod.datumaro.exporter import (
    EMPTY_VALUES,
    NO_CLASS,
    ShardExporter,
    count_image_attributes,
    shards_directly_in,
)
from tfod.datumaro.images import UprightImage
from tfod.detection.encoder import (
    KerasAnnotation,
    encode_keras_annotations,
    encode_labelled_image,
)
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import labels_text
from tfod.detection.labels.search import LABELS_FILE
from tfod.detection.losses import Losses
from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.names import EXTENSION, file_names
from tfod.tfrecord.writer import ShardSetWriter

_MOST = 4096  # records a file: n_samples of the recipe
_OWN = re.compile(r".+_\d\d+-\d+\.tfrec", re.DOTALL)  # others name the files of a subset otherwise
_WITHOUT_OBJECTS = "images without an object, for which there is no record"
_NOT_WRITTEN, _ONE_LABEL = "not written", "not written, a record has one label"
_WITHOUT_CLASS = f"without a class, written as category {NO_CLASS}"
_WITHOUT_LABEL = f"without a label, written as {NO_CLASS}"
# Of images: carried by the record, or made anew.
_KNOWN_OF_IMAGES = frozenset(("id", "filename", "source_id"))


class KerasCocoExporter(ShardExporter):
    """Writes ``file_00-4096.tfrec``, of a subset ``train_00-4096.tfrec``, and the label map."""

    NAME = "tf_keras_coco"
    DESCRIPTION = "Shards of the Keras recipe, one record an annotation."
    ALWAYS_IMAGES = True
    IN_PARTS = False  # numbers of images and objects are the dataset's
    LOSSES = (NOT_CARRIED, ENCLOSED, OUTLINES, OUTSIDE, _WITHOUT_OBJECTS, _NOT_WRITTEN,
              ATTRIBUTES, _WITHOUT_CLASS)  # fmt: skip

    def _prepare(self, classes: ExportClasses) -> None:
        """See whether images, and objects, have ids, each once in its subset; else count them."""
        super()._prepare(classes)
        builder = ObjectBuilder(classes, False, lambda reason: None, Losses())
        images, objects = [], []
        for item in self._extractor:
            images.append((item.subset, _image_id(item)))
            with contextlib.suppress(TfodError):  # stated when the item is written
                found, _ = builder.objects(item.annotations)
                objects += [(item.subset, _object_id(one)) for one in found]
        self._keeps_images = _are_ids(images)
        # Datumaro has 0 for an object without an id, so one 0 is an id where others have some.
        self._keeps_objects = _are_ids(objects) and any(number for _, number in objects)
        self._images_done = self._objects_done = 0

    def _make_writer(self, subset: str) -> ShardSetWriter:
        def name_files(count: int) -> list[str]:
            full = [_MOST] * (count - 1)
            done = self._writers[subset].count if subset in self._writers else 0
            return file_names(subset, [*full, done - sum(full)])

        return ShardSetWriter(self._save_dir, subset, shard_records=_MOST, name_files=name_files)

    def _own_shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        found = shards_directly_in(self._save_dir, EXTENSION)
        return {
            subset: [path for path in paths if _OWN.fullmatch(path)]
            for subset, paths in found.items()
        }

    def _payloads(self, item: Any) -> Iterable[bytes]:
        found, image_labels = self._objects.objects(item.annotations)
        self._losses[_WITHOUT_OBJECTS][""] += not found
        self._losses[_NOT_WRITTEN]["class of the whole image"] += len(image_labels)
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _KNOWN_OF_IMAGES)
        self._images_done += 1
        if not found:
            return ()
        image = self._image(item)
        image_id = _image_id(item) if self._keeps_images else self._images_done
        if image.frame is not None:
            self._objects.count_outside([one.corners for one in found], image.frame)
        annotations = [self._annotation(one, image) for one in found]
        return encode_keras_annotations(image.encoded or b"", image.filename, image_id, annotations)

    def _annotation(self, one: ExportedObject, image: UprightImage) -> KerasAnnotation:
        self._objects_done += 1
        self._losses[_WITHOUT_CLASS][""] += one.label is None
        self._losses[_NOT_WRITTEN]["points"] += one.points is not None
        for name, value in one.attributes.items():
            carried = value in EMPTY_VALUES or (name == "area" and _is_number(value))
            self._losses[ATTRIBUTES][name] += not carried
        left, top, right, bottom = image.corners(one.corners)
        # Rounded as Datumaro rounds corners: 1.x has them as float32, whose difference is not.
        x, y, width, height = (round(float(v), 2) for v in (left, top, right - left, bottom - top))
        label = NO_CLASS if one.label is None else self._classes.of(one.label).label
        number = _object_id(one) if self._keeps_objects else self._objects_done
        return KerasAnnotation(number, label, (x, y, width, height), _area(one, width * height))


def _are_ids(found: list[tuple[str, int]]) -> bool:
    return len(set(found)) == len(found) and all(number >= 0 for _, number in found)


def _image_id(item: Any) -> int:
    number = item.attributes.get("id")
    return number if isinstance(number, int) else -1


def _object_id(one: ExportedObject) -> int:
    parts = [one.shape, *one.outlines, one.points]
    return next((int(part.id) for part in parts if part is not None and part.id), 0)


def _area(one: ExportedObject, of_box: float) -> float:
    """COCO's: what an attribute says, or of the outline where there is one."""
    if _is_number(one.attributes.get("area")):
        return float(one.attributes["area"])
    if one.outlines:
        return float(sum(part.get_area() for part in one.outlines))
    is_box = one.shape is None or one.shape.type.name == "bbox"
    return of_box if is_box else float(one.shape.get_area())


class ImageClassificationExporter(ShardExporter):
    """Writes ``<subset>.tfrecord`` files and ``labels.txt``; ``profile`` says with which keys."""

    NAME = "tf_image_classification"
    DESCRIPTION = "Shards of images with one label each."
    OPTIONS = ("profile", "num_shards", "shard_size", "compression", "label_map")
    FIRST_ID = 0
    ALWAYS_IMAGES = True
    LOSSES = (_ONE_LABEL, ATTRIBUTES, _WITHOUT_LABEL)

    can_stream = True  # the dataset is walked through once, one image at a time

    def _names_of(self, label_map: LabelMap) -> tuple[str, str]:
        return LABELS_FILE, labels_text(label_map.items)

    def _payloads(self, item: Any) -> Iterable[bytes]:
        image = self._image(item)
        if image.size is None:
            raise TfodError(f"item {item.id!r} has an image of unknown size")
        labels = [one for one in item.annotations if one.type.name == "label"]
        others = [one.type.name for one in item.annotations if one.type.name != "label"]
        self._losses[_ONE_LABEL].update([*others, *["further label"] * (len(labels) - 1)])
        self._losses[ATTRIBUTES].update(name for one in labels[:1] for name in one.attributes)
        self._losses[_WITHOUT_LABEL][""] += not labels
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _KNOWN_OF_IMAGES)
        label = self._classes.of(labels[0].label).label if labels else NO_CLASS
        data, name = image.encoded or b"", image.filename
        return (encode_labelled_image(self._options.profile, data, name, image.size, label),)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
