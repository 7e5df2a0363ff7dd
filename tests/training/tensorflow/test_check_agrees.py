"""The checker against TensorFlow: a record parses for us exactly when ``tf.io.parse_example`` does.

A record holds what protobuf says, and TensorFlow's parser is not protobuf. There are four
differences, each with a rule: a SequenceExample parses as an Example without features (EXA002); of
a key that comes more than once an empty feature hides none before it (EXA007); what the two read
otherwise is EXA012, whether TensorFlow stops at it or not; what protobuf refuses is EXA001, though
TensorFlow cuts what is too long. What a profile demands beyond TensorFlow is left out.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.findings.findings import Findings
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import READY, Profile, profile_of_features
from tfod.check.records.batch import Batch
from tfod.check.records.images import Decoder, EncodedImages
from tfod.check.rules.registry import run_rules
from tfod.detection.detections import Detections
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.example.columns import ExampleBatch
from tfod.example.example import encode_example
from tfod.example.spelling import Form, spelling_of
from tfod.example.wire import Kind, encode_varint
from tfod.kernel.reference import MalformedError
from tfod.tensorflow import feature_description
from tfod.tfrecord.reader import RecordBatch

from tests.conftest import examples
from tests.files import readable_records
from tests.mutants import sound
from tests.mutants.sound import entry, field

REFUSALS = frozenset(("EXA001", "EXA003", "EXA004", "EXA005"))
"""Rules that say that TensorFlow does not parse the record."""
DELIBERATE = frozenset(("EXA002", "EXA007", "EXA012"))


def parses(payloads: Sequence[bytes], description: Mapping[str, Any]) -> bool:
    """TensorFlow's verdict. It may trip over the records' bytes in its own message."""
    try:
        tf.io.parse_example(payloads, description)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        return False
    return True


def codes_of(payloads: Sequence[bytes], profile: Profile) -> list[set[str]]:
    """The rules that fire for each record."""
    lengths = np.array([*map(len, payloads)], np.int64)
    starts = np.cumsum(lengths) - lengths
    records = RecordBatch("s", 0, 12, bytearray(b"".join(payloads)), starts, lengths)
    detections = Detections(ExampleBatch.of(records), profile.field_mapping)
    images = EncodedImages.of(detections, Decoder(0))
    findings = Findings(1 << 20)
    batch = Batch(detections, images, profile)
    run_rules(batch, Policy(profile.severities).codes, findings, of_dataset=False)
    found: list[set[str]] = [set() for _ in payloads]
    for one in findings.all():
        found[one.record or 0].add(one.code)
    return found


def as_tensorflow_has_it(profile: Profile) -> Profile:
    """The profile without what it demands beyond TensorFlow."""
    features = {
        key: dataclasses.replace(spec, demanded=False) for key, spec in profile.features.items()
    }
    return dataclasses.replace(profile, features=features)


def assert_agreement(payloads: Sequence[bytes], name: str, of_each: int | None = None) -> None:
    """TensorFlow takes all together that the checker takes, and refuses the others one by one.

    ``of_each``: so many at most of those that are refused for the same set of codes.
    """
    taken = []
    tried: Counter[frozenset[str]] = Counter()
    for payload, codes in zip(payloads, codes_of(payloads, PROFILES[name]), strict=True):
        if codes & DELIBERATE or ("EXA001" in codes and is_no_plain_message(payload)):
            continue
        if codes & REFUSALS:
            tried[frozenset(codes)] += 1
            if of_each is None or tried[frozenset(codes)] <= of_each:
                assert not parses([payload], DESCRIPTIONS[name]), (codes, payload)
        else:
            taken.append(payload)
    if taken and not parses(taken, DESCRIPTIONS[name]):
        assert [one for one in taken if not parses([one], DESCRIPTIONS[name])] == []


def is_no_plain_message(payload: bytes) -> bool:
    """Whether protobuf refuses the bytes, or finds fields in them that it does not know."""
    try:
        unusual = spelling_of(payload, 0, len(payload))
        tf.train.Example.FromString(payload)
    except (DecodeError, MalformedError):
        return True
    return unusual is not None and unusual[0] is Form.NOT_AN_EXAMPLE


ODD: FeatureDescription = {
    "three": FeatureSpec(Kind.FLOAT, (3,), (0.0, 0.5, 1.0)),
    "two": FeatureSpec(Kind.INT64, (2,)),
    "texts": FeatureSpec(Kind.BYTES, (2,), (b"a", b"b")),
    "image/object/difficult": FeatureSpec(Kind.INT64),
    "image/object/mask": FeatureSpec(Kind.FLOAT),
    "many": FeatureSpec(Kind.FLOAT),
    "names": FeatureSpec(Kind.BYTES),
}
PROFILES = {
    **{name: as_tensorflow_has_it(one) for name, one in READY.items()},
    "odd": profile_of_features("odd", "", ODD),
}
DESCRIPTIONS = {
    name: feature_description(
        {key: spec for key, spec in one.expected.items() if not spec.also or key in one.features}
    )
    for name, one in PROFILES.items()
}
"""With what the checker reads of other keys; TensorFlow cannot be asked for one of two dtypes."""


# Records of files


def records_of(path: Path) -> Iterator[bytes]:
    """The payloads that can be reached, damaged framing or not."""
    try:
        for record in readable_records(str(path)):
            yield bytes(record.payload)
    except OSError:
        return


def payloads_of_mutants(mutants: Path) -> list[bytes]:
    """Every payload of every mutant, once."""
    files = [path for path in sorted(mutants.rglob("*")) if path.is_file()]
    others = (".pbtxt", ".json", ".xml", ".zip")
    found = [one for path in files if path.suffix not in others for one in records_of(path)]
    return list(dict.fromkeys(payload for payload in found if payload))


@pytest.mark.parametrize("of_each", [3, pytest.param(None, marks=pytest.mark.slow)])
def test_on_the_mutants(mutants: Path, of_each: int | None) -> None:
    """Under every profile: the mutant's own is one of many."""
    payloads = payloads_of_mutants(mutants)
    assert len(payloads) > 200
    for name in PROFILES:
        assert_agreement(payloads, name, of_each)


