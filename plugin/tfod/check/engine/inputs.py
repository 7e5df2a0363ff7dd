"""The inputs of a check, and one input to its result: a shard, a part of one, a zip, a file's hash.

The same here, in a pool of processes and on the workers of a Beam runner.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from tfod.check.duplicates.row_blocks import RowBlock, RowCollector, RowStore
from tfod.check.engine.result import Result
from tfod.check.findings.finding import Place
from tfod.check.records.examined import Instructions, ShardSummary
from tfod.check.records.examiner import Examiner
from tfod.check.rules.shards import compression_that_says_so, silent_compression, unreadable
from tfod.check.sources.archive import ArchiveDamageError, ArchiveLimits, read_parts
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.datasets import problems_of_sets
from tfod.check.sources.metadata import TFDS_FILES
from tfod.check.sources.search import Inventory, Location, ShardSource
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP, LabelMap
from tfod.tfrecord.compression import Compression, PeekedStream, ReadableStream
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import FRAME_BYTES, HEADER_BYTES, ShardPart, is_record_header
from tfod.tfrecord.reader import read_record_batch_stream, shard_compression
from tfod.tfrecord.shard_names import COMPRESSED_EXTENSIONS
from tfod.tfrecord.shard_parts import split_by_index, split_shard
from tfod.tfrecord.storage.remote_timeout import set_remote_timeout
from tfod.tfrecord.storage.urls import name_of

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
        label_map: name of its label map.
        part: which part; None for the whole shard.
        with_sha256: whether to hash what is read.
    """

    number: int
    shard: ShardSource
    label_map: str | None
    part: ShardPart | None = None
    with_sha256: bool = False

    @property
    def location(self) -> Location:
        """Its file."""
        return self.shard.location


@dataclass(frozen=True)
class ArchiveInput:
    """An archive with all that is in it; ``label_map`` is one that the user has named."""

    number: int
    archive: Location
    limits: ArchiveLimits
    label_map: str | None = None

    @property
    def location(self) -> Location:
        """Its file."""
        return self.archive


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
    inventory: Inventory,
    label_map: str | None,
    limits: ArchiveLimits,
    with_sha256: bool,
    unchanged: Collection[str] = (),
) -> list[Input]:
    """Everything that is to be read, in the order of the report.

    Args:
        inventory: what there is.
        label_map: name of a label map for all shards.
        limits: where the reading of archives stops.
        with_sha256: whether to hash all files; remote ones are hashed while they are read.
        unchanged: names of files that are not read. The numbers of the others stay as they are.
    """
    found: list[Input] = []
    shards = inventory.shards
    for place, shard in enumerate(shards):
        name = label_map or shard.label_map
        hashed = with_sha256 and shard.location.remote
        found.append(ShardInput(number_of(place), shard, name, with_sha256=hashed))
    for place, archive in enumerate(inventory.archives, len(shards)):
        found.append(ArchiveInput(number_of(place), archive, limits, label_map))
    locations = inventory.locations
    for place, location in enumerate(locations if with_sha256 else (), len(locations)):
        if not location.remote:
            found.append(HashInput(number_of(place), location))
    return [one for one in found if one.location.name not in unchanged]


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


class UnsoundIndexError(Exception):
    """An index has cut a shard in the wrong places.

    Attributes:
        rest: is to be examined in place of the part and of all parts behind it.
    """

    def __init__(self, rest: ShardInput) -> None:
        super().__init__(rest)
        self.rest = rest


def examine(
    one: Input,
    instructions: Instructions,
    progress: Progress,
    store: RowStore,
    archives: Archives | None = None,
) -> Result:
    """Examine an input.

    Args:
        one: a shard, a part of one, an archive, or a file to be hashed.
        instructions: the same for all inputs.
        progress: is given what was read.
        store: keeps the rows.
        archives: opens the archive, if it was opened before.

    Raises:
        UnsoundIndexError: the part of a shard is not what its index says it is.
        TfodError: there is no room for the rows.
    """
    set_remote_timeout(instructions.remote_timeout)
    if isinstance(one, ShardInput):
        return _examine_shard(one, instructions, progress, store)
    if isinstance(one, HashInput):
        digest = sha256_of(one.location)
        return Result(0, digests={one.location.name: digest} if digest else {})
    with archives or Archives(one.limits, needs_label_map=one.label_map is None) as opened:
        return _examine_archive(one, opened, instructions, progress, store)


def _examine_shard(
    one: ShardInput, instructions: Instructions, progress: Progress, store: RowStore
) -> Result:
    """Examine a shard that lies open, or a part of it."""
    shard, location, part = one.shard, one.shard.location, one.part
    result = Result(instructions.max_findings)

    def keep(block: RowBlock) -> None:
        result.blocks.append(store.keep(block))

    summary = ShardSummary(
        one.number, 0, location.name, shard.subset, one.label_map, tuple(shard.candidates)
    )
    label_map = instructions.label_maps.get(one.label_map or "")
    examiner = _examiner(summary, label_map, shard.numbered, instructions, keep)
    try:
        with location.open(part, hashed=one.with_sha256) as stream:
            remote = cast("RemoteStream", stream) if location.remote else None
            size = remote.size if remote else location.size()
            is_as_promised = _read(stream, examiner, progress, size, part)
            if remote and one.with_sha256:
                result.digests[location.name] = remote.digest()
    except OSError as error:
        examiner.report(unreadable(error.strerror or str(error)), Place(location.name))
        is_as_promised = True  # what cannot be read says nothing of its index
    if part is not None and not is_as_promised:
        stop = max(location.known_size() or 0, part.stop)
        raise UnsoundIndexError(replace(one, part=ShardPart(part.start, stop, part.first_record)))
    result.add_shard(examiner.finish())
    return result


