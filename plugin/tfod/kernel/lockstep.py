"""The Python kernel for whole batches, which reads many records at once with NumPy.

Nearly all records are as protobuf writes them, with the same keys in nearly the same order. So
NumPy reads the next feature of all rows at once; :mod:`tfod.kernel.reference` reads other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from tfod.kernel import reference
from tfod.kernel.return_types import Bytes, Columns, KeyColumn, ListKind, as_array

_FEW_ROWS = 16  # for fewer rows, the reference is faster, unless each has few strings
_FEW_STRINGS, _MAX_KEY, _MAX_VARINT = 8, 256, 10
_FIRST, _SECOND = 0x0A, 0x12  # tags of the fields 1 and 2, which are length-delimited
_KIND_OF_TAG = {0x0A: ListKind.BYTES, 0x12: ListKind.FLOAT, 0x1A: ListKind.INT64}


def parse_examples(buffer: Bytes, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """Parse records to columns; see :func:`tfod.kernel.reference.parse_examples`."""
    if len(starts) < _FEW_ROWS or not len(buffer):
        return reference.parse_examples(buffer, starts, lengths)
    batch = _Batch(as_array(buffer), starts, lengths)
    batch.read()
    unusual_rows = np.flatnonzero(batch.is_unusual)
    unusual = reference.parse_examples(buffer, starts[unusual_rows], lengths[unusual_rows])
    for index, column in enumerate(unusual.columns):
        counts = np.diff(column.ends.astype(np.intp), prepend=0)
        codes = np.full(len(counts), batch.code(column.key))
        indexes = np.full(len(counts), index)
        rows = unusual_rows[column.rows]
        batch.lists[column.kind].append(_Lists(rows, codes, indexes, counts, column.values))
    ordered = [item for kind in ListKind for item in batch.columns(kind)]
    columns = [column for _, column in sorted(ordered, key=lambda item: item[0])]
    problems = [item._replace(row=int(unusual_rows[item.row])) for item in unusual.problems]
    return Columns(len(starts), columns, problems)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the joined ranges that begin at ``starts`` and have ``counts`` numbers."""
    previous = np.cumsum(counts) - counts
    return np.repeat(starts - previous, counts) + np.arange(int(counts.sum()))


class _Lists(NamedTuple):
    """Lists of one kind: row, key, index in the row and number of values of each; all values."""

    rows: np.ndarray
    codes: np.ndarray
    indexes: np.ndarray
    counts: np.ndarray
    values: np.ndarray

    def select(self, lists: np.ndarray) -> _Lists:
        """Return these lists, in this order."""
        counts = self.counts[lists]
        values = _ranges((np.cumsum(self.counts) - self.counts)[lists], counts)
        rows, codes = self.rows[lists], self.codes[lists]
        return _Lists(rows, codes, self.indexes[lists], counts, self.values[values])


