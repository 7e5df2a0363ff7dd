"""Merging: shards whose label maps number the classes differently become one dataset."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.check.findings.finding import plural
from tfod.detection import keys
from tfod.detection.labels.label_map import load_label_map
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.example.rewrite import rewrite_example
from tfod.example.wire import Kind
from tfod.shards.inputs import Written, missing_shards, sound_examples
from tfod.shards.merge.classes import MergedClasses
from tfod.shards.record_classes import EqualValues, RecordReader
from tfod.tfrecord.output_folder import OutputFolder
from tfod.tfrecord.shard_sets.search import find_all_shards
from tfod.tfrecord.writer import ShardLayout, ShardSetWriter

_MOST_LISTED = 1000
_MOST_SAID = 10
# What says which image it is, and nothing about what is in it.
_NO_ANNOTATION = frozenset((keys.ENCODED, keys.FORMAT, keys.FILENAME, keys.SOURCE_ID, keys.SHA256))


@dataclass(frozen=True)
class EqualRecords:
    """Two records, by shard and number from 0, of the same image or file name in a subset.

    ``dropped`` says that the second was left out, since its annotations are equal too.
    """

    first: str
    second: str
    same_image: bool
    dropped: bool


@dataclass(frozen=True)
class Merged(Written):
    """What was written.

    Attributes:
        rewritten: how many records got other ids; all others are as they were, byte for byte.
        classes: how many the label map has.
        equal_images: how many records have the image of an earlier one.
        dropped: how many of those were left out.
        equal_names: how many others have the file name of an earlier one of their subset.
        equal: the first of all these.
    """

    rewritten: int
    classes: int
    equal_images: int
    dropped: int
    equal_names: int
    equal: Sequence[EqualRecords]

    def repeated(self) -> Iterator[str]:
        """Sentences about records that an earlier one repeats."""
        for count, what in (
            (self.equal_images - self.dropped, "the image of an earlier record"),
            (self.equal_names, "the file name of an earlier record of its subset"),
        ):
            if count:
                yield f"{plural(count, 'record')} written with {what}"
        for one in self.equal[:_MOST_SAID]:
            what = "same image" if one.same_image else "same file name"
            what += ", left out" * one.dropped
            yield f"{what}: {one.second}; first in {one.first}"
        more = self.equal_images + self.equal_names - _MOST_SAID
        if more > 0:
            yield f"and {more:,} more of these"


def merge(
    sources: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    label_map: str | os.PathLike[str] | None = None,
    layout: ShardLayout | None = None,
    drop_equal_images: bool = False,
    overwrite: bool = False,
) -> Merged:
    """Put shards together: one label map, subsets of the same name joined in the order given.

    Classes are joined by name (or display name). The first label map keeps its ids, a class of a
    later one gets the next free id where its own is taken. Ids of classes are then rewritten in
    every record, of objects and of images, and the lists of ids that LVIS has; text decides over
    id, as everywhere in tfod. Texts stay as they are, an id without a text gets its new id, and a
    record in which nothing changes is copied byte for byte.

    Args:
        sources: shards as :func:`find_all_shards` takes them, each with its label map beside it.
        folder: where to write.
        label_map: a label map file, or one that tfod ships, whose ids all records get.
        layout: number, size and compression of the shards of each subset.
        drop_equal_images: leave out a record when an earlier one has the same image, by its
            bytes, and the same annotations: all features but name, source id, format and checksum.
        overwrite: replace shards of the same subsets in the folder.

    Raises:
        ShardsNotFoundError: there is nothing to read.
        ShardError: a shard is damaged, a record is no Example, or a class in it is only an id that
            its label map does not have.
        LabelMapError: a label map is none, or lacks a class.
        OutputExistsError: there is something in the folder, or it is what is read.
        WriteError: the folder cannot be written to.
        TfodError: a shard is given twice.
    """
    sets = find_all_shards(sources)
    paths = [path for one in sets for path in one.paths]
    target = None if label_map is None else load_label_map(label_map)[0]
    classes = MergedClasses(paths, target)
    equal = _EqualRecords(drop_equal_images)
    records: dict[str, int] = {}
    rewritten = 0
    with OutputFolder(folder, [*(os.fspath(one) for one in sources), *paths], overwrite) as out:
        for one in sets:
            out.require_free(one.subset)
        for one in sets:
            for path in one.paths:
                for batch in sound_examples(path):
                    reader = RecordReader(batch)
                    classes.see(reader)
                    equal.see(reader, one.subset)
                    reader.raise_first()
        merged = classes.finish()
        out.add_text(LABEL_MAP_FILE, merged.to_text().encode())
        equal.find()
        for one in sets:
            writer = out.add_subset(one.subset, layout or ShardLayout())
            for path in one.paths:
                for batch in sound_examples(path):
                    rewritten += _copy(batch, classes.changes(batch), equal, writer)
            writer.complete()
            records[one.subset] = writer.count
    return Merged(
        records=records,
        rewritten=rewritten,
        classes=len(merged.items),
        equal_images=equal.images,
        dropped=equal.dropped,
        equal_names=equal.names,
        equal=equal.listed,
        paths=out.paths,
        notes=(*missing_shards(sets), *classes.notes),
    )


def _copy(
    batch: ExampleBatch,
    changes: Mapping[int, Mapping[str, bytes | None]],
    equal: _EqualRecords,
    writer: ShardSetWriter,
) -> int:
    """Write the next records but those to be left out; return how many get other ids."""
    rewritten = first = 0  # of the rows that are written as they are
    looked_at = equal.next(batch)
    looked_at[list(changes)] = True
    for row in np.flatnonzero(looked_at).tolist():
        example = Example(batch, row)
        payload = rewrite_example(example, changes[row]) if row in changes else None
        dropped = equal.is_repeated(row, example, payload)
        if payload is None and not dropped:
            continue
        writer.copy(batch.records, slice(first, row))
        first = row + 1
        if payload is not None and not dropped:
            writer.write(payload)
            rewritten += 1
    writer.copy(batch.records, slice(first, None))
    return rewritten


class _EqualRecords:
    """Which records have the image, or the file name, of an earlier one.

    All records are walked through twice: they are seen, and then looked at while they are written.

    Attributes:
        images, names, dropped, listed: as :class:`Merged` has them.
    """

    def __init__(self, drop: bool) -> None:
        self._drop = drop
        self.images = self.names = self.dropped = 0
        self.listed: list[EqualRecords] = []
        self._values = EqualValues(), EqualValues()  # images and names
        self._shards: list[str] = []
        self._begins: list[int] = []
        self._count = 0
        self._begin = self._end = 0  # of the batch that is written
        self._kept: dict[int, set[bytes]] = {}

    def see(self, reader: RecordReader, subset: str) -> None:
        """Note the next records."""
        records = reader.batch.records
        if records.first == 0:
            self._shards.append(records.shard)
            self._begins.append(self._count)
        images, names = self._values
        for value in reader.byte_strings(keys.ENCODED):
            images.add(value)
        begin = subset.encode() + b"\0"
        for name in reader.byte_strings(keys.FILENAME):
            names.add(None if name is None else begin + name)
        self._count += len(records)

    def find(self) -> None:
        """Find the equal ones, when all records are seen."""
        self._first_image, self._first_name = (one.firsts() for one in self._values)
        self._same_image = np.bincount(self._first_image, minlength=self._count)

    def next(self, batch: ExampleBatch) -> np.ndarray:
        """Which of the next records are equal to others, bool of shape (len(batch),)."""
        self._begin, self._end = self._end, self._end + len(batch)
        if self._end > self._count:
            row = self._count - self._begin
            raise batch.error(row, "was not there a moment ago", fix="try again")
        numbers = np.arange(self._begin, self._end)
        found: np.ndarray = self._same_image[self._first_image[numbers]] > 1
        found |= self._first_name[numbers] != numbers
        return found

    def is_repeated(self, row: int, example: Example, payload: bytes | None) -> bool:
        """Whether to leave a record out; what is equal is counted and listed."""
        number = self._begin + row
        first = int(self._first_image[number])
        repeated = False
        if self._same_image[first] > 1:
            kept = self._kept.setdefault(first, set())
            digest = _digest(example if payload is None else Example.from_bytes(payload))
            repeated = self._drop and digest in kept
            kept.add(digest)
        if first != number:
            self.images += 1
            self.dropped += repeated
            self._list(first, number, True, repeated)
        elif self._first_name[number] != number:
            self.names += 1
            self._list(int(self._first_name[number]), number, False, False)
        return repeated

    def _list(self, first: int, second: int, same_image: bool, dropped: bool) -> None:
        if len(self.listed) < _MOST_LISTED:
            one, other = self._place(first), self._place(second)
            self.listed.append(EqualRecords(one, other, same_image, dropped))

    def _place(self, number: int) -> str:
        shard = int(np.searchsorted(self._begins, number, side="right")) - 1
        return f"{self._shards[shard]}, record {number - self._begins[shard]}"


def _digest(example: Example) -> bytes:
    """A checksum of what a record says of its image, however its writer spelled it."""
    digest = hashlib.sha256()
    for key in sorted(set(example) - _NO_ANNOTATION):
        kind = example.kind(key)
        values: Sequence[bytes]
        if kind is Kind.BYTES:
            values = example.byte_strings(key)
        elif kind is Kind.FLOAT:
            values = [example.floats(key).tobytes()]
        else:
            values = [str(value).encode() for value in example.ints(key)]
        if any(values):  # a key without a value says nothing
            for part in (key.encode(), str(kind).encode(), str(len(values)).encode(), *values):
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
    return digest.digest()
