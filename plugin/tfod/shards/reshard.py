"""Resharding: the same records in another number of shards, compressed or not, shuffled or not."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfod.detection.images.source_ids import LARGEST_FOR, SourceIdNumbers
from tfod.shards.inputs import (
    Written,
    compression_of,
    missing_shards,
    naming_repair,
    one_label_map,
    sound_batches,
    unpack,
)
from tfod.shards.source_ids import number_payload, numbered, numbers_for
from tfod.tfrecord.output_folder import OutputFolder, WorkFolder
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.names import (
    parse_shard_name,
    shard_file_names,
    similar_file_names,
    subset_of_stem,
)
from tfod.tfrecord.shard_sets.search import ShardSet, Sources, find_all_shards
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of
from tfod.tfrecord.writer import OptionError, ShardLayout


@dataclass(frozen=True)
class Resharded(Written):
    """What was written, and the label maps that were copied along."""

    label_maps: Sequence[str]


def reshard(
    source: Sources,
    folder: str | os.PathLike[str],
    layout: ShardLayout | None = None,
    *,
    shuffle: int | None = None,
    overwrite: bool = False,
    receiver: str | None = None,
) -> Resharded:
    """Write the records of shards into other shards; the bytes of each record stay as they are.

    Subsets are kept apart, and named as they were (:func:`similar_file_names`); the label map
    beside the shards is copied byte for byte. Without a shuffle, memory is flat and records keep
    their order, dealt in turn over the shards as the OD API does it; with one it takes 24 bytes a
    record, compressed shards are unpacked into a temporary file, and remote ones are copied into a
    hidden folder beside what is written.

    Args:
        source: shards, or several sources, as :func:`find_all_shards` takes them; of several the
            subsets of one name are joined.
        folder: where to write.
        layout: number, size and compression of the shards; where it says nothing they stay.
        shuffle: a seed from 0 to 2**32 - 1. Each subset is permuted by
            ``numpy.random.RandomState(seed).permutation``, whose results NumPy has frozen
            (NEP 19), so that they are the same everywhere.
        overwrite: replace shards of the same subsets in the folder.
        receiver: who reads them next. For one that parses source ids (:data:`LARGEST_FOR`) numbers
            are written in place of those that it does not read; for the first of them all shards
            are read once more.

    Raises:
        ShardsNotFoundError: there is nothing to read.
        ShardError: a shard is damaged.
        OutputExistsError: there is something in the folder, or it is what is read.
        WriteError: the folder cannot be written to.
        OptionError: the seed is out of range, or the shards have no name of their own.
    """
    if shuffle is not None and not 0 <= shuffle < 1 << 32:
        raise OptionError(f"shuffle: {shuffle} is not a seed from 0 to {(1 << 32) - 1}")
    largest = LARGEST_FOR.get(receiver or "")
    layout = layout or ShardLayout()
    named = [source] if isinstance(source, (str, os.PathLike)) else source
    sources = [os.fspath(one) for one in named]
    sets = find_all_shards(sources)
    paths = [path for one in sets for path in one.paths]
    read = [*sources, *paths]
    notes = missing_shards(sets)
    # The work folder goes after what is in it has got its names.
    with contextlib.ExitStack() as stack, OutputFolder(folder, read, overwrite) as out:
        label_maps = _copy_label_maps(sets, out, notes)
        for one in sets:
            out.require_free(one.subset, _names(one, 1)[0])
        is_unpacked = shuffle is not None and any(map(is_url, paths))
        work = stack.enter_context(WorkFolder(folder)).path if is_unpacked else ""
        numbers = None if largest is None else numbers_for(paths, largest)
        counts = [_copy(one, _fill_in(layout, one), shuffle, out, work, numbers) for one in sets]
    records = {one.subset: count for one, count in zip(sets, counts, strict=True)}
    return Resharded(records, out.paths, notes, label_maps)


def _copy(
    one: ShardSet,
    layout: ShardLayout,
    shuffle: int | None,
    out: OutputFolder,
    work: str,
    numbers: SourceIdNumbers | None,
) -> int:
    writer = out.add_subset(one.subset, layout, functools.partial(_names, one))
    if shuffle is None:
        for path in one.paths:
            for batch in sound_batches(path):
                payloads = numbered(batch, numbers) if numbers else None
                if payloads is None:
                    writer.copy(batch)
                for payload in payloads or ():
                    writer.write(payload)
    else:
        for payload in _shuffled([_local(path, work) for path in one.paths], shuffle):
            writer.write(number_payload(payload, numbers) if numbers else payload)
    writer.complete()  # closes its files
    return writer.count


def _fill_in(layout: ShardLayout, one: ShardSet) -> ShardLayout:
    """What the layout leaves open stays as the source has it."""
    if layout.num_shards is None and layout.shard_size is None:
        layout = replace(layout, num_shards=len(one.paths))
    if layout.compression is None:
        layout = replace(layout, compression=compression_of(one.paths[0]))
    return layout


def _names(one: ShardSet, count: int) -> list[str]:
    """Names for the shards of a set, in the manner of its first one."""
    first = one.paths[0]
    name = parse_shard_name(first)
    if name is None:
        return shard_file_names(one.subset, count)
    inside = ""
    if subset_of_stem(name.stem) != one.subset:  # it is named for the folder that it is in
        inside = name_of(folder_of(first))
    return [os.path.join(inside, name) for name in similar_file_names(first, count)]


def _local(shard: str, work: str) -> str:
    """Where the records of a shard can be fetched one by one; a remote one is copied for that."""
    if not is_url(shard):
        return shard
    place = os.path.join(work, f"unpacked-{os.urandom(8).hex()}")
    unpack(shard, place)
    return place


def _shuffled(paths: Sequence[str], seed: int) -> Iterator[bytes]:
    """The payloads of all records of some shards in random order."""
    from tfod.tfrecord.record_index import RecordIndex  # who does not shuffle jumps to no record

    with naming_repair():
        indexes = [RecordIndex(path) for path in paths]
        for index in indexes:
            if not len(index):  # nothing of it will be read: see that it is a shard
                next(read_records(index.path), None)
        ends = np.cumsum([len(index) for index in indexes])
        # Not a Generator: its results may change from one NumPy to the next.
        order = np.random.RandomState(seed).permutation(int(ends[-1]))
        shards = np.searchsorted(ends, order, side="right")
        for number, shard in zip(order, shards, strict=True):
            yield indexes[shard][int(number - ends[shard])]  # from the end of the shard


def _copy_label_maps(
    sets: Sequence[ShardSet], out: OutputFolder, notes: list[str]
) -> tuple[str, ...]:
    """Copy the label maps to where they are found again; return their names."""
    copied: dict[str, None] = {}
    for one in sets:
        found = one_label_map(one.paths, notes)
        if found is not None:
            inside = os.path.dirname(_names(one, 1)[0])
            if folder_of(found.path) != folder_of(one.paths[0]):
                inside = os.path.dirname(inside)
            name = os.path.join(inside, name_of(found.path))
            out.add_text(name, found.content)
            copied[name] = None
    return tuple(copied)
