"""Base class of the readers, which import shards without loading images and masks."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tfod.checker.finding import join_names
from tfod.datumaro import compat
from tfod.datumaro.categories import make_categories
from tfod.datumaro.construct import make_item, pause_garbage_collection
from tfod.datumaro.import_annotations import AnnotationBuilder
from tfod.datumaro.media import count_raw_channels, find_record_size, make_media
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.detection.labels.classes import ClassTable, LabelScope
from tfod.detection.losses import LossCounter
from tfod.detection.problems import EMPTY_RECORD
from tfod.errors import RecordError, ShardError, TfodError
from tfod.example.example import Example
from tfod.example.example_batch import ExampleBatch
from tfod.formats.options import ConversionProblems
from tfod.formats.reading.files import ImageFiles, locate_shard_images
from tfod.formats.reading.images_of_records import OTHER_IMAGES
from tfod.sources.reading import ReadableShards, find_readable
from tfod.tfrecord.image_names import IdMaker, safe_relative_path, split_extension
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.record_index import ByteSpan, ShardIdentity, identify
from tfod.tfrecord.shard_sets.search import ShardSet
from tfod.tfrecord.shard_sets.shard_names import stated_name
from tfod.tfrecord.storage.open import get_shard_size

_log = logging.getLogger("tfod.datumaro")
_MAX_SHOWN = 8
# Features that repeat the image or the label: channels, size, one-hot vectors.
_REPEATING = frozenset(("depth", "channels", "format", "colorspace", "size", "one_hot_class"))
_TEXT_ID_MISMATCHES = "objects whose class text and class id disagree; the text was used"
_UNKNOWN_TEXTS = "classes added that are not in the label map"
_UNKNOWN_IDS = "class ids that are not in the label map, used as class names"
_NO_IMAGES = (
    "records whose encoded image is neither a JPEG, PNG, GIF, BMP, TIFF or WebP image nor pixels "
    "of the record's size; the annotations were imported, but exports and transforms that use the "
    "image will fail; check the shards with tfod check"
)
_UNREAD = "features without an equivalent in Datumaro, not imported"


class TfDetectionApiBase(compat.DatasetBase):
    """The shards at a path, as one dataset with one or more subsets.

    Args:
        path: a shard, a folder or a glob.
        subset: name of the only subset; by default, file names determine the subsets.
        label_map: path or name of a label map; by default, the label maps next to the shards.
        profile: name or path of a profile, for shards with other keys. By default, the layout that
            fits best determines the keys.
        ctx: Datumaro's import context. Its error policy gets invalid boxes and records, its
            progress reporter the number of bytes that were read.

    Raises DatasetImportError if there are no shards, or a shard or label map cannot be read.
    """

    NAME = "tf_detection_api"
    FIRST_ID: ClassVar[int] = 1
    """The first class id of the format."""
    FIELD_MAPPING: ClassVar[FieldMapping | None] = None
    """The keys of the format, if they differ from the OD API's."""

    def __init__(
        self,
        path: str,
        subset: str | None = None,
        *,
        label_map: str | None = None,
        profile: str | None = None,
        ctx: Any = None,
    ) -> None:
        with _convert_errors(path):
            mapping = self.FIELD_MAPPING
            if profile:
                from tfod.checker.profiles.file import load_profile  # rarely needed

                mapping = load_profile(profile).field_mapping
            shards = find_readable(path, label_map=label_map, field_mapping=mapping)
            sets = shards.sets
            if subset:
                sets = [ShardSet(subset, group.paths, group.missing) for group in sets]
            super().__init__(subsets=list(dict.fromkeys(group.subset for group in sets)), ctx=ctx)
            with pause_garbage_collection():
                self._read(path, sets, shards)

    def __iter__(self) -> Iterator[Any]:
        yield from self._items

    def __len__(self) -> int:
        return len(self._items)

    def categories(self) -> Any:
        return self._categories

    def _find_mapping(self, shards: ReadableShards, path: str) -> FieldMapping | None:
        """Return the keys of a shard's records; None for the OD API's, and if no layout fits."""
        with contextlib.suppress(TfodError):  # the first record raises it again
            mapping = shards.field_mapping(path)
            return None if mapping == FieldMapping() else mapping
        return None

    def _read(self, path: str, sets: Sequence[ShardSet], shards: ReadableShards) -> None:
        scopes = self._make_scopes(shards)
        self._losses = LossCounter(_TEXT_ID_MISMATCHES, _UNKNOWN_TEXTS, _UNKNOWN_IDS)
        self._builder = AnnotationBuilder(self._classes, self._losses)
        self._items: list[Any] = []
        self._id_makers: dict[str, IdMaker] = {}
        self._images: dict[tuple[str, int | str | None], tuple[Any, int]] = {}
        # Cached, since a set may have thousands of shards.
        self._locate_shard_images = functools.cache(locate_shard_images)
        self._problems = ConversionProblems()
        self._source = os.path.abspath(path)
        self._shards = [(group.subset, path) for group in sets for path in group.paths]
        for group in sets:
            if group.missing:
                missing = join_names(group.missing, _MAX_SHOWN)
                _log.warning("shards of a numbered set are missing and were skipped: %s", missing)
        progress = self._ctx.progress_reporter
        total = sum(get_shard_size(path) for _, path in self._shards)
        progress.start(total, desc="Reading TFRecords")
        start = self._record_count = 0
        for subset, path in self._shards:
            self._field_mapping = self._find_mapping(shards, path)
            self._read_shard(subset, path, scopes[path], start)
            start += get_shard_size(path)
            progress.report_status(start)
        progress.finish()
        if not self._record_count:
            cause, fix = "contains no records", "export or download it again"
            raise ShardError(cause, shard=self._shards[0][1], fix=fix)
        self._finish()

    def _make_scopes(self, shards: ReadableShards) -> dict[str, LabelScope]:
        self._classes = ClassTable()
        for note in (*shards.notes, *shards.require_label_maps()):
            _log.warning(note)
        by_map: dict[int, LabelScope] = {}
        scopes: dict[str, LabelScope] = {}
        for path in shards.paths:
            label_map = shards.label_map(path)
            if id(label_map) not in by_map:
                by_map[id(label_map)] = self._classes.add_label_map(label_map)
            scopes[path] = by_map[id(label_map)]
        return scopes

    def _read_shard(self, subset: str, path: str, scope: LabelScope, start: int) -> None:
        identity = identify(path)
        images = self._locate_shard_images(os.path.dirname(os.path.abspath(path)), subset)
        shard = _Shard(subset, identity, images, self._id_makers.setdefault(subset, IdMaker()))
        count = 0
        for records in read_record_batches(path):
            count += len(records)
            detections = self._make_detections(ExampleBatch.of(records))
            self._builder.open(detections, scope, identity)
            self._read_batch(detections, shard, start)
        self._record_count += count
        stated = stated_name(path).records
        if stated not in (None, count):
            _log.warning("%s has %d records, but its name states %d", path, count, stated)

    def _read_batch(self, detections: Detections, shard: _Shard, start: int) -> None:
        examples = detections.examples
        records = examples.records
        unusable = set(np.flatnonzero(~self._has_format(detections)).tolist())
        invalid = detections.unreadable_rows
        for row in range(len(records)):
            number = records.first + row
            try:
                if row in unusable:
                    raise self._make_format_error(Example(examples, row))
                # Indexing raises the error of an invalid record.
                has_more = detections.other_keys or row in invalid
                self._read_row(detections, row, detections[row] if has_more else _EMPTY, shard)
            except RecordError as error:
                # A policy may keep the error, and its traceback would keep the batch.
                error = error.with_traceback(None)
                item_id = f"record {number}", shard.subset
                self._ctx.error_policy.report_item_error(error, item_id=item_id)
                continue
            if number % 1000 == 999:
                offset = min(int(records.offsets[row]), shard.identity.size)
                self._ctx.progress_reporter.report_status(start + offset)

    def _make_detections(self, examples: ExampleBatch) -> Detections:
        mapping = self._field_mapping or FieldMapping()
        return Detections(examples, mapping, () if mapping.box else _REPEATING)

    def _has_format(self, detections: Detections) -> np.ndarray:
        """Check which records have any key of the format; bool of shape (records,)."""
        has_keys = np.ones(len(detections), bool)
        problems = detections.problems
        has_keys[[problem.row for problem in problems if problem.case == EMPTY_RECORD]] = False
        return has_keys

    def _make_format_error(self, example: Example) -> TfodError:
        if self._field_mapping is not None:
            expected = sorted(self._field_mapping.all_keys)
            return _make_keys_error(example, "a shard of this profile", expected)
        return _make_keys_error(example, "an object detection shard", _USUAL, ", …")

    def _read_row(
        self, detections: Detections, row: int, detection: Detection, shard: _Shard
    ) -> None:
        """Create the item of a record, or extend the item of an earlier record of the image."""
        image_id = detections.image_ids[row]
        path = safe_relative_path(detections.filenames[row] or "")
        start, end = detections.encoded[row].tolist()
        length = end - start
        image = shard.images.find([path], "", self._problems) if path and not length else None
        on_disk = image[0] if image else None
        size = find_record_size(detections, row, on_disk)
        image_key = shard.subset, image_id
        item, first_length = self._images.get(image_key, (None, length))
        self._losses[OTHER_IMAGES][""] += first_length != length
        if item is None:
            item_id, _ = shard.ids.make(path, "" if path else _make_name(detections, row))
            records = detections.examples.records
            span = ByteSpan(shard.identity, records.base + start, length)
            head = bytes(records.buffer[start : min(end, start + 16)])
            media = make_media(head, span, path, item_id, size, on_disk)
            attributes = self._make_attributes(detections, row, detection, item_id, media)
            item = make_item(item_id, shard.subset, media, [], attributes)
            self._items.append(item)
            if image_id is not None:
                self._images[image_key] = item, length
            is_encoded = detections.headers[row] is not None
            if length and not is_encoded and not count_raw_channels(length, size):
                location = f"record {records.first + row} of {os.path.basename(records.shard)}"
                self._losses.note(_NO_IMAGES, location)
        item_key = item.id, shard.subset
        report = functools.partial(self._report_box, detections.examples, row, item_key)
        item.annotations += self._builder.build(row, detection, size, report)
        masks = [keys.IMAGE_MASKS[name] for name in detection.image_masks]
        for warning in detections.warnings(row):
            self._losses[warning][""] += 1
        for key in (*detection.unread_keys, *masks):
            self._losses[_UNREAD][key] += 1

    def _make_attributes(
        self, detections: Detections, row: int, detection: Detection, item_id: str, media: Any
    ) -> dict[str, Any]:
        filename, image_id = detections.filenames[row], detections.image_ids[row]
        attributes: dict[str, Any] = {}
        if self._field_mapping is None or self._field_mapping.source_id is not None:
            attributes["source_id"] = detections.source_ids[row]
        if image_id is not None:
            attributes["id"] = image_id
        extension = (media.ext if media is not None else "") or DEFAULT_EXTENSION
        if filename and filename != item_id + extension:
            attributes["filename"] = filename
        for name, class_ids in detection.image_attributes.items():
            attributes[name] = list(class_ids)
        for name, value in detection.image_extra.items():
            attributes.setdefault(name, value)
        return attributes

    def _report_box(
        self, examples: ExampleBatch, row: int, item_id: tuple[str, str], reason: str
    ) -> None:
        fix = "correct it, or import with an error policy that skips it; to drop such boxes, type: "
        fix += "tfod repair SOURCE repaired --odd-boxes drop"
        key = self._field_mapping.box_prefix if self._field_mapping else ""
        error = examples.error(row, reason, feature=key or "image/object/bbox", fix=fix)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)

    def _finish(self) -> None:
        """Set the categories and log the losses, now that all classes are known."""
        self._set_categories()
        classes, losses = self._classes, self._losses
        for pair, count in classes.mismatches.items():
            losses[_TEXT_ID_MISMATCHES][f"'{pair.text}' with id {pair.label}"] += count
        texts, ids = classes.unknown_texts, classes.unknown_ids
        losses[_UNKNOWN_TEXTS] += Counter({repr(text): count for text, count in texts.items()})
        losses[_UNKNOWN_IDS] += Counter({str(number): count for number, count in ids.items()})
        for sentence in losses.sentences():
            _log.warning(sentence)
        del self._builder, self._images  # free the last batch and the index

    def _set_categories(self) -> None:
        label_map, names, order = self._classes.finish()
        in_order = order == list(range(len(order)))
        samples: dict[type, Any] = {}
        for item in self._items:
            for shape in item.annotations:
                samples[type(shape)] = shape
                if not in_order and getattr(shape, "label", None) is not None:  # not for captions
                    shape.label = order[shape.label]
        self._ann_types = {shape.type for shape in samples.values()}
        points: dict[int, Sequence[str]] = {
            number: [point.label for point in item.keypoints]
            for number, item in enumerate(label_map.items)
            if item.keypoints
        }
        keypoint_names = self._builder.keypoint_names
        points |= {order[label]: point_names for label, point_names in keypoint_names.items()}
        self._categories = make_categories(
            label_map,
            names,
            points,
            source=self._source,
            shards=tuple(os.path.abspath(path) for _, path in self._shards),
            first_id=self.FIRST_ID,
        )


