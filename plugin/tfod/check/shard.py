"""One input of a check to its result: a shard, a part of one, a zip with its shards, a file's hash.

The same here, in a pool of processes and on the workers of a Beam runner.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tfod.check.collector import Collector
from tfod.check.duplicates.row_blocks import RowCollector
from tfod.check.duplicates.row_store import RowStore
from tfod.check.finding import Place
from tfod.check.plan import ArchiveInput, HashInput, Input, ShardInput, place_of
from tfod.check.records.examined import Instructions
from tfod.check.records.examiner import Examiner
from tfod.check.result import Result, ShardSummary
from tfod.check.rules.framing import CompressedShard, Unreadable
from tfod.check.rules.labels import LabelMapFile
from tfod.check.sources.archive import Archive, ArchiveDamageError
from tfod.check.sources.archive_contents import Contents, look_through, read_entry
from tfod.check.sources.datasets import numbered_sets
from tfod.check.sources.label_maps import label_map_file
from tfod.check.sources.search import Location
from tfod.detection.label_map import LONGEST_LABEL_MAP, LabelMap
from tfod.tfrecord.compression import Compression, PeekedStream, ReadableStream
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import HEADER_BYTES, ShardPart
from tfod.tfrecord.reader import read_record_batch_stream, shard_compression
from tfod.tfrecord.shard_names import parse_shard_name
from tfod.tfrecord.storage.remote_timeout import set_remote_timeout
from tfod.tfrecord.storage.zip_directory import Entry

if TYPE_CHECKING:
    from tfod.tfrecord.storage.remote_stream import RemoteStream

Progress = Callable[[int, int], None]
"""Is given the bytes and records that were read since the last time."""
_COMPRESSED_ENDINGS = (".gz", ".gzip", ".zlib", ".zz")
_FRAMING = 16  # bytes of a record beside its payload
_STEP = 1 << 18
_HASH_STEP = 1 << 20


def examine(one: Input, instructions: Instructions, progress: Progress, store: RowStore) -> Result:
    """Examine a shard, a part of one, or an archive; rows are kept in the store."""
    set_remote_timeout(instructions.remote_timeout)
    if isinstance(one, ShardInput):
        return _Pass(one, instructions, progress, store).shard(one)
    if isinstance(one, ArchiveInput):
        return _Pass(one, instructions, progress, store).archive(one)
    digest = sha256_of(one.location)
    return Result(0, digests={one.location.name: digest} if digest else {})


class _Pass:
    """The pass over the records of one input."""

    def __init__(
        self,
        one: ShardInput | ArchiveInput,
        instructions: Instructions,
        progress: Progress,
        store: RowStore,
    ) -> None:
        self._number = one.number
        self._instructions = instructions
        self._progress = progress
        self._store = store
        self._result = Result(instructions.max_findings)

    def shard(self, one: ShardInput) -> Result:
        """Examine a shard that lies open, or a part of it."""
        shard, location, result = one.shard, one.shard.location, self._result
        summary = ShardSummary(
            one.number, 0, location.name, shard.subset, one.label_map, tuple(shard.rivals)
        )
        label_map = self._instructions.label_maps.get(one.label_map or "")
        examiner = self._examiner(summary, label_map, shard.numbered)
        framing = _Framing(examiner)
        try:
            with location.open(one.part, hashed=one.with_sha256) as stream:
                remote = cast("RemoteStream", stream) if location.remote else None
                size = remote.size if remote else location.size()
                self._read(stream, framing, size, one.part)
                if remote and one.with_sha256:
                    result.digests[location.name] = remote.digest()
        except OSError as error:
            reason = error.strerror or str(error)
            examiner.check_at(Unreadable(reason), Place(location.name))
            framing.is_cut_off = True
        result.add_shard(summary, examiner.finish())
        if one.part is not None and not framing.agrees_with(one.part):
            stop = max(location.known_size() or 0, one.part.stop)
            result.instead = replace(
                one, part=ShardPart(one.part.start, stop, one.part.first_record)
            )
        return result

    def archive(self, one: ArchiveInput) -> Result:
        """Examine the shards of an archive in their order, and read all else to its end."""
        location, result = one.archive, self._result
        collector = Collector(self._instructions.policy, self._instructions.max_findings)
        result.findings[one.number] = collector.findings
        try:
            with Archive(location.path, location.name, collector, one.limits) as archive:
                contents = look_through(archive, collector, needs_label_map=one.label_map is None)
                for group in contents.shard_sets:
                    for subject in numbered_sets(group.paths, group.missing):
                        collector.check(subject, archive.place())
                for summary, entry, examiner in self._entries(archive, contents, one.label_map):
                    try:
                        with archive.open(entry) as stream:
                            self._read(stream, _Framing(examiner))
                            while stream.read(_STEP):  # behind a damage there is a checksum, too
                                pass
                    except ArchiveDamageError:
                        summary = replace(summary, is_whole=False)  # the collector has it
                    result.add_shard(summary, examiner.finish())
                for entry in archive.entries:
                    archive.drain(entry)
        except OSError as error:
            collector.check(Unreadable(error.strerror or str(error)), Place(location.name))
        return result

    def _entries(
        self, archive: Archive, contents: Contents, named: str | None
    ) -> Iterator[tuple[ShardSummary, Entry, Examiner]]:
        """The shards of an archive, each with what will examine it."""
        label_maps, number = self._result.label_maps, 0
        for group in contents.shard_sets:
            for path in group.paths:
                map_name, label_map = named, self._instructions.label_maps.get(named or "")
                map_entry, entry = contents.label_maps.get(path), contents.shards[path]
                if map_entry is not None:
                    map_name = archive.place(map_entry).shard
                    if map_name not in label_maps:
                        label_maps[map_name] = _read_label_map(archive, map_entry, map_name)
                    label_map = label_maps[map_name].label_map
                name = archive.place(entry).shard
                summary = ShardSummary(
                    self._number, number, name, group.subset, map_name, in_archive=True
                )
                number += 1
                shard_name = parse_shard_name(path)
                numbered = shard_name is not None and shard_name.total is not None
                yield summary, entry, self._examiner(summary, label_map, numbered)

    def _examiner(
        self, summary: ShardSummary, label_map: LabelMap | None, numbered: bool
    ) -> Examiner:
        blocks, store = self._result.blocks, self._store
        rows = RowCollector(
            summary.work,
            summary.number,
            summary.subset,
            lambda block: blocks.append(store.keep(block)),
        )
        place = place_of(summary.work) + summary.number
        return Examiner(
            self._instructions, summary.name, label_map, rows, place=place, numbered=numbered
        )

    def _read(
        self,
        stream: ReadableStream,
        framing: _Framing,
        size: int | None = None,
        part: ShardPart | None = None,
    ) -> None:
        """Examine all records of a shard."""
        examiner, source = framing.examiner, stream
        name = examiner.result.shard
        if part is None:  # only plain shards are read in parts
            source = PeekedStream(stream, HEADER_BYTES)
            note_compression(examiner, source.head, name)
        batches = read_record_batch_stream(
            source,
            name,
            size,
            part=part,
            on_damage=framing.damaged,
            max_record_bytes=self._instructions.max_record_bytes,
        )
        for records in batches:
            examiner.look_at(records)
            self._progress(int(records.lengths.sum()) + _FRAMING * len(records), len(records))


class _Framing:
    """Passes damages of the framing on, and sees whether a part is what its index says it is.

    Attributes:
        is_cut_off: whether it could not be read to its end, which says nothing of the index.
    """

    def __init__(self, examiner: Examiner) -> None:
        self.examiner = examiner
        self.is_cut_off = False
        self._is_sound = True
        self._passed = 0

    def damaged(self, damage: Damage) -> None:
        """Take note of a damage of the framing."""
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


def note_compression(examiner: Examiner, head: bytes, name: str) -> None:
    """Check whether a shard that begins so says in its name how it is compressed."""
    compression = shard_compression(head) if head else Compression.NONE
    if compression is not Compression.NONE:
        said = name.lower().endswith(_COMPRESSED_ENDINGS)
        examiner.check_at(CompressedShard(compression.value, said), Place(name))


def _read_label_map(archive: Archive, entry: Entry, name: str) -> LabelMapFile:
    try:
        data = read_entry(archive, entry, LONGEST_LABEL_MAP + 1)
    except ArchiveDamageError as error:
        return LabelMapFile(name, None, str(error))
    return label_map_file(data, name)


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

    thread = threading.Thread(target=hash_all)
    thread.start()

    def wait() -> dict[str, str]:
        thread.join()
        return digests

    try:
        yield wait
    finally:
        stop.set()
        thread.join()