def test_on_real_shards(corpus: Path) -> None:
    shards = [path for path in corpus.rglob("*") if "record" in path.name and path.is_file()]
    payloads = [one for path in shards for one in itertools.islice(records_of(path), 20)]
    assert len(payloads) > 50
    for name in PROFILES:
        assert_agreement(payloads, name)


# Records of any kind


def varint_forms(value: int) -> st.SearchStrategy[bytes]:
    """A number, mostly spelt as short as it can be."""
    short = encode_varint(value)
    longer = short[:-1] + bytes((short[-1] | 0x80, 0x80, 0))
    beyond = encode_varint(value + (1 << 32))
    return st.sampled_from([short] * 40 + [longer, beyond, encode_varint(value + 1)])


@st.composite
def messages(draw: st.DrawFn, tag: int, contents: st.SearchStrategy[bytes]) -> bytes:
    """A field with its length, mostly right."""
    content = draw(contents)
    return bytes((tag,)) + draw(varint_forms(len(content))) + content


texts = st.sampled_from([b"", b"a", b"\xff", b"cat", b"jpeg" * 40])
ints = st.sampled_from([0, 1, 2, 40, 127, 128, 300, (1 << 64) - 1])
oddities = st.one_of(
    st.builds(lambda value: b"\x08" + encode_varint(value), ints),
    st.binary(min_size=4, max_size=4).map(lambda value: b"\x0d" + value),
    messages(0x0A, texts),
    messages(0x0A, st.lists(ints.map(encode_varint), max_size=4).map(b"".join)),
    messages(0x0A, st.sampled_from([0, 4, 8, 12, 3, 5]).map(bytes)),
    st.sampled_from([b"\x12\x01x", b"\x10\x05", b"\x0b", b"\x00", b"\x0a", b"\x80"]),
)
counts = st.sampled_from([1, 1, 1, 0, 2, 3])


