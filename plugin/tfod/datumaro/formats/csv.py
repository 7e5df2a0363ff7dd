"""``tf_detection_csv`` in Datumaro: the CSV of the raccoon recipe, read and written."""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from tfod.convert.csv import (
    COLUMNS,
    CsvBox,
    CsvError,
    CsvImage,
    DetectionCsv,
    DetectionCsvWriter,
    encode_image,
    is_detection_csv,
    read_detection_csv,
)
from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, Origin
from tfod.datumaro.export_annotations import OBJECT_LOSSES, ExportedObject
from tfod.datumaro.exporter import EMPTY_VALUES, ShardExporter, count_image_attributes
from tfod.datumaro.images import file_size, media_size
from tfod.datumaro.importer import ReadDataset, ShardImporter, import_errors, load_classes_of
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.detection.labels.classes import ClassTable, LabelScope
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import ShardError, ShardsNotFoundError, TfodError
from tfod.tfrecord.image_names import (
    IdMaker,
    ImageFolders,
    names_in_folder,
    safe_relative_path,
    split_extension,
)
from tfod.tfrecord.label_files import find_label_map
from tfod.tfrecord.shard_sets.names import SPLITS, stem_of_subset, subset_of_stem
from tfod.tfrecord.shard_sets.search import files_below, find_shards

_log = logging.getLogger("tfod.datumaro")
_MOST_EXAMPLES = 3
_NO_COLUMN = "not written, the CSV has no column for them"


class TfDetectionCsvBase(ReadDataset):
    """The CSVs that a path means, as one dataset.

    Args:
        path: a CSV, or a folder of several: ``train_labels.csv`` is the subset ``train``.
        subset: a name for everything that is read; without it names come from the files.
        images: the folder of the images, if they are neither beside the CSV nor in ``images/``,
            in a folder named for the subset, or in ``images/<subset>/``.
        label_map: a label map file or the name of one that tfod ships; without it one beside the
            CSV is used, else classes are numbered from 1 in the order of their names.
        ctx: Datumaro's import context: its error policy decides about rows that make no sense.

    Raises:
        DatasetImportError: there is no such CSV, or a row makes no sense.
    """

    NAME = "tf_detection_csv"

    def __init__(
        self,
        path: str,
        subset: str | None = None,
        *,
        images: str | None = None,
        label_map: str | None = None,
        ctx: Any = None,
    ) -> None:
        with import_errors(path):
            files = [(subset or name, one) for name, one in find_csvs(path)]
            super().__init__(subsets=list(dict.fromkeys(name for name, _ in files)), ctx=ctx)
            self._read(path, files, images, label_map)

    def _read(
        self, path: str, files: list[tuple[str, str]], images: str | None, label_map: str | None
    ) -> None:
        if images is not None and not os.path.isdir(images):
            raise CsvError(f"images: {images} is not a folder")
        self._images = images
        self._items: list[Any] = []
        self._ids: dict[str, IdMaker] = {}
        self._names_in = functools.cache(names_in_folder)
        self._other_sizes: list[str] = []
        self._other_columns: Counter[str] = Counter()
        self._classes = ClassTable()
        tables = [self._read_csv(subset, one) for subset, one in files]
        names = {box.class_name for one in tables for pic in one.images for box in pic.boxes}
        by_name = LabelMap.from_names(sorted(names))
        sources = [label_map or _label_map_beside(one) for _, one in files]
        maps = {
            source: load_classes_of(source, label_map, _log.warning) or by_name
            for source in sources
        }
        scopes = [self._classes.add_label_map(maps[source]) for source in sources]
        for (subset, one), table, scope in zip(files, tables, scopes, strict=True):
            self._add_items(subset, one, table, scope)
        self._set_categories(self._classes, {}, Origin.of(path, files))
        self._warn_of_oddities()

    def _read_csv(self, subset: str, path: str) -> DetectionCsv:
        def report(error: CsvError, row: int) -> None:
            item_id = (f"row {row}", subset)
            self._ctx.error_policy.report_annotation_error(error, item_id=item_id)

        found = read_detection_csv(path, report)
        for liberty in found.liberties:
            _log.warning(liberty)
        self._other_columns.update(found.other_columns)
        return found

    def _add_items(self, subset: str, path: str, table: DetectionCsv, scope: LabelScope) -> None:
        folder = stem_of_subset(subset_of_csv(path))
        folders = ImageFolders(path, folder, self._names_in, self._folders(path, folder))
        ids = self._ids.setdefault(subset, IdMaker())
        for image in self._ctx.progress_reporter.iter(table.images, desc=f"Reading {path}"):
            self._items.append(self._item(image, subset, scope, folders, ids))

    def _folders(self, path: str, name: str) -> list[str]:
        if self._images is not None:
            return [self._images, os.path.join(self._images, name)]
        beside = os.path.dirname(os.path.abspath(path))
        return [os.path.join(beside, name), os.path.join(os.path.dirname(beside), name)]

    def _item(
        self,
        image: CsvImage,
        subset: str,
        scope: LabelScope,
        folders: ImageFolders,
        ids: IdMaker,
    ) -> Any:
        path = safe_relative_path(image.filename)
        item_id, _ = ids.make(path, f"image_{len(self._items):06d}")
        on_disk = folders.find(path) if path else None
        media = self._media(image, path, on_disk)
        labels = [self._classes.resolve(scope, box.class_name, None) for box in image.boxes]
        corners = compat.round_points([box.corners for box in image.boxes]) if labels else []
        boxes = compat.make_boxes(corners, labels, [{} for _ in labels])
        own_extension = (media.ext if media is not None else "") or DEFAULT_EXTENSION
        attributes = {}
        if image.filename != item_id + own_extension:
            attributes["filename"] = image.filename
        return compat.make_item(item_id, subset, media, boxes, attributes)

    def _media(self, image: CsvImage, path: str, on_disk: str | None) -> Any:
        """The image; its own size counts, as generate_tfrecord.py has it."""
        stated = None
        if image.height and image.width:
            stated = image.height, image.width
        if on_disk is None:
            extension = split_extension(path)[1] or DEFAULT_EXTENSION
            return None if stated is None else compat.image_without_data(extension, stated)
        size = file_size(on_disk)
        if size and stated and size != stated:
            self._other_sizes.append(
                f"{image.filename} is {size[1]} x {size[0]}, not {stated[1]} x {stated[0]}"
            )
        return compat.image_from_file(on_disk, size or stated)

    def _warn_of_oddities(self) -> None:
        if self._other_columns:
            _log.warning(
                "%s: columns that are not read: %s", self.NAME, ", ".join(self._other_columns)
            )
        if self._classes.unknown_texts:
            texts = ", ".join(map(repr, self._classes.unknown_texts))
            _log.warning("%s: classes that the label map lacks, added: %s", self.NAME, texts)
        if self._other_sizes:
            _log.warning(
                "%s: images of another size than the CSV says, which were followed: %d (%s)",
                self.NAME,
                len(self._other_sizes),
                "; ".join(self._other_sizes[:_MOST_EXAMPLES]),
            )


