"""Mutants of the record as an Example: EXA."""

from __future__ import annotations

from collections.abc import Iterator

from tfod.example.example import encode_example, float_feature, int64_feature

from tests.mutants.registry import Mutant, fail, mutants_of, near
from tests.mutants.sound import (
    TF,
    encoded_features,
    entry,
    features,
    field,
    first,
    flip,
    record,
    second,
    shard,
)
from tests.records import encode, objects

CVAT, ROBOFLOW = {"profile": "cvat"}, {"profile": "roboflow"}
WIDTH_KEY = "image/width"


def odd(**spelled: bytes) -> bytes:
    """A sound record but for some features, encoded already, by the last part of the key."""
    named = encoded_features()
    by_name = {key.rpartition("/")[2]: key for key in named}
    return encode_example({**named, **{by_name[key]: one for key, one in spelled.items()}})


@mutants_of("EXA001")
def not_an_example() -> Iterator[Mutant]:
    yield fail("text", second(b"a line of text"), record=1, options=TF)
    yield fail("group-in-place-of-features", first(flip(record(), 0)), record=0, options=TF)
    yield fail("last-byte-missing", first(record()[:-1]), record=0, options=TF)
    yield fail("key-of-another-type", first(field(1, field(1, b"\x08\x01"))), record=0, options=TF)
    yield fail("list-of-another-type", first(odd(width=b"\x18\x05")), record=0, options=TF)
    yield near("unknown-field", first(record() + field(15, b"more")), options=TF)
    yield near("features-in-two-parts", first(_in_two_parts()), options=TF)


def _in_two_parts() -> bytes:
    """protobuf merges a message that comes twice."""
    named = list(encoded_features().items())
    return encode_example(dict(named[:5])) + encode_example(dict(named[5:]))


@mutants_of("EXA002")
def sequence_example() -> Iterator[Mutant]:
    lists = field(1, field(1, b"frames") + field(2, field(1, int64_feature([1]))))
    yield fail("with-feature-lists", first(record() + field(2, lists)), record=0, options=TF)
    yield near("same-bytes-as-field-3", first(record() + field(3, lists)), options=TF)


@mutants_of("EXA003")
def missing_feature() -> Iterator[Mutant]:
    yield fail("no-image", first(record(encoded=None)), record=0, options=TF)
    yield fail("no-format", second(record(format=None)), record=1, options=ROBOFLOW)
    nothing = encode_example({**encoded_features(), "image/format": b""})
    yield fail("format-without-a-list", second(nothing), "EXA006", record=1, options=ROBOFLOW)
    yield fail("no-width-for-cvat", first(record(width=None)), record=0, options=CVAT)
    yield near("no-checksum", first(record(sha256=None)), options=TF)
    yield near("no-format-for-the-trainer", second(record(format=None)), options=TF)
    yield near("no-width", first(record(width=None)), options=TF)


@mutants_of("EXA004")
def wrong_kind() -> Iterator[Mutant]:
    yield fail("width-as-float", first(record(width=40.0)), record=0, options=TF)
    yield fail("format-as-number", first(record(format=1)), record=0, options=TF)
    empty = odd(width=b"\x12\0")
    yield fail("empty-list-of-floats", first(empty), record=0, options=TF)
    yield near("width-not-packed", first(odd(width=b"\x1a\2\x08\x28")), options=TF)


@mutants_of("EXA005")
def wrong_shape() -> Iterator[Mutant]:
    yield fail("two-widths", first(record(width=[40, 40])), record=0, options=TF)
    # TF-Vision and Model Maker read it, whose verdicts are held by this one.
    yield fail("two-names", second(record(filename=["a", "b"])), record=1, options=TF)
    yield fail("empty-list", first(odd(width=b"\x1a\0")), record=0, options=TF)
    yield near("without-a-list", first(odd(width=b"")), "EXA006", options=TF)
    yield near("last-of-two-features", first(_twice()), "EXA007", options=TF)


def _twice() -> bytes:
    more = entry(WIDTH_KEY, int64_feature([40]))
    return odd(width=int64_feature([40, 41])) + field(1, more)


@mutants_of("EXA006")
def no_kind() -> Iterator[Mutant]:
    yield fail("default-taken", first(odd(sha256=b"")), record=0, options=TF)
    without = record(**dict.fromkeys(("xmin", "ymin", "xmax", "ymax", "text", "label")))
    named = dict.fromkeys(objects([]), b"\x12\x00")
    empty = without + field(1, b"".join(entry(key, one) for key, one in named.items()))
    yield near("empty-lists", first(empty), options=TF)


@mutants_of("EXA007")
def duplicate_key() -> Iterator[Mutant]:
    yield fail("width-twice", first(_twice()), record=0, options=TF)
    again = field(1, entry("image/widtj", int64_feature([40])))
    yield near("one-letter-differs", first(record() + again), "EXA008", options=TF)


@mutants_of("EXA008")
def unknown_feature() -> Iterator[Mutant]:
    misspelt = encode({**features(), "image/object/dificult": [0, 1]})
    yield fail("misspelt", second(misspelt), record=1, options=TF)
    right = encode({**features(), "image/object/difficult": [0, 1]})
    yield near("spelt-right", first(right), options=TF)
    own = encode({**features(), "image/object/attribute/colour": ["red", "blue"]})
    yield near("attribute", first(own), options=TF)


@mutants_of("EXA009")
def not_utf8() -> Iterator[Mutant]:
    latin_1 = record(filename="é.jpg".encode("latin-1"))
    yield fail("name-in-latin-1", first(latin_1), record=0, options=TF)
    broken = record(text=["cat", b"\xe2\x82"])
    yield fail("class-cut-within-a-letter", first(broken), "LAB006", record=0, options=TF)
    yield near("name-in-utf-8", first(record(filename="é.jpg")), options=TF)


@mutants_of("EXA010")
def no_profile() -> Iterator[Mutant]:
    table = {"age": 29, "fare": 211.5, "name": "Allen"}
    yield fail("a-table", shard(encode(table)))
    boxes = encode({**table, **objects([(0.25, 0.25, 0.5, 0.5)], ["cat"])})
    yield near("a-table-with-boxes", shard(boxes), "EXA003", "EXA008", "IMG015", "LAB013", "LAB020")


@mutants_of("EXA012")
def read_otherwise() -> Iterator[Mutant]:
    lists = float_feature([41.0]) + int64_feature([40])
    yield fail("two-lists", first(odd(width=lists)), record=0, options=TF)
    yield fail("group", first(record() + b"\x7b\x7c"), record=0, options=TF)
    yield near("unknown-number", first(record() + b"\x78\x01"), options=TF)


@mutants_of("EXA013")
def unreadable_attributes() -> Iterator[Mutant]:
    def extra(text: str) -> bytes:
        return first(record(**{"tfod/attributes": text}))

    yield fail("not-json", extra("{"), record=0, options=TF)
    yield fail("a-third-object", extra('{"objects": {"2": {"a": 1}}}'), record=0, options=TF)
    yield near("of-the-second", extra('{"objects": {"1": {"a": 1}}}'), options=TF)
