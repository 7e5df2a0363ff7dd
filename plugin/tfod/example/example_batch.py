"""Records as columns: of each feature key the values of all records of a batch.

A column is what TensorFlow calls a ragged tensor: values, and ``row_splits`` that say where the
values of each record begin and end. Byte strings are not copied: a value is start and length in the
batch's buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tfod.errors import RecordError
from tfod.example.encoding_issues import EncodingIssue, find_encoding_issues
from tfod.example.wire import Kind
from tfod.kernel import gather_spans, parse_examples
from tfod.kernel.return_types import ListKind, Problem, ProblemCode
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import RecordBatch

KIND_OF_LIST: Mapping[ListKind, Kind | None] = {
    ListKind.NONE: None,
    ListKind.BYTES: Kind.BYTES,
    ListKind.FLOAT: Kind.FLOAT,
    ListKind.INT64: Kind.INT64,
}
_NO_VALUES = {
    Kind.BYTES: np.empty((0, 2), np.int64),
    Kind.FLOAT: np.empty(0, "<f4"),
    Kind.INT64: np.empty(0, np.int64),
}
_NO_ROWS, _NO_SPLITS = np.empty(0, np.int64), np.zeros(1, np.int64)
_COLUMN = 1 << 10
"""Bytes that a column needs besides its arrays: a record may have keys by the thousand."""


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one feature key in a batch of records.

    Attributes:
        key: the feature key.
        kind: the list that holds the values; None for features without any list.
        rows: which records have such a list, ascending, int64 of shape (r,).
        splits: where the values of each of these begin, and the end, int64 of shape (r + 1,).
        values: float32 or int64 of shape (n,); of byte strings start and length in ``buffer``,
            int64 of shape (n, 2).
        length: how many records the batch has.
        buffer: holds the byte strings.
    """

    key: str
    kind: Kind | None
    rows: np.ndarray
    splits: np.ndarray
    values: np.ndarray
    length: int
    buffer: bytes | bytearray

    @classmethod
    def empty(cls, key: str, kind: Kind, length: int) -> Column:
        """A column that no record has."""
        values = _NO_VALUES[kind]
        return cls(key, kind, _NO_ROWS, _NO_SPLITS, values, length, b"")

    @property
    def lengths(self) -> np.ndarray:
        """How many values each of ``rows`` has, int64 of shape (r,)."""
        found: np.ndarray = self.splits[1:] - self.splits[:-1]  # np.diff takes longer for a few
        return found

    @cached_property
    def counts(self) -> np.ndarray:
        """How many values each record has, 0 without such a list; int64 of shape (length,)."""
        found = self.lengths
        if len(self.rows) == self.length:
            return found
        counts = np.zeros(self.length, np.int64)
        counts[self.rows] = found
        return counts

    @cached_property
    def row_splits(self) -> np.ndarray:
        """Where the values of each record begin, and the end; int64 of shape (length + 1,)."""
        if len(self.rows) == self.length:
            return self.splits
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(self.counts)))

    @cached_property
    def present(self) -> np.ndarray:
        """Which records have the list, with values or without; bool of shape (length,)."""
        found = np.zeros(self.length, bool)
        found[self.rows] = True
        return found

    def has(self, row: int) -> bool:
        """Whether a record has the list, with values or without."""
        return self._place(row) is not None

    def _place(self, row: int) -> int | None:
        # Not by row_splits: a batch may have as many keys as records, each with one of the other.
        if len(self.rows) == self.length:
            return row
        place = int(np.searchsorted(self.rows, row))
        return place if place < len(self.rows) and int(self.rows[place]) == row else None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> np.ndarray:
        """The values of one record."""
        place = self._place(row)
        if place is None:
            return self.values[:0]
        values: np.ndarray = self.values[self.splits[place] : self.splits[place + 1]]
        return values

    def byte_strings(self) -> list[bytes]:
        """All values of byte strings, copied."""
        return bytes_of(self.buffer, self.values)

    def compacted(self, hollow: bool) -> Column:
        """The same with a buffer of its own, of byte strings alone, or their lengths if hollow."""
        values, buffer = self.values, b""
        if self.kind is Kind.BYTES:
            values = values.copy()
            buffer = b"" if hollow else gather_spans(self.buffer, values)
            values[:, 0] = 0 if hollow else np.cumsum(values[:, 1]) - values[:, 1]
        return Column(self.key, self.kind, self.rows, self.splits, values, self.length, buffer)

    @staticmethod
    def joined(parts: Sequence[tuple[int, Column]], length: int) -> Column:
        """Compacted columns of one key and kind, each with the row of its first record, as one."""
        columns = [column for _, column in parts]
        rows = np.concatenate([row + column.rows for row, column in parts])
        counts = np.concatenate([column.lengths for column in columns])
        splits = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        values = np.concatenate([column.values for column in columns])
        buffers = [column.buffer for column in columns]
        first = columns[0]
        if first.kind is Kind.BYTES:
            starts = np.cumsum([0, *map(len, buffers)])[:-1]
            values[:, 0] += np.repeat(starts, [len(column.values) for column in columns])
        return Column(first.key, first.kind, rows, splits, values, length, b"".join(buffers))


