"""Mutants of the record as an Example: EXA."""

from __future__ import annotations

from functools import partial

from tfod.example.example import encode_example, float_feature, int64_feature

from tests.mutants import registry
from tests.mutants.registry import Mutant
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

fail = partial(registry.fail, record=0, options=TF)
near = partial(registry.near, options=TF)
CVAT, ROBOFLOW = {"profile": "cvat"}, {"profile": "roboflow"}


def spelled(**encoded: bytes) -> bytes:
    """A valid record with some features already encoded, by the last part of the key."""
    named = encoded_features()
    by_name = {key.rpartition("/")[2]: key for key in named}
    return encode_example({**named, **{by_name[key]: one for key, one in encoded.items()}})


def mutants() -> list[Mutant]:
    named = list(encoded_features().items())
    in_two_parts = encode_example(dict(named[:5])) + encode_example(dict(named[5:]))
    lists = field(1, field(1, b"frames") + field(2, field(1, int64_feature([1]))))
    no_format = second(encode_example({**encoded_features(), "image/format": b""}))
    cut, attributes = record(text=["cat", b"\xe2\x82"]), "tfod/attributes"
    forty = int64_feature([40])
    twice = spelled(width=int64_feature([40, 41])) + field(1, entry("image/width", forty))
    misspelt = entry("image/widtj", forty)
    without = record(**dict.fromkeys(("xmin", "ymin", "xmax", "ymax", "text", "label")))
    empty_lists = b"".join(entry(key, b"\x12\x00") for key in objects([]))
    table = {"age": 29, "fare": 211.5, "name": "Allen"}
    in_table = ("EXA003", "EXA008", "IMG015", "LAB013", "LAB020")
    table_with_boxes = encode({**table, **objects([(0.25, 0.25, 0.5, 0.5)], ["cat"])})

    def extra(key: str, *values: object) -> bytes:
        return encode({**features(), key: [*values]})

    return [
        fail("EXA001-text", second(b"a line of text"), record=1),
        fail("EXA001-group-in-place-of-features", first(flip(record(), 0))),
        fail("EXA001-last-byte-missing", first(record()[:-1])),
        fail("EXA001-key-of-another-type", first(field(1, field(1, b"\x08\x01")))),
        fail("EXA001-list-of-another-type", first(spelled(width=b"\x18\x05"))),
        near("EXA001-unknown-field", first(record() + field(15, b"more"))),
        # protobuf merges a message that comes twice.
        near("EXA001-features-in-two-parts", first(in_two_parts)),
        fail("EXA002-with-feature-lists", first(record() + field(2, lists))),
        near("EXA002-same-bytes-as-field-3", first(record() + field(3, lists))),
        fail("EXA003-no-image", first(record(encoded=None))),
        fail("EXA003-no-format", second(record(format=None)), record=1, options=ROBOFLOW),
        fail("EXA003-format-without-a-list", no_format, "EXA006", record=1, options=ROBOFLOW),
        fail("EXA003-no-width-for-cvat", first(record(width=None)), options=CVAT),
        near("EXA003-no-checksum", first(record(sha256=None))),
        near("EXA003-no-format-for-the-trainer", second(record(format=None))),
        near("EXA003-no-width", first(record(width=None))),
        fail("EXA004-width-as-float", first(record(width=40.0))),
        fail("EXA004-format-as-number", first(record(format=1))),
        fail("EXA004-empty-list-of-floats", first(spelled(width=b"\x12\0"))),
        near("EXA004-width-not-packed", first(spelled(width=b"\x1a\2\x08\x28"))),
        fail("EXA005-two-widths", first(record(width=[40, 40]))),
        # TF-Vision and Model Maker read it; this mutant checks their verdicts.
        fail("EXA005-two-names", second(record(filename=["a", "b"])), record=1),
        fail("EXA005-empty-list", first(spelled(width=b"\x1a\0"))),
        near("EXA005-without-a-list", first(spelled(width=b"")), "EXA006"),
        near("EXA005-last-of-two-features", first(twice), "EXA007"),
        fail("EXA006-default-taken", first(spelled(sha256=b""))),
        near("EXA006-empty-lists", first(without + field(1, empty_lists))),
        fail("EXA007-width-twice", first(twice)),
        near("EXA007-one-letter-differs", first(record() + field(1, misspelt)), "EXA008"),
        fail("EXA008-misspelt", second(extra("image/object/dificult", 0, 1)), record=1),
        near("EXA008-spelt-right", first(extra("image/object/difficult", 0, 1))),
        near("EXA008-attribute", first(extra("image/object/attribute/colour", "red", "blue"))),
        fail("EXA009-name-in-latin-1", first(record(filename="é.jpg".encode("latin-1")))),
        fail("EXA009-class-cut-within-a-letter", first(cut), "LAB006"),
        near("EXA009-name-in-utf-8", first(record(filename="é.jpg"))),
        registry.fail("EXA010-a-table", shard(encode(table))),
        registry.near("EXA010-a-table-with-boxes", shard(table_with_boxes), *in_table),
        fail("EXA012-two-lists", first(spelled(width=float_feature([41.0]) + forty))),
        fail("EXA012-group", first(record() + b"\x7b\x7c")),
        near("EXA012-unknown-number", first(record() + b"\x78\x01")),
        fail("EXA013-not-json", first(extra(attributes, "{"))),
        fail("EXA013-a-third-object", first(extra(attributes, '{"objects": {"2": {"a": 1}}}'))),
        near("EXA013-of-the-second", first(extra(attributes, '{"objects": {"1": {"a": 1}}}'))),
    ]