def _label_map_beside(path: str) -> str | None:
    source, candidates = find_label_map(path)
    if candidates:
        _log.warning("several label maps, none is used: %s", ", ".join(candidates))
    return source


class TfDetectionCsvImporter(ShardImporter):
    """CSVs of boxes: ``filename,width,height,class,xmin,ymin,xmax,ymax``."""

    NAME = "tf_detection_csv"
    EXTENSIONS = (".csv",)
    OPTIONS: ClassVar[dict[str, str]] = {
        "--images": "folder of the images (default: looked for)",
        "--label-map": "label map file, or the name of one that tfod ships "
        "(default: the one beside)",
    }

    @staticmethod
    def _find(path: str) -> object:
        return find_csvs(path)

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Take CSVs with this header; beside shards they are what the shards were made from."""
        if not cls.find_sources(context.root_path):
            context.fail("there must be a CSV with the header " + ",".join(COLUMNS))
        try:
            find_shards(context.root_path)
        except (ShardsNotFoundError, ShardError):
            return compat.FormatDetectionConfidence.MEDIUM
        return compat.FormatDetectionConfidence.LOW


class TfDetectionCsvExporter(ShardExporter):
    """Writes ``<subset>_labels.csv`` and ``label_map.pbtxt``, images to ``images/<subset>/``."""

    NAME = "tf_detection_csv"
    DESCRIPTION = "TF Object Detection CSVs and their label map."
    OPTIONS = ()
    LOSSES = (*OBJECT_LOSSES, _NO_COLUMN)

    def _prepare(self, classes: ExportClasses) -> None:
        super()._prepare(classes)
        self._lost = self._losses[_NO_COLUMN]
        self._names: dict[str, set[str]] = {}

    def _make_writer(self, subset: str) -> DetectionCsvWriter:
        # As the raccoon recipe has it: train_labels.csv.
        name = stem_of_subset(subset) + _ENDING + _EXTENSION
        return DetectionCsvWriter(os.path.join(self._save_dir, name))

    def _own_shards(self, folder: str) -> dict[str, list[str]]:
        return our_csvs(folder)

    def _payloads(self, item: Any) -> Iterable[bytes]:
        media = item.media if isinstance(item.media, compat.Image) else None
        found, image_labels = self._objects.objects(item.annotations)
        self._count_lost(item, found, len(image_labels))
        boxes = self._boxes(found)
        if not boxes:
            self._lost["images without boxes"] += 1
            return ()
        encoded = self._images.encoded(item, media)
        size = media_size(media, encoded)
        if size is None:
            raise TfodError(
                f"item {item.id!r} has no image size, which every row of the CSV says; "
                "give it an image or a size"
            )
        name = self._name(item, media, encoded)
        if encoded:
            folder = os.path.join("images", stem_of_subset(item.subset))
            self._add_file(os.path.join(folder, *name.split("/")), encoded)
        self._objects.count_outside([box.corners for box in boxes], size)
        return (encode_image(CsvImage(name, size[1], size[0], tuple(boxes))),)

    def _boxes(self, found: list[ExportedObject]) -> list[CsvBox]:
        boxes = []
        for one in found:
            if one.label is None:
                self._lost["boxes without a class"] += 1
            else:
                # As shards have them, with as few digits as a float32 needs.
                corners = np.array(one.corners, np.float32)
                left, top, right, bottom = (float(str(side)) for side in corners)
                class_name = self._classes.of(one.label).text
                boxes.append(CsvBox(class_name, (left, top, right, bottom)))
        return boxes

    def _name(self, item: Any, media: Any, encoded: bytes | None) -> str:
        """The image's name, which the rows of no other image of the subset have."""
        taken = self._names.setdefault(item.subset, set())
        wanted = self._images.filename(item, media, encoded)
        name, number = safe_relative_path(wanted), 0
        while not name or name in taken:
            number += 1
            again = f"~{number}" if number > 1 else ""
            name = item.id + again + split_extension(wanted)[1]
        taken.add(name)
        return name

    def _count_lost(self, item: Any, found: list[ExportedObject], image_labels: int) -> None:
        lost = self._lost
        for one in found:
            lost.update(name for name, value in one.attributes.items() if value not in EMPTY_VALUES)
            lost["keypoints"] += one.points is not None
        lost["classes of an image"] += image_labels
        count_image_attributes(lost, item.attributes, ("filename",))


