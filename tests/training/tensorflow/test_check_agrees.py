"""The checker against TensorFlow: a record is valid exactly if ``tf.io.parse_example`` parses it.

TensorFlow's parser differs from protobuf's. Each difference has a rule: a SequenceExample parses as
an Example without features (EXA002); if a key is repeated, an empty feature does not hide the one
before it (EXA007); EXA012 is a record that the two read differently. EXA001 is a record that
protobuf refuses, though TensorFlow cuts lengths that are too large.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.decoding import Decoder, Decoding
from tfod.checker.analysis.encoded_images import EncodedImages
from tfod.checker.finding import Findings
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY, Profile, features_to_profile
from tfod.checker.rules.registry import run_rules
from tfod.detection.detections import Detections
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.example.encoding_issues import EncodingIssue, find_encoding_issues
from tfod.example.example import encode_example
from tfod.example.example_batch import ExampleBatch
from tfod.example.wire import Kind
from tfod.kernel.reference import MalformedError
from tfod.tensorflow import feature_description
from tfod.tfrecord.reader import RecordBatch

from tests.conftest import examples
from tests.files import readable_records
from tests.mutants import sound
from tests.mutants.sound import entry, field

REFUSALS = frozenset(("EXA001", "EXA003", "EXA004", "EXA005"))
"""Rules for records that TensorFlow does not parse."""
DELIBERATE = frozenset(("EXA002", "EXA007", "EXA012"))


def parses(payloads: Sequence[bytes], description: Mapping[str, Any]) -> bool:
    """TensorFlow's verdict; its message may not be able to quote the bytes of a record."""
    try:
        tf.io.parse_example(payloads, description)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        return False
    return True


def fired(payloads: Sequence[bytes], profile: Profile) -> list[set[str]]:
    """The rules that fire for each record."""
    lengths = np.array([*map(len, payloads)], np.int64)
    starts = np.cumsum(lengths) - lengths
    records = RecordBatch("s", 0, 12, bytearray(b"".join(payloads)), starts, lengths)
    examples = ExampleBatch.of(records)
    detections = Detections(examples, profile.field_mapping, expected=profile.expected)
    images = EncodedImages.of(detections, Decoder(Decoding(0), None))
    findings = Findings(1 << 20, resolve_levels(profile.severities))
    batch = Batch(detections, images, profile)
    run_rules(batch, findings, of_dataset=False)
    found: list[set[str]] = [set() for _ in payloads]
    for one in findings.all():
        found[one.record or 0].add(one.code)
    return found


def without_mandatory(profile: Profile) -> Profile:
    """The profile without keys that are mandatory only for the trainer."""
    features = {
        key: dataclasses.replace(spec, is_mandatory=False) for key, spec in profile.features.items()
    }
    return dataclasses.replace(profile, features=features)


def assert_agreement(payloads: Sequence[bytes], name: str, of_each: int | None = None) -> None:
    """TensorFlow parses all records that are valid for the checker, and refuses each other one.

    Of the records with the same set of codes, at most ``of_each`` are parsed.
    """
    taken = []
    tried: Counter[frozenset[str]] = Counter()
    for payload, codes in zip(payloads, fired(payloads, PROFILES[name]), strict=True):
        if codes & DELIBERATE or ("EXA001" in codes and is_unusual_message(payload)):
            continue
        if codes & REFUSALS:
            tried[frozenset(codes)] += 1
            if of_each is None or tried[frozenset(codes)] <= of_each:
                assert not parses([payload], DESCRIPTIONS[name]), (codes, payload)
        else:
            taken.append(payload)
    if taken and not parses(taken, DESCRIPTIONS[name]):
        assert [one for one in taken if not parses([one], DESCRIPTIONS[name])] == []


def is_unusual_message(payload: bytes) -> bool:
    """Whether protobuf refuses the bytes, or finds unknown fields."""
    try:
        unusual = find_encoding_issues(payload, 0, len(payload))
        tf.train.Example.FromString(payload)
    except (DecodeError, MalformedError):
        return True
    return unusual is not None and unusual[0] is EncodingIssue.NOT_AN_EXAMPLE


OTHER: FeatureDescription = {
    "three": FeatureSpec(Kind.FLOAT, (3,), (0.0, 0.5, 1.0)),
    "two": FeatureSpec(Kind.INT64, (2,)),
    "texts": FeatureSpec(Kind.BYTES, (2,), (b"a", b"b")),
    "image/object/difficult": FeatureSpec(Kind.INT64),
    "image/object/mask": FeatureSpec(Kind.FLOAT),
    "many": FeatureSpec(Kind.FLOAT),
    "names": FeatureSpec(Kind.BYTES),
}
PROFILES = {
    **{name: without_mandatory(one) for name, one in READY.items()},
    "odd": features_to_profile("odd", "", OTHER),
}
DESCRIPTIONS = {
    name: feature_description(
        {
            key: spec
            for key, spec in one.expected.items()
            if not spec.other_kinds or key in one.features
        }
    )
    for name, one in PROFILES.items()
}
"""With other keys that the checker reads, except for keys with one of two dtypes."""


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
def test_files(mutants: Path, corpus: Path, of_each: int | None) -> None:
    """All mutants and real shards under every profile."""
    payloads = payloads_of_mutants(mutants)
    assert len(payloads) > 200
    shards = [path for path in corpus.rglob("*") if "record" in path.name and path.is_file()]
    real = [one for path in shards for one in itertools.islice(records_of(path), 20)]
    assert len(real) > 50
    for name in PROFILES:
        assert_agreement(payloads + real, name, of_each)