class _Batch:
    """The rows of a batch, and the position that reading has reached in each."""

    def __init__(self, buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        size = len(buffer)
        is_inside = (starts >= 0) & (lengths >= 0) & (lengths <= size) & (starts <= size - lengths)
        self.is_unusual = ~is_inside
        self.lists: dict[ListKind, list[_Lists]] = {kind: [] for kind in ListKind}
        self._buffer = buffer
        self._at = np.where(is_inside, starts, 0).astype(np.intp, copy=False)
        self._end = self._at + np.where(is_inside, lengths, 0).astype(np.intp, copy=False)
        self._codes: dict[bytes, int] = {}

    def read(self) -> None:
        """Read one feature of all rows after the other; drop the lists of unusual rows."""
        rows = np.flatnonzero(self._at < self._end)
        self._at[rows], stop, is_plain = self._read_field(self._at[rows], self._end[rows], _FIRST)
        rows = self._keep_plain(rows, is_plain & (stop == self._end[rows]))
        entries = []
        for index in count():
            rows = rows[(self._at[rows] < self._end[rows]) & ~self.is_unusual[rows]]
            if len(rows) < _FEW_ROWS:
                break
            first, stop, is_plain = self._read_field(self._at[rows], self._end[rows], _FIRST)
            key, key_stop, has_key = self._read_field(first, stop, _FIRST)
            value, value_stop, has_value = self._read_field(key_stop, stop, _SECOND)
            is_plain &= has_key & has_value & (value_stop == stop)
            codes = self._find_codes(key, np.where(is_plain, key_stop, key))
            is_plain &= codes >= 0
            self._at[rows] = stop
            self._keep_plain(rows, is_plain)
            plain, codes = rows[is_plain], codes[is_plain]
            entries.append(codes.astype(np.int64, copy=False) * len(self.is_unusual) + plain)
            self._read_features(plain, codes, index, value[is_plain], stop[is_plain])
        self.is_unusual[rows] = True
        self._drop_unusual(np.sort(np.concatenate([*entries, rows[:0]])))

    def _drop_unusual(self, entries: np.ndarray) -> None:
        """Drop the lists of unusual rows; ``entries`` has a sorted number per key and row."""
        repeated = entries[1:][entries[1:] == entries[:-1]]
        self.is_unusual[repeated % len(self.is_unusual)] = True
        for parts in self.lists.values():
            for index, lists in enumerate(parts):
                kept = np.flatnonzero(~self.is_unusual[lists.rows])
                if len(kept) < len(lists.rows):
                    parts[index] = lists.select(kept)

    def columns(self, kind: ListKind) -> Iterator[tuple[tuple[int, int], KeyColumn]]:
        """Yield the columns of one kind, each with its first row and its index in that row."""
        parts = self.lists[kind]
        if not parts:
            return
        lists = _Lists(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        lists = lists.select(np.lexsort((lists.rows, lists.codes)))
        names = list(self._codes)
        stops = np.cumsum(lists.counts)
        bounds = np.flatnonzero(np.diff(lists.codes, prepend=-1, append=-1)).tolist()
        for begin, stop in pairwise(bounds):
            ends = stops[begin:stop]
            first = int(ends[0] - lists.counts[begin])
            column = KeyColumn(
                names[int(lists.codes[begin])],
                kind,
                lists.rows[begin:stop].astype("<u4"),
                (ends - first).astype("<u8"),
                lists.values[first : int(ends[-1])],
            )
            yield (int(lists.rows[begin]), int(lists.indexes[begin])), column

    def _keep_plain(self, rows: np.ndarray, is_plain: np.ndarray) -> np.ndarray:
        self.is_unusual[rows[~is_plain]] = True
        plain: np.ndarray = rows[is_plain]
        return plain

    def _read_field(
        self, at: np.ndarray, end: np.ndarray, tag: int | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return start and stop of a length-delimited field, and whether it has the tag."""
        is_plain = (at < end) & (self._buffer.take(at, mode="clip") == tag)
        byte, first = self._buffer.take(at + 1, mode="clip"), at + 2
        length = (byte & 0x7F).astype(np.int64)
        unfinished = np.flatnonzero(byte > 0x7F)
        for index in range(1, 5):
            if not len(unfinished):
                break
            byte = self._buffer.take(first[unfinished], mode="clip")
            length[unfinished] |= (byte & 0x7F).astype(np.int64) << 7 * index
            first[unfinished] += 1
            unfinished = unfinished[byte > 0x7F]
        is_plain[unfinished] = False
        is_plain &= length <= end - first
        return first, first + np.where(is_plain, length, 0).astype(np.intp, copy=False), is_plain

    def code(self, key: bytes) -> int:
        """Return the number of a key, in the order of first occurrence."""
        return self._codes.setdefault(key, len(self._codes))

    def _find_codes(self, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Return the codes of keys, usually a single one; -1 if a key is too long or not UTF-8."""
        codes = np.full(len(first), -1)
        lengths = stop - first
        remaining = np.flatnonzero(lengths <= _MAX_KEY)
        if len(remaining):
            name = self._buffer[first[remaining[0]] : stop[remaining[0]]]
            same = remaining[lengths[remaining] == len(name)]
            window = self._buffer[first[same, None] + np.arange(len(name))]
            same = same[(window == name).all(axis=1)]
            codes[same] = self._code_utf8(name)
            remaining = remaining[codes[remaining] < 0]
        for index in remaining.tolist():
            codes[index] = self._code_utf8(self._buffer[first[index] : stop[index]])
        return codes

    def _code_utf8(self, name: np.ndarray) -> int:
        key = name.tobytes()
        try:
            key.decode()
        except UnicodeDecodeError:
            return -1
        return self.code(key)

    def _read_features(
        self, rows: np.ndarray, codes: np.ndarray, index: int, at: np.ndarray, end: np.ndarray
    ) -> None:
        """Read the lists of a feature in each row; ``index`` is its index in the row."""
        is_empty = at == end
        indexes = np.full(len(rows), index)
        empty = np.flatnonzero(is_empty)
        no_counts, no_values = np.zeros(len(empty), np.intp), np.empty(0, "<i8")
        heads = (rows[empty], codes[empty], indexes[empty])
        self.lists[ListKind.NONE].append(_Lists(*heads, no_counts, no_values))
        tags = self._buffer.take(at, mode="clip")
        first, stop, is_plain = self._read_field(at, end, tags)
        is_plain &= (stop == end) & np.isin(tags, list(_KIND_OF_TAG))
        self._keep_plain(rows, is_plain | is_empty)
        for tag, kind in _KIND_OF_TAG.items():
            tagged = np.flatnonzero(is_plain & (tags == tag))
            if len(tagged):
                read = self._read_strings if kind is ListKind.BYTES else self._read_numbers
                counts, values = read(kind, rows[tagged], first[tagged], stop[tagged])
                heads = (rows[tagged], codes[tagged], indexes[tagged])
                self.lists[kind].append(_Lists(*heads, counts, values))

    def _read_strings(
        self, _: ListKind, rows: np.ndarray, at: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of strings in each list, and their spans."""
        owners, spans = [np.empty(0, np.intp)], [np.empty((0, 2), np.int64)]
        unread = np.flatnonzero(at < end)
        for number in count():
            if not len(unread) or (len(unread) < _FEW_ROWS and number >= _FEW_STRINGS):
                break
            first, stop, is_plain = self._read_field(at[unread], end[unread], _FIRST)
            at[unread] = stop
            self._keep_plain(rows[unread], is_plain)
            owners.append(unread[is_plain])
            spans.append(np.stack([first, stop - first], axis=1)[is_plain])
            unread = unread[is_plain & (stop < end[unread])]
        self.is_unusual[rows[unread]] = True
        owner, values = np.concatenate(owners), np.concatenate(spans)
        return np.bincount(owner, minlength=len(rows)), values[np.argsort(owner, kind="stable")]

    def _read_numbers(
        self, kind: ListKind, rows: np.ndarray, at: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of packed numbers in each list, and the numbers."""
        first, stop, is_plain = self._read_field(at, end, _FIRST)
        is_plain &= stop == end
        if kind is ListKind.FLOAT:
            is_plain &= (stop - first) % 4 == 0
        else:
            is_plain &= self._buffer.take(stop - 1, mode="clip") < 0x80
        self._keep_plain(rows, is_plain | (at == end))
        lengths = np.where(is_plain, stop - first, 0)
        packed = self._buffer[_ranges(first, lengths)]
        if kind is ListKind.FLOAT:
            return lengths // 4, packed.view("<f4")
        return self._decode_varints(rows, lengths, packed)

    def _decode_varints(
        self, rows: np.ndarray, lengths: np.ndarray, packed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        is_last = packed < 0x80  # the last byte of a number; each list ends with such a byte
        totals = np.concatenate([[0], np.cumsum(is_last)])
        stops = np.cumsum(lengths)
        counts = totals[stops] - totals[stops - lengths]
        if is_last.all():
            return counts, packed.astype("<i8")
        begins = np.flatnonzero(np.concatenate([[True], is_last[:-1]]))
        sizes = np.diff(begins, append=len(packed))
        too_long = begins[sizes > _MAX_VARINT]
        self.is_unusual[rows[np.searchsorted(stops, too_long, side="right")]] = True
        indexes = np.arange(len(packed)) - np.repeat(begins, sizes)
        shifts = (7 * np.minimum(indexes, _MAX_VARINT - 1)).astype(np.uint64)
        parts = (packed & 0x7F).astype(np.uint64) << shifts
        return counts, np.bitwise_or.reduceat(parts, begins).view("<i8")
