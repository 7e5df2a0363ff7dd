"""What is fixed of a record: what the image itself says, rounding, ids and source ids.

A fix looks at the record as it was read, sets features and yields what it did. What it cannot be
certain of it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from tfod.check.findings.finding import JsonValue
from tfod.check.profiles.profile import BOX_KEY
from tfod.check.records.column_order import ROUNDING, TOLERATED
from tfod.check.records.images import ImageFacts
from tfod.detection import keys
from tfod.detection.attributes import with_image_attributes
from tfod.detection.columns import lenient_text
from tfod.detection.images.image import QUARTER
from tfod.detection.images.source_ids import former_source_id, number_of
from tfod.detection.labels.label_map import LabelMap
from tfod.example.columns import ExampleBatch, bytes_of
from tfod.example.example import bytes_feature, float_feature, int64_feature, text_feature
from tfod.example.wire import Kind
from tfod.kernel import code_spans
from tfod.shards.repair.record import Change, EditedRecord, decoded
from tfod.tfrecord.reader import RecordBatch

Fix: TypeAlias = "Callable[[EditedRecord], Iterator[Change]]"
_SHOWN = 80


def fix_record(record: EditedRecord, codes: frozenset[str]) -> list[Change]:
    """Fix what rules of these codes find in a record; return what was done."""
    fixes = ((code, fix) for code, fix in FIXES if code in codes)
    return [replace(change, code=code) for code, fix in fixes for change in fix(record)]


def add_missing(record: EditedRecord) -> Iterator[Change]:
    """A required feature about the image, which the image tells, or its source id."""
    mapping, header = record.field_mapping, record.header
    for key, spec in record.profile.features.items():
        if not spec.required or record.kind(key) is not None:
            continue
        if key == mapping.source_id:
            yield from _put(record, key, [record.source_ids.next()])
        elif header is not None and key == mapping.format:
            yield from _put(record, key, [header.format])
        elif header is not None and key in (mapping.height, mapping.width):
            yield from _put(record, key, [header.height if key == mapping.height else header.width])


def clip_rounding(record: EditedRecord) -> Iterator[Change]:
    """A box that reaches up to a pixel beyond the image, and is none the smaller inside."""
    before, header = record.boxes, record.header
    height = header.height if header else record.facts.declared_height
    width = header.width if header else record.facts.declared_width
    if not len(before) or not height or not width or min(height, width) < 1:
        return
    outside, after = np.maximum(before - 1, -before), np.clip(before, 0, 1)
    pixel = np.minimum(np.tile((1 / width, 1 / height), 2), TOLERATED - 1)
    mask = (outside > ROUNDING).any(axis=1) & (outside <= pixel + ROUNDING).all(axis=1)
    mask &= (after[:, :2] < after[:, 2:]).all(axis=1)
    if not mask.any():
        return
    for side, key in enumerate(record.field_mapping.box):
        record.set(key, float_feature(np.where(mask, after[:, side], before[:, side])))
    for number in np.flatnonzero(mask).tolist():
        old, new = (boxes[number].tolist() for boxes in (before, after))
        said = " became ".join(", ".join(f"{side:.6g}" for side in box) for box in (old, new))
        what = f"box {number} clipped to the image: {said}"
        yield Change(what, BOX_KEY, {"object": number, "box": old}, {"object": number, "box": new})


# Ids by the label map: the text decides


def follow_the_text(record: EditedRecord) -> Iterator[Change]:
    """An id other than that of the text."""
    key, labels = record.field_mapping.class_label, record.ints(record.field_mapping.class_label)
    texts = decoded(record.values(record.field_mapping.class_text)) or []
    if record.label_map is None or key is None or len(texts) != len(labels):
        return
    items = [record.label_map.find(text) for text in texts]
    new = [
        label if item is None or label in record.label_map.ids_of(text) else item.id
        for text, item, label in zip(texts, items, labels, strict=True)
    ]
    if new != labels and record.is_complete():
        pairs = (f"{old} became {one}" for old, one in zip(labels, new, strict=True) if old != one)
        yield from _put(record, key, new, f"{key}: {', '.join(dict.fromkeys(pairs))}")


def misses_a_class(label_map: LabelMap, records: RecordBatch, key: str) -> bool:
    """Whether records have a class text that is not in the label map."""
    examples = ExampleBatch.of(records)
    spans = examples.column(key, Kind.BYTES).values
    _, firsts = code_spans(examples.buffer, spans)
    texts = map(lenient_text, bytes_of(examples.buffer, spans[firsts]))
    return any(text.strip() and label_map.find(text) is None for text in texts)


def add_ids(record: EditedRecord) -> Iterator[Change]:
    """Ids for texts that the label map has, where no object has one."""
    mapping = record.field_mapping
    texts = decoded(record.values(mapping.class_text))
    if record.label_map is None or mapping.class_label is None or not texts:
        return
    if record.count(mapping.class_label) or record.count(mapping.box[0]) != len(texts):
        return
    ids = [item.id for item in map(record.label_map.find, texts) if item is not None]
    if len(ids) == len(texts) and record.is_complete():
        yield from _put(record, mapping.class_label, ids)


# What is said of the image


def write_format(is_wrong: Callable[[ImageFacts], bool], record: EditedRecord) -> Iterator[Change]:
    """The bytes say what they are, or that they are no pixels, whichever is checked."""
    key, header = record.field_mapping.format, record.header
    if key and header is not None and is_wrong(record.facts):
        yield from _put(record, key, [header.format])


def write_size(record: EditedRecord) -> Iterator[Change]:
    """The image's header says how large it is, unless what is said has a meaning of its own."""
    header, facts = record.header, record.facts
    if header is None or not facts.other_sides:
        return
    exchanged = (facts.declared_height, facts.declared_width) == (header.width, header.height)
    # Boxes far outside may have been divided by the other size: it must stay seen.
    outside = np.maximum(record.boxes - 1, -record.boxes)
    is_far = bool((outside > TOLERATED - 1 + ROUNDING).any())
    if not is_far and not (exchanged and header.orientation >= QUARTER):
        yield from _put_size(record)


