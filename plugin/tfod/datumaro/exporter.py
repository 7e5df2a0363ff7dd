"""What all our exporters share: one walk through the dataset, and files that appear together."""

from __future__ import annotations

import contextlib
import logging
import os
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.export_annotations import OBJECT_LOSSES, UNLABELLED, ObjectBuilder
from tfod.datumaro.images import ImageEncoder, UprightImage
from tfod.datumaro.options import LAYOUT_OPTIONS, ExportOptions, add_arguments
from tfod.detection import keys
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import load_classes
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.detection.losses import Losses
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.example.columns import ExampleBatch
from tfod.example.wire import Kind
from tfod.formats.files import TAKEN_UPRIGHT, TURNED
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import read_record_batches, shard_compression
from tfod.tfrecord.shard_sets.names import SHARD_EXTENSIONS, stated_name, subset_of_stem
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.publishing import Output
from tfod.tfrecord.writer import OptionError, ShardSetWriter

_log = logging.getLogger("tfod.datumaro")
NO_CLASS = -1
"""What is written for no class, where there is no text to say so: 0 may be a class."""
OF_IMAGE = frozenset((compat.AnnotationType.label, compat.AnnotationType.caption))
"""Annotations that are of no place in their image."""
EMPTY_VALUES = (None, False, "")
"""Values of attributes that are not reported where a format has no attributes."""


