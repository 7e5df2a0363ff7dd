"""What a check has to do: shards, parts of shards, zips and files to hash, for any engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from tfod.check.records.examined import Instructions
from tfod.check.sources.archive import ArchiveLimits
from tfod.check.sources.search import Inventory, Location, ShardSource
from tfod.tfrecord.framing import HEADER_BYTES, ShardPart, is_record_header
from tfod.tfrecord.shard_parts import split_by_index, split_shard

_PART_BITS = 24


@dataclass(frozen=True)
class ShardInput:
    """A shard, or a part of it.

    Attributes:
        number: of this input (:func:`number_of`).
        shard: the file.
        label_map: name of its label map.
        part: which part; None for the whole shard.
        with_sha256: whether to hash what is read.
    """

    number: int
    shard: ShardSource
    label_map: str | None
    part: ShardPart | None = None
    with_sha256: bool = False


@dataclass(frozen=True)
class ArchiveInput:
    """An archive with all that is in it; ``label_map`` is one that the user has named."""

    number: int
    archive: Location
    limits: ArchiveLimits
    label_map: str | None = None


@dataclass(frozen=True)
class HashInput:
    """A file that is hashed by itself, since nothing else reads it from its start to its end."""

    number: int
    location: Location


Input: TypeAlias = ShardInput | ArchiveInput | HashInput


def number_of(place: int, part: int = 0) -> int:
    """Number of an input: by the place of its source, then by its part."""
    return place << _PART_BITS | part


def place_of(number: int) -> int:
    """The place of its source, from the number of an input."""
    return number >> _PART_BITS


@dataclass(frozen=True)
class Plan:
    """All that is to be done.

    Attributes:
        inputs: in the order of the report; shards are whole.
        instructions: the same for all of them.
        part_bytes: large shards are shared in parts of about so many bytes.
        total_bytes: the size of all sources, as far as it is known.
        keeps_rows: whether the rows of all records are wanted at the end.
    """

    inputs: Sequence[Input]
    instructions: Instructions
    part_bytes: int
    total_bytes: int
    keeps_rows: bool = False


def inputs_of(
    inventory: Inventory, label_map: str | None, limits: ArchiveLimits, with_sha256: bool
) -> list[Input]:
    """Everything that is to be read, in the order of the report.

    Args:
        inventory: what there is.
        label_map: name of a label map for all shards.
        limits: where the reading of archives stops.
        with_sha256: whether to hash all files; remote ones are hashed while they are read.
    """
    found: list[Input] = []
    for shard in inventory.shards:
        name = label_map or shard.label_map
        hashed = with_sha256 and shard.location.remote
        found.append(ShardInput(number_of(len(found)), shard, name, with_sha256=hashed))
    for archive in inventory.archives:
        found.append(ArchiveInput(number_of(len(found)), archive, limits, label_map))
    for location in inventory.locations if with_sha256 else ():
        if not location.remote:
            found.append(HashInput(number_of(len(found)), location))
    return found


def in_parts(one: Input, part_bytes: int) -> Iterator[Input]:
    """An input, in parts when it is a large plain shard, for several workers.

    It is cut where its index says that records end, if there is one; else the headers of a file
    are walked. A remote shard that is to be hashed is read whole, since the hash needs all of it.
    """
    parts: Sequence[ShardPart] = ()
    if isinstance(one, ShardInput) and not one.with_sha256:
        parts = _parts_of(one.shard.location, part_bytes)
        if len(parts) > 1:
            for number, part in enumerate(parts):
                yield replace(one, number=one.number + number, part=part)
            return
    yield one


def _parts_of(location: Location, part_bytes: int) -> Sequence[ShardPart]:
    if (location.known_size() or 0) <= 2 * part_bytes:
        return ()
    parts = split_by_index(location.path, part_bytes)
    if parts is not None or location.remote:
        return parts or ()
    with suppress(OSError):  # it is reported by what examines it
        with location.open() as stream:
            is_plain = is_record_header(stream.read(HEADER_BYTES))
        return list(split_shard(location.path, part_bytes)) if is_plain else ()
    return ()
