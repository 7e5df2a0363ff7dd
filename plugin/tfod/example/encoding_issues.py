"""Records that protobuf reads, but spelled as few writers would: does TensorFlow read the same?

TensorFlow parses Examples with a parser of its own, which is not protobuf: what it does not expect
stops it, or is read otherwise. The kernel says which records are unusual; this says what about them
is, record by record, since there are few.

Source: tensorflow/core/util/example_proto_fast_parsing.cc (2.21); tests/training holds the two
against each other.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from tfod.example.wire import Buffer
from tfod.kernel.reference import fields as fields_of

_VARINT, _LENGTH, _GROUP, _FIXED32 = 0, 2, 3, 5
_LISTS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
_PACKED_OR_SINGLE = {1: (_LENGTH,), 2: (_LENGTH, _FIXED32), 3: (_LENGTH, _VARINT)}


class EncodingIssue(enum.Enum):
    """What is to be said of a record's form."""

    NOT_AN_EXAMPLE = "it cannot be read as a tf.train.Example"
    SEQUENCE_EXAMPLE = "it is a tf.train.SequenceExample"
    READ_OTHERWISE = "TensorFlow refuses it, or reads other values than protobuf"
    REPEATED_KEY = "a key comes more than once: the last one counts"


def find_encoding_issues(buffer: Buffer, start: int, end: int) -> tuple[EncodingIssue, str] | None:
    """What is unusual about a record that protobuf reads, and a reason in words; the worst.

    A field of another wire type is unknown to protobuf: that is not an Example. None where every
    reader passes over what is unusual.
    """
    found = list(_oddities(buffer, start, end))
    worst = (one for one in found if one[0] is EncodingIssue.NOT_AN_EXAMPLE)
    return next(worst, found[0] if found else None)


def _oddities(buffer: Buffer, start: int, end: int) -> Iterator[tuple[EncodingIssue, str]]:
    for number, wire, first, last in fields_of(buffer, start, end):
        if number == 1 and wire == _LENGTH:
            for inner, inner_wire, begin, stop in fields_of(buffer, first, last):
                if (inner, inner_wire) == (1, _LENGTH):
                    yield from _entry_oddities(buffer, begin, stop)
                elif inner == 1:
                    yield EncodingIssue.NOT_AN_EXAMPLE, "a feature is not a map entry"
                else:
                    yield (
                        EncodingIssue.READ_OTHERWISE,
                        "its features hold something else than map entries",
                    )
        elif number == 1:
            yield EncodingIssue.NOT_AN_EXAMPLE, "its features are not a message"
        elif wire == _GROUP:
            yield EncodingIssue.READ_OTHERWISE, "it has a group"


def _entry_oddities(buffer: Buffer, start: int, end: int) -> Iterator[tuple[EncodingIssue, str]]:
    fields = list(fields_of(buffer, start, end))
    if any(number in (1, 2) and wire != _LENGTH for number, wire, _, _ in fields):
        yield EncodingIssue.NOT_AN_EXAMPLE, "a map entry is not a key and a feature"
    elif sorted(number for number, _, _, _ in fields) != [1, 2]:
        yield EncodingIssue.READ_OTHERWISE, "a map entry is not one key and one feature"
    for number, wire, first, last in fields:
        if (number, wire) == (2, _LENGTH):
            yield from _feature_oddities(buffer, first, last)


def _feature_oddities(buffer: Buffer, start: int, end: int) -> Iterator[tuple[EncodingIssue, str]]:
    lists = 0
    for number, wire, first, last in fields_of(buffer, start, end):
        if number not in _LISTS:
            yield EncodingIssue.READ_OTHERWISE, "a feature is of no known kind"
        elif wire != _LENGTH:
            yield EncodingIssue.NOT_AN_EXAMPLE, "a list is not a message"
        else:
            lists += 1
            yield from _list_oddities(buffer, number, first, last)
    if lists > 1:
        yield EncodingIssue.READ_OTHERWISE, "a feature has several lists"


def _list_oddities(
    buffer: Buffer, kind: int, start: int, end: int
) -> Iterator[tuple[EncodingIssue, str]]:
    fields = list(fields_of(buffer, start, end))
    if any(number == 1 and wire not in _PACKED_OR_SINGLE[kind] for number, wire, _, _ in fields):
        yield EncodingIssue.NOT_AN_EXAMPLE, f"a {_LISTS[kind]} holds something else"
    elif any(number != 1 for number, _, _, _ in fields):
        yield EncodingIssue.READ_OTHERWISE, f"a {_LISTS[kind]} holds something else"
    packed = sum(wire == _LENGTH for _, wire, _, _ in fields)
    if kind != 1 and packed and len(fields) > 1:
        yield EncodingIssue.READ_OTHERWISE, f"a {_LISTS[kind]} is packed in several parts"
