"""The reader: shards to a Datumaro dataset, pictures and masks left in the shard."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from tfod.datumaro import lines
from tfod.datumaro.annotations import AnnotationBuilder, sound_boxes
from tfod.datumaro.categories import Origin, make_categories
from tfod.datumaro.notes import ImportNotes
from tfod.datumaro.read_dataset import ReadDataset, import_errors
from tfod.datumaro.record_media import holds_image, record_media, record_size
from tfod.detection import keys
from tfod.detection.classes import ClassTable, LabelScope
from tfod.detection.label_map import LabelMap, parse_label_map, read_label_map
from tfod.detection.labels_file import load_classes, read_classes
from tfod.detection.mapped import MappedRecord, decode_mapped
from tfod.detection.picture import DEFAULT_EXTENSION
from tfod.detection.roles import Roles
from tfod.detection.stream import decode_detection
from tfod.errors import LabelMapError, RecordError, ShardError
from tfod.example.example import Example
from tfod.tfrecord.label_files import LabelMapFinder, is_named_label_map
from tfod.tfrecord.naming import (
    IdMaker,
    PictureFolders,
    names_in_folder,
    safe_relative_path,
    split_extension,
)
from tfod.tfrecord.opening import shard_size
from tfod.tfrecord.records import read_records
from tfod.tfrecord.shard_file import ShardIdentity, identify
from tfod.tfrecord.shard_sources import require_content
from tfod.tfrecord.shards import ShardSet, find_shards

_log = logging.getLogger(__name__)


class TfDetectionApiBase(ReadDataset):
    """All the shards that a path means, as one dataset of one or more subsets.

    Args:
        path: a shard, a folder or a glob.
        subset: a name for everything that is read; without it names come from the files.
        label_map: a label map file or the name of one that tfod ships; without it the ones
            beside the shards are used.
        profile: a profile's name or file, for shards that have other keys: its roles say which
            key holds what.
        ctx: Datumaro's import context: its error policy decides what happens to a box or a
            record that is wrong, its progress reporter is told the bytes that were read.

    Raises:
        DatasetImportError: there is no shard, a shard is damaged, a label map is none.
    """

    NAME = "tf_detection_api"
    FIRST_ID: ClassVar[int] = 1
    """The id that the format counts classes from."""
    ROLES: ClassVar[Roles | None] = None
    """Which key holds what, where the format's keys are not those of the OD API."""

    def __init__(
        self,
        path: str,
        subset: str | None = None,
        *,
        label_map: str | None = None,
        profile: str | None = None,
        ctx: Any = None,
    ) -> None:
        self._subset_name = subset
        with import_errors(path):
            self._roles = _roles_of(profile) if profile else self.ROLES
            sets = self._find_sets(path)
            super().__init__(subsets=_names(sets), ctx=ctx)
            with _paused_garbage_collection():
                self._read(path, sets, label_map)

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
        self._pictures: dict[tuple[str, int | str], tuple[Any, int]] = {}
        self._names_in = functools.cache(names_in_folder)
        shards = [(one.subset, path) for one in sets for path in one.paths]
        self._origin = Origin(
            os.path.abspath(path),
            tuple((os.path.abspath(one), subset) for subset, one in shards),
        )
        scopes = self._scopes([one for _, one in shards], label_map)
        for one in sets:
            self._notes.missing_shards.extend(one.missing)
            require_content(one.paths)
        total = sum(shard_size(path) for _, path in shards)
        progress = self._ctx.progress_reporter
        progress.start(total, desc="Reading TFRecords")
        done = 0
        for subset, path in shards:
            if not self._is_meant_to_be_empty(subset, path):
                self._read_shard(subset, path, scopes[path], done)
            done += shard_size(path)
            progress.report_status(done)
        progress.finish()
        self._finish()

    def _is_meant_to_be_empty(self, subset: str, path: str) -> bool:
        """Our exporter notes in the label map which subsets have no pictures at all."""
        return shard_size(path) == 0 and subset in self._notes.empty_subsets.get(
            os.path.dirname(os.path.abspath(path)), ()
        )

    def _scopes(self, paths: list[str], wanted: str | None) -> dict[str, LabelScope]:
        maps: dict[str | None, LabelScope] = {}
        found: dict[str, LabelScope] = {}
        finder = LabelMapFinder()
        chosen: dict[int, str | None] = {}  # the finder gives all shards of a folder one tuple
        for path in paths:
            source: str | None = wanted
            if wanted is None:
                source, rivals = self._find_label_map(path, finder)
                if rivals:
                    if id(rivals) not in chosen:
                        chosen[id(rivals)] = self._choose(rivals)
                    source = chosen[id(rivals)]
            if source not in maps:
                maps[source] = self._classes.add_label_map(self._load(source, wanted))
            found[path] = maps[source]
        return found

    def _find_label_map(
        self, shard: str, finder: LabelMapFinder
    ) -> tuple[str | None, Sequence[str]]:
        return finder.find(shard)

    def _choose(self, rivals: Sequence[str]) -> str | None:
        """Of several files that could be the label map take the only one that is one."""
        readable = [one for one in rivals if _is_label_map(one)]
        if len(readable) == 1:
            return readable[0]
        self._notes.ambiguous_label_maps.add(tuple(rivals))
        return None

    def _load(self, source: str | None, wanted: str | None) -> LabelMap | None:
        if source is None:
            return None
        try:
            label_map, liberties = load_classes(source) if wanted else read_classes(source)
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
        count = 0
        for record in read_records(path):
            count += 1
            try:
                read = self._decode(Example.of(record, path))
                item = self._read_item(read, subset, scope, shard, folders, ids)
            except RecordError as error:
                policy.report_item_error(error, item_id=(f"record {record.number}", subset))
                continue
            if item is not None:
                self._items.append(item)
            if record.number % 1000 == 999:
                report_progress(done + min(record.offset, shard.size))

        self._builder.finish_shard()
        self._note_length(path, count)

    def _note_length(self, shard: str, records: int) -> None:
        """See whether a shard has as many records as it should, where its name tells."""

    def _decode(self, example: Example) -> MappedRecord:
        """What a record says, by the roles of its keys.

        Raises:
            ShardError: the first record is of another kind, so the whole shard is.
            RecordError: this record is.
        """
        if self._roles is not None:
            _require_any(example, sorted(self._roles.all_keys), "shard of this profile")
            return decode_mapped(example, self._roles)
        _require_any(example, keys.KNOWN_KEYS, "object detection shard", _USUAL)
        return MappedRecord(example, decode_detection(example))

    def _read_item(
        self,
        read: MappedRecord,
        subset: str,
        scope: LabelScope,
        shard: ShardIdentity,
        folders: PictureFolders,
        ids: IdMaker,
    ) -> Any:
        """The item of a record; None where it adds to the item of an earlier one."""
        example, detection = read.example, read.detection
        record = example.record
        known = self._pictures.get((subset, read.image_id)) if read.image_id is not None else None
        path = safe_relative_path(detection.filename or "")
        on_disk = folders.find(path) if path and not detection.encoded else None
        size = record_size(detection, example, on_disk)
        if known is not None:
            item, length = known
            item.annotations += self._annotations(read, size, scope, shard, item.id, subset)
            self._notes.see(detection)
            self._notes.other_pictures += length != len(detection.encoded or b"")
            return None
        item_id = ids.make(path, "" if path else _name_without_a_name(read, record.number))
        media = record_media(detection, path, item_id, size, shard, on_disk)

        annotations = self._annotations(read, size, scope, shard, item_id, subset)
        attributes: dict[str, Any] = {}
        if self._roles is None or self._roles.source_id is not None:
            attributes["source_id"] = detection.source_id
        if read.image_id is not None:
            attributes["id"] = read.image_id
        own_extension = (media.ext if media is not None else "") or DEFAULT_EXTENSION
        if detection.filename and detection.filename != item_id + own_extension:
            attributes["filename"] = detection.filename
        for name, class_ids in detection.image_attributes.items():
            attributes[name] = list(class_ids)
        for name, value in detection.image_extra.items():
            attributes.setdefault(name, value)
        self._notes.see(detection)
        if detection.encoded and not holds_image(detection.encoded, size):
            self._notes.note_no_image(example)
        item = lines.make_item(item_id, subset, media, annotations, attributes)
        if read.image_id is not None:
            self._pictures[subset, read.image_id] = item, len(detection.encoded or b"")
        return item

    def _annotations(
        self,
        read: MappedRecord,
        size: tuple[int, int] | None,
        scope: LabelScope,
        shard: ShardIdentity,
        item_id: str,
        subset: str,
    ) -> list[Any]:
        record = read.example.record

        def report(reason: str) -> None:
            error = read.example.error(
                reason,
                feature="image/object/bbox",
                remedy="correct it, or import with an error policy that skips it",
            )
            self._ctx.error_policy.report_annotation_error(error, item_id=(item_id, subset))

        span = (record.payload_offset, record.length)
        made = self._builder.build(read.detection, size, scope, shard, span, report)
        if read.annotation_ids:
            sound = sound_boxes(read.detection.boxes)
            shapes = (one for one in made if one.type in _SHAPES)
            for shape, number in zip(shapes, np.array(read.annotation_ids)[sound], strict=True):
                shape.id = int(number)
        return made

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
        self._categories = make_categories(label_map, names, points, self._origin, self.FIRST_ID)
        for sentence in self._notes.sentences(self._classes, self._builder):
            _log.warning(sentence)


