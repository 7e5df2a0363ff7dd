"""The kernel in Python: slow, but the specification for the compiled kernel.

Records are read as protobuf reads them: the last of repeated keys and the last list of a feature
count, and lists of the same kind are joined. If the fast parser of TensorFlow reads the bytes
differently (``tensorflow/core/util/example_proto_fast_parsing.cc``), the row has a problem.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tfod.kernel.checksum import crc32c
from tfod.kernel.return_types import (
    MAX_PAYLOAD_BYTES,
    Bytes,
    Columns,
    FoundRecords,
    KeyColumn,
    ListKind,
    Problem,
    ProblemCode,
    WalkEnd,
    as_array,
)

HEADER_BYTES, FOOTER_BYTES = 12, 4
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_VARINT, _FIXED64, _LENGTH, _GROUP, _END_GROUP, _FIXED32 = range(6)
_MAX_DEPTH = 100  # nested groups, the limit of protobuf
_MAX_TAG = (1 << 32) - 1
_LONG = 512  # from this length on, the second half of a hash is a fast sum
_MULTIPLIER = 0x9E3779B97F4A7C15


class MalformedError(ValueError):
    """The bytes are not a message in the protobuf wire format."""


def find_records(buffer: Bytes, *, max_length: int = MAX_PAYLOAD_BYTES) -> FoundRecords:
    """Find records and verify their checksums, up to the first truncated or damaged record.

    Args:
        buffer: bytes of a shard, beginning with the header of a record.
        max_length: largest payload in bytes; a larger one ends the walk.
    """
    starts, lengths = array("q"), array("q")
    shard = as_array(buffer)
    data, position, count = shard.data, 0, len(shard)
    checksums = dict[int, int]()  # by length, because many records have the same length
    header_at, checksum_at = _HEADER.unpack_from, _CHECKSUM.unpack_from
    while True:
        start = position + HEADER_BYTES
        if start > count:
            end = WalkEnd.BUFFER
            break
        length, stored = header_at(data, position)
        if checksums.get(length) != stored:
            crc = crc32c(shard[position : position + 8])
            if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != stored:
                end = WalkEnd.LENGTH_CHECKSUM
                break
            checksums[length] = stored
        if length > max_length:
            end = WalkEnd.TOO_LONG
            break
        stop = start + length
        if stop + FOOTER_BYTES > count:
            end = WalkEnd.BUFFER
            break
        crc = crc32c(shard[start:stop])
        if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != checksum_at(data, stop)[0]:
            end = WalkEnd.DATA_CHECKSUM
            break
        starts.append(start)
        lengths.append(length)
        position = stop + FOOTER_BYTES
    return FoundRecords(np.array(starts, np.int64), np.array(lengths, np.int64), position, end)


class Field(NamedTuple):
    """A field of a message: number, wire type, and half-open span of the value."""

    number: int
    wire: int
    start: int
    end: int


def _varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for index in range(min(10, end - position)):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + index + 1
    raise MalformedError


def _tag(data: Bytes, position: int, end: int) -> tuple[int, int, int]:
    tag, position = _varint(data, position, end)
    if not 8 <= tag <= _MAX_TAG:
        raise MalformedError
    return tag >> 3, tag & 7, position


def _skip(data: Bytes, position: int, end: int, wire: int) -> int:
    if wire == _VARINT:
        return _varint(data, position, end)[1]
    if wire == _LENGTH:
        length, position = _varint(data, position, end)
        position += length
    elif wire in (_FIXED64, _FIXED32):
        position += 8 if wire == _FIXED64 else 4
    else:
        raise MalformedError
    if position > end:
        raise MalformedError
    return position


def _skip_group(data: Bytes, position: int, end: int, number: int) -> int:
    open_groups = [number]
    while open_groups:
        number, wire, position = _tag(data, position, end)
        if wire == _GROUP and len(open_groups) < _MAX_DEPTH:
            open_groups.append(number)
        elif wire == _END_GROUP and number == open_groups[-1]:
            open_groups.pop()
        else:
            position = _skip(data, position, end, wire)
    return position


def read_fields(data: Bytes, position: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message; a group is one field. Raises MalformedError."""
    while position < end:
        number, wire, position = _tag(data, position, end)
        start = position
        if wire == _LENGTH:
            length, start = _varint(data, position, end)
            position = start + length
            if position > end:
                raise MalformedError
        elif wire == _GROUP:
            position = _skip_group(data, position, end, number)
        else:
            position = _skip(data, position, end, wire)
        yield Field(number, wire, start, position)


