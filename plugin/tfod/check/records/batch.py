"""A batch of records as the rules look at it, and what the profile makes of its keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tfod.check.duplicates.row_blocks import FACTS, Rows
from tfod.check.findings.finding import Problem
from tfod.check.profiles.profile import Profile
from tfod.check.records.boxes import Boxes
from tfod.check.records.decoding import Decoding
from tfod.check.records.encoded_images import EncodedImages
from tfod.check.rules.example import Features
from tfod.check.rules.registry import Rule
from tfod.detection import keys
from tfod.detection.columns import single_values, usual_keys
from tfod.detection.detections import Detections
from tfod.detection.field_mapping import FieldMapping
from tfod.detection.images.masks import decode_pixels, png_sizes
from tfod.detection.problems import READ_KINDS, READ_ONCE
from tfod.detection.schema import FeatureDescription, FeatureSpec
from tfod.example.columns import Column, ExampleBatch, bytes_of
from tfod.example.wire import Kind
from tfod.kernel import hash_spans

BOX_PREFIX = keys.XMIN.rpartition("/")[0]
_MASKS = 4  # of a batch, which may be empty
_PER_OBJECT = (*(one.key for one in keys.OBJECT_ATTRIBUTES), keys.MASK)


class OwnKeys:
    """The keys that a mapping has in place of the OD API's, in what rules say."""

    def __init__(self, field_mapping: FieldMapping) -> None:
        usual, own = FieldMapping().by_name, field_mapping.by_name
        self._renamed: dict[str, str] = {}
        for role, key in usual.items():
            other = own[role]
            if key is not None and other is not None:
                self._renamed[key] = other
        if len(field_mapping.box) == len(keys.BOX):
            self._renamed.update(zip(keys.BOX, field_mapping.box, strict=True))
        self._renamed[BOX_PREFIX] = field_mapping.box_prefix or BOX_PREFIX
        self._renamed = {key: other for key, other in self._renamed.items() if key != other}

    def with_own_keys(self, problems: Iterable[tuple[Rule, Problem]]) -> list[tuple[Rule, Problem]]:
        """Problems of the OD API's keys, as problems of the keys that this profile has instead."""
        if not self._renamed:
            return list(problems)
        found = []
        for rule, problem in problems:
            message = problem.message
            for usual, own in self._renamed.items():
                message = message.replace(usual, own)
            feature = self._renamed.get(problem.feature or "", problem.feature)
            found.append((rule, replace(problem, message=message, feature=feature)))
        return found


class Expectation(OwnKeys):
    """What a profile expects of records: the same for all shards of a check.

    Attributes:
        field_mapping: which key holds what.
        features: what is expected of each key, the profile's and what readers take of others.
    """

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile.field_mapping)
        self.field_mapping = profile.field_mapping
        # Readers look at these wherever they are: CVAT's layout has no image/format, and an import
        # of it stops at one that is a number.
        self.features: FeatureDescription = {
            **_read_anywhere(profile.field_mapping),
            **profile.features,
        }


def _read_anywhere(field_mapping: FieldMapping) -> FeatureDescription:
    """What readers take of each key that they know, none of it required."""
    found = {}
    names, hidden, moved = usual_keys(field_mapping)
    for key, kinds in READ_KINDS.items():
        own = names.get(key, key)
        if own in names.values() or own not in hidden | moved:
            found[own] = _optional(kinds, key in READ_ONCE)
    if len(field_mapping.box) == 1:
        found[field_mapping.box[0]] = _optional((Kind.FLOAT,))
    if field_mapping.image_id:
        found[field_mapping.image_id] = _optional((Kind.INT64, Kind.BYTES), is_one=True)
    if field_mapping.annotation_id:
        found[field_mapping.annotation_id] = _optional((Kind.INT64,))
    return found


def _optional(kinds: Sequence[Kind], is_one: bool = False) -> FeatureSpec:
    if not is_one:
        return FeatureSpec(kinds[0], also=tuple(kinds[1:]))
    default = b"" if kinds[0] is Kind.BYTES else 0
    return FeatureSpec(kinds[0], (), default, also=tuple(kinds[1:]))


