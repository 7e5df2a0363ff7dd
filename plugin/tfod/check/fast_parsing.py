"""How ``tf.io.parse_example`` takes an unusual payload apart, byte by byte.

It is not protobuf: of several lists in one Feature the first counts, what follows a packed run is
not looked at, a length beyond the end is cut, a Feature of a kind that it does not know stops it.
What other writers may spell otherwise is judged as TensorFlow judges it, so that both agree on
which records parse. The usual spelling never comes here.

Source: tensorflow/core/util/example_proto_fast_parsing.cc (2.21), and CodedInputStream of protobuf.
All functions raise :class:`~tfod.example.wire.NotAnExampleError` for what TensorFlow refuses.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfod.detection.schema import FeatureDescription, FeatureSpec
from tfod.example.example import bytes_feature, int64_feature
from tfod.example.wire import (
    BYTES_TAG,
    FLOAT_TAG,
    INT64_TAG,
    Buffer,
    FeatureSpan,
    NotAnExampleError,
    SequenceExampleError,
    encode_varint,
)

NO_LIST = -1
"""In place of a tag: a feature without any list."""
_KEY_TAG, _VALUE_TAG = 0x0A, 0x12
_VALUES_TAG, _SINGLE_INT_TAG, _SINGLE_FLOAT_TAG = 0x0A, 0x08, 0x0D
_SEQUENCE_TAG = 0x12
_INT32_MAX = (1 << 31) - 1
_LONGEST_VARINT = 10


def respelled(
    buffer: Buffer, start: int, end: int, expected: FeatureDescription
) -> tuple[Buffer, dict[bytes, FeatureSpan], list[bytes]]:
    """Take a payload apart as TensorFlow does, and write it anew in the usual spelling.

    Returns:
        A buffer, where each feature's list is in it, and the keys that come more than once.
        Features without a list, and those beyond the description whose list is damaged, have the
        tag ``NO_LIST``.
    """
    entries: dict[bytes, list[tuple[int, int]]] = {}
    for key, first, last in _find_entries(buffer, start, end):
        entries.setdefault(key, []).append((first, last))
    parts: list[bytes] = []
    position = 0
    found: dict[bytes, FeatureSpan] = {}
    for key, spans in entries.items():
        tag, values = _read_entries(buffer, spans, expected.get(key.decode("utf-8", "replace")))
        parts.append(values)
        found[key] = (tag, position, position + len(values))
        position += len(values)
    return b"".join(parts), found, [key for key, spans in entries.items() if len(spans) > 1]


def _read_entries(
    buffer: Buffer, spans: list[tuple[int, int]], spec: FeatureSpec | None
) -> tuple[int, bytes]:
    """The tag of the list that counts, and its values in the usual spelling."""
    if spec is None:
        try:
            return _read_feature(buffer, *spans[-1])
        except NotAnExampleError:
            return NO_LIST, b""
    for first, last in spans:
        if first < last and buffer[first] not in (BYTES_TAG, FLOAT_TAG, INT64_TAG):
            raise NotAnExampleError("a feature is of no known kind")
    first, last = spans[-1]
    if spec.shape is not None:
        # Of a fixed-length feature an empty one does not hide those before it.
        first, last = next((span for span in reversed(spans) if span[0] < span[1]), spans[-1])
    return _read_feature(buffer, first, last)


def _read_feature(buffer: Buffer, start: int, end: int) -> tuple[int, bytes]:
    if start == end:
        return NO_LIST, b""
    tag = buffer[start]
    size, first = _length(buffer, start + 1, end)
    last = min(end, first + size)
    if tag == BYTES_TAG:
        spans = byte_spans(buffer, first, last)
        values = bytes_feature(bytes(buffer[one:other]) for one, other in spans)
    elif tag == FLOAT_TAG:
        numbers = float_bytes(buffer, first, last)
        packed = b"\n" + encode_varint(len(numbers)) + numbers if numbers else b""
        values = b"\x12" + encode_varint(len(packed)) + packed
    elif tag == INT64_TAG:
        values = int64_feature(ints(buffer, first, last))
    else:
        raise NotAnExampleError("a feature is of no known kind")
    return tag, values[_length(values, 1, len(values))[1] :]


def _find_entries(buffer: Buffer, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Key and span of the Feature of each entry of an Example's map."""
    while position < end:
        if buffer[position] == _KEY_TAG:
            size, position = _length(buffer, position + 1, end)
            stop = min(end, position + size)
            while position < stop:
                if buffer[position] != _KEY_TAG:
                    raise NotAnExampleError("its features hold something else than map entries")
                size, position = _length(buffer, position + 1, stop)
                last = min(stop, position + size)
                yield _read_entry(buffer, position, last)
                position = last
        else:
            position = _skip_field(buffer, position, end)


