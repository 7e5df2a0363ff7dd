"""The reader: shards to a Datumaro dataset, images and masks left in the shard."""

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
from tfod.datumaro.construct import make_item, paused_garbage_collection
from tfod.datumaro.import_annotations import AnnotationBuilder
from tfod.datumaro.media import raw_channels, record_media, record_size
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.detection.labels.classes import ClassTable, LabelScope
from tfod.detection.losses import LossCounter
from tfod.detection.problems import NOTHING
from tfod.errors import RecordError, ShardError, TfodError
from tfod.example.example import Example
from tfod.example.example_batch import ExampleBatch
from tfod.formats.options import ConversionProblems
from tfod.formats.reading.files import ImageFiles, locate_shard_images
from tfod.sources.reading import ReadableShards, find_readable
from tfod.tfrecord.image_names import IdMaker, safe_relative_path, split_extension
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.record_index import ByteSpan, ShardIdentity, identify
from tfod.tfrecord.shard_sets.search import ShardSet
from tfod.tfrecord.shard_sets.shard_names import stated_name
from tfod.tfrecord.storage.open import shard_size

_log = logging.getLogger("tfod.datumaro")
_SHOWN = 8
# What follows from the image, or from the label: channels, size, a vector of zeros and a one.
_REPEATING = frozenset(("depth", "channels", "format", "colorspace", "size", "one_hot_class"))
_CONTRADICTIONS = (
    "objects whose class text and id name different classes of the label map; the text was followed"
)
_UNKNOWN_TEXTS = "classes that the label map lacks, added"
_UNKNOWN_IDS = "class ids that the label map lacks, named by their number"
_OTHER_IMAGES = (
    "records with another image than an earlier record of the same image number, whose image was "
    "taken"
)
_NO_IMAGES = (
    "records whose encoded image is neither a JPEG, PNG, GIF, BMP, TIFF or WebP image nor pixels "
    "of the record's size; the annotations were imported, but exports and transforms that use the "
    "image will fail; look at the shards with tfod check"
)
_UNREAD = "features that have no meaning to Datumaro, not imported"


