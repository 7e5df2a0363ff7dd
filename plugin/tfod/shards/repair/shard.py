"""The repair of one shard: its records read, mended, written, and looked at again."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from tfod.check.archive import ArchiveDamageError
from tfod.check.batch import Expectation
from tfod.check.box_columns import BoxColumns, ColumnOrder
from tfod.check.examine import Examiner
from tfod.check.finding import Place
from tfod.check.profiles.profile import Profile
from tfod.check.rules.example import Features
from tfod.check.rules.registry import judge
from tfod.check.shard_walk import WalkedShard
from tfod.check.work import note_compression
from tfod.example.columns import ExampleBatch, Form
from tfod.example.example import Example
from tfod.shards.repair.boxes import read_columns
from tfod.shards.repair.changes import Change, Tally
from tfod.shards.repair.draft import Draft
from tfod.shards.repair.menders import mend
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.damage import HEADER_BYTES, Damage, DamageKind, empty_file
from tfod.tfrecord.records import (
    Record,
    RecordBatch,
    read_record_batch_stream,
    shard_compression,
)
from tfod.tfrecord.writer import AtomicFile, RecordWriter

_CODE_OF_DAMAGE = {
    DamageKind.LENGTH_CRC: "TFR003",
    DamageKind.DATA_CRC: "TFR004",
    DamageKind.TRUNCATED_RECORD: "TFR005",
    DamageKind.TRUNCATED_HEADER: "TFR006",
    DamageKind.FORGED_LENGTH: "TFR007",
    DamageKind.TRAILING_ZEROS: "TFR008",
    DamageKind.COMPRESSION: "TFR011",
}
_DIGEST_BYTES = 16
_FRAMING = HEADER_BYTES + 4
_STEP = 1 << 20


@dataclass(frozen=True)
class Orders:
    """What is the same for all shards of a repair.

    Attributes:
        profile: what is expected of the records.
        codes: of the rules whose findings are to be repaired.
        max_record_bytes: a larger record ends the repair.
        columns: in which order to read the boxes first; None for the usual one.
    """

    profile: Profile
    codes: frozenset[str]
    max_record_bytes: int
    columns: ColumnOrder | None = None


class ShardRepair:
    """Repairs one shard.

    Args:
        shard: which.
        orders: how.
        tally: takes what is done.
        examiner: looks at the records of the result.
        seen: digests of the records of the subset's result so far; added to.

    Attributes:
        read, written, objects: how many records were read and written, how many objects there are
            whose lists go together.
        repeated: how many records were left out since one before them is the same.
        columns: what the boxes say of their columns, after the order's were read.
    """

    def __init__(
        self,
        shard: WalkedShard,
        orders: Orders,
        tally: Tally,
        examiner: Examiner,
        seen: set[bytes],
    ) -> None:
        self._shard = shard
        self._orders = orders
        self._tally = tally
        self._examiner = examiner
        self._seen = seen
        self._expected = Expectation(orders.profile).features
        self._as_it_is: Damage | None = None
        self._offset = 0
        self.read = 0
        self.written = 0
        self.objects = 0
        self.repeated = 0
        self.columns = BoxColumns()

    def run(self, file: AtomicFile | None) -> None:
        """Write the repaired shard to a file; None for nowhere.

        Raises:
            ShardError: a record is larger than may be held.
            WriteError: the file cannot be written.
            OSError: the shard cannot be read.
        """
        with self._shard.open() as stream:
            peeked = PeekedStream(stream, HEADER_BYTES)
            head = peeked.head
            note_compression(self._examiner, head, self._examiner.result.shard)
            compression = shard_compression(head) if head else Compression.NONE
            writer = RecordWriter(file, compression) if file is not None else None
            for payload in self._payloads(peeked):
                if writer is not None:
                    writer.write(payload)
        if self._as_it_is is not None:
            self._copy(file, self._as_it_is)
            return
        if writer is not None:
            writer.finish()
        if not self.written and compression is Compression.NONE:
            self._examiner.damaged(empty_file(self._examiner.result.shard))

    def _payloads(self, stream: BinaryIO | PeekedStream) -> Iterator[bytes]:
        """The records of the result."""
        shard, most = self._shard, self._orders.max_record_bytes
        batches = read_record_batch_stream(
            stream, shard.name, shard.size, on_damage=self._damaged, max_record_bytes=most
        )
        try:
            for records in batches:
                self.read += len(records)
                examples = ExampleBatch.of(records)
                said = self._said_of(examples)
                repaired = (self._repaired(examples, row, said[row]) for row in range(len(records)))
                payloads = [one for one in repaired if one is not None]
                if payloads:
                    self._examine(payloads)
                yield from payloads
        except ArchiveDamageError:
            pass  # the collector of the walk has been told; what was read is sound

    def _examine(self, payloads: list[bytes]) -> None:
        """Look at records of the result."""
        lengths = np.array([len(one) for one in payloads], np.int64)
        starts = np.cumsum(lengths + _FRAMING) - lengths - 4
        gap = bytes(_FRAMING)
        buffer = bytearray(bytes(HEADER_BYTES) + gap.join(payloads))
        result = self._examiner.result.shard
        batch = RecordBatch(result, self.written, self._offset, buffer, starts, lengths)
        self._examiner.look_at(batch)
        self.written += len(payloads)
        self._offset += int(lengths.sum()) + _FRAMING * len(payloads)

    def _damaged(self, damage: Damage) -> None:
        if damage.kind in (DamageKind.EMPTY, DamageKind.FOREIGN):
            self._as_it_is = damage
            return
        if damage.kind is DamageKind.OVERSIZE:
            raise replace(damage, fix="raise --max-record-bytes").to_error()
        what = "record dropped" if damage.kind is DamageKind.DATA_CRC else "dropped"
        change = Change(
            _CODE_OF_DAMAGE[damage.kind],
            f"{what}: {damage.cause}",
            before={"bytes": damage.skipped} if damage.skipped else None,
            # Stray bytes and zeros are no record.
            record_dropped=damage.kind
            in (
                DamageKind.DATA_CRC,
                DamageKind.LENGTH_CRC,
                DamageKind.TRUNCATED_RECORD,
                DamageKind.FORGED_LENGTH,
            ),
        )
        self._tally.add(change, Place(self._shard.name, damage.record, damage.offset))

    def _copy(self, file: AtomicFile | None, damage: Damage) -> None:
        """What is no shard stays as it is."""
        self._examiner.damaged(replace(damage, shard=self._examiner.result.shard))
        if file is not None:
            with self._shard.open() as stream:
                shutil.copyfileobj(stream, file, _STEP)

    def _repaired(
        self, examples: ExampleBatch, row: int, said: Sequence[tuple[str, str]]
    ) -> bytes | None:
        """The payload of a record as it is to be; None to leave the record out.

        Args:
            examples: a batch of records.
            row: which of them.
            said: codes and keys of what rules say of its features.
        """
        record = examples.records.record(row)
        place = Place(self._shard.name, record.number, record.offset)
        codes = self._orders.codes
        if not record.length and "TFR009" in codes:
            self._drop("TFR009", "record dropped: it had no byte", record, place)
            return None
        refused = examples.refused.get(row)
        if refused is not None:
            if refused.form is Form.SEQUENCE_EXAMPLE or "EXA001" not in codes:
                return bytes(record.payload)
            what = f"record dropped: it was no tf.train.Example ({refused.reason})"
            self._drop("EXA001", what, record, place)
            return None
        label_map = self._shard.label_map.label_map if self._shard.label_map else None
        repeated = [key for code, key in said if code == "EXA007"]
        found = frozenset(code for code, _ in said)
        draft = Draft(Example(examples, row), self._orders.profile, label_map, repeated, found)
        place = replace(place, item=draft.text(draft.field_mapping.filename) or None)
        changes = list(self._read_columns(draft))
        changes += mend(draft, codes)
        payload = draft.payload() if draft.is_changed else bytes(record.payload)
        if self._is_repeated(payload, draft):
            self.repeated += 1
            code = "IMG010" if draft.image else "NAM002"
            self._drop(code, "record dropped: one before it is the same byte for byte", record,
                       place)  # fmt: skip
            return None
        for change in changes:
            self._tally.add(change, place)
        self._tally.records_changed += bool(changes)
        return payload

    def _read_columns(self, draft: Draft) -> Iterator[Change]:
        """Read the boxes in the order that was asked for, and take note of them."""
        if self._orders.columns is not None:
            yield from read_columns(draft, self._orders.columns)
        boxes = draft.objects
        if boxes is not None:  # else none can be removed
            self.objects += len(boxes.corners)
            self.columns = self.columns.with_boxes(boxes)

    def _said_of(self, examples: ExampleBatch) -> list[list[tuple[str, str]]]:
        """What rules say of the features of each record: codes and keys."""
        found: list[list[tuple[str, str]]] = [[] for _ in range(len(examples))]
        live = np.ones(len(examples), bool)
        for rule, problem in judge(Features(examples, self._expected, live)):
            found[problem.row or 0].append((rule.code, problem.feature or ""))
        return found

    def _is_repeated(self, payload: bytes, draft: Draft) -> bool:
        """Whether the result has such a record already; remembers it otherwise."""
        code = "IMG010" if draft.image else "NAM002"
        if code not in self._orders.codes or not payload:
            return False
        if code == "NAM002" and not draft.text(draft.field_mapping.filename):
            return False  # nothing says that two such records are one
        digest = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False

    def _drop(self, code: str, what: str, record: Record, place: Place) -> None:
        change = Change(code, what, before={"bytes": record.length}, record_dropped=True)
        self._tally.add(change, place)
