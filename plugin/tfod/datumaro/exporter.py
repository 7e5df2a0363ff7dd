"""What all our exporters share: one walk through the dataset, and files that appear together."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.export_annotations import OBJECT_LOSSES, UNLABELLED, ObjectBuilder
from tfod.datumaro.formats.export_layouts import Layout
from tfod.datumaro.formats.export_options import ExportOptions, add_arguments
from tfod.datumaro.media import ImageEncoder, UprightImage
from tfod.detection import keys
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.detection.labels.labels_file import load_classes
from tfod.detection.losses import LossCounter
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.example.wire import Kind
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.storage.publishing import Output
from tfod.tfrecord.writer import OptionError, ShardSetWriter

_log = logging.getLogger("tfod.datumaro")
NO_CLASS = -1
"""What is written for no class, where there is no text to say so: 0 may be a class."""
EMPTY_VALUES = (None, False, "")
"""Values of attributes that are not reported where a format has no attributes."""


class ShardExporter(compat.Exporter):
    """Walks through a dataset once and writes the shards of its subsets.

    Args:
        extractor: the dataset.
        save_dir: the folder to write to.
        save_media: put the images into the shards (``save_images`` is its old name).
        image_ext: re-encode images to this extension.
        options: options of the format, from
            :class:`tfod.datumaro.formats.export_options.ExportOptions`.

    Raises:
        DatasetExportError: something cannot be written; what was there before is unchanged.
    """

    DEFAULT_IMAGE_EXT = DEFAULT_EXTENSION
    DESCRIPTION: ClassVar[str]
    OPTIONS: ClassVar[tuple[str, ...]] = ("label_map",)
    """The options of the command line; Python takes ``label_map`` in any case."""
    FIRST_ID: ClassVar[int] = 1
    """The id of the first class where nothing gives the classes ids."""
    ALWAYS_IMAGES: ClassVar[bool] = False
    """Whether a record needs an image, so that they are written, asked for or not."""
    LOSSES: ClassVar[tuple[str, ...]] = OBJECT_LOSSES
    """What the format cannot take, in the order of the message."""
    UNLABELLED: ClassVar[str] = UNLABELLED
    """One of these: objects without a class."""
    HAS_TEXTS: ClassVar[bool] = True
    """Whether records have the texts of classes, so that an id of 0 can be none."""
    LAYOUT: ClassVar[type[Layout]] = Layout

    @classmethod
    def build_cmdline_parser(cls, **kwargs: Any) -> Any:
        kwargs.setdefault("description", cls.DESCRIPTION)
        parser = super().build_cmdline_parser(**kwargs)
        if not any("--save-images" in action.option_strings for action in parser._actions):
            about = "the old name of --save-media"
            parser.add_argument("--save-images", action="store_true", default=None, help=about)
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
        with_images = bool(save_media or save_images or self.ALWAYS_IMAGES)
        try:
            self._options = ExportOptions.take({"label_map", *self.OPTIONS}, options)
            super().__init__(extractor, save_dir, save_media=with_images, **options)
            self._losses = LossCounter(*self.LOSSES)
            self._images = ImageEncoder(
                save_media=with_images,
                image_ext=self._image_ext,
                default_ext=self._default_image_ext,
                is_needed=self.ALWAYS_IMAGES,
                losses=self._losses,
            )
        except OptionError as error:
            raise compat.errors.DatasetExportError(str(error)) from error
        self._layout = self.LAYOUT(save_dir, self._options)
        self._writers: dict[str, ShardSetWriter] = {}
        self._stale: set[str] = set()
        """Shards that go, of an export over what the dataset came from."""

    @abstractmethod
    def _payloads(self, item: Any) -> Iterable[bytes]:
        """The records of an item. All that can fail is done before this returns."""

    def _prepare(self, classes: ExportClasses) -> None:
        """Get ready to write items whose classes are these."""
        self._classes = classes
        labels = self._extractor.categories().get(compat.AnnotationType.label)
        self._is_of_shards = bool(getattr(labels, "source", ""))
        self._is_normalized = str(getattr(self._extractor, "format", "")).startswith("yolo")
        self._objects = ObjectBuilder(
            classes,
            self._options.save_masks,
            self._report_annotation,
            self._losses,
            self.UNLABELLED,
        )

    def apply(self) -> None:
        """Write everything, or raise and leave everything as it was."""
        try:
            self._prepare(self._export_classes())
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
        """What the format could not take, counted; and which images were turned."""
        return self._losses.sentences()

    def _image(self, item: Any) -> UprightImage:
        """An item's image with its pixels as EXIF shows them, and what its annotations are of.

        In shards they are of the stored pixels. YOLO's boxes are of the upright ones, whatever
        size its importer has scaled them by.
        """
        return self._images.image(item, not self._is_normalized, self._is_of_shards)

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write a dataset over the shards that it came from.

        Shards of subsets that are gone go too; those of subsets that the dataset never had stay.
        Where the shards that are replaced hold images, the new ones do, asked for or not: they may
        be the only place that has them.
        """
        exporter = cls(dataset, save_dir, **options)
        subsets = {*dataset.subsets(), *patch.updated_subsets}
        ours = exporter._layout.shards(subsets)
        exporter._stale = {
            *_came_from(dataset, save_dir),
            *(path for name in subsets for path in ours.get(name, ())),
        }
        if not exporter._images.save_media and _hold_images(exporter._stale):
            exporter._images = replace(exporter._images, save_media=True)
        exporter.apply()

    def _export_classes(self) -> ExportClasses:
        wanted = None
        if self._options.label_map:
            wanted, notes = load_classes(self._options.label_map)
            for note in notes:
                _log.warning(note)
        classes = export_classes(self._extractor.categories(), wanted, self.FIRST_ID)
        has_texts = self.HAS_TEXTS and self._options.label_key != "id"
        return classes if has_texts else replace(classes, unlabelled_id=NO_CLASS)

    def _writer(self, subset: str) -> ShardSetWriter:
        """The writer of a subset, made when it is first asked for."""
        if subset not in self._writers:
            self._writers[subset] = self._layout.writer(subset, self._writers, self._output)
        return self._writers[subset]

    def _write_items(self) -> None:
        for item in self._ctx.progress_reporter.iter(self._extractor, desc="Writing TFRecords"):
            self._current = item
            try:
                payloads = self._payloads(item)
            except compat.errors.DatumaroError:
                raise  # an error policy has spoken
            except (TfodError, OSError, ValueError, TypeError, ArithmeticError) as error:
                reason = error if isinstance(error, TfodError) else _named(item, error)
                self._ctx.error_policy.report_item_error(reason, item_id=(item.id, item.subset))
                continue
            for payload in payloads:
                self._writer(item.subset).write(payload)

    def _complete(self) -> None:
        """Complete all files, and say which shards go."""
        written = {path for one in self._writers.values() for path in one.complete()}
        there = self._layout.shards(self._writers)
        goes = self._stale | {path for one in self._writers for path in there.get(one, ())}
        self._output.obsolete = goes - set(map(os.path.abspath, written))
        stays = [subset for subset, paths in there.items() if not goes.issuperset(paths)]
        texts = self._layout.texts(self._classes.label_map, self._writers)
        for name, text in texts.items():
            path = os.path.join(self._save_dir, name)
            if stays and os.path.exists(path) and _names_others(path, text):
                _log.warning(
                    "%s: the label map changes, but these subsets in the folder were written with "
                    "the old one: %s",
                    path,
                    ", ".join(sorted(stays)),
                )
            file = self._output.file(path)
            file.write(text.encode())
            file.complete()

    def _report_annotation(self, reason: str) -> None:
        error = TfodError(f"item {self._current.id!r:.81}: {reason}")
        item_id = (self._current.id, self._current.subset)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)


