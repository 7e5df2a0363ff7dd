"""One record of a batch by its feature keys, and the encoder of a ``tf.train.Example``.

An Example is a map from key to Feature; a Feature is one list of bytes, float or int64.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tfod.errors import RecordError
from tfod.example.example_batch import Column, ExampleBatch, bytes_of
from tfod.example.wire import Kind, encode_varint
from tfod.tfrecord.reader import Record, RecordBatch

_FLOAT32 = np.dtype("<f4")


class Example:
    """The features of one record: a row of an :class:`~tfod.example.example_batch.ExampleBatch`.

    Raises:
        RecordError: the record is not a ``tf.train.Example``.
    """

    __slots__ = ("_columns", "batch", "row")

    def __init__(self, batch: ExampleBatch, row: int) -> None:
        refusal = batch.refusal(row)
        if refusal is not None:
            raise refusal
        self.batch = batch
        self.row = row
        self._columns: dict[str, Column] | None = None

    @classmethod
    def of(cls, record: Record, shard: str) -> Example:
        """View one record by itself; many are read faster as a batch."""
        return cls(ExampleBatch.of(RecordBatch.of(record, shard)), 0)

    @classmethod
    def rows_of(cls, batch: ExampleBatch) -> Iterator[Example]:
        """The records of a batch one by one.

        Raises:
            RecordError: one is not a ``tf.train.Example``.
        """
        return (cls(batch, row) for row in range(len(batch)))

    @classmethod
    def from_bytes(cls, payload: bytes, shard: str = "<bytes>") -> Example:
        """View a payload that was read some other way."""
        return cls.of(Record(0, 0, bytearray(payload), 0, len(payload)), shard)

    @property
    def record(self) -> Record:
        """The record itself."""
        return self.batch.records.record(self.row)

    @property
    def shard(self) -> str:
        """The shard, as errors name it."""
        return self.batch.records.shard

    @property
    def buffer(self) -> bytearray:
        """Holds the byte strings."""
        return self.batch.buffer

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns in which this record has a list, or a feature without one, by key."""
        if self._columns is None:
            self._columns = {one.key: one for one in self.batch.columns_in(self.row)}
        return self._columns

    def __contains__(self, key: str) -> bool:
        return key in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def error(self, cause: str, *, feature: str | None = None, fix: str = "") -> RecordError:
        """An error that names this record."""
        return self.batch.error(self.row, cause, feature=feature, fix=fix)

    def kind(self, key: str) -> Kind | None:
        """Which list the feature holds; None when the key is absent or holds no list at all."""
        found = self.columns.get(key)
        return found.kind if found else None

    def floats(self, key: str) -> np.ndarray:
        """A float_list, shape (n,), float32; empty when the key is absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        return self._values(key, Kind.FLOAT)

    def ints(self, key: str) -> list[int]:
        """An int64_list; empty when the key is absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        found: list[int] = self._values(key, Kind.INT64).tolist()
        return found

    def byte_strings(self, key: str) -> list[bytes]:
        """The values of a bytes_list, copied; empty when the key is absent.

        Raises:
            RecordError: the feature holds another kind of list.
        """
        return bytes_of(self.buffer, self._values(key, Kind.BYTES))

    def value_count(self, key: str) -> int:
        """How many values a feature's list holds."""
        found = self.columns.get(key)
        return len(found[self.row]) if found else 0

    def _values(self, key: str, wanted: Kind) -> np.ndarray:
        """A feature's values; an empty list of any kind is no value."""
        found = self.columns.get(key)
        if found is None:
            return Column.empty(key, wanted, 1).values
        values = found[self.row]
        if found.kind is wanted:
            return values
        if len(values):
            raise self.error(
                f"is {found.kind.value if found.kind else 'nothing'}, expected {wanted.value}",
                feature=key,
                fix="write the shard again with the right type",
            )
        return Column.empty(key, wanted, 1).values


def bytes_feature(values: Iterable[bytes]) -> bytes:
    """Encode a Feature that holds a bytes_list."""
    values = list(values)
    if len(values) == 1:
        return one_bytes_feature(values[0])
    parts = [part for v in values for part in (b"\n", encode_varint(len(v)), v)]
    return b"".join((b"\x0a", encode_varint(sum(map(len, parts))), *parts))


def one_bytes_feature(value: bytes) -> bytes:
    """Encode a Feature that holds a bytes_list of one byte string."""
    return _feature_head(b"\x0a", len(value)) + value


def text_feature(values: Iterable[str]) -> bytes:
    """Encode a Feature that holds a bytes_list of texts that recur, such as class names."""
    entries = b"".join(map(_text_entry, values))
    return b"\x0a" + encode_varint(len(entries)) + entries


@functools.lru_cache(4096)
def _text_entry(text: str) -> bytes:
    value = text.encode()
    return b"\n" + encode_varint(len(value)) + value


def float_feature(values: Sequence[float] | np.ndarray) -> bytes:
    """Encode a Feature that holds a float_list; the values are rounded to float32."""
    numbers = np.asarray(values, _FLOAT32).tobytes()
    return _feature_head(b"\x12", len(numbers)) + numbers if numbers else b"\x12\0"


def float_features(rows: np.ndarray) -> list[bytes]:
    """Encode a Feature for each row of numbers, of shape (features, n); n is not 0."""
    numbers = np.asarray(rows, _FLOAT32).tobytes()
    length = len(numbers) // len(rows)
    head = _feature_head(b"\x12", length)
    return [head + numbers[start : start + length] for start in range(0, len(numbers), length)]


def int64_feature(values: Iterable[int]) -> bytes:
    """Encode a Feature that holds an int64_list.

    Raises:
        OverflowError: a value needs more than 64 bits.
    """
    values = list(values)
    try:
        numbers = bytes(values)  # ids and flags: a byte each
    except ValueError:
        numbers = b"\x80"
    if not numbers.isascii():
        numbers = b"".join(map(_int64_varint, values))
    return _feature_head(b"\x1a", len(numbers)) + numbers if numbers else b"\x1a\0"


def _int64_varint(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} does not fit into an int64_list")
    return encode_varint(value & 0xFFFFFFFFFFFFFFFF)


@functools.lru_cache(4096)
def _feature_head(tag: bytes, length: int) -> bytes:
    """A feature up to its one byte string, or its numbers, of so many bytes."""
    head = b"\n" + encode_varint(length)
    return tag + encode_varint(len(head) + length) + head


def encode_example(features: Mapping[str, bytes]) -> bytes:
    """Encode an Example from features that ``bytes_feature`` and its siblings have encoded.

    Keys are written in the mapping's order, so that equal input gives equal bytes.
    """
    parts: list[bytes] = []
    for key, feature in features.items():
        parts += _entry_head(key, len(feature)), feature
    return b"".join((b"\n", encode_varint(sum(map(len, parts))), *parts))


def encode_entry(key: str, feature: bytes) -> bytes:
    """Encode one entry of an Example's map, as :func:`encode_example` joins them."""
    return _entry_head(key, len(feature)) + feature


@functools.lru_cache(4096)
def _entry_head(key: str, length: int) -> bytes:
    """A map entry up to its value, a feature of so many bytes."""
    name = key.encode()
    entry = b"\n" + encode_varint(len(name)) + name + b"\x12" + encode_varint(length)
    return b"\n" + encode_varint(len(entry) + length) + entry
