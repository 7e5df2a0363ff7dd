"""Resharding: the same records in another number of shards, compressed or not, shuffled or not.

Shards of several sources are put together. Where their label maps differ these become one, and the
ids in the records follow it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.example.example import Example
from tfod.example.example_batch import ExampleBatch
from tfod.formats.target_map import TargetMap
from tfod.shards.label_maps import JoinedClasses
from tfod.shards.rewrite import number_source_ids, numbers_for, rewrite_example
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.sources.reading import find_readable
from tfod.tfrecord.compression import PeekedStream
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.reader import RecordBatch, read_record_batches, read_records
from tfod.tfrecord.shard_sets.search import ShardSet, Sources, missing_shards
from tfod.tfrecord.shard_sets.shard_names import (
    parse_shard_name,
    parse_shard_names,
    shard_file_names,
    similar_file_names,
    to_stem,
    to_subset,
)
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.publishing import PendingFile, temporary_folder
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of
from tfod.tfrecord.writer import OptionError, ShardLayout, ShardSetWriter

Edit: TypeAlias = "Callable[[ExampleBatch], Mapping[int, Mapping[str, bytes]]]"
"""Finds the features that become others, by record and key."""
_MANY_SUBSETS, _FEW_RECORDS = 3, 10
"""More subsets with fewer records each, on average, may be meant as one, as VoTT writes them."""


@dataclass(frozen=True)
class Resharded:
    """What was written.

    Attributes:
        records: how many by subset.
        paths: of the shards.
        label_maps: names of the label maps beside them.
        are_joined: whether that is one which was made of several.
        kept_ids: the label maps whose ids the classes keep, if that was asked for.
        notes: what was odd, as sentences.
    """

    records: Mapping[str, int]
    paths: Sequence[str]
    label_maps: Sequence[str]
    are_joined: bool
    notes: Sequence[str]
    kept_ids: Sequence[str] = ()


def reshard(
    source: Sources,
    folder: str | os.PathLike[str],
    layout: ShardLayout | None = None,
    *,
    shuffle: int | None = None,
    overwrite: bool = False,
    receiver: str | None = None,
    label_map: str | None = None,
    join: str | None = None,
) -> Resharded:
    """Write the records of shards into other shards; the bytes of each record stay as they are.

    Subsets are kept apart, and named as they were (:func:`similar_file_names`); the label map
    beside the shards is copied byte for byte. Where shards that come together have different label
    maps, these become one (:class:`~tfod.shards.label_maps.JoinedClasses`), and of a record the ids
    that are others by it are changed and nothing else. Without a shuffle, memory is flat and
    records keep their order, dealt in turn over the shards as the OD API does it; with one it takes
    24 bytes a record, compressed shards are unpacked into a temporary file, and remote ones are
    copied into a hidden folder beside what is written.

    Args:
        source: shards, or several sources, as ``find_readable`` takes them; of several the
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
        label_map: a file, or the name of a label map that tfod ships, whose ids the classes keep.
            Without it, the ids are those of a label map that the folder has already.
        join: the name of the only subset that is written, which has all shards.

    Raises:
        ShardsNotFoundError: there is nothing to read.
        ShardError: a shard is damaged; or label maps differ, and a record is no Example, or has an
            id that nothing explains.
        LabelMapError: different label maps cannot be joined.
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
    shards = find_readable(sources)
    sets, paths = shards.sets, shards.paths
    read = [*sources, *paths]
    notes = [*shards.notes, *missing_shards(sets)]
    if join is not None:
        sets = [ShardSet(join, tuple(paths), stem=to_stem(join))]
    maps = {path: file.path if file else None for path, file in shards.label_maps.items()}
    target = _target_map(os.fspath(folder), sets, label_map)
    copies = _copies(sets, maps)
    if target and (target.others or {*(copies or {}).values()} != {target.content}):
        copies = None
    joined = JoinedClasses(maps, target.base if target else None) if copies is None else None
    inside = os.path.dirname(os.path.relpath(target.path, folder)) if target else ""
    texts = {
        name: content
        for name, content in (copies or {}).items()
        if target is None or inside not in ("", os.path.dirname(name))
    }
    with OutputFolder(folder, read, overwrite) as out:
        for name, text in texts.items():
            out.add_text(name, text)
        for one in sets:
            out.require_writable(one.subset, _names(one, 1)[0])
        is_unpacked = shuffle is not None and any(map(is_url, paths))
        work = out.enter_context(temporary_folder(os.fspath(folder))) if is_unpacked else ""
        edits: list[Edit] = [joined.changes] if joined else []
        if largest is not None:
            numbers = numbers_for(paths, largest)
            edits.append(functools.partial(number_source_ids, numbers=numbers))
        counts = [_copy(one, _fill_in(layout, one), shuffle, out, work, edits) for one in sets]
        if joined:
            classes = joined.classes
            notes += [*joined.notes, *classes.notes()]
            name, content = LABEL_MAP_FILE, classes.label_map.to_text().encode()
            if target:
                completed = target.complete(classes, overwrite)
                notes += completed.notes
                name, content = os.path.relpath(target.path, folder), completed.content
            name = os.path.basename(name)
            # A label map of one subset's folder is not found from the others.
            folders = {os.path.dirname(_names(one, 1)[0]) for one in sets} if inside else set[str]()
            texts = {os.path.join(one, name): content for one in {inside, *folders}}
            for name in texts:
                out.add_text(name, content)
    records = {one.subset: count for one, count in zip(sets, counts, strict=True)}
    if len(sets) > _MANY_SUBSETS and sum(counts) < _FEW_RECORDS * len(sets):
        of_each = f"{len(sets)} subsets of {sum(counts)} records in all, each with its own shards"
        notes.append(f"{of_each}; --join NAME makes one subset of them")
    kept_ids = [] if target is None else [target.path] if target.content else [*target.others]
    return Resharded(records, out.paths, tuple(texts), joined is not None, notes, kept_ids)


