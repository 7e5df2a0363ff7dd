"""Splitting: every record into one of several subsets, each with its share of every class."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.detection import keys
from tfod.detection.labels.classes import ClassTable
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import read_classes
from tfod.errors import ShardError, ShardsNotFoundError
from tfod.example.columns import ExampleBatch
from tfod.shards.inputs import Written, missing_shards, one_label_map, sound_batches, sound_examples
from tfod.shards.record_classes import EqualValues, RecordReader
from tfod.shards.split.stratification import stratify
from tfod.tfrecord.label_files import LABEL_MAP_FILE, LABELS_FILE
from tfod.tfrecord.output_folder import OutputFolder
from tfod.tfrecord.shard_sets.search import Sources, find_all_shards, find_shards
from tfod.tfrecord.storage.urls import name_of
from tfod.tfrecord.writer import OptionError, ShardLayout


@dataclass(frozen=True)
class SplitResult(Written):
    """What was written.

    Attributes:
        classes: the names of the classes.
        boxes: how many boxes of each class each part has, int64 of shape (parts, classes); of
            records without boxes their image's labels are counted.
        equal_images: how many records have the image of an earlier one, and went with it.
    """

    classes: Sequence[str]
    boxes: np.ndarray
    equal_images: int


def split(
    source: Sources,
    folder: str | os.PathLike[str],
    parts: Mapping[str, float | int],
    *,
    seed: int = 0,
    layout: ShardLayout | None = None,
    overwrite: bool = False,
) -> SplitResult:
    """Split the records of shards into subsets, stratified by class (:mod:`stratification`).

    Records are copied byte for byte, and keep their order; so is the label map beside them.
    Records whose ``image/encoded`` are equal bytes go into one part, so that no image is in two.
    Subsets that the source has are put together first.

    Args:
        source: shards, or several sources, as :func:`find_all_shards` takes them.
        folder: where to write.
        parts: by name a share (floats, together 1) or a number of records (ints, together all).
        seed: from 0 to 2**32 - 1; the same one gives the same parts everywhere.
        layout: of the shards of each part; one, plain, without it.
        overwrite: replace shards of the same subsets in the folder.

    Raises:
        ShardsNotFoundError: there is nothing to read.
        ShardError: a shard is damaged, or a record is no Example.
        OptionError: the parts or the seed make no sense.
        OutputExistsError: there is something in the folder, or it is what is read.
        WriteError: the folder cannot be written to.
    """
    _check(parts, seed)
    sets = find_all_shards(source)
    paths = [path for one in sets for path in one.paths]
    notes = missing_shards(sets)
    if len(sets) > 1:
        notes.append(f"these were put together first: {', '.join(one.subset for one in sets)}")
    with OutputFolder(folder, paths, overwrite) as out:
        for part in parts:
            out.require_free(part)
        label_map = one_label_map(paths, notes)
        if label_map is not None:
            name = name_of(label_map.path)
            out.add_text(name if name == LABELS_FILE else LABEL_MAP_FILE, label_map.content)
        survey = _Survey(read_classes(label_map.path)[0] if label_map else None)
        for path in paths:
            for batch in sound_examples(path):
                survey.see(batch)
        if not survey.count:
            raise ShardsNotFoundError(f"{paths[0]}: there is no record to split")
        part_of = survey.deal(_capacities(parts, survey.count), seed)
        records = np.bincount(part_of, minlength=len(parts)).tolist()
        if not all(records):
            empty = list(parts)[records.index(0)]
            raise OptionError(f"{empty}: no record would be in it, of {survey.count}")
        writers = [out.add_subset(part, layout or ShardLayout()) for part in parts]
        number = 0
        for path in paths:
            for copied in sound_batches(path):
                parts_here = part_of[number : number + len(copied)]
                for part in np.unique(parts_here).tolist():
                    writers[part].copy(copied, np.flatnonzero(parts_here == part))
                number += len(copied)
        if number != len(part_of):
            raise ShardError("was changed while it was read", shard=paths[0], fix="try again")
    names, boxes = survey.boxes(part_of, len(parts))
    if not boxes.any():
        notes.append("no record names a class by a key of the OD API: they were dealt at random")
    stay = [one.subset for one in find_shards(folder) if one.subset not in parts]
    if stay:
        notes.append(
            f"{os.fspath(folder)} has {', '.join(stay)} from before, too: an image there may now "
            "be in two subsets"
        )
    by_part = dict(zip(parts, records, strict=True))
    return SplitResult(by_part, out.paths, notes, names, boxes, survey.equal_images)


def parse_parts(texts: Sequence[str]) -> dict[str, float | int]:
    """Read parts as a command line has them: ``train=0.8``, or ``train=800`` for so many records.

    Raises:
        OptionError: one is none, or a name comes twice.
    """
    parts: dict[str, float | int] = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        try:
            value: float | int = int(amount) if amount.isdigit() else float(amount)
        except ValueError:
            value = 0
        if not name or not value > 0:
            raise OptionError(f"{text!r} is not a part; write for example train=0.8 or train=800")
        if name in parts:
            raise OptionError(f"{name}: this part is there twice")
        parts[name] = value
    return parts


def _check(parts: Mapping[str, float | int], seed: int) -> None:
    if not 0 <= seed < 1 << 32:
        raise OptionError(f"seed: {seed} is not a seed from 0 to {(1 << 32) - 1}")
    if len({isinstance(one, int) for one in parts.values()}) != 1:
        raise OptionError("parts: give a share (0.8) for all of them, or a number (800) for all")
    total = sum(parts.values())
    if isinstance(total, float) and not abs(total - 1) < 1e-6:
        raise OptionError(f"parts: the shares are {total:g} together, not 1")


def _capacities(parts: Mapping[str, float | int], count: int) -> list[int]:
    """How many records each part gets; shares are rounded so that the sum is right."""
    amounts = list(parts.values())
    if isinstance(amounts[0], int):
        if sum(amounts) != count:
            raise OptionError(f"parts: {sum(amounts)} records together, but there are {count}")
        return [int(one) for one in amounts]
    exact = [share * count for share in amounts]
    whole = [int(one + 1e-6) for one in exact]
    # What rounding down has left goes to those that lost most by it.
    by_loss = sorted(range(len(exact)), key=lambda part: whole[part] - exact[part])
    for part in by_loss[: count - sum(whole)]:
        whole[part] += 1
    return whole


class _Survey:
    """What a split has to know of the records: their classes and which images are equal."""

    def __init__(self, label_map: LabelMap | None) -> None:
        self._table = ClassTable()
        self._scope = self._table.add_label_map(label_map)
        self._images = EqualValues()
        # Three numbers for each class of each record: the record, the class, how many boxes.
        self._entries = array("q")
        self.count = 0
        self.equal_images = 0

    def see(self, batch: ExampleBatch) -> None:
        """Note the next records.

        Raises:
            RecordError: one is not an Example, or its lists of classes are odd.
        """
        reader = RecordReader(batch)
        for value in reader.byte_strings(keys.ENCODED):
            self._images.add(value)
        named = reader.classes(objects_first=True)
        reader.raise_first()
        numbers = [self._table.resolve(self._scope, *name) for name in named.names]
        found = np.array([-1 if one is None else one for one in numbers], np.int64)[named.codes]
        most = int(found.max(initial=0)) + 1
        entries, boxes = np.unique((named.rows * most + found)[found >= 0], return_counts=True)
        columns = (entries // most + self.count, entries % most, boxes)
        self._entries.frombytes(np.stack(columns, axis=1).tobytes())
        self.count += len(batch)

    def deal(self, capacities: list[int], seed: int) -> np.ndarray:
        """The part of each record, int64 of shape (records,)."""
        firsts = self._images.firsts()
        # A thing to be dealt is all records of one image.
        distinct, thing_of = np.unique(firsts, return_inverse=True)
        self.equal_images = self.count - len(distinct)
        records, classes, boxes = self._columns()
        pairs, place = np.unique(
            np.stack((thing_of[records], classes)), axis=1, return_inverse=True
        )
        counts = np.bincount(place.ravel(), boxes, pairs.shape[1]).astype(np.int64)
        entries = np.vstack((pairs, counts))
        parts = np.array(stratify(np.bincount(thing_of), entries, capacities, seed))
        found: np.ndarray = parts[thing_of]
        return found

    def boxes(self, part_of: np.ndarray, parts: int) -> tuple[list[str], np.ndarray]:
        """The names of the classes, and the boxes of each in each part."""
        _, names, places = self._table.finish()
        counts = np.zeros((parts, len(names)), np.int64)
        records, classes, boxes = self._columns()
        if len(records):
            np.add.at(counts, (part_of[records], np.array(places)[classes]), boxes)
        return names, counts

    def _columns(self) -> np.ndarray:
        columns: np.ndarray = np.frombuffer(self._entries, np.int64).reshape(-1, 3).T
        return columns
