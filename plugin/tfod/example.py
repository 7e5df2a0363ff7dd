"""The wire codec of ``tf.train.Example``: a view over a record's bytes, and an encoder.

Source of the layout: tensorflow/core/example/{example,feature}.proto. An Example is a map from
key to Feature; a Feature is one list of bytes, float or int64. The view finds where each Feature
lies and decodes a list only when asked; it copies nothing but keys and what is asked for.

Like protobuf itself it takes what a writer may legally do: fields in any order, a key twice (the
last one counts), packed and unpacked numbers, unknown fields.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from tfod.errors import RecordError
from tfod.records import Record

Buffer: TypeAlias = "bytes | bytearray"
_Spans: TypeAlias = Sequence[tuple[int, int]]
_Decoded = TypeVar("_Decoded")


class Kind(enum.Enum):
    """Which list a Feature holds; the values are the field names of feature.proto."""

    BYTES = "bytes_list"
    FLOAT = "float_list"
    INT64 = "int64_list"


_KIND_OF_TAG = {0x0A: Kind.BYTES, 0x12: Kind.FLOAT, 0x1A: Kind.INT64}
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


_SMALL = 1 << 13
_SHORT = 128
_NOWHERE = (0, 0)
# Sizes, formats and classes recur in record after record: what short lists decode to is kept.
_known_ints: dict[bytes, tuple[int, ...]] = {}
_known_texts: dict[bytes, tuple[str, ...]] = {}
_MOST_KNOWN = 1 << 14
_Value = TypeVar("_Value")


def _remember(known: dict[bytes, _Value], raw: bytes, value: _Value) -> None:
    if raw:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[raw] = value


class NotAnExampleError(ValueError):
    """The bytes are not the wire form of the message that was expected."""


class Example:
    """The features of one record, undecoded.

    Raises:
        RecordError: the payload is not a ``tf.train.Example``.
    """

    __slots__ = ("_spans", "_start", "buffer", "record", "shard")

    def __init__(self, record: Record, shard: str) -> None:
        self.record = record
        self.shard = shard
        self.buffer: Buffer = record.buffer
        self._start = record.start
        if record.length <= _SMALL:
            # Bytes of its own are quicker to cut up than a piece of the reader's buffer.
            self.buffer, self._start = bytes(record.payload), 0
        try:
            self._spans = _find_features(self.buffer, self._start, self._start + record.length)
        except (NotAnExampleError, IndexError) as error:
            raise self.error(f"the record is no tf.train.Example ({error})") from None

    @classmethod
    def from_bytes(cls, payload: bytes, shard: str = "<bytes>") -> Example:
        """View a payload that was read some other way."""
        return cls(Record(0, 0, bytearray(payload), 0, len(payload)), shard)

    def __contains__(self, key: str) -> bool:
        return key.encode() in self._spans

    def __iter__(self) -> Iterator[str]:
        return (key.decode("utf-8", "replace") for key in self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def keys_besides(self, plain: frozenset[bytes]) -> list[str]:
        """The keys that are not among these, in the order of the record."""
        if len(self._spans) <= len(plain) and self._spans.keys() <= plain:
            return []
        return [key.decode("utf-8", "replace") for key in self._spans if key not in plain]

    def error(self, cause: str, *, feature: str | None = None, remedy: str = "") -> RecordError:
        """An error that names this record."""
        return RecordError(
            cause,
            shard=self.shard,
            record=self.record.number,
            offset=self.record.offset,
            feature=feature,
            remedy=remedy,
        )

    def kind(self, key: str) -> Kind | None:
        """Which list the feature holds; None when the key is absent or holds no list at all."""
        span = self._spans.get(key.encode())
        try:
            return _find_list(self.buffer, *span)[0] if span else None
        except (NotAnExampleError, IndexError) as error:
            raise self.error(f"cannot be decoded ({error})", feature=key) from None

    def floats(self, key: str) -> np.ndarray:
        """A float_list, shape (n,), float32; empty when the key is absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        return self._decoded(key, Kind.FLOAT, _decode_floats)

    def float_rows(self, keys: Sequence[str]) -> np.ndarray | None:
        """Several float_lists of one length, shape (keys, n), float32; None when they differ.

        Raises:
            RecordError: a feature holds another kind of list.
        """
        runs = [self._decoded(key, Kind.FLOAT, _float_bytes) for key in keys]
        if len({len(run) for run in runs}) > 1:
            return None
        return np.frombuffer(b"".join(runs), "<f4").reshape(len(runs), -1)

    def ints(self, key: str) -> list[int]:
        """An int64_list; empty when the key is absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        raw = self._raw(key)
        known = _known_ints.get(raw)
        if known is None:
            known = tuple(self._decoded(key, Kind.INT64, _decode_ints))
            _remember(_known_ints, raw, known)
        return list(known)

    def texts(self, key: str) -> list[str]:
        """A bytes_list of names that recur from record to record, as UTF-8 texts.

        Raises:
            RecordError: the feature holds another kind of list.
            UnicodeDecodeError: a value is not UTF-8.
        """
        raw = self._raw(key)
        known = _known_texts.get(raw)
        if known is None:
            known = tuple(value.decode() for value in self.byte_strings(key))
            _remember(_known_texts, raw, known)
        return list(known)

    def byte_spans(self, key: str) -> list[tuple[int, int]]:
        """Where the values of a bytes_list lie in ``buffer``, half-open; empty when absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        return self._decoded(key, Kind.BYTES, _decode_spans)

    def byte_strings(self, key: str) -> list[bytes]:
        """The values of a bytes_list, copied; empty when the key is absent."""
        buffer = self.buffer
        return [bytes(buffer[start:end]) for start, end in self.byte_spans(key)]

    def value_count(self, key: str) -> int:
        """How many values a feature's list holds."""
        kind = self.kind(key)
        if kind is Kind.FLOAT:
            return len(self.floats(key))
        if kind is Kind.INT64:
            return len(self.ints(key))
        return len(self.byte_spans(key)) if kind is Kind.BYTES else 0

    def file_offset(self, position: int) -> int:
        """Byte of the uncompressed shard that lies at a position of ``buffer``."""
        return self.record.payload_offset + position - self._start

    def _raw(self, key: str) -> bytes:
        """A feature's bytes when they are few, else nothing."""
        start, end = self._spans.get(key.encode(), _NOWHERE)
        return bytes(self.buffer[start:end]) if end - start <= _SHORT else b""

    def _decoded(
        self,
        key: str,
        wanted: Kind,
        decode: Callable[[Buffer, Sequence[tuple[int, int]]], _Decoded],
    ) -> _Decoded:
        """Decode a feature's list; all that can go wrong is told with the feature's name."""
        span = self._spans.get(key.encode())
        try:
            kind, parts = _find_list(self.buffer, *span) if span else (None, ())
            if kind is wanted:
                return decode(self.buffer, parts)
        except (NotAnExampleError, IndexError, ValueError) as error:
            raise self.error(f"cannot be decoded ({error})", feature=key) from None
        if any(start < end for start, end in parts):
            raise self.error(
                f"is {kind.value if kind else 'nothing'}, expected {wanted.value}",
                feature=key,
                remedy="write the shard again with the right type",
            )
        return decode(self.buffer, ())  # an empty list of any kind is no value


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


