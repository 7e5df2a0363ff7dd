"""Repairs of the record as an Example against its profile: EXA."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfod.detection.schema import FeatureSpec
from tfod.example.example import bytes_feature, float_feature, int64_feature
from tfod.example.wire import Kind
from tfod.shards.repair.changes import Change
from tfod.shards.repair.draft import Draft
from tfod.shards.repair.images import derived, put
from tfod.shards.repair.menders import mends

_NOTHING = {
    Kind.BYTES: bytes_feature(()),
    Kind.FLOAT: float_feature(()),
    Kind.INT64: int64_feature(()),
}
_INT64 = np.iinfo(np.int64)


@mends("EXA007")
def keep_the_last(draft: Draft) -> Iterator[Change]:
    """Of a key that comes twice the last one counts."""
    for key in draft.repeated:
        if draft.kind(key) is not None:
            what = f"{key} came more than once, the last one is kept"
            yield put(draft, "EXA007", key, draft.encoded(key), what)


@mends("EXA006")
def remove_what_holds_nothing(draft: Draft) -> Iterator[Change]:
    """A key without a list is no feature."""
    for key in draft.names():
        if draft.kind(key) is None:
            yield put(draft, "EXA006", key, None, f"{key} removed, it held no list at all")


@mends("EXA004")
def convert_kinds(draft: Draft) -> Iterator[Change]:
    """A feature of another kind, written anew as the profile has it."""
    for key, spec in draft.profile.features.items():
        if draft.kind(key) in (None, spec.kind):
            continue
        feature = derived(draft, key) or _converted(draft, key, spec)
        if feature is not None:
            yield put(draft, "EXA004", key, feature)
        elif not draft.count(key) and not spec.required:
            yield _removed(draft, "EXA004", key)


def _converted(draft: Draft, key: str, spec: FeatureSpec) -> bytes | None:
    """The values as the other kind, if each of them stays what it is."""
    if not draft.count(key):
        return _NOTHING[spec.kind] if spec.length is None else None
    if spec.kind is Kind.INT64 and draft.kind(key) is Kind.FLOAT:
        numbers = draft.floats(key).astype(np.float64)
        exact = np.isfinite(numbers).all() and (numbers == np.round(numbers)).all()
        fits = exact and (np.abs(numbers) < float(_INT64.max)).all()
        return int64_feature([int(number) for number in numbers.tolist()]) if fits else None
    if spec.kind is Kind.FLOAT and draft.kind(key) is Kind.INT64:
        values = draft.ints(key)
        same = all(int(np.float32(value)) == value for value in values)
        return float_feature(values) if same else None
    return None


@mends("EXA005")
def mend_shapes(draft: Draft) -> Iterator[Change]:
    """A fixed-length feature of too many or too few values, where it is known which count."""
    for key, spec in draft.profile.features.items():
        if draft.kind(key) is not spec.kind or spec.length in (None, draft.count(key)):
            continue
        feature = derived(draft, key)
        if feature is None and spec.shape == ():
            feature = _only_value(draft, key)
        if feature is not None:
            yield put(draft, "EXA005", key, feature)
        elif not draft.count(key) and not spec.required:
            yield _removed(draft, "EXA005", key)


def _only_value(draft: Draft, key: str) -> bytes | None:
    """The value that all values of a feature are."""
    if draft.kind(key) is Kind.FLOAT:
        numbers = set(draft.floats(key).tolist())
        return float_feature(list(numbers)) if len(numbers) == 1 else None
    if draft.kind(key) is Kind.INT64:
        whole = set(draft.ints(key))
        return int64_feature(whole) if len(whole) == 1 else None
    texts = set(draft.values(key))
    return bytes_feature(texts) if len(texts) == 1 else None


@mends("EXA003")
def write_missing(draft: Draft) -> Iterator[Change]:
    """A required feature that the record itself tells."""
    for key, spec in draft.profile.features.items():
        if not spec.required or draft.kind(key) is not None:
            continue
        feature = derived(draft, key)
        if feature is not None:
            yield put(draft, "EXA003", key, feature)


def _removed(draft: Draft, code: str, key: str) -> Change:
    return put(draft, code, key, None, f"{key} removed, it held no value and has a default")