def write_positive_size(record: EditedRecord) -> Iterator[Change]:
    """The same for a size that can be none."""
    if record.facts.no_sides:
        yield from _put_size(record)


def _put_size(record: EditedRecord) -> Iterator[Change]:
    mapping, header, facts = record.field_mapping, record.header, record.facts
    masks = record.count(keys.MASK) if record.kind(keys.MASK) is Kind.FLOAT else 0
    area = (facts.declared_height or 0) * (facts.declared_width or 0)
    if header is None or (masks and masks == len(record.boxes) * area):
        return  # masks of numbers are shaped by the size that the record has
    for key, size in ((mapping.height, header.height), (mapping.width, header.width)):
        if key and record.count(key) and record.ints(key) != [size]:
            yield from _put(record, key, [size])


# Source ids


def add_source_id(record: EditedRecord, *, is_blank: bool) -> Iterator[Change]:
    """A number of its own for an image that has no source id, or a blank one."""
    key = record.field_mapping.source_id
    if key is None or record.kind(key) not in (None, Kind.BYTES):
        return
    text = record.text(key)
    if (text is not None and not text.strip()) if is_blank else not record.count(key):
        yield from _put(record, key, [record.source_ids.next()])


def number_source_id(record: EditedRecord, *, is_number: bool) -> Iterator[Change]:
    """A number in place of a text, or of a number that is too large, for receivers of numbers."""
    key = record.field_mapping.source_id
    text = record.text(key)
    if key is None or not text or not text.strip() or record.source_ids.stays(text):
        return
    if (number_of(text) is not None) is not is_number:
        return
    former = former_source_id(text, record.text(record.field_mapping.filename))
    extra = with_image_attributes(b"".join(record.values(keys.EXTRA_ATTRIBUTES)), former)
    yield from _put(record, key, [record.source_ids.next()])
    if former and extra is not None:
        record.set(keys.EXTRA_ATTRIBUTES, bytes_feature([extra]))
        what = f"{keys.EXTRA_ATTRIBUTES}: keeps the source id {text!r}"
        yield Change(what, keys.EXTRA_ATTRIBUTES, after=text)


def _put(
    record: EditedRecord, key: str, values: Sequence[int] | Sequence[str], what: str = ""
) -> Iterator[Change]:
    """Replace or add a feature, unless another fix has already done so."""
    before: list[JsonValue] = [
        *record.ints(key),
        *(one[:_SHOWN].decode("utf-8", "replace") for one in record.values(key)),
    ]
    texts = [one for one in values if isinstance(one, str)]
    numbers = [one for one in values if isinstance(one, int)]
    if record.set(key, text_feature(texts) if texts else int64_feature(numbers)):
        old, new = _shown(before), _shown(values)
        yield Change(what or f"{key}: {old!r} became {new!r}", key, old, new)


def _shown(values: Sequence[JsonValue]) -> JsonValue:
    """The values of a feature as JSON, of a long one the beginning."""
    return (values[0] if len(values) == 1 else [*values[:_SHOWN]]) if values else None


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
