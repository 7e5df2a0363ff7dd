"""What sources mean: data sets, and their shards, wherever the bytes of these are."""

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
    """A file that was named or found.

    Attributes:
        name: what reports call it.
        path: where its bytes are: a path on this machine, or an fsspec URL.
        size: its length in bytes; None where it is not known.
    """

    name: str
    path: str
    size: int | None = None

    @staticmethod
    def at(path: str, name: str | None = None) -> File:
        """A file on this machine, under its path or another name."""
        size = None
        with suppress(OSError):  # what opens it says so
            size = os.path.getsize(path)
        return File(path if name is None else name, path, size)

    @property
    def is_remote(self) -> bool:
        """Whether it is on another machine."""
        return is_url(self.path)

    def open(self, *, read_ahead: bool = True) -> ShardStream:
        """Open it, unbuffered; as :func:`~tfod.tfrecord.storage.open.open_stream`.

        Raises:
            OSError: it cannot be opened.
        """
        return open_stream(self.path, read_ahead=read_ahead)


@dataclass(frozen=True)
class Shard(File):
    """A shard: a file, an entry of a zip, what came from standard input, or a URL.

    Attributes:
        path: of an entry as if its zip were a folder.
        subset: the subset it belongs to.
        label_map: name of the label map that goes with it; None where there is none.
        candidates: names of label maps that fit equally well, when there are several.
        entry: what holds it in a zip.
        by_itself: whether it was named as one file, and no folder or glob that should be whole.
    """

    subset: str = ""
    label_map: str | None = None
    candidates: Sequence[str] = ()
    entry: ZipEntry | None = None
    by_itself: bool = False

    @property
    def numbered(self) -> ShardName | None:
        """Its file's name taken apart; None where it is not one of a numbered set."""
        name = stated_name(self.path if self.entry else self.name)
        return name if name.total is not None else None

    def open(self, *, read_ahead: bool = True) -> ShardStream:
        """As :meth:`File.open`. Of an entry what is damaged shows while it is read.

        Raises:
            OSError: it cannot be opened.
        """
        if self.entry is not None:
            return self.entry.open()
        return super().open(read_ahead=read_ahead)


class LabelMapFile(NamedTuple):
    """A label map: what was read, or why it could not be; where from, and its bytes."""

    name: str
    label_map: LabelMap | None
    error: str = ""
    deviations: Sequence[str] = ()
    path: str = ""
    data: bytes = b""

    @staticmethod
    def of(data: bytes, name: str, path: str) -> LabelMapFile:
        """A label map from bytes, which may be none; of a long one they need not be all."""
        try:
            label_map, deviations = decode_label_map(data, name)
        except LabelMapError as error:
            return LabelMapFile(name, None, str(error), path=path, data=data)
        return LabelMapFile(name, label_map, "", deviations, path, data)

    @staticmethod
    def at(path: str, name: str | None = None) -> LabelMapFile:
        """The label map of a file or a URL, under its path or another name."""
        name = path if name is None else name
        try:
            data = read_text_file(path, MAX_LABEL_MAP_BYTES)
            if is_labels_file(path):
                return LabelMapFile(name, read_labels(path)[0], path=path, data=data)
            return LabelMapFile.of(data, name, path)
        except LabelMapError as error:
            return LabelMapFile(name, None, str(error).replace(path, name), path=path)

    @staticmethod
    def named(name: str) -> LabelMapFile:
        """The one that the user has named for all shards: a file, or a name that tfod ships.

        Raises:
            LabelMapError: there is none.
        """
        try:
            load = read_labels if is_labels_file(name) else load_label_map
            label_map, deviations = load(name)
        except LabelMapError as error:
            if not os.path.isfile(name):
                raise
            return LabelMapFile(name, None, str(error), path=name)
        return LabelMapFile(name, label_map, "", deviations, name)


@dataclass(frozen=True)
class Zip(File):
    """A zip, which is a data set.

    Attributes:
        content: its directory, and what is wrong with it as far as that says.
        others: its entries that are no shards, but are read.
        has_shards: whether any is a shard, also one that cannot be read.
        unreadable: why the system does not let it be read; empty where it does.
    """

    content: ZipContent = field(default_factory=ZipContent)
    others: Sequence[ZipEntry] = ()
    has_shards: bool = True
    unreadable: str = ""

    def name_of(self, entry: ZipEntry | None) -> str:
        """What reports call an entry, or the zip itself."""
        return f"{self.name}:{entry.shown}" if entry else self.name


class Dataset(NamedTuple):
    """A zip, or the shards of one folder together with its folders for splits.

    Attributes:
        name: its folder or zip, as the user has named it.
        shards: in the order of their subsets.
        label_maps: those of its shards, by name.
        zips: its zip; of several data sets that were joined all of them.
        notes: what was left out, as sentences.
    """

    name: str
    shards: Sequence[Shard] = ()
    label_maps: Mapping[str, LabelMapFile] = {}
    zips: Sequence[Zip] = ()
    notes: Sequence[str] = ()

    @property
    def files(self) -> Sequence[File]:
        """Its files, as the report lists them: the shards that lie open, and the zips."""
        return [*(one for one in self.shards if one.entry is None), *self.zips]

    def with_label_map(self, label_map: LabelMapFile) -> Dataset:
        """The same with one label map for all shards."""
        shards = [replace(one, label_map=label_map.name, candidates=()) for one in self.shards]
        return self._replace(shards=shards, label_maps={label_map.name: label_map})

    def label_map_of(self, shard: Shard) -> LabelMapFile | None:
        """The label map that goes with a shard, as it was read."""
        return self.label_maps.get(shard.label_map) if shard.label_map else None


class ResolvedSources(NamedTuple):
    """What sources mean.

    Attributes:
        datasets: in the order in which they were named.
        unused_label_maps: label maps that were named and go with nothing.
        label_map: the label map that was named for all shards, if there is one.
        repeated: names of shards that were named or found again.
        notes: what was left out, as sentences.
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

    def without(
        self, is_excluded: Callable[[str], bool]
    ) -> tuple[ResolvedSources, Collection[str]]:
        """The same without the files of some names, and those names."""
        names = {one.name for one in self.files if is_excluded(one.name)}
        left = []
        for dataset in self.datasets:
            zips = [one for one in dataset.zips if one.name not in names]
            if len(zips) == len(dataset.zips):
                shards = [one for one in dataset.shards if one.name not in names]
                left += [dataset._replace(shards=shards)] if shards or zips else []
        return self._replace(datasets=left), names

    def with_label_map(self, label_map: LabelMapFile) -> ResolvedSources:
        """The same with one label map for all shards."""
        datasets = [one.with_label_map(label_map) for one in self.datasets]
        return self._replace(datasets=datasets, label_map=label_map.name)

    def joined(self) -> ResolvedSources:
        """The same as one data set."""
        whole = Dataset(
            ", ".join(one.name for one in self.datasets),
            self.shards,
            {name: file for one in self.datasets for name, file in one.label_maps.items()},
            [zip_ for one in self.datasets for zip_ in one.zips],
        )
        return self._replace(datasets=[whole])