def _target_map(folder: str, sets: Sequence[ShardSet], label_map: str | None) -> TargetMap | None:
    if is_url(folder):
        return None  # refused as an output
    shards = [os.path.join(folder, _names(one, 1)[0]) for one in sets]
    found = TargetMap.find(folder, shards, label_map)
    return found or (TargetMap.like(folder, label_map) if label_map else None)


def _copy(
    one: ShardSet,
    layout: ShardLayout,
    shuffle: int | None,
    out: OutputFolder,
    work: str,
    edits: Sequence[Edit],
) -> int:
    writer = out.add_subset(one.subset, layout, functools.partial(_names, one))
    if shuffle is None:
        for path in one.paths:
            for batch in read_record_batches(path):
                _copy_batch(batch, writer, edits)
    else:
        local = {_local(path, work): path for path in one.paths}
        for place, payload in _shuffled(list(local), shuffle):
            example = Example.from_bytes(payload, local[place]) if edits else None
            changes = _changes(example.batch, edits).get(0) if example else None
            writer.write(rewrite_example(example, changes) if example and changes else payload)
    writer.complete()  # closes its files
    return writer.count


def _copy_batch(records: RecordBatch, writer: ShardSetWriter, edits: Sequence[Edit]) -> None:
    """Write records as they are, but for those that are edited."""
    first = 0  # of the rows that are written as they are
    if edits:
        examples = ExampleBatch.of(records)
        for row, changes in sorted(_changes(examples, edits).items()):
            writer.copy(records, slice(first, row))
            writer.write(rewrite_example(Example(examples, row), changes))
            first = row + 1
    writer.copy(records, slice(first, None))


def _changes(examples: ExampleBatch, edits: Sequence[Edit]) -> dict[int, dict[str, bytes]]:
    found: dict[int, dict[str, bytes]] = {}
    for edit in edits:
        for row, features in edit(examples).items():
            found.setdefault(row, {}).update(features)
    return found