def count_image_attributes(
    lost: Counter[str], attributes: Mapping[str, Any], known: Collection[str] = ()
) -> None:
    """Count an image's attributes that a format without any does not take."""
    lost.update(
        f"{name} (of the image)"
        for name, value in attributes.items()
        if name not in known and value not in EMPTY_VALUES
    )


def _came_from(dataset: Any, folder: str) -> list[str]:
    """The shards that a dataset was read from, if it was from this folder."""
    labels = dataset.categories().get(compat.AnnotationType.label)
    if getattr(labels, "source", None) != os.path.abspath(folder):
        return []
    return [path for path in labels.shards if os.path.exists(path)]


def _hold_images(paths: Iterable[str]) -> bool:
    """Whether any record of these shards has an image's bytes."""
    return any(
        ExampleBatch.of(records).column(keys.ENCODED, Kind.BYTES).values[:, 1].any()
        for path in paths
        if os.path.getsize(path)
        for records in read_record_batches(path)
    )


def _names_others(path: str, text: str) -> bool:
    """Whether a label map names other classes than a text, whatever their comments say."""
    with open(path, encoding="utf-8", errors="replace") as file:
        there, wanted = (
            [line for line in lines if not line.startswith("#")]
            for lines in (file.read().splitlines(), text.splitlines())
        )
    return there != wanted


def _named(item: Any, error: Exception) -> TfodError:
    """What went wrong with an item, as an error of ours that names it."""
    reason = getattr(error, "strerror", None) or str(error)
    return TfodError(f"item {item.id!r:.81} cannot be written ({reason})")
