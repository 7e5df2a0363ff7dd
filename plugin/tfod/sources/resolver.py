"""The resolver, which finds the shards of sources, for all commands and readers.

Sources are shards, numbered sets, globs, folders, zips, standard input and URLs. A dataset is a
zip, or the shards of a folder and its subfolders for splits.
"""

from __future__ import annotations

import functools
import glob
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import BinaryIO

from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.labels.label_map import require_label_map
from tfod.errors import ShardError, ShardsNotFoundError, TfodError
from tfod.sources.grouping import group_datasets
from tfod.sources.label_map_search import (
    LabelMapFinder,
    find_labels,
    is_named_label_map,
    list_label_maps,
    may_be_label_map,
    read_label_map_or_none,
)
from tfod.sources.layouts import find_layout, read_classes
from tfod.sources.other_tools import make_no_shards_error
from tfod.sources.resolved import Dataset, File, LabelMapFile, ResolvedSources, Shard
from tfod.sources.zips import resolve_zip
from tfod.tfrecord.shard_sets.search import (
    find_remote_shards,
    find_shards,
    group_shards,
    walk_files,
)
from tfod.tfrecord.shard_sets.shard_names import parse_shard_name
from tfod.tfrecord.storage.archive import ZipLimits
from tfod.tfrecord.storage.open import ShardStream, find_zip_entry, open_stream
from tfod.tfrecord.storage.urls import get_folder, is_url, is_zip, to_absolute

STANDARD_INPUT = "-"
_ZIP_ENDING = ".zip"
_FOLDER = os.path.abspath(os.sep)


@contextmanager
def resolve(
    sources: Sequence[str],
    label_map: str | None = None,
    limits: ZipLimits | None = None,
    *,
    field_mapping: FieldMapping | None = None,
    finds_label_maps: bool = True,
    is_checked: bool = True,
) -> Iterator[ResolvedSources]:
    """Resolve sources. Temporary copies are removed on exit.

    Args:
        sources: paths, globs, URLs, or ``-``; a ``.pbtxt`` file among them is a label map. If it
            belongs to no other source, it selects the shards in its folder.
        label_map: path or name of a label map for all shards, which disables the search.
        limits: limits for reading zips.
        field_mapping: keys of the records; by default, the best layout is used.
        finds_label_maps: whether to search for label maps.
        is_checked: whether the sources are for the checker: standard input and remote zips are
            copied, and zips next to the shards of a folder are opened.

    Raises:
        ShardsNotFoundError: a source contains no shard.
        LabelMapError: a label map among the arguments does not exist.
        TfodError: a source cannot be reached.
    """
    named_maps: list[str] = []
    shard_sources: list[str] = []
    for source in dict.fromkeys(sources):
        is_map = may_be_label_map(source) and not os.path.isdir(source)
        (named_maps if is_map else shard_sources).append(source)
    if not shard_sources and not any(map(is_named_label_map, named_maps)):
        if not named_maps:
            raise ShardsNotFoundError("no source is given; pass shards, a folder or a zip")
        raise ShardsNotFoundError(f"{named_maps[0]}: pass the shards of this label map, too")
    for path in named_maps:
        require_label_map(path)
    for_all = LabelMapFile.load(label_map) if label_map is not None else None
    with ExitStack() as cleanup:
        finds_label_maps = finds_label_maps and for_all is None
        search = _Search(
            named_maps, limits or ZipLimits(), cleanup, finds_label_maps, field_mapping, is_checked
        )
        for source in shard_sources:
            search.add(source)
        if for_all is None:
            search.add_shards_of_label_maps()
        resolved = search.resolved()
        yield resolved.with_label_map(for_all) if for_all else resolved


