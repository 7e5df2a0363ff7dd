"""Reading of sources: shards in order, each with its label map and its field mapping.

Unlike the resolver, which leaves problems to the checker, these functions raise errors.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import describe_shared_ids
from tfod.errors import LabelMapError, ShardsNotFoundError, TfodError
from tfod.example.example import Example
from tfod.example.example_batch import ExampleBatch
from tfod.sources.label_map_search import LabelMapFinder, is_named_label_map, may_be_label_map
from tfod.sources.layouts import OD_API, Layout, find_batch_layout, find_layout, read_classes
from tfod.sources.other_tools import make_no_shards_error
from tfod.sources.resolved import Dataset, LabelMapFile, ResolvedSources, Zip
from tfod.sources.resolver import resolve
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import (
    ShardSet,
    Sources,
    find_zip_shards,
    make_sets,
    require_content,
)
from tfod.tfrecord.storage.archive import read_valid_zip, require_readable


@dataclass(frozen=True)
class ReadableShards:
    """Readable shards, in order.

    Attributes:
        sets: shards by subset.
        datasets: datasets of the shards.
        notes: sentences about the sources for the user.
        override: field mapping that replaces the layouts, if any.
    """

    sets: Sequence[ShardSet]
    datasets: Sequence[Dataset]
    notes: Sequence[str]
    override: FieldMapping | None = None

    @property
    def paths(self) -> list[str]:
        """The paths of all shards, in order."""
        return [path for shard_set in self.sets for path in shard_set.paths]

    @cached_property
    def _datasets_by_path(self) -> dict[str, int]:
        return {
            shard.path: number
            for number, dataset in enumerate(self.datasets)
            for shard in dataset.shards
        }

    @cached_property
    def label_maps(self) -> dict[str, LabelMapFile | None]:
        """The label map of each shard by path; None for shards without one."""
        return {
            shard.path: dataset.get_label_map(shard)
            for dataset in self.datasets
            for shard in dataset.shards
        }

    def label_map(self, path: str) -> LabelMap | None:
        """Return the label map of a shard, or None if it has none.

        A file that is named as a label map, but cannot be read, raises LabelMapError.
        """
        file = self.label_maps[path]
        if file is not None and file.label_map is None and is_named_label_map(file.name):
            raise LabelMapError(file.error)
        return file.label_map if file else None

    def require_label_maps(self) -> list[str]:
        """Read all label maps as :meth:`label_map`, and return sentences about unusual ones."""
        notes: list[str] = []
        files: dict[str, LabelMapFile] = {}
        for path, file in self.label_maps.items():
            label_map = self.label_map(path)
            if file is None or file.name in files:
                continue
            files[file.name] = file
            if label_map is None:
                notes.append(f"label map not used: {file.error}")
            else:
                notes += [*file.deviations, *describe_shared_ids(file.name, label_map)]
        return notes

    def layout(self, path: str) -> Layout:
        """Return the layout of the dataset of a shard; an unknown layout raises TfodError."""
        if self.override is not None:
            return Layout("", "", {}, self.override)
        return self._find_layout(self._datasets_by_path[path])

    def field_mapping(self, path: str) -> FieldMapping:
        """Return the field mapping of the :meth:`layout` of a shard."""
        return self.layout(path).field_mapping

    @cached_property
    def _find_layout(self) -> Callable[[int], Layout]:
        return cache(lambda number: find_layout(self.datasets[number].shards))


def find_readable(
    source: Sources,
    *,
    label_map: str | None = None,
    field_mapping: FieldMapping | None = None,
    finds_label_maps: bool = True,
) -> ReadableShards:
    """Find the shards of sources, as :func:`~tfod.sources.resolver.resolve` does.

    Zips in a folder that also contains shards are left out, with a note.

    Args:
        source: path of a file, folder, glob or zip, URL, or several of these.
        label_map: path or name of a label map for all shards.
        field_mapping: keys of the records; by default, the best layout is used.
        finds_label_maps: whether to search for label maps.

    Raises:
        ShardsNotFoundError: a source contains no shard.
        ShardError: a zip is damaged, or all shards of a set are empty.
        LabelMapError: the given label map does not exist, or cannot be read.
        TfodError: a shard is listed twice, or a source cannot be reached.
    """
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    with resolve(
        [os.fspath(path) for path in paths],
        label_map,
        field_mapping=field_mapping,
        finds_label_maps=finds_label_maps,
        is_checked=False,
    ) as resolved:
        for path in resolved.repeated:
            raise TfodError(f"{path} is listed twice; pass each shard only once")
        for dataset in resolved.datasets:
            for archive in dataset.zips:
                _require_shards(archive)
            for file in dataset.label_maps.values() if label_map is not None else ():
                if file.label_map is None:
                    raise LabelMapError(file.error)
        paths_by_subset: dict[str, list[str]] = {}
        for shard in resolved.shards:
            paths_by_subset.setdefault(shard.subset, []).append(shard.path)
        for subset_paths in paths_by_subset.values():
            require_content(subset_paths)
        notes = [*resolved.notes]
        notes += (note for dataset in resolved.datasets for note in dataset.notes)
        notes += _ambiguous_label_maps(resolved)
        sets = make_sets(paths_by_subset)
        return ReadableShards(sets, resolved.datasets, notes, field_mapping)


def _require_shards(archive: Zip) -> None:
    """Raise an error if a zip is unreadable or has no shard, or if an entry is rejected."""
    if archive.unreadable:
        raise TfodError(f"{archive.name}: {archive.unreadable}")
    content = read_valid_zip(archive.path)  # with the path that the user typed
    paths = find_zip_shards(content)
    if not paths:
        message = f"{archive.name}: this zip contains no shard; check it with: tfod check "
        message += shlex.quote(archive.name)
        raise make_no_shards_error(archive.path, ShardsNotFoundError(message))
    for path in (*paths, *filter(may_be_label_map, content.rejected)):
        require_readable(content.entries[path], content, archive.name)


def _ambiguous_label_maps(resolved: ResolvedSources) -> list[str]:
    """Return a sentence for each ambiguous choice of label maps."""
    shards = [shard for shard in reversed(resolved.shards) if shard.candidates]
    first_shards = {tuple(shard.candidates): shard for shard in shards}
    return [
        f"{shard.name}: no label map was used, since several are possible: {', '.join(candidates)}"
        for candidates, shard in reversed(first_shards.items())
    ]


def find_label_map(shard: str) -> tuple[str | None, list[str]]:
    """Find the label map of a shard; as :meth:`LabelMapFinder.find`."""
    label_map, candidates = LabelMapFinder(read_classes).find(shard)
    return label_map, list(candidates)


def read_batches(source: Sources) -> Iterator[ExampleBatch]:
    """Yield the records of a file, folder, glob or URL in batches of columns.

    A batch has consecutive records of a shard: about a thousand, or a few MB.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: a shard is damaged; the records before the damage have been yielded.
    """
    for path in find_readable(source, finds_label_maps=False).paths:
        yield from map(ExampleBatch.of, read_record_batches(path))


def read_examples(source: Sources) -> Iterator[Example]:
    """Yield the records of a file, folder, glob or URL as Examples.

    Raises:
        RecordError: a record is not an Example.
        ShardsNotFoundError, ShardError: see :func:`read_batches`.
    """
    for batch in read_batches(source):
        yield from Example.iter_rows(batch)


def read_detections(
    source: Sources, *, field_mapping: FieldMapping | None = None
) -> Iterator[Detection]:
    """Yield the records as Detections: images with boxes, classes, masks and attributes.

    Args:
        source: path of a file, folder, glob or zip, URL, or several of these.
        field_mapping: keys of the records; by default, the best layout is used.

    Raises:
        RecordError: a feature has the wrong kind, or per-object lists differ in length.
        ShardsNotFoundError, ShardError: see :func:`read_batches`.
        TfodError: the records have no known layout.
    """
    shards = find_readable(source, field_mapping=field_mapping, finds_label_maps=False)
    for path in shards.paths:
        mapping = shards.field_mapping(path)
        for records in read_record_batches(path):
            yield from Detections(ExampleBatch.of(records), mapping)


def decode_detection(example: Example, *, field_mapping: FieldMapping | None = None) -> Detection:
    """Read an Example as a Detection, without copying images or masks.

    Args:
        example: record to read.
        field_mapping: keys of the record; by default, the OD API's if any is present, else the best
            layout is used.

    Raises:
        RecordError: see :func:`read_detections`.
    """
    mapping = field_mapping or OD_API.field_mapping
    if field_mapping is None and keys.KNOWN_KEYS.isdisjoint(example.batch.columns):
        mapping = find_batch_layout(example.batch).field_mapping
    return Detections(example.batch, mapping)[example.row]
