"""The repair of one shard: its records read, mended, written, and looked at again."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from tfod.check.archive import ArchiveDamageError
from tfod.check.box_columns import BoxColumns, ColumnOrder
from tfod.check.examine import Examiner
from tfod.check.finding import Place
from tfod.check.layouts import Layouts
from tfod.check.profile import Profile
from tfod.check.shard_walk import WalkedShard
from tfod.check.values import value_count
from tfod.check.work import note_compression
from tfod.errors import RecordError
from tfod.example.example import Example
from tfod.example.wire import NotAnExampleError, SequenceExampleError
from tfod.shards.repair.boxes import read_columns
from tfod.shards.repair.changes import Change, Tally
from tfod.shards.repair.draft import Draft
from tfod.shards.repair.menders import mend
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.damage import HEADER_BYTES, Damage, DamageKind, empty_file
from tfod.tfrecord.records import Record, read_record_stream, shard_compression
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
        self._layouts = Layouts(orders.profile)
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
        records = read_record_stream(
            stream, shard.name, shard.size, on_damage=self._damaged, max_record_bytes=most
        )
        try:
            for record in records:
                self.read += 1
                payload = self._repaired(record)
                if payload is None:
                    continue
                kept = Record(self.written, self._offset, bytearray(payload), 0, len(payload))
                self._examiner.look_at(kept)
                self.written += 1
                self._offset += len(payload) + HEADER_BYTES + 4
                yield payload
        except ArchiveDamageError:
            pass  # the collector of the walk has been told; what was read is sound

    def _damaged(self, damage: Damage) -> None:
        if damage.kind in (DamageKind.EMPTY, DamageKind.FOREIGN):
            self._as_it_is = damage
            return
        if damage.kind is DamageKind.OVERSIZE:
            raise replace(damage, remedy="raise --max-record-bytes").to_error()
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

    def _repaired(self, record: Record) -> bytes | None:
        """The payload of a record as it is to be; None to leave the record out."""
        place = Place(self._shard.name, record.number, record.offset)
        codes = self._orders.codes
        if not record.length and "TFR009" in codes:
            self._drop("TFR009", "record dropped: it had no byte", record, place)
            return None
        try:
            draft = self._take_apart(record)
        except SequenceExampleError:
            return bytes(record.payload)
        except NotAnExampleError as error:
            if "EXA001" not in codes:
                return bytes(record.payload)
            self._drop("EXA001", f"record dropped: it was no tf.train.Example ({error})", record,
                       place)  # fmt: skip
            return None
        if draft is None:
            return bytes(record.payload)
        place = replace(place, item=draft.text(draft.roles.filename) or None)
        changes = list(self._read_columns(draft))
        changes += mend(draft, codes)
        payload = draft.payload() if draft.is_changed else bytes(record.payload)
        if self._is_repeated(payload, draft):
            self.repeated += 1
            code = "IMG010" if draft.picture else "NAM002"
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
            self.columns += BoxColumns.of(boxes)

    def _take_apart(self, record: Record) -> Draft | None:
        """The record to be mended; None where protobuf does not read what TensorFlow does.

        Raises:
            NotAnExampleError: TensorFlow does not take it apart.
        """
        start, end = record.start, record.start + record.length
        expected = self._orders.profile.features
        said = set()
        try:
            buffer, found, layout = self._layouts.take_apart(record.buffer, start, end)
            for key, span in found.items():
                spec = expected.get(key.decode("utf-8", "replace"))
                if spec is not None:
                    # All are read: of a damaged list TensorFlow takes nothing.
                    count = value_count(buffer, span)
                    said |= {"EXA005"} if spec.length not in (None, count) else set()
        except (NotAnExampleError, IndexError):
            layout = self._layouts.take_apart(record.buffer, start, end, is_usual=False)[2]
            said.add("EXA005")  # perhaps
        repeated = [one.feature or "" for rule, one in layout.said if rule.code == "EXA007"]
        said |= {rule.code for rule, _ in layout.said}
        label_map = self._shard.label_map.label_map if self._shard.label_map else None
        try:
            example = Example.of(record, self._shard.name)
            return Draft(example, self._orders.profile, label_map, repeated, frozenset(said))
        except RecordError:
            return None

    def _is_repeated(self, payload: bytes, draft: Draft) -> bool:
        """Whether the result has such a record already; remembers it otherwise."""
        code = "IMG010" if draft.picture else "NAM002"
        if code not in self._orders.codes or not payload:
            return False
        if code == "NAM002" and not draft.text(draft.roles.filename):
            return False  # nothing says that two such records are one
        digest = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False

    def _drop(self, code: str, what: str, record: Record, place: Place) -> None:
        change = Change(code, what, before={"bytes": record.length}, record_dropped=True)
        self._tally.add(change, place)