_SHAPES = (lines.AnnotationType.bbox, lines.AnnotationType.mask)


def _roles_of(profile: str) -> Roles:
    """The roles of a profile, by its name or from its file.

    Raises:
        TfodError: there is none.
    """
    from tfod.check.profile_file import load_profile  # the checker's, and only on demand

    return load_profile(profile).roles


def _is_label_map(path: str) -> bool:
    try:
        return bool(read_label_map(path)[0].items)
    except LabelMapError:
        return False


def _names(sets: list[ShardSet]) -> list[str]:
    return list(dict.fromkeys(one.subset for one in sets))


_USUAL = (keys.ENCODED, keys.FILENAME, keys.XMIN)


def _require_any(
    example: Example, wanted: Collection[str], what: str, usual: Collection[str] = ()
) -> None:
    """Refuse records that hold something else.

    Raises:
        ShardError: the first record has other keys: so has the whole shard.
        RecordError: a later one has, or one has no keys at all.
    """
    if any(key in wanted for key in example):
        return
    if not len(example):
        raise example.error("the record holds no features", remedy="export the shard again")
    there = ", ".join(sorted(example)[:6])
    more = f" and {len(example) - 6} more" if len(example) > 6 else ""
    cause = f"holds {there}{more}, but none of {', '.join(usual or wanted)}"
    cause += ", …" if usual else ""
    if example.record.number:
        raise example.error(f"the record {cause}")
    raise ShardError(
        f"is no {what}: its first record {cause}",
        shard=example.shard,
        remedy="look at it with: tfod describe; other keys are read with a profile",
    )


def _name_without_a_name(read: MappedRecord, number: int) -> str:
    texts = (read.detection.source_id or "", "" if read.image_id is None else str(read.image_id))
    source = next(filter(None, (split_extension(safe_relative_path(x))[0] for x in texts)), "")
    return source or f"record_{number:06d}"


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
