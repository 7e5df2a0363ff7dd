"""Work that is done apart, here or in another process: a part of a shard, or a whole archive."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from tfod.compression import Compression, PeekedStream
from tfod.damage import HEADER_BYTES
from tfod.errors import LabelMapError
from tfod.headers import ShardPart
from tfod.label_map import LabelMap, decode_label_map
from tfod.records import (
    Record,
    read_record_stream,
    read_records,
    shard_compression,
)
from tfod.shards import parse_shard_name
from tfod.zip_directory import Entry

from tfod_validator.archive import Archive, ArchiveDamageError, ArchiveLimits
from tfod_validator.archive_contents import LONGEST_LABEL_MAP, look_through, read_entry
from tfod_validator.collector import Collector, Findings
from tfod_validator.examine import Examiner
from tfod_validator.examined import Examined, Instructions
from tfod_validator.finding import Place
from tfod_validator.rules.dataset import NumberedSet
from tfod_validator.rules.framing import CompressedShard, Unreadable
from tfod_validator.rules.labels import LabelMapFile
from tfod_validator.sources import Location, ShardSource

Progress = Callable[[int, int], None]
"""Told of bytes and records that were read since the last time."""
_COMPRESSED_ENDINGS = (".gz", ".gzip", ".zlib", ".zz")
_REPORT_EVERY = 256
_REPORT_BYTES = 1 << 20
_STEP = 1 << 18


@dataclass(frozen=True)
class ShardWork:
    """A shard, or a part of it."""

    shard: ShardSource
    label_map: LabelMap | None
    label_map_name: str | None
    part: ShardPart | None = None


@dataclass(frozen=True)
class ArchiveWork:
    """An archive with all that is in it; ``label_map`` is one that the user has named."""

    archive: Location
    limits: ArchiveLimits
    label_map: LabelMap | None = None
    label_map_name: str | None = None


Work = ShardWork | ArchiveWork


@dataclass
class ShardResult:
    """What is known of a shard.

    Attributes:
        examined: what its records have shown.
        subset: the subset it belongs to.
        label_map: name of the label map it was judged by.
        rivals: label maps that fit equally well, when there are several.
        in_archive: whether it came out of an archive.
        is_whole: whether the archive's entry could be read to its end.
    """

    examined: Examined
    subset: str
    label_map: str | None
    rivals: Sequence[str] = ()
    in_archive: bool = False
    is_whole: bool = True


@dataclass
class WorkResult:
    """What work has come to.

    Attributes:
        shards: in order; of a part of a shard, that shard.
        label_maps: label maps of an archive, by name.
        findings: what concerns no shard.
    """

    shards: list[ShardResult] = field(default_factory=list)
    label_maps: dict[str, LabelMapFile] = field(default_factory=dict)
    findings: list[Findings] = field(default_factory=list)


def do_work(work: Work, instructions: Instructions, progress: Progress) -> WorkResult:
    """Examine a shard, a part of one, or an archive."""
    if isinstance(work, ShardWork):
        return _examine_shard(work, instructions, progress)
    return _examine_archive(work, instructions, progress)


def _examine_shard(work: ShardWork, instructions: Instructions, progress: Progress) -> WorkResult:
    shard, location = work.shard, work.shard.location
    examiner = Examiner(instructions, location.name, work.label_map, numbered=shard.numbered)
    try:
        if location.remote or location.path != location.name:
            with location.open() as stream:
                _examine_stream(examiner, stream, location.name, location.size(), progress)
        else:
            if work.part is None or work.part.start == 0:
                with location.open() as stream:
                    note_compression(examiner, stream.read(HEADER_BYTES), location.name)
            records = read_records(
                location.path,
                part=work.part,
                on_damage=examiner.damaged,
                max_record_bytes=instructions.max_record_bytes,
            )
            _examine_records(examiner, records, progress)
    except Exception as error:
        # Stores raise what they like; of a file on this machine only the system's errors are meant.
        if not location.remote and not isinstance(error, OSError):
            raise
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        examiner.judge_at(Unreadable(reason), Place(location.name))
    return WorkResult(
        [ShardResult(examiner.finish(), shard.subset, work.label_map_name, shard.rivals)]
    )


def _examine_stream(
    examiner: Examiner,
    stream: BinaryIO,
    name: str,
    size: int | None,
    progress: Progress,
) -> None:
    limit = examiner.instructions.max_record_bytes
    peeked = PeekedStream(stream, HEADER_BYTES)
    note_compression(examiner, peeked.head, name)
    records = read_record_stream(
        peeked,
        name,
        size,
        on_damage=examiner.damaged,
        max_record_bytes=limit,
    )
    _examine_records(examiner, records, progress)


def _examine_records(examiner: Examiner, records: Iterator[Record], progress: Progress) -> None:
    told = end = None
    untold = 0
    for record in records:
        examiner.look_at(record)
        end = record.offset + record.length
        untold += 1
        if told is None:
            told = record.offset
        if untold == _REPORT_EVERY or end - told > _REPORT_BYTES:
            progress(end - told, untold)
            told, untold = end, 0
    if end is not None and told is not None:
        progress(end - told, untold)


def note_compression(examiner: Examiner, head: bytes, name: str) -> None:
    """Judge whether a shard that begins so says in its name how it is compressed."""
    compression = shard_compression(head) if head else Compression.NONE
    if compression is not Compression.NONE:
        said = name.lower().endswith(_COMPRESSED_ENDINGS)
        examiner.judge_at(CompressedShard(compression.value, said), Place(name))


def _examine_archive(
    work: ArchiveWork, instructions: Instructions, progress: Progress
) -> WorkResult:
    """Examine the shards of an archive in their order, and read everything else to its end."""
    collector = Collector(instructions.policy, instructions.max_findings)
    result = WorkResult(findings=[collector.findings])
    try:
        location = work.archive
        with Archive(location.path, location.name, collector, work.limits) as archive:
            _examine_entries(archive, collector, work, instructions, progress, result)
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
) -> None:
    contents = look_through(archive, collector, needs_label_map=work.label_map_name is None)
    for group in contents.shard_sets:
        names = [archive.place(contents.shards[path]).shard for path in group.paths]
        for subject in numbered_sets(group.paths, group.missing):
            collector.judge(subject, archive.place())
        for path, name in zip(group.paths, names, strict=True):
            entry = contents.label_maps.get(path)
            label_map, map_name = work.label_map, work.label_map_name
            if entry is not None:
                map_name = archive.place(entry).shard
                if map_name not in result.label_maps:
                    file = _read_label_map(archive, entry, map_name)
                    result.label_maps[map_name] = file
                label_map = result.label_maps[map_name].label_map
            shard_name = parse_shard_name(path)
            numbered = shard_name is not None and shard_name.total is not None
            examiner = Examiner(instructions, name, label_map, numbered=numbered)
            is_whole = True
            try:
                with archive.open(contents.shards[path]) as stream:
                    _examine_stream(examiner, stream, name, None, progress)
                    while stream.read(_STEP):  # what lies behind a damage has a checksum too
                        pass
            except ArchiveDamageError:
                is_whole = False  # the collector has been told
            examined = examiner.finish()
            result.shards.append(ShardResult(examined, group.subset, map_name, (), True, is_whole))
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
            stem = os.path.join(os.path.dirname(path), name.stem)
            totals.setdefault(stem, {}).setdefault(name.total, os.path.basename(path))
            there[stem] += 1
    for stem, found in totals.items():
        names = [one for one in missing if _stem_of(one) == os.path.basename(stem)]
        count = next(iter(found)) - there[stem] if len(found) == 1 else len(names)
        yield NumberedSet(stem, tuple(names), found, count if names else 0)


def _stem_of(path: str) -> str:
    name = parse_shard_name(path)
    return name.stem if name else ""