def _read_entry(buffer: Buffer, position: int, end: int) -> tuple[bytes, int, int]:
    """Exactly two fields, in either order."""
    key, span = b"", (end, end)
    for _ in range(2):
        tag, position = _length(buffer, position, end)
        size, position = _length(buffer, position, end)
        if tag not in (_KEY_TAG, _VALUE_TAG) or position + size > end:
            raise NotAnExampleError("a map entry is no pair of key and feature")
        if tag == _KEY_TAG:
            key = bytes(buffer[position : position + size])
        else:
            span = (position, position + size)
        position += size
    if position != end:
        raise NotAnExampleError("a map entry is no pair of key and feature")
    return key, *span


def _skip_field(buffer: Buffer, position: int, end: int) -> int:
    """Pass over a field that an Example does not have; return the position behind it."""
    tag, position = _length(buffer, position, end)
    if tag == _SEQUENCE_TAG:
        raise SequenceExampleError("it has the feature lists of a SequenceExample")
    wire = tag & 7
    if wire == 0:
        return _length(buffer, position, end)[1]
    if wire == 2:
        size, position = _length(buffer, position, end)
        return min(end, position + size) if size <= _INT32_MAX else position
    position += {1: 8, 5: 4}.get(wire, end)
    if position > end:
        raise NotAnExampleError(f"a field of wire type {wire} that does not end or cannot be")
    return position


def byte_spans(buffer: Buffer, position: int, end: int) -> list[tuple[int, int]]:
    """Where the values of a bytes_list lie."""
    found = []
    while position < end:
        if buffer[position] != _VALUES_TAG:
            raise NotAnExampleError("a bytes_list holds something else than bytes")
        size, position = _length(buffer, position + 1, end)
        if position + size > end:
            raise NotAnExampleError("a value reaches beyond its list")
        found.append((position, position + size))
        position += size
    return found


def float_bytes(buffer: Buffer, position: int, end: int) -> bytes:
    """The numbers of a float_list as they lie in memory, little-endian."""
    if position == end:
        return b""
    if buffer[position] == _VALUES_TAG:
        size, first = _length(buffer, position + 1, end)
        last = first + (size & ~3)
        if last > end:
            raise NotAnExampleError("numbers reach beyond their list")
        return bytes(buffer[first:last])
    parts = []
    while position < end:
        if buffer[position] != _SINGLE_FLOAT_TAG or position + 5 > end:
            raise NotAnExampleError("a float_list holds something else than numbers")
        parts.append(bytes(buffer[position + 1 : position + 5]))
        position += 5
    return b"".join(parts)


def ints(buffer: Buffer, position: int, end: int) -> list[int]:
    """The numbers of an int64_list."""
    single = True
    if position < end and buffer[position] == _VALUES_TAG:
        size, position = _length(buffer, position + 1, end)
        end = min(end, position + size)
        single = False
    found = []
    while position < end:
        if single:
            if buffer[position] != _SINGLE_INT_TAG:
                raise NotAnExampleError("an int64_list holds something else than numbers")
            position += 1
        value, position = _varint(buffer, position, end)
        found.append(value - (1 << 64) if value >> 63 else value)
    return found


def _length(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A varint of which 32 bits count, and the position behind it."""
    value, position = _varint(buffer, position, end)
    return value & 0xFFFFFFFF, position


def _varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    result = 0
    for place in range(min(_LONGEST_VARINT, end - position)):
        byte = buffer[position + place]
        result |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position + place + 1
    raise NotAnExampleError("a number or a length has no end")