# Records of any kind

LISTS: Mapping[int, Sequence[bytes]] = {
    1: [b"", *map(partial(field, 1), (b"", b"\xff", b"jpeg" * 40)), field(1, b"\xff") * 2,
        b"\x08\x05", b"\x0d1234"],
    2: [
        *(field(1, bytes(count)) for count in (0, 4, 8, 12, 5)),
        *(b"\x0d\0\0\x80\x3f" * count for count in range(3)),
        *(field(1, bytes(4)) * 2, field(1, bytes(4)) + b"\x0d1234", b"\x08\x05"),
    ],
    3: [
        *(field(1, b"\x02" * count) for count in range(4)),
        *(b"\x08\x02" * count for count in range(3)),
        *(field(1, b"\xff" * 9 + b"\x01"), field(1, b"\xff" * 10), field(1, b"\x80")),
        *(field(1, b"\x02") * 2, field(1, b"\x02") + b"\x08\x02", b"\x0d1234", b"\x08\x82\x80\0"),
    ],
}  # fmt: skip
"""Contents of each list: no value, one, several, in all encodings, and of another wire type."""
ODD = [b"\x12\x01x", b"\x10\x05", b"\x0b", b"\x00", b"\x0a", b"\x80", b"\x22\0", b"\x18\x01"]
"""Unknown fields, truncated fields, a group."""
EXTRA = [
    *(*ODD, b"\x0a\0", b"\x1a\x09x", b"\x00\x01", b"\x8a\x00\x01x", b"\x0d1234", b"\x09\x01"),
    *(b"\x1a\x01x", b"\xfa\x01\0"),
]
"""Fields at the beginning or end of a record."""


def odd_features() -> list[bytes]:
    """Features with every list; most of them are refused or read differently."""
    lists = [field(tag, body) for tag, bodies in LISTS.items() for body in bodies]
    odd_lists = [field(tag, bodies[1] + odd) for tag, bodies in LISTS.items() for odd in ODD]
    too_long = [one[:1] + bytes((one[1] + 1,)) + one[2:] for one in lists]
    in_two = [field(first, LISTS[first][1]) + field(2, LISTS[2][1]) for first in LISTS]
    return [b"", *lists, *odd_lists, *too_long, *in_two, *(lists[-1] + odd for odd in ODD)]


def odd_entries(key: str, right: bytes) -> list[bytes]:
    """Entries of a key that is repeated or absent, or that follows its feature."""
    name, feature = field(1, key.encode()), field(2, right)
    contents = [feature + name, name, feature, name + name, name + feature * 2]
    return [
        *(entry(key, one) for one in odd_features()),
        *(field(1, one) for one in [*contents, *(name + feature + odd for odd in ODD)]),
        *(entry(key, right) + entry(key, one) for one in (b"", right, LISTS[3][0])),
    ]


def odd_payloads(profile: Profile) -> list[bytes]:
    """Records with all keys of the profile, except for one entry or one extra field."""
    plain = {key: entry(key, _right(spec)) for key, spec in profile.features.items()}
    found = []
    for key in [*plain, "image/object/view", "unknown key"]:
        spec = profile.features.get(key, FeatureSpec(Kind.BYTES))
        others = b"".join(one for other, one in plain.items() if other != key)
        for one in [b"", *odd_entries(key, _right(spec))]:
            found += [field(1, others + one), field(1, one + others)]
    sound_one = field(1, b"".join(plain.values()))
    return found + [one for extra in EXTRA for one in (extra + sound_one, sound_one + extra)]


def _right(spec: FeatureSpec) -> bytes:
    """A feature that fits the description."""
    count = 1 if spec.length is None else spec.length
    value: dict[Kind, Any] = {Kind.BYTES: b"x", Kind.INT64: 2, Kind.FLOAT: 0.5}
    return sound.encoded([value[spec.kind]] * count)


@pytest.mark.parametrize("name", PROFILES)
def test_odd_encodings(name: str) -> None:
    assert_agreement(odd_payloads(PROFILES[name]), name, of_each=40)


@pytest.mark.parametrize("name", ["tf_detection_api", "cvat", "odd"])
@examples(150)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=3)), max_size=3),
    cut=st.integers(0, 1 << 16),
)
def test_changed_bytes(name: str, changes: list[tuple[int, bytes]], cut: int) -> None:
    """Bytes are overwritten, and the record is cut; the checksum is valid."""
    payload = bytearray(_SMALL[name])
    for place, new in changes:
        at = place % len(payload)
        payload[at : at + len(new)] = new
    end = len(payload) if cut & 3 else cut % (len(payload) + 1)
    if end:
        assert_agreement([bytes(payload[:end])], name)


_SMALL = {
    name: encode_example({key: _right(spec) for key, spec in profile.features.items()})
    for name, profile in PROFILES.items()
}