class _Search:
    """The sources resolved so far.

    A label map among the sources applies to its folder, since pre-commit may pass the label map of
    one dataset and the shards of another. A single label map without shards in its folder applies
    to all sources; a single label map also applies to temporary copies.
    """

    def __init__(
        self,
        named_maps: Sequence[str],
        limits: ZipLimits,
        cleanup: ExitStack,
        finds_label_maps: bool,
        field_mapping: FieldMapping | None,
        is_checked: bool,
    ) -> None:
        self._shards: dict[str, Shard] = {}  # by path, with symbolic links resolved
        self._zips: dict[str, Dataset] = {}
        self._named_maps = named_maps
        self._named_by_folder: dict[str, list[str]] = {}
        for path in named_maps:
            self._named_by_folder.setdefault(get_folder(path), []).append(path)
        is_for_all = len(named_maps) == 1 and not _list_adjacent_shards(named_maps[0])
        self._for_all = named_maps[0] if is_for_all else None
        self._finds_label_maps = finds_label_maps
        self._field_mapping = field_mapping
        self._is_checked = is_checked
        self._finder = LabelMapFinder(
            lambda path: read_classes(path, field_mapping),
            self._texts_in if finds_label_maps else lambda _: (),
        )
        self._is_relative = False
        self._limits = limits
        self._cleanup = cleanup
        self._scratch = ""  # the folder of temporary copies
        self._repeated: list[str] = []
        self._notes: list[str] = []

    def add(self, source: str) -> None:
        """Add a source, with the errors of :func:`resolve`."""
        self._is_relative = not (is_url(source) or os.path.isabs(source))
        if is_url(source):
            self._add_remote(source)
            return
        if source != STANDARD_INPUT and not os.path.isfile(source):
            self._add_folder_or_glob(source)
            return
        if source != STANDARD_INPUT:
            file = File.at(source)
        elif not self._is_checked:
            raise ShardsNotFoundError(
                f"{source}: only tfod check and tfod show read standard input; pass a file"
            )
        elif sys.stdin is None:
            raise TfodError("standard input is closed; pass a file")
        else:
            file = self._spool(sys.stdin.buffer, "<stdin>")
        if is_zip(file.path):
            self._zips.setdefault(os.path.realpath(file.path), self._zip_dataset(file))
        else:
            self._add_shard(file, "", is_single=True)  # the subset depends on all names

    def add_shards_of_label_maps(self) -> None:
        """Add the shards next to unused label maps, except in folders with other sources."""
        shards = list(self._shards.values())
        folders = {get_folder(shard.path) for shard in shards}
        used = {shard.label_map for shard in shards}
        used |= {self._named_map_for(path) for path in self._zips}
        for label_map in self._list_unused(used):
            if get_folder(label_map) not in folders:
                for path in _list_adjacent_shards(label_map):
                    self.add(path)

    def _zip_dataset(self, file: File) -> Dataset:
        return resolve_zip(file, self._limits, self._field_mapping)

    def resolved(self) -> ResolvedSources:
        """Return the datasets, after all sources were added."""
        names = [shard.name for shard in self._shards.values() if shard.is_single]
        subsets = {name: group.subset for group in group_shards(names) for name in group.paths}
        datasets = group_datasets(
            replace(shard, subset=subsets[shard.name]) if shard.is_single else shard
            for shard in self._shards.values()
        )
        datasets += self._zips.values()
        if self._finds_label_maps:
            datasets = [_add_labels_files(dataset, self._field_mapping) for dataset in datasets]
        for index, path in enumerate(self._zips, len(datasets) - len(self._zips)):
            if label_map := self._named_map_for(path):
                datasets[index] = datasets[index].with_label_map(LabelMapFile.at(label_map))
        unused = self._list_unused({name for dataset in datasets for name in dataset.label_maps})
        unused_maps = Dataset("", label_maps={path: LabelMapFile.at(path) for path in unused})
        notes = [*self._notes, *self._finder.notes]
        return ResolvedSources(datasets, unused_maps, self._for_all, self._repeated, notes)

    def _list_unused(self, used: Set[str | None]) -> list[str]:
        """Return the unused label maps among the sources, without other protobuf text."""
        used_paths = {to_absolute(path) for path in used if path}
        unused = (path for path in self._named_maps if to_absolute(path) not in used_paths)
        return list(filter(is_named_label_map, unused))

    def _named_map_for(self, path: str) -> str | None:
        """Return the label map among the sources that applies to a file, or None."""
        if self._scratch and path.startswith(self._scratch) and len(self._named_maps) == 1:
            return self._named_maps[0]
        in_folder = self._named_by_folder.get(get_folder(path), ())
        return in_folder[0] if len(in_folder) == 1 else self._for_all

    def _texts_in(self, folder: str) -> Sequence[str]:
        """Return the possible label maps in a folder, relative if the source is relative."""
        paths = self._named_by_folder.get(folder) or list_label_maps(folder)
        return list(map(os.path.relpath, paths)) if self._is_relative else paths

    def _add_shard(self, file: File, subset: str, is_single: bool = False) -> None:
        candidates: Sequence[str] = ()
        label_map = self._named_map_for(file.path)
        if label_map is None and file.name == file.path:
            label_map, candidates = self._finder.find(file.path)
        entry = None if os.path.lexists(file.path) or file.is_remote else find_zip_entry(file.path)
        size = file.size if entry is None else entry.size
        shard = Shard(file.name, file.path, size, subset, label_map, candidates, entry, is_single)
        path = file.path if file.is_remote else os.path.realpath(file.path)
        if path in self._shards:
            self._repeated.append(file.name)
        self._shards.setdefault(path, shard)

    def _add_folder_or_glob(self, source: str) -> None:
        """Add the shards and zips; next to shards, only zips that contain shards."""
        is_folder = os.path.isdir(source)
        paths = walk_files(source) if is_folder else glob.iglob(source, recursive=True)
        zips = {
            path: self._zip_dataset(File.at(path))
            for path in sorted(paths)
            if path.lower().endswith(_ZIP_ENDING) and os.path.isfile(path)
        }
        try:
            sets = find_shards(source)
        except ShardsNotFoundError as error:
            if not zips:
                raise make_no_shards_error(source, error) from None
            sets = []
        is_mixed = is_folder and bool(sets)
        for path, dataset in zips.items():
            if is_mixed and not self._is_checked:
                self._notes.append(f"{path} was not read, next to shards; pass its path to read it")
            elif dataset.zips[0].has_shards or not is_mixed:
                self._zips.setdefault(os.path.realpath(path), dataset)
        for group in sets:
            for path in group.paths:
                if path not in zips:
                    self._add_shard(File.at(path), group.subset)

    def _add_remote(self, source: str) -> None:
        """Add the URL of a file, glob or folder. Zips are downloaded for random access."""
        remote = find_remote_shards(source)
        for group in remote.sets:
            for url in group.paths:
                file = File(url, url, remote.files[url])
                self._add_shard(file, group.subset, is_single=list(remote.files) == [source])
        for url in remote.zips:
            if not self._is_checked:
                raise ShardsNotFoundError(
                    f"{url}: shards in a remote zip cannot be read; download the zip first, or "
                    f"check it with: tfod check {shlex.quote(url)}"
                )
            with open_stream(url) as stream:
                copy = self._spool(stream, url)
            self._zips[copy.path] = self._zip_dataset(copy)

    def _spool(self, stream: BinaryIO | ShardStream, name: str) -> File:
        """Copy a stream to a temporary file, since it may be a zip and is read more than once."""
        import tempfile  # rarely needed

        if not self._scratch:
            folder = tempfile.TemporaryDirectory(prefix="tfod-check-")
            self._scratch = self._cleanup.enter_context(folder)
        handle, path = tempfile.mkstemp(dir=self._scratch)
        with open(handle, "wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        return File.at(path, name)


def resolve_uploads(files: Sequence[File], limits: ZipLimits | None = None) -> ResolvedSources:
    """Resolve uploads by name, like files in one folder, with the errors of :func:`resolve`."""
    texts = {file.name: file.path for file in files if may_be_label_map(file.name)}
    zips: list[File] = []
    shards: dict[str, File] = {}
    for file in files:
        if file.name in texts:
            continue
        if file.name.lower().endswith(_ZIP_ENDING) or is_zip(file.path):
            zips.append(file)
        else:
            shards[os.path.join(_FOLDER, file.name)] = file
    if not shards and not zips:
        hint = ", only label maps; add the shards that belong to them" if texts else "; add one"
        raise ShardsNotFoundError(f"there is neither a shard nor a zip among the files{hint}")
    finder = LabelMapFinder(
        lambda path: read_classes(shards[path].path),
        lambda _: sorted(texts),
        lambda name: read_label_map_or_none(texts[name]),
    )
    uploaded = [
        Shard(file.name, file.path, file.size, group.subset, *finder.find(path))
        for group in group_shards(list(shards), _FOLDER)
        for path in group.paths
        if (file := shards[path])
    ]
    datasets = group_datasets(uploaded, lambda name: LabelMapFile.at(texts[name], name))
    datasets += [resolve_zip(file, limits or ZipLimits()) for file in zips]
    if zips and len(texts) == 1:  # the label map applies to the zip, too
        ((name, path),) = texts.items()
        return ResolvedSources(datasets).with_label_map(LabelMapFile.at(path, name))
    return ResolvedSources(datasets)


def _add_labels_files(dataset: Dataset, field_mapping: FieldMapping | None) -> Dataset:
    """Use a ``labels.txt`` next to the shards as their label map, unless they have boxes."""
    find_cached = functools.cache(find_labels)
    files: dict[str, str | None] = {}
    with suppress(ShardError):  # a damaged zip is reported when it is read
        files = {shard.path: find_cached(get_folder(shard.path)) for shard in dataset.shards}
    if not any(files.values()) or (field_mapping or find_layout(dataset.shards).field_mapping).box:
        return dataset
    shards = [
        replace(shard, label_map=files[shard.path] or shard.label_map, candidates=())
        for shard in dataset.shards
    ]
    label_maps = {name: LabelMapFile.at(name) for name in filter(None, files.values())}
    return dataset._replace(shards=shards, label_maps={**dataset.label_maps, **label_maps})


def _list_adjacent_shards(label_map: str) -> list[str]:
    folder = os.path.dirname(label_map)
    if is_url(label_map) or not os.path.isdir(folder or os.curdir):
        return []
    names = sorted(os.listdir(folder or os.curdir))
    return [os.path.join(folder, name) for name in names if parse_shard_name(name)]
