"""The repair of one shard: its records read, fixed and written, as the options have it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from tfod.check.findings.finding import JsonValue, Place
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import Profile
from tfod.check.records.column_order import BoxColumns, ColumnOrder
from tfod.check.records.expectation import expected_features
from tfod.check.rules.example import Features
from tfod.check.rules.images import check_format, check_raw
from tfod.check.rules.registry import all_rules, problems_of
from tfod.check.rules.repairs import INEVITABLE, MAX_DROPPED, REPAIRS
from tfod.check.sources.archive import ArchiveDamageError
from tfod.check.sources.shard_walk import WalkedShard
from tfod.detection.images.source_ids import SourceIdNumbers
from tfod.detection.labels.label_map import LabelMap
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.example.spelling import Form
from tfod.shards.repair import box_fixes, class_fixes, record_fixes
from tfod.shards.repair.record import Change, Changes, EditedRecord
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import Record, read_record_batch_stream, shard_compression
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.writer import RecordWriter

Fix: TypeAlias = "Callable[[EditedRecord], Iterator[Change]]"
"""Changes a record, and yields what it did. What it cannot be certain of it leaves alone."""

FIXES: tuple[tuple[str, Fix], ...] = (
    # Dtypes and shapes first, since the others look at values.
    ("EXA007", record_fixes.keep_the_last),
    ("EXA006", record_fixes.remove_empty_features),
    ("EXA004", record_fixes.convert_dtypes),
    ("EXA005", record_fixes.correct_shapes),
    ("EXA003", record_fixes.add_missing),
    ("BOX002", box_fixes.drop_not_finite),
    ("BOX006", box_fixes.put_in_order),
    ("BOX003", box_fixes.clip_far_outside),
    ("BOX004", box_fixes.clip_slightly_outside),
    ("BOX007", box_fixes.drop_without_area),
    ("BOX009", box_fixes.drop_duplicates),
    ("LAB011", class_fixes.spell_as_the_map),
    ("LAB010", class_fixes.name_by_id),
    ("LAB008", class_fixes.follow_the_text),
    ("LAB020", class_fixes.add_id),
    ("LAB014", class_fixes.add_text_or_id),
    ("IMG004", partial(record_fixes.write_format, check_format)),
    ("IMG014", partial(record_fixes.write_format, check_raw)),
    ("IMG006", record_fixes.write_size),
    ("IMG012", record_fixes.write_positive_size),
    ("IMG008", record_fixes.write_digest),
    ("NAM007", record_fixes.add_source_id),
    ("NAM012", record_fixes.fill_source_id),
    ("NAM010", partial(record_fixes.number_source_id, is_number=False)),
    ("NAM011", partial(record_fixes.number_source_id, is_number=True)),
)
_OF_LAYOUT = frozenset({"EXA003", "EXA004", "EXA005", "EXA006", "EXA007"})
_OF_EACH_BOX = frozenset({"BOX002", "BOX003", "BOX004", "BOX006", "BOX007"})
_MOST_ROUNDS = 4
_CODE_OF_DAMAGE = {
    DamageKind.LENGTH_CRC: "TFR003",
    DamageKind.DATA_CRC: "TFR004",
    DamageKind.TRUNCATED_RECORD: "TFR005",
    DamageKind.TRUNCATED_HEADER: "TFR006",
    DamageKind.FORGED_LENGTH: "TFR007",
    DamageKind.TRAILING_ZEROS: "TFR008",
    DamageKind.COMPRESSION: "TFR011",
}
_NO_RECORD = frozenset(  # stray bytes, zeros, and what cannot be unpacked
    {DamageKind.TRUNCATED_HEADER, DamageKind.TRAILING_ZEROS, DamageKind.COMPRESSION}
)
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Options:
    """What may be asked of a repair.

    Attributes:
        profile: the expected feature description; None to choose the one that fits best.
        receiver: name of the one who reads the result next; None for any.
        label_map: file or name of a label map for all shards; None for those beside them.
        only: codes or families of the rules to repair; None for all.
        skip: codes or families not to repair; stronger.
        max_record_bytes: a larger record ends the repair.
        overwrite: whether files of the result may replace others.
        report: a file that is written besides; it must be none of the source or the result.
        columns: in which order to read the columns of all boxes; None for the usual one.
        max_dropped: the largest share of the objects or of the records that may be removed.
    """

    profile: Profile | None = None
    receiver: str | None = None
    label_map: str | None = None
    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    max_record_bytes: int = 256 << 20
    overwrite: bool = False
    report: str | None = None
    columns: ColumnOrder | None = None
    max_dropped: float = MAX_DROPPED

    def codes(self, policy: Policy) -> frozenset[str]:
        """The rules whose findings are to be repaired."""
        found = set(INEVITABLE)
        for rule in all_rules().values():
            names = {rule.code, rule.family}
            asked = self.only is None or names & self.only
            if rule.code in REPAIRS and asked and not names & self.skip:
                found |= {rule.code} if policy.severity(rule) is not None else set()
        return frozenset(found)


def fix_record(record: EditedRecord, codes: frozenset[str]) -> list[Change]:
    """Fix what rules of these codes find in a record; return what was done."""
    done: list[Change] = []
    for _ in range(_MOST_ROUNDS):  # what is fixed may show more, as two objects that became equal
        before = len(done)
        for code, fix in FIXES:
            if code in codes and _may_apply(record, code):
                done += [replace(change, code=code) for change in fix(record)]
        if len(done) == before:
            break
    return done


def _may_apply(record: EditedRecord, code: str) -> bool:
    """Whether a rule may find something; of most records it is known that it does not."""
    if code in _OF_LAYOUT:
        return record.problems is None or any(one == code for one, _ in record.problems)
    if code.startswith("LAB"):
        return record.has_classes
    if code.startswith("BOX"):
        has_boxes = record.objects is not None
        return has_boxes and not (code in _OF_EACH_BOX and record.boxes_are_sound)
    return True


@dataclass
class ShardRepair:
    """Repairs one shard.

    Attributes:
        output, label_map, candidates: paths of the result, of its label map, where there is one,
            and of label maps that fit equally well.
        codes: of the rules whose findings are to be repaired.
        digests: of the records of the subset's result so far; added to.
        raised: the label map of the result, where that of the shard counts from 0.
        read, written: how many records were.
        objects: how many there are whose lists go together.
        duplicates: how many records were left out since one before them is the same.
        columns: what the boxes say of their columns, after those were read in the order.
        classes: text and id of objects of the result, one more than a label map may have at most.
    """

    shard: WalkedShard
    output: str
    label_map: str | None
    candidates: Sequence[str]
    profile: Profile
    codes: frozenset[str]
    options: Options
    changes: Changes
    digests: set[bytes]
    source_ids: SourceIdNumbers
    raised: LabelMap | None = None
    read: int = 0
    written: int = 0
    objects: int = 0
    duplicates: int = 0
    columns: BoxColumns = field(default_factory=BoxColumns)
    classes: set[tuple[str | None, int | None]] = field(default_factory=set)
    _no_shard: bool = False

    def run(self, file: AtomicFile) -> None:
        """Write the repaired shard to a file.

        Raises ShardError where a record is larger than may be held, WriteError, and OSError where
        the shard cannot be read.
        """
        with self.shard.open() as stream:
            peeked = PeekedStream(stream, HEADER_BYTES)
            head = peeked.head
            compression = shard_compression(head) if head else Compression.NONE
            writer = RecordWriter(file, compression)
            for payload in self._payloads(peeked):
                writer.write(payload)
                self.written += 1
        if not self._no_shard:
            writer.finish()
            return
        with self.shard.open() as stream:  # it is copied as it is
            shutil.copyfileobj(stream, file)

    def _payloads(self, stream: PeekedStream) -> Iterator[bytes]:
        batches = read_record_batch_stream(
            stream,
            self.shard.name,
            self.shard.size,
            on_damage=self._damaged,
            max_record_bytes=self.options.max_record_bytes,
        )
        expected = expected_features(self.profile)
        try:
            for records in batches:
                self.read += len(records)
                examples = ExampleBatch.of(records)
                found: list[list[tuple[str, str]]] = [[] for _ in range(len(records))]
                features = Features(examples, expected, np.ones(len(records), bool))
                for rule, problem in problems_of(features):
                    found[problem.row or 0].append((rule.code, problem.feature or ""))
                for row, problems in enumerate(found):
                    payload = self._repaired(examples, row, problems)
                    if payload is not None:
                        yield payload
        except ArchiveDamageError:
            pass  # the zip's findings say so; what was read is sound

    def _damaged(self, damage: Damage) -> None:
        if damage.kind in (DamageKind.EMPTY, DamageKind.FOREIGN):
            self._no_shard = True
            return
        if damage.kind is DamageKind.OVERSIZE:
            raise replace(damage, fix="raise --max-record-bytes").to_error()
        what = "record dropped" if damage.kind is DamageKind.DATA_CRC else "dropped"
        change = Change(
            f"{what}: {damage.cause}",
            before={"bytes": damage.skipped} if damage.skipped else None,
            record_dropped=damage.kind not in _NO_RECORD,
            code=_CODE_OF_DAMAGE[damage.kind],
        )
        self.changes.add(change, Place(self.shard.name, damage.record, damage.offset))

    def _repaired(
        self, examples: ExampleBatch, row: int, problems: Sequence[tuple[str, str]]
    ) -> bytes | None:
        """The payload of a record of a batch as it is to be; None to leave the record out.

        ``problems`` are codes of rules that find something in its features, with their keys.
        """
        source = examples.records.record(row)
        place = Place(self.shard.name, source.number, source.offset)
        if not source.length and "TFR009" in self.codes:
            self._drop("TFR009", "it had no byte", source, place)
            return None
        refused = examples.refused.get(row)
        if refused is not None:
            if refused.form is Form.SEQUENCE_EXAMPLE or "EXA001" not in self.codes:
                return bytes(source.payload)
            self._drop("EXA001", f"it was no tf.train.Example ({refused.reason})", source, place)
            return None
        of_shard = self.shard.label_map.label_map if self.shard.label_map else None
        label_map = self.raised or of_shard
        record = EditedRecord(
            Example(examples, row), self.profile, label_map, problems, self.source_ids
        )
        filename = record.text(record.field_mapping.filename) or None
        place = replace(place, item=filename)
        order = self.options.columns
        changes = list(box_fixes.read_columns(record, order)) if order else []
        if self.raised is not None:
            found = class_fixes.count_from_one(record)
            changes += [replace(change, code="LAB005") for change in found]
        if record.objects is not None:  # else none can be removed
            self.objects += len(record.objects.corners)
            self.columns = self.columns.with_boxes(record.objects)
        changes += fix_record(record, self.codes)
        payload = record.payload() if changes else bytes(source.payload)
        code = "IMG010" if record.image else "NAM002"
        # Without image and name nothing says that two such records are one.
        if code in self.codes and (record.image or filename) and self._is_duplicate(payload):
            self.duplicates += 1
            self._drop(code, "one before it is the same byte for byte", source, place)
            return None
        self._note_classes(record)
        for change in changes:
            self.changes.add(change, place)
        self.changes.records_changed += bool(changes)
        return payload

    def _note_classes(self, record: EditedRecord) -> None:
        """Note what would be in a label map, for a shard that has none."""
        has_map = self.shard.label_map or self.shard.candidates
        too_many = len(self.classes) > class_fixes.MOST_CLASSES
        if record.objects is None or has_map or too_many:
            return
        nothing = [None] * len(record.objects.corners)
        self.classes.update(zip(record.texts or nothing, record.labels or nothing, strict=True))

    def _is_duplicate(self, payload: bytes) -> bool:
        """Whether the result has such a record already; remembers it otherwise."""
        digest = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()
        if not payload or digest in self.digests:
            return bool(payload)
        self.digests.add(digest)
        return False

    def _drop(self, code: str, why: str, record: Record, place: Place) -> None:
        size: dict[str, JsonValue] = {"bytes": record.length}
        change = Change(f"record dropped: {why}", before=size, record_dropped=True, code=code)
        self.changes.add(change, place)
