"""One pass over the records of a shard, many rules.

Most records of a shard are alike. What a rule judges is therefore made a fact (the layout of a
record, a pair of class text and id, a picture's header with its declared size), equal facts are
judged once, and the boxes of many records are judged at once as arrays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tfod.check.batch import Batch, Row
from tfod.check.batch_judge import BatchJudge
from tfod.check.collector import Collector
from tfod.check.examined import Examined, Instructions
from tfod.check.finding import Place, Problem
from tfod.check.layouts import Features, KnownLayout
from tfod.check.picture_bytes import decode_failure, looks_like
from tfod.check.profile import Policy
from tfod.check.role_keys import Said
from tfod.check.row_blocks import RowCollector, hash_of_bytes
from tfod.check.rules.boxes import ListLengths
from tfod.check.rules.dataset import EmptyShard
from tfod.check.rules.example import NotAnExample, NotText, Refused
from tfod.check.rules.framing import EmptyRecord
from tfod.check.rules.images import PictureFacts, Sha256Facts, UnknownSize, need_a_turn
from tfod.check.rules.names import NameFacts
from tfod.check.rules.registry import Rule, all_rules, judge
from tfod.check.tensorflow_pictures import obstacle_to_decoding
from tfod.check.values import (
    byte_values,
    int_values,
    pixel_box_sides,
    side_bytes,
    single_value,
    text_values,
    value_count,
)
from tfod.detection.label_map import LabelMap
from tfod.detection.picture import PictureHeader, read_picture_header
from tfod.example.wire import (
    Buffer,
    NotAnExampleError,
    SequenceExampleError,
)
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.records import Record

if TYPE_CHECKING:
    from tfod.check.tensorflow_engine import TensorFlowParser

_SMALL = 1 << 13
_MOST_REMEMBERED = 1 << 14
_NO_SIDES = (b"", b"", b"", b"")
_NO_OBJECTS: tuple[Sequence[bytes], int, Sequence[str], Sequence[int]] = (_NO_SIDES, 0, (), ())
# Letters of any script, digits and a few signs, and dots that neither begin nor follow a part.
_PLAIN_NAME = re.compile(r"\w[\w ()/-]*(?:(?<!/)\.[\w ()/-]+)*")
_row = Row._make
_NO_RECORD = Record(-1, -1, bytearray(), 0, 0)
Size: TypeAlias = "tuple[int | None, int | None]"


class Examiner:
    """Looks at the records of one shard, in their order."""

    def __init__(
        self,
        instructions: Instructions,
        shard: str,
        label_map: LabelMap | None,
        rows: RowCollector,
        *,
        place: int = 0,
        numbered: bool = False,
    ) -> None:
        self.instructions = instructions
        self._place = place
        self._decoding = instructions.decoding
        self._says_no_name = _is_said_by_exa003(instructions.policy)
        self._collector = Collector(instructions.policy, instructions.max_findings)
        self.result = Examined(shard, self._collector.findings)
        self._numbered = numbered
        self._layouts, self._keys = instructions.layouts, instructions.role_keys
        self._verdicts: dict[tuple[Any, ...], Said] = {}
        self._good_names: set[tuple[str, bool, str | None, str | None]] = set()
        self._batch = Batch()
        self._rows = rows
        self._batch_judge = BatchJudge(
            self.result, rows, self._collector, self._keys, label_map, instructions.annotations
        )
        self._record = _NO_RECORD
        self._item: str | None = None
        self._shape_is_wrong = False
        self._pending: list[tuple[Rule, Problem]] = []
        self._facts: tuple[Any, ...] | None = None
        self._parser: TensorFlowParser | None = None
        if instructions.with_tensorflow:
            from tfod.check.tensorflow_engine import TensorFlowParser

            self._parser = TensorFlowParser(instructions.profile.features)

    def damaged(self, damage: Damage) -> None:
        """Take note of a damage of the framing."""
        if damage.kind is DamageKind.EMPTY and self._numbered:
            # Writers leave such files where there are more shards than pictures.
            self.result.is_empty_file = True
            self._collector.judge(EmptyShard(numbered=True), Place(damage.shard))
            return
        self._collector.judge(damage, Place(damage.shard, damage.record, damage.offset))

    def judge_at(self, subject: object, place: Place) -> None:
        """Judge something that concerns the shard as a whole."""
        self._collector.judge(subject, place)

    def look_at(self, record: Record) -> None:
        """Judge one record."""
        self._record, self._item = record, None
        self.result.records += 1
        length = record.length
        if not length:
            self.judge_at(EmptyRecord(), Place(self.result.shard, record.number, record.offset))
            return
        buffer: Buffer = record.buffer
        start = record.start
        if length <= _SMALL:
            # Bytes of its own are quicker to cut up than a piece of the reader's buffer.
            buffer, start = bytes(record.payload), 0
        if self._parser is not None:
            self._ask_tensorflow(bytes(record.payload))
        result = self.result
        counts = result.pictures, result.decoded, result.boxes
        try:
            self._look_at_features(*self._layouts.take_apart(buffer, start, start + length))
        except (NotAnExampleError, IndexError):
            # A list is damaged, which matters only if TensorFlow looks at it as well.
            self._pending.clear()
            result.pictures, result.decoded, result.boxes = counts
            self._look_carefully(buffer, start, start + length)
        if self._pending:
            place = Place(self.result.shard, record.number, record.offset, self._item)
            self._collector.add_all(self._pending, place)
            self._pending.clear()

    def _look_carefully(self, buffer: Buffer, start: int, end: int) -> None:
        """Judge a record as TensorFlow takes it apart."""
        try:
            parts = self._layouts.take_apart(buffer, start, end, is_usual=False)
            self._look_at_features(*parts)
        except NotAnExampleError as error:
            self._judge(NotAnExample(str(error), isinstance(error, SequenceExampleError)))

    def finish(self) -> Examined:
        """Judge what is left of the batch; return what is known."""
        self._judge_batch()
        self._rows.flush()
        if self._parser is not None:
            self._ask_tensorflow(None)
        return self.result

    def _look_at_features(self, buffer: Buffer, features: Features, layout: KnownLayout) -> None:
        keys = self._keys
        if not layout.keys <= self.result.keys:
            self.result.keys |= layout.keys
        filename = self._name(buffer, features, keys.filename)
        self._item = filename or None
        source_id = self._name(buffer, features, keys.source_id)
        size = (
            self._integer(buffer, features, keys.height),
            self._integer(buffer, features, keys.width),
        )
        picture, format_, self._facts = 0, None, None
        if keys.encoded is not None:
            format_, size, picture = self._look_at_picture(buffer, features, layout, size)
        sides, boxes, texts, labels = self._objects(buffer, features, layout, size)
        if self._facts is not None:
            header = self._facts[1]
            turn = header is not None and header.orientation >= 5 and need_a_turn(sides, header)
            self._judge_facts((*self._facts, None, turn))
        if boxes and None in size and keys.height is not None:
            self._judge(UnknownSize(boxes))
        self._look_at_names(filename, source_id, format_, features, layout, bool(boxes))
        for key, count in layout.counted:
            if key in features and count not in (None, value_count(buffer, features[key])):
                self._shape_is_wrong = True
        if layout.said:
            self._keep(layout.said)
        if self._shape_is_wrong:
            self._shape_is_wrong = False
            self._keep(self._layouts.shape_problems(buffer, features))
        record = self._record
        row = _row((record.number, record.offset, filename, source_id, picture, *size, boxes, texts,
                    labels))  # fmt: skip
        if self._batch.add(row, sides):
            self._judge_batch()

    def _name(self, buffer: Buffer, features: Features, key: bytes | None) -> str | None:
        """A feature of one text that differs from record to record."""
        if key is None or key not in features:
            return None
        span = features[key]
        value = single_value(buffer, span)
        if value is None:
            self._shape_is_wrong = True
            return None
        raw = buffer[value[0] : value[1]]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._judge(NotText(key.decode("utf-8", "replace"), bytes(raw)))
            return raw.decode("latin-1")

    def _integer(self, buffer: Buffer, features: Features, key: bytes | None) -> int | None:
        span = features.get(key) if key is not None else None
        if span is None:
            return None
        values = int_values(buffer, span)
        if len(values) != 1:
            self._shape_is_wrong = True
            return None
        return values[0]

    def _look_at_picture(
        self, buffer: Buffer, features: Features, layout: KnownLayout, size: Size
    ) -> tuple[str | None, Size, int]:
        """Judge the encoded picture, but for the facts that are judged when its boxes are known.

        Returns:
            Its format, its size where the record says none, and the hash of its bytes.
        """
        roles = self._keys
        if roles.encoded in layout.unreadable:
            return None, size, 0  # which EXA004 has said
        span = features.get(roles.encoded)  # type: ignore[arg-type]
        value = single_value(buffer, span) if span else None
        if value is None:
            self._shape_is_wrong = self._shape_is_wrong or span is not None
            if roles.names.encoded in layout.missing:
                return None, size, 0  # which EXA003 has said
        start, end = value or (0, 0)
        header = read_picture_header(buffer, start, end) if end > start else None
        declared = self._recurring_text(buffer, features, roles.format)
        look = looks_like(buffer, start, end) if header is None and end > start else ""
        self._facts = (-1 if header is not None else end - start, header, look, declared, *size)
        checksum = self._name(buffer, features, roles.sha256)
        if end == start:
            return None, size, 0
        self.result.pictures += 1
        if checksum:
            actual = hashlib.sha256(memoryview(buffer)[start:end]).hexdigest()
            if actual != checksum:
                self._judge(Sha256Facts(checksum, actual))
        if header is None:
            return None, size, hash_of_bytes(buffer, start, end)
        if self._decoding.has(self._place, self._record.number):
            self._decode(memoryview(buffer)[start:end], header)
        if not size[0] or not size[1]:
            size = header.height, header.width
        return header.format, size, hash_of_bytes(buffer, start, end)

    def _decode(self, data: memoryview, header: PictureHeader) -> None:
        """Decode a picture, unless that costs much more than its bytes are worth."""
        if not self._decoding.is_cheap(header.height, header.width, len(data)):
            return
        self.result.decoded += 1
        failure = decode_failure(data)
        # Of one that is cut short, or of a kind that TensorFlow does not know, another rule tells.
        if failure is not None and header.complete and not obstacle_to_decoding(header):
            self._judge(failure)

    def _recurring_text(self, buffer: Buffer, features: Features, key: bytes | None) -> str | None:
        """A feature of one text that most records share."""
        span = features.get(key) if key is not None else None
        if span is None:
            return None
        texts = text_values(buffer, span)
        return texts[0] if texts and len(texts) == 1 else self._name(buffer, features, key)

    def _look_at_names(
        self,
        filename: str | None,
        source_id: str | None,
        format_: str | None,
        features: Features,
        layout: KnownLayout,
        has_objects: bool,
    ) -> None:
        keys = self._keys.names
        if keys.filename is None:
            return
        # EXA003 or EXA005 has said it of a name that is not there, or of several.
        filename_key, source_id_key = (
            None
            if (key in layout.missing and said)
            or (value is None and self._is_told(raw_key, features, layout))
            else key
            for key, raw_key, value, said in (
                (keys.filename, self._keys.filename, filename, self._says_no_name),
                (keys.source_id, self._keys.source_id, source_id, True),
            )
        )
        known = None
        if filename and _PLAIN_NAME.fullmatch(filename):
            # Of a plain name only the extension can be wrong, and few of those there are.
            has_id = bool(source_id and source_id.strip())
            known = filename.rpartition(".")[2], has_id, source_id_key, format_
            if known in self._good_names:
                return
        names = NameFacts(
            filename, filename_key, source_id, source_id_key, format_, has_objects=has_objects
        )
        found = list(judge(names))
        if found:
            self._keep(found)
        elif known is not None and len(self._good_names) < _MOST_REMEMBERED:
            self._good_names.add(known)

    @staticmethod
    def _is_told(key: bytes | None, features: Features, layout: KnownLayout) -> bool:
        """Whether a name is there, but of another kind or shape, which is another rule's."""
        return key in features or key in layout.unreadable

    def _objects(
        self, buffer: Buffer, features: Features, layout: KnownLayout, size: Size
    ) -> tuple[Sequence[bytes], int, Sequence[str], Sequence[int]]:
        """The sides of the boxes, how many there are, and what names their classes.

        Nothing where the lists do not go together, which is told.
        """
        keys = self._keys
        if not keys.box or not layout.unreadable.isdisjoint(keys.box):
            return _NO_OBJECTS
        sides: Sequence[bytes]
        if len(keys.box) == 1:
            span = features.get(keys.box[0])
            sides = (span and pixel_box_sides(buffer, span, size)) or _NO_SIDES
        else:
            sides = [
                side_bytes(buffer, features[key]) if key in features else b"" for key in keys.box
            ]
        texts = self._texts(buffer, features, keys.class_text)
        label_key = keys.class_label
        labels: Sequence[int] = ()
        if label_key is not None and label_key in features:
            labels = int_values(buffer, features[label_key])
        length = len(sides[0])
        count = length >> 2
        self.result.boxes += count
        if (
            len(texts) not in (0, count)
            or len(labels) not in (0, count)
            or len(sides[1]) != length
            or len(sides[2]) != length
            or len(sides[3]) != length
            or layout.object_lists
        ) and self._lengths_differ(buffer, features, layout, sides, len(texts), len(labels)):
            return _NO_OBJECTS
        return sides, count, texts, labels

    def _texts(self, buffer: Buffer, features: Features, key: bytes | None) -> Sequence[str]:
        if key is None or key not in features:
            return ()
        span = features[key]
        texts = text_values(buffer, span)
        if texts is None:
            values = byte_values(buffer, span)
            odd = next(value for value in values if not _is_utf8(value))
            self._judge(NotText(key.decode("utf-8", "replace"), odd))
            texts = tuple(value.decode("utf-8", "replace") for value in values)
        return texts

    def _lengths_differ(
        self,
        buffer: Buffer,
        features: Features,
        layout: KnownLayout,
        sides: Sequence[bytes],
        texts: int,
        labels: int,
    ) -> bool:
        """Judge the lengths of all lists over the objects; those of no value do not count."""
        names = self._keys.names
        lengths = list(zip(names.box, (len(side) >> 2 for side in sides), strict=False))
        optional = [(names.class_text or "", texts), (names.class_label or "", labels)]
        optional += [
            (name, value_count(buffer, features[key])) for name, key in layout.object_lists
        ]
        lengths += [(name, length) for name, length in optional if length]
        if len({length for _, length in lengths}) == 1:
            return False
        self._judge(ListLengths(tuple(lengths)))
        return True

    def _judge_batch(self) -> None:
        batch, self._batch = self._batch, Batch()
        self._batch_judge.judge(batch)

    def _ask_tensorflow(self, payload: bytes | None) -> None:
        """Hand a record to TensorFlow; None for the end."""
        assert self._parser is not None
        record = self._record
        place = Place(self.result.shard, record.number, record.offset)
        for where, reason in self._parser.add(payload, place):
            self._collector.judge(Refused(reason), where)

    def _judge_facts(self, facts: tuple[Any, ...]) -> None:
        """Judge what recurs from record to record: the values of PictureFacts."""
        said = self._verdicts.get(facts)
        if said is None:
            if len(self._verdicts) >= _MOST_REMEMBERED:
                self._verdicts.clear()
            said = self._verdicts[facts] = self._keys.in_own_words(judge(PictureFacts(*facts)))
        if said:
            self._keep(said)

    def _judge(self, subject: object) -> None:
        said = list(judge(subject))
        if said:
            self._keep(said)

    def _keep(self, said: Said) -> None:
        self._pending += said


def _is_said_by_exa003(policy: Policy) -> bool:
    """Whether EXA003 says no less severely than NAM001 that a file name is missing."""
    name, feature = (policy.severity(all_rules()[code]) for code in ("NAM001", "EXA003"))
    return name is None or (feature is not None and feature.rank >= name.rank)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
