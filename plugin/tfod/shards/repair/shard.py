"""The repair of one shard: its records read, fixed and written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tfod.check.dataset import Shard
from tfod.check.findings.finding import JsonValue, Place
from tfod.check.profiles.profile import Profile
from tfod.detection.images.source_ids import SourceIdNumbers
from tfod.detection.labels.label_map import LabelMap
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.example.spelling import Form
from tfod.shards.repair.fixes import fix_record
from tfod.shards.repair.record import Change, Changes, EditedRecord
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import Record, read_record_batch_stream, shard_compression
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.storage.zip_entry import ZipEntryError
from tfod.tfrecord.writer import RecordWriter

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


@dataclass
class ShardRepair:
    """Repairs one shard.

    Attributes:
        codes: of the rules whose findings are to be repaired.
        is_complete: whether its label map has all classes of the shards it goes with.
        read, written: how many records were.
    """

    shard: Shard
    label_map: LabelMap | None
    profile: Profile
    codes: frozenset[str]
    max_record_bytes: int
    changes: Changes
    source_ids: SourceIdNumbers
    is_complete: Callable[[], bool]
    read: int = 0
    written: int = 0
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
            max_record_bytes=self.max_record_bytes,
        )
        try:
            for records in batches:
                self.read += len(records)
                examples = ExampleBatch.of(records)
                for row in range(len(records)):
                    payload = self._repaired(examples, row)
                    if payload is not None:
                        yield payload
        except ZipEntryError:
            pass  # the zip's findings say so; what was read is sound

    def _damaged(self, damage: Damage) -> None:
        if damage.kind in (DamageKind.EMPTY, DamageKind.FOREIGN):
            self._no_shard = True
            return
        if damage.kind is DamageKind.OVERSIZE:
            raise replace(damage, fix="raise TFOD_MAX_RECORD_BYTES").to_error()
        what = "record dropped" if damage.kind is DamageKind.DATA_CRC else "dropped"
        change = Change(
            f"{what}: {damage.cause}",
            before={"bytes": damage.skipped} if damage.skipped else None,
            record_dropped=damage.kind not in _NO_RECORD,
            code=_CODE_OF_DAMAGE[damage.kind],
        )
        self.changes.add(change, Place(self.shard.name, damage.record, damage.offset))

    def _repaired(self, examples: ExampleBatch, row: int) -> bytes | None:
        """The payload of a record of a batch as it is to be; None to leave the record out."""
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
        record = EditedRecord(
            Example(examples, row), self.profile, self.label_map, self.is_complete, self.source_ids
        )
        changes = fix_record(record, self.codes)
        if not changes:
            return bytes(source.payload)
        place = place._replace(item=record.text(record.field_mapping.filename) or None)
        for change in changes:
            self.changes.add(change, place)
        self.changes.records_changed += 1
        return record.payload()

    def _drop(self, code: str, why: str, record: Record, place: Place) -> None:
        size: dict[str, JsonValue] = {"bytes": record.length}
        change = Change(f"record dropped: {why}", before=size, record_dropped=True, code=code)
        self.changes.add(change, place)
