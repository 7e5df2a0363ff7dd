"""What is fixed of a record: what the image itself says, rounding, ids and source ids.

A fix looks at the record as it was read, sets features and yields what it did: a finding whose
value is what was there before and after. What it cannot be certain of it leaves alone. What cannot
be read is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from tfod.checker.analysis.column_order import MAX_COORDINATE, ROUNDING_ERROR
from tfod.checker.analysis.encoded_images import ImageFacts
from tfod.checker.finding import Finding, JsonValue
from tfod.checker.profiles.profile import Profile
from tfod.detection import keys
from tfod.detection.attributes import with_image_attributes
from tfod.detection.columns import lenient_text
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import QUARTER, ImageHeader
from tfod.detection.images.source_ids import SourceIdNumbers, former_source_id, number_of
from tfod.detection.labels.label_map import LabelMap
from tfod.example.encoding_issues import EncodingIssue
from tfod.example.example import Example, bytes_feature, float_feature, int64_feature, text_feature
from tfod.example.example_batch import ExampleBatch, bytes_of
from tfod.example.wire import Kind
from tfod.kernel import code_spans
from tfod.shards.rewrite import rewrite_example
from tfod.sources.layouts import BOX_KEY
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.reader import RecordBatch

Fix: TypeAlias = "Callable[[EditedRecord], Iterator[Finding]]"
_SHOWN = 80
_CODE_OF_DAMAGE = {
    DamageKind.LENGTH_CRC: "TFR003",
    DamageKind.DATA_CRC: "TFR004",
    DamageKind.TRUNCATED_RECORD: "TFR005",
    DamageKind.TRUNCATED_HEADER: "TFR006",
    DamageKind.FORGED_LENGTH: "TFR007",
    DamageKind.TRAILING_ZEROS: "TFR008",
    DamageKind.COMPRESSION: "TFR011",
}
INEVITABLE = frozenset(_CODE_OF_DAMAGE.values())
"""What cannot be read cannot be copied: these are repaired whatever is asked for."""
_NO_RECORD = ("TFR006", "TFR008", "TFR011")  # stray bytes, zeros, and what cannot be unpacked


@dataclass
class EditedRecord:
    """One record as it is read, and the features that replace some of it.

    Attributes:
        detections, row: the record is one of these.
        label_map: by which ids are corrected; None where there is none.
        is_complete: whether that has all classes of the shards it goes with.
        source_ids: gives numbers to images that have no source id, or none that may stay.
        new: the features that replace others, or are added, by key.
    """

    detections: Detections
    row: int
    profile: Profile
    label_map: LabelMap | None
    is_complete: Callable[[], bool]
    source_ids: SourceIdNumbers
    new: dict[str, bytes] = field(default_factory=dict)

    def fix(self, codes: Set[str]) -> list[Finding]:
        """Fix what rules of these codes find; return what was done."""
        fixes = ((code, fix) for code, fix in FIXES if code in codes)
        return [change._replace(code=code) for code, fix in fixes for change in fix(self)]

    def payload(self) -> bytes:
        """The record as it is now; what was not changed keeps its bytes."""
        return rewrite_example(self.example, self.new)

    def put(
        self, key: str, values: Sequence[int] | Sequence[str], what: str = ""
    ) -> Iterator[Finding]:
        """Replace or add a feature, unless another fix has already done so."""
        if key in self.new:
            return
        columns = self.detections.examples
        before: list[JsonValue] = [
            *columns.column(key, Kind.INT64)[self.row].tolist(),
            *(one[:_SHOWN] for one in self.texts(key)),
        ]
        texts = [one for one in values if isinstance(one, str)]
        numbers = [one for one in values if isinstance(one, int)]
        self.new[key] = text_feature(texts) if texts else int64_feature(numbers)
        old, new = _shown(before), _shown(values)
        yield changed(what or f"{key}: {old!r:.81} became {new!r:.81}", key, old, new)

    # What was read; of features of another kind than is meant, nothing

    @property
    def field_mapping(self) -> FieldMapping:
        """Which key holds what."""
        return self.profile.field_mapping

    @cached_property
    def example(self) -> Example:
        """The record by itself."""
        return Example(self.detections.examples, self.row)

    def texts(self, key: str | None) -> list[str]:
        """The texts of a feature."""
        column = self.detections.examples.column(key or "", Kind.BYTES)
        return self.detections.texts_in(column, self.row)

    @cached_property
    def labels(self) -> list[int]:
        """The ids of the classes of objects."""
        labels: list[int] = self.detections.column(keys.CLASS_LABEL, Kind.INT64)[self.row].tolist()
        return labels

    @property
    def header(self) -> ImageHeader | None:
        """What the header of the only image says, where it says a size."""
        found = self.detections.headers[self.row]
        return found if found is not None and found.height and found.width else None

    @cached_property
    def facts(self) -> ImageFacts:
        """The image, and what the record says of it."""
        return ImageFacts(
            size=-1 if self.header else 0,
            header=self.header,
            declared_format=self.detections.formats[self.row],
            declared_height=self.detections.heights[self.row],
            declared_width=self.detections.widths[self.row],
        )

    @cached_property
    def boxes(self) -> np.ndarray:
        """Normalized boxes, float64 of shape (n, 4); none where the four lists do not go together.

        They may look like pixels, or not be finite. None either where they are meant to be pixels.
        """
        if self.field_mapping.has_pixel_boxes:
            return np.zeros((0, 4))
        first, last = self.detections.box_splits[self.row : self.row + 2].tolist()
        return self.detections.boxes[first:last].astype(np.float64)


def changed(what: str, feature: str, before: JsonValue, after: JsonValue) -> Finding:
    """What was done to a feature, or to an object."""
    value = {"before": before, "after": after, "record_dropped": False}
    return Finding(what, feature, value)


def _shown(values: Sequence[JsonValue]) -> JsonValue:
    """The values of a feature as JSON, of a long one the beginning."""
    return (values[0] if len(values) == 1 else [*values[:_SHOWN]]) if values else None


# What cannot be read


def dropped(what: str, size: int | None, code: str) -> Finding:
    """Bytes that are not in the result; of a rule's code it shows whether they were a record."""
    before: JsonValue = None if size is None else {"bytes": size}
    value = {"before": before, "after": None, "record_dropped": code not in _NO_RECORD}
    return Finding(what, value=value, code=code)


