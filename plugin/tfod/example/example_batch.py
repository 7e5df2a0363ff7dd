"""Records as columns: the values of each feature key for all records of a batch.

A column is what TensorFlow calls a ragged tensor: values, and ``row_splits`` with the start and end
of each record's values. Byte strings are stored as start and length in the batch's buffer.
"""

from __future__ import annotations

import shlex
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
_NO_ROWS, _NO_SPLITS = np.empty(0, np.intp), np.zeros(1, np.intp)
_COLUMN_OVERHEAD = 1 << 10
"""Estimated bytes of a column in addition to its arrays: records may have thousands of keys."""


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one feature key in a batch of records.

    Attributes:
        kind: kind of list that holds the values; None for features without a list.
        rows: records that have such a list, ascending, intp of shape (r,).
        splits: start of the values of each of these records, and the end, intp of shape (r + 1,).
        values: float32 or int64 (n,); for byte strings, start and length in ``buffer``, (n, 2).
        length: number of records in the batch.
        buffer: buffer that contains the byte strings.
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
        """Return a column without values for a batch of ``length`` records."""
        return cls(key, kind, _NO_ROWS, _NO_SPLITS, _NO_VALUES[kind], length, b"")

    @property
    def lengths(self) -> np.ndarray:
        """The number of values of each of ``rows``, intp of shape (r,)."""
        lengths: np.ndarray = self.splits[1:] - self.splits[:-1]  # np.diff is slower if short
        return lengths

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of values of each record, 0 without such a list; intp of shape (length,)."""
        lengths = self.lengths
        if len(self.rows) == self.length:
            return lengths
        counts = np.zeros(self.length, np.intp)
        counts[self.rows] = lengths
        return counts

    @cached_property
    def row_splits(self) -> np.ndarray:
        """The start of each record's values, and the end; intp of shape (length + 1,)."""
        if len(self.rows) == self.length:
            return self.splits
        return np.concatenate((_NO_SPLITS, np.cumsum(self.counts)))

    @cached_property
    def present(self) -> np.ndarray:
        """Whether each record has the list, even an empty one; bool of shape (length,)."""
        present = np.zeros(self.length, bool)
        present[self.rows] = True
        return present

    def has(self, row: int) -> bool:
        """Return whether a record has the list, even an empty one."""
        return self._index(row) is not None

    def _index(self, row: int) -> int | None:
        # row_splits would cost time for every key: in the worst case each record has other keys.
        if len(self.rows) == self.length:
            return row
        index = int(np.searchsorted(self.rows, row))
        return index if index < len(self.rows) and int(self.rows[index]) == row else None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> np.ndarray:
        """Return the values of one record."""
        index = self._index(row)
        if index is None:
            return self.values[:0]
        return self.values[self.splits[index] : self.splits[index + 1]]

    def byte_strings(self) -> list[bytes]:
        """Return copies of all byte strings."""
        return copy_bytes(self.buffer, self.values)

    def compact(self, drop_values: bool) -> Column:
        """Copy the column with a new buffer of its byte strings, or only with their lengths."""
        values, buffer = self.values, b""
        if self.kind is Kind.BYTES:
            values = values.copy()
            buffer = b"" if drop_values else gather_spans(self.buffer, values)
            values[:, 0] = 0 if drop_values else np.cumsum(values[:, 1]) - values[:, 1]
        return Column(self.key, self.kind, self.rows, self.splits, values, self.length, buffer)

    @staticmethod
    def join(parts: Sequence[tuple[int, Column]], length: int) -> Column:
        """Join compacted columns of one key and kind, each with the row of its first record."""
        columns = [column for _, column in parts]
        rows = np.concatenate([row + column.rows for row, column in parts])
        counts = np.concatenate([column.lengths for column in columns])
        splits = np.concatenate((_NO_SPLITS, np.cumsum(counts)))
        values = np.concatenate([column.values for column in columns])
        buffers = [column.buffer for column in columns]
        first = columns[0]
        if first.kind is Kind.BYTES:
            starts = np.cumsum([0, *map(len, buffers)], dtype=np.int64)[:-1]
            values[:, 0] += np.repeat(starts, [len(column.values) for column in columns])
        return Column(first.key, first.kind, rows, splits, values, length, b"".join(buffers))


@dataclass(frozen=True)
class EncodingProblem:
    """A problem with the encoding of one record; ``key`` may be empty."""

    row: int
    issue: EncodingIssue
    reason: str
    key: str = ""


