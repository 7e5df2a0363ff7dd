"""A single record of a batch by its feature keys, and the encoder of a ``tf.train.Example``.

An Example maps keys to Features; a Feature is one list of bytes, float or int64.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tfod.errors import RecordError
from tfod.example.example_batch import Column, ExampleBatch, copy_bytes
from tfod.example.wire import Kind, encode_varint
from tfod.tfrecord.reader import Record, RecordBatch

_FLOAT32 = np.dtype("<f4")


class Example:
    """One row of an :class:`ExampleBatch`; RecordError if it is not a ``tf.train.Example``."""

    __slots__ = ("_columns", "batch", "row")

    def __init__(self, batch: ExampleBatch, row: int) -> None:
        error = batch.parse_error(row)
        if error is not None:
            raise error
        self.batch = batch
        self.row = row
        self._columns: dict[str, Column] | None = None

    @classmethod
    def of(cls, record: Record, shard: str) -> Example:
        """View a single record. For many records, a batch is faster."""
        return cls(ExampleBatch.of(RecordBatch.from_record(record, shard)), 0)

    @classmethod
    def iter_rows(cls, batch: ExampleBatch) -> Iterator[Example]:
        """Yield the records of a batch; RecordError if one is not a ``tf.train.Example``."""
        return (cls(batch, row) for row in range(len(batch)))

    @classmethod
    def from_bytes(cls, payload: bytes, shard: str = "<bytes>") -> Example:
        """View a payload that was not read from a shard."""
        return cls.of(Record(0, 0, bytearray(payload), 0, len(payload)), shard)

    @property
    def record(self) -> Record:
        """The underlying record."""
        return self.batch.records.record(self.row)

    @property
    def shard(self) -> str:
        """The name of the shard, as in errors."""
        return self.batch.records.shard

    @property
    def buffer(self) -> bytearray:
        """The buffer that contains the byte strings."""
        return self.batch.buffer

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns with an entry for this record, by key; a feature without a list counts."""
        if self._columns is None:
            self._columns = {column.key: column for column in self.batch.columns_in(self.row)}
        return self._columns

    def __contains__(self, key: str) -> bool:
        return key in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def error(self, cause: str, *, feature: str | None = None, fix: str = "") -> RecordError:
        """Return an error that names this record."""
        return self.batch.error(self.row, cause, feature=feature, fix=fix)

    def kind(self, key: str) -> Kind | None:
        """Return the kind of list of a feature; None if the key is missing or has no list."""
        column = self.columns.get(key)
        return column.kind if column else None

    def floats(self, key: str) -> np.ndarray:
        """Return a float_list as float32, empty if missing; RecordError if the type is wrong."""
        return self._values(key, Kind.FLOAT)

    def ints(self, key: str) -> list[int]:
        """Return an int64_list, empty if missing; RecordError if the type is wrong."""
        values: list[int] = self._values(key, Kind.INT64).tolist()
        return values

    def byte_strings(self, key: str) -> list[bytes]:
        """Return a copied bytes_list, empty if missing; RecordError if the type is wrong."""
        return copy_bytes(self.buffer, self._values(key, Kind.BYTES))

    def value_count(self, key: str) -> int:
        """Return the number of values of a feature; 0 if the key is missing."""
        column = self.columns.get(key)
        return len(column[self.row]) if column else 0

    def _values(self, key: str, expected: Kind) -> np.ndarray:
        column = self.columns.get(key)
        if column is None:
            return Column.empty(key, expected, 1).values
        values = column[self.row]
        if column.kind is expected:
            return values
        if len(values):
            raise self.error(
                f"is {column.kind.value if column.kind else 'nothing'}, expected {expected.value}",
                feature=key,
                fix="write the shard again with the right type",
            )
        return Column.empty(key, expected, 1).values


def bytes_feature(values: Iterable[bytes]) -> bytes:
    """Encode a Feature that holds a bytes_list."""
    values = list(values)
    if len(values) == 1:
        return one_bytes_feature(values[0])
    parts = [part for value in values for part in (b"\n", encode_varint(len(value)), value)]
    return b"".join((b"\x0a", encode_varint(sum(map(len, parts))), *parts))


def one_bytes_feature(value: bytes) -> bytes:
    """Encode a Feature that holds a bytes_list of a single byte string."""
    return _feature_head(b"\x0a", len(value)) + value


def text_feature(values: Iterable[str]) -> bytes:
    """Encode a Feature that holds a bytes_list of recurring texts, such as class names."""
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
    """Encode one Feature per row of numbers, of shape (features, n) with n > 0."""
    numbers = np.asarray(rows, _FLOAT32).tobytes()
    length = len(numbers) // len(rows)
    head = _feature_head(b"\x12", length)
    return [head + numbers[start : start + length] for start in range(0, len(numbers), length)]


def int64_feature(values: Iterable[int]) -> bytes:
    """Encode a Feature that holds an int64_list; OverflowError above 64 bits."""
    values = list(values)
    try:
        numbers = bytes(values)  # usually one byte each: ids and flags
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
    """Encode a feature up to its only byte string or its numbers, which take ``length`` bytes."""
    head = b"\n" + encode_varint(length)
    return tag + encode_varint(len(head) + length) + head


def encode_example(features: Mapping[str, bytes]) -> bytes:
    """Encode an Example from encoded features, in the order of the mapping."""
    parts: list[bytes] = []
    for key, feature in features.items():
        parts += _entry_head(key, len(feature)), feature
    return b"".join((b"\n", encode_varint(sum(map(len, parts))), *parts))


def encode_entry(key: str, feature: bytes) -> bytes:
    """Encode one map entry of an Example; :func:`encode_example` joins such entries."""
    return _entry_head(key, len(feature)) + feature


@functools.lru_cache(4096)
def _entry_head(key: str, length: int) -> bytes:
    """Encode a map entry up to its feature, which takes ``length`` bytes."""
    name = key.encode()
    entry = b"\n" + encode_varint(len(name)) + name + b"\x12" + encode_varint(length)
    return b"\n" + encode_varint(len(entry) + length) + entry
