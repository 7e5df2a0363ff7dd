"""What a check has to do: pieces of work that any engine may do, in any order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from tfod.check.archive import ArchiveLimits
from tfod.check.examined import Instructions
from tfod.check.rules.labels import LabelMapFile
from tfod.check.sources import Inventory, Location
from tfod.check.work import ArchiveWork, ShardWork, Work, label_map_file, number_of
from tfod.detection.label_map import load_label_map, read_label_map
from tfod.errors import LabelMapError, TfodError
from tfod.tfrecord.damage import HEADER_BYTES
from tfod.tfrecord.headers import ShardPart, split_shard
from tfod.tfrecord.index import split_by_index
from tfod.tfrecord.opening import open_shard
from tfod.tfrecord.records import is_record_header
from tfod.tfrecord.remote import is_url


@dataclass(frozen=True)
class Plan:
    """All that is to be done.

    Attributes:
        inventory: what is to be checked.
        instructions: the same for all work.
        label_map: name of a label map for all shards.
        part_bytes: large shards are shared in parts of about so many bytes.
        with_sha256: whether the sources are to be hashed.
        archive_limits: where the reading of archives stops.
        keeps_rows: whether the rows of all records are wanted at the end.
    """

    inventory: Inventory
    instructions: Instructions
    label_map: str | None = None
    part_bytes: int = 32 << 20
    with_sha256: bool = True
    archive_limits: ArchiveLimits = field(default_factory=ArchiveLimits)
    keeps_rows: bool = False

    @cached_property
    def works(self) -> list[Work]:
        """Everything that is to be done, in the order of the report; shards are whole."""
        shards = self.inventory.shards
        found: list[Work] = [
            ShardWork(
                number_of(place),
                shard,
                self.label_map or shard.label_map,
                with_sha256=self.with_sha256 and shard.location.remote,
            )
            for place, shard in enumerate(shards)
        ]
        found += [
            ArchiveWork(number_of(place), archive, self.archive_limits, self.label_map)
            for place, archive in enumerate(self.inventory.archives, len(shards))
        ]
        return found

    @cached_property
    def total_bytes(self) -> int:
        """The size of all sources, as far as it is known."""
        return sum(location.known_size() or 0 for location in self.inventory.locations)

    @property
    def to_hash(self) -> list[Location]:
        """The files that are hashed apart; remote ones are while they are read."""
        if not self.with_sha256:
            return []
        return [one for one in self.inventory.locations if not one.remote]


def label_maps_of(inventory: Inventory, named: str | None) -> dict[str, LabelMapFile]:
    """The label maps of the shards that lie open, by name.

    Args:
        inventory: what there is.
        named: file or name of one for all shards, in place of those beside them.

    Raises:
        LabelMapError: the one for all shards is not there.
    """
    if named is not None:
        names = [named]
    else:
        names = list(dict.fromkeys(one.label_map for one in inventory.shards if one.label_map))
    return {name: _label_map(name, inventory.label_maps, is_named=bool(named)) for name in names}


def _label_map(name: str, given: Mapping[str, bytes], is_named: bool) -> LabelMapFile:
    if name in given:
        return label_map_file(given[name], name)
    try:
        label_map, liberties = (load_label_map if is_named else read_label_map)(name)
    except LabelMapError as error:
        if is_named and not _is_there(name):
            raise
        return LabelMapFile(name, None, str(error))
    return LabelMapFile(name, label_map, "", liberties)


def _is_there(name: str) -> bool:
    if not is_url(name):
        return os.path.exists(name)
    try:
        with open_shard(name):
            return True
    except (OSError, TfodError):
        return False


def in_parts(work: Work, part_bytes: int) -> Iterator[Work]:
    """A piece of work, in parts when it is a large plain shard, for several workers.

    It is cut where its index says that records end, if there is one; else the headers of a file
    are walked. A remote shard that is to be hashed is read whole, since the hash needs all of it.
    """
    if isinstance(work, ShardWork) and not work.with_sha256:
        parts = _parts_of(work.shard.location, part_bytes)
        if len(parts) > 1:
            for number, part in enumerate(parts):
                yield replace(work, number=work.number + number, part=part)
            return
    yield work


def _parts_of(location: Location, part_bytes: int) -> Sequence[ShardPart]:
    if (location.known_size() or 0) <= 2 * part_bytes:
        return ()
    parts = split_by_index(location.path, part_bytes)
    if parts is not None or location.remote:
        return parts or ()
    with suppress(OSError):  # whoever examines it says so
        with location.open() as stream:
            is_plain = is_record_header(stream.read(HEADER_BYTES))
        return list(split_shard(location.path, part_bytes)) if is_plain else ()
    return ()