class ShardExporter(compat.Exporter):
    """Walks through a dataset once and writes the shards of its subsets.

    Args:
        extractor: the dataset.
        save_dir: the folder to write to.
        save_media: put the images into the shards (``save_images`` is its old name).
        image_ext: re-encode images to this extension.
        options: those of :class:`tfod.datumaro.options.ExportOptions` that the format has.

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
    IN_PARTS: ClassVar[bool] = True
    """Whether a subset can be written again without the others."""

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
            self._images = ImageEncoder(with_images, self._image_ext, self._default_image_ext)
        except OptionError as error:
            raise compat.errors.DatasetExportError(str(error)) from error
        self._losses = Losses(*self.LOSSES)
        self._turned: defaultdict[str, list[str]] = defaultdict(list)
        self._writers: dict[str, ShardSetWriter] = {}
        # Of an export over what is there: the subsets that are written, None for all; how many
        # shards they had, and how compressed; and what goes.
        self._changed: Collection[str] | None = None
        self._layouts: dict[str, tuple[int, Compression]] = {}
        self._stale: set[str] = set()

    @abstractmethod
    def _payloads(self, item: Any) -> Iterable[bytes]:
        """The records of an item. All that can fail is done before this returns."""

    def _prepare(self, classes: ExportClasses) -> None:
        """Get ready to write items whose classes are these."""
        self._classes = classes
        labels = self._extractor.categories().get(compat.AnnotationType.label)
        self._is_of_shards = getattr(labels, "origin", None) is not None
        self._is_normalized = str(getattr(self._extractor, "format", "")).startswith("yolo")
        self._objects = ObjectBuilder(
            classes,
            self._options.save_masks,
            self._report_annotation,
            self._losses,
            self.UNLABELLED,
        )

    def _names_of(self, label_map: LabelMap) -> tuple[str, str]:
        """The file beside the shards that names the classes, and its text."""
        return LABEL_MAP_FILE, label_map.to_text()

    def _texts(self) -> dict[str, str]:
        """Called when all items are written: texts by path in the folder, the classes' first."""
        return dict([self._names_of(self._classes.label_map)])

    def _place(self, subset: str) -> tuple[str, str]:
        """The folder of a subset's shards, and what their names begin with."""
        return self._save_dir, subset

    def _own_shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        """Absolute paths, by subset, of the shards that lie as this exporter lays them.

        Those of other subsets are there, too, where they lie in the same folder.
        """
        return shards_directly_in(self._save_dir)

    def _make_writer(self, subset: str) -> ShardSetWriter:
        options = self._options
        count, compression = self._layouts.get(subset, (options.num_shards, options.compression))
        return ShardSetWriter(
            *self._place(subset),
            num_shards=count,
            shard_size=options.shard_size,
            compression=compression,
            output=self._output,
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
        turned = self._turned.items()
        return [
            *self._losses.sentences(),
            *(f"{what}: {len(names)} (the first: {names[0]})" for what, names in turned),
        ]

    def _image(self, item: Any) -> UprightImage:
        """An item's image with its pixels as EXIF shows them, and what its annotations are of.

        In shards they are of the stored pixels. YOLO's boxes are of the upright ones, whatever
        size its importer has scaled them by.
        """
        tells, is_of_shards = not self._is_normalized, self._is_of_shards
        image = self._images.image(item, self.ALWAYS_IMAGES, tells, is_of_shards)
        if image.is_turned:
            self._turned[TURNED].append(image.filename)
            has_places = any(one.type not in OF_IMAGE for one in item.annotations)
            if has_places and not (image.is_told or is_of_shards):
                self._turned[TAKEN_UPRIGHT].append(image.filename)
        return image

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write the subsets that changed over the shards that the dataset came from.

        Shards of subsets that are gone go too; those of subsets that the dataset never had stay.
        Everything is written anew, in our own layout, where the folder has another one, the
        classes changed, or other options are given. Where the shards that are replaced hold
        images, the new ones do, asked for or not: they may be the only place that has them.
        """
        exporter = cls(dataset, save_dir, **options)
        present = list(dataset.subsets())
        updated = list(patch.updated_subsets)
        sources = _came_from(dataset, save_dir)
        ours = exporter._own_shards({*present, *updated})
        there = {*sources, *(path for paths in ours.values() for path in paths)}
        if not exporter._images.save_media and _hold_images(there):
            exporter._images = replace(exporter._images, save_media=True)
        is_as_asked = LAYOUT_OPTIONS.isdisjoint(options)
        is_ours = all(path in ours.get(subset, ()) for path, subset in sources.items())
        changed = present
        if cls.IN_PARTS and is_as_asked and is_ours and not exporter._names_would_change():
            changed = [name for name in updated if name in present]
        if is_as_asked:
            exporter._layouts = {name: _layout_of(ours[name]) for name in changed if ours.get(name)}
        exporter._changed = changed
        # What became empty leaves no files, either.
        goes = {*changed, *(name for name in updated if name not in present)}
        exporter._stale = {path for path, subset in sources.items() if subset in goes}
        exporter._stale.update(path for name in goes for path in ours.get(name, ()))
        exporter.apply()

    def _export_classes(self) -> ExportClasses:
        wanted: LabelMap | None = None
        if self._options.label_map:
            wanted, liberties = load_classes(self._options.label_map)
            for liberty in liberties:
                _log.warning(liberty)
        classes = export_classes(self._extractor.categories(), wanted, self.FIRST_ID)
        has_texts = self.HAS_TEXTS and self._options.label_key != "id"
        return classes if has_texts else replace(classes, unlabelled_id=NO_CLASS)

    def _names_would_change(self) -> bool:
        name, text = self._names_of(self._export_classes().label_map)
        path = os.path.join(self._save_dir, name)
        return not os.path.exists(path) or _names_others(path, text)

    def _writer(self, subset: str) -> ShardSetWriter:
        """The writer of a subset, made when it is first asked for."""
        if subset not in self._writers:
            self._writers[subset] = self._make_writer(subset)
        return self._writers[subset]

    def _write_items(self) -> None:
        for item in self._ctx.progress_reporter.iter(self._extractor, desc="Writing TFRecords"):
            if self._changed is not None and item.subset not in self._changed:
                continue
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
        texts = {os.path.join(self._save_dir, name): one for name, one in self._texts().items()}
        written: set[str] = set()
        for writer in self._writers.values():
            written |= set(map(os.path.abspath, writer.complete()))
        before = self._own_shards(self._writers)
        others = sorted(set(before) - set(self._writers))
        names, text = next(iter(texts.items()))
        if others and os.path.exists(names) and _names_others(names, text):
            _log.warning(
                "%s: the label map changes, but these subsets in the folder were written with "
                "the old one: %s",
                names,
                ", ".join(others),
            )
        goes = {*self._stale, *(path for one in self._writers for path in before.get(one, ()))}
        self._output.stale = goes - written
        for path, text in texts.items():
            file = self._output.file(path)
            file.write(text.encode())
            file.complete()

    def _report_annotation(self, reason: str) -> None:
        error = TfodError(f"item {self._current.id!r}: {reason}")
        item_id = (self._current.id, self._current.subset)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)


def shards_directly_in(folder: str, extension: str = SHARD_EXTENSIONS[0]) -> dict[str, list[str]]:
    """Absolute paths of the shards in a folder and not below it, by the subset that each name says.

    What only the names of several say together is left out: nobody's files go by a guess.
    """
    root = os.path.abspath(folder)
    found: dict[str, list[str]] = {}
    with contextlib.suppress(ShardsNotFoundError):
        for one in find_shards(root) if os.path.isdir(root) else ():
            for path in map(os.path.abspath, one.paths):
                if os.path.dirname(path) == root and path.endswith(extension):
                    found.setdefault(subset_of_stem(stated_name(path).stem), []).append(path)
    return found


def count_image_attributes(
    lost: Counter[str], attributes: Mapping[str, Any], known: Collection[str] = ()
) -> None:
    """Count an image's attributes that a format without any does not take."""
    lost.update(
        f"{name} (of the image)"
        for name, value in attributes.items()
        if name not in known and value not in EMPTY_VALUES
    )


def _came_from(dataset: Any, folder: str) -> dict[str, str]:
    """Path and subset of the shards that a dataset was read from, if it was from this folder."""
    labels = dataset.categories().get(compat.AnnotationType.label)
    origin = getattr(labels, "origin", None)
    if origin is None or origin.source != os.path.abspath(folder):
        return {}
    return {path: subset for path, subset in origin.shards if os.path.exists(path)}


def _hold_images(paths: Iterable[str]) -> bool:
    """Whether any record of these shards has an image's bytes."""
    return any(
        ExampleBatch.of(records).column(keys.ENCODED, Kind.BYTES).values[:, 1].any()
        for path in paths
        if os.path.getsize(path)
        for records in read_record_batches(path)
    )


def _layout_of(paths: list[str]) -> tuple[int, Compression]:
    """Number of shards and compression of a subset that is to be written again."""
    with open(paths[0], "rb") as file:
        return len(paths), shard_compression(file.read(HEADER_BYTES))


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
    return TfodError(f"item {item.id!r} cannot be written ({reason})")
