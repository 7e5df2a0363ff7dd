"""The view of a ``tf.train.Example``, and its encoder.

An Example is a map from key to Feature; a Feature is one list of bytes, float or int64. The view
finds where each Feature lies and decodes a list only when asked; it copies nothing but keys and
what is asked for.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tfod.errors import RecordError
from tfod.example.wire import (
    BYTES_TAG,
    INT64_TAG,
    Buffer,
    FeatureSpan,
    Kind,
    NotAnExampleError,
    decode_floats,
    decode_ints,
    decode_spans,
    encode_varint,
    find_features,
    find_list,
    float_bytes,
)
from tfod.tfrecord.records import Record

_Decoded = TypeVar("_Decoded")
_SMALL = 1 << 13
_SHORT = 128
_NOWHERE: FeatureSpan = (0, 0, 0)
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


class Example:
    """The features of one record, undecoded.

    Raises:
        RecordError: the payload is not a ``tf.train.Example``.
    """

    __slots__ = ("_own_keys", "_spans", "_start", "buffer", "record", "shard")

    def __init__(self, record: Record, shard: str) -> None:
        self.record = record
        self.shard = shard
        self._own_keys: Mapping[str, str] = {}
        self.buffer: Buffer = record.buffer
        self._start = record.start
        if record.length <= _SMALL:
            # Bytes of its own are quicker to cut up than a piece of the reader's buffer.
            self.buffer, self._start = bytes(record.payload), 0
        try:
            self._spans, _ = find_features(self.buffer, self._start, self._start + record.length)
        except (NotAnExampleError, IndexError) as error:
            raise self.error(f"the record is no tf.train.Example ({error})") from None

    @classmethod
    def from_bytes(cls, payload: bytes, shard: str = "<bytes>") -> Example:
        """View a payload that was read some other way."""
        return cls(Record(0, 0, bytearray(payload), 0, len(payload)), shard)

    def renamed(self, names: Mapping[str, str], hidden: Collection[str] = ()) -> Example:
        """The same record with some features under other keys, and some left out.

        Args:
            names: the new key of each feature that gets one, to the key that it has. The feature
                that has the new key already is left out.
            hidden: further keys that are left out.

        Errors of the new Example name a feature by the key that the record has.
        """
        other = copy.copy(self)
        gone = {key.encode() for key in (*names, *names.values(), *hidden)}
        other._spans = {key: span for key, span in self._spans.items() if key not in gone}
        for new, own in names.items():
            if own in self:
                other._spans[new.encode()] = self._spans[own.encode()]
        other._own_keys = dict(names)
        return other

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
            feature=self._own_keys.get(feature, feature) if feature else None,
            remedy=remedy,
        )

    def kind(self, key: str) -> Kind | None:
        """Which list the feature holds; None when the key is absent or holds no list at all."""
        span = self._spans.get(key.encode())
        try:
            return find_list(self.buffer, span)[0] if span else None
        except (NotAnExampleError, IndexError) as error:
            raise self.error(f"cannot be decoded ({error})", feature=key) from None

    def floats(self, key: str) -> np.ndarray:
        """A float_list, shape (n,), float32; empty when the key is absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        return self._decoded(key, Kind.FLOAT, decode_floats)

    def float_rows(self, keys: Sequence[str]) -> np.ndarray | None:
        """Several float_lists of one length, shape (keys, n), float32; None when they differ.

        Raises:
            RecordError: a feature holds another kind of list.
        """
        runs = [self._decoded(key, Kind.FLOAT, float_bytes) for key in keys]
        if len({len(run) for run in runs}) > 1:
            return None
        return np.frombuffer(b"".join(runs), "<f4").reshape(len(runs), -1)

    def ints(self, key: str) -> list[int]:
        """An int64_list; empty when the key is absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        raw = self._raw(key, INT64_TAG)
        known = _known_ints.get(raw)
        if known is None:
            known = tuple(self._decoded(key, Kind.INT64, decode_ints))
            _remember(_known_ints, raw, known)
        return list(known)

    def texts(self, key: str) -> list[str]:
        """A bytes_list of names that recur from record to record, as UTF-8 texts.

        Raises:
            RecordError: the feature holds another kind of list.
            UnicodeDecodeError: a value is not UTF-8.
        """
        raw = self._raw(key, BYTES_TAG)
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
        return self._decoded(key, Kind.BYTES, decode_spans)

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

    def _raw(self, key: str, tag: int) -> bytes:
        """The bytes of a feature's list of this kind when they are few, else nothing."""
        found, start, end = self._spans.get(key.encode(), _NOWHERE)
        return bytes(self.buffer[start:end]) if found == tag and end - start <= _SHORT else b""

    def _decoded(
        self,
        key: str,
        wanted: Kind,
        decode: Callable[[Buffer, Sequence[tuple[int, int]]], _Decoded],
    ) -> _Decoded:
        """Decode a feature's list; all that can go wrong is told with the feature's name."""
        span = self._spans.get(key.encode())
        try:
            kind, parts = find_list(self.buffer, span) if span else (None, ())
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


