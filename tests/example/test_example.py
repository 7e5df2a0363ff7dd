"""The Example codec: round trips, and every encoding that protobuf allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import RecordError
from tfod.example.example import (
    Example,
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
)
from tfod.example.wire import Kind

from tests.conftest import examples
from tests.records import encode

keys = st.text(min_size=1, max_size=30)
int64s = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)
floats = st.lists(st.floats(width=32), max_size=60)
byte_lists = st.lists(st.binary(max_size=200), max_size=10)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example_of(key: str, feature: bytes) -> Example:
    entry = field(1, key.encode()) + field(2, feature)
    return Example.from_bytes(field(1, field(1, entry)), "x.record")


@given(
    st.dictionaries(keys, int64s, max_size=6),
    st.dictionaries(keys, floats, max_size=6),
    st.dictionaries(keys, byte_lists, max_size=6),
)
def test_round_trip(
    ints: dict[str, list[int]], numbers: dict[str, list[float]], texts: dict[str, list[bytes]]
) -> None:
    features = {f"i{key}": int64_feature(one) for key, one in ints.items()}
    features |= {f"f{key}": float_feature(one) for key, one in numbers.items()}
    features |= {f"b{key}": bytes_feature(one) for key, one in texts.items()}
    example = Example.from_bytes(encode_example(features))
    assert list(example) == list(features) and all(key in example for key in features)
    assert {key: example.ints(f"i{key}") for key in ints} == ints
    assert {key: example.byte_strings(f"b{key}") for key in texts} == texts
    for key, one in numbers.items():
        assert example.floats(f"f{key}").tobytes() == np.array(one, "<f4").tobytes()


def part(key: bytes, *values: int) -> bytes:
    """An Example of one feature."""
    feature = field(3, field(1, b"".join(map(varint, values))))
    return field(1, field(1, field(1, key) + field(2, feature)))


def test_other_encodings_of_numbers_and_entries() -> None:
    unpacked = b"".join(varint(1 << 3 | 0) + varint(n & (2**64 - 1)) for n in (5, -1, 300))
    assert example_of("k", field(3, unpacked)).ints("k") == [5, -1, 300]
    singles = b"".join(varint(1 << 3 | 5) + np.float32(n).tobytes() for n in (0.5, 2))
    assert example_of("k", field(2, singles)).floats("k").tolist() == [0.5, 2]
    # The value before the key, and unknown fields.
    entry = varint(7 << 3) + b"\1" + field(2, field(3, field(1, b"\7"))) + field(1, b"k")
    data = field(9, b"unknown") + field(1, field(5, b"?") + field(1, entry))
    assert Example.from_bytes(data).ints("k") == [7]
    assert Example.from_bytes(part(b"k" * 300, 1)).ints("k" * 300) == [1]
    assert list(Example.from_bytes(field(1, field(1, b"")))) == [""]


def test_repeated_fields() -> None:
    """Features are merged, and the last value of a key counts; so does the last kind of a list."""
    example = Example.from_bytes(part(b"a", 1) + part(b"b", 2) + part(b"a", 3))
    assert (example.ints("a"), example.ints("b")) == ([3], [2])
    ints, more = field(3, field(1, b"\1\2")), field(3, field(1, b"\3"))
    text = field(1, field(1, b"x"))
    assert example_of("k", text + ints + more).ints("k") == [1, 2, 3]
    assert example_of("k", ints + text).byte_strings("k") == [b"x"]


def test_features_without_a_list() -> None:
    example = example_of("k", b"")
    assert (example.kind("k"), example.ints("k")) == (None, [])
    empty = Example.from_bytes(b"")
    values = len(empty), empty.ints("k"), empty.byte_strings("k"), empty.kind("k")
    assert values == (0, [], [], None)


def test_errors() -> None:
    with pytest.raises(RecordError, match="feature lists of a SequenceExample"):
        Example.from_bytes(encode({"image/height": 1}) + field(2, b""))
    example = Example.from_bytes(encode({"image/height": 1.5}), "x.record")
    assert example.kind("image/height") is Kind.FLOAT
    place = "^x.record, record 0, byte 0: image/height is float_list, expected int64_list;"
    with pytest.raises(RecordError, match=place):
        example.ints("image/height")
    with pytest.raises(OverflowError):
        int64_feature([2**63])


@examples(500)
@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_refused(data: bytes) -> None:
    try:
        example = Example.from_bytes(data)
        for key in example:
            example.value_count(key)
    except RecordError as error:
        assert "\n" not in str(error)


def test_every_truncation_of_an_example_is_refused_or_read() -> None:
    data = encode({"a": [1, 300, -5], "b": [0.5] * 40, "c": ["x", "long" * 40]})
    for length in range(len(data)):
        try:
            example = Example.from_bytes(data[:length])
        except RecordError:
            continue
        assert len(example) == 0 and length == 0
