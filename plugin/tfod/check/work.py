"""Work that is done apart, here or in another process: a part of a shard, or a whole archive."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tfod.check.archive import Archive, ArchiveDamageError, ArchiveLimits
from tfod.check.archive_contents import look_through, read_entry
from tfod.check.collector import Collector, Findings
from tfod.check.examine import Examiner
from tfod.check.examined import Instructions
from tfod.check.finding import Place
from tfod.check.hashing import sha256_of
from tfod.check.row_blocks import RowCollector
from tfod.check.row_store import RowStore
from tfod.check.rules.dataset import NumberedSet
from tfod.check.rules.framing import CompressedShard, Unreadable
from tfod.check.rules.labels import LabelMapFile
from tfod.check.sources import Location, ShardSource
from tfod.check.tally import ShardSummary, WorkResult
from tfod.detection.label_map import LONGEST_LABEL_MAP, decode_label_map
from tfod.errors import LabelMapError
from tfod.tfrecord.compression import Compression, PeekedStream, ReadableStream
from tfod.tfrecord.damage import HEADER_BYTES, Damage, DamageKind
from tfod.tfrecord.headers import ShardPart
from tfod.tfrecord.records import read_record_batch_stream, shard_compression
from tfod.tfrecord.remote import folder_of, is_url, name_of, set_patience
from tfod.tfrecord.remote_stream import RemoteStream
from tfod.tfrecord.shards import parse_shard_name
from tfod.tfrecord.zip_directory import Entry

Progress = Callable[[int, int], None]
"""Told of bytes and records that were read since the last time."""
_COMPRESSED_ENDINGS = (".gz", ".gzip", ".zlib", ".zz")
_FRAMING = 16  # bytes of a record beside its payload
_STEP = 1 << 18
_PART_BITS = 24
_MOST_NAMED = 100  # of missing shards; all are counted


@dataclass(frozen=True)
class ShardWork:
    """A shard, or a part of it.

    Attributes:
        number: of this piece of work (:func:`number_of`).
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
    def name(self) -> str:
        """The shard, as the report names it."""
        return self.shard.location.name


@dataclass(frozen=True)
class ArchiveWork:
    """An archive with all that is in it; ``label_map`` is one that the user has named."""

    number: int
    archive: Location
    limits: ArchiveLimits
    label_map: str | None = None

    @property
    def name(self) -> str:
        """The archive, as the report names it."""
        return self.archive.name


@dataclass(frozen=True)
class HashWork:
    """A file that is to be hashed, since nobody else reads it from its start to its end."""

    number: int
    location: Location

    @property
    def name(self) -> str:
        """The file, as the report names it."""
        return self.location.name


Work = ShardWork | ArchiveWork | HashWork


def number_of(place: int, part: int = 0) -> int:
    """Number of a piece of work: by the place of its source, then by its part."""
    return place << _PART_BITS | part


def place_of(number: int) -> int:
    """The place of its source, from the number of a piece of work."""
    return number >> _PART_BITS


def do_work(
    work: Work, instructions: Instructions, progress: Progress, store: RowStore
) -> WorkResult:
    """Examine a shard, a part of one, or an archive; rows are kept in the store."""
    set_patience(instructions.patience)
    if isinstance(work, HashWork):
        return _hash_file(work, instructions.max_findings)
    if isinstance(work, ShardWork):
        return _examine_shard(work, instructions, progress, store)
    return _examine_archive(work, instructions, progress, store)