def dropped_damage(damage: Damage) -> Finding:
    """What is damaged in a shard.

    Raises:
        ShardError: it is a record that is larger than may be held.
    """
    if damage.kind is DamageKind.OVERSIZE:
        raise replace(damage, fix="raise TFOD_MAX_RECORD_BYTES").to_error()
    what = "record dropped" if damage.kind is DamageKind.DATA_CRC else "dropped"
    return dropped(f"{what}: {damage.cause}", damage.skipped or None, _CODE_OF_DAMAGE[damage.kind])


def dropped_record(examples: ExampleBatch, row: int, codes: Set[str]) -> Finding | None:
    """A record that is no Example; None where it is one, or stays all the same."""
    length = examples.records.record(row).length
    refused = examples.refused.get(row)
    if not length and "TFR009" in codes:
        return dropped("record dropped: it had no byte", 0, "TFR009")
    if refused is None or refused.form is EncodingIssue.SEQUENCE_EXAMPLE or "EXA001" not in codes:
        return None
    what = f"record dropped: it was no tf.train.Example ({refused.reason})"
    return dropped(what, length, "EXA001")


# What is missing, and rounding


def add_missing(record: EditedRecord) -> Iterator[Finding]:
    """A required feature about the image, which the image tells, or its source id."""
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
    """A box that reaches up to a pixel beyond the image, and is none the smaller inside."""
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
        said = " became ".join(", ".join(f"{side:.6g}" for side in box) for box in (old, new))
        what = f"box {number} clipped to the image: {said}"
        yield changed(what, BOX_KEY, {"object": number, "box": old}, {"object": number, "box": new})


# Ids by the label map: the text decides


def follow_the_text(record: EditedRecord) -> Iterator[Finding]:
    """An id other than that of the text."""
    key, texts = record.field_mapping.class_label, record.texts(record.field_mapping.class_text)
    labels = record.labels
    if record.label_map is None or key is None or len(texts) != len(labels):
        return
    items = [record.label_map.find(text) for text in texts]
    new = [
        label if item is None or label in record.label_map.ids_of(text) else item.id
        for text, item, label in zip(texts, items, labels, strict=True)
    ]
    if new != labels and record.is_complete():
        pairs = (f"{old} became {one}" for old, one in zip(labels, new, strict=True) if old != one)
        yield from record.put(key, new, f"{key}: {', '.join(dict.fromkeys(pairs))}")


def add_ids(record: EditedRecord) -> Iterator[Finding]:
    """Ids for texts that the label map has, where no object has one."""
    mapping = record.field_mapping
    texts = record.texts(mapping.class_text)
    if record.label_map is None or mapping.class_label is None or not (texts and mapping.box):
        return
    if record.example.value_count(mapping.class_label) or record.example.value_count(
        mapping.box[0]
    ) != len(texts):
        return
    ids = [item.id for item in map(record.label_map.find, texts) if item is not None]
    if len(ids) == len(texts) and record.is_complete():
        yield from record.put(mapping.class_label, ids)


