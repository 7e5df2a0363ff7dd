"""The reader: shards to a Datumaro dataset, pictures and masks left in the shard."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfod import keys
from tfod.classes import ClassTable, LabelScope
from tfod.datumaro import lines
from tfod.datumaro.annotations import AnnotationBuilder
from tfod.datumaro.categories import Origin, make_categories
from tfod.datumaro.notes import ImportNotes
from tfod.detection import Detection
from tfod.detection_decoder import decode_detection
from tfod.errors import LabelMapError, RecordError, ShardError, TfodError
from tfod.example import Example
from tfod.label_map import LabelMap, load_label_map, parse_label_map, read_label_map
from tfod.naming import (
    IdMaker,
    PictureFolders,
    names_in_folder,
    safe_relative_path,
    split_extension,
)
from tfod.picture import DEFAULT_EXTENSION, EXTENSION_OF_FORMAT, picture_size, sniff_format
from tfod.records import read_records
from tfod.shard_file import ByteSpan, ShardIdentity, identify
from tfod.shards import (
    ShardSet,
    find_label_map,
    find_shards,
    is_named_label_map,
    protobuf_texts_in,
)

_log = logging.getLogger(__name__)


class TfDetectionApiBase(lines.DatasetBase):
    """All the shards that a path means, as one dataset of one or more subsets.

    Args:
        path: a shard, a folder or a glob.
        subset: a name for everything that is read; without it names come from the files.
        label_map: a label map file or the name of one that tfod ships; without it the ones
            beside the shards are used.
        ctx: Datumaro's import context: its error policy decides what happens to a box or a
            record that is wrong, its progress reporter is told the bytes that were read.

    Raises:
        DatasetImportError: there is no shard, a shard is damaged, a label map is none.
    """

    NAME = "tf_detection_api"

    def __init__(
        self,
        path: str,
        subset: str | None = None,
        *,
        label_map: str | None = None,
        ctx: Any = None,
    ) -> None:
        self._subset_name = subset
        try:
            sets = self._find_sets(path)
            super().__init__(subsets=_names(sets), ctx=ctx)
            with _paused_garbage_collection():
                self._read(path, sets, label_map)
        except TfodError as error:
            raise lines.errors.DatasetImportError(str(error)) from error
        except OSError as error:
            raise lines.errors.DatasetImportError(f"{path}: {error.strerror}") from error

    def __iter__(self) -> Iterator[Any]:
        yield from self._items

    def __len__(self) -> int:
        return len(self._items)

    def categories(self) -> Any:
        return self._categories

    @staticmethod
    def _parse_labelmap(text: str) -> dict[str, int]:
        """Name to id, of a label map's text: what Datumaro's own reader offers under this name."""
        return {item.class_name: item.id for item in parse_label_map(text)[0].items}

    def _find_sets(self, path: str) -> list[ShardSet]:
        sets = find_shards(path)
        if self._subset_name:
            return [ShardSet(self._subset_name, one.paths, one.missing) for one in sets]
        return sets

    def _read(self, path: str, sets: list[ShardSet], label_map: str | None) -> None:
        self._notes = ImportNotes()
        self._classes = ClassTable()
        self._builder = AnnotationBuilder(self._classes)
        self._items: list[Any] = []
        self._id_makers: dict[str, IdMaker] = {}
        self._names_in = functools.cache(names_in_folder)
        shards = [(one.subset, path) for one in sets for path in one.paths]
        self._origin = Origin(
            os.path.abspath(path), tuple((os.path.abspath(one), subset) for subset, one in shards)
        )
        scopes = self._scopes([one for _, one in shards], label_map)
        for one in sets:
            self._notes.missing_shards.extend(one.missing)
        total = sum(os.path.getsize(path) for _, path in shards)
        progress = self._ctx.progress_reporter
        progress.start(total, desc="Reading TFRecords")
        done = 0
        for subset, path in shards:
            if not self._is_meant_to_be_empty(subset, path):
                self._read_shard(subset, path, scopes[path], done)
            done += os.path.getsize(path)
            progress.report_status(done)
        progress.finish()
        self._finish()

    def _is_meant_to_be_empty(self, subset: str, path: str) -> bool:
        """Our exporter notes in the label map which subsets have no pictures at all."""
        return os.path.getsize(path) == 0 and subset in self._notes.empty_subsets.get(
            os.path.dirname(os.path.abspath(path)), ()
        )

    def _scopes(self, paths: list[str], wanted: str | None) -> dict[str, LabelScope]:
        maps: dict[str | None, LabelScope] = {}
        found: dict[str, LabelScope] = {}
        texts_in = functools.cache(protobuf_texts_in)
        for path in paths:
            source: str | None = wanted
            if wanted is None:
                source, rivals = find_label_map(path, texts_in)
                if rivals:
                    source = self._choose(tuple(rivals))
            if source not in maps:
                maps[source] = self._classes.add_label_map(self._load(source, wanted))
            found[path] = maps[source]
        return found

    def _choose(self, rivals: tuple[str, ...]) -> str | None:
        """Of several files that could be the label map take the only one that is one."""
        readable = [one for one in rivals if _is_label_map(one)]
        if len(readable) == 1:
            return readable[0]
        self._notes.ambiguous_label_maps.add(rivals)
        return None

    def _load(self, source: str | None, wanted: str | None) -> LabelMap | None:
        if source is None:
            return None
        try:
            label_map, liberties = load_label_map(source) if wanted else read_label_map(source)
        except LabelMapError as error:
            if wanted or is_named_label_map(source):
                raise
            # Some other protobuf text, as OpenCV's graphs: no claim was made that it is a map.
            self._notes.label_map_liberties.append(f"not used: {error}")
            return None
        self._notes.label_map_liberties.extend(liberties)
        self._notes.note_empty_subsets(source)
        return label_map

    def _read_shard(self, subset: str, path: str, scope: LabelScope, done: int) -> None:
        shard = identify(path)
        folders = PictureFolders(path, subset, self._names_in)
        ids = self._id_makers.setdefault(subset, IdMaker())
        policy = self._ctx.error_policy
        report_progress = self._ctx.progress_reporter.report_status
        for record in read_records(path):
            try:
                example = Example(record, path)
                _require_detection_api(example)
                item = self._read_item(example, subset, scope, shard, folders, ids)
            except RecordError as error:
                policy.report_item_error(error, item_id=(f"record {record.number}", subset))
                continue
            self._items.append(item)
            if record.number % 1000 == 999:
                report_progress(done + min(record.offset, shard.size))

    def _read_item(
        self,
        example: Example,
        subset: str,
        scope: LabelScope,
        shard: ShardIdentity,
        folders: PictureFolders,
        ids: IdMaker,
    ) -> Any:
        record = example.record
        detection = decode_detection(example)
        path = safe_relative_path(detection.filename or "")
        on_disk = folders.find(path) if path and not detection.encoded else None
        size = _size(detection, example, on_disk)
        item_id = ids.make(path, "" if path else _name_without_a_name(detection, record.number))
        media = _media(detection, path, item_id, size, shard, on_disk)

        def report(reason: str) -> None:
            error = example.error(
                reason,
                feature="image/object/bbox",
                remedy="correct it, or import with an error policy that skips it",
            )
            self._ctx.error_policy.report_annotation_error(error, item_id=(item_id, subset))

        annotations = self._builder.build(
            detection, size, scope, shard, (record.payload_offset, record.length), report
        )
        attributes: dict[str, Any] = {"source_id": detection.source_id}
        own_extension = (media.ext if media is not None else "") or DEFAULT_EXTENSION
        if detection.filename and detection.filename != item_id + own_extension:
            attributes["filename"] = detection.filename
        for name, class_ids in detection.image_attributes.items():
            attributes[name] = list(class_ids)
        for name, value in detection.image_extra.items():
            attributes.setdefault(name, value)
        self._notes.see(detection)
        return lines.make_item(item_id, subset, media, annotations, attributes)

    def _finish(self) -> None:
        """Put the classes in order, now that all are known, and say what was noticed."""
        label_map, names, place = self._classes.finish()
        kinds: set[Any] = set()
        in_order = place == list(range(len(place)))
        for item in self._items:
            for one in item.annotations:
                kinds.add(one.type)
                if not in_order and one.label is not None:
                    one.label = place[one.label]
        self._ann_types = kinds
        points = {place[label]: names for label, names in self._builder.keypoint_names.items()}
        self._categories = make_categories(label_map, names, points, self._origin)
        for sentence in self._notes.sentences(self._classes, self._builder):
            _log.warning(sentence)


def _is_label_map(path: str) -> bool:
    try:
        return bool(read_label_map(path)[0].items)
    except LabelMapError:
        return False


def _names(sets: list[ShardSet]) -> list[str]:
    return list(dict.fromkeys(one.subset for one in sets))


def _require_detection_api(example: Example) -> None:
    """Refuse records that hold something else.

    Raises:
        ShardError: the first record has other keys: so has the whole shard.
        RecordError: a later one has, or one has no keys at all.
    """
    if any(key in keys.KNOWN_KEYS for key in example):
        return
    if not len(example):
        raise example.error("the record holds no features", remedy="export the shard again")
    there = ", ".join(sorted(example)[:6])
    more = f" and {len(example) - 6} more" if len(example) > 6 else ""
    cause = f"holds {there}{more}, but none of {keys.ENCODED}, {keys.FILENAME}, {keys.XMIN}, …"
    if example.record.number:
        raise example.error(f"the record {cause}")
    raise ShardError(
        f"is no object detection shard: its first record {cause}",
        shard=example.shard,
        remedy="look at it with: tfod describe",
    )


def _name_without_a_name(detection: Detection, number: int) -> str:
    source = split_extension(safe_relative_path(detection.source_id or ""))[0]
    return source or f"record_{number:06d}"


def _size(detection: Detection, example: Example, on_disk: str | None) -> tuple[int, int] | None:
    """Height and width: as the record says, or else as the picture's header says."""
    height, width = detection.height or 0, detection.width or 0
    if height > 0 and width > 0:
        return height, width
    data = bytes(detection.encoded or b"")
    if not data and on_disk:
        with open(on_disk, "rb") as file:
            data = file.read()
    size = picture_size(data) if data else None
    if size is None and len(detection.boxes):
        raise example.error(
            "the picture's size is not known (no image/height and image/width, and no picture "
            "to take it from), so its boxes cannot be scaled",
            remedy="write the size into the record",
        )
    return size


