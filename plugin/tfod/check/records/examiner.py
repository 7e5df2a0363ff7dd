"""One pass over the records of a shard, batch after batch, many rules.

A rule checks a batch as columns, or what recurs from record to record (a class text with its id, a
kind of image with its declared size), which is checked once for all records that share it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import numpy as np

from tfod.check.duplicates.row_blocks import RowCollector
from tfod.check.findings.finding import Place, Problem
from tfod.check.records.batch import Batch
from tfod.check.records.boxes import BoxProblems
from tfod.check.records.encoded_images import EncodedImage, EncodedImages
from tfod.check.records.examined import Examined, Instructions, Problems, ShardSummary, Use
from tfod.check.records.figures.details import DetailCounter
from tfod.check.records.figures.objects import ObjectFigures
from tfod.check.records.figures.statistics import bound, named_classes
from tfod.check.records.tensorflow_images import obstacle_to_decoding
from tfod.check.rules.boxes import (
    different_lengths,
    image_mask_of_another_size,
    object_mask_of_another_size,
    other_mask_values,
)
from tfod.check.rules.example import not_utf8, refused
from tfod.check.rules.hints.boxes import NearBoxes
from tfod.check.rules.images import (
    ImageFacts,
    check_decodes,
    check_sha256,
    check_size_known,
    needs_a_turn,
)
from tfod.check.rules.labels import ClassUse
from tfod.check.rules.names import NameFacts, large_number, not_a_number
from tfod.check.rules.references.fidelity import other_size
from tfod.check.rules.registry import Rule, RuleProblems, problems_of, rules_for
from tfod.check.rules.shards import empty_shard, zero_length_record
from tfod.detection import keys
from tfod.detection.boxes import BoxCounts
from tfod.detection.detections import Detections
from tfod.detection.images.image_header import ImageHeader
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.source_ids import odd_source_ids
from tfod.example.columns import ExampleBatch
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import RecordBatch

if TYPE_CHECKING:
    from tfod.check.records.predicted import PredictionComparison
    from tfod.check.records.tensorflow_engine import TensorFlowParser
    from tfod.check.references.annotations.annotations import Annotations

_Stated: TypeAlias = "tuple[ImageHeader | None, str | None, int | None, int | None]"
"""What an image's header says, and what its record says: format, height and width."""
_MOST_REMEMBERED = 1 << 14
_MANY_RECORDS = 1 << 10
_MANY_BYTES = 1 << 22
"""What is done once a batch is worth its time for so many records; of so many bytes none waits."""
# Letters of any script, digits and a few signs, and dots that neither begin nor follow a part.
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_PLAIN_NAMES = re.compile(r"(?:\w[\w ()/-]*(?:(?<!/)\.[\w ()/-]+)+\0)*")


