"""Fixes of single records: image format and size, rounded boxes, class ids and source ids.

A fix reads the original record, sets new features, and yields a finding with the values before and
after. It changes only what is certain. Records that cannot be read are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from tfod.checker.analysis.column_order import MAX_COORDINATE, ROUNDING_ERROR
from tfod.checker.analysis.encoded_images import ImageFacts, extend_far
from tfod.checker.finding import Finding, JsonValue
from tfod.checker.profiles.profile import Profile
from tfod.detection import keys
from tfod.detection.attributes import add_image_attributes
from tfod.detection.columns import decode_text
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import ImageHeader
from tfod.detection.images.source_ids import SourceIdNumbers, former_source_id, parse_source_id
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import excerpt
from tfod.example.encoding_issues import EncodingIssue
from tfod.example.example import Example, bytes_feature, float_feature, int64_feature, text_feature
from tfod.example.example_batch import ExampleBatch, copy_bytes
from tfod.example.wire import Kind
from tfod.kernel import code_spans
from tfod.shards.rewrite import rewrite_example
from tfod.sources.layouts import BOX_KEY
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.reader import RecordBatch

Fix: TypeAlias = "Callable[[EditedRecord], Iterator[Finding]]"
_MAX_SHOWN = 80
_DAMAGE_CODES = {
    DamageKind.LENGTH_CRC: "TFR003",
    DamageKind.DATA_CRC: "TFR004",
    DamageKind.TRUNCATED_RECORD: "TFR005",
    DamageKind.TRUNCATED_HEADER: "TFR006",
    DamageKind.FORGED_LENGTH: "TFR007",
    DamageKind.TRAILING_ZEROS: "TFR008",
    DamageKind.COMPRESSION: "TFR011",
}
ALWAYS_FIXED = frozenset(_DAMAGE_CODES.values())
"""Codes that are always repaired, because damaged records cannot be copied."""
_NO_RECORD = ("TFR006", "TFR008", "TFR011")  # stray bytes, zeros, bytes that cannot be unpacked


@dataclass
class EditedRecord:
    """A record with its new features.

    Attributes:
        detections, row: batch of the record, and its row.
        label_map: label map of the shard, which corrects ids; None if it has none.
        is_complete: whether the label map has all classes of its shards.
        source_ids: numbers for images whose source id is missing or has to be replaced.
        new: encoded features that are replaced or added, by key; None for those that are removed.
    """

    detections: Detections
    row: int
    profile: Profile
    label_map: LabelMap | None
    is_complete: Callable[[], bool]
    source_ids: SourceIdNumbers
    new: dict[str, bytes | None] = field(default_factory=dict)

    def fix(self, codes: Set[str]) -> list[Finding]:
        """Apply the fixes for these codes, and return the changes."""
        fixes = ((code, fix) for code, fix in FIXES if code in codes)
        return [change._replace(code=code) for code, fix in fixes for change in fix(self)]

    def payload(self) -> bytes:
        """Return the record with its new features; the other bytes are unchanged."""
        return rewrite_example(self.example, self.new)

    def put(
        self, key: str, values: Sequence[int] | Sequence[str], message: str = ""
    ) -> Iterator[Finding]:
        """Replace or add a feature, unless another fix has already set it."""
        if key in self.new:
            return
        columns = self.detections.examples
        before: list[JsonValue] = [
            *columns.column(key, Kind.INT64)[self.row].tolist(),
            *(text[:_MAX_SHOWN] for text in self.texts(key)),
        ]
        texts = [value for value in values if isinstance(value, str)]
        numbers = [value for value in values if isinstance(value, int)]
        self.new[key] = text_feature(texts) if texts else int64_feature(numbers)
        old, new = _to_json(before), _to_json(values)
        change = f"{excerpt(old)} changed to {excerpt(new)}" if before else f"set to {excerpt(new)}"
        yield make_change(message or f"{key}: {change}", key, old, new)

    # The original values; empty if a feature has the wrong type

    @property
    def field_mapping(self) -> FieldMapping:
        """The keys of the record."""
        return self.profile.field_mapping

    @cached_property
    def example(self) -> Example:
        """The record without the rest of its batch."""
        return Example(self.detections.examples, self.row)

    def texts(self, key: str | None) -> list[str]:
        """Return the texts of a feature."""
        column = self.detections.examples.column(key or "", Kind.BYTES)
        return self.detections.texts_in(column, self.row)

    @cached_property
    def labels(self) -> list[int]:
        """The class ids of the objects."""
        labels: list[int] = self.detections.column(keys.CLASS_LABEL, Kind.INT64)[self.row].tolist()
        return labels

    @property
    def header(self) -> ImageHeader | None:
        """The image header; None if there are several images, or the header has no size."""
        header = self.detections.headers[self.row]
        return header if header is not None and header.height and header.width else None

    @cached_property
    def facts(self) -> ImageFacts:
        """The image, with its format and size as declared in the record."""
        return ImageFacts(
            size=-1 if self.header else 0,
            header=self.header,
            declared_format=self.detections.formats[self.row],
            declared_height=self.detections.heights[self.row],
            declared_width=self.detections.widths[self.row],
            boxes_extend_far=extend_far(self.boxes),
        )

    @cached_property
    def boxes(self) -> np.ndarray:
        """The normalized boxes, float64 of shape (n, 4), including invalid ones.

        Empty if the four lists differ in length, or if the field mapping has boxes in pixels.
        """
        if self.field_mapping.has_pixel_boxes:
            return np.zeros((0, 4))
        first, last = self.detections.box_splits[self.row : self.row + 2].tolist()
        return self.detections.boxes[first:last].astype(np.float64)


def make_change(message: str, feature: str, before: JsonValue, after: JsonValue) -> Finding:
    """Return the finding for a change of a feature or an object."""
    value = {"before": before, "after": after, "record_dropped": False}
    return Finding(message, feature, value)


def _to_json(values: Sequence[JsonValue]) -> JsonValue:
    """Return the first values of a feature as a JSON value; None if it has no values."""
    return values[0] if len(values) == 1 else [*values[:_MAX_SHOWN]] or None


# Bytes that cannot be read


def make_drop(message: str, size: int | None, code: str) -> Finding:
    """Return the finding for bytes that are dropped; the code shows if they were a record."""
    before: JsonValue = None if size is None else {"bytes": size}
    value = {"before": before, "after": None, "record_dropped": code not in _NO_RECORD}
    return Finding(message, value=value, code=code)


def drop_damage(damage: Damage) -> Finding:
    """Return the finding for damaged bytes; raise ShardError if a record exceeds the limit."""
    if damage.kind is DamageKind.OVERSIZE:
        raise replace(damage, fix="raise TFOD_MAX_RECORD_BYTES").to_error()
    verb = "record dropped" if damage.kind is DamageKind.DATA_CRC else "dropped"
    return make_drop(f"{verb}: {damage.cause}", damage.skipped or None, _DAMAGE_CODES[damage.kind])


def drop_record(examples: ExampleBatch, row: int, codes: Set[str]) -> Finding | None:
    """Return the finding for a record that is empty or not an Example, or None to keep it."""
    length = examples.records.record(row).length
    error = examples.unreadable.get(row)
    if not length and "TFR009" in codes:
        return make_drop("record dropped: the record was empty (0 bytes)", 0, "TFR009")
    if error is None or error.issue is EncodingIssue.SEQUENCE_EXAMPLE or "EXA001" not in codes:
        return None
    message = f"record dropped: the record was not a tf.train.Example ({error.reason})"
    return make_drop(message, length, "EXA001")


# Missing features and rounding


def add_missing(record: EditedRecord) -> Iterator[Finding]:
    """Add required features that follow from the image, and the source id."""
    mapping, header = record.field_mapping, record.header
    for key, spec in record.profile.features.items():
        if not spec.required or record.example.kind(key) is not None:
            continue
        if key == mapping.source_id:
            yield from record.put(key, [record.source_ids.next()])
        elif header is not None and key == mapping.format:
            yield from record.put(key, [header.format])
        elif header is not None and key in (mapping.height, mapping.width):
            yield from record.put(key, [header.height if key == mapping.height else header.width])


def clip_rounding(record: EditedRecord) -> Iterator[Finding]:
    """Clip boxes that extend beyond the image by at most one pixel and keep an area inside."""
    before, header = record.boxes, record.header
    height = header.height if header else record.facts.declared_height
    width = header.width if header else record.facts.declared_width
    if not len(before) or not height or not width or min(height, width) < 1:
        return
    outside, after = np.maximum(before - 1, -before), np.clip(before, 0, 1)
    pixel = np.minimum(np.tile((1 / width, 1 / height), 2), MAX_COORDINATE - 1)
    mask = (outside > ROUNDING_ERROR).any(axis=1) & (outside <= pixel + ROUNDING_ERROR).all(axis=1)
    mask &= (after[:, :2] < after[:, 2:]).all(axis=1)
    if not mask.any():
        return
    for side, key in enumerate(record.field_mapping.box):
        record.new[key] = float_feature(np.where(mask, after[:, side], before[:, side]))
    for number in np.flatnonzero(mask).tolist():
        old, new = (boxes[number].tolist() for boxes in (before, after))
        texts = (", ".join(f"{side:.6g}" for side in box) for box in (old, new))
        message = f"box {number} clipped to the image: {' → '.join(texts)}"
        before_value, after_value = ({"object": number, "box": box} for box in (old, new))
        yield make_change(message, BOX_KEY, before_value, after_value)


# Class ids


def correct_ids(record: EditedRecord) -> Iterator[Finding]:
    """Replace ids that are not the id of their class text in the label map."""
    key, texts = record.field_mapping.class_label, record.texts(record.field_mapping.class_text)
    labels = record.labels
    if record.label_map is None or key is None or len(texts) != len(labels):
        return
    items = [record.label_map.find(text) for text in texts]
    new = [
        label if item is None or label in record.label_map.find_ids(text) else item.id
        for text, item, label in zip(texts, items, labels, strict=True)
    ]
    if new != labels and record.is_complete():
        pairs = zip(labels, new, strict=True)
        changes = dict.fromkeys(f"{old} changed to {label}" for old, label in pairs if old != label)
        yield from record.put(key, new, f"{key}: {', '.join(changes)}")


def add_ids(record: EditedRecord) -> Iterator[Finding]:
    """Add the ids of the class texts from the label map, if no object has an id."""
    mapping, count = record.field_mapping, record.example.value_count
    texts = record.texts(mapping.class_text)
    if record.label_map is None or mapping.class_label is None or not (texts and mapping.box):
        return
    if count(mapping.class_label) or count(mapping.box[0]) != len(texts):
        return
    ids = [item.id for item in map(record.label_map.find, texts) if item is not None]
    if len(ids) == len(texts) and record.is_complete():
        yield from record.put(mapping.class_label, ids)


def lacks_a_class(label_map: LabelMap, records: RecordBatch, key: str) -> bool:
    """Return whether any record has a class text that is not in the label map."""
    examples = ExampleBatch.of(records)
    spans = examples.column(key, Kind.BYTES).values
    _, firsts = code_spans(examples.buffer, spans)
    texts = map(decode_text, copy_bytes(examples.buffer, spans[firsts]))
    return any(text.strip() and label_map.find(text) is None for text in texts)


# Image format and size


def write_format(is_wrong: Callable[[ImageFacts], bool], record: EditedRecord) -> Iterator[Finding]:
    """Replace a wrong format with the format of the image bytes."""
    key, header = record.field_mapping.format, record.header
    if key and header is not None and is_wrong(record.facts):
        yield from record.put(key, [header.format])


def write_size(is_wrong: Callable[[ImageFacts], object], record: EditedRecord) -> Iterator[Finding]:
    """Replace a wrong size with the size in the image header."""
    mapping, header, facts = record.field_mapping, record.header, record.facts
    is_numerical = record.example.kind(keys.MASK) is Kind.FLOAT
    masks = record.example.value_count(keys.MASK) if is_numerical else 0
    area = (facts.declared_height or 0) * (facts.declared_width or 0)
    if header is None or not is_wrong(facts) or (masks and masks == len(record.boxes) * area):
        return  # the declared size is the shape of these numeric masks
    for key, declared, size in (
        (mapping.height, facts.declared_height, header.height),
        (mapping.width, facts.declared_width, header.width),
    ):
        if key and record.example.value_count(key) and declared != size:
            yield from record.put(key, [size])


# Source ids


def add_source_id(record: EditedRecord, *, is_blank: bool) -> Iterator[Finding]:
    """Add a unique number as source id to an image without one, or with a blank one."""
    key = record.field_mapping.source_id
    if key is None or record.example.kind(key) not in (None, Kind.BYTES):
        return
    text = record.detections.source_ids[record.row]
    if (text is not None and not text.strip()) if is_blank else not record.example.value_count(key):
        yield from record.put(key, [record.source_ids.next()])


def number_source_id(record: EditedRecord, *, is_number: bool) -> Iterator[Finding]:
    """Replace a source id that is a text or too large a number with a valid number."""
    key = record.field_mapping.source_id
    text = record.detections.source_ids[record.row]
    if key is None or not text or not text.strip() or record.source_ids.keeps(text):
        return
    if (parse_source_id(text) is not None) is not is_number:
        return
    former = former_source_id(text, record.detections.filenames[record.row])
    extra = add_image_attributes("".join(record.texts(keys.EXTRA_ATTRIBUTES)).encode(), former)
    yield from record.put(key, [record.source_ids.next()])
    if former and extra is not None:
        record.new[keys.EXTRA_ATTRIBUTES] = bytes_feature([extra])
        message = f"{keys.EXTRA_ATTRIBUTES}: keeps the source id {excerpt(text)}"
        yield make_change(message, keys.EXTRA_ATTRIBUTES, None, text)


FIXES: tuple[tuple[str, Fix], ...] = (
    ("EXA003", add_missing),
    ("BOX004", clip_rounding),
    ("LAB008", correct_ids),
    ("LAB020", add_ids),
    ("IMG004", partial(write_format, lambda facts: facts.has_wrong_format)),
    ("IMG014", partial(write_format, lambda facts: facts.is_declared_raw)),
    (  # the boxes must not depend on the size
        "IMG006",
        partial(write_size, lambda facts: facts.wrong_size_keys and facts.is_size_repairable),
    ),
    ("IMG012", partial(write_size, lambda facts: facts.invalid_sizes)),
    ("NAM007", partial(add_source_id, is_blank=False)),
    ("NAM012", partial(add_source_id, is_blank=True)),
    ("NAM010", partial(number_source_id, is_number=False)),
    ("NAM011", partial(number_source_id, is_number=True)),
)
"""The fix of each rule, by code; if two fixes set the same feature, the first one applies."""