def _examine_archive(
    one: ArchiveInput,
    archives: Archives,
    instructions: Instructions,
    progress: Progress,
    store: RowStore,
) -> Result:
    """Examine the shards of an archive in their order, and read all else to its end."""
    location, result = one.archive, Result(instructions.max_findings)
    collector = instructions.collector()
    result.findings[one.number] = collector.findings

    def keep(block: RowBlock) -> None:
        result.blocks.append(store.keep(block))

    try:
        contents = archives.open(location.path, location.name)
        archive = contents.archive
        contents.begin(collector)
        for group in contents.shard_sets:
            for _, problems in problems_of_sets(group.paths, group.missing):
                collector.add_all(problems, archive.place())
        for number, shard in enumerate(contents.shards):
            map_name, label_map = one.label_map, instructions.label_maps.get(one.label_map or "")
            if shard.label_map is not None:
                map_name = archive.place(shard.label_map).shard
                if map_name not in result.label_maps:
                    file, _ = contents.read_label_map(shard.label_map, map_name)
                    result.label_maps[map_name] = file
                label_map = result.label_maps[map_name].label_map
            summary = ShardSummary(
                one.number, number, shard.name, shard.subset, map_name, in_archive=True
            )
            examiner = _examiner(summary, label_map, shard.numbered, instructions, keep)
            try:
                with archive.open(shard.entry) as stream:
                    _read(stream, examiner, progress)
                    for _ in read_parts(stream):  # behind a damage there is a checksum, too
                        pass
            except ArchiveDamageError:
                summary.is_whole = False  # the collector has it
            result.add_shard(examiner.finish())
        for entry in archive.entries:
            if name_of(entry.path) in TFDS_FILES:
                with suppress(ArchiveDamageError):  # the collector has it
                    data = archive.read(entry, LONGEST_LABEL_MAP)
                    result.tfds_files[archive.place(entry).shard] = data
            archive.drain(entry)
    except OSError as error:
        collector.add_all(unreadable(error.strerror or str(error)), Place(location.name))
    return result


def _examiner(
    summary: ShardSummary,
    label_map: LabelMap | None,
    numbered: bool,
    instructions: Instructions,
    keep: Callable[[RowBlock], None],
) -> Examiner:
    rows = RowCollector(summary.work, summary.number, summary.subset, keep)
    place = place_of(summary.work) + summary.number
    instructions = instructions.of(summary.name)
    return Examiner(instructions, summary, label_map, rows, place=place, numbered=numbered)


def _read(
    stream: ReadableStream,
    examiner: Examiner,
    progress: Progress,
    size: int | None = None,
    part: ShardPart | None = None,
) -> bool:
    """Examine all records of a shard; return whether a part is what its index says it is."""
    source, name = stream, examiner.result.shard.name
    damages: Counter[DamageKind] = Counter()

    def damaged(damage: Damage) -> None:
        damages[damage.kind] += 1
        examiner.damaged(damage)

    if part is None:  # only plain shards are read in parts
        source = PeekedStream(stream, HEADER_BYTES)
        _note_compression(examiner, source.head, name)
    batches = read_record_batch_stream(
        source,
        name,
        size,
        part=part,
        on_damage=damaged,
        max_record_bytes=examiner.instructions.max_record_bytes,
    )
    for records in batches:
        examiner.look_at(records)
        progress(int(records.lengths.sum()) + FRAME_BYTES * len(records), len(records))
    if part is None or part.records is None:
        return True
    passed = damages[DamageKind.DATA_CRC] + damages[DamageKind.OVERSIZE]
    return damages.total() == passed and examiner.result.shard.records + passed == part.records


def _note_compression(examiner: Examiner, head: bytes, name: str) -> None:
    """Check whether a shard that begins so says in its name how it is compressed."""
    compression = shard_compression(head) if head else Compression.NONE
    if compression is not Compression.NONE:
        said = name.lower().endswith(COMPRESSED_EXTENSIONS)
        rule = compression_that_says_so if said else silent_compression
        examiner.report(rule(compression.value.upper()), Place(name))


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


@contextmanager
def hashing(files: Sequence[HashInput]) -> Iterator[Callable[[], dict[str, str]]]:
    """Hash files in a thread meanwhile; yields what waits for the result, by the files' names.

    Leaving early stops it.
    """
    stop = threading.Event()
    digests: dict[str, str] = {}
    if not files:
        yield lambda: digests
        return

    def hash_all() -> None:
        for one in files:
            digest = sha256_of(one.location, stop)
            if digest is not None:
                digests[one.location.name] = digest

    def wait() -> dict[str, str]:
        thread.join()
        return digests

    thread = threading.Thread(target=hash_all)
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        thread.join()