class Examiner:
    """Looks at the records of one shard, in their order.

    Args:
        instructions: the same for all shards.
        shard: gets what its records show.
        label_map: that goes with it, if there is one.
        rows: takes what is to be remembered of each record.
        place: any number that tells its shard from others.
        numbered: whether it is one of a numbered set.
    """

    def __init__(
        self,
        instructions: Instructions,
        shard: ShardSummary,
        label_map: LabelMap | None,
        rows: RowCollector,
        *,
        place: int = 0,
        numbered: bool = False,
    ) -> None:
        self.instructions = instructions
        self._place = place
        self._numbered = numbered
        self._label_map = label_map
        self._rows = rows
        self._collector = instructions.collector()
        self.result = Examined(shard, self._collector.findings)
        if instructions.counts_objects:
            shard.objects = ObjectFigures()
        self._pending: list[tuple[ExampleBatch, EncodedImages]] = []
        self._pending_bytes = 0
        self._details = DetailCounter(shard.name) if instructions.hints else None
        self._known = instructions.known_problems(label_map)
        self._found: set[int] = set()
        self._predicted: PredictionComparison | None = None
        if instructions.predictions is not None:
            from tfod.check.records.predicted import PredictionComparison  # few checks need it

            self._predicted = PredictionComparison(
                instructions.predictions, label_map, instructions.most_duplicates
            )
            self.result.suspects = self._predicted.suspects
        self._parser: TensorFlowParser | None = None
        if instructions.with_tensorflow:
            from tfod.check.records.tensorflow_engine import TensorFlowParser

            self._parser = TensorFlowParser(instructions.profile.features)

    def damaged(self, damage: Damage) -> None:
        """Take note of a damage of the framing."""
        if damage.kind is DamageKind.EMPTY and self._numbered:
            # Writers leave such files where there are more shards than images.
            self.result.shard.is_empty_file = True
            self._collector.add_all(empty_shard(), Place(damage.shard))
            return
        self._collector.check(damage, Place(damage.shard, damage.record, damage.offset))

    def report(self, problems: RuleProblems, place: Place) -> None:
        """Keep what a rule says of the shard as a whole."""
        self._collector.add_all(problems, place)

    def look_at(self, records: RecordBatch) -> None:
        """Check a batch of records, or keep it until there are so many that it is worth while."""
        self.result.shard.records += len(records)
        if self._parser is not None:
            self._ask_tensorflow(records)
        examples = ExampleBatch.of(records)
        field_mapping = self.instructions.expectation.field_mapping
        found = Detections(examples, field_mapping)
        images = EncodedImages.of(found, self.instructions.decoding, self._place)
        if self._pending and self._pending[-1][0].records.end != records.first:
            self._look_at_pending()
        if self._pending or len(records) < _MANY_RECORDS:
            compacted = examples.compacted(field_mapping.encoded)
            self._pending.append((compacted, images))
            self._pending_bytes += compacted.nbytes
            first = self._pending[0][0].records.first
            if records.end - first >= _MANY_RECORDS or self._pending_bytes >= _MANY_BYTES:
                self._look_at_pending()
        else:
            self._look_at_batch(Batch(examples, images, self.instructions.expectation))

    def _look_at_pending(self) -> None:
        if self._pending:
            examples, images = zip(*self._pending, strict=True)
            self._pending.clear()
            self._pending_bytes = 0
            joined = ExampleBatch.joined(examples), EncodedImages.joined(images)
            self._look_at_batch(Batch(*joined, self.instructions.expectation))

    def _look_at_batch(self, batch: Batch) -> None:
        for row in np.flatnonzero(batch.records.lengths == 0).tolist():
            self._add(batch, row, zero_length_record())
        self.result.shard.keys |= batch.keys
        self._keep(batch, batch.features)
        self._look_at_images(batch)
        self._look_at_names(batch)
        self._look_at_boxes(batch)
        self._look_at_classes(batch)
        if self._details is not None:
            self._look_at_data(batch, self._details)
        self._rows.add(batch.rows)
        if self.instructions.annotations is not None:
            self._compare(batch, self.instructions.annotations)
        if self._predicted is not None:
            self._predicted.add(batch, self._place_of)

    def finish(self) -> Examined:
        """Return what is known."""
        self._look_at_pending()
        self._rows.flush()
        shard = self.result.shard
        self.result.statistics.classes = named_classes(self.result.uses, self._label_map)
        if self._details is not None:
            self.result.shapes = self._details.finish()
            self.result.statistics.details = self._details.details
        if shard.objects is not None:
            shard.objects = replace(shard.objects, classes=frozenset(self.result.uses))
        if self._parser is not None:
            self._report_refusals(self._parser.add(None, Place()))
        return self.result

    # What rules say

    def _place_of(self, batch: Batch, row: int) -> Place:
        records = batch.records
        name = batch.filenames[row] if batch.live[row] else None
        offset = records.base + int(records.starts[row]) - HEADER_BYTES
        return Place(self.result.shard.name, records.first + row, offset, name or None)

    def _check(self, batch: Batch, row: int, subject: object) -> None:
        self._add(batch, row, problems_of(subject))

    def _add(self, batch: Batch, row: int, problems: Iterable[tuple[Rule, Problem]]) -> None:
        """Keep what rules say of the features that the OD API has, by their names here."""
        self._report(batch, row, self._with_own_keys(problems))

    def _keep(self, batch: Batch, subject: object) -> None:
        """Keep what rules say of the rows of a batch."""
        for rule in rules_for(type(subject)):
            found = rule.check(subject)
            if isinstance(found, BoxProblems):
                room = self._collector.room(rule, len(found))
                self._collector.count(rule, self.result.shard.name, len(found) - room)
                found = itertools.islice(found, room)
            for one, problem in self._with_own_keys((rule, problem) for problem in found):
                self._collector.add(one, problem, self._place_of(batch, problem.row or 0))

    def _with_own_keys(self, problems: Iterable[tuple[Rule, Problem]]) -> Problems:
        return self.instructions.expectation.with_own_keys(problems)

    def _problems_of(self, facts: object) -> Problems:
        """The problems of facts that recur, looked for once."""
        known = self._known.get(facts)
        return self._remember(facts, facts) if known is None else known

    def _remember(self, key: object, facts: object) -> Problems:
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        problems = [one for one in problems_of(facts) if self._collector.applies(*one)]
        found = self._known[key] = self._with_own_keys(problems)
        return found

    def _report(self, batch: Batch, row: int, problems: Problems) -> None:
        if problems:
            self._collector.add_all(problems, self._place_of(batch, row))

    # Images

    def _look_at_images(self, batch: Batch) -> None:
        found, images = batch.detections, batch.images.by_row
        rows = batch.image_rows.tolist()
        missing = [row for row in rows if row not in images] if images else rows
        columns = (found.formats, found.heights, found.widths)
        if len(missing) == len(batch) and not any(
            self._problems_of(_missing((None, *one))) for one in set(zip(*columns, strict=True))
        ):
            return  # the usual shard of annotations alone
        stated = list(zip(found.headers, *columns, strict=True))
        for row in missing:
            self._report(batch, row, self._problems_of(_missing(stated[row])))
        for row in rows:
            if row in images:
                self._look_at_image(batch, row, images[row], stated[row])

    def _look_at_image(self, batch: Batch, row: int, image: EncodedImage, stated: _Stated) -> None:
        self.result.shard.images += 1
        self.result.shard.decoded += image.decoded
        header = image.header
        if header is None:
            facts = ImageFacts(image.length, None, image.looks, *stated[1:])
        else:
            turn = header.orientation >= 5 and needs_a_turn(batch.corners_of(row), header)
            facts = ImageFacts(-1, header, "", *stated[1:], boxes_need_a_turn=turn)
        self._report(batch, row, self._problems_of(facts))
        if image.look is not None:
            self._check(batch, row, image.look)
        checksum = batch.detections.sha256s[row]
        if checksum and checksum != image.sha256:
            self._add(batch, row, check_sha256(checksum, image.sha256))
        # Of one that is cut short, or of a kind that TensorFlow does not know, another rule tells.
        if image.failure and header and header.complete and not obstacle_to_decoding(header):
            self._add(batch, row, check_decodes(image.failure.reason))

    # Names

    def _look_at_names(self, batch: Batch) -> None:
        self._report_texts(batch)
        field_mapping = self.instructions.profile.field_mapping
        if field_mapping.filename is None:
            return
        rows = np.flatnonzero(batch.live).tolist()
        filenames, source_ids = batch.filenames, batch.source_ids
        if field_mapping.source_id is not None:
            self._look_at_numbers(batch, rows, field_mapping.source_id)
        formats = [one and one.format for one in batch.detections.headers]
        have_objects = (batch.box_counts > 0).tolist()
        # EXA003 or EXA005 reports a name that is missing, or several.
        if (
            _are_all(filenames)
            and _are_all(source_ids)
            and (endings := _plain_endings(filenames)) is not None
        ):
            has_blanks = "" in source_ids or any(map(str.isspace, source_ids))
            have_ids = {True, not has_blanks}
            kinds = itertools.product(endings, have_ids, set(formats), set(have_objects))
            # Rarely some kind that no record is of: then each record is looked at.
            if not any(map(self._has_problems, kinds)):
                return
        unnamed = set(
            batch.unnamed(field_mapping.filename, filenames, self.instructions.exa003_reports_names)
        )
        without_id = set(batch.unnamed(field_mapping.source_id, source_ids, True))
        facts = [
            NameFacts(
                filenames[row],
                None if row in unnamed else field_mapping.filename,
                source_ids[row],
                None if row in without_id else field_mapping.source_id,
                formats[row],
                has_objects=have_objects[row],
            )
            for row in rows
        ]
        for row, one in zip(rows, facts, strict=True):
            self._check(batch, row, one)

    def _look_at_numbers(self, batch: Batch, rows: Sequence[int], key: str) -> None:
        """Report the first source id that some receivers do not read as the number that it is."""
        texts = batch.source_ids if len(rows) == len(batch) else [batch.source_ids[x] for x in rows]
        for rule, found in zip((not_a_number, large_number), odd_source_ids(texts), strict=True):
            if found is not None:
                self._add(batch, rows[found], rule(texts[found] or "", key))

    def _has_problems(self, kind: tuple[str, bool, str | None, bool]) -> bool:
        """Whether plain names of a kind have problems: only the extension can be wrong."""
        field_mapping = self.instructions.profile.field_mapping
        ending, has_id, format_, has_objects = kind
        source_id = "id" if has_id else ""
        name = f"image.{ending}"
        facts = NameFacts(
            name, field_mapping.filename, source_id, field_mapping.source_id, format_, has_objects
        )
        return bool(self._problems_of(facts))

    def _report_texts(self, batch: Batch) -> None:
        """Report texts that are not UTF-8: of each feature of a record the first."""
        for row, key, value in batch.odd_texts():
            self._add(batch, row, not_utf8(key, value))

    # Objects

    def _look_at_boxes(self, batch: Batch) -> None:
        shard, statistics = self.result.shard, self.result.statistics
        shard.boxes += int(batch.stated_box_counts.sum())
        for row, lengths in batch.lengths:
            self._add(batch, row, different_lengths(lengths))
        for problem in batch.detections.problems:
            self._check(batch, problem.row, problem)
        for row, key, size, of_image in batch.odd_masks():
            one = object_mask_of_another_size if key == keys.MASK else image_mask_of_another_size
            self._add(batch, row, one(key, size, of_image))
        for row, largest in batch.mask_values(self.instructions.decoding):
            self._add(batch, row, other_mask_values(largest))
        boxes = batch.boxes
        if self.instructions.profile.field_mapping.height is not None:
            for row in np.flatnonzero(batch.without_size).tolist():
                self._add(batch, row, check_size_known(int(batch.stated_box_counts[row])))
        if len(boxes.corners):
            self._keep(batch, boxes)
            shard.box_figures += (
                BoxCounts(len(boxes.corners)) if boxes.are_proper else BoxCounts.of(boxes.corners)
            )
            shard.columns = shard.columns.with_boxes(boxes)
        if shard.objects is not None:
            shard.objects += ObjectFigures.of(batch, self.instructions.image_ids)
        live = batch.live
        statistics.add_boxes(boxes.corners, boxes.counts[live])
        statistics.add_images(boxes.height[live], boxes.width[live])

    def _look_at_classes(self, batch: Batch) -> None:
        """Check what names a class once for all objects that have it."""
        codes, uses = batch.uses
        counts = np.bincount(codes, minlength=len(uses)).tolist()
        result = self.result
        result.uses.update(dict(zip(uses, counts, strict=True)))
        result.uses = bound(result.uses, slack=2)
        problems = [self._problems_of_class(use) for use in uses]
        bad = [code for code, one in enumerate(problems) if one]
        if bad:
            rows = np.repeat(np.arange(len(batch)), batch.box_counts)
            for box in np.flatnonzero(np.isin(codes, bad)).tolist():
                place = self._place_of(batch, int(rows[box]))
                self._collector.add_all(problems[int(codes[box])], place)

    def _look_at_data(self, batch: Batch, details: DetailCounter) -> None:
        """Count what hints are about, and check what they say of single boxes."""
        codes, uses = batch.uses
        names = [next(iter(named_classes({use: 1}, self._label_map))) for use in uses]
        classes = details.codes_of(names)[codes]
        records = batch.records
        details.add(batch.boxes, classes, records.numbers, records.offsets, batch.filenames)
        details.count_formats(batch.detections.headers, batch.detections.formats, batch.live)
        self._keep(batch, NearBoxes(batch.boxes, classes, details.names))

    def _problems_of_class(self, use: Use) -> Problems:
        """The problems of a text and an id under the shard's label map, looked for once."""
        known = self._known.get(use)
        if known is None:
            known = self._remember(use, ClassUse(*use, self._label_map))
        return known

    def _compare(self, batch: Batch, annotations: Annotations) -> None:
        """Compare records with what they were made from."""
        from tfod.check.references.annotations.comparison import (  # few checks have annotations
            compare,
            sizes_of,
        )

        boxes, sizes = batch.boxes, batch.stated_sizes.tolist()
        for row in np.flatnonzero(batch.live).tolist():
            name = batch.filenames[row] or ""
            places = annotations.find(name)
            if id(places) not in self._found:  # of one name always the same tuple
                self._found.add(id(places))
                self.result.seen.update(places)
            start, end = boxes.bounds[row]
            height, width = map(_size, sizes[row])
            image_sizes = sizes_of(annotations, name, height, width)
            if image_sizes is not None:
                self._add(batch, row, other_size(*image_sizes))
            found = compare(
                annotations,
                name,
                height,
                width,
                boxes.corners[start:end],
                self._class_names(boxes.classes[row], end - start),
            )
            self._add(batch, row, found)

    def _class_names(self, classes: Sequence[object], count: int) -> list[str | None]:
        """Names of the classes of a record's boxes, by text or by id through the label map."""
        names: list[str | None] = []
        for one in classes or (None,) * count:
            if isinstance(one, int) and self._label_map is not None:
                item = self._label_map.find_id(one)
                one = item.class_name if item else None
            names.append(one if isinstance(one, str) else None)
        return names

    # TensorFlow's own word

    def _ask_tensorflow(self, records: RecordBatch) -> None:
        assert self._parser is not None
        for record in records.records():
            if record.length:
                place = Place(self.result.shard.name, record.number, record.offset)
                self._report_refusals(self._parser.add(bytes(record.payload), place))

    def _report_refusals(self, refusals: Iterable[tuple[Place, str]]) -> None:
        for where, reason in refusals:
            self._collector.add_all(refused(reason), where)


def _size(stated: float) -> int | None:
    return None if math.isnan(stated) else int(stated)


def _missing(stated: _Stated) -> ImageFacts:
    """The facts of a record without an image."""
    return ImageFacts(0, stated[0], "", *stated[1:])


def _are_all(names: list[str | None]) -> TypeGuard[list[str]]:
    """Whether every record has a name."""
    return None not in names


def _plain_endings(names: Sequence[str]) -> set[str] | None:
    """What is behind the last dots; None where a name is not a plain one."""
    # Most names of a shard differ by their numbers alone.
    shapes = "\0".join(names).encode().translate(_DIGITS).decode().split("\0")
    if len(shapes) != len(names):
        return None
    different = set(shapes)
    if _PLAIN_NAMES.fullmatch("\0".join([*different, ""])) is None:
        return None
    endings = {shape.rpartition(".")[2] for shape in different}
    return None if any("0" in one for one in endings) else endings