@dataclass(frozen=True)
class FormProblem:
    """Something that is to be said of the form of one record; ``key`` may be empty."""

    row: int
    form: EncodingIssue
    reason: str
    key: str = ""


@dataclass(frozen=True, eq=False)
class ExampleBatch:
    """Consecutive records of one shard as columns.

    Attributes:
        records: the records: shard, numbers, offsets, buffer.
        lists: by feature key and the kind of list.
        refused: the records that cannot be read and have no values, by row.
        form: what else is to be said of the form of records, in the order of the rows.
    """

    records: RecordBatch
    lists: Mapping[tuple[str, Kind | None], Column]
    refused: Mapping[int, FormProblem]
    form: Sequence[FormProblem]

    @classmethod
    def of(cls, records: RecordBatch) -> ExampleBatch:
        """Parse records; those that cannot be read are refused, and have no values."""
        parsed = parse_examples(records.buffer, records.starts, records.lengths)
        refused, form = _form(records, parsed.problems)
        unread = [row for row, one in refused.items() if one.reason is not _MALFORMED]
        if unread:  # they have values, but not for everybody: read as empty records
            lengths = records.lengths.copy()
            lengths[unread] = 0
            parsed = parse_examples(records.buffer, records.starts, lengths)
        lists: dict[tuple[str, Kind | None], Column] = {}
        for one in parsed.columns:
            if not len(one.rows):
                continue
            key, kind = one.key.decode(), KIND_OF_LIST[one.kind]
            splits = np.concatenate((np.zeros(1, np.int64), one.ends.astype(np.int64)))
            rows = one.rows.astype(np.int64)
            lists[key, kind] = Column(
                key, kind, rows, splits, one.values, len(records), records.buffer
            )
        return cls(records, lists, refused, form)

    def compacted(self, hollow: str | None) -> ExampleBatch:
        """The same without the buffer: byte strings are copied, but for those of one key.

        The records keep their numbers, offsets and lengths, the values of ``hollow`` their lengths.
        """
        records, lengths = self.records, self.records.lengths
        starts = records.offsets + HEADER_BYTES
        records = RecordBatch(records.shard, records.first, 0, bytearray(), starts, lengths)
        lists = {key: one.compacted(key[0] == hollow) for key, one in self.lists.items()}
        return ExampleBatch(records, lists, self.refused, self.form)

    @classmethod
    def joined(cls, parts: Sequence[ExampleBatch]) -> ExampleBatch:
        """Compacted batches of one shard, whose records follow each other, as one."""
        if len(parts) == 1:
            return parts[0]
        rows = np.cumsum([0, *map(len, parts)]).tolist()
        found: dict[tuple[str, Kind | None], list[tuple[int, Column]]] = {}
        for row, part in zip(rows[:-1], parts, strict=True):
            for key, one in part.lists.items():
                found.setdefault(key, []).append((row, one))
        lists = {key: Column.joined(members, rows[-1]) for key, members in found.items()}
        first = parts[0].records
        starts, lengths = (
            np.concatenate([getattr(part.records, name) for part in parts])
            for name in ("starts", "lengths")
        )
        records = RecordBatch(first.shard, first.first, 0, bytearray(), starts, lengths)
        refused: dict[int, FormProblem] = {}
        form: list[FormProblem] = []
        for row, part in zip(rows[:-1], parts, strict=True):
            refused |= {row + at: replace(one, row=row + at) for at, one in part.refused.items()}
            form += [replace(one, row=row + one.row) for one in part.form]
        return cls(records, lists, refused, form)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory a compacted batch needs."""
        columns = self.lists.values()
        arrays = sum(one.rows.nbytes + one.splits.nbytes + one.values.nbytes for one in columns)
        return arrays + sum(len(one.buffer) + _COLUMN for one in columns)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def buffer(self) -> bytearray:
        """Holds the byte strings."""
        return self.records.buffer

    def column(self, key: str, kind: Kind) -> Column:
        """The column of one key and one kind of list; an empty one where no record has it."""
        found = self.columns.get(key)  # nearly always the only one
        if found is not None and found.kind is kind:
            return found
        return self.lists.get((key, kind)) or Column.empty(key, kind, len(self))

    def columns_of(self, key: str) -> list[Column]:
        """The columns of one key, of each kind of list that it has in this batch."""
        return self._by_key.get(key, [])

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """By feature key; of one with lists of several kinds that of the kind that came first."""
        return {key: columns[0] for key, columns in self._by_key.items()}

    @cached_property
    def _by_key(self) -> Mapping[str, list[Column]]:
        found: dict[str, list[Column]] = {}
        for one in self.lists.values():
            found.setdefault(one.key, []).append(one)
        return found

    def columns_in(self, row: int) -> list[Column]:
        """The columns in which a record has a list, or a feature without one."""
        columns, numbers, splits = self._by_row
        return [columns[number] for number in numbers[splits[row] : splits[row + 1]].tolist()]

    @cached_property
    def _by_row(self) -> tuple[Sequence[Column], np.ndarray, np.ndarray]:
        """All columns; the numbers of those of each record, and where these begin."""
        columns = list(self.lists.values())
        rows = np.concatenate([np.empty(0, np.int64), *(one.rows for one in columns)])
        numbers = np.repeat(np.arange(len(columns)), [len(one.rows) for one in columns])
        order = np.argsort(rows, kind="stable")
        splits = np.searchsorted(rows[order], np.arange(len(self) + 1))
        return columns, numbers[order], splits

    def error(
        self, row: int, cause: str, *, feature: str | None = None, fix: str = ""
    ) -> RecordError:
        """An error that names one of the records."""
        records = self.records
        return RecordError(
            cause,
            shard=records.shard,
            record=records.first + row,
            offset=int(records.offsets[row]),
            feature=feature,
            fix=fix,
        )

    def refusal(self, row: int) -> RecordError | None:
        """The error of a record that is not a ``tf.train.Example``; None for any other."""
        found = self.refused.get(row)
        if found is None:
            return None
        return self.error(row, f"the record is not a tf.train.Example ({found.reason})")


_MALFORMED = "its bytes are another message, or none"
_SEQUENCE = "it has the feature lists of a SequenceExample"


def _form(
    records: RecordBatch, problems: Sequence[Problem]
) -> tuple[dict[int, FormProblem], list[FormProblem]]:
    """Which records cannot be read, and what else is to be said of the form of records."""
    refused: dict[int, FormProblem] = {}
    form: list[FormProblem] = []
    unusual: set[int] = set()
    for one in problems:
        row = one.row
        if one.code is ProblemCode.MALFORMED:
            refused[row] = FormProblem(row, EncodingIssue.NOT_AN_EXAMPLE, _MALFORMED)
        elif one.code is ProblemCode.SEQUENCE_EXAMPLE:
            refused[row] = FormProblem(row, EncodingIssue.SEQUENCE_EXAMPLE, _SEQUENCE)
        elif one.code is ProblemCode.REPEATED_KEY:
            key = (one.key or b"").decode()
            form.append(FormProblem(row, EncodingIssue.REPEATED_KEY, "comes more than once", key))
        elif row not in unusual and row not in refused:
            unusual.add(row)
            start = int(records.starts[row])
            found = find_encoding_issues(records.buffer, start, start + int(records.lengths[row]))
            if found is not None and found[0] is EncodingIssue.NOT_AN_EXAMPLE:
                refused[row] = FormProblem(row, *found)
            elif found is not None:
                form.append(FormProblem(row, *found))
    return refused, [one for one in form if one.row not in refused]


def bytes_of(buffer: bytes | bytearray, spans: np.ndarray) -> list[bytes]:
    """Byte strings, copied; ``spans`` are start and length of each, int64 of shape (n, 2)."""
    return [bytes(buffer[start : start + length]) for start, length in spans.tolist()]


def texts_of(buffer: bytes | bytearray, spans: np.ndarray) -> list[str] | None:
    """The same as texts; None where one of them is not UTF-8."""
    if not len(spans):
        return []
    joined = gather_spans(buffer, spans, b"\0")
    try:
        texts = joined.decode().split("\0")
    except UnicodeDecodeError:
        return None
    if len(texts) == len(spans):
        return texts
    return [one.decode() for one in bytes_of(buffer, spans)]  # some hold zero bytes
