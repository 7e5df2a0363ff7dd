"""Repairs of what a record says about its image: IMG, and the source id of NAM."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from tfod.check.finding import JsonValue
from tfod.check.rules.images import check_format, check_positive_size, check_raw, check_size
from tfod.detection import keys
from tfod.example.example import bytes_feature, int64_feature
from tfod.example.wire import Kind
from tfod.shards.repair.changes import Change
from tfod.shards.repair.draft import Draft
from tfod.shards.repair.menders import mends

_SHOWN = 80


def derived(draft: Draft, key: str) -> bytes | None:
    """A feature about the image as it must be; None where the record does not tell."""
    field_mapping, header = draft.field_mapping, draft.header
    if key == field_mapping.sha256:
        image = draft.image
        return bytes_feature([_digest(image).encode()]) if image else None
    if key == field_mapping.source_id:
        name = draft.text(field_mapping.filename)
        return bytes_feature([name.encode()]) if name and name.strip() else None
    if header is None:
        return None
    if key == field_mapping.format:
        return bytes_feature([header.format.encode()])
    if key == field_mapping.height:
        return int64_feature([header.height])
    return int64_feature([header.width]) if key == field_mapping.width else None


def shown(draft: Draft, key: str) -> JsonValue:
    """The values of a feature as JSON, of a long one the beginning."""
    kind = draft.kind(key)
    values: list[JsonValue]
    if kind is Kind.BYTES:
        values = [value[:_SHOWN].decode("utf-8", "replace") for value in draft.values(key)]
    elif kind is Kind.FLOAT:
        values = [value if value == value else "nan" for value in draft.floats(key).tolist()]
    else:
        values = list(draft.ints(key))
    if not values and kind is None:
        return None
    return values[0] if len(values) == 1 else values[:_SHOWN]


def put(draft: Draft, code: str, key: str, feature: bytes | None, what: str = "") -> Change:
    """Write a feature, and say what became of it."""
    before = shown(draft, key)
    draft.set(key, feature)
    after = shown(draft, key)
    return Change(code, what or f"{key}: {before!r} became {after!r}", key, before, after)


@mends("IMG004")
def write_format(draft: Draft) -> Iterator[Change]:
    """The bytes say what they are."""
    key = draft.field_mapping.format
    if key and any(True for _ in check_format(draft.facts)):
        yield put(draft, "IMG004", key, derived(draft, key))


@mends("IMG014")
def write_format_of_raw(draft: Draft) -> Iterator[Change]:
    """The bytes are no pixels."""
    key = draft.field_mapping.format
    if key and any(True for _ in check_raw(draft.facts)):
        yield put(draft, "IMG014", key, derived(draft, key))


@mends("IMG006")
def write_size(draft: Draft) -> Iterator[Change]:
    """The image's header says how large it is, unless what is said has a meaning of its own."""
    header, facts = draft.header, draft.facts
    if header is None or not any(True for _ in check_size(facts)):
        return
    exchanged = (facts.declared_height, facts.declared_width) == (header.width, header.height)
    if not (exchanged and header.orientation >= 5):
        yield from _put_size(draft, "IMG006")


@mends("IMG012")
def write_positive_size(draft: Draft) -> Iterator[Change]:
    """The same for a size that can be none."""
    if any(True for _ in check_positive_size(draft.facts)):
        yield from _put_size(draft, "IMG012")


def _put_size(draft: Draft, code: str) -> Iterator[Change]:
    if draft.kind(keys.MASK) is Kind.FLOAT and draft.count(keys.MASK) and _masks_fit(draft):
        return
    if draft.size_is_doubtful and draft.reaches_far():
        return  # the size that is said is what the boxes are in doubt for: it must stay seen
    for key in (draft.field_mapping.height, draft.field_mapping.width):
        size = derived(draft, key) if key else None
        if key and size is not None and draft.count(key) and draft.encoded(key) != size:
            yield put(draft, code, key, size)


def _masks_fit(draft: Draft) -> bool:
    """Whether masks of numbers are shaped by the size that the record says."""
    facts, boxes = draft.facts, draft.objects
    count = len(boxes.corners) if boxes is not None else 0
    area = (facts.declared_height or 0) * (facts.declared_width or 0)
    return draft.count(keys.MASK) == count * area


@mends("IMG008")
def write_digest(draft: Draft) -> Iterator[Change]:
    """The digest of the image that is there."""
    key, image = draft.field_mapping.sha256, draft.image
    said = draft.text(key)
    if key and image and said and said != _digest(image):
        yield put(draft, "IMG008", key, derived(draft, key))


@mends("NAM007")
def write_source_id(draft: Draft) -> Iterator[Change]:
    """The OD API's own scripts take the file name for it."""
    key = draft.field_mapping.source_id
    if key is None or (draft.text(key) or "").strip() or draft.count(key) > 1:
        return
    if draft.kind(key) not in (None, Kind.BYTES):
        return
    feature = derived(draft, key)
    if feature is not None:
        yield put(draft, "NAM007", key, feature)


def _digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()
