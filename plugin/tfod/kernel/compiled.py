"""The functions of the compiled kernel, called through ``ctypes``, which releases the GIL."""

from __future__ import annotations

import ctypes
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

_size = ctypes.c_size_t
_DEFECT = _size(-1).value
_KINDS = tuple(ListKind)
_COLUMN_WORDS, _PROBLEM_WORDS = 8, 4  # see src/columns.rs


def _address(array: np.ndarray) -> int:
    # ``array.ctypes`` takes three times as long.
    return int(array.__array_interface__["data"][0])


def _check(count: int) -> int:
    if count == _DEFECT:
        raise RuntimeError("a bug in the compiled kernel of tfod; TFOD_KERNEL=0 disables it")
    return count


def find_records(buffer: Bytes, *, max_length: int = MAX_PAYLOAD_BYTES) -> FoundRecords:
    """Find records; see :func:`tfod.kernel.reference.find_records`."""
    data = as_array(buffer)
    starts, lengths = [], []
    position, capacity = 0, 1024
    end = ctypes.c_int32(WalkEnd.FULL)
    stop = _size()
    while end.value == WalkEnd.FULL:
        capacity = min((len(data) - position) // 16 + 1, capacity)
        start, length = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        tail = data[position:]
        count = _check(
            LIBRARY.tfod_find_records(
                _address(tail), len(tail), max_length, True, _address(start), _address(length),
                capacity, ctypes.byref(stop), ctypes.byref(end),
            )
        )  # fmt: skip
        starts.append(start[:count] + position)
        lengths.append(length[:count])
        position += stop.value
        capacity *= 4
    spans = np.concatenate(starts), np.concatenate(lengths)
    return FoundRecords(*spans, position, WalkEnd(end.value))


def parse_examples(buffer: Bytes, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """Parse records to columns; see :func:`tfod.kernel.reference.parse_examples`."""
    data = as_array(buffer)
    starts, lengths = np.ascontiguousarray(starts, "<i8"), np.ascontiguousarray(lengths, "<i8")
    sizes = (ctypes.c_uint64 * 3)()
    address, size = _address(data), len(data)
    spans = _address(starts), _address(lengths), len(starts)
    handle = LIBRARY.tfod_parse(address, size, *spans, sizes)
    if not handle:
        _check(_DEFECT)
    try:
        columns, problems, block_bytes = sizes
        block = np.empty(block_bytes // 8, "<i8")
        _check(LIBRARY.tfod_write(handle, address, size, _address(block), block_bytes))
    finally:
        LIBRARY.tfod_free(handle)
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


def _to_arguments(buffer: Bytes, spans: np.ndarray) -> tuple[int, int, int, int]:
    data = as_array(buffer)
    return _address(data), len(data), _address(spans), len(spans)


def hash_spans(buffer: Bytes, spans: np.ndarray) -> np.ndarray:
    """Hash spans; see :func:`tfod.kernel.reference.hash_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    hashes = np.empty(len(spans), np.uint64)
    _check(LIBRARY.tfod_hash_spans(*_to_arguments(buffer, spans), _address(hashes)))
    return hashes


def code_spans(buffer: Bytes, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code byte strings; see :func:`tfod.kernel.reference.code_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    codes, firsts = np.empty(len(spans), np.int64), np.empty(len(spans), np.int64)
    outputs = _address(codes), _address(firsts)
    count = LIBRARY.tfod_code_spans(*_to_arguments(buffer, spans), *outputs)
    return codes.astype(np.intp, copy=False), firsts[: _check(count)].astype(np.intp)


def gather_spans(buffer: Bytes, spans: np.ndarray, separator: bytes = b"") -> bytes:
    """Join byte strings; see :func:`tfod.kernel.reference.gather_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    arguments = _to_arguments(buffer, spans)
    byte = separator[0] if separator else -1
    joined = np.empty(_check(LIBRARY.tfod_gather_spans(*arguments, byte, None, 0)), np.uint8)
    _check(LIBRARY.tfod_gather_spans(*arguments, byte, _address(joined), len(joined)))
    return joined.tobytes()


def copy_spans(buffer: Bytes, spans: np.ndarray, out: np.ndarray) -> None:
    """Copy byte strings to an array; see :func:`tfod.kernel.reference.copy_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    arguments = _to_arguments(buffer, spans)
    size = LIBRARY.tfod_gather_spans(*arguments, -1, _address(out), len(out))
    if _check(size) != len(out):
        raise ValueError(f"the spans have {size} bytes, but the output has {len(out)}")