class TfDetectionApiBase(compat.DatasetBase):
    """All the shards that a path means, as one dataset of one or more subsets.

    Args:
        path: a shard, a folder or a glob.
        subset: a name for everything that is read; without it names come from the files.
        label_map: a label map file or the name of one that tfod ships; without it the ones
            beside the shards are used.
        profile: a profile's name or file, for shards that have other keys: its field mapping
            says which key holds what. Without it, the layout that fits best says so.
        ctx: Datumaro's import context: its error policy decides what happens to a box or a
            record that is wrong, its progress reporter gets the bytes that were read.

    Raises:
        DatasetImportError: there is no shard, a shard or a label map cannot be read.
    """

    NAME = "tf_detection_api"
    FIRST_ID: ClassVar[int] = 1
    """The id that the format counts classes from."""
    FIELD_MAPPING: ClassVar[FieldMapping | None] = None
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
        with _import_errors(path):
            given = _field_mapping_of(profile) if profile else self.FIELD_MAPPING
            shards = find_readable(path, label_map=label_map, field_mapping=given)
            sets = shards.sets
            if subset:
                sets = [ShardSet(subset, one.paths, one.missing) for one in sets]
            super().__init__(subsets=list(dict.fromkeys(one.subset for one in sets)), ctx=ctx)
            with paused_garbage_collection():
                self._read(path, sets, shards)

    def __iter__(self) -> Iterator[Any]:
        yield from self._items

    def __len__(self) -> int:
        return len(self._items)

    def categories(self) -> Any:
        return self._categories

    def _mapping_of(self, shards: ReadableShards, path: str) -> FieldMapping | None:
        """Return the keys of a shard's records; None for the OD API's, and if no layout fits."""
        with contextlib.suppress(TfodError):  # of an unknown layout, which the first record says
            mapping = shards.field_mapping(path)
            return None if mapping == FieldMapping() else mapping
        return None

    def _read(self, path: str, sets: Sequence[ShardSet], shards: ReadableShards) -> None:
        scopes = self._scopes(shards)
        self._losses = LossCounter(_CONTRADICTIONS, _UNKNOWN_TEXTS, _UNKNOWN_IDS)
        self._builder = AnnotationBuilder(self._classes, self._losses)
        self._items: list[Any] = []
        self._id_makers: dict[str, IdMaker] = {}
        self._images: dict[tuple[str, int | str | None], tuple[Any, int]] = {}
        # Cached, since a set may have thousands of shards.
        self._locate_shard_images = functools.cache(locate_shard_images)
        self._problems = ConversionProblems()
        self._source = os.path.abspath(path)
        self._shards = [(one.subset, path) for one in sets for path in one.paths]
        for one in sets:
            if one.missing:
                missing = join_names(one.missing, _SHOWN)
                _log.warning("shards of a numbered set not there, reading without: %s", missing)
        progress = self._ctx.progress_reporter
        progress.start(sum(shard_size(path) for _, path in self._shards), desc="Reading TFRecords")
        done = self._record_count = 0
        for subset, path in self._shards:
            self._field_mapping = self._mapping_of(shards, path)
            self._read_shard(subset, path, scopes[path], done)
            done += shard_size(path)
            progress.report_status(done)
        progress.finish()
        if not self._record_count:
            cause, fix = "holds no record", "export or download it again"
            raise ShardError(cause, shard=self._shards[0][1], fix=fix)
        self._finish()

    def _scopes(self, shards: ReadableShards) -> dict[str, LabelScope]:
        """The classes of each shard."""
        self._classes = ClassTable()
        for note in (*shards.notes, *shards.require_label_maps()):
            _log.warning(note)
        scopes: dict[int, LabelScope] = {}
        found: dict[str, LabelScope] = {}
        for path in shards.paths:
            label_map = shards.label_map(path)
            if id(label_map) not in scopes:
                scopes[id(label_map)] = self._classes.add_label_map(label_map)
            found[path] = scopes[id(label_map)]
        return found

    def _read_shard(self, subset: str, path: str, scope: LabelScope, done: int) -> None:
        identity = identify(path)
        images = self._locate_shard_images(os.path.dirname(os.path.abspath(path)), subset)
        shard = _Shard(subset, identity, images, self._id_makers.setdefault(subset, IdMaker()))
        count = 0
        for records in read_record_batches(path):
            count += len(records)
            found = self._detections(ExampleBatch.of(records))
            self._builder.open(found, scope, identity)
            self._read_batch(found, shard, done)
        self._record_count += count
        stated = stated_name(path).records
        if stated not in (None, count):
            _log.warning("%s has %d records where its name says %d", path, count, stated)

    def _read_batch(self, found: Detections, shard: _Shard, done: int) -> None:
        examples = found.examples
        records = examples.records
        others = set(np.flatnonzero(~self._is_of_format(found)).tolist())
        refused = found.refused_rows
        for row in range(len(records)):
            number = records.first + row
            try:
                if row in others:
                    raise self._refuse_format(Example(examples, row))
                # A row as a Detection raises what is wrong with it.
                more = found[row] if found.other_keys or row in refused else _NOTHING_MORE
                self._read_row(found, row, more, shard)
            except RecordError as error:
                where = f"record {number}", shard.subset
                error = error.with_traceback(None)  # a policy may keep it, and it the batch
                self._ctx.error_policy.report_item_error(error, item_id=where)
                continue
            if number % 1000 == 999:
                offset = min(int(records.offsets[row]), shard.identity.size)
                self._ctx.progress_reporter.report_status(done + offset)

    def _detections(self, examples: ExampleBatch) -> Detections:
        """What records say, by the field mapping."""
        mapping = self._field_mapping or FieldMapping()
        return Detections(examples, mapping, () if mapping.box else _REPEATING)

    def _is_of_format(self, found: Detections) -> np.ndarray:
        """Which records have any key of the format, bool of shape (records,)."""
        is_ours = np.ones(len(found), bool)
        is_ours[[one.row for one in found.problems if one.case == NOTHING]] = False
        return is_ours

    def _refuse_format(self, example: Example) -> TfodError:
        """Why a record without any key of the format is refused.

        Returns:
            A ShardError where it is the first one: its whole shard is of another kind.
        """
        if self._field_mapping is not None:
            return _other_keys(
                example, "a shard of this profile", sorted(self._field_mapping.all_keys)
            )
        return _other_keys(example, "an object detection shard", _USUAL, ", …")

    def _read_row(self, found: Detections, row: int, more: Detection, shard: _Shard) -> None:
        """Make the item of a record, or add to the item of an earlier one.

        Raises:
            RecordError: the record has boxes, and its image's size is not known.
        """
        image_id = found.image_ids[row]
        path = safe_relative_path(found.filenames[row] or "")
        start, end = found.encoded[row].tolist()
        length = end - start
        image = shard.images.find([path], "", self._problems) if path and not length else None
        on_disk = image[0] if image else None
        size = record_size(found, row, on_disk)
        of_image = shard.subset, image_id
        item, first_length = self._images.get(of_image, (None, length))
        self._losses[_OTHER_IMAGES][""] += first_length != length
        if item is None:
            item_id, _ = shard.ids.make(path, "" if path else _name_without_a_name(found, row))
            records = found.examples.records
            span = ByteSpan(shard.identity, records.base + start, length)
            head = bytes(records.buffer[start : min(end, start + 16)])
            media = record_media(head, span, path, item_id, size, on_disk)
            attributes = self._attributes(found, row, more, item_id, media)
            item = make_item(item_id, shard.subset, media, [], attributes)
            self._items.append(item)
            if image_id is not None:
                self._images[of_image] = item, length
            if length and found.headers[row] is None and not raw_channels(length, size):
                place = f"record {records.first + row} of {os.path.basename(records.shard)}"
                self._losses.note(_NO_IMAGES, place)
        where = item.id, shard.subset
        report = functools.partial(self._report_box, found.examples, row, where)
        item.annotations += self._builder.build(row, more, size, report)
        masks = [keys.IMAGE_MASKS[name] for name in more.image_masks]
        for oddity in found.warnings(row):
            self._losses[oddity][""] += 1
        for key in (*more.unread_keys, *masks):
            self._losses[_UNREAD][key] += 1

    def _attributes(
        self, found: Detections, row: int, more: Detection, item_id: str, media: Any
    ) -> dict[str, Any]:
        filename, image_id = found.filenames[row], found.image_ids[row]
        attributes: dict[str, Any] = {}
        if self._field_mapping is None or self._field_mapping.source_id is not None:
            attributes["source_id"] = found.source_ids[row]
        if image_id is not None:
            attributes["id"] = image_id
        own_extension = (media.ext if media is not None else "") or DEFAULT_EXTENSION
        if filename and filename != item_id + own_extension:
            attributes["filename"] = filename
        for name, class_ids in more.image_attributes.items():
            attributes[name] = list(class_ids)
        for name, value in more.image_extra.items():
            attributes.setdefault(name, value)
        return attributes

    def _report_box(
        self, examples: ExampleBatch, row: int, item_id: tuple[str, str], reason: str
    ) -> None:
        fix = "correct it, or import with an error policy that skips it"
        error = examples.error(row, reason, feature="image/object/bbox", fix=fix)
        self._ctx.error_policy.report_annotation_error(error, item_id=item_id)

    def _finish(self) -> None:
        """Put the classes in order, now that all are known, and say what was noticed."""
        self._set_categories()
        classes, losses = self._classes, self._losses
        for pair, count in classes.mismatches.items():
            losses[_CONTRADICTIONS][f"'{pair.text}' with id {pair.label}"] += count
        losses[_UNKNOWN_TEXTS] += Counter({repr(x): n for x, n in classes.unknown_texts.items()})
        losses[_UNKNOWN_IDS] += Counter({str(x): n for x, n in classes.unknown_ids.items()})
        for sentence in losses.sentences():
            _log.warning(sentence)
        del self._builder, self._images  # the last batch, and what is looked up while reading

    def _set_categories(self) -> None:
        label_map, names, place = self._classes.finish()
        in_order = place == list(range(len(place)))
        samples: dict[type, Any] = {}
        for item in self._items:
            for one in item.annotations:
                samples[type(one)] = one
                if not in_order and getattr(one, "label", None) is not None:  # captions have none
                    one.label = place[one.label]
        self._ann_types = {one.type for one in samples.values()}
        points: dict[int, Sequence[str]] = {
            number: [point.label for point in item.keypoints]
            for number, item in enumerate(label_map.items)
            if item.keypoints
        }
        points |= {place[label]: own for label, own in self._builder.keypoint_names.items()}
        self._categories = make_categories(
            label_map,
            names,
            points,
            source=self._source,
            shards=tuple(os.path.abspath(path) for _, path in self._shards),
            first_id=self.FIRST_ID,
        )


