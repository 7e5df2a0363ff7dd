"""The wire format under ``tf.train.Example``: varints, fields, map entries and lists.

Source of the layout: tensorflow/core/example/{example,feature}.proto. Like protobuf itself this
takes what a writer may legally do: fields in any order, a key twice (the last one counts), packed
and unpacked numbers, unknown fields. The usual spelling of each is read in line, since a record
has a dozen of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

Buffer: TypeAlias = "bytes | bytearray"
Spans: TypeAlias = Sequence[tuple[int, int]]
FeatureSpan: TypeAlias = "tuple[int, int, int]"
"""Where a feature lies: the tag of its only list and that list's half-open span; or ``GENERAL``
and the span of the whole Feature message, which :func:`find_list` takes apart."""
GENERAL = 0


class Kind(enum.Enum):
    """Which list a Feature holds; the values are the field names of feature.proto."""

    BYTES = "bytes_list"
    FLOAT = "float_list"
    INT64 = "int64_list"


_KIND_OF_TAG = {0x0A: Kind.BYTES, 0x12: Kind.FLOAT, 0x1A: Kind.INT64}
BYTES_TAG, FLOAT_TAG, INT64_TAG = _KIND_OF_TAG
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class NotAnExampleError(ValueError):
    """The bytes are not the wire form of the message that was expected."""


class SequenceExampleError(NotAnExampleError):
    """The bytes are a SequenceExample."""


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Decode an unsigned base-128 varint; return it and the position behind it."""
    result = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise NotAnExampleError("a varint of more than ten bytes")


