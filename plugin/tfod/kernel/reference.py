"""The kernel in Python: slower, and the specification that the compiled one is held against.

What a record holds is what protobuf says it holds: the last of equal keys, the last list of a
feature, lists of one kind joined. Where TensorFlow's fast parser takes the same bytes otherwise
(``tensorflow/core/util/example_proto_fast_parsing.cc``), a problem names row and key.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from tfod.kernel.return_types import (
    LONGEST_RECORD,
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
_DEEPEST = 100  # groups in groups, as protobuf's own limit
_LARGEST_TAG = (1 << 32) - 1
_LONG = 512  # from this length on the second half of a hash is a sum, at the speed of memory
_ODD = 0x9E3779B97F4A7C15


class MalformedError(ValueError):
    """The bytes are not the wire form of a message."""


def find_records(buffer: Bytes, *, longest: int = LONGEST_RECORD) -> FoundRecords:
    """Find the records from the start of a buffer on, and verify their checksums.

    Stops at the first record that is not whole or not sound, and says why. Each byte is looked at
    once at most.

    Args:
        buffer: bytes of a shard; the first one is the first of a record's header.
        longest: a payload of more bytes ends the walk.
    """
    starts, lengths = array("q"), array("q")
    shard = as_array(buffer)
    data, position, count = shard.data, 0, len(shard)
    known = dict[int, int]()  # the checksums of lengths, which recur where records are many
    crc32c, header_at, checksum_at = google_crc32c.value, _HEADER.unpack_from, _CHECKSUM.unpack_from
    while True:
        start = position + HEADER_BYTES
        if start > count:
            end = WalkEnd.BUFFER
            break
        length, stored = header_at(data, position)
        if known.get(length) != stored:
            crc = crc32c(shard[position : position + 8])
            if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != stored:
                end = WalkEnd.LENGTH_CHECKSUM
                break
            known[length] = stored
        if length > longest:
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
    found = (np.array(starts, np.int64), np.array(lengths, np.int64))
    return FoundRecords(*found, position, end)


class Field(NamedTuple):
    """A field of a message: number, wire type, half-open span of the value."""

    number: int
    wire: int
    start: int
    end: int


def _varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for place in range(min(10, end - position)):
        byte = data[position + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + place + 1
    raise MalformedError


def _tag(data: Bytes, position: int, end: int) -> tuple[int, int, int]:
    tag, position = _varint(data, position, end)
    if not 8 <= tag <= _LARGEST_TAG:
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
    opened = [number]
    while opened:
        number, wire, position = _tag(data, position, end)
        if wire == _GROUP and len(opened) < _DEEPEST:
            opened.append(number)
        elif wire == _END_GROUP and number == opened[-1]:
            opened.pop()
        else:
            position = _skip(data, position, end, wire)
    return position


def fields(data: Bytes, position: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[position:end]``; a group is one field.

    Raises:
        MalformedError: protobuf refuses the bytes.
    """
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
    """Parse records to columns, one for each key and kind of list, as they first come.

    What a record holds is what protobuf says; a record that protobuf refuses is a row without
    values and a problem. A span that is not within the buffer is such a row.

    Args:
        buffer: bytes that hold the payloads.
        starts: where each payload starts, int64 of shape (n,).
        lengths: bytes of each payload, int64 of shape (n,).
    """
    data = as_array(buffer).data  # not copied: it may hold a hundred images
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
    found = [
        KeyColumn(
            key,
            kind,
            np.array(one.rows, "<u4"),
            np.array(one.ends, "<u8"),
            kind.as_array(one.values),
        )
        for (key, kind), one in columns.items()
    ]
    return Columns(len(starts), found, problems)