class _Shard(NamedTuple):
    """What is the same for all records of a shard."""

    subset: str
    identity: ShardIdentity
    images: ImageFiles
    ids: IdMaker


_NOTHING_MORE = Detection()
"""Of records that have boxes and classes alone."""


def _field_mapping_of(profile: str) -> FieldMapping:
    """The field mapping of a profile, by its name or from its file."""
    from tfod.checker.profiles.file import load_profile  # the checker's, and only on demand

    return load_profile(profile).field_mapping


_USUAL = (keys.ENCODED, keys.FILENAME, keys.XMIN)


def _other_keys(
    example: Example, what: str, wanted: Collection[str], further: str = ""
) -> TfodError:
    """Why a record that holds something else is refused."""
    if not len(example):
        return example.error("the record holds no features", fix="export the shard again")
    there = ", ".join(sorted(example)[:6])
    more = f" and {len(example) - 6} more" if len(example) > 6 else ""
    cause = f"holds {there}{more}, but none of {', '.join(wanted)}{further}"
    if example.record.number:
        return example.error(f"the record {cause}")
    return ShardError(
        f"is not {what}: its first record {cause}",
        shard=example.shard,
        fix="look at it with: tfod describe; other keys are read with a profile",
    )


def _name_without_a_name(found: Detections, row: int) -> str:
    source, number = found.source_ids[row], found.image_ids[row]
    texts = (source or "", "" if number is None else str(number))
    name = next(filter(None, (split_extension(safe_relative_path(x))[0] for x in texts)), "")
    return name or f"record_{found.examples.records.first + row:06d}"


@contextlib.contextmanager
def _import_errors(path: str) -> Iterator[None]:
    """Turn errors of ours and of the file system into Datumaro's."""
    try:
        yield
    except TfodError as error:
        raise compat.errors.DatasetImportError(str(error)) from error
    except OSError as error:
        raise compat.errors.DatasetImportError(f"{path}: {error.strerror}") from error


class RoboflowTfrecordBase(TfDetectionApiBase):
    """The same reader under the name that Datumaro gives it for Roboflow's exports."""

    NAME = "roboflow_tfrecord"
