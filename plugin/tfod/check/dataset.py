"""What is checked: data sets, and their shards, wherever the bytes of these are."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfod.detection.labels.label_map import LabelMap
from tfod.tfrecord.shard_sets.names import parse_shard_name
from tfod.tfrecord.storage.open import ShardStream, open_stream
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of

if TYPE_CHECKING:
    from tfod.tfrecord.storage.zip_directory import ZipProblem
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

    def open(self, *, hashed: bool = False, read_ahead: bool = True) -> ShardStream:
        """Open it, unbuffered; as :func:`~tfod.tfrecord.storage.open.open_stream`.

        Raises:
            OSError: it cannot be opened.
        """
        return open_stream(self.path, hashed=hashed, read_ahead=read_ahead)


@dataclass(frozen=True)
class Shard(File):
    """A shard: a file, an entry of a zip, what came from standard input, or a URL.

    Attributes:
        path: of an entry as if its zip were a folder.
        subset: the subset it belongs to.
        label_map: name of the label map that goes with it; None where there is none.
        candidates: names of label maps that fit equally well, when there are several.
        entry: what holds it in a zip.
    """

    subset: str = ""
    label_map: str | None = None
    candidates: Sequence[str] = ()
    entry: ZipEntry | None = None

    @property
    def numbered(self) -> bool:
        """Whether it is one of a numbered set."""
        name = parse_shard_name(self.path if self.entry else self.name)
        return name is not None and name.total is not None

    @property
    def in_archive(self) -> bool:
        """Whether it is an entry of a zip."""
        return self.entry is not None

    def open(self, *, hashed: bool = False, read_ahead: bool = True) -> ShardStream:
        """As :meth:`File.open`. Of an entry what is damaged shows while it is read.

        Raises:
            OSError: it cannot be opened.
        """
        if self.entry is not None:
            return self.entry.open()
        return super().open(hashed=hashed, read_ahead=read_ahead)


@dataclass(frozen=True)
class LabelMapFile:
    """A label map: what was read, or why it could not be; where from, and its bytes."""

    name: str
    label_map: LabelMap | None
    error: str = ""
    liberties: Sequence[str] = ()
    path: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class Zip(File):
    """A zip, which is a data set.

    Attributes:
        problems: what is wrong with it, as far as its directory says.
        entries: how many files it has.
        has_shards: whether any of them is a shard, also one that cannot be read.
        other: format of the annotations that it holds in place of shards.
        unreadable: why the system does not let it be read; empty where it does.
    """

    problems: Sequence[ZipProblem] = ()
    entries: int = 0
    has_shards: bool = True
    other: str | None = None
    unreadable: str = ""

    def name_of(self, entry: ZipEntry | None) -> str:
        """What reports call an entry, or the zip itself."""
        return f"{self.name}:{entry.shown}" if entry else self.name


@dataclass
class NumberedSet:
    """Shards of one stem; that of ``train-00003-of-00010`` is ``train``, and the total is 10.

    Attributes:
        name: its stem with the folder, or the zip that holds it: what reports call it.
        totals: an example of each total.
        numbers: those that are there.
        missing: names of those that are not.
    """

    name: str
    totals: dict[int, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dataset:
    """A zip, or the shards of one folder together with its folders for splits.

    Attributes:
        name: its folder or zip, as the user has named it.
        shards: in the order of their subsets.
        label_maps: those of its shards, by name.
        numbered_sets: what the names of its shards promise.
        zips: its zip; of several data sets that were joined all of them.
        others: entries of the zip that are no shards, but are read.
        empty_sources: folders among the sources that hold nothing to check, with the reason.
    """

    name: str
    shards: Sequence[Shard] = ()
    label_maps: Mapping[str, LabelMapFile] = field(default_factory=dict)
    numbered_sets: Sequence[NumberedSet] = ()
    zips: Sequence[Zip] = ()
    others: Sequence[ZipEntry] = ()
    empty_sources: Sequence[tuple[str, str]] = ()

    @property
    def files(self) -> Sequence[File]:
        """Its files, as the report lists them: the shards that lie open, and the zips."""
        return [*(one for one in self.shards if not one.in_archive), *self.zips]

    def with_label_map(self, label_map: LabelMapFile) -> Dataset:
        """The same with one label map for all shards."""
        shards = [replace(one, label_map=label_map.name, candidates=()) for one in self.shards]
        return replace(self, shards=shards, label_maps={label_map.name: label_map})

    def label_map_of(self, shard: Shard) -> LabelMapFile | None:
        """The label map that goes with a shard, as it was read."""
        return self.label_maps.get(shard.label_map) if shard.label_map else None


@dataclass(frozen=True)
class Found:
    """What sources mean.

    Attributes:
        datasets: in the order in which they were named.
        rest: sources that hold nothing, and label maps that go with nothing.
        label_map: the one that goes with all shards, where there is one.
    """

    datasets: Sequence[Dataset] = ()
    rest: Dataset = field(default_factory=lambda: Dataset(""))
    label_map: str | None = None

    @property
    def shards(self) -> list[Shard]:
        """All shards, in order."""
        return [shard for dataset in self.datasets for shard in dataset.shards]

    @property
    def files(self) -> list[File]:
        """All files, in order."""
        return [file for dataset in self.datasets for file in dataset.files]

    def without(self, is_excluded: Callable[[str], bool]) -> tuple[Found, Collection[str]]:
        """The same without the files of some names, and those names."""
        names = {one.name for one in self.files if is_excluded(one.name)}
        left = []
        for dataset in self.datasets:
            zips = [one for one in dataset.zips if one.name not in names]
            if len(zips) == len(dataset.zips):
                shards = [one for one in dataset.shards if one.name not in names]
                left += [replace(dataset, shards=shards)] if shards or zips else []
        return replace(self, datasets=left), names

    def with_label_map(self, label_map: LabelMapFile) -> Found:
        """The same with one label map for all shards."""
        datasets = [one.with_label_map(label_map) for one in self.datasets]
        return replace(self, datasets=datasets, label_map=label_map.name)

    def joined(self) -> Found:
        """The same as one data set."""
        all_ = self.datasets
        whole = Dataset(
            ", ".join(one.name for one in all_),
            self.shards,
            {name: file for one in all_ for name, file in one.label_maps.items()},
            [numbered for one in all_ for numbered in one.numbered_sets],
            [zip_ for one in all_ for zip_ in one.zips],
            [entry for one in all_ for entry in one.others],
        )
        return replace(self, datasets=[whole])


def numbered_sets_of(
    paths: Sequence[str], missing: Sequence[str], archive: str = ""
) -> Sequence[NumberedSet]:
    """The numbered sets that the shards of a subset make up.

    Args:
        paths: of the shards.
        missing: names that the numbering promises, and that are not there.
        archive: name of the zip that they are in.
    """
    found: dict[str, NumberedSet] = {}
    for path in paths:
        name = parse_shard_name(path)
        if name is not None and name.total is not None:
            folder = folder_of(path) if is_url(path) else os.path.dirname(path)
            stem = os.path.join(folder, name.stem)
            one = found.setdefault(stem, NumberedSet(archive or stem))
            one.totals.setdefault(name.total, name_of(path))
            one.numbers.add(name.number or 0)
    by_name = {os.path.basename(stem): one for stem, one in reversed(found.items())}
    for path in missing:
        name = parse_shard_name(path)
        if name is not None and name.stem in by_name:
            by_name[name.stem].missing.append(path)
    return list(found.values())
