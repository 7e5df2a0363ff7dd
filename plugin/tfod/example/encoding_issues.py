"""Unusual encodings of records that protobuf reads, and whether TensorFlow reads the same.

TensorFlow parses Examples itself: it rejects unusual encodings or reads other values. The kernel
finds the unusual records, which are few; this module names the reason.

Source: tensorflow/core/util/example_proto_fast_parsing.cc (2.21); tests/training compares both.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from tfod.example.wire import Buffer
from tfod.kernel.reference import read_fields as read_fields

_VARINT, _LENGTH, _GROUP, _FIXED32 = 0, 2, 3, 5
_LISTS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
_PACKED_OR_SINGLE = {1: (_LENGTH,), 2: (_LENGTH, _FIXED32), 3: (_LENGTH, _VARINT)}


class EncodingIssue(enum.Enum):
    """A problem with how a record is encoded."""

    NOT_AN_EXAMPLE = "it cannot be read as a tf.train.Example"
    SEQUENCE_EXAMPLE = "it is a tf.train.SequenceExample"
    READ_DIFFERENTLY = "TensorFlow rejects it, or reads different values than protobuf"
    REPEATED_KEY = "a key occurs more than once; the last value counts"


def find_encoding_issues(buffer: Buffer, start: int, end: int) -> tuple[EncodingIssue, str] | None:
    """Return the encoding issue of a record that protobuf reads, and the reason.

    None if all readers ignore it. NOT_AN_EXAMPLE (a wrong wire type of a field) takes precedence.
    """
    issues = list(_check_record(buffer, start, end))
    worst = (issue for issue in issues if issue[0] is EncodingIssue.NOT_AN_EXAMPLE)
    return next(worst, issues[0] if issues else None)


def _check_record(buffer: Buffer, start: int, end: int) -> Iterator[tuple[EncodingIssue, str]]:
    for number, wire, first, last in read_fields(buffer, start, end):
        if number == 1 and wire == _LENGTH:
            for inner, inner_wire, begin, stop in read_fields(buffer, first, last):
                if (inner, inner_wire) == (1, _LENGTH):
                    yield from _check_entry(buffer, begin, stop)
                elif inner == 1:
                    yield EncodingIssue.NOT_AN_EXAMPLE, "a feature is not a map entry"
                else:
                    yield (
                        EncodingIssue.READ_DIFFERENTLY,
                        "its features contain something other than map entries",
                    )
        elif number == 1:
            yield EncodingIssue.NOT_AN_EXAMPLE, "its features are not a message"
        elif wire == _GROUP:
            yield EncodingIssue.READ_DIFFERENTLY, "it contains a group"


def _check_entry(buffer: Buffer, start: int, end: int) -> Iterator[tuple[EncodingIssue, str]]:
    fields = list(read_fields(buffer, start, end))
    if any(number in (1, 2) and wire != _LENGTH for number, wire, _, _ in fields):
        yield EncodingIssue.NOT_AN_EXAMPLE, "a map entry is not a key and a feature"
    elif sorted(number for number, _, _, _ in fields) != [1, 2]:
        yield EncodingIssue.READ_DIFFERENTLY, "a map entry is not one key and one feature"
    for number, wire, first, last in fields:
        if (number, wire) == (2, _LENGTH):
            yield from _check_feature(buffer, first, last)


def _check_feature(buffer: Buffer, start: int, end: int) -> Iterator[tuple[EncodingIssue, str]]:
    lists = 0
    for number, wire, first, last in read_fields(buffer, start, end):
        if number not in _LISTS:
            yield EncodingIssue.READ_DIFFERENTLY, "a feature has an unknown type"
        elif wire != _LENGTH:
            yield EncodingIssue.NOT_AN_EXAMPLE, "a list is not a message"
        else:
            lists += 1
            yield from _check_list(buffer, number, first, last)
    if lists > 1:
        yield EncodingIssue.READ_DIFFERENTLY, "a feature has several lists"


def _check_list(
    buffer: Buffer, kind: int, start: int, end: int
) -> Iterator[tuple[EncodingIssue, str]]:
    fields = list(read_fields(buffer, start, end))
    if any(number == 1 and wire not in _PACKED_OR_SINGLE[kind] for number, wire, _, _ in fields):
        yield EncodingIssue.NOT_AN_EXAMPLE, f"a {_LISTS[kind]} contains other fields"
    elif any(number != 1 for number, _, _, _ in fields):
        yield EncodingIssue.READ_DIFFERENTLY, f"a {_LISTS[kind]} contains other fields"
    packed = sum(wire == _LENGTH for _, wire, _, _ in fields)
    if kind != 1 and packed and len(fields) > 1:
        yield EncodingIssue.READ_DIFFERENTLY, f"a {_LISTS[kind]} is split into several packed parts"
