"""The compiled kernel, called through ``ctypes``, which releases the interpreter's lock."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from tfod.kernel.library import LIBRARY
from tfod.kernel.return_types import (
    LONGEST_RECORD,
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
_COLUMN, _PROBLEM = 8, 4  # words that describe one, see src/columns.rs


def _at(array: np.ndarray) -> int:
    """Where an array's first byte is; ``array.ctypes`` needs three times as long."""
    return int(array.__array_interface__["data"][0])


def _counted(count: int) -> int:
    if count == _DEFECT:
        raise RuntimeError("a defect in tfod's compiled kernel; TFOD_KERNEL=0 does without it")
    return count


def find_records(buffer: Bytes, *, longest: int = LONGEST_RECORD) -> FoundRecords:
    """As :func:`tfod.kernel.reference.find_records`."""
    data = as_array(buffer)
    starts, lengths = [], []
    position, room = 0, 1024
    end = ctypes.c_int32(WalkEnd.FULL)
    at = _size()
    while end.value == WalkEnd.FULL:
        room = min((len(data) - position) // 16 + 1, room)
        first, length = np.empty(room, np.int64), np.empty(room, np.int64)
        rest = data[position:]
        count = _counted(
            LIBRARY.tfod_find_records(
                _at(rest), len(rest), longest, True, _at(first), _at(length), room,
                ctypes.byref(at), ctypes.byref(end),
            )
        )  # fmt: skip
        starts.append(first[:count] + position)
        lengths.append(length[:count])
        position += at.value
        room *= 4
    return FoundRecords(
        np.concatenate(starts), np.concatenate(lengths), position, WalkEnd(end.value)
    )


def parse_examples(buffer: Bytes, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """As :func:`tfod.kernel.reference.parse_examples`."""
    data = as_array(buffer)
    starts, lengths = np.ascontiguousarray(starts, "<i8"), np.ascontiguousarray(lengths, "<i8")
    sizes = (ctypes.c_uint64 * 3)()
    address, size = _at(data), len(data)
    handle = LIBRARY.tfod_parse(address, size, _at(starts), _at(lengths), len(starts), sizes)
    if not handle:
        _counted(_DEFECT)
    try:
        columns, problems, room = sizes
        block = np.empty(room // 8, "<i8")
        _counted(LIBRARY.tfod_write(handle, address, size, _at(block), room))
    finally:
        LIBRARY.tfod_free(handle)
    heads = columns * _COLUMN
    return Columns(
        len(starts),
        list(_columns(data, block, block[:heads])),
        list(_problems(data, block[heads : heads + problems * _PROBLEM])),
    )


def _columns(buffer: np.ndarray, block: np.ndarray, heads: np.ndarray) -> Iterator[KeyColumn]:
    """Columns that are views of the block."""
    ends, rows, floats = block.view("<u8"), block.view("<u4"), block.view("<f4")
    for head in heads.reshape(-1, _COLUMN).tolist():
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
    for row, code, key, length in words.reshape(-1, _PROBLEM).tolist():
        name = None if key < 0 else buffer[key : key + length].tobytes()
        yield Problem(row, ProblemCode(code), name)


def _addressed(buffer: Bytes, spans: np.ndarray) -> tuple[int, int, int, int]:
    data = as_array(buffer)
    return _at(data), len(data), _at(spans), len(spans)


def hash_spans(buffer: Bytes, spans: np.ndarray) -> np.ndarray:
    """As :func:`tfod.kernel.reference.hash_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    found = np.empty(len(spans), np.uint64)
    _counted(LIBRARY.tfod_hash_spans(*_addressed(buffer, spans), _at(found)))
    return found


def code_spans(buffer: Bytes, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`tfod.kernel.reference.code_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    codes, firsts = np.empty(len(spans), np.int64), np.empty(len(spans), np.int64)
    addressed = _addressed(buffer, spans)
    count = _counted(LIBRARY.tfod_code_spans(*addressed, _at(codes), _at(firsts)))
    return codes, firsts[:count].copy()


def gather_spans(buffer: Bytes, spans: np.ndarray, separator: bytes = b"") -> bytes:
    """As :func:`tfod.kernel.reference.gather_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    addressed = _addressed(buffer, spans)
    byte = separator[0] if separator else -1
    found = np.empty(_counted(LIBRARY.tfod_gather_spans(*addressed, byte, None, 0)), np.uint8)
    _counted(LIBRARY.tfod_gather_spans(*addressed, byte, _at(found), len(found)))
    return found.tobytes()


def copy_spans(buffer: Bytes, spans: np.ndarray, out: np.ndarray) -> None:
    """As :func:`tfod.kernel.reference.copy_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    addressed = _addressed(buffer, spans)
    needed = _counted(LIBRARY.tfod_gather_spans(*addressed, -1, _at(out), len(out)))
    if needed != len(out):
        raise ValueError(f"{needed} bytes do not fit into {len(out)}")
