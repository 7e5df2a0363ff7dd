"""Resharding: changes of the number, size, compression and order of shards.

Shards of several sources are merged. If their label maps differ, these are joined, and the ids in
the records change accordingly.
"""

from __future__ import annotations

import functools
import itertools
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
from tfod.shards.rewrite import make_numbers, number_source_ids, rewrite_example
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.sources.reading import find_readable
from tfod.tfrecord.compression import PeekedStream
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.reader import RecordBatch, read_record_batches, read_records
from tfod.tfrecord.shard_sets.search import ShardSet, Sources, describe_missing
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
from tfod.tfrecord.storage.urls import get_folder, get_name, is_url
from tfod.tfrecord.writer import OptionError, ShardLayout, ShardSetWriter

Edit: TypeAlias = "Callable[[ExampleBatch], Mapping[int, Mapping[str, bytes]]]"
"""Returns the features of a batch that change, by row and key."""
_MANY_SUBSETS, _FEW_RECORDS = 3, 10
"""More subsets, with fewer records on average, are probably one set, for example from VoTT."""


@dataclass(frozen=True)
class ReshardResult:
    """The result of resharding.

    Attributes:
        records: number of records by subset.
        is_joined: whether the label map was joined from several.
        kept_ids: the label maps whose ids the classes keep, if this was requested.
    """

    records: Mapping[str, int]
    paths: Sequence[str]
    label_maps: Sequence[str]
    is_joined: bool
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
) -> ReshardResult:
    """Write the records of shards to new shards; the bytes of each record stay the same.

    Subsets stay separate and keep their names (:func:`similar_file_names`), and label maps are
    copied byte for byte. If shards with different label maps are merged, the label maps are joined
    (:class:`~tfod.shards.label_maps.JoinedClasses`), and only the ids in the records change.

    Without a shuffle, memory use is constant, and the records are dealt to the shards in turn, as
    in the OD API. A shuffle takes 24 bytes per record; compressed shards are unpacked to a
    temporary file, and remote shards are copied to a hidden folder next to the output.

    Args:
        source: one or more sources, see ``find_readable``; subsets with the same name are merged.
        folder: output folder.
        layout: number, size and compression of the shards; unset options keep their values.
        shuffle: seed from 0 to 2**32 - 1. Each subset is permuted by
            ``numpy.random.RandomState(seed).permutation``, which gives the same result in every
            version of NumPy (NEP 19).
        overwrite: whether to replace shards of the same subsets in the folder.
        receiver: name of the program that will read the shards. If it needs numbers as source ids
            (:data:`LARGEST_FOR`), numbers replace invalid ones; this may read all shards again.
        label_map: file or name of a label map whose ids the classes keep. Without it, the classes
            keep the ids of a label map that is already in the folder.
        join: name of a single subset that gets all shards.

    Raises:
        ShardsNotFoundError: there are no shards.
        ShardError: a shard is damaged; or label maps differ, and a record is not an Example or has
            an id without a known class.
        LabelMapError: the label maps cannot be joined.
        OutputExistsError: an output file already exists, or is an input file.
        WriteError: the folder cannot be written.
        OptionError: the seed is out of range, or the names of the shards are not unique.
    """
    if shuffle is not None and not 0 <= shuffle < 1 << 32:
        raise OptionError(f"shuffle: {shuffle} is not a seed from 0 to {(1 << 32) - 1}")
    largest = LARGEST_FOR.get(receiver or "")
    layout = layout or ShardLayout()
    source_list = [source] if isinstance(source, (str, os.PathLike)) else source
    sources = [os.fspath(item) for item in source_list]
    shards = find_readable(sources)
    sets, paths = shards.sets, shards.paths
    read = [*sources, *paths]
    notes = [*shards.notes, *describe_missing(sets)]
    if join is not None:
        sets = [ShardSet(join, tuple(paths), stem=to_stem(join))]
    maps = {path: file.path if file else None for path, file in shards.label_maps.items()}
    target = _target_map(os.fspath(folder), sets, label_map)
    copies = _label_map_copies(sets, maps)
    if target and (target.other_maps or {*(copies or {}).values()} != {target.content}):
        copies = None
    joined = JoinedClasses(maps, target.base if target else None) if copies is None else None
    subfolder = os.path.dirname(os.path.relpath(target.path, folder)) if target else ""
    texts = {
        name: content
        for name, content in (copies or {}).items()
        if target is None or subfolder not in ("", os.path.dirname(name))
    }
    with OutputFolder(folder, read, overwrite) as out:
        for name, text in texts.items():
            out.add_text(name, text)
        for shard_set in sets:
            out.require_writable(shard_set.subset, _new_names(shard_set, 1)[0])
        is_unpacked = shuffle is not None and any(map(is_url, paths))
        scratch = out.enter_context(temporary_folder(os.fspath(folder))) if is_unpacked else ""
        edits: list[Edit] = [joined.changes] if joined else []
        if largest is not None:
            batches = itertools.chain.from_iterable(map(read_record_batches, paths))
            numbers = make_numbers(batches, largest)
            edits.append(functools.partial(number_source_ids, numbers=numbers))
        counts = [
            _copy_set(shard_set, _fill_in(layout, shard_set), shuffle, out, scratch, edits)
            for shard_set in sets
        ]
        if joined:
            classes = joined.classes
            notes += [*joined.notes, *classes.notes()]
            name, content = LABEL_MAP_FILE, classes.label_map.to_text().encode()
            if target:
                completed = target.complete(classes, overwrite)
                notes += completed.notes
                name, content = os.path.relpath(target.path, folder), completed.content
            name = os.path.basename(name)
            # A label map in the folder of a subset cannot be found from the other subsets.
            firsts = [_new_names(shard_set, 1)[0] for shard_set in sets] if subfolder else []
            folders = {subfolder, *map(os.path.dirname, firsts)}
            texts = {os.path.join(path, name): content for path in folders}
            for name in texts:
                out.add_text(name, content)
    records = {shard_set.subset: count for shard_set, count in zip(sets, counts, strict=True)}
    if len(sets) > _MANY_SUBSETS and sum(counts) < _FEW_RECORDS * len(sets):
        amounts = f"{len(sets)} subsets with {sum(counts)} records in total"
        notes.append(f"{amounts}, each with its own shards; --join NAME makes them one subset")
    kept_ids: list[str] = []
    if target:
        kept_ids = [target.path] if target.content else [*target.other_maps]
    return ReshardResult(records, out.paths, tuple(texts), joined is not None, notes, kept_ids)