_EXTENSION = ".csv"
_ENDING = "_labels"
# Names that say nothing about the subset; Roboflow calls its CSVs _annotations.
_NO_NAMES = frozenset(("labels", "annotations", "_annotations", "detections", ""))


def find_csvs(path: str) -> list[tuple[str, str]]:
    """Subset and path of the detection CSVs that a file or a folder means.

    A folder is searched three levels deep for CSVs with the header; other CSVs in it are left
    alone. ``train_labels.csv`` is the subset ``train``, as split by the raccoon recipe; a file
    whose name says nothing has the name of its folder, if that is one of a split.

    Raises:
        ShardsNotFoundError: there is none.
    """
    if os.path.isfile(path):
        return [(subset_of_csv(path), path)]
    found = [
        one
        for one in files_below(path)
        if one.lower().endswith(_EXTENSION) and is_detection_csv(one)
    ]
    if not found:
        what = "in this folder or the three levels below it" if os.path.isdir(path) else "there"
        raise ShardsNotFoundError(f"{path}: no CSV with the header {','.join(COLUMNS)} {what}")
    return [(subset_of_csv(one), one) for one in found]


def subset_of_csv(path: str) -> str:
    """The subset that a CSV is by its name, or by its folder's."""
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem.lower() not in _NO_NAMES:
        return subset_of_stem(stem.removesuffix(_ENDING))
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return folder if folder.lower() in SPLITS else "default"


def our_csvs(folder: str) -> dict[str, list[str]]:
    """Absolute path, by subset, of the CSVs in a folder that are named as an export names them."""
    root = os.path.abspath(folder)
    found: dict[str, list[str]] = {}
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        path = os.path.join(root, name)
        if name.endswith(_ENDING + _EXTENSION) and is_detection_csv(path):
            found.setdefault(subset_of_csv(path), []).append(path)
    return found