def _examine_shard(
    work: ShardWork, instructions: Instructions, progress: Progress, store: RowStore
) -> WorkResult:
    shard, location = work.shard, work.shard.location
    result = WorkResult(work.number, Findings(instructions.max_findings))
    summary = ShardSummary(
        work.number, 0, location.name, shard.subset, work.label_map, tuple(shard.rivals)
    )
    label_map = instructions.label_maps.get(work.label_map or "")
    rows = _rows_of(summary, result, store)
    examiner = Examiner(
        instructions,
        location.name,
        label_map,
        rows,
        place=place_of(work.number),
        numbered=shard.numbered,
    )
    watch = _FramingWatch(examiner)
    try:
        with location.open(work.part, hashed=work.with_sha256) as stream:
            size = stream.size if isinstance(stream, RemoteStream) else location.size()
            _examine_stream(watch, stream, location.name, size, progress, work.part)
            if isinstance(stream, RemoteStream) and work.with_sha256:
                result.digests[location.name] = stream.digest()
    except OSError as error:
        reason = error.strerror or str(error)
        examiner.judge_at(Unreadable(reason), Place(location.name))
        watch.is_cut_off = True
    result.add(summary, examiner.finish())
    if work.part is not None and not watch.agrees_with(work.part):
        stop = max(location.known_size() or 0, work.part.stop)
        rest = ShardPart(work.part.start, stop, work.part.first_record)
        result.instead = replace(work, part=rest)
    return result


def _hash_file(work: HashWork, most: int) -> WorkResult:
    result = WorkResult(work.number, Findings(most))
    digest = sha256_of(work.location)
    if digest is not None:
        result.digests[work.location.name] = digest
    return result


def _rows_of(summary: ShardSummary, result: WorkResult, store: RowStore) -> RowCollector:
    """What takes the rows of a shard."""
    return RowCollector(
        summary.work,
        summary.number,
        summary.subset,
        lambda block: result.blocks.append(store.keep(block)),
    )


class _FramingWatch:
    """Sees whether the part of a shard is what its index says it is.

    Attributes:
        is_cut_off: whether it could not be read to its end, which says nothing of the index.
    """

    def __init__(self, examiner: Examiner) -> None:
        self.examiner = examiner
        self.is_cut_off = False
        self._is_sound = True
        self._passed = 0

    def damaged(self, damage: Damage) -> None:
        """Take note of a damage of the framing, and tell of it."""
        self.examiner.damaged(damage)
        if damage.kind in (DamageKind.DATA_CRC, DamageKind.OVERSIZE):
            self._passed += 1
        else:
            self._is_sound = False

    def agrees_with(self, part: ShardPart) -> bool:
        """Whether the records are those that were promised."""
        if part.records is None or self.is_cut_off:
            return True
        return self._is_sound and self.examiner.result.records + self._passed == part.records


def _examine_stream(
    watch: _FramingWatch,
    stream: ReadableStream,
    name: str,
    size: int | None,
    progress: Progress,
    part: ShardPart | None = None,
) -> None:
    examiner = watch.examiner
    source = stream
    if part is None:  # only plain shards are read in parts
        peeked = PeekedStream(stream, HEADER_BYTES)
        note_compression(examiner, peeked.head, name)
        source = peeked
    batches = read_record_batch_stream(
        source,
        name,
        size,
        part=part,
        on_damage=watch.damaged,
        max_record_bytes=examiner.instructions.max_record_bytes,
    )
    for records in batches:
        examiner.look_at(records)
        progress(int(records.lengths.sum()) + _FRAMING * len(records), len(records))


def note_compression(examiner: Examiner, head: bytes, name: str) -> None:
    """Judge whether a shard that begins so says in its name how it is compressed."""
    compression = shard_compression(head) if head else Compression.NONE
    if compression is not Compression.NONE:
        said = name.lower().endswith(_COMPRESSED_ENDINGS)
        examiner.judge_at(CompressedShard(compression.value, said), Place(name))


def _examine_archive(
    work: ArchiveWork, instructions: Instructions, progress: Progress, store: RowStore
) -> WorkResult:
    """Examine the shards of an archive in their order, and read everything else to its end."""
    collector = Collector(instructions.policy, instructions.max_findings)
    result = WorkResult(work.number, collector.findings)
    location = work.archive
    try:
        with Archive(location.path, location.name, collector, work.limits) as archive:
            _examine_entries(archive, collector, work, instructions, progress, result, store)
    except OSError as error:
        reason = error.strerror or str(error)
        collector.judge(Unreadable(reason), Place(work.archive.name))
    return result


