"""Fixes of a record as an Example against its profile (EXA), of what it says of its image (IMG),
and of its source id (NAM)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tfod.check.rules.images import ImageFacts, check_positive_size, check_size
from tfod.detection import keys
from tfod.detection.attributes import with_image_attributes
from tfod.detection.features.schema import FeatureSpec
from tfod.detection.images.image import QUARTER
from tfod.detection.images.source_ids import former_source_id, number_of
from tfod.example.example import bytes_feature, float_feature, int64_feature
from tfod.example.wire import Kind
from tfod.shards.repair.box_fixes import reaches_far
from tfod.shards.repair.record import FEATURES, Change, EditedRecord

_INT64 = np.iinfo(np.int64)


def keep_the_last(record: EditedRecord) -> Iterator[Change]:
    """Of a key that comes twice the last one counts."""
    for code, key in record.problems or ():
        if code == "EXA007" and record.kind(key) is not None:
            what = f"{key} came more than once, the last one is kept"
            yield record.change(key, record.encoded(key), what)


def remove_empty_features(record: EditedRecord) -> Iterator[Change]:
    """A key without a list is no feature."""
    for key in record.names():
        if record.kind(key) is None:
            yield record.change(key, None, f"{key} removed, it held no list at all")


def convert_dtypes(record: EditedRecord) -> Iterator[Change]:
    """A feature of another dtype, written anew as the profile has it."""
    for key, spec in record.profile.features.items():
        if record.kind(key) not in (None, spec.kind):
            feature = _of_image(record, key) or _converted(record, key, spec)
            yield from _put_or_remove(record, key, spec, feature)


def correct_shapes(record: EditedRecord) -> Iterator[Change]:
    """A fixed-length feature of too many or too few values, where it is known which count."""
    for key, spec in record.profile.features.items():
        if record.kind(key) is spec.kind and spec.length not in (None, record.count(key)):
            feature = _of_image(record, key)
            if feature is None and spec.shape == ():
                feature = _only_value(record, key)
            yield from _put_or_remove(record, key, spec, feature)


def add_missing(record: EditedRecord) -> Iterator[Change]:
    """A required feature that the record itself tells."""
    for key, spec in record.profile.features.items():
        if spec.required and record.kind(key) is None:
            feature = _of_image(record, key)
            if feature is not None:
                yield record.change(key, feature)


def _put_or_remove(
    record: EditedRecord, key: str, spec: FeatureSpec, feature: bytes | None
) -> Iterator[Change]:
    if feature is not None:
        yield record.change(key, feature)
    elif not record.count(key) and not spec.required:
        yield record.change(key, None, f"{key} removed, it held no value and has a default")


def _of_image(record: EditedRecord, key: str) -> bytes | None:
    """A feature about the image as it must be; None where the record does not tell."""
    field_mapping, header = record.field_mapping, record.header
    if key == field_mapping.sha256:
        image = record.image
        return bytes_feature([_digest(image).encode()]) if image else None
    if key == field_mapping.source_id:
        numbers = [str(one) for one in record.ints(key)] or [record.source_ids.next()]
        return bytes_feature([numbers[0].encode()])
    if header is None:
        return None
    if key == field_mapping.format:
        return bytes_feature([header.format.encode()])
    if key == field_mapping.height:
        return int64_feature([header.height])
    return int64_feature([header.width]) if key == field_mapping.width else None


def _converted(record: EditedRecord, key: str, spec: FeatureSpec) -> bytes | None:
    """The values as the other dtype, if each of them stays what it is."""
    if not record.count(key):
        return FEATURES[spec.kind](()) if spec.length is None else None
    if spec.kind is Kind.INT64 and record.kind(key) is Kind.FLOAT:
        numbers = record.floats(key).astype(np.float64)
        exact = np.isfinite(numbers).all() and (numbers == np.round(numbers)).all()
        fits = exact and (np.abs(numbers) < float(_INT64.max)).all()
        return int64_feature([int(number) for number in numbers.tolist()]) if fits else None
    if spec.kind is Kind.FLOAT and record.kind(key) is Kind.INT64:
        values = record.ints(key)
        same = all(int(np.float32(value)) == value for value in values)
        return float_feature(values) if same else None
    return None


def _only_value(record: EditedRecord, key: str) -> bytes | None:
    found = {*record.floats(key).tolist(), *record.ints(key), *record.values(key)}
    kind = record.kind(key)
    return FEATURES[kind](list(found)) if kind and len(found) == 1 else None


# What is said of the image


def write_format(
    check: Callable[[ImageFacts], Iterable[object]], record: EditedRecord
) -> Iterator[Change]:
    """The bytes say what they are, or that they are no pixels, whichever is checked."""
    key = record.field_mapping.format
    if key and any(True for _ in check(record.facts)):
        yield record.change(key, _of_image(record, key))


def write_size(record: EditedRecord) -> Iterator[Change]:
    """The image's header says how large it is, unless what is said has a meaning of its own."""
    header, facts = record.header, record.facts
    if header is None or not any(True for _ in check_size(facts)):
        return
    exchanged = (facts.declared_height, facts.declared_width) == (header.width, header.height)
    if not (exchanged and header.orientation >= QUARTER):
        yield from _put_size(record)


def write_positive_size(record: EditedRecord) -> Iterator[Change]:
    """The same for a size that can be none."""
    if any(True for _ in check_positive_size(record.facts)):
        yield from _put_size(record)


def _put_size(record: EditedRecord) -> Iterator[Change]:
    if record.kind(keys.MASK) is Kind.FLOAT and record.count(keys.MASK):
        count = 0 if record.objects is None else len(record.objects.corners)
        area = (record.facts.declared_height or 0) * (record.facts.declared_width or 0)
        if record.count(keys.MASK) == count * area:
            return  # masks of numbers are shaped by the size that the record has
    if record.size_is_doubtful and reaches_far(record):
        return  # the size is what the boxes are in doubt for: it must stay seen
    for key in (record.field_mapping.height, record.field_mapping.width):
        size = _of_image(record, key) if key else None
        if key and size is not None and record.count(key) and record.encoded(key) != size:
            yield record.change(key, size)


def write_digest(record: EditedRecord) -> Iterator[Change]:
    """The digest of the image that is there."""
    key, image = record.field_mapping.sha256, record.image
    said = record.text(key)
    if key and image and said and said != _digest(image):
        yield record.change(key, _of_image(record, key))


def add_source_id(record: EditedRecord) -> Iterator[Change]:
    """A number of its own for an image that has no source id."""
    key = record.field_mapping.source_id
    if key is not None and not record.count(key) and record.kind(key) in (None, Kind.BYTES):
        yield record.change(key, _of_image(record, key))


def fill_source_id(record: EditedRecord) -> Iterator[Change]:
    """The same where it is empty."""
    key = record.field_mapping.source_id
    text = record.text(key)
    if key is not None and text is not None and not text.strip():
        yield record.change(key, _of_image(record, key))


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
    yield record.change(key, _of_image(record, key))
    if former and extra is not None:
        yield record.change(keys.EXTRA_ATTRIBUTES, bytes_feature([extra]))


def _digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()
