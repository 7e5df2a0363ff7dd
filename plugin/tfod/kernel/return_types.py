"""The return types of the kernel: spans of records, columns of Examples, and problems."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

MAX_PAYLOAD_BYTES = (1 << 62) - 1
"""The default limit, which no real record reaches."""
Bytes: TypeAlias = "bytes | bytearray | memoryview | np.ndarray"


def as_array(buffer: Bytes) -> np.ndarray:
    """Return a view of the buffer as uint8 of shape (n,)."""
    return np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)


class WalkEnd(enum.IntEnum):
    """The reason why a walk over records ended."""

    BUFFER = 0
    """The buffer ends, after or inside a record."""
    FULL = 1
    """The arrays of the caller are full; only used inside the kernel."""
    LENGTH_CHECKSUM = 2
    """The checksum of a length is wrong."""
    DATA_CHECKSUM = 3
    """The checksum of a record's data is wrong."""
    TOO_LONG = 4
    """A length is above the limit."""


class ListKind(enum.IntEnum):
    """The type of list in a feature: the field numbers of ``Feature`` in feature.proto."""

    NONE = 0
    BYTES = 1
    FLOAT = 2
    INT64 = 3

    def as_array(self, values: Sequence[Any]) -> np.ndarray:
        """Convert values to an array for :attr:`KeyColumn.values`."""
        array = np.array(values, "<f4" if self is ListKind.FLOAT else "<i8")
        return array.reshape(-1, 2) if self is ListKind.BYTES else array


class ProblemCode(enum.IntEnum):
    """The problems of a row, or of a feature in it."""

    MALFORMED = 1
    """protobuf rejects the record, so the row has no values."""
    SEQUENCE_EXAMPLE = 2
    """The record has the feature lists of a SequenceExample, which TensorFlow rejects."""
    REPEATED_KEY = 3
    """A key occurs several times; the last one counts."""
    SEVERAL_LISTS = 4
    """A feature has several lists, of the same or of different kinds."""
    UNUSUAL = 5
    """There are unknown fields, wrong wire types, or numbers both packed and unpacked."""


class FoundRecords(NamedTuple):
    """The records in a buffer.

    Attributes:
        starts, lengths: spans of the payloads in bytes, int64 of shape (n,).
        position: end of the walk: the header of the first record that was not read.
        end: reason why the walk ended.
    """

    starts: np.ndarray
    lengths: np.ndarray
    position: int
    end: WalkEnd


class KeyColumn(NamedTuple):
    """The values of a key and kind of list, as a ragged column.

    Attributes:
        key: feature key in UTF-8.
        rows: ascending numbers of the rows with such a list, uint32 of shape (r,).
        ends: end of each row's values in ``values``, uint64 of shape (r,).
        values: float32 or int64 of shape (n,); for bytes, spans in the buffer, int64 (n, 2).
    """

    key: bytes
    kind: ListKind
    rows: np.ndarray
    ends: np.ndarray
    values: np.ndarray


class Problem(NamedTuple):
    """A problem of a row; ``key`` is None if the problem is not about a feature."""

    row: int
    code: ProblemCode
    key: bytes | None


class Columns(NamedTuple):
    """The columns of a batch of records, ordered by first occurrence, and problems by row."""

    rows: int
    columns: Sequence[KeyColumn]
    problems: Sequence[Problem]
