"""One pass over the records of a shard: a shard goes in, its result comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np

from tfod.checker.analysis.batch import Batch, attributes_of, rows_of
from tfod.checker.analysis.box_forms import SAMPLE_SIZE, sample_of
from tfod.checker.analysis.column_order import BoxColumns
from tfod.checker.analysis.duplicates import IndexedBatch
from tfod.checker.analysis.encoded_images import MOST_DECODED, Decoder, EncodedImages
from tfod.checker.analysis.result import ShardResult, add_bounded
from tfod.checker.finding import Findings, Levels, Severity
from tfod.checker.profiles.profile import Profile
from tfod.checker.rules.registry import run_rules
from tfod.detection.detections import Detections
from tfod.detection.labels.label_map import LabelMap
from tfod.example.example_batch import ExampleBatch
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import FRAME_BYTES
from tfod.tfrecord.reader import RecordBatch, walk
from tfod.tfrecord.storage.zip_entry import ZipEntryError

if TYPE_CHECKING:
    from tfod.checker.references.frames import Matcher
    from tfod.sources.resolved import Shard
    from tfod.tfrecord.storage.remote import RemoteStream

Progress: TypeAlias = "Callable[[int, int], object]"
"""Is given the bytes and records that were read since the last time."""
_MANY_RECORDS = 1 << 10
_MANY_BYTES = 1 << 22
"""What is done once a batch is worth its time for so many records; of so many bytes none waits."""
_MANY_DAMAGES = 1 << 10
_STEP = 1 << 18


class Instructions(NamedTuple):
    """What is the same for every shard of a data set: what was asked, and what follows from it.

    Attributes:
        profile: what is expected of the records.
        levels: severity of each rule and case, None for those that are off.
        label_maps: those that could be read, by name.
        max_findings: how many are listed.
        max_record_bytes: larger records are not read.
        decode: how many images of each shard are decoded; None for all.
        threads: how many images at a time; None for as many as there are cores.
        keeps_rows: whether the records are wanted, to be compared with a CVAT task.
        counts_objects: whether figures of the objects are, for a trainer's configuration.
        matcher: finds the frames of a CVAT task whose other images are skipped.
    """

    profile: Profile
    levels: Levels
    label_maps: Mapping[str, LabelMap] = {}
    max_findings: int = 1000
    max_record_bytes: int = 256 << 20
    decode: int | None = MOST_DECODED
    threads: int | None = None
    keeps_rows: bool = False
    counts_objects: bool = False
    matcher: Matcher | None = None


def examine(
    shard: Shard, instructions: Instructions, progress: Progress = lambda *_: None
) -> ShardResult:
    """Read a shard to its end, and let the batch rules look at its records."""
    examiner = _Examiner(shard, instructions)
    result = examiner.result
    try:
        with shard.open() as stream:
            remote = cast("RemoteStream", stream) if shard.is_remote else None
            source = PeekedStream(stream)
            if source.compression is not Compression.NONE:
                result.compression = source.compression.value.upper()
            size = remote.size if remote else shard.size
            for records in walk(source, shard.name, size, instructions.max_record_bytes):
                if isinstance(records, Damage):
                    examiner.add_damage(records)
                else:
                    read = examiner.add(records)
                    progress(read, len(records))
                if examiner.has_enough:
                    examiner.look()
            result.is_whole = True
            while shard.entry and stream.read(_STEP):  # behind a damage is a checksum, too
                pass
    except OSError as error:
        result.unreadable = error.strerror or str(error)
    except ZipEntryError as error:
        result.damage = error.reason
    examiner.look()
    if result.objects is not None:
        result.objects = replace(result.objects, classes=frozenset(result.uses))
    result.has_defects = not result.findings.are_below(Severity.WARNING)
    result.findings.levels = {}  # those of all shards are the same
    return result


class _Examiner:
    """Collects the records of one shard, in their order, until a look at them is worth its time.

    Attributes:
        result: what the records that were looked at have come to.
        has_enough: whether what was collected is to be looked at.
    """

    def __init__(self, shard: Shard, instructions: Instructions) -> None:
        self._shard, self._instructions = shard, instructions
        self.result = ShardResult(
            shard.name,
            shard.subset,
            shard.label_map,
            shard.candidates,
            findings=Findings(instructions.max_findings, instructions.levels),
        )
        self.has_enough = False
        self._decoder = Decoder(
            instructions.decode if instructions.levels["IMG003"] else 0, instructions.threads
        )
        self._damages: list[Damage] = []
        self._pending: list[tuple[ExampleBatch, EncodedImages]] = []
        self._pending_bytes = 0

    def add_damage(self, damage: Damage) -> None:
        """Take note of a damage of the framing."""
        if damage.kind is DamageKind.EMPTY and self._shard.numbered:
            # Writers leave such files where there are more shards than images.
            self.result.is_empty_file = True
            return
        self._damages.append(damage)
        self.has_enough = len(self._damages) >= _MANY_DAMAGES

    def add(self, records: RecordBatch) -> int:
        """Add a batch of records; return how many bytes of the shard they are."""
        if self._pending and self._pending[-1][0].records.end != records.first:
            self.look()
        examples = ExampleBatch.of(records)
        mapping = self._instructions.profile.field_mapping
        images = EncodedImages.of(Detections(examples, mapping), self._decoder)
        if self._pending or len(records) < _MANY_RECORDS:
            examples = examples.compact(mapping.encoded)
            self._pending_bytes += examples.nbytes
        self._pending.append((examples, images))
        read = int(records.lengths.sum()) + FRAME_BYTES * len(records)
        self.result.read += read
        self.result.records += len(records)
        count = records.end - self._pending[0][0].records.first
        self.has_enough = count >= _MANY_RECORDS or self._pending_bytes >= _MANY_BYTES
        return read

    def look(self) -> None:
        """Let the rules look at what was collected, and sum it up."""
        instructions, result, damages = self._instructions, self.result, self._damages
        if not self._pending and not damages:
            return
        if not self._pending:
            nothing = RecordBatch(self._shard.name, 0, 0, bytearray(), _NO_ROWS, _NO_ROWS)
            images = EncodedImages({}, (), np.empty(0, np.uint64))
            self._pending.append((ExampleBatch.of(nothing), images))
        examples, parts = zip(*self._pending, strict=True)
        self._pending, self._pending_bytes, self._damages = [], 0, []
        self.has_enough = False
        images = EncodedImages.joined(parts)
        profile = instructions.profile
        batch = Batch(
            Detections(
                ExampleBatch.join(examples),
                profile.field_mapping,
                headers=images.headers,
                expected=profile.expected,
            ),
            images,
            profile,
            instructions.label_maps.get(self._shard.label_map or ""),
            damages,
        )
        if instructions.matcher is not None:
            find, names = instructions.matcher.find, batch.detections.filenames
            batch.skip([row for row, name in enumerate(names) if find(name or "")[0] is None])
        run_rules(batch, result.findings, of_dataset=False)
        _add(result, batch)
        if instructions.keeps_rows:
            result.rows += rows_of(batch)
            add_bounded(result.attributes, attributes_of(batch))
        if instructions.counts_objects:
            from tfod.checker.analysis.object_statistics import (
                ObjectFigures,  # few checks need them
            )

            figures = ObjectFigures.of(batch)
            result.objects = result.objects + figures if result.objects else figures


def _add(result: ShardResult, batch: Batch) -> None:
    """Add what the records of a batch come to, but for findings and figures of reading."""
    images = batch.images.by_row
    result.keys |= set(batch.examples.columns)
    checked = images.keys() & set(batch.image_rows.tolist()) if images else ()
    result.images += len(checked)
    result.decoded += sum(images[row].failure is not None for row in checked)
    result.boxes += int(batch.detections.box_counts.sum())
    result.columns += BoxColumns.of(batch.boxes, result.columns.fitting)
    if len(result.sample) < SAMPLE_SIZE:
        result.sample = np.concatenate((result.sample, sample_of(batch.boxes)))[:SAMPLE_SIZE]
    if not batch.boxes.all_valid:
        result.flat += int(batch.boxes.flat.sum())
    codes, uses = batch.uses
    counts = np.bincount(codes, minlength=len(uses)).tolist()
    add_bounded(result.uses, dict(zip(uses, counts, strict=True)))
    add_bounded(result.image_sizes, _count_sizes(batch.detections.sizes[batch.live]))
    result.index.append(IndexedBatch.of(batch))


_NO_ROWS = np.empty(0, np.int64)


def _count_sizes(sizes: np.ndarray) -> Mapping[tuple[int, int], int]:
    """Images of each height and width in pixels; 0 is an unknown one, which does not count."""
    known = sizes[(sizes > 0).all(axis=1)]
    # As complex numbers they are compared at once.
    kinds, counts = np.unique(known[:, 0] + 1j * known[:, 1], return_counts=True)
    pairs = zip(kinds.real.astype(int).tolist(), kinds.imag.astype(int).tolist(), strict=True)
    return dict(zip(pairs, counts.tolist(), strict=True))
