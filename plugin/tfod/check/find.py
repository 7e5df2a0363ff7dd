"""What sources mean: shards, sets and globs of them, folders, zips, standard input and URLs."""

from __future__ import annotations

import functools
import glob
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO

from tfod.check.dataset import Dataset, File, Found, LabelMapFile, Shard
from tfod.check.grouping import ShardGroup, datasets_of, join_sets, once, real_path
from tfod.check.label_maps import LabelMapSearch, named_label_map, read_label_map, shards_beside
from tfod.errors import ShardError, ShardsNotFoundError, TfodError
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.label_files import LabelMapFinder, is_named_label_map, may_be_label_map
from tfod.tfrecord.shard_sets.names import (
    parse_shard_name,
)
from tfod.tfrecord.shard_sets.search import (
    ShardSet,
    files_below,
    find_remote_shards,
    find_shards,
    group_shards,
)
from tfod.tfrecord.storage.open import ShardStream, open_stream
from tfod.tfrecord.storage.publishing import require_published
from tfod.tfrecord.storage.urls import absolute, folder_of, is_url
from tfod.tfrecord.storage.zip_directory import ZipLimits

STANDARD_INPUT = "-"
_ZIP_ENDING = ".zip"
_FOLDER = os.path.abspath(os.sep)


@contextmanager
def find(
    sources: Sequence[str], label_map: str | None = None, limits: ZipLimits | None = None
) -> Iterator[Found]:
    """Find out what sources mean. What has to be held meanwhile is given back at the end.

    Args:
        sources: paths, globs, URLs, or ``-``; a ``.pbtxt`` among them is a label map. One that goes
            with none of the others stands for the shards beside it.
        label_map: file or name of one for all shards: then none is looked for.
        limits: where the reading of zips stops.

    Raises:
        ShardsNotFoundError: a source means nothing, and no other is a folder with shards.
        LabelMapError: the label map for all shards is not there.
        TfodError: a source cannot be reached.
    """
    named: list[str] = []
    others: list[str] = []
    for one in dict.fromkeys(sources):
        is_label_map = may_be_label_map(one) and not os.path.isdir(one)
        (named if is_label_map else others).append(one)
    if not others and not any(map(is_named_label_map, named)):
        raise ShardsNotFoundError(f"{named[0]}: name the shards that it goes with, too")
    for_all = named_label_map(label_map) if label_map is not None else None
    with tempfile.TemporaryDirectory(prefix="tfod-check-") as scratch:
        search = _Search(named, for_all, limits or ZipLimits(), scratch)
        for source in others:
            search.add(source)
        if search.empty and not search.groups and not search.zips:
            raise ShardsNotFoundError(search.empty[0][1])
        if for_all is None:
            search.add_beside_label_maps()
        yield search.found()