def parse_examples(buffer: Bytes, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """Parse records to columns, one for each key and kind of list, ordered by first occurrence.

    A record that protobuf rejects, or that is not within the buffer, is a row without values and
    with a problem. ``starts`` and ``lengths`` are spans in bytes, int64 of shape (n,).
    """
    data = as_array(buffer).data  # a view, because the buffer may contain a hundred images
    columns: dict[tuple[bytes, ListKind], _Column] = {}
    problems: list[Problem] = []
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        try:
            if not 0 <= start <= start + length <= len(data):
                raise MalformedError
            record = _Record(data, row)
            record.read(start, start + length)
        except MalformedError:
            problems.append(Problem(row, ProblemCode.MALFORMED, None))
            continue
        problems += dict.fromkeys(record.problems)
        for key, (kind, values) in record.features.items():
            column = columns.setdefault((key, kind), _Column())
            column.rows.append(row)
            column.values += values
            column.ends.append(len(column.values))
    key_columns = [
        KeyColumn(
            key,
            kind,
            np.array(column.rows, "<u4"),
            np.array(column.ends, "<u8"),
            kind.as_array(column.values),
        )
        for (key, kind), column in columns.items()
    ]
    return Columns(len(starts), key_columns, problems)


class _Column:
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.ends: list[int] = []
        self.values: list[Any] = []


class _Record:
    """The features and problems of a record."""

    def __init__(self, data: Bytes, row: int) -> None:
        self.features: dict[bytes, tuple[ListKind, list[Any]]] = {}
        self.problems: list[Problem] = []
        self._data = data
        self._row = row

    def read(self, start: int, end: int) -> None:
        """Read the record; raise MalformedError if protobuf rejects it."""
        entries = list(self._read_entries(start, end))
        last = {key: number for number, (key, _) in enumerate(entries)}
        for number, (key, spans) in enumerate(entries):
            is_last = last[key] == number
            kind, values = self._read_feature(key, spans, is_last)
            if is_last:
                self.features[key] = kind, values

    def _add_problem(self, code: ProblemCode, key: bytes | None = None) -> None:
        self.problems.append(Problem(self._row, code, key))

    def _read_entries(self, start: int, end: int) -> Iterator[tuple[bytes, list[tuple[int, int]]]]:
        seen: set[bytes] = set()
        for field in read_fields(self._data, start, end):
            if (field.number, field.wire) == (1, _LENGTH):
                for entry in read_fields(self._data, field.start, field.end):
                    if (entry.number, entry.wire) != (1, _LENGTH):
                        self._add_problem(ProblemCode.UNUSUAL)
                        continue
                    key, spans = self._read_entry(entry)
                    if key in seen:
                        self._add_problem(ProblemCode.REPEATED_KEY, key)
                    seen.add(key)
                    yield key, spans
            elif (field.number, field.wire) == (2, _LENGTH):
                self._add_problem(ProblemCode.SEQUENCE_EXAMPLE)
            else:
                self._add_problem(ProblemCode.UNUSUAL)

    def _read_entry(self, entry: Field) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the key of a map entry, and the spans of its value, usually a single one."""
        keys, spans, unknown = [b""], [], 0
        for field in read_fields(self._data, entry.start, entry.end):
            if (field.number, field.wire) == (1, _LENGTH):
                keys.append(bytes(self._data[field.start : field.end]))
            elif (field.number, field.wire) == (2, _LENGTH):
                spans.append((field.start, field.end))
            else:
                unknown += 1
        try:
            keys[-1].decode()  # protobuf requires UTF-8
        except UnicodeDecodeError:
            raise MalformedError from None
        if (len(keys), len(spans), unknown) != (2, 1, 0):
            self._add_problem(ProblemCode.UNUSUAL, keys[-1])
        return keys[-1], spans

    def _read_feature(
        self, key: bytes, spans: list[tuple[int, int]], is_last: bool
    ) -> tuple[ListKind, list[Any]]:
        kind, values, lists = ListKind.NONE, list[Any](), 0
        is_plain = True
        for span in spans:
            for field in read_fields(self._data, *span):
                if field.wire != _LENGTH or field.number > ListKind.INT64:
                    is_plain = False
                    continue
                lists += 1
                if field.number != kind:
                    kind, values = ListKind(field.number), []
                is_plain &= _read_list(self._data, field, kind, values)
        if is_last and not is_plain:
            self._add_problem(ProblemCode.UNUSUAL, key)
        if is_last and lists > 1:
            self._add_problem(ProblemCode.SEVERAL_LISTS, key)
        return kind, values


def _read_list(data: Bytes, part: Field, kind: ListKind, values: list[Any]) -> bool:
    """Append the values of a list; return whether TensorFlow's fast parser reads the same."""
    is_plain, count, packed = True, 0, 0
    for field in read_fields(data, part.start, part.end):
        count += 1
        _, wire, start, end = field
        if field.number != 1:
            is_plain = False
        elif kind is ListKind.BYTES and wire == _LENGTH:
            values.append((start, end - start))
        elif kind is ListKind.FLOAT and wire in (_LENGTH, _FIXED32):
            if (end - start) % 4:
                raise MalformedError
            packed += wire == _LENGTH
            values.extend(np.frombuffer(data[start:end], "<f4"))
        elif kind is ListKind.INT64 and wire in (_LENGTH, _VARINT):
            packed += wire == _LENGTH
            while start < end:
                value, start = _varint(data, start, end)
                values.append(value - (1 << 64) if value >> 63 else value)
        else:
            is_plain = False
    return is_plain and (not packed or count == 1)


def _slice_spans(buffer: Bytes, spans: np.ndarray) -> Iterator[bytes]:
    data = as_array(buffer).data
    for start, length in spans.tolist():
        is_inside = 0 <= start <= start + length <= len(data)
        yield bytes(data[start : start + length]) if is_inside else b""


# Spans are starts and lengths of byte strings, int64 (n, 2). A span beyond the buffer is empty.


def hash_spans(buffer: Bytes, spans: np.ndarray) -> np.ndarray:
    """Return 64-bit hashes of spans, uint64 of shape (n,), which are the same in every process.

    The upper half is the CRC-32C, the lower half the CRC-32, whose polynomial has no common factor
    with it. From 512 bytes on, the lower half is 32 bits of the sum of all words of eight bytes,
    which is three times as fast. Empty spans have the hash 0. Among datasets of 10 million images,
    one in 400,000 has a collision. A cryptographic hash would take ten times as long.
    """
    return np.array([_hash(part) for part in _slice_spans(buffer, spans)], np.uint64)


def _hash(part: bytes) -> int:
    if len(part) < _LONG:
        second = zlib.crc32(part)
    else:
        words = np.frombuffer(part + bytes(-len(part) % 8), "<u8")
        second = int(words.sum(dtype=np.uint64)) * _MULTIPLIER % (1 << 64) >> 32
    return crc32c(part) << 32 | second


def code_spans(buffer: Bytes, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct byte strings, in the order of their first occurrence.

    Return the code of each span, intp of shape (n,), and the first span of each code, intp.
    """
    numbers: dict[bytes, int] = {}
    codes = [numbers.setdefault(part, len(numbers)) for part in _slice_spans(buffer, spans)]
    return np.array(codes, np.intp), np.unique(np.array(codes, np.intp), return_index=True)[1]


def gather_spans(buffer: Bytes, spans: np.ndarray, separator: bytes = b"") -> bytes:
    """Join the bytes of spans, with a separator of at most one byte."""
    return separator.join(_slice_spans(buffer, spans))


def copy_spans(buffer: Bytes, spans: np.ndarray, out: np.ndarray) -> None:
    """Join the bytes of spans in ``out``; raise ValueError unless it has the same length."""
    joined = gather_spans(buffer, spans)
    if len(joined) != len(out):
        raise ValueError(f"the spans have {len(joined)} bytes, but the output has {len(out)}")
    out[:] = np.frombuffer(joined, np.uint8)
