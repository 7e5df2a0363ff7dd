"""What is to be checked: shards, sets and globs of them, folders, zips, standard input, URLs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO

from tfod.check.sources.inventory import Inventory, Location, ShardGroup, ShardSource
from tfod.check.sources.label_maps import LabelMapSearch, shards_beside
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP
from tfod.errors import ShardError, ShardsNotFoundError, TfodError
from tfod.tfrecord.label_files import LabelMapFinder, is_named_label_map, may_be_label_map
from tfod.tfrecord.shard_sets.names import missing_of_sets, parse_shard_name
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

STANDARD_INPUT = "-"
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_ZIP_ENDING = ".zip"
_FOLDER = os.path.abspath(os.sep)


@contextmanager
def take_inventory(sources: Sequence[str], has_label_map: bool = False) -> Iterator[Inventory]:
    """Find out what sources mean. What has to be held meanwhile is given back at the end.

    Args:
        sources: paths, globs, URLs, or ``-``; a ``.pbtxt`` among them is a label map. One that goes
            with none of the others stands for the shards beside it.
        has_label_map: whether there is one for all shards: then none is looked for.

    Raises:
        ShardsNotFoundError: a source means nothing, and no other is a folder with shards.
        TfodError: a source cannot be reached.
    """
    named: list[str] = []
    others: list[str] = []
    for one in dict.fromkeys(sources):
        (named if may_be_label_map(one) else others).append(one)
    if not others and not any(map(is_named_label_map, named)):
        raise ShardsNotFoundError(f"{named[0]}: name the shards that it goes with, too")
    with tempfile.TemporaryDirectory(prefix="tfod-check-") as scratch:
        search = _Search(named, has_label_map, scratch)
        for source in others:
            search.add(source)
        if search.empty and not search.groups and not search.archives:
            raise ShardsNotFoundError(search.empty[0][1])
        for one in [] if has_label_map else search.unused():
            if folder_of(one) not in {folder_of(shard.location.path) for shard in search.shards()}:
                for shard in shards_beside(one):
                    search.add(shard)
        archives = {_real_path(one): one for one in reversed(search.archives)}
        yield Inventory(
            _join_sets(_once(search.groups)),
            list(archives.values())[::-1],
            label_map=search.label_map_for_all(),
            empty=search.empty,
            unused_label_maps=search.unused(),
        )


class _Search:
    """What the sources mean that were looked at so far."""

    def __init__(self, named: Sequence[str], has_label_map: bool, scratch: str) -> None:
        self.groups: list[ShardGroup] = []
        self.archives: list[Location] = []
        self.empty: list[tuple[str, str]] = []
        self._named = named
        self._label_maps = LabelMapSearch(named, has_label_map)
        self._scratch = scratch

    def shards(self) -> list[ShardSource]:
        return [shard for group in self.groups for shard in group.shards]

    def label_map_for_all(self) -> str | None:
        """The label map of all that was found, if it was named."""
        for_all = self._label_maps.for_all
        is_for_all = {shard.label_map for shard in self.shards()} <= {for_all}
        return for_all if is_for_all and (self.groups or self.archives) else None

    def unused(self) -> list[str]:
        """The named label maps that are not used; another ``.pbtxt`` may be any protobuf text."""
        used = [*(shard.label_map for shard in self.shards()), self.label_map_for_all()]
        known = {absolute(one) for one in used if one}
        return [
            one for one in self._named if absolute(one) not in known and is_named_label_map(one)
        ]

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
            self._add_file(Location(source, source))
        else:
            try:
                self._add_found(source)
            except ShardsNotFoundError as error:
                if not os.path.isdir(source):
                    raise
                self.empty.append((source, _what_else(source) or str(error)))

    def _add_file(self, location: Location) -> None:
        """One file that was named: a zip by its bytes, or by its name, or else a shard."""
        if is_archive(location):
            self.archives.append(location)
            return
        name = parse_shard_name(location.name)
        subset = name.stem if name else os.path.splitext(os.path.basename(location.name))[0]
        local = not location.remote and location.name == location.path
        found, candidates = self._label_maps.of(location.path) if local else (None, ())
        shard = ShardSource(location, subset, found or self._label_maps.for_all, candidates)
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
        self.archives.extend(Location(path, path) for path in zips)
        groups = self._groups_of(sets, lambda path: Location(path, path), zips)
        shards = [shard for group in groups for shard in group.shards]
        if os.path.isdir(source) and not all(one.label_map or one.candidates for one in shards):
            found = self._label_maps.within(source, [one.location.path for one in shards])
            groups = [
                replace(group, shards=[_with_any(one, found) for one in group.shards])
                for group in groups
            ]
        self.groups += groups

    def _groups_of(
        self,
        sets: Sequence[ShardSet],
        locate: Callable[[str], Location],
        zips: Sequence[str] = (),
    ) -> list[ShardGroup]:
        """Shards that were found, each with the label map beside it; zips are none."""
        return [
            ShardGroup(
                one.subset,
                [
                    ShardSource(locate(path), one.subset, *self._label_maps.of(path))
                    for path in one.paths
                    if path not in zips
                ],
                one.missing,
            )
            for one in sets
        ]

    def _add_remote(self, source: str) -> None:
        """A URL of a file, a glob or a folder. Zips are copied here: they are not read in order."""
        found = find_remote_shards(source)
        sets = found.sets
        if list(found.files) == [source]:  # one file that was named promises no others
            sets = [replace(one, missing=()) for one in sets]
        self.groups.extend(
            self._groups_of(
                sets,
                lambda url: Location(url, url, True, found.files[url].size),
            )
        )
        for url in found.zips:
            try:
                with open_stream(url) as stream:
                    self.archives.append(_spool(stream, url, self._scratch))
            except OSError as error:
                raise TfodError(f"{url}: cannot be read: {error.strerror}") from None


def _with_any(shard: ShardSource, found: Mapping[str, tuple[str, ...]]) -> ShardSource:
    fitting = found.get(shard.location.path, ())
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
    from tfod.check.sources.archive_contents import other_format  # for an error alone

    paths = [os.path.relpath(path, folder).replace(os.sep, "/") for path in files_below(folder)]
    found = other_format(paths)
    if found is None:
        return None
    command = f"tfod convert {shlex.quote(folder)} shards"
    if found == "Datumaro":
        command = f"datum convert -i {shlex.quote(folder)} -if datumaro -f tf_detection_api"
    return f"{folder}: holds {found}, and no shards; to make some type: {command}"


def inventory_of(locations: Sequence[Location]) -> Inventory:
    """What files are that were handed in under names which are no paths, as uploads are.

    The rules for names are those of files in one folder.

    Raises:
        ShardsNotFoundError: there is nothing to check among them.
        OSError: one of them cannot be read.
    """
    by_path = {os.path.join(_FOLDER, one.name): one for one in locations}
    texts = sorted(path for path in by_path if may_be_label_map(path))
    zips = [path for path, one in by_path.items() if path not in texts and is_archive(one)]
    others = {*texts, *zips}
    shards = [path for path in by_path if path not in others]
    if not shards and not zips:
        what = " but label maps; add the shards that they go with" if texts else ""
        raise ShardsNotFoundError(f"there is neither a shard nor a zip among the files{what}")
    groups = []
    finder = LabelMapFinder(lambda _: texts)
    for one in group_shards(shards, _FOLDER):
        sources = []
        for path in one.paths:
            found, candidates = finder.find(path)
            label_map = by_path[found].name if found else None
            names = tuple(by_path[candidate].name for candidate in candidates)
            sources.append(ShardSource(by_path[path], one.subset, label_map, names))
        groups.append(ShardGroup(one.subset, sources, one.missing))
    label_maps = {}
    for path in texts:
        with by_path[path].open() as stream:
            label_maps[by_path[path].name] = stream.read(LONGEST_LABEL_MAP + 1)
    return Inventory(
        groups,
        [by_path[path] for path in zips],
        label_maps,
        # One that came with a zip is meant for it.
        label_map=by_path[texts[0]].name if zips and len(texts) == 1 else None,
    )


def is_archive(location: Location) -> bool:
    """Whether a file is a zip by its name or its bytes, and no shard by its name."""
    if parse_shard_name(location.name) is not None:
        return False
    if location.name.lower().endswith(_ZIP_ENDING):
        return True
    try:
        with location.open() as stream:
            return stream.read(4) in _ZIP_MAGIC
    except OSError:
        return False


def _once(groups: Sequence[ShardGroup]) -> list[ShardGroup]:
    """Every shard once, however many sources and links mean it."""
    seen: set[str] = set()
    found = []
    for group in groups:
        shards = []
        for shard in group.shards:
            path = _real_path(shard.location)
            if path not in seen:
                seen.add(path)
                shards.append(shard)
        if shards:
            found.append(replace(group, shards=shards))
    return found


def _real_path(location: Location) -> str:
    return location.path if location.remote else os.path.realpath(location.path)


def _join_sets(groups: Sequence[ShardGroup]) -> list[ShardGroup]:
    """Bring together what a shell has taken apart: the shards of a set, named one by one."""
    joined: dict[tuple[str, str], list[ShardGroup]] = {}
    for number, group in enumerate(groups):
        is_part = len(group.shards) == 1 and group.shards[0].numbered and not group.missing
        folder = folder_of(group.shards[0].location.path)
        joined.setdefault((folder, group.subset) if is_part else ("", str(number)), []).append(
            group
        )
    found = []
    for parts in joined.values():
        shards = [shard for part in parts for shard in part.shards]
        missing = list(parts[0].missing)
        if len(parts) > 1:
            missing = _absent(missing_of_sets([shard.location.path for shard in shards]), shards)
        found.append(ShardGroup(parts[0].subset, shards, missing))
    return found


def _absent(names: Sequence[str], shards: Sequence[ShardSource]) -> list[str]:
    """Those of the names that are not there either: it may be that not all were to be checked."""
    if shards[0].location.remote:
        return list(names)
    folder = os.path.dirname(shards[0].location.path)
    return [name for name in names if not os.path.exists(os.path.join(folder, name))]


def _zips_of(source: str) -> list[str]:
    if os.path.isdir(source):
        paths = sorted(files_below(source))
    else:
        import glob

        paths = sorted(glob.glob(source, recursive=True))
    return [path for path in paths if path.lower().endswith(_ZIP_ENDING) and os.path.isfile(path)]


def _spool(stream: BinaryIO | ShardStream, name: str, scratch: str) -> Location:
    """Copy a stream to a file: it may be a zip, and it is read more than once."""
    handle, path = tempfile.mkstemp(dir=scratch)
    with open(handle, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return Location(name, path)
