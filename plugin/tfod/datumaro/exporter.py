"""The exporter: a Datumaro dataset to shards and their label map."""

from __future__ import annotations

import argparse
import contextlib
import glob
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from tfod import keys
from tfod.compression import Compression
from tfod.datumaro import lines
from tfod.datumaro.categories import ExportClasses, export_classes
from tfod.datumaro.notes import EMPTY_SUBSETS
from tfod.datumaro.objects import ObjectBuilder
from tfod.datumaro.reader import DEFAULT_EXTENSION
from tfod.detection import Detection, encode_detection
from tfod.errors import TfodError
from tfod.label_map import LabelMap, load_label_map
from tfod.naming import is_id_of, split_extension
from tfod.picture import FORMAT_OF_EXTENSION, picture_size, sniff_format
from tfod.shard_file import ByteSpan
from tfod.shards import SHARD_EXTENSIONS, parse_shard_name
from tfod.writer import ShardSetWriter, WriteError, write_text

_log = logging.getLogger(__name__)
LABEL_MAP_FILE = "label_map.pbtxt"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes of a size such as ``100MB`` (units of 1024)."""
    match = _SIZE.match(text.strip())
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write for example 100MB")
    return int(float(match[1]) * _FACTORS[match[2].upper()])


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


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
            type=_positive,
            default=1,
            help="Number of shards for each subset (default: %(default)s)",
        )
        parser.add_argument(
            "--shard-size", type=parse_size, help="Begin a new shard at this size, such as 100MB"
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
            choices=["both", "text", "id"],
            default="both",
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
        if num_shards > 1 and shard_size is not None:
            raise lines.errors.DatasetExportError(
                "num_shards and shard_size exclude each other; give one of them"
            )
        if label_key not in ("both", "text", "id"):
            raise lines.errors.DatasetExportError(
                f"label_key is {label_key!r}; it must be both, text or id"
            )
        self._save_masks = save_masks
        self._num_shards = num_shards
        self._shard_size = parse_size(shard_size) if isinstance(shard_size, str) else shard_size
        self._compression = _compression(compression)
        self._label_map = label_map
        self._label_key = label_key
        self._keep_pictures_of = ""

    @property
    def can_stream(self) -> bool:
        """The dataset is walked through once, one picture at a time."""
        return True

    def apply(self) -> None:
        """Write everything, or raise and leave everything as it was."""
        try:
            classes = self._export_classes()
            self._objects = ObjectBuilder(classes, self._save_masks)
            with _ShardSets(self._save_dir, self._make_writer) as sets:
                self._write_items(sets)
                empty = self._add_empty_subsets(sets)
                sets.publish(classes.label_map.to_text(_comment(empty)))
        except TfodError as error:
            raise lines.errors.DatasetExportError(str(error)) from error
        self._say_what_was_lost()

    _apply_impl = apply

    @classmethod
    def patch(cls, dataset: Any, patch: Any, save_dir: str, **options: Any) -> None:
        """Write the subsets that changed; remove those that are gone.

        Pictures that come from the shards of this folder stay in it, asked for or not: the
        shards are the only place that has them.
        """
        present = set(dataset.subsets())
        changed = [name for name in patch.updated_subsets if name in present]
        gone = [name for name in patch.updated_subsets if name not in present]
        exporter = cls(dataset, save_dir, **options)
        exporter._keep_pictures_of = os.path.abspath(save_dir)
        if exporter._label_map_would_change():
            exporter.apply()
        else:
            exporter._extractor = _Subsets(dataset, changed)
            exporter.apply()
        for name in gone:
            for path in shards_of_subset(save_dir, name):
                os.unlink(path)

    def _export_classes(self) -> ExportClasses:
        wanted: LabelMap | None = None
        if self._label_map:
            wanted, liberties = load_label_map(self._label_map)
            for liberty in liberties:
                _log.warning(liberty)
        return export_classes(self._extractor.categories(), wanted)

    def _label_map_would_change(self) -> bool:
        path = os.path.join(self._save_dir, LABEL_MAP_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                there = "".join(line for line in file if not line.startswith("#"))
        except OSError:
            return True
        return there != self._export_classes().label_map.to_text()

    def _make_writer(self, subset: str) -> ShardSetWriter:
        return ShardSetWriter(
            self._save_dir,
            subset,
            num_shards=self._num_shards,
            shard_size=self._shard_size,
            compression=self._compression,
        )

    def _write_items(self, sets: _ShardSets) -> None:
        progress = self._ctx.progress_reporter
        for item in progress.iter(self._extractor, desc="Writing TFRecords"):
            try:
                payload = encode_detection(self._detection(item))
            except (WriteError, lines.errors.DatumaroError):
                raise
            except (TfodError, OSError, ValueError) as error:
                self._ctx.error_policy.report_item_error(error, item_id=(item.id, item.subset))
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
        if size is None:
            raise ValueError(
                f"item {item.id!r} has no picture size, so its boxes cannot be normalized; "
                "give it a picture or a size"
            )
        height, width = size
        objects = self._objects.build(item.annotations, size)
        attributes = item.attributes
        filename = self._filename(item, media, encoded)
        source_id = attributes.get("source_id", filename)
        for name in attributes:
            if name not in ("source_id", "filename", *keys.IMAGE_ATTRIBUTES):
                self._objects.not_carried_attributes[f"{name} (of the picture)"] += 1
        return Detection(
            filename=filename,
            source_id=None if source_id is None else str(source_id),
            format=_format_name(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest() if encoded else "",
            height=height,
            width=width,
            encoded=encoded or b"",
            boxes=objects.boxes,
            class_text=objects.class_text if self._label_key != "id" else None,
            class_label=objects.class_label if self._label_key != "text" else None,
            masks=objects.masks,
            keypoints=objects.keypoints,
            attributes=objects.attributes,
            image_labels=objects.image_labels,
            image_attributes={
                name: attributes[name] for name in keys.IMAGE_ATTRIBUTES if name in attributes
            },
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
        if not media.has_data:
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

    def publish(self, label_map: str) -> None:
        """Bring everything to the disk, then give all files their names; drop stale shards."""
        for writer in self._writers.values():
            writer.complete()
        for subset, writer in self._writers.items():
            stale = set(shards_of_subset(self._folder, subset))
            stale -= {os.path.abspath(path) for path in writer.publish()}
            for path in stale:
                os.unlink(path)
        write_text(self._folder, LABEL_MAP_FILE, label_map)

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.discard()


def shards_of_subset(folder: str, subset: str) -> list[str]:
    """Paths of the shards in a folder that this exporter can have written for a subset."""
    parent, stem = os.path.split(os.path.join(os.path.abspath(folder), subset))
    found = []
    for path in glob.glob(os.path.join(glob.escape(parent), glob.escape(stem) + "*")):
        name = parse_shard_name(path)
        extension = os.path.splitext(path)[1]
        if name is not None and name.stem == stem and extension == SHARD_EXTENSIONS[0]:
            found.append(path)
    return found


def _compression(name: str) -> Compression:
    try:
        return Compression(str(name).lower())
    except ValueError:
        choices = ", ".join(one.value for one in Compression)
        raise lines.errors.DatasetExportError(
            f"compression is {name!r}; it must be one of {choices}"
        ) from None


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
    if size is None and media.size is not None:
        size = tuple(media.size)
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