def bytes_feature(values: Iterable[bytes]) -> bytes:
    """Encode a Feature that holds a bytes_list."""
    return _feature(
        b"\x0a", b"".join([part for v in values for part in (b"\n", encode_varint(len(v)), v)])
    )


def text_feature(values: Iterable[str]) -> bytes:
    """Encode a Feature that holds a bytes_list of texts that recur, such as class names."""
    return _feature(b"\x0a", b"".join(map(_text_entry, values)))


@functools.lru_cache(4096)
def _text_entry(text: str) -> bytes:
    value = text.encode()
    return b"\n" + encode_varint(len(value)) + value


def float_feature(values: Sequence[float] | np.ndarray) -> bytes:
    """Encode a Feature that holds a float_list; the values are rounded to float32."""
    return _feature(b"\x12", _packed_field(np.asarray(values, "<f4").tobytes()))


def int64_feature(values: Iterable[int]) -> bytes:
    """Encode a Feature that holds an int64_list.

    Raises:
        OverflowError: a value needs more than 64 bits.
    """
    values = list(values)
    if values and min(values) >= 0 and max(values) < 0x80:  # ids and flags: a byte each
        return _feature(b"\x1a", _packed_field(bytes(values)))
    parts = []
    for value in values:
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(f"{value} does not fit into an int64_list")
        parts.append(encode_varint(value & 0xFFFFFFFFFFFFFFFF))
    return _feature(b"\x1a", _packed_field(b"".join(parts)))


def _packed_field(numbers: bytes) -> bytes:
    return b"\n" + encode_varint(len(numbers)) + numbers if numbers else b""


def _feature(tag: bytes, content: bytes) -> bytes:
    return tag + encode_varint(len(content)) + content


def encode_example(features: Mapping[str, bytes]) -> bytes:
    """Encode an Example from features that ``bytes_feature`` and its siblings have encoded.

    Keys are written in the mapping's order, so that equal input gives equal bytes.
    """
    parts: list[bytes] = [b""]
    for key, feature in features.items():
        length = len(feature)
        # Pictures have all lengths, and would drive the short ones out of the memory.
        head = _known_head(key, length) if length < _RECURRING else _entry_head(key, length)
        parts += (head, feature)
    parts[0] = b"\n" + encode_varint(sum(map(len, parts)))
    return b"".join(parts)


_RECURRING = 1024


def encode_entry(key: str, feature: bytes) -> bytes:
    """Encode one entry of an Example's map, as :func:`encode_example` joins them."""
    return _entry_head(key, len(feature)) + feature


def _entry_head(key: str, length: int) -> bytes:
    """A map entry up to its value, a feature of so many bytes."""
    name = key.encode()
    entry = b"\n" + encode_varint(len(name)) + name + b"\x12" + encode_varint(length)
    return b"\n" + encode_varint(len(entry) + length) + entry


_known_head = functools.lru_cache(4096)(_entry_head)