@dataclass(frozen=True, eq=False)
class ExampleBatch:
    """Consecutive records of one shard as columns.

    Attributes:
        records: records with shard, numbers, offsets and buffer.
        lists: columns by feature key and kind of list.
        unreadable: problems of the records that cannot be read and have no values, by row.
        encoding_problems: other problems with the encoding of records, ordered by row.
    """

    records: RecordBatch
    lists: Mapping[tuple[str, Kind | None], Column]
    unreadable: Mapping[int, EncodingProblem]
    encoding_problems: Sequence[EncodingProblem]

    @classmethod
    def of(cls, records: RecordBatch) -> ExampleBatch:
        """Parse records. Those that cannot be read are in ``unreadable`` and have no values."""
        parsed = parse_examples(records.buffer, records.starts, records.lengths)
        unreadable, encoding_problems = _encoding_problems(records, parsed.problems)
        unread = [row for row, problem in unreadable.items() if problem.reason is not _MALFORMED]
        if unread:  # the kernel found values that other readers reject: parse as empty records
            lengths = records.lengths.copy()
            lengths[unread] = 0
            parsed = parse_examples(records.buffer, records.starts, lengths)
        lists: dict[tuple[str, Kind | None], Column] = {}
        for column in parsed.columns:
            if not len(column.rows):
                continue
            key, kind = column.key.decode(), KIND_OF_LIST[column.kind]
            splits = np.concatenate((_NO_SPLITS, column.ends.astype(np.intp)))
            rows = column.rows.astype(np.intp)
            values, buffer = column.values, records.buffer
            lists[key, kind] = Column(key, kind, rows, splits, values, len(records), buffer)
        return cls(records, lists, unreadable, encoding_problems)

    def compact(self, dropped_key: str | None) -> ExampleBatch:
        """Copy the batch without its buffer, and of ``dropped_key`` only the lengths."""
        records, lengths = self.records, self.records.lengths
        starts = records.offsets + HEADER_BYTES
        records = RecordBatch(records.shard, records.first, 0, bytearray(), starts, lengths)
        lists = {key: x.compact(key[0] == dropped_key) for key, x in self.lists.items()}
        return ExampleBatch(records, lists, self.unreadable, self.encoding_problems)

    @classmethod
    def join(cls, parts: Sequence[ExampleBatch]) -> ExampleBatch:
        """Join compacted batches of consecutive records of one shard."""
        if len(parts) == 1:
            return parts[0]
        rows = np.cumsum([0, *map(len, parts)]).tolist()
        columns: dict[tuple[str, Kind | None], list[tuple[int, Column]]] = {}
        for row, part in zip(rows[:-1], parts, strict=True):
            for key, column in part.lists.items():
                columns.setdefault(key, []).append((row, column))
        lists = {key: Column.join(group, rows[-1]) for key, group in columns.items()}
        first = parts[0].records
        starts, lengths = (
            np.concatenate([getattr(part.records, name) for part in parts])
            for name in ("starts", "lengths")
        )
        records = RecordBatch(first.shard, first.first, 0, bytearray(), starts, lengths)
        unreadable: dict[int, EncodingProblem] = {}
        encoding_problems: list[EncodingProblem] = []
        for row, part in zip(rows[:-1], parts, strict=True):
            unreadable |= {row + at: replace(x, row=row + at) for at, x in part.unreadable.items()}
            encoding_problems += [
                replace(problem, row=row + problem.row) for problem in part.encoding_problems
            ]
        return cls(records, lists, unreadable, encoding_problems)

    @property
    def nbytes(self) -> int:
        """The approximate memory of a compacted batch in bytes."""
        columns = self.lists.values()
        arrays = sum(x.rows.nbytes + x.splits.nbytes + x.values.nbytes for x in columns)
        return arrays + sum(len(column.buffer) + _COLUMN_OVERHEAD for column in columns)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def buffer(self) -> bytearray:
        """The buffer that contains the byte strings."""
        return self.records.buffer

    def column(self, key: str, kind: Kind) -> Column:
        """Return the column of a key and kind of list, empty if no record has it."""
        column = self.columns.get(key)  # nearly always the only column of the key
        if column is not None and column.kind is kind:
            return column
        return self.lists.get((key, kind)) or Column.empty(key, kind, len(self))

    def find_columns(self, key: str) -> list[Column]:
        """Return the columns of a key, one for each kind of list in this batch."""
        return self._by_key.get(key, [])

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """The columns by feature key; the first one if a key has lists of several kinds."""
        return {key: columns[0] for key, columns in self._by_key.items()}

    @cached_property
    def _by_key(self) -> Mapping[str, list[Column]]:
        columns: dict[str, list[Column]] = {}
        for column in self.lists.values():
            columns.setdefault(column.key, []).append(column)
        return columns

    def columns_in(self, row: int) -> list[Column]:
        """Return the columns with an entry for a record; a feature without a list counts."""
        columns, numbers, splits = self._by_row
        return [columns[number] for number in numbers[splits[row] : splits[row + 1]].tolist()]

    @cached_property
    def _by_row(self) -> tuple[Sequence[Column], np.ndarray, np.ndarray]:
        """All columns, and CSR-style indices of the columns of each record."""
        columns = list(self.lists.values())
        rows = np.concatenate([_NO_ROWS, *(column.rows for column in columns)])
        indices = np.repeat(np.arange(len(columns)), [len(column.rows) for column in columns])
        order = np.argsort(rows, kind="stable")
        splits = np.searchsorted(rows[order], np.arange(len(self) + 1))
        return columns, indices[order], splits

    def error(
        self, row: int, cause: str, *, feature: str | None = None, fix: str = ""
    ) -> RecordError:
        """Return an error that names one of the records; SOURCE in the fix is its shard."""
        records = self.records
        return RecordError(
            cause,
            shard=records.shard,
            record=records.first + row,
            offset=int(records.offsets[row]),
            feature=feature,
            fix=fix.replace("SOURCE", shlex.quote(records.shard)),
        )

    def parse_error(self, row: int) -> RecordError | None:
        """Return the error of a record that is not a ``tf.train.Example``, or None."""
        problem = self.unreadable.get(row)
        if problem is None:
            return None
        return self.error(row, f"the record is not a tf.train.Example ({problem.reason})")


