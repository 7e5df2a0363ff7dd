"""Reading what sources hold: shards in order, each with its label map and its field mapping.

The resolver is lenient, since a check reports what is wrong. Whoever reads shards stops at it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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
from tfod.sources.layouts import OD_API, Layout, classes_in, layout_of, layout_of_batch
from tfod.sources.other_tools import no_shards_error
from tfod.sources.resolved import Dataset, LabelMapFile, ResolvedSources, Zip
from tfod.sources.resolver import resolve
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import ShardSet, Sources, require_content, shards_in_zip
from tfod.tfrecord.shard_sets.shard_names import MAX_MISSING, find_missing
from tfod.tfrecord.storage.archive import require_readable, sound_content


@dataclass(frozen=True)
class ReadableShards:
    """Shards that can be read, in order.

    Attributes:
        sets: the shards of each subset.
        datasets: the data sets that they form.
        notes: what a reader should know about the sources, as sentences.
        given: the field mapping that the user named, if any.
    """

    sets: Sequence[ShardSet]
    datasets: Sequence[Dataset]
    notes: Sequence[str]
    given: FieldMapping | None = None

    @property
    def paths(self) -> list[str]:
        """All shards, in order."""
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
        """The label map of each shard, by its path; None for a shard without one."""
        return {
            shard.path: dataset.label_map_of(shard)
            for dataset in self.datasets
            for shard in dataset.shards
        }

    def label_map(self, path: str) -> LabelMap | None:
        """Return the classes of a shard, or None if no label map goes with it.

        A ``.pbtxt`` that turns out to be other protobuf text is not a label map, unless it is named
        as one.

        Raises:
            LabelMapError: the label map cannot be read.
        """
        file = self.label_maps[path]
        if file is not None and file.label_map is None and is_named_label_map(file.name):
            raise LabelMapError(file.error)
        return file.label_map if file else None

    def require_label_maps(self) -> list[str]:
        """Return what is unusual about the label maps, as sentences.

        Raises:
            LabelMapError: one cannot be read.
        """
        notes: list[str] = []
        files: dict[str, LabelMapFile] = {}
        for path, file in self.label_maps.items():
            label_map = self.label_map(path)
            if file is None or file.name in files:
                continue
            files[file.name] = file
            if label_map is None:
                notes.append(f"not used: {file.error}")
            else:
                notes += [*file.deviations, *describe_shared_ids(file.name, label_map)]
        return notes

    def layout(self, path: str) -> Layout:
        """Return the layout of a shard's data set, with the keys that were named, if any.

        Raises:
            TfodError: the records have no known layout.
        """
        if self.given is not None:
            return Layout("", "", {}, self.given)
        number = self._datasets_by_path[path]
        if number not in self._layouts:
            self._layouts[number] = layout_of(self.datasets[number].shards)
        return self._layouts[number]

    def field_mapping(self, path: str) -> FieldMapping:
        """Return the keys of a shard's records; as :meth:`layout`."""
        return self.layout(path).field_mapping

    @cached_property
    def _layouts(self) -> dict[int, Layout]:
        return {}


def find_readable(
    source: Sources,
    *,
    label_map: str | None = None,
    field_mapping: FieldMapping | None = None,
    finds_label_maps: bool = True,
) -> ReadableShards:
    """Find the shards that sources mean, as :func:`~tfod.sources.resolver.resolve` does.

    Zips next to the shards of a folder are left out, with a note.

    Args:
        source: a file, a folder, a glob, a zip, a URL, or several of them.
        label_map: file or name of a label map for all shards.
        field_mapping: the keys of the records; None for those of the layout that fits best.
        finds_label_maps: whether label maps are looked for.

    Raises:
        ShardsNotFoundError: a source holds no shard.
        ShardError: a zip is damaged, or all shards of a set are empty.
        LabelMapError: the named label map does not exist, or cannot be read.
        TfodError: a shard is given twice, or a source cannot be reached.
    """
    named = [source] if isinstance(source, (str, os.PathLike)) else source
    with resolve(
        [os.fspath(one) for one in named],
        label_map,
        field_mapping=field_mapping,
        finds_label_maps=finds_label_maps,
        is_checked=False,
    ) as resolved:
        for path in resolved.repeated:
            raise TfodError(f"{path} is given twice; name each shard once")
        for dataset in resolved.datasets:
            for archive in dataset.zips:
                _require_shards(archive)
            for file in dataset.label_maps.values() if label_map is not None else ():
                if file.label_map is None:
                    raise LabelMapError(file.error)
        sets = _sets_of(resolved)
        notes = [*resolved.notes, *(note for one in resolved.datasets for note in one.notes)]
        notes += _ambiguous_label_maps(resolved)
        return ReadableShards(sets, resolved.datasets, notes, field_mapping)


