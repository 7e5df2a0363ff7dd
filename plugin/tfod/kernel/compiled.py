"""The functions of the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfod.kernel.library import LIBRARY
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

_KINDS = tuple(ListKind)
_COLUMN_WORDS, _PROBLEM_WORDS = 8, 4  # see src/columns.rs
_NO_SEPARATOR = 256


def _call(name: str, *arguments: np.ndarray | int, outputs: tuple[np.ndarray, ...] = ()) -> int:
    result = LIBRARY(name, *arguments, outputs=outputs)
    if result is None:
        raise RuntimeError("a bug in the compiled kernel of tfod; TFOD_KERNEL=0 disables it")
    return result


def find_records(buffer: Bytes, *, max_length: int = MAX_PAYLOAD_BYTES) -> FoundRecords:
    """Find records; see :func:`tfod.kernel.reference.find_records`."""
    data, limit = as_array(buffer), np.array([max_length], np.uint64)
    starts, lengths = [], []
    position, capacity, end = 0, 1024, WalkEnd.FULL
    outcome = np.empty(2, np.int64)
    while end is WalkEnd.FULL:
        capacity = min((len(data) - position) // 16 + 1, capacity)
        start, length = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        outputs = start, length, outcome
        count = _call("tfod_find_records", data[position:], limit, outputs=outputs)
        starts.append(start[:count] + position)
        lengths.append(length[:count])
        position += int(outcome[0])
        end = WalkEnd(int(outcome[1]))
        capacity *= 4
    return FoundRecords(np.concatenate(starts), np.concatenate(lengths), position, end)


def parse_examples(buffer: Bytes, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """Parse records to columns; see :func:`tfod.kernel.reference.parse_examples`."""
    data = as_array(buffer)
    starts, lengths = np.ascontiguousarray(starts, "<i8"), np.ascontiguousarray(lengths, "<i8")
    sizes = np.empty(3, np.int64)
    handle = _call("tfod_parse", data, starts, lengths, outputs=(sizes,))
    try:
        columns, problems, block_bytes = sizes.tolist()
        block = np.empty(block_bytes // 8, "<i8")
        _call("tfod_write", handle, outputs=(block.view(np.uint8),))
    finally:
        _call("tfod_free", handle)
    heads = columns * _COLUMN_WORDS
    return Columns(
        len(starts),
        list(_columns(data, block, block[:heads])),
        list(_problems(data, block[heads : heads + problems * _PROBLEM_WORDS])),
    )


def _columns(buffer: np.ndarray, block: np.ndarray, heads: np.ndarray) -> Iterator[KeyColumn]:
    ends, rows, floats = block.view("<u8"), block.view("<u4"), block.view("<f4")
    for head in heads.reshape(-1, _COLUMN_WORDS).tolist():
        key, key_length, kind, row_count, count, rows_at, ends_at, values_at = head
        if kind == ListKind.FLOAT:
            values = floats[2 * values_at : 2 * values_at + count]
        elif kind == ListKind.BYTES:
            values = block[values_at : values_at + 2 * count].reshape(-1, 2)
        else:
            values = block[values_at : values_at + count]
        yield KeyColumn(
            buffer[key : key + key_length].tobytes(),
            _KINDS[kind],
            rows[2 * rows_at : 2 * rows_at + row_count],
            ends[ends_at : ends_at + row_count],
            values,
        )


def _problems(buffer: np.ndarray, words: np.ndarray) -> Iterator[Problem]:
    for row, code, key, length in words.reshape(-1, _PROBLEM_WORDS).tolist():
        name = None if key < 0 else buffer[key : key + length].tobytes()
        yield Problem(row, ProblemCode(code), name)


def crc32c(buffer: Bytes) -> int:
    """Return the CRC-32C of bytes."""
    crc = np.empty(1, np.uint32)
    _call("tfod_crc32c", as_array(buffer), outputs=(crc,))
    return int(crc[0])


def hash_spans(buffer: Bytes, spans: np.ndarray) -> np.ndarray:
    """Hash spans; see :func:`tfod.kernel.reference.hash_spans`."""
    hashes = np.empty(len(spans), np.uint64)
    _call("tfod_hash_spans", as_array(buffer), _contiguous(spans), outputs=(hashes,))
    return hashes


def code_spans(buffer: Bytes, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code byte strings; see :func:`tfod.kernel.reference.code_spans`."""
    codes, firsts = np.empty(len(spans), np.intp), np.empty(len(spans), np.intp)
    arguments = as_array(buffer), _contiguous(spans)
    count = _call("tfod_code_spans", *arguments, outputs=(codes, firsts))
    return codes, firsts[:count].copy()


def gather_spans(buffer: Bytes, spans: np.ndarray, separator: bytes = b"") -> bytes:
    """Join byte strings; see :func:`tfod.kernel.reference.gather_spans`."""
    data, spans = as_array(buffer), _contiguous(spans)
    byte = separator[0] if separator else _NO_SEPARATOR
    joined = np.empty(_joined_bytes(data, spans, byte), np.uint8)
    _call("tfod_gather_spans", data, spans, byte, outputs=(joined,))
    return joined.tobytes()


def copy_spans(buffer: Bytes, spans: np.ndarray, out: np.ndarray) -> None:
    """Copy byte strings to an array; see :func:`tfod.kernel.reference.copy_spans`."""
    data, spans = as_array(buffer), _contiguous(spans)
    size = _joined_bytes(data, spans, _NO_SEPARATOR)
    if size != len(out):
        raise ValueError(f"the spans have {size} bytes, but the output has {len(out)}")
    _call("tfod_gather_spans", data, spans, _NO_SEPARATOR, outputs=(out,))


def _joined_bytes(data: np.ndarray, spans: np.ndarray, separator: int) -> int:
    return _call("tfod_gather_spans", data, spans, separator, outputs=(np.empty(0, np.uint8),))


def _contiguous(spans: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(spans, "<i8")
