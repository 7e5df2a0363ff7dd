"""What records say of classes and images: by feature key, and which values are equal."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tfod.detection import keys
from tfod.detection.columns import lenient_text
from tfod.errors import RecordError
from tfod.example.columns import Column, ExampleBatch, bytes_of
from tfod.example.wire import Kind
from tfod.kernel import code_spans

ClassName: TypeAlias = "tuple[str | None, int | None]"
"""Text and id of one class; None where the record does not say."""

CLASS_KEYS = (
    (keys.CLASS_TEXT, keys.CLASS_LABEL),
    (keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL),
)
"""Where the classes of objects are, and those of whole images: texts and ids."""
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class NamedClasses:
    """The classes that the records of a batch name, in the order of the records.

    Attributes:
        rows: the record of each object or image that has a class, int64 of shape (n,).
        pairs: which of :data:`CLASS_KEYS` name it, int64 of shape (n,).
        labels: the id that is there; -1 where none is, int64 of shape (n,).
        has_label: whether one is, bool of shape (n,).
        codes: which of the names it has, int64 of shape (n,).
        names: the different names, in the order in which they come.
        firsts: for each name the first that has it, int64 of shape (len(names),).
    """

    rows: np.ndarray
    pairs: np.ndarray
    labels: np.ndarray
    has_label: np.ndarray
    codes: np.ndarray
    names: Sequence[ClassName]
    firsts: np.ndarray


class RecordReader:
    """Reads columns of a batch, and collects what is wrong: of each kind the first record."""

    def __init__(self, batch: ExampleBatch) -> None:
        self.batch = batch
        self._found: list[tuple[int, RecordError]] = []
        if batch.refused:
            row = min(batch.refused)
            refusal = batch.refusal(row)
            assert refusal is not None
            self._found.append((row, refusal))

    def add_error(self, row: int, cause: str, *, feature: str | None = None, fix: str = "") -> None:
        """Note what is wrong with one record."""
        self._found.append((row, self.batch.error(row, cause, feature=feature, fix=fix)))

    def raise_first(self) -> None:
        """Raise the error of the first record that has one; of several that was noted first.

        Raises:
            RecordError: see above.
        """
        if self._found:
            raise min(self._found, key=lambda one: one[0])[1]

    def column(self, key: str, kind: Kind) -> Column:
        """The values of a key; an error where records hold another kind of list."""
        for one in self.batch.columns_of(key):
            if one.kind is kind:
                continue
            rows = one.rows[np.diff(one.splits) > 0]
            if len(rows):
                held = one.kind.value if one.kind else "nothing"
                self.add_error(
                    int(rows[0]),
                    f"is {held}, expected {kind.value}",
                    feature=key,
                    fix="write the shard again with the right type",
                )
        return self.batch.column(key, kind)

    def byte_strings(self, key: str) -> Iterator[bytes | memoryview | None]:
        """The bytes that each record has under a key, joined; None for none."""
        column = self.column(key, Kind.BYTES)
        view = memoryview(self.batch.buffer)
        starts, lengths = column.values.T.tolist() if len(column.values) else ((), ())
        for first, stop in itertools.pairwise(column.row_splits.tolist()):
            if stop - first == 1:
                start = starts[first]
                yield view[start : start + lengths[first]] if lengths[first] else None
            else:
                parts = zip(starts[first:stop], lengths[first:stop], strict=True)
                yield b"".join(view[start : start + length] for start, length in parts) or None

    def classes(self) -> NamedClasses:
        """Find the classes that records name; an error where lists differ in length."""
        texts: list[str | None] = [None]
        found: list[tuple[np.ndarray, ...]] = []
        for pair in range(len(CLASS_KEYS)):
            rows, text_codes, labels, has_label = self._named_by(pair, texts)
            found.append((rows, np.full(len(rows), pair), text_codes, labels, has_label))
        columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        if len(found[1][0]):
            order = np.lexsort((columns[1], columns[0]))
            columns = [one[order] for one in columns]
        rows, pairs, text_codes, labels, has_label = columns
        distinct, label_codes = np.unique(labels, return_inverse=True)
        names = (text_codes * len(distinct) + label_codes) * 2 + has_label
        _, firsts, codes = np.unique(names, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        firsts = firsts[order]
        named = zip(
            text_codes[firsts].tolist(),
            labels[firsts].tolist(),
            has_label[firsts].tolist(),
            strict=True,
        )
        return NamedClasses(
            rows,
            pairs,
            labels,
            has_label,
            ranks[codes.ravel()],
            [(texts[code], label if has else None) for code, label, has in named],
            firsts,
        )

    def _named_by(
        self, pair: int, texts: list[str | None]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Rows, numbers of texts, labels, and whether there are labels, as two keys have them.

        New texts are added to those there are; number 0 is none.
        """
        text_key, label_key = CLASS_KEYS[pair]
        text_column = self.column(text_key, Kind.BYTES)
        label_column = self.column(label_key, Kind.INT64)
        text_counts, label_counts = text_column.counts, label_column.counts
        differ = (text_counts > 0) & (label_counts > 0) & (text_counts != label_counts)
        if differ.any():
            row = int(differ.argmax())
            self.add_error(
                row,
                f"holds {label_counts[row]} values, but {text_key} holds {text_counts[row]}",
                feature=label_key,
                fix="see what else is wrong with: tfod check",
            )
        counts = np.where(~differ, np.maximum(text_counts, label_counts), 0)
        rows = np.repeat(np.arange(len(self.batch)), counts)
        has_text, has_label = (text_counts > 0)[rows], (label_counts > 0)[rows]
        text_codes, labels = np.zeros(len(rows), np.int64), np.full(len(rows), -1)
        buffer = self.batch.buffer
        codes, firsts = code_spans(buffer, text_column.values)
        text_codes[has_text] = codes[np.repeat(~differ, text_counts)] + len(texts)
        labels[has_label] = label_column.values[np.repeat(~differ, label_counts)]
        texts += map(lenient_text, bytes_of(buffer, text_column.values[firsts]))
        return rows, text_codes, labels, has_label


class EqualValues:
    """Collects one value of each record, by its SHA-256, and finds the equal ones."""

    def __init__(self) -> None:
        self._digests = bytearray()

    def add(self, value: bytes | memoryview | None) -> None:
        """The value of the next record; None equals nothing."""
        if value is None:
            number = len(self._digests) // _DIGEST_BYTES
            self._digests += number.to_bytes(_DIGEST_BYTES, "big")
        else:
            self._digests += hashlib.sha256(value).digest()[:_DIGEST_BYTES]

    def firsts(self) -> np.ndarray:
        """For each record the number of the first one with an equal value, int64 of shape (n,)."""
        halves = np.frombuffer(bytes(self._digests), "<u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: the first one stays first
        ordered = halves[order]
        begins = np.ones(len(order), bool)
        begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        firsts = np.empty(len(order), np.int64)
        firsts[order] = order[begins][np.cumsum(begins) - 1]
        return firsts
