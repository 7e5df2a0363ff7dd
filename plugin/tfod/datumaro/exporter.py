"""The exporter: a Datumaro dataset to shards and their label map."""

from __future__ import annotations

import argparse
import contextlib
import enum
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from tfod import keys
from tfod.compression import Compression
from tfod.datumaro import lines
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.notes import EMPTY_SUBSETS
from tfod.datumaro.objects import ObjectBuilder
from tfod.datumaro.reader import DEFAULT_EXTENSION
from tfod.detection import Detection, encode_detection, is_attribute_value
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.label_map import LabelMap, load_label_map
from tfod.naming import is_id_of, split_extension
from tfod.picture import FORMAT_OF_EXTENSION, picture_size, sniff_format
from tfod.records import HEADER_BYTES, shard_compression
from tfod.shard_file import ByteSpan
from tfod.shards import SHARD_EXTENSIONS, find_shards
from tfod.writer import AtomicFile, ShardSetWriter

_log = logging.getLogger(__name__)
LABEL_MAP_FILE = "label_map.pbtxt"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
# Options that change shards whose pictures did not change.
_LAYOUT_OPTIONS = frozenset(
    ("num_shards", "shard_size", "compression", "label_key", "save_masks", "image_ext")
)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


_Choice = TypeVar("_Choice", bound=enum.Enum)


class OptionError(TfodError):
    """An option of the exporter makes no sense."""


def parse_size(text: str) -> int:
    """Bytes of a size such as ``100MB`` (units of 1024).

    Raises:
        OptionError: it is none.
    """
    match = _SIZE.match(text.strip())
    size = int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0
    if size < 1:
        raise OptionError(f"shard_size: {text!r} is no size; write for example 100MB")
    return size


def parse_count(value: int | str) -> int:
    """A number from 1.

    Raises:
        OptionError: it is none.
    """
    if not str(value).isdigit() or int(value) < 1:
        raise OptionError(f"num_shards: {value!r} is no number from 1")
    return int(value)


