"""Examination of a shard in one pass over its records."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from tfod.checker.analysis.batch import Batch, count_attributes, read_image_rows
from tfod.checker.analysis.box_forms import SAMPLE_SIZE, sample_boxes
from tfod.checker.analysis.column_order import BoxColumns
from tfod.checker.analysis.decoding import Decoder, Decoding
from tfod.checker.analysis.duplicates import IndexedBatch
from tfod.checker.analysis.encoded_images import EncodedImages
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
"""Called with the number of bytes and records read since the last call."""
T = TypeVar("T")
# Records are collected up to one of these limits, since each batch has a fixed cost.
_MANY_RECORDS = 1 << 10
_MANY_BYTES = 1 << 22
_MANY_DAMAGES = 1 << 10
_STEP = 1 << 18


class Instructions(NamedTuple):
    """The settings that all shards of a dataset share.

    Attributes:
        levels: severity of each rule and case, None for those that are off.
        label_maps: readable label maps, by name.
        decoding: images of each shard to decode.
        threads: number of threads that decode images; None for one per core.
        keeps_rows: whether to keep the records, to compare them with a CVAT task.
        counts_objects: whether to compute statistics for a trainer's configuration.
        matcher: finds the frames of a CVAT task; images without a frame are skipped.
    """

    profile: Profile
    levels: Levels
    label_maps: Mapping[str, LabelMap] = {}
    max_findings: int = 1000
    max_record_bytes: int = 256 << 20
    decoding: Decoding = Decoding()
    threads: int | None = None
    keeps_rows: bool = False
    counts_objects: bool = False
    matcher: Matcher | None = None


class Step(NamedTuple):
    """A part of a check, between which a program can do other things.

    Attributes:
        read, records: number of bytes and records since the last step.
        detections: these records; None at the end of a shard, and if another process read them.
        findings: findings in the shard so far, with the same exception for other processes.
    """

    read: int
    records: int
    detections: Detections | None = None
    findings: Findings | None = None


def take_steps(steps: Generator[Step, None, T], progress: Progress) -> T:
    """Take all steps, and return their result; ``progress`` may raise an exception to stop."""
    with closing(steps):
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            progress(step.read, step.records)


def examine(
    shard: Shard, instructions: Instructions, progress: Progress = lambda *_: None
) -> ShardResult:
    """Read a shard and run the batch rules on its records."""
    return take_steps(examine_steps(shard, instructions), progress)


def examine_steps(shard: Shard, instructions: Instructions) -> Generator[Step, None, ShardResult]:
    """Examine a shard like :func:`examine`, a batch of records at a time."""
    examiner = _Examiner(shard, instructions)
    result = examiner.result
    try:
        with shard.open() as stream:
            remote = cast("RemoteStream", stream) if shard.is_remote else None
            source = PeekedStream(stream)
            if source.compression is not Compression.NONE:
                result.compression = source.compression.value.upper()
            size = remote.size if remote else shard.size
            examiner.begin(None if result.compression else size)
            for records in walk(source, shard.name, size, instructions.max_record_bytes):
                step = None
                if isinstance(records, Damage):
                    examiner.add_damage(records)
                else:
                    step = examiner.add(records)
                if examiner.has_enough:
                    examiner.run_rules()
                if step:
                    yield step
            result.is_whole = True
            # The rest of a zip entry is read to verify its checksum.
            while shard.entry and stream.read(_STEP):
                pass
    except OSError as error:
        result.unreadable = error.strerror or str(error)
    except ZipEntryError as error:
        result.damage = error.reason
    examiner.run_rules()
    yield Step(0, 0, findings=result.findings)
    if result.objects is not None:
        result.objects = replace(result.objects, classes=frozenset(result.uses))
    result.has_defects = not result.findings.are_below(Severity.WARNING)
    result.findings.levels = {}  # the same for all shards, so not stored in each
    return result


class _Examiner:
    """Collects the records of a shard, and runs the rules once it ``has_enough``."""

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
        self._damages: list[Damage] = []
        self._pending: list[tuple[ExampleBatch, EncodedImages]] = []
        self._pending_bytes = 0

    def begin(self, size: int | None) -> None:
        """Choose images to decode; ``size`` is the length of the uncompressed shard, if known."""
        instructions = self._instructions
        decoding = instructions.decoding if instructions.levels["IMG003"] else Decoding(0)
        self._decoder = Decoder(decoding, size, instructions.threads)
        self.result.is_sampled_evenly = size is not None

    def add_damage(self, damage: Damage) -> None:
        """Add damage of the framing."""
        if damage.kind is DamageKind.EMPTY and self._shard.numbered_name:
            # Some writers create empty files if there are more shards than images.
            self.result.is_empty_file = True
            return
        self._damages.append(damage)
        self.has_enough = len(self._damages) >= _MANY_DAMAGES

    def add(self, records: RecordBatch) -> Step:
        """Add a batch of records."""
        if self._pending and self._pending[-1][0].records.end != records.first:
            self.run_rules()
        examples = ExampleBatch.of(records)
        mapping = self._instructions.profile.field_mapping
        detections = Detections(examples, mapping)
        images = EncodedImages.of(detections, self._decoder)
        if self._pending or len(records) < _MANY_RECORDS:
            examples = examples.compact(mapping.encoded)
            self._pending_bytes += examples.nbytes
        self._pending.append((examples, images))
        read = int(records.lengths.sum()) + FRAME_BYTES * len(records)
        self.result.read += read
        self.result.records += len(records)
        count = records.end - self._pending[0][0].records.first
        self.has_enough = count >= _MANY_RECORDS or self._pending_bytes >= _MANY_BYTES
        return Step(read, len(records), detections, self.result.findings)

    def run_rules(self) -> None:
        """Run the rules on the collected records, and add the result."""
        instructions, result, damages = self._instructions, self.result, self._damages
        if not self._pending and not damages:
            return
        if not self._pending:
            no_records = RecordBatch(self._shard.name, 0, 0, bytearray(), _NO_ROWS, _NO_ROWS)
            images = EncodedImages({}, (), np.empty(0, np.uint64))
            self._pending.append((ExampleBatch.of(no_records), images))
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
            result.rows += read_image_rows(batch)
            add_bounded(result.attributes, count_attributes(batch))
        if instructions.counts_objects:
            from tfod.checker.analysis.object_statistics import ObjectFigures  # rarely needed

            figures = ObjectFigures.of(batch)
            result.objects = result.objects + figures if result.objects else figures


def _add(result: ShardResult, batch: Batch) -> None:
    images = batch.images.by_row
    result.keys |= set(batch.examples.columns)
    rows = images.keys() & set(batch.image_rows.tolist()) if images else ()
    result.images += len(rows)
    result.decoded += sum(images[row].failure is not None for row in rows)
    result.not_images += sum(batch.images.headers[row] is None for row in rows)
    result.boxes += int(batch.detections.box_counts.sum())
    result.columns += BoxColumns.of(batch.boxes, result.columns.fitting)
    if len(result.sample) < SAMPLE_SIZE:
        result.sample = np.concatenate((result.sample, sample_boxes(batch.boxes)))[:SAMPLE_SIZE]
    if not batch.boxes.all_valid:
        result.flat += int(batch.boxes.flat.sum())
    codes, uses = batch.uses
    counts = np.bincount(codes, minlength=len(uses)).tolist()
    add_bounded(result.uses, dict(zip(uses, counts, strict=True)))
    add_bounded(result.image_sizes, _count_sizes(batch.detections.sizes[batch.live]))
    result.index.append(IndexedBatch.of(batch))


_NO_ROWS = np.empty(0, np.int64)


def _count_sizes(sizes: np.ndarray) -> Mapping[tuple[int, int], int]:
    """Count the images by height and width in pixels, ignoring unknown sizes, which are 0."""
    known_sizes = sizes[(sizes > 0).all(axis=1)]
    # Unique complex numbers are faster to find than unique pairs.
    pairs, counts = np.unique(known_sizes[:, 0] + 1j * known_sizes[:, 1], return_counts=True)
    keys = zip(*(x.astype(np.int64).tolist() for x in (pairs.real, pairs.imag)), strict=True)
    return dict(zip(keys, counts.tolist(), strict=True))
