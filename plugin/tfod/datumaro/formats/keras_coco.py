"""``tf_keras_coco``: COCO as the Keras recipe writes it, one record an annotation."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from tfod.convert.coco import (
    KERAS_RECORDS_A_FILE,
    KerasAnnotation,
    encode_keras_annotations,
    is_number,
    numbers,
    read_coco,
    real_number,
    sound_coco,
    whole_number,
)
from tfod.convert.losses import Losses
from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
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
)
from tfod.datumaro.images import media_size
from tfod.datumaro.importer import ShardImporter, first_example
from tfod.datumaro.reader import CountedShardsBase
from tfod.detection.boxes import PixelBox
from tfod.detection.features.field_mapping import KERAS_COCO, FieldMapping, is_keras_coco
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.names import file_names, find_files
from tfod.tfrecord.writer import ShardSetWriter

_DIGITS = 2
_WITHOUT_OBJECTS = "images without an object, for which there is no record"
_NOT_WRITTEN = "not written"
_WITHOUT_CLASS = f"without a class, written as category {NO_CLASS}"
# Of images: carried by the record, or made anew.
_KNOWN_OF_IMAGES = frozenset(("id", "filename", "source_id"))


class KerasCocoBase(CountedShardsBase):
    """Shards of the recipe. The records of an image become one item, wherever they are."""

    NAME = "tf_keras_coco"
    FIELD_MAPPING: ClassVar[FieldMapping | None] = KERAS_COCO


class KerasCocoImporter(ShardImporter):
    """Shards of the recipe: a file, a folder, a glob."""

    NAME = "tf_keras_coco"

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Take what has the recipe's features with their dtypes."""
        example = first_example(context.root_path)
        if example is None or not is_keras_coco(example):
            context.fail("there must be TFRecord shards with the features of the Keras recipe")
        return compat.FormatDetectionConfidence.MEDIUM


class KerasCocoExporter(ShardExporter):
    """Writes ``file_00-4096.tfrec``, of a subset ``train_00-4096.tfrec``, and the label map.

    Images are always written: a record needs one. What is still as a COCO file
    has it gets its area, box and class id exactly.
    """

    NAME = "tf_keras_coco"
    DESCRIPTION = "Shards of the Keras recipe, one record an annotation."
    ALWAYS_IMAGES = True
    LOSSES = (
        NOT_CARRIED,
        ENCLOSED,
        OUTLINES,
        OUTSIDE,
        _WITHOUT_OBJECTS,
        _NOT_WRITTEN,
        ATTRIBUTES,
        _WITHOUT_CLASS,
    )

    def _export_classes(self) -> ExportClasses:
        label_map, self._stated = _read_source(self._extractor)
        if self._options.label_map or label_map is None:
            return super()._export_classes()
        return export_classes(self._extractor.categories(), label_map, self.FIRST_ID)

    def _prepare(self, classes: ExportClasses) -> None:
        super()._prepare(classes)
        self._numbers = _Numbers(self._extractor, classes)

    def _make_writer(self, subset: str) -> ShardSetWriter:
        made: list[ShardSetWriter] = []

        def name_files(count: int) -> list[str]:
            full = [KERAS_RECORDS_A_FILE] * (count - 1)
            return file_names(subset, [*full, (made[0].count if made else 0) - sum(full)])

        made.append(
            ShardSetWriter(
                self._save_dir, subset, shard_records=KERAS_RECORDS_A_FILE, name_files=name_files
            )
        )
        return made[0]

    def _own_shards(self, folder: str) -> dict[str, list[str]]:
        return find_files(folder)

    def _payloads(self, item: Any) -> Iterable[bytes]:
        found, image_labels = self._objects.objects(item.annotations)
        self._count_losses(item, found, len(image_labels))
        image_id = self._numbers.of_image(item)
        if not found:
            return ()
        media, encoded = self._images.required(item)
        annotations = [self._annotation(one, item.subset) for one in found]
        size = media_size(media, encoded)
        if size is not None:
            self._objects.count_outside([one.corners for one in found], size)
        path = self._images.filename(item, media, encoded)
        return encode_keras_annotations(encoded, path, image_id, annotations)

    def _annotation(self, one: ExportedObject, subset: str) -> KerasAnnotation:
        of_class = None if one.label is None else self._classes.of(one.label)
        box, area = _x_y_width_height(one), _area(one)
        stated = self._stated.get((subset, _object_number(one)))
        if stated is not None and stated.is_still(of_class.text if of_class else None, one.corners):
            box, area = stated.box, stated.area
        label = NO_CLASS if of_class is None else of_class.label
        return KerasAnnotation(self._numbers.of_object(one), label, box, area)

    def _count_losses(self, item: Any, found: list[ExportedObject], image_labels: int) -> None:
        self._losses[_WITHOUT_OBJECTS][""] += not found
        self._losses[_WITHOUT_CLASS][""] += sum(one.label is None for one in found)
        self._losses[_NOT_WRITTEN]["class of the whole image"] += image_labels
        for one in found:
            self._losses[_NOT_WRITTEN]["points"] += one.points is not None
            self._losses[ATTRIBUTES].update(
                name
                for name, value in one.attributes.items()
                if value not in EMPTY_VALUES and not (name == "area" and is_number(value))
            )
        count_image_attributes(self._losses[ATTRIBUTES], item.attributes, _KNOWN_OF_IMAGES)


