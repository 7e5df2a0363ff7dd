"""Which features records have: judged once for each layout, which most records of a shard share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tfod import keys
from tfod.example import bytes_feature, encode_example, float_feature, int64_feature
from tfod.wire import (
    BYTES_TAG,
    FLOAT_TAG,
    GENERAL,
    INT64_TAG,
    Buffer,
    FeatureSpan,
    Kind,
    decode_floats,
    decode_ints,
    decode_spans,
    find_features,
    find_list,
)

from tfod_validator.finding import Problem
from tfod_validator.profile import Profile
from tfod_validator.rules.example import Feature, Layout
from tfod_validator.rules.registry import Rule, judge
from tfod_validator.values import value_count

Features: TypeAlias = dict[bytes, FeatureSpan]
Said: TypeAlias = Sequence[tuple[Rule, Problem]]
_MOST_LAYOUTS = 1 << 10
_KIND_OF_TAG = {BYTES_TAG: Kind.BYTES, FLOAT_TAG: Kind.FLOAT, INT64_TAG: Kind.INT64}
_NO_LIST = -1
"""In place of a tag: a feature without any list."""
_OBJECT_LISTS = frozenset([*(one.key for one in keys.OBJECT_ATTRIBUTES), keys.MASK])


@dataclass(frozen=True)
class KnownLayout:
    """What holds for every record of one layout.

    Attributes:
        said: what is wrong with it, numbers of values apart.
        missing: required features that are not there.
        object_lists: features besides boxes and classes that hold one value an object.
        counted: further features of the profile, with how many values each must have.
        unreadable: keys of features of another kind than the profile says.
        keys: all keys.
    """

    said: Said
    missing: frozenset[str]
    object_lists: Sequence[tuple[str, bytes]]
    counted: Sequence[tuple[bytes, int | None]]
    unreadable: frozenset[bytes]
    keys: frozenset[str]


class RecordFeatures(NamedTuple):
    """The features of one record that can be read, and what is known of such records."""

    buffer: Buffer
    features: Features
    layout: KnownLayout


class Layouts:
    """The layouts that the records of a shard have come in."""

    def __init__(self, profile: Profile) -> None:
        self._expected = profile.features
        self._roles = profile.roles.all_keys
        self._known: dict[tuple[object, ...], KnownLayout] = {}

    def of(self, buffer: Buffer, features: Features, repeated: Sequence[bytes]) -> RecordFeatures:
        """Look up, or judge, the layout of a record.

        Args:
            buffer: holds the record.
            features: as :func:`tfod.wire.find_features` found them.
            repeated: keys that come more than once.

        Raises:
            NotAnExampleError: a feature cannot be taken apart.
        """
        signature = (*features, *[span[0] for span in features.values()])
        known = self._known.get(signature)
        if known is not None and not repeated:
            if known.unreadable:
                features = {k: span for k, span in features.items() if k not in known.unreadable}
            return RecordFeatures(buffer, features, known)
        if GENERAL in signature:
            buffer, features = respelled(buffer, features)
        readable = self._readable(features)
        known = self._judge(features, readable, repeated)
        if GENERAL not in signature and not repeated:
            if len(self._known) >= _MOST_LAYOUTS:
                self._known.clear()
            self._known[signature] = known
        return RecordFeatures(buffer, readable, known)

    def shape_problems(self, buffer: Buffer, features: Features) -> Said:
        """What is wrong with the numbers of values of a record's fixed-length features."""
        layout = Layout(
            [
                Feature(_text(key), _KIND_OF_TAG[span[0]], value_count(buffer, span))
                for key, span in features.items()
                if _text(key) in self._expected
            ],
            {key: self._expected[key] for key in map(_text, features) if key in self._expected},
        )
        return list(judge(layout))

    def _readable(self, features: Features) -> Features:
        """The features of the kind that the profile says, or that it does not know."""
        found = {}
        for key, span in features.items():
            kind = _KIND_OF_TAG.get(span[0])
            spec = self._expected.get(_text(key))
            if kind is not None and (spec is None or spec.kind is kind):
                found[key] = span
        return found

    def _judge(
        self, features: Features, readable: Features, repeated: Sequence[bytes]
    ) -> KnownLayout:
        listed = []
        for key, (tag, _, _) in features.items():
            spec = self._expected.get(_text(key))
            # How many values there are is judged record by record.
            count = 1 if spec is None or spec.length is None else spec.length
            listed.append(Feature(_text(key), _KIND_OF_TAG.get(tag), count))
        layout = Layout(listed, self._expected, [_text(key) for key in repeated])
        there = {feature.key for feature in listed if feature.kind is not None}
        known = {_text(key): key for key in readable}
        object_lists = [(key, raw) for key, raw in known.items() if key in _OBJECT_LISTS]
        if keys.MASK in known and readable[known[keys.MASK]][0] == FLOAT_TAG:
            object_lists.remove((keys.MASK, known[keys.MASK]))  # pixels, not one value an object
        return KnownLayout(
            said=list(judge(layout)),
            missing=frozenset(
                key for key, spec in self._expected.items() if spec.required and key not in there
            ),
            object_lists=object_lists,
            counted=[
                (raw, self._expected[key].length)
                for key, raw in known.items()
                if key in self._expected and key not in self._roles and key not in _OBJECT_LISTS
            ],
            unreadable=frozenset(features.keys() - readable.keys()),
            keys=frozenset(feature.key for feature in listed),
        )


def respelled(buffer: Buffer, features: Features) -> tuple[Buffer, Features]:
    """Write odd but legal spellings anew, so that there is one way to read them.

    Features without a list get the tag ``-1``, which is no kind.

    Raises:
        NotAnExampleError: a feature cannot be taken apart.
    """
    encoded: dict[str, bytes] = {}
    names: dict[str, bytes] = {}
    empty: list[bytes] = []
    for place, (key, span) in enumerate(features.items()):
        kind, parts = find_list(buffer, span)
        names[str(place)] = key
        if kind is Kind.FLOAT:
            encoded[str(place)] = float_feature(decode_floats(buffer, parts))
        elif kind is Kind.INT64:
            encoded[str(place)] = int64_feature(decode_ints(buffer, parts))
        elif kind is Kind.BYTES:
            values = [bytes(buffer[start:end]) for start, end in decode_spans(buffer, parts)]
            encoded[str(place)] = bytes_feature(values)
        else:
            empty.append(key)
    payload = encode_example(encoded)
    found, _ = find_features(payload, 0, len(payload))
    again: Features = {names[place.decode()]: span for place, span in found.items()}
    return payload, {**again, **dict.fromkeys(empty, (_NO_LIST, 0, 0))}


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")