def _fields(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, wire type, and the half-open span of the value."""
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


def _find_features(buffer: Buffer, start: int, end: int) -> dict[bytes, tuple[int, int]]:
    """Map each key to the span of its Feature message."""
    found: dict[bytes, tuple[int, int]] = {}
    for number, wire, first, last in _fields(buffer, start, end):
        if number == 1:
            if wire != _LENGTH:
                raise NotAnExampleError("its features are no message")
            _find_entries(buffer, first, last, found)
        elif number == 2 and wire == _LENGTH:
            raise NotAnExampleError("it has the feature lists of a SequenceExample")
    return found


def _find_entries(
    buffer: Buffer, position: int, end: int, found: dict[bytes, tuple[int, int]]
) -> None:
    # Hot: thirteen entries a record. The usual shape (key, then value, nothing else) is read in
    # line; anything else goes the general way.
    while position < end:
        start = position
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
            key_end + 2 > stop
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
        if position + size != stop:
            position = _find_entry(buffer, start, end, found)
            continue
        found[bytes(buffer[key_start:key_end])] = (position, stop)
        position = stop


def _find_entry(buffer: Buffer, start: int, end: int, found: dict[bytes, tuple[int, int]]) -> int:
    """Read one field of Features in the general way; return the position behind it."""
    number, wire, first, stop = next(_fields(buffer, start, end))
    if number != 1:
        return stop
    if wire != _LENGTH:
        raise NotAnExampleError("a feature is no map entry")
    key, value = b"", (first, first)
    for number, wire, begin, last in _fields(buffer, first, stop):
        if number == 1 and wire == _LENGTH:
            key = bytes(buffer[begin:last])
        elif number == 2 and wire == _LENGTH:
            value = (begin, last)
        elif number in (1, 2):
            raise NotAnExampleError("a map entry of wrong types")
    found[key] = value
    return stop


def _find_list(buffer: Buffer, start: int, end: int) -> tuple[Kind | None, _Spans]:
    """The list message a Feature holds, as one span but for odd writers.

    Of a oneof the last kind counts; equal kinds are merged.
    """
    if start == end:
        return None, ()
    kind = _KIND_OF_TAG.get(buffer[start])
    size = buffer[start + 1]
    first = start + 2
    if size > 0x7F:
        size, first = read_varint(buffer, start + 1)
    if kind is not None and first + size == end:
        return kind, ((first, end),)
    kind = None
    parts: list[tuple[int, int]] = []
    for number, wire, first, last in _fields(buffer, start, end):
        if number > 3:
            continue
        if wire != _LENGTH:
            raise NotAnExampleError("a list is no message")
        now = _KIND_OF_TAG[number << 3 | _LENGTH]
        if now is not kind:
            kind, parts = now, []
        parts.append((first, last))
    return kind, parts


def _decode_spans(buffer: Buffer, parts: _Spans) -> list[tuple[int, int]]:
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


def _decode_spans_generally(buffer: Buffer, parts: _Spans) -> list[tuple[int, int]]:
    return [
        (first, last)
        for start, end in parts
        for number, wire, first, last in _fields(buffer, start, end)
        if number == 1 and wire == _LENGTH
    ]


def _packed(buffer: Buffer, parts: _Spans) -> tuple[int, int] | None:
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


def _float_bytes(buffer: Buffer, parts: _Spans) -> Buffer:
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


def _decode_floats(buffer: Buffer, parts: _Spans) -> np.ndarray:
    return np.frombuffer(_float_bytes(buffer, parts), "<f4")


def _decode_ints(buffer: Buffer, parts: _Spans) -> list[int]:
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


def _number_runs(buffer: Buffer, parts: _Spans, single: int) -> list[tuple[int, int]]:
    """Runs of numbers in any spelling: packed, or one by one with this wire type."""
    return [
        (first, last)
        for start, end in parts
        for number, wire, first, last in _fields(buffer, start, end)
        if number == 1 and wire in (_LENGTH, single)
    ]


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def bytes_feature(values: Iterable[bytes]) -> bytes:
    """Encode a Feature that holds a bytes_list."""
    return _feature(
        b"\x0a", b"".join([part for v in values for part in (b"\n", _varint(len(v)), v)])
    )


def float_feature(values: Sequence[float] | np.ndarray) -> bytes:
    """Encode a Feature that holds a float_list; the values are rounded to float32."""
    return _feature(b"\x12", _packed_field(np.asarray(values, "<f4").tobytes()))


def int64_feature(values: Iterable[int]) -> bytes:
    """Encode a Feature that holds an int64_list.

    Raises:
        OverflowError: a value needs more than 64 bits.
    """
    parts = []
    for value in values:
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(f"{value} does not fit into an int64_list")
        parts.append(_varint(value & 0xFFFFFFFFFFFFFFFF))
    return _feature(b"\x1a", _packed_field(b"".join(parts)))


def _packed_field(numbers: bytes) -> bytes:
    return b"\n" + _varint(len(numbers)) + numbers if numbers else b""


def _feature(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def encode_example(features: Mapping[str, bytes]) -> bytes:
    """Encode an Example from features that ``bytes_feature`` and its siblings have encoded.

    Keys are written in the mapping's order, so that equal input gives equal bytes.
    """
    parts: list[bytes] = [b""]
    total = 0
    for key, feature in features.items():
        head = _entry_head(key) + _varint(len(feature))
        size = _varint(len(head) + len(feature))
        parts += (b"\n", size, head, feature)
        total += 1 + len(size) + len(head) + len(feature)
    parts[0] = b"\n" + _varint(total)
    return b"".join(parts)


@functools.lru_cache(4096)
def _entry_head(key: str) -> bytes:
    """A map entry up to the length of its value: the same for a key in every record."""
    name = key.encode()
    return b"\n" + _varint(len(name)) + name + b"\x12"