class _Numbers:
    """Ids of images and of annotations.

    They are those that the dataset has, if each is there once in its subset; else they are counted
    from 1. Datumaro has 0 for an annotation without an id, so one of them is an id where others
    have some.
    """

    def __init__(self, dataset: Any, classes: ExportClasses) -> None:
        self._keeps_images = self._keeps_objects = True
        has_ids = False
        self._images = self._objects = 0
        seen: set[tuple[str, str, int]] = set()
        builder = ObjectBuilder(classes, False, lambda reason: None, Losses())
        for item in dataset:
            self._keeps_images &= _is_new(seen, ("image", item.subset, _image_number(item)))
            with contextlib.suppress(TfodError):  # stated when the item is written
                for one in builder.objects(item.annotations)[0]:
                    number = _object_number(one)
                    has_ids |= number > 0
                    self._keeps_objects &= _is_new(seen, ("object", item.subset, number))
        self._keeps_objects &= has_ids

    def of_image(self, item: Any) -> int:
        """The id of the next image."""
        self._images += 1
        return _image_number(item) if self._keeps_images else self._images

    def of_object(self, one: ExportedObject) -> int:
        """The id of the next object."""
        self._objects += 1
        return _object_number(one) if self._keeps_objects else self._objects


def _is_new(seen: set[tuple[str, str, int]], number: tuple[str, str, int]) -> bool:
    is_new = number[2] >= 0 and number not in seen
    seen.add(number)
    return is_new


def _image_number(item: Any) -> int:
    number = item.attributes.get("id")
    return number if isinstance(number, int) else -1


def _object_number(one: ExportedObject) -> int:
    parts = [one.shape, *one.outlines, one.points]
    return next((int(part.id) for part in parts if part is not None and part.id), 0)


def _x_y_width_height(one: ExportedObject) -> tuple[float, float, float, float]:
    """Rounded as Datumaro rounds corners: 1.x has them as float32, whose difference is not."""
    left, top, right, bottom = one.corners
    x, y, width, height = (
        round(float(value), _DIGITS) for value in (left, top, right - left, bottom - top)
    )
    return x, y, width, height


def _area(one: ExportedObject) -> float:
    """COCO's: of the outline where there is one, unless an attribute says it."""
    stated = one.attributes.get("area")
    if stated is not None and is_number(stated):
        return float(stated)
    if one.outlines:
        return float(sum(part.get_area() for part in one.outlines))
    if one.shape is not None and one.shape.type.name != "bbox":
        return float(one.shape.get_area())
    _, _, width, height = _x_y_width_height(one)
    return width * height


_FORMATS = frozenset(("coco", "coco_instances"))
_PREFIX, _ENDING = "instances_", ".json"
_SAME = 1.0  # pixels by which an outline's box may differ from bbox


@dataclass(frozen=True)
class CocoAnnotation:
    """An annotation as its file has it: x, y, width, height in pixels, and the area."""

    category: str
    box: tuple[float, float, float, float]
    area: float

    def is_still(self, category: str | None, corners: PixelBox) -> bool:
        """Whether an object is what was read: a transform may have changed it since."""
        left, top, right, bottom = corners
        now = (left, top, right - left, bottom - top)
        pairs = zip(self.box, now, strict=True)
        return category == self.category and all(abs(one - two) < _SAME for one, two in pairs)


def _read_source(dataset: Any) -> tuple[LabelMap | None, dict[tuple[str, int], CocoAnnotation]]:
    """The categories of a dataset's COCO files, and the annotations by subset and id.

    None where it was not read from COCO, or the files are gone.

    Raises:
        TfodError: one cannot be read.
    """
    source = getattr(dataset, "data_path", None)
    is_coco = getattr(dataset, "format", None) in _FORMATS
    paths = _coco_files(source) if source and is_coco else []
    annotations: dict[tuple[str, int], CocoAnnotation] = {}
    items: dict[int, LabelMapItem] = {}
    for path in paths:
        # As Datumaro names it.
        subset = os.path.basename(path).removesuffix(_ENDING).removeprefix(_PREFIX)
        found = read_coco(path, ("id", "category_id", "bbox", "area"))
        with sound_coco(path):
            names = {whole_number(one, "id"): str(one["name"]) for one in found.categories}
            for one in itertools.chain.from_iterable(found.annotations.values()):
                if one.get("bbox") and one.get("area") is not None:
                    x, y, width, height = numbers(one["bbox"], 4, "bbox")
                    annotations[subset, whole_number(one, "id")] = CocoAnnotation(
                        names[whole_number(one, "category_id")],
                        (x, y, width, height),
                        real_number(one["area"], "area"),
                    )
        for number, name in names.items():
            items.setdefault(number, LabelMapItem(number, name))
    label_map = LabelMap(tuple(items[number] for number in sorted(items)))
    return label_map if paths else None, annotations


def _coco_files(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    return [
        os.path.join(folder, name)
        for folder in (path, os.path.join(path, "annotations"))
        if os.path.isdir(folder)
        for name in sorted(os.listdir(folder))
        if name.startswith(_PREFIX) and name.endswith(_ENDING)
    ]
