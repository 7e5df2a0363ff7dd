"""Python's kernel for whole batches: plain records side by side, all others by the reference.

Nearly all records are as protobuf writes them, and those of a batch have their keys in much the
same order. So NumPy takes the next feature of all rows at once. A row with anything unusual leaves
the others and is read by :mod:`tfod.kernel.reference`, which says what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from tfod.kernel import reference
from tfod.kernel.return_types import Bytes, Columns, KeyColumn, ListKind, as_array

_FEW_ROWS = 16  # fewer are not worth it, unless they have few strings each
_FEW_STRINGS, _LONGEST_KEY, _LONGEST_VARINT = 8, 256, 10
_FIRST, _SECOND = 0x0A, 0x12  # tags of the fields 1 and 2, each a length and so many bytes
_KIND_OF_TAG = {0x0A: ListKind.BYTES, 0x12: ListKind.FLOAT, 0x1A: ListKind.INT64}


def parse_examples(buffer: Bytes, starts: np.ndarray, lengths: np.ndarray) -> Columns:
    """As :func:`tfod.kernel.reference.parse_examples`."""
    if len(starts) < _FEW_ROWS or not len(buffer):
        return reference.parse_examples(buffer, starts, lengths)
    batch = _Batch(as_array(buffer), starts, lengths)
    batch.read()
    rest = np.flatnonzero(batch.odd)
    others = reference.parse_examples(buffer, starts[rest], lengths[rest])
    for place, one in enumerate(others.columns):
        counts = np.diff(one.ends.astype(np.int64), prepend=0)
        codes = np.full(len(counts), batch.code(one.key))
        places = np.full(len(counts), place)
        batch.lists[one.kind].append(_Lists(rest[one.rows], codes, places, counts, one.values))
    found = [one for kind in ListKind for one in batch.columns(kind)]
    columns = [column for _, column in sorted(found, key=lambda one: one[0])]
    problems = [one._replace(row=int(rest[one.row])) for one in others.problems]
    return Columns(len(starts), columns, problems)


def _runs(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """From each start on so many numbers as counts say."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


class _Lists(NamedTuple):
    """Lists of one kind: of each its row, key, place in the row and count of values; all values."""

    rows: np.ndarray
    codes: np.ndarray
    places: np.ndarray
    counts: np.ndarray
    values: np.ndarray

    def chosen(self, places: np.ndarray) -> _Lists:
        """Other lists, or another order."""
        counts = self.counts[places]
        values = _runs((np.cumsum(self.counts) - self.counts)[places], counts)
        rows, codes = self.rows[places], self.codes[places]
        return _Lists(rows, codes, self.places[places], counts, self.values[values])