class _Search:
    """What the sources mean that were looked at so far."""

    def __init__(
        self, named: Sequence[str], for_all: LabelMapFile | None, limits: ZipLimits, scratch: str
    ) -> None:
        self.groups: list[ShardGroup] = []
        self.zips: list[File] = []
        self.empty: list[tuple[str, str]] = []
        self._named = named
        self._for_all = for_all
        self._label_maps = LabelMapSearch(named, for_all is not None)
        self._limits = limits
        self._scratch = scratch

    def shards(self) -> list[Shard]:
        return [shard for group in self.groups for shard in group.shards]

    def add_beside_label_maps(self) -> None:
        """Add the shards beside the label maps that go with none of the others."""
        known = {folder_of(shard.path) for shard in self.shards()}
        for one in self._unused([shard.label_map for shard in self.shards()]):
            if folder_of(one) not in known and not self._is_for_zips(one):
                for shard in shards_beside(one):
                    self.add(shard)

    def found(self) -> Found:
        """The data sets, once all has been looked at."""
        read = functools.cache(self._read_label_map)
        datasets = datasets_of(join_sets(once(self.groups)), read)
        archives = {real_path(one): one for one in reversed(self.zips)}
        for archive in list(archives.values())[::-1]:
            from tfod.check.zips import zip_dataset  # needed for zips alone

            own = self._label_maps.for_zip(archive.path)
            needs_label_map = self._for_all is None and own is None
            dataset = zip_dataset(archive, self._limits, needs_label_map)
            datasets.append(dataset.with_label_map(read(own)) if own else dataset)
        used = [name for one in datasets for name in one.label_maps]
        unused = {name: read(name) for name in self._unused(used)}
        found = Found(datasets, Dataset("", label_maps=unused, empty_sources=self.empty))
        for_all = self._label_maps.for_all
        if self._for_all is not None:
            return found.with_label_map(self._for_all)
        is_one = datasets and {name for one in datasets for name in one.label_maps} == {for_all}
        return replace(found, label_map=for_all) if is_one else found

    def _read_label_map(self, name: str) -> LabelMapFile:
        return named_label_map(name) if name in self._named else read_label_map(name, name)

    def _unused(self, used: Sequence[str | None]) -> list[str]:
        """The named label maps that are not used; another ``.pbtxt`` may be any protobuf text."""
        known = {absolute(one) for one in used if one}
        return [
            one for one in self._named if absolute(one) not in known and is_named_label_map(one)
        ]

    def _is_for_zips(self, label_map: str) -> bool:
        return any(self._label_maps.for_zip(one.path) == label_map for one in self.zips)

    def add(self, source: str) -> None:
        """Look at one more.

        Raises:
            ShardsNotFoundError: it means nothing.
            TfodError: it cannot be reached.
        """
        if source == STANDARD_INPUT:
            if sys.stdin is None:
                raise TfodError("standard input is closed; name a file")
            self._add_file(_spool(sys.stdin.buffer, "<stdin>", self._scratch))
        elif is_url(source):
            self._add_remote(source)
        elif os.path.isfile(source):
            require_published(source)
            self._add_file(File.at(source))
        else:
            try:
                self._add_found(source)
            except ShardsNotFoundError as error:
                if not os.path.isdir(source):
                    raise
                self.empty.append((source, _what_else(source) or str(error)))

    def _add_file(self, file: File) -> None:
        """One file that was named: a zip by its bytes, or by its name, or else a shard."""
        if is_zip_file(file):
            self.zips.append(file)
            return
        name = parse_shard_name(file.name)
        subset = name.stem if name else os.path.splitext(os.path.basename(file.name))[0]
        is_named = file.name == file.path
        found, candidates = self._label_maps.of(file.path) if is_named else (None, ())
        label_map = found or self._label_maps.for_all
        shard = Shard(file.name, file.path, file.size, subset, label_map, candidates)
        self.groups.append(ShardGroup(subset, [shard], ()))

    def _add_found(self, source: str) -> None:
        """A folder or a glob. Beside shards, a folder's zips are checked where they hold some."""
        zips = _zips_of(source)
        try:
            sets = find_shards(source)
        except ShardsNotFoundError:
            if not zips:
                raise
            sets = []
        if sets and os.path.isdir(source):
            zips = [path for path in zips if _holds_shards(path)]
        self.zips.extend(map(File.at, zips))
        groups = self._groups_of(sets, File.at, frozenset(zips))
        shards = [shard for group in groups for shard in group.shards]
        if os.path.isdir(source) and not all(one.label_map or one.candidates for one in shards):
            found = self._label_maps.within(source, [one.path for one in shards])
            groups = [
                replace(group, shards=[_with_any(one, found.get(one.path)) for one in group.shards])
                for group in groups
            ]
        self.groups += groups

    def _groups_of(
        self,
        sets: Sequence[ShardSet],
        file_of: Callable[[str], File],
        zips: frozenset[str] = frozenset(),
    ) -> list[ShardGroup]:
        """Shards that were found, each with the label map beside it; zips are none."""
        groups = []
        for one in sets:
            files = [file_of(path) for path in one.paths if path not in zips]
            shards = [
                Shard(file.name, file.path, file.size, one.subset, *self._label_maps.of(file.path))
                for file in files
            ]
            groups.append(ShardGroup(one.subset, shards, one.missing))
        return groups

    def _add_remote(self, source: str) -> None:
        """A URL of a file, a glob or a folder. Zips are copied here: they are not read in order."""
        found = find_remote_shards(source)
        sets = found.sets
        if list(found.files) == [source]:  # one file that was named promises no others
            sets = [replace(one, missing=()) for one in sets]
        self.groups += self._groups_of(sets, lambda url: File(url, url, found.files[url].size))
        for url in found.zips:
            try:
                with open_stream(url) as stream:
                    self.zips.append(_spool(stream, url, self._scratch))
            except OSError as error:
                raise TfodError(f"{url}: cannot be read: {error.strerror}") from None