def _argument(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A parser for argparse, which wants its own error."""

    def parsed(text: str) -> int:
        try:
            return parse(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    return parsed


class LabelKey(str, enum.Enum):
    """How an object's class is written; the values are what the command line takes."""

    BOTH = "both"
    TEXT = "text"
    ID = "id"


class TfDetectionApiExporter(lines.Exporter):  # type: ignore[misc]
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
        parser = super().build_cmdline_parser(**kwargs)
        if not any("--save-images" in action.option_strings for action in parser._actions):
            parser.add_argument(
                "--save-images",
                action="store_true",
                default=None,
                help="the old name of --save-media",
            )
        parser.add_argument(
            "--save-masks",
            action="store_true",
            help="Include instance masks, of boxes and polygons too (default: %(default)s)",
        )
        parser.add_argument(
            "--num-shards",
            type=_argument(parse_count),
            default=1,
            help="Number of shards for each subset (default: %(default)s)",
        )
        parser.add_argument(
            "--shard-size",
            type=_argument(parse_size),
            help="Begin a new shard at this size, such as 100MB",
        )
        parser.add_argument(
            "--compression",
            choices=[one.value for one in Compression],
            default=Compression.NONE.value,
            help="Compress each shard (default: %(default)s)",
        )
        parser.add_argument(
            "--label-map",
            help="Take class ids from this label map file, or from one that tfod ships (coco, …)",
        )
        parser.add_argument(
            "--label-key",
            choices=[one.value for one in LabelKey],
            default=LabelKey.BOTH.value,
            help="Write classes as text, as id, or both (default: %(default)s)",
        )
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
            self._num_shards = parse_count(num_shards)
            self._shard_size = None if shard_size is None else parse_size(str(shard_size))
            self._compression = _one_of("compression", Compression, compression)
            self._label_key = _one_of("label_key", LabelKey, label_key)
            if self._num_shards > 1 and self._shard_size is not None:
                raise OptionError("num_shards and shard_size exclude each other; give one of them")
        except OptionError as error:
            raise lines.errors.DatasetExportError(str(error)) from error
        self._save_masks = save_masks
        self._label_map = label_map
        self._keep_pictures_of = ""
        self._layouts: dict[str, tuple[int, Compression]] = {}

    @property
    def can_stream(self) -> bool:
        """The dataset is walked through once, one picture at a time."""
        return True

    def apply(self) -> None:
        """Write everything, or raise and leave everything as it was."""
        try:
            classes = self._export_classes()
            self._objects = ObjectBuilder(classes, self._save_masks, self._report_annotation)
            self._new_ids = _new_ids(self._extractor.categories(), classes)
            with _ShardSets(self._save_dir, self._make_writer) as sets:
                self._write_items(sets)
                empty = self._add_empty_subsets(sets)
                self._written = sets.publish(classes.label_map.to_text(_comment(empty)))
        except TfodError as error:
            raise lines.errors.DatasetExportError(str(error)) from error
        self._say_what_was_lost()

    _apply_impl = apply

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write the subsets that changed over the shards that the dataset came from.

        Shards of subsets that are gone go too. Everything is written anew, in our own layout,
        where the folder has another one, the classes changed, or other options are given.
        Pictures that come from the shards of this folder stay in it, asked for or not: the
        shards are the only place that has them.
        """
        exporter = cls(dataset, save_dir, **options)
        exporter._keep_pictures_of = os.path.abspath(save_dir)
        before = _shards_in(save_dir)
        whole = (
            exporter._label_map_would_change()
            or bool(_LAYOUT_OPTIONS & options.keys())
            or not _is_our_layout(save_dir, before)
        )
        present = list(dataset.subsets())
        changed = present if whole else [name for name in patch.updated_subsets if name in present]
        gone = set(before) - set(present)
        if not whole:
            exporter._extractor = _Subsets(dataset, changed)
            gone &= set(patch.updated_subsets)
        if not _LAYOUT_OPTIONS & options.keys():
            exporter._layouts = {name: _layout(before[name]) for name in changed if name in before}
        exporter.apply()
        for name in {*gone, *changed} & set(before):
            for path in set(before[name]) - exporter._written:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    def _report_annotation(self, reason: str) -> None:
        error = TfodError(f"item {self._current.id!r}: {reason}")
        item_id = (self._current.id, self._current.subset)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)

    def _export_classes(self) -> ExportClasses:
        wanted: LabelMap | None = None
        if self._label_map:
            wanted, liberties = load_label_map(self._label_map)
            for liberty in liberties:
                _log.warning(liberty)
        classes = export_classes(self._extractor.categories(), wanted)
        if self._label_key is LabelKey.ID:  # without a text, 0 could be a class
            return replace(classes, unlabelled_id=-1)
        return classes

    def _label_map_would_change(self) -> bool:
        path = os.path.join(self._save_dir, LABEL_MAP_FILE)
        wanted = self._export_classes().label_map.to_text()
        return not os.path.exists(path) or _without_comments(path) != wanted

    def _make_writer(self, subset: str) -> ShardSetWriter:
        num_shards, compression = self._layouts.get(subset, (self._num_shards, self._compression))
        return ShardSetWriter(
            self._save_dir,
            subset,
            num_shards=num_shards,
            shard_size=self._shard_size,
            compression=compression,
        )

    def _write_items(self, sets: _ShardSets) -> None:
        progress = self._ctx.progress_reporter
        for item in progress.iter(self._extractor, desc="Writing TFRecords"):
            self._current = item
            try:
                payload = encode_detection(self._detection(item))
            except lines.errors.DatumaroError:
                raise  # an error policy has spoken
            except (TfodError, OSError, ValueError, TypeError) as error:
                reason = error if isinstance(error, TfodError) else _named(item, error)
                self._ctx.error_policy.report_item_error(reason, item_id=(item.id, item.subset))
                continue
            sets.writer(item.subset).write(payload)

    def _add_empty_subsets(self, sets: _ShardSets) -> list[str]:
        """Subsets without a picture get a shard too, and are remembered as empty on purpose."""
        if getattr(self._extractor, "is_stream", False):
            return []
        empty = [name for name in self._extractor.subsets() if name not in sets]
        for name in empty:
            sets.writer(name)
        return empty

    def _detection(self, item: Any) -> Detection:
        media = item.media if isinstance(item.media, lines.Image) else None
        encoded = self._encoded(item, media)
        size = _media_size(media, encoded)
        if size is None and any(one.type.name != "label" for one in item.annotations):
            raise TfodError(
                f"item {item.id!r} has no picture size, so its boxes cannot be normalized; "
                "give it a picture or a size"
            )
        objects = self._objects.build(item.annotations, size or (1, 1))
        attributes = dict(item.attributes)
        filename = self._filename(item, media, encoded)
        attributes.pop("filename", None)
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
            format=_format_name(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=size[0] if size else None,
            width=size[1] if size else None,
            encoded=encoded or b"",
            boxes=objects.boxes,
            class_text=objects.class_text if self._label_key is not LabelKey.ID else None,
            class_label=objects.class_label if self._label_key is not LabelKey.TEXT else None,
            masks=objects.masks,
            keypoints=objects.keypoints,
            attributes=objects.attributes,
            image_labels=objects.image_labels,
            image_attributes=image_attributes,
            image_extra=attributes,
        )

    def _filename(self, item: Any, media: Any, encoded: bytes | None) -> str:
        original = item.attributes.get("filename")
        if isinstance(original, str) and is_id_of(item.id, original):
            if not self._image_ext:
                return original
            return split_extension(original)[0] + _dotted(self._image_ext)
        own = lines.extension_of(media, encoded) if media is not None else ""
        return str(item.id) + _dotted(self._image_ext or own or self._default_image_ext)

    def _encoded(self, item: Any, media: Any) -> bytes | None:
        """The picture's bytes as they go into the record; None for a shard without pictures."""
        if media is None or not (self._save_media or self._must_keep(media)):
            return None
        data = lines.picture_bytes(media)
        if data and not self._must_reencode(media, data):
            return data
        if not media.has_data or media.data is None:
            _log.warning("item %r has no picture, its record holds none", item.id)
            return None
        extension = _dotted(self._image_ext or lines.extension_of(media, data) or "")
        if extension.lower() not in FORMAT_OF_EXTENSION:
            extension = DEFAULT_EXTENSION if not extension else ".png"
        return bytes(lines.encode_image(media.data, extension.lower()))

    def _must_reencode(self, media: Any, data: bytes) -> bool:
        """Only where an extension is asked for that the bytes are not."""
        if not self._image_ext:
            return False
        return FORMAT_OF_EXTENSION.get(_dotted(self._image_ext).lower()) != sniff_format(data[:16])

    def _must_keep(self, media: Any) -> bool:
        """Whether a picture's only place is a shard that this export replaces."""
        data = getattr(media, "_data", None)
        span = next(
            (one for one in (data, getattr(media, "_bytes_data", None), _loader_of(media))
             if isinstance(one, ByteSpan)),
            None,
        )  # fmt: skip
        return (
            bool(self._keep_pictures_of)
            and span is not None
            and (os.path.dirname(span.shard.path) == self._keep_pictures_of)
        )

    def _say_what_was_lost(self) -> None:
        """One closing message that counts what the format could not take."""
        objects = self._objects
        parts = []
        if objects.not_carried:
            parts.append("not written, the format has no place for them: " + _counts(
                objects.not_carried))  # fmt: skip
        if objects.not_carried_attributes:
            parts.append("attributes not written: " + _counts(objects.not_carried_attributes))
        if objects.enclosed:
            parts.append("written as their enclosing box: " + _counts(objects.enclosed))
        if objects.unlabelled:
            parts.append(
                f"without a class, written as id 0 with an empty text: {objects.unlabelled}"
            )
        if objects.outside:
            parts.append(f"boxes that reach outside the picture, written so: {objects.outside}")
        if parts:
            _log.warning("%s: %s", self.NAME, "; ".join(parts))


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


class _ShardSets(contextlib.AbstractContextManager["_ShardSets"]):
    """The writers of all subsets; their files appear together, at the end."""

    def __init__(self, folder: str, make_writer: Any) -> None:
        self._folder = folder
        self._make_writer = make_writer
        self._writers: dict[str, ShardSetWriter] = {}

    def __contains__(self, subset: str) -> bool:
        return subset in self._writers

    def writer(self, subset: str) -> ShardSetWriter:
        """The writer of a subset, made when it is first asked for."""
        if subset not in self._writers:
            self._writers[subset] = self._make_writer(subset)
        return self._writers[subset]

    def publish(self, label_map: str) -> set[str]:
        """Bring everything to the disk, then give all files their names; drop stale shards.

        Returns the absolute paths of the shards.
        """
        text = AtomicFile(self._folder, LABEL_MAP_FILE)
        try:
            text.write(label_map.encode())
            text.complete()
            for writer in self._writers.values():
                writer.complete()
            before = _shards_in(self._folder, only_ours=True)
            paths = [path for writer in self._writers.values() for path in writer.publish()]
            self._warn_of_others(before, label_map)
            text.publish(LABEL_MAP_FILE)
        finally:
            text.discard()
        written = set(map(os.path.abspath, paths))
        for subset in self._writers:
            for path in set(before.get(subset, ())) - written:
                os.unlink(path)
        return written

    def _warn_of_others(self, before: dict[str, list[str]], label_map: str) -> None:
        """Shards that stay in the folder were written for the label map that goes."""
        others = sorted(set(before) - set(self._writers))
        path = os.path.join(self._folder, LABEL_MAP_FILE)
        if others and os.path.exists(path) and _without_comments(path) != label_map:
            _log.warning(
                "%s: the label map changes, but these subsets in the folder were written with "
                "the old one: %s",
                path,
                ", ".join(others),
            )

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.discard()


def _shards_in(folder: str, only_ours: bool = False) -> dict[str, list[str]]:
    """Absolute paths of the shards in a folder by subset; ours lie in it and are ``.tfrecord``."""
    found: dict[str, list[str]] = {}
    try:
        sets = find_shards(folder)
    except ShardsNotFoundError:
        return found
    for one in sets:
        for path in map(os.path.abspath, one.paths):
            ours = os.path.dirname(path) == os.path.abspath(folder)
            if (ours and path.endswith(SHARD_EXTENSIONS[0])) or not only_ours:
                found.setdefault(one.subset, []).append(path)
    return found


def _is_our_layout(folder: str, shards: dict[str, list[str]]) -> bool:
    return shards == _shards_in(folder, only_ours=True)


def _layout(paths: list[str]) -> tuple[int, Compression]:
    """Number of shards and compression of a subset that is to be written again."""
    with open(paths[0], "rb") as file:
        return len(paths), shard_compression(file.read(HEADER_BYTES))


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


def _named(item: Any, error: Exception) -> TfodError:
    """What went wrong with an item, as an error of ours that names it."""
    reason = getattr(error, "strerror", None) or str(error)
    return TfodError(f"item {item.id!r} cannot be written ({reason})")


def _without_comments(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(line for line in file if not line.startswith("#"))


def _one_of(option: str, kind: type[_Choice], value: str) -> _Choice:
    try:
        return kind(str(getattr(value, "value", value)).lower())
    except ValueError:
        choices = ", ".join(str(one.value) for one in kind)
        raise OptionError(f"{option}: {value!r} is not one of {choices}") from None


def _comment(empty: list[str]) -> str:
    return f"{EMPTY_SUBSETS} {', '.join(empty)}" if empty else ""


def _media_size(media: Any, encoded: bytes | None) -> tuple[int, int] | None:
    """Height and width, from what is known or from a header; pixels are decoded last."""
    if media is None:
        return None
    if media.has_size:
        return tuple(media.size)
    data = encoded
    path = lines.picture_path(media)
    if data is None and path and os.path.isfile(path):
        with open(path, "rb") as file:
            data = file.read()
    size = picture_size(data) if data else None
    if size is None:
        with contextlib.suppress(Exception):  # whatever the decoder raises for what is no picture
            size = tuple(media.size) if media.size else None
    return size


def _format_name(encoded: bytes | None, filename: str) -> str:
    """``image/format``: what the bytes are; by the name where they do not say; '' without any."""
    if not encoded:
        return ""
    extension = split_extension(filename)[1].lower()
    return sniff_format(encoded[:16]) or FORMAT_OF_EXTENSION.get(extension, "")


def _loader_of(media: Any) -> Any:
    """The 0.3 line wraps a lazy picture's loader."""
    return getattr(getattr(media, "_bytes_data", None), "_loader", None)


def _dotted(extension: str) -> str:
    return extension if not extension or extension.startswith(".") else f".{extension}"


def _counts(counter: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())
