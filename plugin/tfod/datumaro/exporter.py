"""The exporter: a Datumaro dataset to shards and their label map."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tfod import keys
from tfod.attributes import is_attribute_value
from tfod.compression import Compression
from tfod.datumaro import lines
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.folder import (
    LABEL_MAP_FILE,
    ShardSets,
    holds_pictures,
    layout_of,
    our_shards,
    text_without_comments,
)
from tfod.datumaro.notes import EMPTY_SUBSETS
from tfod.datumaro.objects import ObjectBuilder
from tfod.datumaro.options import (
    ExportOptions,
    LabelKey,
    OptionError,
    add_arguments,
    check_image_extension,
)
from tfod.datumaro.pictures import PictureEncoder, format_name, media_size
from tfod.detection import Detection
from tfod.detection_encoder import encode_detection
from tfod.errors import TfodError
from tfod.label_map import LabelMap, load_label_map
from tfod.picture import DEFAULT_EXTENSION
from tfod.writer import ShardSetWriter

_log = logging.getLogger(__name__)
# Options that change shards whose pictures did not change.
_LAYOUT_OPTIONS = frozenset(
    ("num_shards", "shard_size", "compression", "label_key", "save_masks", "image_ext")
)


class TfDetectionApiExporter(lines.Exporter):
    """Writes ``<subset>.tfrecord`` files and ``label_map.pbtxt``.

    Args:
        extractor: the dataset.
        save_dir: the folder to write to.
        save_media: put the pictures into the shards (``save_images`` is its old name).
        save_masks: write an instance mask for each object, from masks, polygons and boxes.
        num_shards, shard_size: deal a subset into so many shards, or into shards of at most so
            many bytes.
        compression: ``none``, ``gzip`` or ``zlib``.
        label_map: take the class ids from this label map (a file or a name that tfod ships).
        label_key: write the class as ``text``, ``id`` or ``both``.
        image_ext: re-encode pictures to this extension.

    Raises:
        DatasetExportError: something cannot be written; what was there before is unchanged.
    """

    NAME = "tf_detection_api"
    DEFAULT_IMAGE_EXT = DEFAULT_EXTENSION

    @classmethod
    def build_cmdline_parser(cls, **kwargs: Any) -> Any:
        kwargs.setdefault("description", "TF Object Detection API shards and their label map.")
        parser = super().build_cmdline_parser(**kwargs)
        if not any("--save-images" in action.option_strings for action in parser._actions):
            parser.add_argument(
                "--save-images",
                action="store_true",
                default=None,
                help="the old name of --save-media",
            )
        add_arguments(parser)
        return parser

    def __init__(
        self,
        extractor: Any,
        save_dir: str,
        *,
        save_masks: bool = False,
        num_shards: int = 1,
        shard_size: int | str | None = None,
        compression: str = "none",
        label_map: str | None = None,
        label_key: str = "both",
        save_media: bool | None = None,
        save_images: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(extractor, save_dir, save_media=bool(save_media or save_images), **options)
        try:
            self._options = ExportOptions.parse(
                save_masks, num_shards, shard_size, compression, label_map, label_key
            )
            check_image_extension(self._image_ext)
        except OptionError as error:
            raise lines.errors.DatasetExportError(str(error)) from error
        self._pictures = PictureEncoder(self._save_media, self._image_ext, self._default_image_ext)
        self._layouts: dict[str, tuple[int, Compression]] = {}

    @property
    def can_stream(self) -> bool:
        """The dataset is walked through once, one picture at a time."""
        return True

    def apply(self) -> None:
        """Write everything, or raise and leave everything as it was."""
        try:
            classes = self._export_classes()
            self._objects = ObjectBuilder(
                classes, self._options.save_masks, self._report_annotation
            )
            self._new_ids = _new_ids(self._extractor.categories(), classes)
            with ShardSets(self._save_dir, self._make_writer) as sets:
                self._write_items(sets)
                empty = self._add_empty_subsets(sets)
                self._written = sets.publish(classes.label_map.to_text(_comment(empty)))
        except TfodError as error:
            raise lines.errors.DatasetExportError(str(error)) from error
        if self._save_dataset_meta:
            self._save_meta_file(self._save_dir)
        self._say_what_was_lost()

    _apply_impl = apply

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write the subsets that changed over the shards that the dataset came from.

        Shards of subsets that are gone go too. Everything is written anew, in our own layout,
        where the folder has another one, the classes changed, or other options are given.
        Where the shards that are replaced hold pictures, the new ones do, asked for or not: they
        may be the only place that has them.
        """
        exporter = cls(dataset, save_dir, **options)
        present = list(dataset.subsets())
        gone = [name for name in patch.updated_subsets if name not in present]
        ours = our_shards(save_dir)
        came_from = _came_from(dataset, save_dir)
        before = {*came_from, *(path for paths in ours.values() for path in paths)}
        if not exporter._pictures.save_media and holds_pictures(before):
            exporter._pictures = replace(exporter._pictures, save_media=True)
        if (
            any(path not in ours.get(subset, ()) for path, subset in came_from.items())
            or _LAYOUT_OPTIONS & options.keys()
            or exporter._label_map_would_change()
        ):
            changed = present
        else:
            changed = [name for name in patch.updated_subsets if name in present]
            exporter._extractor = _Subsets(dataset, changed)
        if not _LAYOUT_OPTIONS & options.keys():
            exporter._layouts = {name: layout_of(ours[name]) for name in changed if name in ours}
        exporter.apply()
        stale = {path for path, subset in came_from.items() if subset in {*changed, *gone}}
        stale.update(path for name in gone for path in ours.get(name, ()))
        for path in stale - exporter._written:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _report_annotation(self, reason: str) -> None:
        error = TfodError(f"item {self._current.id!r}: {reason}")
        item_id = (self._current.id, self._current.subset)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)

    def _export_classes(self) -> ExportClasses:
        wanted: LabelMap | None = None
        if self._options.label_map:
            wanted, liberties = load_label_map(self._options.label_map)
            for liberty in liberties:
                _log.warning(liberty)
        classes = export_classes(self._extractor.categories(), wanted)
        if self._options.label_key is LabelKey.ID:  # without a text, 0 could be a class
            return replace(classes, unlabelled_id=-1)
        return classes

    def _label_map_would_change(self) -> bool:
        path = os.path.join(self._save_dir, LABEL_MAP_FILE)
        wanted = self._export_classes().label_map.to_text()
        return not os.path.exists(path) or text_without_comments(path) != wanted

    def _make_writer(self, subset: str) -> ShardSetWriter:
        options = self._options
        layout = self._layouts.get(subset, (options.num_shards, options.compression))
        num_shards, compression = layout
        return ShardSetWriter(
            self._save_dir,
            subset,
            num_shards=num_shards,
            shard_size=options.shard_size,
            compression=compression,
        )

    def _write_items(self, sets: ShardSets) -> None:
        progress = self._ctx.progress_reporter
        for item in progress.iter(self._extractor, desc="Writing TFRecords"):
            self._current = item
            try:
                payload = encode_detection(self._detection(item))
            except lines.errors.DatumaroError:
                raise  # an error policy has spoken
            except (TfodError, OSError, ValueError, TypeError, ArithmeticError) as error:
                reason = error if isinstance(error, TfodError) else _named(item, error)
                self._ctx.error_policy.report_item_error(reason, item_id=(item.id, item.subset))
                continue
            sets.writer(item.subset).write(payload)

    def _add_empty_subsets(self, sets: ShardSets) -> list[str]:
        """Subsets without a picture get a shard too, and are remembered as empty on purpose."""
        if getattr(self._extractor, "is_stream", False):
            return []
        empty = [name for name in self._extractor.subsets() if name not in sets]
        for name in empty:
            sets.writer(name)
        return empty

    def _detection(self, item: Any) -> Detection:
        media = item.media if isinstance(item.media, lines.Image) else None
        encoded = self._pictures.encoded(item, media)
        size = media_size(media, encoded)
        if size is None and any(one.type.name != "label" for one in item.annotations):
            raise TfodError(
                f"item {item.id!r} has no picture size, so its boxes cannot be normalized; "
                "give it a picture or a size"
            )
        objects = self._objects.build(item.annotations, size or (1, 1))
        attributes = dict(item.attributes)
        filename = self._pictures.filename(item, media, encoded)
        if attributes.get("filename") == filename:
            del attributes["filename"]
        # create_coco writes COCO's number of the picture, the other scripts its file name.
        number = attributes.pop("id", None) if "source_id" not in attributes else None
        source_id = attributes.pop("source_id", filename if number is None else number)
        image_attributes = {
            name: [self._new_ids.get(class_id, class_id) for class_id in attributes.pop(name)]
            for name in keys.IMAGE_ATTRIBUTES
            if name in attributes
        }
        for name in [name for name, value in attributes.items() if not is_attribute_value(value)]:
            del attributes[name]
            self._objects.not_carried_attributes[f"{name} (of the picture)"] += 1
        return Detection(
            filename=filename,
            source_id=None if source_id is None else str(source_id),
            format=format_name(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=size[0] if size else None,
            width=size[1] if size else None,
            encoded=encoded or b"",
            boxes=objects.boxes,
            class_text=objects.class_text if self._options.label_key is not LabelKey.ID else None,
            class_label=objects.class_label
            if self._options.label_key is not LabelKey.TEXT
            else None,
            masks=objects.masks,
            keypoints=objects.keypoints,
            attributes=objects.attributes,
            image_labels=objects.image_labels,
            image_attributes=image_attributes,
            image_extra=attributes,
        )

    def _say_what_was_lost(self) -> None:
        """One closing message."""
        losses = self._losses()
        if losses:
            _log.warning("%s: %s", self.NAME, "; ".join(losses))

    def _losses(self) -> list[str]:
        """What the format could not take, counted."""
        objects = self._objects
        losses = []
        if objects.not_carried:
            losses.append("not written, the format has no place for them: " + _counts(
                objects.not_carried))  # fmt: skip
        if objects.not_carried_attributes:
            losses.append("attributes not written: " + _counts(objects.not_carried_attributes))
        if objects.enclosed:
            losses.append("written as their enclosing box: " + _counts(objects.enclosed))
        if objects.unlabelled:
            losses.append(
                f"without a class, written as id 0 with an empty text: {objects.unlabelled}"
            )
        if objects.outside:
            losses.append(f"boxes that reach outside the picture, written so: {objects.outside}")
        return losses


def _new_ids(categories: Any, classes: ExportClasses) -> dict[int, int]:
    """Which id of the label map that the dataset came with becomes which."""
    source = getattr(categories.get(lines.AnnotationType.label), "label_map", None)
    if source is None:
        return {}
    written = {one.text: one.label for one in classes.classes}
    pairs = (
        (item.id, written.get(name))
        for item in source.items
        for name in (item.display_name, item.class_name)
    )
    return {old: new for old, new in pairs if new is not None}


def _came_from(dataset: Any, folder: str) -> dict[str, str]:
    """Path and subset of the shards that a dataset was read from, if it was from this folder."""
    labels = dataset.categories().get(lines.AnnotationType.label)
    origin = getattr(labels, "origin", None)
    if origin is None or origin.source != os.path.abspath(folder):
        return {}
    return {path: subset for path, subset in origin.shards if os.path.exists(path)}


def _named(item: Any, error: Exception) -> TfodError:
    """What went wrong with an item, as an error of ours that names it."""
    reason = getattr(error, "strerror", None) or str(error)
    return TfodError(f"item {item.id!r} cannot be written ({reason})")


def _comment(empty: list[str]) -> str:
    return f"{EMPTY_SUBSETS} {json.dumps(empty)}" if empty else ""


def _counts(counter: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


class _Subsets:
    """Some subsets of a dataset, as an exporter sees a dataset."""

    def __init__(self, dataset: Any, names: list[str]) -> None:
        self._dataset = dataset
        self._names = names

    def __iter__(self) -> Iterator[Any]:
        for name in self._names:
            yield from self._dataset.get_subset(name)

    def __len__(self) -> int:
        return sum(len(self._dataset.get_subset(name)) for name in self._names)

    def subsets(self) -> dict[str, Any]:
        return {name: self._dataset.get_subset(name) for name in self._names}

    def categories(self) -> Any:
        return self._dataset.categories()
