"""Resolved sources: datasets and their files, which may be local, remote or entries of zips."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tfod.detection.labels.label_map import (
    MAX_LABEL_MAP_BYTES,
    LabelMap,
    decode_label_map,
    load_label_map,
    read_text_file,
)
from tfod.detection.labels.labels_file import is_labels_file, read_labels
from tfod.errors import LabelMapError
from tfod.tfrecord.shard_sets.shard_names import ShardName, stated_name
from tfod.tfrecord.storage.archive import ZipContent
from tfod.tfrecord.storage.open import ShardStream, open_stream
from tfod.tfrecord.storage.urls import is_url

if TYPE_CHECKING:
    from tfod.tfrecord.storage.zip_entry import ZipEntry


@dataclass(frozen=True)
class File:
    """A file of a source.

    Attributes:
        name: name in reports.
        path: local path, or fsspec URL.
        size: length in bytes; None if unknown.
    """

    name: str
    path: str
    size: int | None = None

    @staticmethod
    def at(path: str, name: str | None = None) -> File:
        """Return the local file at a path; its name is the path by default."""
        size = None
        with suppress(OSError):  # reported when the file is opened
            size = os.path.getsize(path)
        return File(path if name is None else name, path, size)

    @property
    def is_remote(self) -> bool:
        """Whether the path is a URL."""
        return is_url(self.path)

    def open(self, *, read_ahead: bool = True) -> ShardStream:
        """Open the file, unbuffered; as :func:`~tfod.tfrecord.storage.open.open_stream`."""
        return open_stream(self.path, read_ahead=read_ahead)


@dataclass(frozen=True)
class Shard(File):
    """A shard: a file, an entry of a zip, a copy of standard input, or a URL.

    Attributes:
        path: path, in which the zip of an entry is written like a folder.
        label_map: name of the label map, or None.
        candidates: names of the possible label maps if the choice is ambiguous.
        entry: entry of a zip, or None.
        is_single: whether the user named the file itself, not a folder or glob with complete sets.
    """

    subset: str = ""
    label_map: str | None = None
    candidates: Sequence[str] = ()
    entry: ZipEntry | None = None
    is_single: bool = False

    @property
    def numbered_name(self) -> ShardName | None:
        """The parsed name; None if the shard does not belong to a numbered set."""
        name = stated_name(self.path if self.entry else self.name)
        return name if name.total is not None else None

    def open(self, *, read_ahead: bool = True) -> ShardStream:
        """Open the shard as :meth:`File.open`. Damage of an entry raises an error on reading."""
        if self.entry is not None:
            return self.entry.open()
        return super().open(read_ahead=read_ahead)


class LabelMapFile(NamedTuple):
    """The file of a label map: its content, and the label map with deviations, or an error."""

    name: str
    label_map: LabelMap | None
    error: str = ""
    deviations: Sequence[str] = ()
    path: str = ""
    data: bytes = b""

    @staticmethod
    def decode(data: bytes, name: str, path: str) -> LabelMapFile:
        """Decode a label map; ``error`` is set if the data is invalid or truncated."""
        try:
            label_map, deviations = decode_label_map(data, name)
        except LabelMapError as error:
            return LabelMapFile(name, None, str(error), path=path, data=data)
        return LabelMapFile(name, label_map, "", deviations, path, data)

    @staticmethod
    def at(path: str, name: str | None = None) -> LabelMapFile:
        """Read the label map of a file or URL; its name is the path by default."""
        name = path if name is None else name
        try:
            data = read_text_file(path, MAX_LABEL_MAP_BYTES)
            if is_labels_file(path):
                return LabelMapFile(name, read_labels(path)[0], path=path, data=data)
            return LabelMapFile.decode(data, name, path)
        except LabelMapError as error:
            return LabelMapFile(name, None, str(error).replace(path, name), path=path)

    @staticmethod
    def load(name: str) -> LabelMapFile:
        """Read a label map by path or name; raise LabelMapError if it does not exist."""
        try:
            read = read_labels if is_labels_file(name) else load_label_map
            label_map, deviations = read(name)
        except LabelMapError as error:
            if not os.path.isfile(name):
                raise
            return LabelMapFile(name, None, str(error), path=name)
        return LabelMapFile(name, label_map, "", deviations, name)


@dataclass(frozen=True)
class Zip(File):
    """A zip, which is a dataset.

    Attributes:
        other_entries: readable entries that are not shards.
        has_shards: whether it contains shards, including unreadable ones.
        unreadable: error of the operating system; empty if the zip can be read.
    """

    content: ZipContent = field(default_factory=ZipContent)
    other_entries: Sequence[ZipEntry] = ()
    has_shards: bool = True
    unreadable: str = ""

    def display_name(self, entry: ZipEntry | None) -> str:
        """Return the name of an entry, or of the zip itself, in reports."""
        return f"{self.name}:{entry.shown}" if entry else self.name


class Dataset(NamedTuple):
    """A zip, or the shards of a folder and its subfolders for splits.

    Attributes:
        name: folder or zip, as the user typed it.
        shards: shards in the order of their subsets.
        label_maps: label maps of the shards, by name.
        zips: the zip; several zips if datasets were joined.
        notes: sentences about files that were left out.
    """

    name: str
    shards: Sequence[Shard] = ()
    label_maps: Mapping[str, LabelMapFile] = {}
    zips: Sequence[Zip] = ()
    notes: Sequence[str] = ()

    @property
    def files(self) -> Sequence[File]:
        """The files in the order of the report: shards outside of zips, then zips."""
        return [*(shard for shard in self.shards if shard.entry is None), *self.zips]

    def with_label_map(self, label_map: LabelMapFile) -> Dataset:
        """Return a copy with one label map for all shards."""
        shards = [replace(shard, label_map=label_map.name, candidates=()) for shard in self.shards]
        return self._replace(shards=shards, label_maps={label_map.name: label_map})

    def get_label_map(self, shard: Shard) -> LabelMapFile | None:
        """Return the label map of a shard, or None."""
        return self.label_maps.get(shard.label_map) if shard.label_map else None


class ResolvedSources(NamedTuple):
    """Resolved sources.

    Attributes:
        datasets: datasets in the order of the sources.
        unused_label_maps: label maps among the sources that belong to no shard.
        label_map: name of the label map for all shards, or None.
        repeated: names of shards that occur more than once.
        notes: sentences about files that were left out.
    """

    datasets: Sequence[Dataset] = ()
    unused_label_maps: Dataset = Dataset("")
    label_map: str | None = None
    repeated: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def shards(self) -> list[Shard]:
        """All shards, in order."""
        return [shard for dataset in self.datasets for shard in dataset.shards]

    @property
    def files(self) -> list[File]:
        """All files, in order."""
        return [file for dataset in self.datasets for file in dataset.files]

    def exclude(
        self, is_excluded: Callable[[str], bool]
    ) -> tuple[ResolvedSources, Collection[str]]:
        """Return a copy without the excluded files, and the names of these."""
        names = {file.name for file in self.files if is_excluded(file.name)}
        datasets = []
        for dataset in self.datasets:
            zips = [file for file in dataset.zips if file.name not in names]
            if len(zips) == len(dataset.zips):
                shards = [shard for shard in dataset.shards if shard.name not in names]
                datasets += [dataset._replace(shards=shards)] if shards or zips else []
        return self._replace(datasets=datasets), names

    def with_label_map(self, label_map: LabelMapFile) -> ResolvedSources:
        """Return a copy with one label map for all shards."""
        datasets = [dataset.with_label_map(label_map) for dataset in self.datasets]
        return self._replace(datasets=datasets, label_map=label_map.name)

    def join(self) -> ResolvedSources:
        """Return a copy with a single dataset."""
        dataset = Dataset(
            ", ".join(dataset.name for dataset in self.datasets),
            self.shards,
            {name: file for dataset in self.datasets for name, file in dataset.label_maps.items()},
            [archive for dataset in self.datasets for archive in dataset.zips],
        )
        return self._replace(datasets=[dataset])