class _Shard(NamedTuple):
    """The values that all records of a shard share."""

    subset: str
    identity: ShardIdentity
    images: ImageFiles
    ids: IdMaker


_EMPTY = Detection()
"""The other fields of records that have only boxes and classes."""


_USUAL = (keys.ENCODED, keys.FILENAME, keys.XMIN)


def _make_keys_error(
    example: Example, kind: str, expected: Collection[str], ending: str = ""
) -> TfodError:
    if not len(example):
        return example.error("the record has no features", fix="export the shard again")
    names = ", ".join(sorted(example)[:6])
    more = f" and {len(example) - 6} more" if len(example) > 6 else ""
    cause = f"has the keys {names}{more}, but none of {', '.join(expected)}{ending}"
    if example.record.number:
        return example.error(f"the record {cause}")
    return ShardError(
        f"is not {kind}: its first record {cause}",
        shard=example.shard,
        fix="inspect it with: tfod describe; other keys can be read with a profile",
    )


def _make_name(detections: Detections, row: int) -> str:
    source, number = detections.source_ids[row], detections.image_ids[row]
    ids = (source or "", "" if number is None else str(number))
    paths = (split_extension(safe_relative_path(text))[0] for text in ids)
    name = next(filter(None, paths), "")
    return name or f"record_{detections.examples.records.first + row:06d}"


@contextlib.contextmanager
def _convert_errors(path: str) -> Iterator[None]:
    """Convert TfodError and OSError to Datumaro's errors."""
    try:
        yield
    except TfodError as error:
        raise compat.errors.DatasetImportError(str(error)) from error
    except OSError as error:
        raise compat.errors.DatasetImportError(f"{path}: {error.strerror}") from error


class RoboflowTfrecordBase(TfDetectionApiBase):
    """The same reader, under Datumaro's name for Roboflow's exports."""

    NAME = "roboflow_tfrecord"
