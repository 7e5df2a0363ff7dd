"""The inputs of a check, and one input to its result: a shard, a part of one, a zip, a file's hash.

The same here, in a pool of processes and on the workers of a Beam runner.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from tfod.check.duplicates.row_blocks import RowStore
from tfod.check.findings.finding import Place
from tfod.check.records.examiner import Examiner
from tfod.check.records.instructions import Instructions
from tfod.check.records.result import Result, ShardSummary
from tfod.check.rules.shards import compression_that_says_so, silent_compression, unreadable
from tfod.check.sources.archive import ArchiveDamageError, read_parts
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.datasets import problems_of_sets
from tfod.check.sources.inventory import Inventory, Location, ShardSource
from tfod.detection.labels.label_map import LabelMap
from tfod.tfrecord.compression import Compression, PeekedStream, ReadableStream
from tfod.tfrecord.framing import (
    FRAME_BYTES,
    HEADER_BYTES,
    ShardPart,
    is_record_header,
    split_shard,
)
from tfod.tfrecord.reader import read_record_batch_stream, shard_compression
from tfod.tfrecord.shard_sets.names import COMPRESSED_EXTENSIONS
from tfod.tfrecord.storage.remote_timeout import set_remote_timeout

if TYPE_CHECKING:
    from tfod.tfrecord.storage.remote_stream import RemoteStream

Progress = Callable[[int, int], None]
"""Is given the bytes and records that were read since the last time."""
_HASH_STEP = 1 << 20
_PART_BITS = 24


@dataclass(frozen=True)
class ShardInput:
    """A shard, or a part of it.

    Attributes:
        number: of this input (:func:`number_of`).
        shard: the file.
        part: which part; None for the whole shard.
    """

    number: int
    shard: ShardSource
    part: ShardPart | None = None

    @property
    def location(self) -> Location:
        """Its file."""
        return self.shard.location


@dataclass(frozen=True)
class ArchiveInput:
    """An archive with all that is in it."""

    number: int
    location: Location


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


def inputs_of(inventory: Inventory, with_sha256: bool) -> list[Input]:
    """Everything that is to be read, in the order of the report; shards are whole.

    Remote files are hashed while they are read.
    """
    shards, locations = inventory.shards, inventory.locations
    found: list[Input] = [ShardInput(number_of(at), one) for at, one in enumerate(shards)]
    for place, archive in enumerate(inventory.archives, len(shards)):
        found.append(ArchiveInput(number_of(place), archive))
    for place, location in enumerate(locations if with_sha256 else (), len(locations)):
        if not location.remote:
            found.append(HashInput(number_of(place), location))
    return found


def total_bytes(inputs: Iterable[Input]) -> int:
    """The size of all sources, as far as it is known."""
    return sum(one.location.known_size() or 0 for one in inputs if not isinstance(one, HashInput))


def in_parts(one: Input, instructions: Instructions) -> Iterator[Input]:
    """An input, in parts when it is a large plain shard, for several workers.

    It is cut where its headers say that records end; a remote one is read whole.
    """
    if isinstance(one, ShardInput) and not one.location.remote:
        parts = _parts_of(one.location, instructions.part_bytes)
        if len(parts) > 1:
            for number, part in enumerate(parts):
                yield replace(one, number=one.number + number, part=part)
            return
    yield one


def _parts_of(location: Location, part_bytes: int) -> Sequence[ShardPart]:
    if (location.known_size() or 0) <= 2 * part_bytes:
        return ()
    with suppress(OSError):  # it is reported by what examines it
        with location.open() as stream:
            is_plain = is_record_header(stream.read(HEADER_BYTES))
        return list(split_shard(location.path, part_bytes)) if is_plain else ()
    return ()


def examine(
    one: Input,
    instructions: Instructions,
    progress: Progress,
    store: RowStore,
    archives: Archives | None = None,
) -> Result:
    """Examine an input.

    Raises:
        TfodError: there is no room for the rows.
    """
    set_remote_timeout(instructions.remote_timeout)
    if isinstance(one, ShardInput):
        return _examine_shard(one, instructions, progress, store)
    if isinstance(one, HashInput):
        digest = sha256_of(one.location)
        return Result(0, digests={one.location.name: digest} if digest else {})
    needs_label_map = instructions.label_map is None
    with archives or Archives(instructions.archive_limits, needs_label_map=needs_label_map) as some:
        return _examine_archive(one, some, instructions, progress, store)


def _examine_shard(
    one: ShardInput, instructions: Instructions, progress: Progress, store: RowStore
) -> Result:
    shard, location, part = one.shard, one.location, one.part
    map_name = instructions.label_map or shard.label_map
    summary = ShardSummary(
        one.number, 0, location.name, shard.subset, map_name, tuple(shard.candidates)
    )
    label_map = instructions.label_maps.get(map_name or "")
    examiner = _examiner(summary, label_map, shard.numbered, instructions, store)
    is_hashed = location.remote and instructions.hash_sources
    try:
        with location.open(hashed=is_hashed) as stream:
            if part is not None:
                stream.seek(part.start)
            remote = cast("RemoteStream", stream) if location.remote else None
            size = remote.size if remote else location.size()
            _read(stream, examiner, progress, size, part)
            if remote and is_hashed:
                examiner.result.digests[location.name] = remote.digest()
    except OSError as error:
        examiner.report(unreadable(error.strerror or str(error)), Place(location.name))
    return examiner.finish()


def _examine_archive(
    one: ArchiveInput,
    archives: Archives,
    instructions: Instructions,
    progress: Progress,
    store: RowStore,
) -> Result:
    """Examine the shards of an archive in their order, and read all else to its end."""
    location = one.location
    collector = instructions.collector()
    result = Result(instructions.max_findings, {one.number: collector.findings})
    try:
        contents = archives.open(location.path, location.name)
        archive = contents.archive
        contents.begin(collector)
        for group in contents.shard_sets:
            for _, problems in problems_of_sets(group.paths, group.missing):
                collector.add_all(problems, archive.place())
        for number, shard in enumerate(contents.shards):
            map_name = instructions.label_map
            label_map = instructions.label_maps.get(map_name or "")
            if shard.label_map is not None:
                map_name = archive.place(shard.label_map).shard
                if map_name not in result.label_maps:
                    file, _ = contents.read_label_map(shard.label_map, map_name)
                    result.label_maps[map_name] = file
                label_map = result.label_maps[map_name].label_map
            summary = ShardSummary(
                one.number, number, shard.name, shard.subset, map_name, in_archive=True
            )
            examiner = _examiner(summary, label_map, shard.numbered, instructions, store)
            try:
                with archive.open(shard.entry) as stream:
                    _read(stream, examiner, progress)
                    for _ in read_parts(stream):  # behind a damage there is a checksum, too
                        pass
            except ArchiveDamageError:
                summary.is_whole = False  # the collector has it
            result += examiner.finish()
        for entry in archive.entries:
            archive.drain(entry)
    except OSError as error:
        collector.add_all(unreadable(error.strerror or str(error)), Place(location.name))
    return result


def _examiner(
    summary: ShardSummary,
    label_map: LabelMap | None,
    numbered: bool,
    instructions: Instructions,
    store: RowStore,
) -> Examiner:
    place = place_of(summary.work) + summary.number
    return Examiner(instructions, summary, label_map, store, place=place, numbered=numbered)


def _read(
    stream: ReadableStream,
    examiner: Examiner,
    progress: Progress,
    size: int | None = None,
    part: ShardPart | None = None,
) -> None:
    """Examine all records of a shard."""
    source, name = stream, examiner.shard.name
    if part is None:  # only plain shards are read in parts
        source = PeekedStream(stream, HEADER_BYTES)
        compression = shard_compression(source.head) if source.head else Compression.NONE
        if compression is not Compression.NONE:
            said = name.lower().endswith(COMPRESSED_EXTENSIONS)
            rule = compression_that_says_so if said else silent_compression
            examiner.report(rule(compression.value.upper()), Place(name))
    batches = read_record_batch_stream(
        source,
        name,
        size,
        part=part,
        on_damage=examiner.damaged,
        max_record_bytes=examiner.instructions.max_record_bytes,
    )
    for records in batches:
        examiner.look_at(records)
        progress(int(records.lengths.sum()) + FRAME_BYTES * len(records), len(records))


def sha256_of(location: Location, stop: threading.Event | None = None) -> str | None:
    """SHA-256 of a file; None where it cannot be read, which its examination reports."""
    digest = hashlib.sha256()
    try:
        with location.open() as stream:
            while not (stop and stop.is_set()) and (data := stream.read(_HASH_STEP)):
                digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()
