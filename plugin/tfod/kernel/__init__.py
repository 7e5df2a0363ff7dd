"""The kernel: bytes in; spans of records, Examples as columns, and spans hashed or coded, out.

It knows bytes, not meaning, and imports nothing of tfod. It is compiled where it could be built;
elsewhere :mod:`tfod.kernel.lockstep` does the same in Python, slower. What both have to do is
written in :mod:`tfod.kernel.reference`.
"""

from __future__ import annotations

from types import ModuleType
from typing import TypeAlias

import numpy as np

from tfod.kernel.result import (
    Columns,
    FoundRecords,
    KeyColumn,
    ListKind,
    Problem,
    ProblemCode,
    WalkEnd,
)

__all__ = [
    "LONGEST_RECORD",
    "WHY_NOT_COMPILED",
    "Columns",
    "FoundRecords",
    "KeyColumn",
    "ListKind",
    "Problem",
    "ProblemCode",
    "WalkEnd",
    "code_spans",
    "copy_spans",
    "find_records",
    "gather_spans",
    "hash_spans",
    "parse_examples",
]

_kernel: ModuleType
WHY_NOT_COMPILED = ""
"""Why Python does the kernel's work; empty where it is compiled."""
try:
    from tfod.kernel import compiled
except ImportError as error:
    from tfod.kernel import lockstep

    WHY_NOT_COMPILED = str(error)
    _kernel = lockstep
else:
    _kernel = compiled

LONGEST_RECORD = (1 << 62) - 1
"""In place of a limit."""
Bytes: TypeAlias = "bytes | bytearray | memoryview | np.ndarray"


def find_records(buffer: Bytes, *, longest: int = LONGEST_RECORD) -> FoundRecords:
    """Find the records from the start of a buffer on, and verify their checksums.

    Stops at the first record that is not whole or not sound, and says why. Each byte is looked at
    once at most.

    Args:
        buffer: bytes of a shard; the first one is the first of a record's header.
        longest: a payload of more bytes ends the walk.
    """
    found: FoundRecords = _kernel.find_records(_bytes(buffer), longest)
    return found


def parse_examples(buffer: Bytes, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """Parse records to columns, one for each key and kind of list.

    What a record holds is what protobuf says; a record that protobuf refuses is a row without
    values and a problem. A span that is not within the buffer is such a row.

    Args:
        buffer: bytes that hold the payloads.
        starts: where each payload starts, int64 of shape (n,).
        lengths: bytes of each payload, int64 of shape (n,).
    """
    found: Columns = _kernel.parse_examples(_bytes(buffer), starts, lengths)
    return found


def hash_spans(buffer: Bytes, spans: np.ndarray) -> np.ndarray:
    """64 bits of each span that are the same in every process, uint64 of shape (n,).

    CRC-32C in the upper half; in the lower CRC-32, whose polynomial has no factor in common with
    that, or of 512 bytes and more 32 bits of the sum of all words of eight bytes, which costs a
    third. An empty span has 0. Of 10 million different images two are taken for the same in one of
    400,000 datasets; a cryptographic hash takes ten times the time.

    Args:
        buffer: bytes that hold the spans.
        spans: start and length of each, int64 of shape (n, 2); one beyond the buffer is empty.
    """
    found: np.ndarray = _kernel.hash_spans(_bytes(buffer), spans)
    return found


def code_spans(buffer: Bytes, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code byte strings as a dictionary, in the order in which they are first seen.

    Args:
        buffer: bytes that hold the spans.
        spans: start and length of each, int64 of shape (n, 2); one beyond the buffer is empty.

    Returns:
        The code of each span, int64 of shape (n,); and for each code the number of the first span
        that has it, int64 of shape (codes,).
    """
    codes, firsts = _kernel.code_spans(_bytes(buffer), spans)
    return codes, firsts


def gather_spans(buffer: Bytes, spans: np.ndarray, separator: bytes = b"") -> bytes:
    """The bytes of the spans one behind the other, with a separator (of one byte) between them.

    Args:
        buffer: bytes that hold the spans.
        spans: start and length of each, int64 of shape (n, 2); one beyond the buffer is empty.
        separator: one byte, or none.
    """
    found: bytes = _kernel.gather_spans(_bytes(buffer), spans, separator)
    return found


def copy_spans(buffer: Bytes, spans: np.ndarray, out: np.ndarray) -> None:
    """Write the bytes of the spans one behind the other.

    Args:
        buffer: bytes that hold the spans.
        spans: start and length of each, int64 of shape (n, 2), within the buffer.
        out: where to, uint8 of shape (m,), of just so many bytes.

    Raises:
        ValueError: it is not of just so many bytes.
    """
    _kernel.copy_spans(_bytes(buffer), spans, out)


def _bytes(buffer: Bytes) -> np.ndarray:
    """The same as uint8 of shape (n,), not copied."""
    return np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)
