"""Which features records have: judged once for each layout, which most records of a shard share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tfod.check.fast_parsing import respelled
from tfod.check.finding import Problem
from tfod.check.profile import Profile
from tfod.check.role_keys import judged_keys
from tfod.check.rules.example import Feature, Layout
from tfod.check.rules.registry import Rule, judge
from tfod.check.values import value_count
from tfod.detection import keys
from tfod.detection.schema import TF_DETECTION_API, FeatureDescription
from tfod.example.wire import (
    BYTES_TAG,
    FLOAT_TAG,
    GENERAL,
    INT64_TAG,
    Buffer,
    FeatureSpan,
    Kind,
    NotAnExampleError,
    Template,
    find_expected,
    find_features,
    read_varint,
    template_head,
)

Features: TypeAlias = dict[bytes, FeatureSpan]
Said: TypeAlias = Sequence[tuple[Rule, Problem]]
_MOST_LAYOUTS = 1 << 10
_KIND_OF_TAG = {BYTES_TAG: Kind.BYTES, FLOAT_TAG: Kind.FLOAT, INT64_TAG: Kind.INT64}
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
        order: the keys as they are on the wire.
        template: finds them in records that are alike; empty where that is not possible.
    """

    said: Said
    missing: frozenset[str]
    object_lists: Sequence[tuple[str, bytes]]
    counted: Sequence[tuple[bytes, int | None]]
    unreadable: frozenset[bytes]
    keys: frozenset[str]
    order: tuple[bytes, ...]
    template: Template


_READ_ANYWHERE: FeatureDescription = {
    key: replace(spec, default=spec.default or b"")
    for key, spec in TF_DETECTION_API.items()
    if spec.kind is Kind.BYTES and spec.length is not None
}
"""The texts about an image, none of them required."""


class Layouts:
    """The layouts that the records of a shard have come in."""

    def __init__(self, profile: Profile) -> None:
        self._roles = judged_keys(profile.roles)
        # Readers look at these wherever they are: CVAT's layout has no image/format, and an import
        # of it stops at one that is a number.
        read = {key: spec for key, spec in _READ_ANYWHERE.items() if key in self._roles}
        self._expected = {**read, **profile.features}
        self._has_boxes = bool(profile.roles.box)
        self._known: dict[tuple[object, ...], KnownLayout] = {}
        self._last: KnownLayout | None = None

    def take_apart(
        self, buffer: Buffer, start: int, end: int, *, is_usual: bool = True
    ) -> tuple[Buffer, Features, KnownLayout]:
        """Find the features of a record, and look up or judge their layout.

        Args:
            buffer: holds the record.
            start: where its payload begins.
            end: where it ends.
            is_usual: whether to expect the usual spelling; what has it may hold lists that are
                damaged, which only shows when they are read.

        Returns:
            A buffer and the features in it that can be read, and what is known of such records.

        Raises:
            NotAnExampleError: TensorFlow would not take it apart; of a usual spelling never.
        """
        last = self._last
        if last is not None and is_usual:
            spans = find_expected(buffer, start, end, last.template)
            if spans is not None:
                features = dict(zip(last.order, spans, strict=True))
                for key in last.unreadable:
                    del features[key]
                return buffer, features, last
        repeated: Sequence[bytes] = ()
        found = _usual_features(buffer, start, end) if is_usual else None
        if found is not None:
            features = found
        else:
            buffer, features, repeated = respelled(buffer, start, end, self._expected)
        order = tuple(features)
        tags = tuple(tag for tag, _, _ in features.values())
        known = self._known.get((order, tags))
        if known is None or repeated:
            known = self._judge(features, repeated)
            if not repeated:
                if len(self._known) >= _MOST_LAYOUTS:
                    self._known.clear()
                self._known[order, tags] = known
        if found is not None and known.template:
            self._last = known
        readable = {key: span for key, span in features.items() if key not in known.unreadable}
        return buffer, readable, known

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

    def _judge(self, features: Features, repeated: Sequence[bytes]) -> KnownLayout:
        listed = []
        unreadable = set()
        for key, (tag, _, _) in features.items():
            kind = _KIND_OF_TAG.get(tag)
            spec = self._expected.get(_text(key))
            # How many values there are is judged record by record.
            count = 1 if spec is None or spec.length is None else spec.length
            listed.append(Feature(_text(key), kind, count))
            if kind is None or (spec is not None and spec.kind is not kind):
                unreadable.add(key)
        layout = Layout(listed, self._expected, [_text(key) for key in repeated])
        there = {feature.key for feature in listed if feature.kind is not None}
        readable = {_text(key): key for key in features if key not in unreadable}
        heads = [(template_head(key), tag) for key, (tag, _, _) in features.items()]
        object_lists = {
            key: raw
            for key, raw in readable.items()
            # Masks as numbers are pixels, not one value an object.
            if key in _OBJECT_LISTS and not (key == keys.MASK and features[raw][0] == FLOAT_TAG)
        }
        if not self._has_boxes:
            object_lists = {}
        return KnownLayout(
            said=list(judge(layout)),
            missing=frozenset(
                key for key, spec in self._expected.items() if spec.required and key not in there
            ),
            object_lists=list(object_lists.items()),
            counted=[
                (raw, self._expected[key].length)
                for key, raw in readable.items()
                if key in self._expected and key not in self._roles and key not in object_lists
            ],
            unreadable=frozenset(unreadable),
            keys=frozenset(feature.key for feature in listed),
            order=tuple(features),
            template=[(head, tag) for head, tag in heads if head is not None]
            if all(head is not None for head, _ in heads)
            else (),
        )


def _usual_features(buffer: Buffer, start: int, end: int) -> Features | None:
    """The features of an Example that every writer would spell so; None for any other."""
    try:
        if buffer[start] != 0x0A or sum(read_varint(buffer, start + 1)) != end:
            return None
        features, entries = find_features(buffer, start, end)
    except (NotAnExampleError, IndexError):
        return None
    usual = entries == len(features) and all(tag != GENERAL for tag, _, _ in features.values())
    return features if usual else None


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")
