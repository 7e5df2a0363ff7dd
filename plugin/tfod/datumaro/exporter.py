"""Base class of the exporters, which write all files of a dataset at once or none."""

from __future__ import annotations

import functools
import logging
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, assign_ids
from tfod.datumaro.export_annotations import OBJECT_LOSSES, UNLABELLED, ObjectBuilder
from tfod.datumaro.formats.export_layouts import Layout
from tfod.datumaro.formats.export_options import ExportOptions, add_arguments
from tfod.datumaro.media import ImageEncoder, UprightImage
from tfod.detection import keys
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.detection.labels.labels_file import load_classes
from tfod.detection.losses import LossCounter
from tfod.errors import TfodError, excerpt
from tfod.example.example_batch import ExampleBatch
from tfod.example.wire import Kind
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.storage.publishing import Output
from tfod.tfrecord.writer import OptionError, ShardSetWriter

_log = logging.getLogger("tfod.datumaro")
NO_CLASS = -1
"""The id of objects without a class in formats without class texts, in which 0 may be a class."""
_CALL_ARGUMENTS = frozenset(("ctx", "stream"))
"""Arguments of Datumaro that are not options of the format."""
EMPTY_VALUES = (None, False, "")
"""Values of attributes that formats without attributes drop without a warning."""


class ShardExporter(compat.Exporter):
    """Writes the shards of a dataset's subsets.

    Args:
        extractor: dataset to export.
        save_dir: output folder.
        save_media: whether to store the images in the shards (``save_images`` is the old name).
        options: options of :class:`~tfod.datumaro.formats.export_options.ExportOptions`, and
            ``image_ext``, an extension to encode images to.

    Raises DatasetExportError if the export fails; existing files are then unchanged.
    """

    DEFAULT_IMAGE_EXT = DEFAULT_EXTENSION
    DESCRIPTION: ClassVar[str]
    OPTIONS: ClassVar[tuple[str, ...]] = ("label_map",)
    """The command-line options; Python always accepts ``label_map``."""
    FIRST_ID: ClassVar[int] = 1
    """The id of the first class if no label map assigns ids."""
    ALWAYS_IMAGES: ClassVar[bool] = False
    """Whether records need an image, so that images are always written."""
    LOSSES: ClassVar[tuple[str, ...]] = OBJECT_LOSSES
    """The losses of the format, in the order of the message."""
    UNLABELLED: ClassVar[str] = UNLABELLED
    """The loss for objects without a class."""
    HAS_TEXTS: ClassVar[bool] = True
    """Whether records have class texts, so that an id of 0 can mean no class."""
    LAYOUT: ClassVar[type[Layout]] = Layout

    @classmethod
    def build_cmdline_parser(cls, **kwargs: Any) -> Any:
        kwargs.setdefault("description", cls.DESCRIPTION)
        parser = super().build_cmdline_parser(**kwargs)
        if not any("--save-images" in action.option_strings for action in parser._actions):
            text = "the old name of --save-media"
            parser.add_argument("--save-images", action="store_true", default=None, help=text)
        add_arguments(parser, cls.OPTIONS)
        return parser

    def __init__(
        self,
        extractor: Any,
        save_dir: str,
        *,
        save_media: bool | None = None,
        save_images: bool | None = None,
        **options: Any,
    ) -> None:
        saves_images = bool(save_media or save_images or self.ALWAYS_IMAGES)
        try:
            self._options = ExportOptions.take({"label_map", *self.OPTIONS}, options)
            super().__init__(extractor, save_dir, save_media=saves_images, **options)
            self._losses = LossCounter(*self.LOSSES)
            self._images = ImageEncoder(
                save_media=saves_images,
                image_ext=self._image_ext,
                default_ext=self._default_image_ext,
                is_needed=self.ALWAYS_IMAGES,
                losses=self._losses,
            )
        except OptionError as error:
            raise compat.errors.DatasetExportError(str(error)) from error
        self._layout = self.LAYOUT(save_dir, self._options)
        self._writers: dict[str, ShardSetWriter] = {}
        self._obsolete: set[str] = set()
        """Shards to delete, if the dataset is exported to the folder that it was read from."""
        self._unchanged: set[str] = set()
        """Subsets whose shards are kept."""

    @abstractmethod
    def _encode(self, item: Any) -> Iterable[bytes]:
        """Return the records of an item; all errors are raised before this returns."""

    def _prepare(self, classes: ExportClasses) -> None:
        self._classes = classes
        labels = self._extractor.categories().get(compat.AnnotationType.label)
        self._is_from_shards = bool(getattr(labels, "source", ""))
        self._is_normalized = str(getattr(self._extractor, "format", "")).startswith("yolo")
        report, masks = self._report_annotation, self._options.save_masks
        self._objects = ObjectBuilder(classes, masks, report, self._losses, self.UNLABELLED)

    def apply(self) -> None:
        """Write all files, or raise and leave everything unchanged."""
        try:
            self._prepare(self._export_classes)
            with Output() as self._output:
                self._write_items()
                self._complete()
        except TfodError as error:
            raise compat.errors.DatasetExportError(str(error)) from error
        if self._save_dataset_meta:
            self._save_meta_file(self._save_dir)
        if losses := self._loss_sentences():
            _log.warning("%s: %s", self.NAME, "; ".join(losses))

    _apply_impl = apply

    def _loss_sentences(self) -> list[str]:
        """Describe what the format cannot store, and which images were rotated."""
        return self._losses.sentences()

    def _prepare_image(self, item: Any) -> UprightImage:
        # Annotations in shards belong to the stored pixels. YOLO's boxes belong to the rotated
        # ones, whatever size its importer has used to scale them.
        return self._images.prepare(item, not self._is_normalized, self._is_from_shards)

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Replace the shards of those subsets of which items were put or removed.

        All shards are replaced if there are none, or if the options or the label map differ.
        Shards of deleted subsets are deleted; subsets that the dataset never had are left alone.
        If the old shards contain images, the new ones do too, since there may be no other copies.
        """
        exporter = cls(dataset, save_dir, **options)
        changed = set(patch.updated_subsets)
        subsets = {*dataset.subsets(), *changed}
        existing = exporter._layout.find_shards(subsets)
        source = _find_source_shards(dataset, save_dir)
        named = {path for name in subsets for path in existing.get(name, ())}
        # If nothing was put or removed, items may have been changed in memory.
        is_partial = bool(changed) and named.issuperset(source)
        if is_partial and exporter._has_written(dataset.options, options):
            exporter._unchanged = {name for name in subsets - changed if existing.get(name)}
        kept = {path for name in exporter._unchanged for path in existing[name]}
        exporter._obsolete = {*source, *named} - kept
        if not exporter._images.save_media and _has_images(exporter._obsolete):
            exporter._images = replace(exporter._images, save_media=True)
        exporter.apply()

    def _has_written(self, previous: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
        """Return whether these are the previous options, and the label maps of the folder."""
        if previous != {name: options[name] for name in options if name not in _CALL_ARGUMENTS}:
            return False
        try:
            label_map = self._export_classes.label_map
            texts = self._layout.make_texts(label_map, self._extractor.subsets()).items()
        except TfodError:
            return False  # apply() reports it
        paths = {os.path.join(self._save_dir, name): text for name, text in texts}
        return all(
            os.path.exists(path) and not _has_other_classes(path, text)
            for path, text in paths.items()
        )

    @functools.cached_property
    def _export_classes(self) -> ExportClasses:
        return self._assign_ids()

    def _assign_ids(self) -> ExportClasses:
        label_map = None
        if self._options.label_map:
            label_map, notes = load_classes(self._options.label_map)
            for note in notes:
                _log.warning(note)
        classes = assign_ids(self._extractor.categories(), label_map, self.FIRST_ID)
        has_texts = self.HAS_TEXTS and self._options.label_key != "id"
        return classes if has_texts else replace(classes, unlabelled_id=NO_CLASS)

    def _get_writer(self, subset: str) -> ShardSetWriter:
        if subset not in self._writers:
            self._writers[subset] = self._layout.make_writer(subset, self._writers, self._output)
        return self._writers[subset]

    def _write_items(self) -> None:
        for item in self._ctx.progress_reporter.iter(self._extractor, desc="Writing TFRecords"):
            if item.subset in self._unchanged:
                continue
            self._current = item
            try:
                payloads = self._encode(item)
            except compat.errors.DatumaroError:
                raise  # raised by an error policy
            except (TfodError, OSError, ValueError, TypeError, ArithmeticError) as error:
                if not isinstance(error, TfodError):
                    reason = getattr(error, "strerror", None) or str(error)
                    error = TfodError(f"item {excerpt(item.id)} cannot be written ({reason})")
                self._ctx.error_policy.report_item_error(error, item_id=(item.id, item.subset))
                continue
            for payload in payloads:
                self._get_writer(item.subset).write(payload)

    def _complete(self) -> None:
        """Complete all files, and find the shards to delete."""
        written = {path for writer in self._writers.values() for path in writer.complete()}
        existing = self._layout.find_shards(self._writers)
        obsolete = {path for subset in self._writers for path in existing.get(subset, ())}
        obsolete |= self._obsolete
        self._output.obsolete = obsolete - set(map(os.path.abspath, written))
        kept = [subset for subset, paths in existing.items() if not obsolete.issuperset(paths)]
        texts = self._layout.make_texts(self._classes.label_map, self._writers)
        for name, text in texts.items():
            path = os.path.join(self._save_dir, name)
            if kept and os.path.exists(path) and _has_other_classes(path, text):
                _log.warning(
                    "%s: the label map changes, but these subsets in the folder were written with "
                    "the old one: %s",
                    path,
                    ", ".join(sorted(kept)),
                )
            file = self._output.file(path)
            file.write(text.encode())
            file.complete()

    def _report_annotation(self, reason: str) -> None:
        error = TfodError(f"item {excerpt(self._current.id)}: {reason}")
        item_id = (self._current.id, self._current.subset)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)


def count_image_attributes(
    lost: Counter[str], attributes: Mapping[str, Any], supported: Collection[str] = ()
) -> None:
    """Count the attributes of an image that a format without attributes drops."""
    lost.update(
        f"{name} (of the image)"
        for name, value in attributes.items()
        if name not in supported and value not in EMPTY_VALUES
    )


def _find_source_shards(dataset: Any, folder: str) -> list[str]:
    labels = dataset.categories().get(compat.AnnotationType.label)
    if getattr(labels, "source", None) != os.path.abspath(folder):
        return []
    return [path for path in labels.shards if os.path.exists(path)]


def _has_images(paths: Iterable[str]) -> bool:
    return any(
        ExampleBatch.of(records).column(keys.ENCODED, Kind.BYTES).values[:, 1].any()
        for path in paths
        if os.path.getsize(path)
        for records in read_record_batches(path)
    )


def _has_other_classes(path: str, text: str) -> bool:
    with open(path, encoding="utf-8", errors="replace") as file:
        existing, new = (
            [line for line in lines if not line.startswith("#")]
            for lines in (file.read().splitlines(), text.splitlines())
        )
    return existing != new