def _require_shards(archive: Zip) -> None:
    """Raise for a zip that cannot be read or has no shard, or for a file that must not be read."""
    if archive.unreadable:
        raise TfodError(f"{archive.name}: {archive.unreadable}")
    content = sound_content(archive.path)  # with the path that the user typed
    paths = shards_in_zip(content)
    if not paths:
        missing = f"{archive.name}: no shard in this archive; look at it with: tfod check"
        raise no_shards_error(archive.path, ShardsNotFoundError(missing))
    for path in (*paths, *filter(may_be_label_map, content.refused)):
        require_readable(content.entries[path], content, archive.name)


def _sets_of(resolved: ResolvedSources) -> list[ShardSet]:
    paths: dict[str, list[str]] = {}
    for shard in resolved.shards:
        paths.setdefault(shard.subset, []).append(shard.path)
    sets, max_missing = [], MAX_MISSING
    for subset, own in paths.items():
        require_content(own)
        missing = find_missing(own, max_missing)
        max_missing = max(0, max_missing - len(missing))
        sets.append(ShardSet(subset, tuple(own), tuple(missing)))
    return sets


def _ambiguous_label_maps(resolved: ResolvedSources) -> list[str]:
    """A sentence for each folder with several label maps, none of which is used."""
    shards = {tuple(one.candidates): one for one in reversed(resolved.shards) if one.candidates}
    return [
        f"{shard.name}: several label maps are there, none was used: {', '.join(candidates)}"
        for candidates, shard in reversed(shards.items())
    ]


def find_label_map(shard: str) -> tuple[str | None, list[str]]:
    """Find the label map that goes with one shard; as :meth:`LabelMapFinder.find`."""
    label_map, candidates = LabelMapFinder(classes_in).find(shard)
    return label_map, list(candidates)


def read_batches(source: Sources) -> Iterator[ExampleBatch]:
    """Read the shards of a file, a folder, a glob or a URL as batches of columns.

    A batch has consecutive records of one shard, about a thousand or some MB of them.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: a shard is damaged; the records before the damage have been yielded.
    """
    for path in find_readable(source, finds_label_maps=False).paths:
        yield from map(ExampleBatch.of, read_record_batches(path))


def read_examples(source: Sources) -> Iterator[Example]:
    """Read the records of a file, a folder, a glob or a URL as Examples.

    Raises:
        RecordError: a record is not an Example.
        ShardsNotFoundError, ShardError: as :func:`read_batches`.
    """
    for batch in read_batches(source):
        yield from Example.iter_rows(batch)


def read_detections(
    source: Sources, *, field_mapping: FieldMapping | None = None
) -> Iterator[Detection]:
    """Read the records as Detections: images with boxes, classes, masks and attributes.

    Args:
        source: a file, a folder, a glob, a zip, a URL, or several of them.
        field_mapping: the keys of the records; None for those of the layout that fits best.

    Raises:
        RecordError: a feature has the wrong kind, or the lists of an object differ in length.
        ShardsNotFoundError, ShardError: as :func:`read_batches`.
        TfodError: the records have no known layout.
    """
    shards = find_readable(source, field_mapping=field_mapping, finds_label_maps=False)
    for path in shards.paths:
        mapping = shards.field_mapping(path)
        for records in read_record_batches(path):
            yield from Detections(ExampleBatch.of(records), mapping)


def decode_detection(example: Example, *, field_mapping: FieldMapping | None = None) -> Detection:
    """Read one Example as a Detection. Copies no images and no masks.

    Args:
        example: the record.
        field_mapping: the keys of the record; None for the OD API's if it has any of them, else
            for those of the layout that fits best.

    Raises:
        RecordError: as :func:`read_detections`.
    """
    mapping = field_mapping or OD_API.field_mapping
    if field_mapping is None and keys.KNOWN_KEYS.isdisjoint(example.batch.columns):
        mapping = layout_of_batch(example.batch).field_mapping
    return Detections(example.batch, mapping)[example.row]