def _examine_entries(
    archive: Archive,
    collector: Collector,
    work: ArchiveWork,
    instructions: Instructions,
    progress: Progress,
    result: WorkResult,
    store: RowStore,
) -> None:
    contents = look_through(archive, collector, needs_label_map=work.label_map is None)
    for group in contents.shard_sets:
        for subject in numbered_sets(group.paths, group.missing):
            collector.judge(subject, archive.place())
        for path in group.paths:
            name, map_name = archive.place(contents.shards[path]).shard, work.label_map
            label_map = instructions.label_maps.get(map_name or "")
            entry = contents.label_maps.get(path)
            if entry is not None:
                map_name = archive.place(entry).shard
                if map_name not in result.label_maps:
                    file = _read_label_map(archive, entry, map_name)
                    result.label_maps[map_name] = file
                label_map = result.label_maps[map_name].label_map
            shard_name = parse_shard_name(path)
            numbered = shard_name is not None and shard_name.total is not None
            summary = ShardSummary(
                work.number, len(result.shards), name, group.subset, map_name, in_archive=True
            )
            rows = _rows_of(summary, result, store)
            examiner = Examiner(
                instructions,
                name,
                label_map,
                rows,
                place=place_of(work.number) + summary.number,
                numbered=numbered,
            )
            try:
                with archive.open(contents.shards[path]) as stream:
                    _examine_stream(_FramingWatch(examiner), stream, name, None, progress)
                    while stream.read(_STEP):  # what lies behind a damage has a checksum too
                        pass
            except ArchiveDamageError:
                summary = replace(summary, is_whole=False)  # the collector has been told
            result.add(summary, examiner.finish())
    for entry in archive.entries:
        archive.drain(entry)


def _read_label_map(archive: Archive, entry: Entry, name: str) -> LabelMapFile:
    try:
        data = read_entry(archive, entry, LONGEST_LABEL_MAP + 1)
    except ArchiveDamageError as error:
        return LabelMapFile(name, None, str(error))
    return label_map_file(data, name)


def label_map_file(data: bytes, name: str) -> LabelMapFile:
    """A label map from bytes, which may be none; longer ones than are read need not be complete."""
    if len(data) > LONGEST_LABEL_MAP:
        return LabelMapFile(name, None, f"{name} is too long for a label map (above 4 MiB)")
    try:
        label_map, liberties = decode_label_map(data, name)
    except LabelMapError as error:
        return LabelMapFile(name, None, str(error))
    return LabelMapFile(name, label_map, "", liberties)


def numbered_sets(paths: Sequence[str], missing: Sequence[str]) -> Iterator[NumberedSet]:
    """The numbered sets that the shards of a subset make up."""
    totals: dict[str, dict[int, str]] = {}
    there: Counter[str] = Counter()
    for path in paths:
        name = parse_shard_name(path)
        if name is not None and name.total is not None:
            folder = folder_of(path) if is_url(path) else os.path.dirname(path)
            stem = os.path.join(folder, name.stem)
            totals.setdefault(stem, {}).setdefault(name.total, name_of(path))
            there[stem] += 1
    missing_of: dict[str, list[str]] = {}
    for one in missing:
        missing_of.setdefault(_stem_of(one), []).append(one)
    for stem, found in totals.items():
        names = missing_of.get(os.path.basename(stem), [])[:_MOST_NAMED]
        count = next(iter(found)) - there[stem] if len(found) == 1 else len(names)
        yield NumberedSet(stem, tuple(names), found, count if names else 0)


def _stem_of(path: str) -> str:
    name = parse_shard_name(path)
    return name.stem if name else ""
