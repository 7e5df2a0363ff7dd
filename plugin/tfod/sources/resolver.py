"""The resolver: what sources mean, the same for every command and reader.

Sources are shards, sets and globs of them, folders, zips, standard input and URLs. A data set is
the shards of one folder, with those of its folders for splits; or a zip.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import BinaryIO

from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.labels.label_map import require_label_map
from tfod.errors import ShardError, ShardsNotFoundError, TfodError
from tfod.sources.grouping import datasets_of
from tfod.sources.label_map_search import (
    LabelMapFinder,
    find_labels,
    is_named_label_map,
    label_maps_in,
    may_be_label_map,
    read_label_map_or_none,
)
from tfod.sources.layouts import classes_in, layout_of
from tfod.sources.other_tools import no_shards_error
from tfod.sources.resolved import Dataset, File, LabelMapFile, ResolvedSources, Shard
from tfod.sources.zips import zip_dataset
from tfod.tfrecord.shard_sets.search import (
    find_remote_shards,
    find_shards,
    group_shards,
    walk_files,
)
from tfod.tfrecord.shard_sets.shard_names import parse_shard_name
from tfod.tfrecord.storage.archive import ZipLimits
from tfod.tfrecord.storage.open import ShardStream, open_stream, zip_entry
from tfod.tfrecord.storage.urls import absolute, folder_of, is_url, is_zip

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
    """Find out what sources mean. Temporary copies are removed at the end.

    Args:
        sources: paths, globs, URLs, or ``-``; a ``.pbtxt`` among them is a label map. If it goes
            with none of the others, it stands for the shards next to it.
        label_map: file or name of one for all shards, instead of those that are found.
        limits: limits for the reading of zips.
        field_mapping: the keys of the records; None for those of the layout that fits best.
        finds_label_maps: whether label maps are looked for.
        is_checked: whether a check reads them, for which standard input and remote zips are copied
            and the zips next to the shards of a folder are opened.

    Raises:
        ShardsNotFoundError: a source means nothing.
        LabelMapError: a label map that was named does not exist.
        TfodError: a source cannot be reached.
    """
    named: list[str] = []
    others: list[str] = []
    for source in dict.fromkeys(sources):
        is_map = may_be_label_map(source) and not os.path.isdir(source)
        (named if is_map else others).append(source)
    if not others and not any(map(is_named_label_map, named)):
        raise ShardsNotFoundError(f"{named[0]}: name the shards that it goes with, too")
    for path in named:
        require_label_map(path)
    for_all = LabelMapFile.named(label_map) if label_map is not None else None
    with ExitStack() as cleanup:
        finds_label_maps = finds_label_maps and for_all is None
        search = _Search(
            named, limits or ZipLimits(), cleanup, finds_label_maps, field_mapping, is_checked
        )
        for source in others:
            search.add(source)
        if for_all is None:
            search.add_beside_label_maps()
        resolved = search.resolved()
        yield resolved.with_label_map(for_all) if for_all else resolved


class _Search:
    """What the sources mean that were looked at so far.

    A label map that was named goes with what lies in its folder. A single one with no shards beside
    it goes with everything, as does a single one with what is copied here: pre-commit names what
    has changed, which may be a label map of one data set and shards of another.
    """

    def __init__(
        self,
        named: Sequence[str],
        limits: ZipLimits,
        cleanup: ExitStack,
        finds_label_maps: bool,
        field_mapping: FieldMapping | None,
        is_checked: bool,
    ) -> None:
        self._shards: dict[str, Shard] = {}  # by where they are, whatever links lead to them
        self._zips: dict[str, Dataset] = {}
        self._named = named
        self._named_in: dict[str, list[str]] = {}
        for path in named:
            self._named_in.setdefault(folder_of(path), []).append(path)
        is_for_all = len(named) == 1 and not _shards_beside(named[0])
        self._for_all = named[0] if is_for_all else None
        self._finds_label_maps = finds_label_maps
        self._field_mapping = field_mapping
        self._is_checked = is_checked
        self._finder = LabelMapFinder(
            lambda path: classes_in(path, field_mapping),
            self._texts_in if finds_label_maps else lambda _: (),
        )
        self._is_relative = False
        self._limits = limits
        self._cleanup = cleanup
        self._scratch = ""  # the folder of what was copied here
        self._repeated: list[str] = []
        self._notes: list[str] = []

    def add(self, source: str) -> None:
        """Look at one more.

        Raises:
            ShardsNotFoundError: it means nothing.
            TfodError: it cannot be reached.
        """
        self._is_relative = not (is_url(source) or os.path.isabs(source))
        if is_url(source):
            self._add_remote(source)
            return
        if source != STANDARD_INPUT and not os.path.isfile(source):
            self._add_found(source)
            return
        if source != STANDARD_INPUT:
            file = File.at(source)
        elif not self._is_checked:
            raise ShardsNotFoundError(
                f"{source}: only tfod check and tfod show read standard input; name a file"
            )
        elif sys.stdin is None:
            raise TfodError("standard input is closed; name a file")
        else:
            file = self._spool(sys.stdin.buffer, "<stdin>")
        if is_zip(file.path):
            where = os.path.realpath(file.path)
            self._zips.setdefault(where, self._zip_dataset(file))
        else:
            self._add_shard(file, "", by_itself=True)  # its subset: all names together say it

    def add_beside_label_maps(self) -> None:
        """Add the shards beside the label maps that go with none of the others."""
        shards = list(self._shards.values())
        known = {folder_of(one.path) for one in shards}
        used = {one.label_map for one in shards} | {self._named_for(one) for one in self._zips}
        for one in self._unused(used):
            if folder_of(one) not in known:
                for shard in _shards_beside(one):
                    self.add(shard)

    def _zip_dataset(self, file: File) -> Dataset:
        return zip_dataset(file, self._limits, self._field_mapping)

    def resolved(self) -> ResolvedSources:
        """Return the data sets, once all sources were added."""
        alone = [one.name for one in self._shards.values() if one.by_itself]
        subset_of = {name: group.subset for group in group_shards(alone) for name in group.paths}
        datasets = datasets_of(
            replace(one, subset=subset_of[one.name]) if one.by_itself else one
            for one in self._shards.values()
        )
        datasets += self._zips.values()
        if self._finds_label_maps:
            datasets = [_with_labels_files(one, self._field_mapping) for one in datasets]
        for number, path in enumerate(self._zips, len(datasets) - len(self._zips)):
            if own := self._named_for(path):
                datasets[number] = datasets[number].with_label_map(LabelMapFile.at(own))
        unused = self._unused({name for one in datasets for name in one.label_maps})
        rest = Dataset("", label_maps={one: LabelMapFile.at(one) for one in unused})
        notes = [*self._notes, *self._finder.notes]
        return ResolvedSources(datasets, rest, self._for_all, self._repeated, notes)

    def _unused(self, used: Set[str | None]) -> list[str]:
        """The named label maps that are not used; another ``.pbtxt`` may be any protobuf text."""
        known = {absolute(one) for one in used if one}
        return [
            one for one in self._named if absolute(one) not in known and is_named_label_map(one)
        ]

    def _named_for(self, path: str) -> str | None:
        """The label map that was named for a file, in place of what is found."""
        if self._scratch and path.startswith(self._scratch) and len(self._named) == 1:
            return self._named[0]
        beside = self._named_in.get(folder_of(path), ())
        return beside[0] if len(beside) == 1 else self._for_all

    def _texts_in(self, folder: str) -> Sequence[str]:
        """What may be a label map in a folder: relative where the shards are."""
        found = self._named_in.get(folder) or label_maps_in(folder)
        return found if not self._is_relative else list(map(os.path.relpath, found))

    def _add_shard(self, file: File, subset: str, by_itself: bool = False) -> None:
        candidates: Sequence[str] = ()
        label_map = self._named_for(file.path)
        if label_map is None and file.name == file.path:
            label_map, candidates = self._finder.find(file.path)
        entry = None if os.path.lexists(file.path) or file.is_remote else zip_entry(file.path)
        size = file.size if entry is None else entry.size
        shard = Shard(
            file.name, file.path, size, subset, label_map, candidates, entry, by_itself=by_itself
        )
        where = file.path if file.is_remote else os.path.realpath(file.path)
        if where in self._shards:
            self._repeated.append(file.name)
        self._shards.setdefault(where, shard)

    def _add_found(self, source: str) -> None:
        """A folder or a glob. Beside shards, a folder's zips are checked where they hold some."""
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
                raise no_shards_error(source, error) from None
            sets = []
        for path, one in zips.items():
            is_beside = is_folder and bool(sets)
            if is_beside and not self._is_checked:
                self._notes.append(f"{path} was not read, next to shards; name it to read it")
            elif one.zips[0].has_shards or not is_beside:
                self._zips.setdefault(os.path.realpath(path), one)
        for group in sets:
            for path in group.paths:
                if path not in zips:
                    self._add_shard(File.at(path), group.subset)

    def _add_remote(self, source: str) -> None:
        """A URL of a file, a glob or a folder. Zips are copied here: they are not read in order."""
        found = find_remote_shards(source)
        for group in found.sets:
            for url in group.paths:
                file = File(url, url, found.files[url])
                self._add_shard(file, group.subset, by_itself=list(found.files) == [source])
        for url in found.zips:
            if not self._is_checked:
                raise ShardsNotFoundError(
                    f"{url}: the shards of a remote zip cannot be read one by one; copy it here "
                    "first, or look at it with: tfod check"
                )
            with open_stream(url) as stream:
                copy = self._spool(stream, url)
            self._zips[copy.path] = self._zip_dataset(copy)

    def _spool(self, stream: BinaryIO | ShardStream, name: str) -> File:
        """Copy a stream to a file: it may be a zip, and it is read more than once."""
        import tempfile  # few sources are copied

        if not self._scratch:
            folder = tempfile.TemporaryDirectory(prefix="tfod-check-")
            self._scratch = self._cleanup.enter_context(folder)
        handle, path = tempfile.mkstemp(dir=self._scratch)
        with open(handle, "wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        return File.at(path, name)


def resolve_uploads(files: Sequence[File], limits: ZipLimits | None = None) -> ResolvedSources:
    """What files are that were handed in under names which are no paths, as uploads are.

    The rules for names are those of files in one folder.

    Raises:
        ShardsNotFoundError: there is nothing to check among them.
    """
    texts = {one.name: one.path for one in files if may_be_label_map(one.name)}
    zips: list[File] = []
    shards: dict[str, File] = {}
    for one in (one for one in files if one.name not in texts):
        if one.name.lower().endswith(_ZIP_ENDING) or is_zip(one.path):
            zips.append(one)
        else:
            shards[os.path.join(_FOLDER, one.name)] = one
    if not shards and not zips:
        what = " but label maps; add the shards that they go with" if texts else ""
        raise ShardsNotFoundError(f"there is neither a shard nor a zip among the files{what}")
    finder = LabelMapFinder(
        lambda path: classes_in(shards[path].path),
        lambda _: sorted(texts),
        lambda name: read_label_map_or_none(texts[name]),
    )
    found = [
        Shard(file.name, file.path, file.size, group.subset, *finder.find(path))
        for group in group_shards(list(shards), _FOLDER)
        for path in group.paths
        if (file := shards[path])
    ]
    datasets = datasets_of(found, lambda name: LabelMapFile.at(texts[name], name))
    datasets += [zip_dataset(one, limits or ZipLimits()) for one in zips]
    if zips and len(texts) == 1:  # it is meant for the zip
        ((name, path),) = texts.items()
        return ResolvedSources(datasets).with_label_map(LabelMapFile.at(path, name))
    return ResolvedSources(datasets)


def _with_labels_files(dataset: Dataset, field_mapping: FieldMapping | None) -> Dataset:
    """Give shards of images with labels the ``labels.txt`` next to them, which lists their classes.

    Other shards have boxes, whose classes are in a label map.
    """
    labels_for = functools.cache(find_labels)
    files: dict[str, str | None] = {}
    with suppress(ShardError):  # a damaged zip is reported by those who read it
        files = {one.path: labels_for(folder_of(one.path)) for one in dataset.shards}
    if not any(files.values()) or (field_mapping or layout_of(dataset.shards).field_mapping).box:
        return dataset
    shards = [
        replace(one, label_map=files[one.path] or one.label_map, candidates=())
        for one in dataset.shards
    ]
    label_maps = {name: LabelMapFile.at(name) for name in filter(None, files.values())}
    return dataset._replace(shards=shards, label_maps={**dataset.label_maps, **label_maps})


def _shards_beside(label_map: str) -> list[str]:
    """The shards in the folder of a label map; of one in a bucket none."""
    folder = os.path.dirname(label_map)
    if is_url(label_map) or not os.path.isdir(folder or os.curdir):
        return []
    names = sorted(os.listdir(folder or os.curdir))
    return [os.path.join(folder, name) for name in names if parse_shard_name(name)]
