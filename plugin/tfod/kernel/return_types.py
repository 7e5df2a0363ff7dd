"""What the kernel hands out: spans of records, columns of Examples, problems with their rows."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

LONGEST_RECORD = (1 << 62) - 1
"""In place of a limit."""
Bytes: TypeAlias = "bytes | bytearray | memoryview | np.ndarray"


def as_array(buffer: Bytes) -> np.ndarray:
    """The same as uint8 of shape (n,), not copied."""
    return np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)


class WalkEnd(enum.IntEnum):
    """Why a walk over records ended."""

    BUFFER = 0
    """The buffer ends, at a record's end or inside a record."""
    FULL = 1
    """The caller's arrays are full; only inside the kernel."""
    LENGTH_CHECKSUM = 2
    """The checksum of a length is wrong."""
    DATA_CHECKSUM = 3
    """The checksum of a record's data is wrong."""
    TOO_LONG = 4
    """A length is above the limit."""


class ListKind(enum.IntEnum):
    """Which list a feature holds: the field numbers of ``Feature`` in feature.proto."""

    NONE = 0
    BYTES = 1
    FLOAT = 2
    INT64 = 3

    def as_array(self, values: Sequence[Any]) -> np.ndarray:
        """Values as :attr:`KeyColumn.values` has them."""
        found = np.array(values, "<f4" if self is ListKind.FLOAT else "<i8")
        return found.reshape(-1, 2) if self is ListKind.BYTES else found


class ProblemCode(enum.IntEnum):
    """What is to be said of a row, or of one feature in it."""

    MALFORMED = 1
    """protobuf refuses the record: the row has no values."""
    SEQUENCE_EXAMPLE = 2
    """It has the feature lists of a SequenceExample, which TensorFlow refuses."""
    REPEATED_KEY = 3
    """A key comes more than once: the last one counts."""
    SEVERAL_LISTS = 4
    """A feature has lists of several kinds, or one kind twice."""
    UNUSUAL = 5
    """Fields that are unknown or of another wire type, or numbers spelled in two ways."""


class FoundRecords(NamedTuple):
    """Records in a buffer.

    Attributes:
        starts, lengths: of the payloads in bytes, int64 of shape (n,).
        position: where the walk ended: at the header of the record that was not taken.
        end: why it ended.
    """

    starts: np.ndarray
    lengths: np.ndarray
    position: int
    end: WalkEnd


class KeyColumn(NamedTuple):
    """The values of one key and kind of list.

    Attributes:
        key: in UTF-8.
        kind: of the lists.
        rows: the rows that have such a list, ascending, uint32 of shape (r,).
        ends: for each of them how many values there are up to its end, uint64 of shape (r,).
        values: float32 or int64 of shape (n,); of bytes start and length in the buffer, int64 of
            shape (n, 2).
    """

    key: bytes
    kind: ListKind
    rows: np.ndarray
    ends: np.ndarray
    values: np.ndarray


class Problem(NamedTuple):
    """Something to be said of a row; ``key`` is None where no feature is concerned."""

    row: int
    code: ProblemCode
    key: bytes | None


class Columns(NamedTuple):
    """The columns of a batch of records as they first come in it, and its problems row by row."""

    rows: int
    columns: Sequence[KeyColumn]
    problems: Sequence[Problem]