class Batch:
    """A batch of records, as columns.

    Args:
        examples: the records.
        images: theirs; the records need no longer have the bytes.
        expectation: what the profile expects of them.

    Attributes:
        live: which records are looked at: they have bytes, and can be read; bool.
    """

    def __init__(
        self, examples: ExampleBatch, images: EncodedImages, expectation: Expectation
    ) -> None:
        self.records = examples.records
        self.examples = examples
        self.images = images
        self.expectation = expectation
        mapping = expectation.field_mapping
        self.detections = Detections(examples, mapping, headers=images.headers)
        self.live = self.records.lengths > 0
        self.live[list(self.examples.refused)] = False

    def __len__(self) -> int:
        return len(self.records)

    @property
    def keys(self) -> set[str]:
        """The features that records have."""
        return set(self.examples.columns)

    @cached_property
    def features(self) -> Features:
        """The features, beside what is expected of them."""
        return Features(self.examples, self.expectation.features, self.live)

    # Names

    @cached_property
    def filenames(self) -> list[str | None]:
        """Of each record that has exactly one; None where it has none."""
        return self.detections.filenames

    @cached_property
    def source_ids(self) -> list[str | None]:
        """Likewise."""
        return self.detections.source_ids

    def unnamed(
        self, key: str | None, names: Sequence[str | None], is_reported: bool
    ) -> Iterator[int]:
        """The records without a name that another rule reports.

        Args:
            key: the name's feature key.
            names: of all records.
            is_reported: whether EXA003 reports that a required one is missing.
        """
        spec = self.expectation.features.get(key or "")
        is_required = is_reported and spec is not None and spec.required
        columns = self.examples.columns_of(key) if key else []
        for row, name in enumerate(names):
            if name is None and (is_required or any(one.has(row) for one in columns if one.kind)):
                yield row

    def odd_texts(self) -> Iterator[tuple[int, str, bytes]]:
        """Row, key and value of texts that are not UTF-8, of each feature of a record the first."""
        found = self.detections
        for key, _ in (
            (keys.FILENAME, found.filenames),
            (keys.SOURCE_ID, found.source_ids),
            (keys.SHA256, found.sha256s),
            (keys.FORMAT, found.formats),
            (keys.CLASS_TEXT, found.class_texts),
        ):
            column = found.column(key, Kind.BYTES)
            if column.key not in found.odd_text_keys:
                continue
            for row in column.rows.tolist():
                values = bytes_of(column.buffer, column[row])
                if key != keys.CLASS_TEXT and len(values) != 1:
                    continue
                odd = next((one for one in values if not _is_utf8(one)), None)
                if odd is not None:
                    yield row, column.key, odd

    # Images

    @cached_property
    def image_rows(self) -> np.ndarray:
        """The records whose encoded image is checked, and not reported as missing by EXA003."""
        key = self.expectation.field_mapping.encoded
        if key is None:
            return np.empty(0, np.int64)
        checked = self.live.copy()
        spec = self.expectation.features.get(key)
        if spec is not None and spec.required:
            checked &= self.examples.column(key, Kind.BYTES).present
        for column in self.examples.columns_of(key):
            if column.kind not in (None, Kind.BYTES):
                checked &= ~column.present
        return np.flatnonzero(checked)

    @cached_property
    def stated_sizes(self) -> np.ndarray:
        """Height and width of each image in pixels, its header's where the record says none.

        float64 of shape (records, 2); NaN where nothing says it.
        """
        found = self.detections
        sizes = np.full((len(self), 2), np.nan)
        for side, key in enumerate((keys.HEIGHT, keys.WIDTH)):
            rows, values = single_values(found.column(key, Kind.INT64))
            sizes[rows, side] = values
        missing = np.isnan(sizes) | (sizes == 0)
        for row in np.flatnonzero(missing.any(axis=1)).tolist():
            header = found.headers[row]
            if header is not None:
                sizes[row] = header.height, header.width
        return sizes

    @cached_property
    def sizes(self) -> np.ndarray:
        """The same; NaN also where it cannot be a size."""
        found: np.ndarray = self.stated_sizes.copy()
        with np.errstate(invalid="ignore"):
            found[~(found > 0)] = np.nan
        return found

    @cached_property
    def without_size(self) -> np.ndarray:
        """Records with boxes of an image of which nothing says the height, or the width; bool."""
        unknown = np.isnan(self.stated_sizes).any(axis=1)
        found: np.ndarray = unknown & (self.stated_box_counts > 0) & ~self._uneven
        return found

    @property
    def rows(self) -> Rows:
        """What is to be remembered of the records, but for those that could not be read."""
        live = np.flatnonzero(self.live)
        named = (keys.FILENAME, keys.SOURCE_ID)
        hashes = [self._hashes_of(self.detections.column(key, Kind.BYTES)) for key in named]
        hashes.append(self.images.hashes)
        facts = np.empty(len(live), FACTS)
        facts["record"], facts["offset"] = self.records.numbers[live], self.records.offsets[live]
        with np.errstate(invalid="ignore"):
            sizes = self.stated_sizes[live]
            facts["height"], facts["width"] = np.where(
                (sizes >= 0) & (sizes < 1 << 31), sizes, -1
            ).T
        facts["boxes"] = self.box_counts[live]
        names: list[Sequence[str | None]] = [self.filenames, self.source_ids]
        if len(live) < len(self):
            names = [[texts[row] for row in live.tolist()] for texts in names]
        looks = self.images.fingerprints()
        looks = None if looks is None else looks[live]
        return Rows(names[0], names[1], [one[live] for one in hashes], facts, looks)

    def _hashes_of(self, column: Column) -> np.ndarray:
        rows, spans = single_values(column)
        found = np.zeros(len(self), np.uint64)
        found[rows] = hash_spans(column.buffer, spans)
        return found

    # Objects

    @cached_property
    def box_columns(self) -> list[Column]:
        """The lists of the boxes' sides, or of boxes in pixels."""
        return [self.examples.column(key, Kind.FLOAT) for key in self.expectation.field_mapping.box]

    def odd_masks(self) -> Iterator[tuple[int, str, list[int], list[int]]]:
        """Row, key, and both sizes: the first PNG mask of a key that is not of its image's size."""
        found = self.detections
        for key in (keys.MASK, *keys.IMAGE_MASKS.values()):
            column = found.column(key, Kind.BYTES)
            if not len(column.values):
                continue
            sizes = found.sizes.copy()
            for row, header in enumerate(self.images.headers):
                if header is not None:
                    sizes[row] = header.height, header.width
            rows = np.repeat(np.arange(len(self)), column.counts)
            stated = png_sizes(column.buffer, column.values)
            odd = (stated != sizes[rows]).any(axis=1) & (stated * sizes[rows] > 0).all(axis=1)
            firsts = np.unique(rows[odd], return_index=True)[1]
            for row, size in zip(rows[odd][firsts].tolist(), stated[odd][firsts], strict=True):
                yield row, key, size.tolist(), sizes[row].tolist()

    def mask_values(self, decoding: Decoding) -> Iterator[tuple[int, int]]:
        """The largest value of the first PNG masks of objects: who writes one so writes all so."""
        column = self.detections.column(keys.MASK, Kind.BYTES)
        spans = column.values[: _MASKS if decoding.part else 0]
        rows = np.repeat(np.arange(len(self)), column.counts)[: len(spans)].tolist()
        sizes = png_sizes(column.buffer, spans).tolist()
        found = zip(rows, spans.tolist(), sizes, strict=True)
        for row, (start, length), (height, width) in found:
            if height * width and decoding.is_cheap(height, width, length):
                with suppress(ValueError):  # it is no PNG
                    pixels = decode_pixels(memoryview(column.buffer)[start : start + length])
                    scale = 255 if pixels.dtype == bool else 1  # as TensorFlow reads 1 bit
                    yield row, int(pixels.max()) * scale

    @cached_property
    def _lists(self) -> list[Column]:
        """The lists over the objects, those of the boxes first; others as far as there are any."""
        found = list(self.box_columns)
        for key, kind in ((keys.CLASS_TEXT, Kind.BYTES), (keys.CLASS_LABEL, Kind.INT64)):
            found.append(self.detections.column(key, kind))
        for key in _PER_OBJECT:
            for column in self.detections.columns_of(key):
                spec = self.expectation.features.get(column.key)
                # Masks as numbers are pixels, not one value an object.
                is_mask_of_numbers = key == keys.MASK and column.kind is Kind.FLOAT
                is_taken = column.kind is not None and (spec is None or spec.takes(column.kind))
                if is_taken and not is_mask_of_numbers:
                    found.append(column)
        if self.detections.annotation_id_column is not None:
            found.append(self.detections.annotation_id_column)
        return found

    @cached_property
    def _readable(self) -> np.ndarray:
        """Records whose boxes are of the right kind, bool of shape (records,)."""
        good: np.ndarray = self.live.copy()
        for key in self.expectation.field_mapping.box:
            for column in self.examples.columns_of(key):
                if column.kind not in (None, Kind.FLOAT):
                    good &= ~column.present
        return good

    @cached_property
    def _uneven(self) -> np.ndarray:
        """Records whose lists over the objects differ in length, bool of shape (records,)."""
        uneven = np.zeros(len(self), bool)
        boxes = len(self.box_columns)
        for place, column in enumerate(self._lists[1:] if boxes else (), start=1):
            differs = column.counts != self.stated_box_counts
            uneven |= differs if place < boxes else differs & (column.counts > 0)
        found: np.ndarray = uneven & self._readable
        return found

    @cached_property
    def stated_box_counts(self) -> np.ndarray:
        """How many boxes each record says it has, whether they can be read or not; int64."""
        if not self.box_columns:
            return np.zeros(len(self), np.int64)
        counts: np.ndarray = self.detections.box_counts * self._readable
        return counts

    @cached_property
    def lengths(self) -> list[tuple[int, dict[str, int]]]:
        """The records whose lists differ in length, with all lengths by key."""
        found = []
        for row in np.flatnonzero(self._uneven).tolist():
            lengths = {
                column.key: int(column.counts[row])
                for place, column in enumerate(self._lists)
                if place < len(self.box_columns) or column.counts[row]
            }
            found.append((row, lengths))
        return found

    @cached_property
    def box_counts(self) -> np.ndarray:
        """How many boxes each record has, 0 where they cannot be read; int64."""
        if not self.box_columns:
            return np.zeros(len(self), np.int64)
        good = self._readable & ~self._uneven & self.detections.box_rows
        return np.where(good, self.detections.box_counts, 0)

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes that can be read."""
        found, counts = self.detections, self.box_counts
        held = np.where(found.box_rows, found.box_counts, 0)
        corners = np.empty((0, 4))
        if counts.any():
            corners = found.boxes
            if (held != counts).any():
                corners = corners[np.repeat(counts > 0, held)]
            corners = corners.astype(np.float64)
        sizes = self.sizes
        return Boxes(corners, counts, sizes[:, 0], sizes[:, 1], _ClassNames(found))

    def corners_of(self, row: int) -> np.ndarray:
        """The boxes of one record, float64 of shape (n, 4)."""
        start, end = self.boxes.bounds[row]
        return self.boxes.corners[start:end]

    @cached_property
    def uses(self) -> tuple[np.ndarray, list[tuple[str | None, int | None]]]:
        """What names the classes: a code of each box, and of each code the pair of text and id."""
        found, counts = self.detections, self.box_counts
        texts = found.column(keys.CLASS_TEXT, Kind.BYTES)
        labels = found.column(keys.CLASS_LABEL, Kind.INT64)
        text_codes, names = found.class_texts
        label_codes, ids = _coded(labels.values)
        # In both 0 is a box without one.
        pairs = _of_boxes(texts, text_codes + 1, counts) * (len(ids) + 1)
        codes, kinds = _coded(pairs + _of_boxes(labels, label_codes + 1, counts))
        split = [divmod(kind, len(ids) + 1) for kind in kinds]
        return codes, [(names[a - 1] if a else None, ids[b - 1] if b else None) for a, b in split]


_NARROW = 1 << 16


def _coded(values: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """A code of each number, int64 of shape (n,), and the numbers of the codes, ascending."""
    low = int(values.min(initial=0))
    if int(values.max(initial=0)) - low >= _NARROW:
        numbers, codes = np.unique(values, return_inverse=True)
        return codes, numbers.tolist()
    places = values - low  # ids of classes are few and near: no sorting
    there = np.bincount(places) > 0
    return (np.cumsum(there) - 1)[places], (np.flatnonzero(there) + low).tolist()


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _of_boxes(column: Column, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The value of each box from a list over the objects, 0 without one; int64 of shape (n,)."""
    if len(values) == counts.sum() and (column.counts == counts).all():
        return values
    found = np.zeros(int(counts.sum()), np.int64)
    there = (column.counts == counts) & (counts > 0)
    found[np.repeat(there, counts)] = values[np.repeat(there, column.counts)]
    return found


@dataclass(frozen=True, eq=False)
class _ClassNames:
    """For each record what names the classes of its boxes: texts, or else ids."""

    detections: Detections  # not the batch, which has the boxes: its buffer could not be used again

    def __getitem__(self, row: int, /) -> Sequence[object]:
        found = self.detections
        texts = found.column(keys.CLASS_TEXT, Kind.BYTES).row_splits[row : row + 2].tolist()
        named = found.class_text_values[texts[0] : texts[1]]
        labels: list[int] = found.column(keys.CLASS_LABEL, Kind.INT64)[row].tolist()
        return named or labels
