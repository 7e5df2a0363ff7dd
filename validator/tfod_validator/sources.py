"""What is to be checked: shards, sets and globs of them, folders, zips, standard input, URLs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import FileIO
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from tfod.errors import ShardsNotFoundError, TfodError
from tfod.headers import ShardPart
from tfod.label_map import LONGEST_LABEL_MAP
from tfod.remote import folder_of, is_url
from tfod.remote_shards import look_for_shards
from tfod.shards import (
    LabelMapFinder,
    ShardSet,
    find_shards,
    group_shards,
    missing_of_sets,
    parse_shard_name,
)

if TYPE_CHECKING:
    from tfod.remote_source import Head
    from tfod.remote_stream import RemoteStream

STANDARD_INPUT = "-"
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_ZIP_ENDING = ".zip"
_LABEL_MAP_ENDING = ".pbtxt"
_FOLDER = os.path.abspath(os.sep)
ShardStream: TypeAlias = "FileIO | RemoteStream"


@dataclass(frozen=True)
class Location:
    """Where the bytes of a file are: a path on this machine, or an fsspec URL."""

    name: str
    path: str
    remote: bool = False
    listed_size: int | None = None
    """Of a remote file, as the listing has told it; nobody asks for it again."""
    _heads: list[Head] = field(default_factory=list, compare=False, repr=False)

    @contextmanager
    def look(self) -> Iterator[ShardStream]:
        """Open it to read some of its first bytes, which a remote file will not be asked for again.

        Raises:
            OSError: it cannot be opened.
        """
        if not self.remote:
            with self.open() as file:
                yield file
            return
        from tfod.remote_stream import RemoteStream  # needed for URLs alone

        with RemoteStream(self.path, is_look=True, head=self._head) as stream:
            try:
                yield stream
            finally:
                self._heads[:] = filter(None, [stream.head() or self._head])

    @property
    def _head(self) -> Head | None:
        return self._heads[0] if self._heads else None

    def open(self, part: ShardPart | None = None, *, hashed: bool = False) -> ShardStream:
        """Open it for reading.

        Args:
            part: where to begin; nothing behind it is fetched from a remote store.
            hashed: whether a remote stream is to tell its digest.

        Raises:
            OSError: it cannot be opened.
        """
        if self.remote:
            from tfod.remote_stream import RemoteStream  # needed for URLs alone

            stream = RemoteStream(self.path, hashed=hashed, head=self._head)
            if part is not None:
                stream.narrow(part.start, part.stop)
            return stream
        file = open(self.path, "rb", buffering=0)
        if part is not None:
            file.seek(part.start)
        return file

    def size(self) -> int | None:
        """Its length in bytes; None where the listing of a remote store has not told it.

        Raises:
            OSError: it is not there.
        """
        return self.listed_size if self.remote else os.path.getsize(self.path)

    def known_size(self) -> int | None:
        """Its length in bytes; None where nobody knows, or it is not there."""
        with suppress(OSError):
            return self.size()
        return None


@dataclass(frozen=True)
class ShardSource:
    """One shard to be checked.

    Attributes:
        location: its file.
        subset: the subset it belongs to.
        label_map: path of the label map that goes with it; None where there is none.
        rivals: label maps that fit equally well, when there are several.
        numbered: whether it is one of a numbered set.
    """

    location: Location
    subset: str
    label_map: str | None = None
    rivals: Sequence[str] = ()
    numbered: bool = False


@dataclass(frozen=True)
class ShardGroup:
    """Shards of one subset, and the names that their numbering promises in vain."""

    subset: str
    shards: Sequence[ShardSource]
    missing: Sequence[str]


@dataclass(frozen=True)
class Inventory:
    """All that is to be checked, in the order it was named.

    Attributes:
        groups: shards that lie open.
        archives: zips.
        label_maps: content of label maps that are no files of these names, by name.
    """

    groups: Sequence[ShardGroup]
    archives: Sequence[Location]
    label_maps: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def shards(self) -> list[ShardSource]:
        """All shards that lie open, in order."""
        return [shard for group in self.groups for shard in group.shards]

    @property
    def locations(self) -> list[Location]:
        """All files, in order."""
        return [shard.location for shard in self.shards] + list(self.archives)


@contextmanager
def take_inventory(sources: Sequence[str], has_label_map: bool = False) -> Iterator[Inventory]:
    """Find out what sources mean. What has to be held meanwhile is given back at the end.

    Args:
        sources: paths, globs, URLs, or ``-``.
        has_label_map: whether there is one for all shards: then no store is asked for others.

    Raises:
        ShardsNotFoundError: a source means nothing.
        TfodError: a source cannot be reached.
    """
    groups: list[ShardGroup] = []
    archives: list[Location] = []
    finder = LabelMapFinder(_none_in) if has_label_map else LabelMapFinder()
    with tempfile.TemporaryDirectory(prefix="tfod-check-") as scratch:
        for source in dict.fromkeys(sources):
            if source == STANDARD_INPUT:
                if sys.stdin is None:
                    raise TfodError("standard input is closed; name a file")
                location = _spool(sys.stdin.buffer, "<stdin>", scratch)
                _add_file(location, groups, archives, finder)
            elif is_url(source):
                _add_remote(source, scratch, groups, archives, finder)
            elif os.path.isfile(source):
                _add_file(Location(source, source), groups, archives, finder)
            else:
                _add_found(source, groups, archives)
        yield Inventory(_join_sets(_once(groups)), _once_each(archives))


def inventory_of(locations: Sequence[Location]) -> Inventory:
    """What files are that were handed in under names which are no paths, as uploads are.

    The rules for names are those of files in one folder.

    Raises:
        ShardsNotFoundError: there is nothing to check among them.
        OSError: one of them cannot be read.
    """
    by_path = {os.path.join(_FOLDER, one.name): one for one in locations}
    texts = sorted(path for path in by_path if path.lower().endswith(_LABEL_MAP_ENDING))
    zips = [path for path, one in by_path.items() if path not in texts and is_archive(one)]
    others = {*texts, *zips}
    shards = [path for path in by_path if path not in others]
    if not shards and not zips:
        raise ShardsNotFoundError("there is neither a shard nor a zip among the files")
    groups = []
    finder = LabelMapFinder(lambda _: texts)
    for one in group_shards(shards, _FOLDER):
        sources = []
        for path in one.paths:
            found, rivals = finder.find(path)
            name = parse_shard_name(path)
            sources.append(
                ShardSource(
                    location=by_path[path],
                    subset=one.subset,
                    label_map=by_path[found].name if found else None,
                    rivals=tuple(by_path[rival].name for rival in rivals),
                    numbered=name is not None and name.total is not None,
                )
            )
        groups.append(ShardGroup(one.subset, sources, one.missing))
    label_maps = {}
    for path in texts:
        with by_path[path].open() as stream:
            label_maps[by_path[path].name] = stream.read(LONGEST_LABEL_MAP + 1)
    return Inventory(groups, [by_path[path] for path in zips], label_maps)


def is_archive(location: Location) -> bool:
    """Whether a file is a zip by its bytes, or by its name, and no shard by its name."""
    return _is_zip(location) and parse_shard_name(location.name) is None


def _once(groups: Sequence[ShardGroup]) -> list[ShardGroup]:
    """Every shard once, however many sources and links mean it."""
    seen: set[str] = set()
    found = []
    for group in groups:
        shards = []
        for shard in group.shards:
            path = shard.location.path
            real = path if shard.location.remote else os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                shards.append(shard)
        if shards:
            found.append(replace(group, shards=shards))
    return found


def _once_each(archives: Sequence[Location]) -> list[Location]:
    return list({os.path.realpath(one.path): one for one in reversed(archives)}.values())[::-1]


def _add_file(
    location: Location,
    groups: list[ShardGroup],
    archives: list[Location],
    finder: LabelMapFinder,
) -> None:
    """One file that was named: a zip by its bytes, or by its name, or else a shard."""
    if is_archive(location):
        archives.append(location)
        return
    name = parse_shard_name(location.name)
    subset = name.stem if name else os.path.splitext(os.path.basename(location.name))[0]
    local = not location.remote and location.name == location.path
    found, rivals = finder.find(location.path) if local else (None, [])
    numbered = name is not None and name.total is not None
    shard = ShardSource(location, subset, found, tuple(rivals), numbered)
    groups.append(ShardGroup(subset, [shard], ()))


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
            missing = missing_of_sets([shard.location.path for shard in shards])
        found.append(ShardGroup(parts[0].subset, shards, missing))
    return found


def _add_found(source: str, groups: list[ShardGroup], archives: list[Location]) -> None:
    """A folder or a glob. The zips of a folder are checked when it has no shards."""
    zips = _zips_of(source)
    try:
        sets = find_shards(source)
    except ShardsNotFoundError:
        if not zips:
            raise
        sets = []
    if not sets or not os.path.isdir(source):
        archives.extend(Location(path, path) for path in zips)
    groups.extend(_groups_of(sets, lambda path: Location(path, path), zips))


def _groups_of(
    sets: Sequence[ShardSet],
    locate: Callable[[str], Location],
    zips: Sequence[str] = (),
    finder: LabelMapFinder | None = None,
) -> Iterator[ShardGroup]:
    """Shards that were found, each with the label map beside it; zips are none."""
    finder = finder or LabelMapFinder()
    for one in sets:
        shards = []
        for path in one.paths:
            if path in zips:
                continue
            name = parse_shard_name(path)
            found, rivals = finder.find(path)
            numbered = name is not None and name.total is not None
            shards.append(ShardSource(locate(path), one.subset, found, tuple(rivals), numbered))
        yield ShardGroup(one.subset, shards, one.missing)


def _zips_of(source: str) -> list[str]:
    if os.path.isdir(source):
        paths = [os.path.join(source, name) for name in sorted(os.listdir(source))]
    else:
        import glob

        paths = sorted(glob.glob(source, recursive=True))
    return [path for path in paths if path.lower().endswith(_ZIP_ENDING) and os.path.isfile(path)]


def _add_remote(
    source: str,
    scratch: str,
    groups: list[ShardGroup],
    archives: list[Location],
    finder: LabelMapFinder,
) -> None:
    """A URL of a file, a glob or a folder. Zips are copied here: they are not read in order."""
    from tfod.remote_stream import RemoteStream  # needed for URLs alone

    found = look_for_shards(source)
    sets = found.sets
    if list(found.sizes) == [source]:  # one file that was named promises no others
        sets = [replace(one, missing=()) for one in sets]
    groups.extend(
        _groups_of(
            sets,
            lambda url: Location(url, url, remote=True, listed_size=found.sizes[url]),
            finder=finder,
        )
    )
    for url in found.zips:
        try:
            with RemoteStream(url) as stream:
                archives.append(_spool(stream, url, scratch))
        except OSError as error:
            raise TfodError(f"{url}: cannot be read: {error.strerror}") from None


def _none_in(_: str) -> list[str]:
    return []


def _spool(stream: BinaryIO | RemoteStream, name: str, scratch: str) -> Location:
    """Copy a stream to a file: it may be a zip, and it is read more than once."""
    handle, path = tempfile.mkstemp(dir=scratch)
    with open(handle, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return Location(name, path)


def _is_zip(location: Location) -> bool:
    if location.name.lower().endswith(_ZIP_ENDING):
        return True
    try:
        with location.open() as stream:
            return stream.read(4) in _ZIP_MAGIC
    except OSError:
        return False