def misses_a_class(label_map: LabelMap, records: RecordBatch, key: str) -> bool:
    """Whether records have a class text that is not in the label map."""
    examples = ExampleBatch.of(records)
    spans = examples.column(key, Kind.BYTES).values
    _, firsts = code_spans(examples.buffer, spans)
    texts = map(lenient_text, bytes_of(examples.buffer, spans[firsts]))
    return any(text.strip() and label_map.find(text) is None for text in texts)


# What is said of the image


def write_format(is_wrong: Callable[[ImageFacts], bool], record: EditedRecord) -> Iterator[Finding]:
    """The bytes say what they are, or that they are no pixels, whichever is checked."""
    key, header = record.field_mapping.format, record.header
    if key and header is not None and is_wrong(record.facts):
        yield from record.put(key, [header.format])


def write_size(record: EditedRecord) -> Iterator[Finding]:
    """The image's header says how large it is, unless what is said has a meaning of its own."""
    header, facts = record.header, record.facts
    if header is None or not facts.other_sides:
        return
    exchanged = (facts.declared_height, facts.declared_width) == (header.width, header.height)
    # Boxes far outside may have been divided by the other size: it must stay seen.
    outside = np.maximum(record.boxes - 1, -record.boxes)
    is_far = bool((outside > MAX_COORDINATE - 1 + ROUNDING_ERROR).any())
    if not is_far and not (exchanged and header.orientation >= QUARTER):
        yield from _put_size(record)


def write_positive_size(record: EditedRecord) -> Iterator[Finding]:
    """The same for a size that can be none."""
    if record.facts.no_sides:
        yield from _put_size(record)


def _put_size(record: EditedRecord) -> Iterator[Finding]:
    mapping, header, facts = record.field_mapping, record.header, record.facts
    masks = (
        record.example.value_count(keys.MASK) if record.example.kind(keys.MASK) is Kind.FLOAT else 0
    )
    area = (facts.declared_height or 0) * (facts.declared_width or 0)
    if header is None or (masks and masks == len(record.boxes) * area):
        return  # masks of numbers are shaped by the size that the record has
    for key, said, size in (
        (mapping.height, facts.declared_height, header.height),
        (mapping.width, facts.declared_width, header.width),
    ):
        if key and record.example.value_count(key) and said != size:
            yield from record.put(key, [size])


# Source ids


def add_source_id(record: EditedRecord, *, is_blank: bool) -> Iterator[Finding]:
    """A number of its own for an image that has no source id, or a blank one."""
    key = record.field_mapping.source_id
    if key is None or record.example.kind(key) not in (None, Kind.BYTES):
        return
    text = record.detections.source_ids[record.row]
    if (text is not None and not text.strip()) if is_blank else not record.example.value_count(key):
        yield from record.put(key, [record.source_ids.next()])


def number_source_id(record: EditedRecord, *, is_number: bool) -> Iterator[Finding]:
    """A number in place of a text, or of a number that is too large, for receivers of numbers."""
    key = record.field_mapping.source_id
    text = record.detections.source_ids[record.row]
    if key is None or not text or not text.strip() or record.source_ids.stays(text):
        return
    if (number_of(text) is not None) is not is_number:
        return
    former = former_source_id(text, record.detections.filenames[record.row])
    extra = with_image_attributes("".join(record.texts(keys.EXTRA_ATTRIBUTES)).encode(), former)
    yield from record.put(key, [record.source_ids.next()])
    if former and extra is not None:
        record.new[keys.EXTRA_ATTRIBUTES] = bytes_feature([extra])
        what = f"{keys.EXTRA_ATTRIBUTES}: keeps the source id {text!r:.81}"
        yield changed(what, keys.EXTRA_ATTRIBUTES, None, text)


FIXES: tuple[tuple[str, Fix], ...] = (
    ("EXA003", add_missing),
    ("BOX004", clip_rounding),
    ("LAB008", follow_the_text),
    ("LAB020", add_ids),
    ("IMG004", partial(write_format, lambda facts: facts.says_another_format)),
    ("IMG014", partial(write_format, lambda facts: facts.says_raw)),
    ("IMG006", write_size),
    ("IMG012", write_positive_size),
    ("NAM007", partial(add_source_id, is_blank=False)),
    ("NAM012", partial(add_source_id, is_blank=True)),
    ("NAM010", partial(number_source_id, is_number=False)),
    ("NAM011", partial(number_source_id, is_number=True)),
)
"""What fixes the findings of each rule; of two that set one feature the first counts."""