def iterate_fields(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, wire type, and the half-open span of the value.

    Raises:
        NotAnExampleError, IndexError: the bytes are no message.
    """
    position = start
    while position < end:
        tag, position = read_varint(buffer, position)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise NotAnExampleError("a field with number 0")
        first = position
        if wire == _LENGTH:
            length, first = read_varint(buffer, position)
            position = first + length
        elif wire == _VARINT:
            position = read_varint(buffer, position)[1]
        elif wire == _FIXED32:
            position += 4
        elif wire == _FIXED64:
            position += 8
        else:
            raise NotAnExampleError(f"wire type {wire}")
        if position > end:
            raise NotAnExampleError("a field reaches beyond its message")
        yield number, wire, first, position


def find_features(buffer: Buffer, start: int, end: int) -> tuple[dict[bytes, FeatureSpan], int]:
    """Map each key of an Example to where its list lies.

    Returns:
        The features, and how many entries the map has on the wire: more than there are features
        when a key comes twice (the last one counts).

    Raises:
        NotAnExampleError, IndexError: the bytes are no Example.
    """
    found: dict[bytes, FeatureSpan] = {}
    entries = 0
    if end - start > 1 and buffer[start] == 0x0A:
        size, first = read_varint(buffer, start + 1)
        if first + size == end:  # nothing else, as every writer has it
            return found, _find_entries(buffer, first, end, found)
    for number, wire, first, last in iterate_fields(buffer, start, end):
        if number == 1:
            if wire != _LENGTH:
                raise NotAnExampleError("its features are no message")
            entries += _find_entries(buffer, first, last, found)
        elif number == 2 and wire == _LENGTH:
            raise SequenceExampleError("it has the feature lists of a SequenceExample")
    return found, entries


def _find_entries(buffer: Buffer, position: int, end: int, found: dict[bytes, FeatureSpan]) -> int:
    # Hot: thirteen entries a record. The usual shape (key, then value, one list in it, nothing
    # else) is read in line; anything else goes the general way.
    entries = 0
    while position < end:
        start = position
        entries += 1
        size = buffer[position + 1]
        position += 2
        if size > 0x7F:
            size, position = read_varint(buffer, position - 1)
        stop = position + size
        if stop > end or size < 4 or buffer[start] != 0x0A:
            position = _find_entry(buffer, start, end, found)
            continue
        key_start = position + 2
        key_end = key_start + buffer[position + 1]
        if (
            key_end + 4 > stop
            or buffer[position] != 0x0A
            or key_end - key_start > 0x7F
            or buffer[key_end] != 0x12
        ):
            position = _find_entry(buffer, start, end, found)
            continue
        position = key_end + 2
        size = buffer[key_end + 1]
        if size > 0x7F:
            size, position = read_varint(buffer, key_end + 1)
        if position + size != stop or size < 2:
            position = _find_entry(buffer, start, end, found)
            continue
        tag = buffer[position]
        first = position + 2
        size = buffer[position + 1]
        if size > 0x7F:
            size, first = read_varint(buffer, position + 1)
        if first + size != stop or tag not in _KIND_OF_TAG:
            tag, first = GENERAL, position
        found[bytes(buffer[key_start:key_end])] = (tag, first, stop)
        position = stop
    return entries


def _find_entry(buffer: Buffer, start: int, end: int, found: dict[bytes, FeatureSpan]) -> int:
    """Read one field of Features in the general way; return the position behind it."""
    number, wire, first, stop = next(iterate_fields(buffer, start, end))
    if number != 1:
        return stop
    if wire != _LENGTH:
        raise NotAnExampleError("a feature is no map entry")
    key, value = b"", (first, first)
    for number, wire, begin, last in iterate_fields(buffer, first, stop):
        if number == 1 and wire == _LENGTH:
            key = bytes(buffer[begin:last])
        elif number == 2 and wire == _LENGTH:
            value = (begin, last)
        elif number in (1, 2):
            raise NotAnExampleError("a map entry of wrong types")
    found[key] = (GENERAL, *value)
    return stop


Template: TypeAlias = "Sequence[tuple[bytes, int]]"
"""How a record's features are expected: of each the bytes from its key's tag to its value's tag
(as :func:`template_head` makes them), and the tag of its list."""


def template_head(key: bytes) -> bytes | None:
    """What a map entry with this key begins with; None for a key too long for a template."""
    return b"\n%c%b\x12" % (len(key), key) if len(key) < 0x80 else None


def find_expected(
    buffer: Buffer, start: int, end: int, template: Template
) -> list[FeatureSpan] | None:
    """Find the features of an Example that has exactly those of a template, in their order.

    As :func:`find_features`, but half as long for records that are all alike; None for others.
    """
    # Hot, as above. Whatever is unusual is not for here.
    if end - start < 2 or buffer[start] != 0x0A:
        return None
    size, position = read_varint(buffer, start + 1)
    if position + size != end:
        return None
    spans = []
    for head, tag in template:
        if position + 2 >= end or buffer[position] != 0x0A:
            return None
        size = buffer[position + 1]
        first = position + 2
        if size > 0x7F:
            size, first = read_varint(buffer, position + 1)
        stop = first + size
        position = first + len(head)
        if stop > end or position + 3 > stop or not buffer.startswith(head, first, position):
            return None
        size = buffer[position]
        first = position + 1
        if size > 0x7F:
            size, first = read_varint(buffer, position)
        if first + size != stop or size < 2 or buffer[first] != tag:
            return None
        size = buffer[first + 1]
        position = first + 2
        if size > 0x7F:
            size, position = read_varint(buffer, first + 1)
        if position + size != stop:
            return None
        spans.append((tag, position, stop))
        position = stop
    return spans if position == end else None


def find_list(buffer: Buffer, span: FeatureSpan) -> tuple[Kind | None, Spans]:
    """The list that a feature holds, as one span but for odd writers.

    Of a oneof the last kind counts; equal kinds are merged.
    """
    tag, start, end = span
    if tag:
        return _KIND_OF_TAG[tag], ((start, end),)
    kind = None
    parts: list[tuple[int, int]] = []
    for number, wire, first, last in iterate_fields(buffer, start, end):
        if number > 3:
            continue
        if wire != _LENGTH:
            raise NotAnExampleError("a list is no message")
        now = _KIND_OF_TAG[number << 3 | _LENGTH]
        if now is not kind:
            kind, parts = now, []
        parts.append((first, last))
    return kind, parts


def decode_spans(buffer: Buffer, parts: Spans) -> list[tuple[int, int]]:
    """The values of a bytes_list."""
    found: list[tuple[int, int]] = []
    for position, end in parts:
        while position < end:
            if buffer[position] != 0x0A:
                return _decode_spans_generally(buffer, parts)
            size = buffer[position + 1]
            position += 2
            if size > 0x7F:
                size, position = read_varint(buffer, position - 1)
            start, position = position, position + size
            if position > end:
                raise NotAnExampleError("a value reaches beyond its list")
            found.append((start, position))
    return found


def _decode_spans_generally(buffer: Buffer, parts: Spans) -> list[tuple[int, int]]:
    return [
        (first, last)
        for start, end in parts
        for number, wire, first, last in iterate_fields(buffer, start, end)
        if number == 1 and wire == _LENGTH
    ]


def _packed(buffer: Buffer, parts: Spans) -> tuple[int, int] | None:
    """Where the only packed run of a list of numbers lies; None for any other spelling."""
    if len(parts) != 1:
        return None
    start, end = parts[0]
    if end - start < 2 or buffer[start] != 0x0A:
        return None
    size, first = buffer[start + 1], start + 2
    if size > 0x7F:
        size, first = read_varint(buffer, start + 1)
    return (first, end) if first + size == end else None


def float_bytes(buffer: Buffer, parts: Spans) -> Buffer:
    """The numbers of a float_list as they lie in memory, little-endian."""
    packed = _packed(buffer, parts)
    if packed:
        numbers = buffer[packed[0] : packed[1]]
    else:
        runs = _number_runs(buffer, parts, _FIXED32)
        numbers = b"".join(bytes(buffer[first:last]) for first, last in runs)
    if len(numbers) & 3:
        raise NotAnExampleError("a packed float list is no multiple of 4 bytes")
    return numbers


def decode_floats(buffer: Buffer, parts: Spans) -> np.ndarray:
    """The numbers of a float_list, float32."""
    return np.frombuffer(float_bytes(buffer, parts), "<f4")


def decode_ints(buffer: Buffer, parts: Spans) -> list[int]:
    """The numbers of an int64_list."""
    packed = _packed(buffer, parts)
    values: list[int] = []
    for position, end in [packed] if packed else _number_runs(buffer, parts, _VARINT):
        run = buffer[position:end]
        if not run or max(run) < 0x80:  # every value below 128: one byte each
            values.extend(run)
            continue
        while position < end:
            value, position = read_varint(buffer, position)
            values.append(value - (1 << 64) if value >> 63 else value)
        if position != end:
            raise NotAnExampleError("a varint reaches beyond its list")
    return values


def _number_runs(buffer: Buffer, parts: Spans, single: int) -> list[tuple[int, int]]:
    """Runs of numbers in any spelling: packed, or one by one with this wire type."""
    return [
        (first, last)
        for start, end in parts
        for number, wire, first, last in iterate_fields(buffer, start, end)
        if number == 1 and wire in (_LENGTH, single)
    ]


def encode_varint(value: int) -> bytes:
    """Encode a number from 0 as an unsigned base-128 varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]