def _fill_in(layout: ShardLayout, one: ShardSet) -> ShardLayout:
    """What the layout leaves open stays as the source has it."""
    if layout.num_shards is None and layout.shard_size is None:
        layout = replace(layout, num_shards=len(one.paths))
    if layout.compression is None:
        with open_shard(one.paths[0]) as (stream, _):
            layout = replace(layout, compression=PeekedStream(stream).compression)
    return layout


def _names(one: ShardSet, count: int) -> list[str]:
    """Names for the shards of a set, in the manner of its first one."""
    first = one.paths[0]
    if parse_shard_name(first) is None:
        return shard_file_names(one.subset, count)
    if one.stem:
        return similar_file_names(first, one.stem, count)
    stem = parse_shard_names(one.paths)[first].stem or one.subset
    inside = ""
    if to_subset(stem) != one.subset:  # it is named for the folder that it is in
        inside = name_of(folder_of(first))
    return [os.path.join(inside, name) for name in similar_file_names(first, stem, count)]


def _local(shard: str, work: str) -> str:
    """Where the records of a shard can be fetched one by one; a remote one is copied for that."""
    if not is_url(shard):
        return shard
    place = os.path.join(work, f"unpacked-{os.urandom(8).hex()}")
    file = PendingFile(place, place)
    for batch in read_record_batches(shard):
        first, last = batch.framed_spans[[0, -1]].tolist()
        file.write(memoryview(batch.buffer)[first[0] : sum(last)])
    file.complete()
    return place


def _shuffled(paths: Sequence[str], seed: int) -> Iterator[tuple[str, bytes]]:
    """The payloads of all records of some shards in random order, each with its shard."""
    from tfod.tfrecord.record_index import RecordIndex  # who does not shuffle jumps to no record

    indexes = [RecordIndex(path) for path in paths]
    for index in indexes:
        if not len(index):  # nothing of it will be read: see that it is a shard
            next(read_records(index.path), None)
    ends = np.cumsum([len(index) for index in indexes])
    # Not a Generator: its results may change from one NumPy to the next.
    order = np.random.RandomState(seed).permutation(int(ends[-1]))
    shards = np.searchsorted(ends, order, side="right")
    for number, shard in zip(order, shards, strict=True):
        # From the end of the shard.
        yield paths[shard], indexes[shard][int(number - ends[shard])]


def _copies(sets: Sequence[ShardSet], maps: Mapping[str, str | None]) -> dict[str, bytes] | None:
    """The label maps by the names under which they are found again; None where they differ.

    They do where the shards of one subset have several, or some one and others none; or where those
    do that come from several folders into one.
    """
    read = functools.cache(_content)
    found: dict[str, dict[tuple[str, bytes], None]] = {}  # by folder; no name for no label map
    sources: dict[str, set[str]] = {}
    for one in sets:
        # Of copies under several names, none would be found next to shards of one name.
        if len({(name_of(maps[path] or ""), read(maps[path])) for path in one.paths}) > 1:
            return None
        first = os.path.dirname(_names(one, 1)[0])
        for path in one.paths:
            file, source = maps[path], folder_of(path)
            # Beside its shards, or a folder up.
            inside = first if file is None or folder_of(file) == source else os.path.dirname(first)
            found.setdefault(inside, {})[name_of(file or ""), read(file)] = None
            sources.setdefault(inside, set()).add(source)
    for inside, copies in found.items():
        if len(sources[inside]) > 1 and len({content for _, content in copies}) > 1:
            return None
    every = ((inside, *copy) for inside, copies in found.items() for copy in copies)
    return {os.path.join(inside, name): content for inside, name, content in every if name}


def _content(file: str | None) -> bytes:
    """The bytes of a label map; none where there is none."""
    if file is None:
        return b""
    with open_shard(file) as (stream, _):
        return stream.read()