def _media(
    detection: Detection,
    path: str,
    item_id: str,
    size: tuple[int, int] | None,
    shard: ShardIdentity,
    on_disk: str | None,
) -> Any:
    """The picture: in the shard, on disk beside it, or only its size."""
    extension = split_extension(path)[1]
    if detection.encoded is not None and len(detection.encoded):
        head = bytes(detection.encoded[:16])
        sniffed = sniff_format(head)
        span = ByteSpan(shard, detection.encoded_offset, len(detection.encoded))
        channels = _raw_channels(span.length, size) if sniffed is None else 0
        if channels and size is not None:
            pixels = RawPixels(span, (*size, channels))
            return lines.image_from_pixels(pixels, ".png", size)
        if not extension:
            extension = EXTENSION_OF_FORMAT.get(sniffed or "", DEFAULT_EXTENSION)
            path = item_id + extension
        return lines.image_from_bytes(span, path, size)
    if on_disk:
        return lines.image_from_file(on_disk, size)
    return None if size is None else lines.image_without_data(extension or DEFAULT_EXTENSION, size)


def _raw_channels(length: int, size: tuple[int, int] | None) -> int:
    """How many channels bytes have that are pixels and no picture file; 0 when they are not."""
    if size is None:
        return 0
    return next((n for n in (3, 1, 4) if length == size[0] * size[1] * n), 0)


class RawPixels:
    """Pixels that a shard holds without any encoding (``image/format`` is ``raw``)."""

    def __init__(self, span: ByteSpan, shape: tuple[int, int, int]) -> None:
        self.span = span
        self.shape = shape

    def __call__(self, *_: object) -> np.ndarray:
        """Return the pixels, uint8 of shape (height, width, channels), BGR as Datumaro has it."""
        pixels = np.frombuffer(self.span.read(), np.uint8).reshape(self.shape)
        return pixels[:, :, 0] if self.shape[2] == 1 else pixels[:, :, [2, 1, 0]]


@contextlib.contextmanager
def _paused_garbage_collection() -> Iterator[None]:
    """Building millions of objects that all stay makes every cyclic collection futile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Everything that was made would count as young, and be looked at several times at
            # once. This makes it old unseen; a server's own frozen objects stay frozen.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