class _Column:
    """The rows that have a feature, for each the end of its values, and all values."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.ends: list[int] = []
        self.values: list[Any] = []


class _Record:
    """One record: what its features hold, and what is to be said of it."""

    def __init__(self, data: Bytes, row: int) -> None:
        self.features: dict[bytes, tuple[ListKind, list[Any]]] = {}
        self.problems: list[Problem] = []
        self._data = data
        self._row = row

    def read(self, start: int, end: int) -> None:
        """Read the record's bytes.

        Raises:
            MalformedError: protobuf refuses them.
        """
        entries = list(self._entries(start, end))
        last = {key: number for number, (key, _) in enumerate(entries)}
        for number, (key, spans) in enumerate(entries):
            counts = last[key] == number
            kind, values = self._feature(key, spans, counts)
            if counts:
                self.features[key] = kind, values

    def _problem(self, code: ProblemCode, key: bytes | None = None) -> None:
        self.problems.append(Problem(self._row, code, key))

    def _entries(self, start: int, end: int) -> Iterator[tuple[bytes, list[tuple[int, int]]]]:
        seen: set[bytes] = set()
        for field in fields(self._data, start, end):
            if (field.number, field.wire) == (1, _LENGTH):
                for entry in fields(self._data, field.start, field.end):
                    if (entry.number, entry.wire) != (1, _LENGTH):
                        self._problem(ProblemCode.UNUSUAL)
                        continue
                    key, spans = self._entry(entry)
                    if key in seen:
                        self._problem(ProblemCode.REPEATED_KEY, key)
                    seen.add(key)
                    yield key, spans
            elif (field.number, field.wire) == (2, _LENGTH):
                self._problem(ProblemCode.SEQUENCE_EXAMPLE)
            else:
                self._problem(ProblemCode.UNUSUAL)

    def _entry(self, entry: Field) -> tuple[bytes, list[tuple[int, int]]]:
        """Key and value of a map entry; a value in several fields is joined."""
        keys, spans, others = [b""], [], 0
        for field in fields(self._data, entry.start, entry.end):
            if (field.number, field.wire) == (1, _LENGTH):
                keys.append(bytes(self._data[field.start : field.end]))
            elif (field.number, field.wire) == (2, _LENGTH):
                spans.append((field.start, field.end))
            else:
                others += 1
        try:
            keys[-1].decode()  # as protobuf's strings
        except UnicodeDecodeError:
            raise MalformedError from None
        if (len(keys), len(spans), others) != (2, 1, 0):
            self._problem(ProblemCode.UNUSUAL, keys[-1])
        return keys[-1], spans

    def _feature(
        self, key: bytes, spans: list[tuple[int, int]], counts: bool
    ) -> tuple[ListKind, list[Any]]:
        kind, values, lists = ListKind.NONE, list[Any](), 0
        plain = True
        for span in spans:
            for field in fields(self._data, *span):
                if field.wire != _LENGTH or field.number > ListKind.INT64:
                    plain = False
                    continue
                lists += 1
                if field.number != kind:
                    kind, values = ListKind(field.number), []
                plain &= _read_list(self._data, field, kind, values)
        if counts and not plain:
            self._problem(ProblemCode.UNUSUAL, key)
        if counts and lists > 1:
            self._problem(ProblemCode.SEVERAL_LISTS, key)
        return kind, values


def _read_list(data: Bytes, part: Field, kind: ListKind, values: list[Any]) -> bool:
    """Append the values of a list; return whether TensorFlow's fast parser reads the same."""
    plain, count, packed = True, 0, 0
    for field in fields(data, part.start, part.end):
        count += 1
        _, wire, start, end = field
        if field.number != 1:
            plain = False
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
            plain = False
    return plain and (not packed or count == 1)


def _parts(buffer: Bytes, spans: np.ndarray) -> Iterator[bytes]:
    data = as_array(buffer).data
    for start, length in spans.tolist():
        sound = 0 <= start <= start + length <= len(data)
        yield bytes(data[start : start + length]) if sound else b""


# In the following ``spans`` are start and length of each, int64 of shape (n, 2); one that is not
# within the buffer is empty.


def hash_spans(buffer: Bytes, spans: np.ndarray) -> np.ndarray:
    """64 bits of each span that are the same in every process, uint64 of shape (n,).

    CRC-32C in the upper half; in the lower CRC-32, whose polynomial has no factor in common with
    that, or of 512 bytes and more 32 bits of the sum of all words of eight bytes, which costs a
    third. An empty span has 0. Of 10 million different images two are taken for the same in one of
    400,000 datasets; a cryptographic hash takes ten times the time.
    """
    return np.array([_hash(part) for part in _parts(buffer, spans)], np.uint64)


def _hash(part: bytes) -> int:
    if len(part) < _LONG:
        second = zlib.crc32(part)
    else:
        words = np.frombuffer(part + bytes(-len(part) % 8), "<u8")
        second = int(words.sum(dtype=np.uint64)) * _ODD % (1 << 64) >> 32
    return int(google_crc32c.value(part)) << 32 | second


def code_spans(buffer: Bytes, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code byte strings as a dictionary, in the order in which they are first seen.

    Returns:
        The code of each span, int64 of shape (n,); and for each code the number of the first span
        that has it, int64 of shape (codes,).
    """
    known: dict[bytes, int] = {}
    codes = [known.setdefault(part, len(known)) for part in _parts(buffer, spans)]
    firsts = np.unique(np.array(codes, np.int64), return_index=True)[1]
    return np.array(codes, np.int64), firsts.astype(np.int64)


def gather_spans(buffer: Bytes, spans: np.ndarray, separator: bytes = b"") -> bytes:
    """The bytes of the spans one behind the other, with a separator (one byte) between them."""
    return separator.join(_parts(buffer, spans))


def copy_spans(buffer: Bytes, spans: np.ndarray, out: np.ndarray) -> None:
    """Write the bytes of the spans, all within the buffer, one behind the other.

    Raises:
        ValueError: ``out``, uint8 of shape (m,), is not of just so many bytes.
    """
    gathered = gather_spans(buffer, spans)
    if len(gathered) != len(out):
        raise ValueError(f"{len(gathered)} bytes do not fit into {len(out)}")
    out[:] = np.frombuffer(gathered, np.uint8)