_MALFORMED = "its bytes are another message or not a message"
_SEQUENCE = "it has the feature lists of a SequenceExample"


def _encoding_problems(
    records: RecordBatch, problems: Sequence[Problem]
) -> tuple[dict[int, EncodingProblem], list[EncodingProblem]]:
    unreadable: dict[int, EncodingProblem] = {}
    encoding_problems: list[EncodingProblem] = []
    unusual: set[int] = set()
    for problem in problems:
        row = problem.row
        if problem.code is ProblemCode.MALFORMED:
            unreadable[row] = EncodingProblem(row, EncodingIssue.NOT_AN_EXAMPLE, _MALFORMED)
        elif problem.code is ProblemCode.SEQUENCE_EXAMPLE:
            unreadable[row] = EncodingProblem(row, EncodingIssue.SEQUENCE_EXAMPLE, _SEQUENCE)
        elif problem.code is ProblemCode.REPEATED_KEY:
            key = (problem.key or b"").decode()
            encoding_problems.append(
                EncodingProblem(row, EncodingIssue.REPEATED_KEY, "occurs more than once", key)
            )
        elif row not in unusual and row not in unreadable:
            unusual.add(row)
            start = int(records.starts[row])
            issue = find_encoding_issues(records.buffer, start, start + int(records.lengths[row]))
            if issue is not None and issue[0] is EncodingIssue.NOT_AN_EXAMPLE:
                unreadable[row] = EncodingProblem(row, *issue)
            elif issue is not None:
                encoding_problems.append(EncodingProblem(row, *issue))
    return unreadable, [x for x in encoding_problems if x.row not in unreadable]


def copy_bytes(buffer: bytes | bytearray, spans: np.ndarray) -> list[bytes]:
    """Copy byte strings; ``spans`` has the start and length of each, int64 of shape (n, 2)."""
    return [bytes(buffer[start : start + length]) for start, length in spans.tolist()]


def decode_texts(buffer: bytes | bytearray, spans: np.ndarray) -> list[str] | None:
    """Decode byte strings, see :func:`copy_bytes`; None if one of them is not UTF-8."""
    if not len(spans):
        return []
    joined = gather_spans(buffer, spans, b"\0")
    try:
        texts = joined.decode().split("\0")
    except UnicodeDecodeError:
        return None
    if len(texts) == len(spans):
        return texts
    return [value.decode() for value in copy_bytes(buffer, spans)]  # a text contains a zero byte
