"""What was found to be checked: where its bytes are, its shards with their label maps, and zips."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tfod.tfrecord.shard_sets.names import parse_shard_name
from tfod.tfrecord.storage.open import ShardStream, open_stream


@dataclass(frozen=True)
class Location:
    """Where the bytes of a file are: a path on this machine, or an fsspec URL."""

    name: str
    path: str
    remote: bool = False
    listed_size: int | None = None
    """Of a remote file, from the listing; the server is not asked for it again."""

    def open(self, *, hashed: bool = False, read_ahead: bool = True) -> ShardStream:
        """Open it for reading, as :func:`~tfod.tfrecord.storage.open.open_stream`."""
        return open_stream(self.path, hashed=hashed, read_ahead=read_ahead)

    def size(self) -> int | None:
        """Its length in bytes; None where the listing of a remote store has not told it.

        Raises:
            OSError: it is not there.
        """
        return self.listed_size if self.remote else os.path.getsize(self.path)

    def known_size(self) -> int | None:
        """Its length in bytes; None where it is unknown, or the file is not there."""
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
        candidates: label maps that fit equally well, when there are several.
    """

    location: Location
    subset: str
    label_map: str | None = None
    candidates: Sequence[str] = ()

    @property
    def numbered(self) -> bool:
        """Whether it is one of a numbered set."""
        name = parse_shard_name(self.location.name)
        return name is not None and name.total is not None


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
        label_map: the one for all shards that was among the sources.
        empty: folders among the sources that hold nothing to check.
        unused_label_maps: label maps among the sources that none of the shards goes with.
        name: of a dataset its folder or zip, as the user has named it.
    """

    groups: Sequence[ShardGroup]
    archives: Sequence[Location]
    label_maps: Mapping[str, bytes] = field(default_factory=dict)
    label_map: str | None = None
    empty: Sequence[tuple[str, str]] = ()
    unused_label_maps: Sequence[str] = ()
    name: str = ""

    def without(self, names: Collection[str]) -> Inventory:
        """The same without some files."""
        groups = [
            replace(group, shards=[one for one in group.shards if one.location.name not in names])
            for group in self.groups
        ]
        archives = [one for one in self.archives if one.name not in names]
        return replace(self, groups=[one for one in groups if one.shards], archives=archives)

    @property
    def shards(self) -> list[ShardSource]:
        """All shards that lie open, in order."""
        return [shard for group in self.groups for shard in group.shards]

    @property
    def locations(self) -> list[Location]:
        """All files, in order."""
        return [shard.location for shard in self.shards] + list(self.archives)