def find_uploads(files: Sequence[File], limits: ZipLimits | None = None) -> Found:
    """What files are that were handed in under names which are no paths, as uploads are.

    The rules for names are those of files in one folder.

    Raises:
        ShardsNotFoundError: there is nothing to check among them.
        OSError: one of them cannot be read.
    """
    by_path = {os.path.join(_FOLDER, one.name): one for one in files}
    texts = sorted(path for path in by_path if may_be_label_map(path))
    zips = [path for path, one in by_path.items() if path not in texts and is_zip_file(one)]
    shards = [path for path in by_path if path not in {*texts, *zips}]
    if not shards and not zips:
        what = " but label maps; add the shards that they go with" if texts else ""
        raise ShardsNotFoundError(f"there is neither a shard nor a zip among the files{what}")
    paths = {by_path[path].name: by_path[path].path for path in texts}
    read = functools.cache(lambda name: read_label_map(name, paths[name]))
    groups = []
    finder = LabelMapFinder(lambda _: texts)
    for one in group_shards(shards, _FOLDER):
        sources = []
        for path in one.paths:
            file, (found, candidates) = by_path[path], finder.find(path)
            label_map = by_path[found].name if found else None
            names = tuple(by_path[candidate].name for candidate in candidates)
            sources.append(Shard(file.name, file.path, file.size, one.subset, label_map, names))
        groups.append(ShardGroup(one.subset, sources, one.missing))
    datasets = datasets_of(groups, read)
    for path in zips:
        from tfod.check.zips import zip_dataset  # needed for zips alone

        datasets.append(zip_dataset(by_path[path], limits or ZipLimits(), len(texts) != 1))
    everything = Found(datasets)
    # One that came with a zip is meant for it.
    is_for_all = zips and len(texts) == 1
    return everything.with_label_map(read(by_path[texts[0]].name)) if is_for_all else everything


def _with_any(shard: Shard, fitting: Sequence[str] | None) -> Shard:
    if shard.label_map or shard.candidates or not fitting:
        return shard
    if len(fitting) == 1:
        return replace(shard, label_map=fitting[0])
    return replace(shard, candidates=fitting)


def _holds_shards(path: str) -> bool:
    try:
        return bool(find_shards(path))
    except ShardsNotFoundError:
        return False
    except ShardError:
        return True  # a damaged one, which is reported


def _what_else(folder: str) -> str | None:
    """What a folder without shards is, and what to type; None where its files do not say."""
    from tfod.check.zips import other_format  # for an error alone

    paths = [os.path.relpath(path, folder).replace(os.sep, "/") for path in files_below(folder)]
    found = other_format(paths)
    if found is None:
        return None
    target = "../shards" if folder == os.curdir else "shards"
    command = f"tfod convert {shlex.quote(folder)} {target}"
    if found == "Datumaro":
        command = f"datum convert -i {shlex.quote(folder)} -if datumaro -f tf_detection_api"
    return f"{folder}: holds {found}, and no shards; to make some type: {command}"


def is_zip_file(file: File) -> bool:
    """Whether a file is a zip: by its bytes, or by its name when it is damaged."""
    if file.name.lower().endswith(_ZIP_ENDING):
        return True
    try:
        with file.open() as stream:
            head = stream.read(HEADER_BYTES)
    except OSError:
        return False
    if not head.startswith(b"PK"):
        return False
    from tfod.tfrecord.storage.zip_files import is_zip_head  # needed for zips alone

    return is_zip_head(head)


def _zips_of(source: str) -> list[str]:
    if os.path.isdir(source):
        paths = sorted(files_below(source))
    else:
        paths = sorted(glob.glob(source, recursive=True))
    return [path for path in paths if path.lower().endswith(_ZIP_ENDING) and os.path.isfile(path)]


def _spool(stream: BinaryIO | ShardStream, name: str, scratch: str) -> File:
    """Copy a stream to a file: it may be a zip, and it is read more than once."""
    handle, path = tempfile.mkstemp(dir=scratch)
    with open(handle, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return File.at(path, name)