class _Batch:
    """The rows of a batch, and how far each has been read."""

    def __init__(self, buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        size = len(buffer)
        sound = (starts >= 0) & (lengths >= 0) & (lengths <= size) & (starts <= size - lengths)
        self.odd = ~sound
        self.lists: dict[ListKind, list[_Lists]] = {kind: [] for kind in ListKind}
        self._buffer = buffer
        self._at = np.where(sound, starts, 0)
        self._end = self._at + np.where(sound, lengths, 0)
        self._codes: dict[bytes, int] = {}

    def read(self) -> None:
        """Read feature after feature, as long as many rows go on; forget the rows that are odd."""
        rows = np.flatnonzero(self._at < self._end)
        self._at[rows], stop, plain = self._delimited(self._at[rows], self._end[rows], _FIRST)
        rows = self._plain(rows, plain & (stop == self._end[rows]))
        entries = []
        for place in count():
            rows = rows[(self._at[rows] < self._end[rows]) & ~self.odd[rows]]
            if len(rows) < _FEW_ROWS:
                break
            first, stop, plain = self._delimited(self._at[rows], self._end[rows], _FIRST)
            key, key_stop, key_plain = self._delimited(first, stop, _FIRST)
            value, value_stop, value_plain = self._delimited(key_stop, stop, _SECOND)
            plain &= key_plain & value_plain & (value_stop == stop)
            codes = self._codes_of(key, np.where(plain, key_stop, key))
            plain &= codes >= 0
            self._at[rows] = stop
            self._plain(rows, plain)
            entries.append(codes[plain] * len(self.odd) + rows[plain])
            self._features(rows[plain], codes[plain], place, value[plain], stop[plain])
        self.odd[rows] = True
        self._forget_odd(np.sort(np.concatenate([*entries, rows[:0]])))

    def _forget_odd(self, entries: np.ndarray) -> None:
        """``entries`` has a number for each pair of key and row, sorted."""
        repeated = entries[1:][entries[1:] == entries[:-1]]
        self.odd[repeated % len(self.odd)] = True
        for found in self.lists.values():
            kept = [(one, np.flatnonzero(~self.odd[one.rows])) for one in found]
            found[:] = [
                one if len(keep) == len(one.rows) else one.chosen(keep) for one, keep in kept
            ]

    def columns(self, kind: ListKind) -> Iterator[tuple[tuple[int, int], KeyColumn]]:
        """The columns of one kind, each with its first row and where in that row it comes."""
        found = self.lists[kind]
        if not found:
            return
        whole = _Lists(*(np.concatenate(one) for one in zip(*found, strict=True)))
        whole = whole.chosen(np.lexsort((whole.rows, whole.codes)))
        names = list(self._codes)
        stops = np.cumsum(whole.counts)
        bounds = np.flatnonzero(np.diff(whole.codes, prepend=-1, append=-1)).tolist()
        for begin, stop in pairwise(bounds):
            ends = stops[begin:stop]
            before = int(ends[0] - whole.counts[begin])
            column = KeyColumn(
                names[int(whole.codes[begin])],
                kind,
                whole.rows[begin:stop].astype("<u4"),
                (ends - before).astype("<u8"),
                whole.values[before : int(ends[-1])],
            )
            yield (int(whole.rows[begin]), int(whole.places[begin])), column

    def _plain(self, rows: np.ndarray, plain: np.ndarray) -> np.ndarray:
        """Those rows that are plain; the others leave the batch."""
        self.odd[rows[~plain]] = True
        kept: np.ndarray = rows[plain]
        return kept

    def _delimited(
        self, at: np.ndarray, end: np.ndarray, tag: int | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A field in each row: where its bytes begin and stop, and whether all that is so."""
        plain = (at < end) & (self._buffer.take(at, mode="clip") == tag)
        byte, first = self._buffer.take(at + 1, mode="clip"), at + 2
        length = (byte & 0x7F).astype(np.int64)
        more = np.flatnonzero(byte > 0x7F)
        for place in range(1, 5):
            if not len(more):
                break
            byte = self._buffer.take(first[more], mode="clip")
            length[more] |= (byte & 0x7F).astype(np.int64) << 7 * place
            first[more] += 1
            more = more[byte > 0x7F]
        plain[more] = False
        plain &= length <= end - first
        return first, np.where(plain, first + length, first), plain

    def code(self, key: bytes) -> int:
        """The number of a key, in the order in which they are first seen."""
        return self._codes.setdefault(key, len(self._codes))

    def _codes_of(self, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The keys of rows, nearly all of them alike; -1 where one is not sound, or very long."""
        codes = np.full(len(first), -1)
        lengths = stop - first
        left = np.flatnonzero(lengths <= _LONGEST_KEY)
        if len(left):
            name = self._buffer[first[left[0]] : stop[left[0]]]
            alike = left[lengths[left] == len(name)]
            window = self._buffer[first[alike, None] + np.arange(len(name))]
            alike = alike[(window == name).all(axis=1)]
            codes[alike] = self._sound_code(name)
            left = left[codes[left] < 0]
        for place in left.tolist():
            codes[place] = self._sound_code(self._buffer[first[place] : stop[place]])
        return codes

    def _sound_code(self, name: np.ndarray) -> int:
        key = name.tobytes()
        try:
            key.decode()
        except UnicodeDecodeError:
            return -1
        return self.code(key)

    def _features(
        self, rows: np.ndarray, codes: np.ndarray, place: int, at: np.ndarray, end: np.ndarray
    ) -> None:
        """A feature in each row, the one that comes at ``place``."""
        empty = at == end
        places = np.full(len(rows), place)
        none = np.flatnonzero(empty)
        no_counts, no_values = np.zeros(len(none), np.int64), np.empty(0, "<i8")
        heads = (rows[none], codes[none], places[none])
        self.lists[ListKind.NONE].append(_Lists(*heads, no_counts, no_values))
        tags = self._buffer.take(at, mode="clip")
        first, stop, plain = self._delimited(at, end, tags)
        plain &= (stop == end) & np.isin(tags, list(_KIND_OF_TAG))
        self._plain(rows, plain | empty)
        for tag, kind in _KIND_OF_TAG.items():
            own = np.flatnonzero(plain & (tags == tag))
            if len(own):
                read = self._strings if kind is ListKind.BYTES else self._numbers
                counts, values = read(kind, rows[own], first[own], stop[own])
                heads = (rows[own], codes[own], places[own])
                self.lists[kind].append(_Lists(*heads, counts, values))

    def _strings(
        self, _: ListKind, rows: np.ndarray, at: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many strings each list has, and start and length of each."""
        owners, spans = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
        live = np.flatnonzero(at < end)
        for number in count():
            if not len(live) or (len(live) < _FEW_ROWS and number >= _FEW_STRINGS):
                break
            first, stop, plain = self._delimited(at[live], end[live], _FIRST)
            at[live] = stop
            self._plain(rows[live], plain)
            owners.append(live[plain])
            spans.append(np.stack([first, stop - first], axis=1)[plain])
            live = live[plain & (stop < end[live])]
        self.odd[rows[live]] = True
        owner, values = np.concatenate(owners), np.concatenate(spans)
        return np.bincount(owner, minlength=len(rows)), values[np.argsort(owner, kind="stable")]

    def _numbers(
        self, kind: ListKind, rows: np.ndarray, at: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many numbers each list has, packed as protobuf writes them, and the numbers."""
        first, stop, plain = self._delimited(at, end, _FIRST)
        plain &= stop == end
        if kind is ListKind.FLOAT:
            plain &= (stop - first) % 4 == 0
        else:
            plain &= self._buffer.take(stop - 1, mode="clip") < 0x80
        self._plain(rows, plain | (at == end))
        lengths = np.where(plain, stop - first, 0)
        packed = self._buffer[_runs(first, lengths)]
        if kind is ListKind.FLOAT:
            return lengths // 4, packed.view("<f4")
        return self._varints(rows, lengths, packed)

    def _varints(
        self, rows: np.ndarray, lengths: np.ndarray, packed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`_numbers`; each list stops with the last byte of a number."""
        last = packed < 0x80
        counted = np.concatenate([[0], np.cumsum(last)])
        stops = np.cumsum(lengths)
        counts = counted[stops] - counted[stops - lengths]
        if last.all():
            return counts, packed.astype("<i8")
        begins = np.flatnonzero(np.concatenate([[True], last[:-1]]))
        sizes = np.diff(begins, append=len(packed))
        long = begins[sizes > _LONGEST_VARINT]
        self.odd[rows[np.searchsorted(stops, long, side="right")]] = True
        places = np.arange(len(packed)) - np.repeat(begins, sizes)
        shifts = (7 * np.minimum(places, _LONGEST_VARINT - 1)).astype(np.uint64)
        parts = (packed & 0x7F).astype(np.uint64) << shifts
        return counts, np.bitwise_or.reduceat(parts, begins).view("<i8")
