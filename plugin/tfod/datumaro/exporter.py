"""What all our exporters share: one walk through the dataset, and files that appear together."""

from __future__ import annotations

import contextlib
import logging
import os
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.export_annotations import OBJECT_LOSSES, ObjectBuilder
from tfod.datumaro.images import ImageEncoder, UprightImage, media_size
from tfod.datumaro.options import ExportOptions, add_arguments, check_image_extension
from tfod.detection.images.image import DEFAULT_EXTENSION, UPRIGHT
from tfod.detection.images.upright import orientation_of
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import load_classes
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.detection.losses import Losses
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.formats.files import TAKEN_UPRIGHT, TURNED
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.shard_sets.names import SHARD_EXTENSIONS, stated_name, subset_of_stem
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.publishing import AtomicFile, publish_together
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

    @classmethod
    def build_cmdline_parser(cls, **kwargs: Any) -> Any:
        kwargs.setdefault("description", cls.DESCRIPTION)
        parser = super().build_cmdline_parser(**kwargs)
        if not any("--save-images" in action.option_strings for action in parser._actions):
            parser.add_argument(
                "--save-images",
                action="store_true",
                default=None,
                help="the old name of --save-media",
            )
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
            check_image_extension(self._image_ext)
        except OptionError as error:
            raise compat.errors.DatasetExportError(str(error)) from error
        self._losses = Losses(*self.LOSSES)
        # Of subsets that are written again: how many shards there were, and how compressed.
        self._layouts: dict[str, tuple[int, Compression]] = {}
        self._stale: set[str] = set()
        self._writers: dict[str, ShardSetWriter] = {}
        self._files: dict[str, AtomicFile] = {}
        self._images = ImageEncoder(self._save_media, self._image_ext, self._default_image_ext)
        self._turned: defaultdict[str, list[str]] = defaultdict(list)

    @abstractmethod
    def _payloads(self, item: Any) -> Iterable[bytes]:
        """The records of an item. All that can fail is done before this returns."""

    def _prepare(self, classes: ExportClasses) -> None:
        """Get ready to write items whose classes are these."""
        self._classes = classes
        save_masks = self._options.save_masks
        self._objects = ObjectBuilder(classes, save_masks, self._report_annotation, self._losses)

    def _texts(self) -> dict[str, str]:
        """Called when all items are written: texts by path in the folder, the classes' first."""
        return {LABEL_MAP_FILE: self._classes.label_map.to_text()}

    def _make_writer(self, subset: str) -> ShardSetWriter:
        options = self._options
        layout = self._layouts.get(subset, (options.num_shards, options.compression))
        folder, name = self._place(subset)
        return ShardSetWriter(
            folder,
            name,
            num_shards=layout[0],
            shard_size=options.shard_size,
            compression=layout[1],
        )

    def _place(self, subset: str) -> tuple[str, str]:
        """The folder of a subset's shards, and what their names begin with."""
        return self._save_dir, subset

    def _own_shards(self, folder: str) -> dict[str, list[str]]:
        """Absolute paths, by subset, of the shards that lie as this exporter lays them."""
        return shards_directly_in(folder)

    def apply(self) -> None:
        """Write everything, or raise and leave everything as it was."""
        try:
            self._prepare(self._export_classes())
            try:
                self._write_items()
                self._publish()
            finally:
                for file in reversed(self._files.values()):
                    file.discard()
                for writer in self._writers.values():
                    writer.discard()
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

    def _upright(self, item: Any, media: Any, encoded: bytes | None, name: str) -> UprightImage:
        """An item's image with its pixels as EXIF shows them, and what its annotations are of.

        In shards they are of the stored pixels. YOLO's boxes are of the upright ones, whatever
        size its importer has scaled them by.
        """
        if not encoded or orientation_of(encoded) == UPRIGHT:
            size = media_size(media, encoded)
            return UprightImage(encoded, size, size)
        labels = self._extractor.categories().get(compat.AnnotationType.label)
        is_of_shards = getattr(labels, "origin", None) is not None
        is_normalized = str(getattr(self._extractor, "format", "")).startswith("yolo")
        found, told = UprightImage.of(media, encoded, name, not is_normalized, is_of_shards)
        self._turned[TURNED].append(name)
        if not (told or is_of_shards) and any(one.type not in OF_IMAGE for one in item.annotations):
            self._turned[TAKEN_UPRIGHT].append(name)
        return found._replace(encoded=self._images.as_asked(found.encoded or b""))

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write everything over the shards that the dataset came from; those of no use go."""
        exporter = cls(dataset, save_dir, **options)
        stale = set(came_from(dataset, save_dir))
        # A subset that is gone, or has nothing to write any more, leaves no files; those that
        # the dataset never had stay.
        for subset in {*patch.updated_subsets, *dataset.subsets()}:
            stale.update(exporter._own_shards(save_dir).get(subset, ()))
        exporter._stale = stale
        exporter.apply()

    def _export_classes(self) -> ExportClasses:
        wanted: LabelMap | None = None
        if self._options.label_map:
            wanted, liberties = load_classes(self._options.label_map)
            for liberty in liberties:
                _log.warning(liberty)
        return export_classes(self._extractor.categories(), wanted, self.FIRST_ID)

    def _writer(self, subset: str) -> ShardSetWriter:
        """The writer of a subset, made when it is first asked for."""
        if subset not in self._writers:
            self._writers[subset] = self._make_writer(subset)
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

    def _publish(self) -> None:
        """Complete all files, then give them their names; drop stale shards."""
        texts = self._texts()
        for name, text in texts.items():
            path = os.path.join(self._save_dir, name)
            file = self._files[path] = AtomicFile(path)
            file.write(text.encode())
            file.complete()
        files: dict[str, str] = {}
        for writer in self._writers.values():
            writer.complete()
            files |= writer.pending()
        shards = set(map(os.path.abspath, files))
        before = self._own_shards(self._save_dir)
        self._warn_of_others(before, *next(iter(texts.items())))
        files |= {path: file.aside for path, file in self._files.items()}
        goes = {*self._stale, *(path for one in self._writers for path in before.get(one, ()))}
        publish_together(files, goes - shards)

    def _warn_of_others(self, before: Collection[str], names_file: str, names: str) -> None:
        """Shards that stay in the folder were written for the names that go."""
        others = sorted(set(before) - set(self._writers))
        path = os.path.join(self._save_dir, names_file)
        if others and text_without_comments(path) not in (None, _without_comments(names)):
            _log.warning(
                "%s: the label map changes, but these subsets in the folder were written with "
                "the old one: %s",
                path,
                ", ".join(others),
            )

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


def came_from(dataset: Any, folder: str) -> dict[str, str]:
    """Path and subset of the shards that a dataset was read from, if it was from this folder."""
    labels = dataset.categories().get(compat.AnnotationType.label)
    origin = getattr(labels, "origin", None)
    if origin is None or origin.source != os.path.abspath(folder):
        return {}
    return {path: subset for path, subset in origin.shards if os.path.exists(path)}


def count_image_attributes(
    lost: Counter[str], attributes: Mapping[str, Any], known: Collection[str] = ()
) -> None:
    """Count an image's attributes that a format without any does not take."""
    lost.update(
        f"{name} (of the image)"
        for name, value in attributes.items()
        if name not in known and value not in EMPTY_VALUES
    )


def text_without_comments(path: str) -> str | None:
    """A label map's text as far as it means something; None where there is no such file."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return _without_comments(file.read())


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith("#"))


def _named(item: Any, error: Exception) -> TfodError:
    """What went wrong with an item, as an error of ours that names it."""
    reason = getattr(error, "strerror", None) or str(error)
    return TfodError(f"item {item.id!r} cannot be written ({reason})")