def _target_map(folder: str, sets: Sequence[ShardSet], label_map: str | None) -> TargetMap | None:
    if is_url(folder):
        return None  # the output folder will be rejected
    shards = [os.path.join(folder, _new_names(shard_set, 1)[0]) for shard_set in sets]
    target = TargetMap.find(folder, shards, label_map)
    return target or (TargetMap.create(folder, label_map) if label_map else None)


def _copy_set(
    shard_set: ShardSet,
    layout: ShardLayout,
    shuffle: int | None,
    out: OutputFolder,
    scratch: str,
    edits: Sequence[Edit],
) -> int:
    writer = out.add_subset(shard_set.subset, layout, functools.partial(_new_names, shard_set))
    if shuffle is None:
        for path in shard_set.paths:
            for batch in read_record_batches(path):
                _copy_batch(batch, writer, edits)
    else:
        sources = {_make_local(path, scratch): path for path in shard_set.paths}
        for path, payload in _read_shuffled(list(sources), shuffle):
            example = Example.from_bytes(payload, sources[path]) if edits else None
            changes = _changes(example.batch, edits).get(0) if example else None
            writer.write(rewrite_example(example, changes) if example and changes else payload)
    writer.complete()  # closes its files
    return writer.count


def _copy_batch(records: RecordBatch, writer: ShardSetWriter, edits: Sequence[Edit]) -> None:
    """Write records unchanged, except for those with edits."""
    first = 0  # first row that has not been written
    if edits:
        examples = ExampleBatch.of(records)
        for row, changes in sorted(_changes(examples, edits).items()):
            writer.copy(records, slice(first, row))
            writer.write(rewrite_example(Example(examples, row), changes))
            first = row + 1
    writer.copy(records, slice(first, None))


