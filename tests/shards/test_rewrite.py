"""Changing features of a record: protobuf reads the changes, and other bytes are the same."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.example.example import Example, bytes_feature, encode_entry, float_feature, int64_feature
from tfod.example.wire import encode_varint
from tfod.shards.rewrite import rewrite_example
from tfod.tfrecord.reader import Record

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")

KEYS = ("", "a", "image/height", "k" * 200)
features = st.one_of(
    st.lists(st.binary(max_size=200), max_size=3).map(bytes_feature),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(float_feature),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3).map(int64_feature),
)


def field(number: int, content: bytes, long: bool = False) -> bytes:
    """A field with a length, which may have more bytes than necessary."""
    length = encode_varint(len(content))
    if long:
        length = length[:-1] + bytes((length[-1] | 0x80, 0))
    return encode_varint(number << 3 | 2) + length + content


unknown = st.builds(lambda number, content: field(number, content),
                    st.integers(3, 30), st.binary(max_size=5))  # fmt: skip
entries = st.builds(
    lambda parts, long: field(1, b"".join(parts), long),
    st.one_of(
        st.tuples(
            st.sampled_from(KEYS).map(lambda key: field(1, key.encode())),
            features.map(lambda feature: field(2, feature)),
        ).flatmap(st.permutations),
        st.lists(st.sampled_from(KEYS).map(lambda key: field(1, key.encode())), max_size=2),
    ),
    st.booleans(),
)
maps = st.builds(
    lambda parts, long: field(1, b"".join(parts), long),
    st.lists(st.one_of(entries, entries, unknown), max_size=6),
    st.booleans(),
)
payloads = st.lists(st.one_of(maps, maps, unknown), max_size=4).map(b"".join)
changes = st.dictionaries(st.sampled_from((*KEYS, "new")), st.one_of(st.none(), features))


@given(payloads, changes)
def test_protobuf_reads_the_record_with_its_changes(
    payload: bytes, requested: dict[str, bytes | None]
) -> None:
    expected = tf.train.Example.FromString(payload)
    for key, feature in requested.items():
        expected.features.feature.pop(key, None)
        if feature is not None:
            expected.features.feature[key].MergeFromString(feature)
    found = tf.train.Example.FromString(rewrite_example(Example.from_bytes(payload), requested))
    expected.features.SetInParent()
    found.features.SetInParent()
    # Unknown fields are compared, too.
    first, second = (one.SerializeToString(deterministic=True) for one in (found, expected))
    assert first == second
    # Without a change, all bytes are the same.
    record = Record(3, 0, bytearray(b"before" + payload + b"after"), 6, len(payload))
    assert rewrite_example(Example.of(record, "s"), {"absent": None}) == payload


def test_all_other_bytes_have_the_same_order() -> None:
    twice = encode_entry("b", int64_feature([1])) + encode_entry("b", int64_feature([2]))
    odd = field(9, b"unknown")
    height = encode_entry("h", int64_feature([5]))
    first = encode_entry("a", bytes_feature([b"old"]))
    last = encode_entry("a", bytes_feature([b"older"]))
    payload = odd + field(1, first + twice + odd, long=True) + field(1, last + height) + odd
    new = bytes_feature([b"new, and longer"])
    assert rewrite_example(Example.from_bytes(payload), {"a": new}) == (
        odd + field(1, twice + odd) + field(1, encode_entry("a", new) + height) + odd
    )
    assert rewrite_example(Example.from_bytes(payload), {"h": None, "n": new}) == (
        odd + field(1, first + twice + odd, long=True)
        + field(1, last + encode_entry("n", new)) + odd
    )  # fmt: skip
