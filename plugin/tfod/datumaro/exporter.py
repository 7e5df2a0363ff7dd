"""What all our exporters share: options of images, files that appear together, losses told."""

from __future__ import annotations

import contextlib
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol

from tfod.datumaro import compat
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.images import ImageEncoder
from tfod.datumaro.options import check_image_extension
from tfod.detection import keys
from tfod.detection.image import DEFAULT_EXTENSION
from tfod.detection.label_map import LabelMap
from tfod.detection.labels_file import load_classes
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.example.columns import ExampleBatch
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.damage import HEADER_BYTES
from tfod.tfrecord.publishing import publish_together, recover
from tfod.tfrecord.records import read_record_batches, shard_compression
from tfod.tfrecord.shard_layout import OptionError
from tfod.tfrecord.shards import SHARD_EXTENSIONS, find_shards
from tfod.tfrecord.writer import AtomicFile

_log = logging.getLogger("tfod.datumaro")
LABEL_MAP_FILE = "label_map.pbtxt"
NO_CLASS = -1
"""What is written for no class, where there is no text to say so: 0 may be a class."""


class ShardExporter(compat.Exporter):
    """Walks through a dataset once and writes the shards of its subsets.

    Args:
        extractor: the dataset.
        save_dir: the folder to write to.
        label_map: take the class ids from this label map (a file or a name that tfod ships).
        save_media: put the images into the shards (``save_images`` is its old name).
        image_ext: re-encode images to this extension.

    Raises:
        DatasetExportError: something cannot be written; what was there before is unchanged.
    """

    DEFAULT_IMAGE_EXT = DEFAULT_EXTENSION
    FIRST_ID: ClassVar[int] = 1
    """The id of the first class where nothing gives the classes ids."""
    NAMES_FILE: ClassVar[str] = LABEL_MAP_FILE
    """The file beside the shards that names the classes."""

    @classmethod
    def build_cmdline_parser(cls, **kwargs: Any) -> Any:
        parser = super().build_cmdline_parser(**kwargs)
        if not any("--save-images" in action.option_strings for action in parser._actions):
            parser.add_argument(
                "--save-images",
                action="store_true",
                default=None,
                help="the old name of --save-media",
            )
        return parser

    def __init__(
        self,
        extractor: Any,
        save_dir: str,
        *,
        label_map: str | None = None,
        save_media: bool | None = None,
        save_images: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(extractor, save_dir, save_media=bool(save_media or save_images), **options)
        try:
            check_image_extension(self._image_ext)
        except OptionError as error:
            raise compat.errors.DatasetExportError(str(error)) from error
        self._label_map = label_map
        self._stale: set[str] = set()
        self._images = ImageEncoder(self._save_media, self._image_ext, self._default_image_ext)

    @abstractmethod
    def _payloads(self, item: Any) -> Iterable[bytes]:
        """The records of an item. All that can fail is done before this returns."""

    @abstractmethod
    def _make_writer(self, subset: str) -> SubsetWriter: ...

    @abstractmethod
    def _losses(self) -> list[str]:
        """What the format could not take, counted."""

    def _prepare(self, classes: ExportClasses) -> None:
        """Get ready to write items whose classes are these."""
        self._classes = classes

    def _finish(self, sets: ShardSets) -> str:
        """Called when all items are written; returns the text of the file of names."""
        return self._classes.label_map.to_text()

    def _shard_sets(self) -> ShardSets:
        return ShardSets(self._save_dir, self._make_writer, self.NAMES_FILE, self._our_shards)

    def apply(self) -> None:
        """Write everything, or raise and leave everything as it was."""
        try:
            self._prepare(self._export_classes())
            with self._shard_sets() as sets:
                self._sets = sets
                self._write_items(sets)
                sets.publish(self._finish(sets), self._stale)
        except TfodError as error:
            raise compat.errors.DatasetExportError(str(error)) from error
        if self._save_dataset_meta:
            self._save_meta_file(self._save_dir)
        self._say_what_was_lost()

    _apply_impl = apply

    def _say_what_was_lost(self) -> None:
        """One closing message."""
        losses = self._losses()
        if losses:
            _log.warning("%s: %s", self.NAME, "; ".join(losses))

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write everything over the shards that the dataset came from; those of no use go."""
        exporter = cls(dataset, save_dir, **options)
        recover(save_dir)
        ours = cls._our_shards(save_dir)
        stale = set(came_from(dataset, save_dir))
        # A subset that is gone, or has nothing to write any more, leaves no files; those that
        # this dataset never had are somebody's.
        known = {*dataset.subsets(), *patch.updated_subsets}
        stale.update(path for name in known for path in ours.get(name, ()))
        exporter._stale = stale
        exporter.apply()

    @staticmethod
    def _our_shards(folder: str) -> dict[str, list[str]]:
        """Absolute paths, by subset, of the shards that lie as this exporter lays them."""
        return our_shards(folder)

    def _export_classes(self) -> ExportClasses:
        wanted: LabelMap | None = None
        if self._label_map:
            wanted, liberties = load_classes(self._label_map)
            for liberty in liberties:
                _log.warning(liberty)
        return export_classes(self._extractor.categories(), wanted, self.FIRST_ID)

    def _write_items(self, sets: ShardSets) -> None:
        progress = self._ctx.progress_reporter
        for item in progress.iter(self._extractor, desc="Writing TFRecords"):
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
                sets.writer(item.subset).write(payload)

    def _report_annotation(self, reason: str) -> None:
        error = TfodError(f"item {self._current.id!r}: {reason}")
        item_id = (self._current.id, self._current.subset)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)


def came_from(dataset: Any, folder: str) -> dict[str, str]:
    """Path and subset of the shards that a dataset was read from, if it was from this folder."""
    labels = dataset.categories().get(compat.AnnotationType.label)
    origin = getattr(labels, "origin", None)
    if origin is None or origin.source != os.path.abspath(folder):
        return {}
    return {path: subset for path, subset in origin.shards if os.path.exists(path)}


def _named(item: Any, error: Exception) -> TfodError:
    """What went wrong with an item, as an error of ours that names it."""
    reason = getattr(error, "strerror", None) or str(error)
    return TfodError(f"item {item.id!r} cannot be written ({reason})")


class SubsetWriter(Protocol):
    """Writes the files of one subset aside, until they are published."""

    def write(self, payload: bytes, /) -> None: ...

    def complete(self) -> None: ...

    def pending(self) -> dict[str, str]: ...

    def discard(self) -> None: ...


class ShardSets(contextlib.AbstractContextManager["ShardSets"]):
    """The writers of all subsets; their files appear together, at the end.

    Args:
        folder: where to write.
        make_writer: makes the writer of a subset.
        names_file: the file that names the classes, beside the shards.
        own_shards: finds the shards, by subset, that an earlier export has left in the folder.
    """

    def __init__(
        self,
        folder: str,
        make_writer: Callable[[str], SubsetWriter],
        names_file: str,
        own_shards: Callable[[str], dict[str, list[str]]],
    ) -> None:
        self._folder = folder
        self._make_writer = make_writer
        self._names_file = names_file
        self._own_shards = own_shards
        self._writers: dict[str, SubsetWriter] = {}
        self._files: dict[str, AtomicFile] = {}
        recover(folder)

    def __contains__(self, subset: str) -> bool:
        return subset in self._writers

    def writer(self, subset: str) -> SubsetWriter:
        """The writer of a subset, made when it is first asked for."""
        if subset not in self._writers:
            self._writers[subset] = self._make_writer(subset)
        return self._writers[subset]

    def add_file(self, path: str, content: bytes) -> None:
        """A file in or below the folder that appears with the shards."""
        file = AtomicFile(*os.path.split(path))
        self._files[path] = file
        file.write(content)
        file.complete()

    def publish(self, names: str, stale: Iterable[str] = ()) -> set[str]:
        """Complete all files, then give them their names; drop stale shards.

        Args:
            names: the text of the file of names.
            stale: files of an earlier export that go, besides the shards of the same subsets.

        Returns:
            The absolute paths of the shards.
        """
        self.add_file(os.path.join(self._folder, self._names_file), names.encode())
        shards: dict[str, str] = {}
        for writer in self._writers.values():
            writer.complete()
            shards |= writer.pending()
        before = self._own_shards(self._folder)
        self._warn_of_others(before, names)
        files = {path: file.aside for path, file in self._files.items()}
        goes = {*stale, *(path for one in self._writers for path in before.get(one, ()))}
        written = set(map(os.path.abspath, shards))
        publish_together({**shards, **files}, goes - written, self._folder)
        return written

    def _warn_of_others(self, before: dict[str, list[str]], names: str) -> None:
        """Shards that stay in the folder were written for the names that go."""
        others = sorted(set(before) - set(self._writers))
        path = os.path.join(self._folder, self._names_file)
        if others and os.path.exists(path) and text_without_comments(path) != _uncommented(names):
            _log.warning(
                "%s: the label map changes, but these subsets in the folder were written with "
                "the old one: %s",
                path,
                ", ".join(others),
            )

    def __exit__(self, *_: object) -> None:
        for file in reversed(self._files.values()):
            file.discard()
        for writer in self._writers.values():
            writer.discard()


def our_shards(folder: str) -> dict[str, list[str]]:
    """Absolute paths, by subset, of the shards in a folder that lie as this exporter lays them."""
    root = os.path.abspath(folder)
    found: dict[str, list[str]] = {}
    try:
        sets = find_shards(root) if os.path.isdir(root) else []
    except ShardsNotFoundError:
        return found
    for one in sets:
        for path in map(os.path.abspath, one.paths):
            if os.path.dirname(path) == root and path.endswith(SHARD_EXTENSIONS[0]):
                found.setdefault(one.subset, []).append(path)
    return found


def holds_images(paths: Iterable[str]) -> bool:
    """Whether any record of these shards has an image's bytes."""
    for path in paths:
        if os.path.getsize(path):
            for records in read_record_batches(path):
                for example in ExampleBatch.of(records):
                    if any(start < end for start, end in example.byte_spans(keys.ENCODED)):
                        return True
    return False


def layout_of(paths: list[str]) -> tuple[int, Compression]:
    """Number of shards and compression of a subset that is to be written again."""
    with open(paths[0], "rb") as file:
        return len(paths), shard_compression(file.read(HEADER_BYTES))


def text_without_comments(path: str) -> str:
    """A label map's text as far as it means something."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return _uncommented(file.read())


def _uncommented(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith("#"))