def _changes(examples: ExampleBatch, edits: Sequence[Edit]) -> dict[int, dict[str, bytes]]:
    changes: dict[int, dict[str, bytes]] = {}
    for edit in edits:
        for row, features in edit(examples).items():
            changes.setdefault(row, {}).update(features)
    return changes


def _fill_in(layout: ShardLayout, shard_set: ShardSet) -> ShardLayout:
    """Set missing options to the values of the source shards."""
    if layout.num_shards is None and layout.shard_size is None:
        layout = replace(layout, num_shards=len(shard_set.paths))
    if layout.compression is None:
        with open_shard(shard_set.paths[0]) as (stream, _):
            layout = replace(layout, compression=PeekedStream(stream).compression)
    return layout


def _new_names(shard_set: ShardSet, count: int) -> list[str]:
    """Return names for new shards of a set, similar to the name of its first shard."""
    subset, first = shard_set.subset, shard_set.paths[0]
    if parse_shard_name(first) is None:
        return shard_file_names(subset, count)
    if shard_set.stem:
        return similar_file_names(first, shard_set.stem, count)
    stem = parse_shard_names(shard_set.paths)[first].stem or subset
    # If the file name has a different subset, this one is the name of the folder.
    subfolder = get_name(get_folder(first)) if to_subset(stem) != subset else ""
    return [os.path.join(subfolder, name) for name in similar_file_names(first, stem, count)]


def _make_local(shard: str, scratch: str) -> str:
    """Return a path for random access to the records of a shard; copies remote shards."""
    if not is_url(shard):
        return shard
    path = os.path.join(scratch, f"unpacked-{os.urandom(8).hex()}")
    file = PendingFile(path, path)
    for batch in read_record_batches(shard):
        first, last = batch.framed_spans[[0, -1]].tolist()
        file.write(memoryview(batch.buffer)[first[0] : sum(last)])
    file.complete()
    return path


def _read_shuffled(paths: Sequence[str], seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield the payloads of all records of the shards in random order, each with its shard."""
    from tfod.tfrecord.record_index import RecordIndex  # only needed to shuffle

    indexes = [RecordIndex(path) for path in paths]
    for index in indexes:
        if not len(index):  # no record of it will be read: check that it is a shard
            next(read_records(index.path), None)
    ends = np.cumsum([len(index) for index in indexes])
    # Not a Generator: its results may change with the version of NumPy.
    order = np.random.RandomState(seed).permutation(int(ends[-1]))
    shards = np.searchsorted(ends, order, side="right")
    for number, shard in zip(order, shards, strict=True):
        # A negative index, which counts from the end of the shard.
        yield paths[shard], indexes[shard][int(number - ends[shard])]


def _label_map_copies(
    sets: Sequence[ShardSet], maps: Mapping[str, str | None]
) -> dict[str, bytes] | None:
    """Return the label maps by their new names, or None if they differ and must be joined.

    They differ if the shards of a subset do not have the same one, or if shards from several
    folders, with different label maps, are written to the same folder.
    """
    read = functools.cache(_read_content)
    copies: dict[str, dict[tuple[str, bytes], None]] = {}  # by folder; the name "" stands for none
    sources: dict[str, set[str]] = {}
    for shard_set in sets:
        paths = shard_set.paths
        # A label map cannot be found if its copies next to the shards have several names.
        if len({(get_name(maps[path] or ""), read(maps[path])) for path in paths}) > 1:
            return None
        folder = os.path.dirname(_new_names(shard_set, 1)[0])
        for path in paths:
            file, source = maps[path], get_folder(path)
            is_above = file is not None and get_folder(file) != source
            subfolder = os.path.dirname(folder) if is_above else folder
            copies.setdefault(subfolder, {})[get_name(file or ""), read(file)] = None
            sources.setdefault(subfolder, set()).add(source)
    for subfolder, files in copies.items():
        if len(sources[subfolder]) > 1 and len({content for _, content in files}) > 1:
            return None
    entries = ((subfolder, *file) for subfolder, files in copies.items() for file in files)
    return {os.path.join(subfolder, name): content for subfolder, name, content in entries if name}


def _read_content(file: str | None) -> bytes:
    if file is None:
        return b""
    with open_shard(file) as (stream, _):
        return stream.read()