def several(one: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return counts.flatmap(lambda count: st.lists(one, min_size=count, max_size=count)).map(b"".join)


BODIES = {
    0x0A: several(messages(0x0A, texts)),
    0x12: st.one_of(
        messages(0x0A, counts.map(lambda count: bytes(4 * count))),
        several(st.just(b"\x0d\0\0\x80\x3f")),
    ),
    0x1A: st.one_of(
        messages(0x0A, several(ints.map(encode_varint))),
        several(ints.map(lambda value: b"\x08" + encode_varint(value))),
    ),
}
right_lists = st.one_of(*(messages(tag, body) for tag, body in BODIES.items()))
odd_lists = st.one_of(
    *(messages(tag, st.lists(oddities, max_size=3).map(b"".join)) for tag in BODIES),
    *(messages(tag, st.tuples(body, oddities).map(b"".join)) for tag, body in BODIES.items()),
    st.just(b"\x22\0"),
)
feature_bytes = st.one_of(
    *[right_lists] * 4, odd_lists, st.just(b""), st.tuples(right_lists, right_lists).map(b"".join)
)


def _entries(keys: list[str]) -> st.SearchStrategy[bytes]:
    key = st.sampled_from([*keys, "image/object/view", "no key of anybody"])
    parts = st.tuples(messages(0x0A, key.map(str.encode)), messages(0x12, feature_bytes))
    content = st.one_of(
        *[parts.map(b"".join)] * 12,
        parts.map(lambda pair: pair[1] + pair[0]),
        parts.map(lambda pair: pair[0]),
        parts.map(lambda pair: pair[0] + pair[0]),
        parts.map(lambda pair: b"".join(pair) + b"\x18\x01"),
    )
    return messages(0x0A, content)


EXTRA_FIELDS = [
    *(b"\x18\x01", b"\x0a\0", b"\x1a\x09x", b"\x00\x01", b"\x0b", b"\x8a\x00\x01x"),
    *(b"\x0d1234", b"\x09\x01", b"\x1a\x01x", b"\xfa\x01\0"),
]
"""What else a record may begin or end with: other fields, fields cut short, groups."""


@st.composite
def odd_payloads(draw: st.DrawFn, profile: Profile) -> bytes:
    """A record that has what the profile requires, and odd entries before and behind that."""
    keys = list(profile.features)
    odd = st.lists(_entries(keys), max_size=2).map(b"".join)
    kept = draw(st.sets(st.sampled_from(keys))) if draw(st.integers(0, 3)) == 0 else keys
    plain = b"".join(entry(key, _right(profile.features[key])) for key in keys if key in kept)
    inside = draw(odd) + plain + draw(odd)
    features = field(1, inside) if draw(st.booleans()) else draw(messages(0x0A, st.just(inside)))
    extra = st.sampled_from([b""] * 12 + EXTRA_FIELDS)
    return draw(extra) + features + draw(extra)


def _right(spec: FeatureSpec) -> bytes:
    """A feature as the description has it."""
    count = 1 if spec.length is None else spec.length
    value: dict[Kind, Any] = {Kind.BYTES: b"x", Kind.INT64: 2, Kind.FLOAT: 0.5}
    return sound.encoded([value[spec.kind]] * count)


@pytest.mark.parametrize("name", PROFILES)
@examples(60)
@given(data=st.data())
def test_on_odd_spellings(name: str, data: st.DataObject) -> None:
    assert_agreement([data.draw(odd_payloads(PROFILES[name]))], name)


@pytest.mark.parametrize("name", ["tf_detection_api", "cvat", "odd"])
@examples(150)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=3)), max_size=3),
    cut=st.integers(0, 1 << 16),
)
def test_on_changed_bytes(name: str, changes: list[tuple[int, bytes]], cut: int) -> None:
    """Bytes written over, and the record cut, with a checksum that is right again."""
    payload = bytearray(_SMALL[name])
    for place, new in changes:
        at = place % len(payload)
        payload[at : at + len(new)] = new
    end = len(payload) if cut & 3 else cut % (len(payload) + 1)
    if end:
        assert_agreement([bytes(payload[:end])], name)


def test_on_a_flipped_bit_of_each_byte() -> None:
    payload = _SMALL["tf_detection_api"]
    changed = [sound.flip(payload, place, place % 8) for place in range(len(payload))]
    assert_agreement(changed, "tf_detection_api")


_SMALL = {
    name: encode_example({key: _right(spec) for key, spec in profile.features.items()})
    for name, profile in PROFILES.items()
}
