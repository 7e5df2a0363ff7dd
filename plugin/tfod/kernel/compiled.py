"""The compiled kernel, called through ``ctypes``, which releases the interpreter's lock."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

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

_ABI = 2
_NAMES = ("libtfod_kernel.so", "libtfod_kernel.dylib", "tfod_kernel.dll")
_size, _void = ctypes.c_size_t, ctypes.c_void_p


class _ColumnView(ctypes.Structure):
    _fields_ = (
        ("key", _void),
        ("key_length", _size),
        ("kind", ctypes.c_uint32),
        ("rows", _void),
        ("ends", _void),
        ("row_count", _size),
        ("values", _void),
        ("value_count", _size),
    )


def _load() -> ctypes.CDLL:
    if os.environ.get("TFOD_KERNEL") == "0":
        raise ImportError("TFOD_KERNEL=0")
    folder = Path(__file__).parent
    found = [folder / name for name in _NAMES if (folder / name).is_file()]
    if not found:
        raise ImportError("the compiled kernel is not in this installation")
    try:
        library = ctypes.CDLL(str(found[0]))
    except OSError as error:
        raise ImportError(f"the compiled kernel cannot be loaded: {error}") from None
    library.tfod_abi.restype = ctypes.c_uint32
    if library.tfod_abi() != _ABI:
        raise ImportError(f"{found[0]} is of another version of tfod")
    library.tfod_find_records.restype = _size
    library.tfod_find_records.argtypes = [
        _void, _size, ctypes.c_uint64, ctypes.c_uint32, _void, _void, _size, _void, _void,
    ]  # fmt: skip
    library.tfod_parse.restype = _void
    library.tfod_parse.argtypes = [_void, _size, _void, _void, _size]
    library.tfod_free.argtypes = [_void]
    library.tfod_free.restype = None
    library.tfod_column_count.restype = _size
    library.tfod_column_count.argtypes = [_void]
    library.tfod_column.restype = None
    library.tfod_column.argtypes = [_void, _size, ctypes.POINTER(_ColumnView)]
    library.tfod_problems.restype = _void
    library.tfod_problems.argtypes = [_void, ctypes.POINTER(_size)]
    library.tfod_key.restype = _void
    library.tfod_key.argtypes = [_void, _size, ctypes.POINTER(_size)]
    library.tfod_hash_spans.restype = None
    library.tfod_hash_spans.argtypes = [_void, _size, _void, _size, _void]
    library.tfod_code_spans.restype = _size
    library.tfod_code_spans.argtypes = [_void, _size, _void, _size, _void, _void]
    library.tfod_gather_spans.restype = _size
    library.tfod_gather_spans.argtypes = [
        _void, _size, _void, _size, ctypes.c_int32, _void, _size,
    ]  # fmt: skip
    return library


_library = _load()
_PROBLEM = np.dtype([("row", "<u4"), ("code", "<u4"), ("key", "<i8")])
_FLOATS, _INTS = np.dtype("<f4"), np.dtype("<i8")


def find_records(buffer: np.ndarray, longest: int, verify: bool = True) -> FoundRecords:
    """Find the records from the start of a buffer on; see :func:`tfod.kernel.find_records`."""
    starts, lengths = [], []
    position = 0
    end = ctypes.c_int32(WalkEnd.FULL)
    at = _size()
    while end.value == WalkEnd.FULL:
        room = min(len(buffer) // 16 + 1, 65536)
        first, length = np.empty(room, np.int64), np.empty(room, np.int64)
        rest = buffer[position:]
        count = _library.tfod_find_records(
            rest.ctypes.data, len(rest), longest, verify, first.ctypes.data, length.ctypes.data,
            room, ctypes.byref(at), ctypes.byref(end),
        )  # fmt: skip
        starts.append(first[:count] + position)
        lengths.append(length[:count])
        position += at.value
    return FoundRecords(
        np.concatenate(starts), np.concatenate(lengths), position, WalkEnd(end.value)
    )


def parse_examples(buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """Parse records to columns; see :func:`tfod.kernel.parse_examples`."""
    starts, lengths = np.ascontiguousarray(starts, "<i8"), np.ascontiguousarray(lengths, "<i8")
    handle = _library.tfod_parse(
        buffer.ctypes.data, len(buffer), starts.ctypes.data, lengths.ctypes.data, len(starts)
    )
    if not handle:
        raise MemoryError
    try:
        columns = [_column(handle, number) for number in range(_library.tfod_column_count(handle))]
        return Columns(len(starts), columns, _problems(handle))
    finally:
        _library.tfod_free(handle)


def _copied(address: int | None, count: int, dtype: np.dtype) -> np.ndarray:
    if not count or not address:
        return np.empty(0, dtype)
    return np.frombuffer(ctypes.string_at(address, count * dtype.itemsize), dtype)


def _column(handle: int, number: int) -> KeyColumn:
    view = _ColumnView()
    _library.tfod_column(handle, number, ctypes.byref(view))
    dtype = _FLOATS if view.kind == ListKind.FLOAT else _INTS
    width = 2 if view.kind == ListKind.BYTES else 1
    values = _copied(view.values, view.value_count * width, dtype)
    return KeyColumn(
        key=ctypes.string_at(view.key, view.key_length),
        kind=ListKind(view.kind),
        rows=_copied(view.rows, view.row_count, np.dtype("<u4")),
        ends=_copied(view.ends, view.row_count, np.dtype("<u8")),
        values=values.reshape(-1, 2) if width == 2 else values,
    )


def _problems(handle: int) -> list[Problem]:
    count, length = _size(), _size()
    address = _library.tfod_problems(handle, ctypes.byref(count))
    found = []
    for row, code, number in _copied(address, count.value, _PROBLEM).tolist():
        key = None
        if number >= 0:
            pointer = _library.tfod_key(handle, number, ctypes.byref(length))
            key = ctypes.string_at(pointer, length.value)
        found.append(Problem(row, ProblemCode(code), key))
    return found


def hash_spans(buffer: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """64 bits of each span; see :func:`tfod.kernel.hash_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    found = np.empty(len(spans), np.uint64)
    _library.tfod_hash_spans(
        buffer.ctypes.data, len(buffer), spans.ctypes.data, len(spans), found.ctypes.data
    )
    return found


def code_spans(buffer: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code byte strings as a dictionary; see :func:`tfod.kernel.code_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    codes, firsts = np.empty(len(spans), np.int64), np.empty(len(spans), np.int64)
    count = _library.tfod_code_spans(
        buffer.ctypes.data, len(buffer), spans.ctypes.data, len(spans),
        codes.ctypes.data, firsts.ctypes.data,
    )  # fmt: skip
    return codes, firsts[:count].copy()


def gather_spans(buffer: np.ndarray, spans: np.ndarray, separator: bytes) -> bytes:
    """The bytes of the spans, joined; see :func:`tfod.kernel.gather_spans`."""
    spans = np.ascontiguousarray(spans, "<i8")
    head = (buffer.ctypes.data, len(buffer), spans.ctypes.data, len(spans))
    byte = separator[0] if separator else -1
    found = np.empty(_library.tfod_gather_spans(*head, byte, None, 0), np.uint8)
    _library.tfod_gather_spans(*head, byte, found.ctypes.data, len(found))
    return found.tobytes()
