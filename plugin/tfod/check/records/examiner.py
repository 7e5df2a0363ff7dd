"""One pass over the records of a shard, batch after batch, many rules.

A rule checks a batch as columns, or what recurs from record to record (a class text with its id, a
kind of image with its declared size), which is checked once for all records that share it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tfod.check.duplicates.row_blocks import RowCollector, RowStore
from tfod.check.findings.finding import Place, Problem
from tfod.check.records.batch import Batch
from tfod.check.records.boxes import BoxProblems
from tfod.check.records.expectation import renamed_keys, with_own_keys
from tfod.check.records.images.encoded_images import EncodedImages
from tfod.check.records.images.tensorflow_images import obstacle_to_decoding
from tfod.check.records.instructions import Instructions
from tfod.check.records.objects import ObjectFigures
from tfod.check.records.result import Result, ShardSummary, Use
from tfod.check.records.statistics import bound, count_sizes
from tfod.check.rules import masks
from tfod.check.rules.boxes import different_lengths
from tfod.check.rules.example import Features, not_utf8
from tfod.check.rules.images import (
    ImageFacts,
    check_decodes,
    check_sha256,
    check_size_known,
    needs_a_turn,
)
from tfod.check.rules.labels import ClassUse
from tfod.check.rules.names import NameFacts, large_number, not_a_number
from tfod.check.rules.registry import Rule, RuleProblems, problems_of, rules_for
from tfod.check.rules.shards import empty_shard, zero_length_record
from tfod.detection import keys
from tfod.detection.boxes import BoxCounts
from tfod.detection.detections import Detections
from tfod.detection.images.image_header import ImageHeader
from tfod.detection.images.source_ids import odd_source_ids
from tfod.detection.labels.label_map import LabelMap
from tfod.example.columns import ExampleBatch
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.reader import RecordBatch

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
        store: keeps what is to be remembered of each record.
        place: any number that tells its shard from others.
        numbered: whether it is one of a numbered set.
    """

    def __init__(
        self,
        instructions: Instructions,
        shard: ShardSummary,
        label_map: LabelMap | None,
        store: RowStore,
        *,
        place: int = 0,
        numbered: bool = False,
    ) -> None:
        self.instructions = instructions
        self.shard = shard
        self._place = place
        self._numbered = numbered
        self._label_map = label_map
        self._collector = collector = instructions.collector()
        self.result = result = Result(
            instructions.max_findings, {shard.work: collector.findings}, {shard.work: [shard]}
        )
        self._rows = RowCollector(
            shard.work,
            shard.number,
            shard.subset,
            lambda block: result.blocks.append(store.keep(block)),
        )
        self._uses: Counter[Use] = Counter()
        if instructions.counts_objects:
            shard.objects = ObjectFigures()
        self._pending: list[tuple[ExampleBatch, EncodedImages]] = []
        self._pending_bytes = 0
        self._known = instructions.known_problems(label_map)
        self._mapping = instructions.profile.field_mapping
        self._renamed = renamed_keys(self._mapping)

    def damaged(self, damage: Damage) -> None:
        """Take note of a damage of the framing."""
        if damage.kind is DamageKind.EMPTY and self._numbered:
            # Writers leave such files where there are more shards than images.
            self.shard.is_empty_file = True
            self._collector.add_all(empty_shard(), Place(damage.shard))
            return
        self._collector.check(damage, Place(damage.shard, damage.record, damage.offset))

    def report(self, problems: RuleProblems, place: Place) -> None:
        """Keep what a rule says of the shard as a whole."""
        self._collector.add_all(problems, place)

    def look_at(self, records: RecordBatch) -> None:
        """Check a batch of records, or keep it until there are so many that it is worth while."""
        self.shard.records += len(records)
        examples = ExampleBatch.of(records)
        mapping = self._mapping
        found = Detections(examples, mapping)
        images = EncodedImages.of(found, self.instructions.decoding, self._place)
        if self._pending and self._pending[-1][0].records.end != records.first:
            self._look_at_pending()
        if self._pending or len(records) < _MANY_RECORDS:
            compacted = examples.compacted(mapping.encoded)
            self._pending.append((compacted, images))
            self._pending_bytes += compacted.nbytes
            first = self._pending[0][0].records.first
            if records.end - first >= _MANY_RECORDS or self._pending_bytes >= _MANY_BYTES:
                self._look_at_pending()
        else:
            self._look_at_batch(Batch(found, images, self.instructions.features))

    def _look_at_pending(self) -> None:
        if self._pending:
            examples, images = zip(*self._pending, strict=True)
            self._pending.clear()
            self._pending_bytes = 0
            joined = EncodedImages.joined(images)
            found = Detections(ExampleBatch.joined(examples), self._mapping, headers=joined.headers)
            self._look_at_batch(Batch(found, joined, self.instructions.features))

    def _look_at_batch(self, batch: Batch) -> None:
        for row in np.flatnonzero(batch.records.lengths == 0).tolist():
            self._add(batch, row, zero_length_record())
        self.shard.keys |= set(batch.examples.columns)
        self._keep(batch, Features(batch.examples, batch.expected, batch.live))
        self._look_at_images(batch)
        self._look_at_names(batch)
        self._look_at_boxes(batch)
        self._look_at_classes(batch)
        self._rows.add(batch.rows)

    def finish(self) -> Result:
        """Return what is known."""
        self._look_at_pending()
        self._rows.flush()
        shard, result = self.shard, self.result
        if shard.objects is not None:
            shard.objects = replace(shard.objects, classes=frozenset(self._uses))
        shard.has_defects = self._collector.findings.has_defects
        result.uses = {shard.label_map: self._uses}
        return result

    # What rules say

    def _check(self, batch: Batch, row: int, subject: object) -> None:
        self._add(batch, row, problems_of(subject))

    def _add(self, batch: Batch, row: int, problems: Iterable[tuple[Rule, Problem]]) -> None:
        """Keep what rules say of the features that the OD API has, by their names here."""
        self._report(batch, row, with_own_keys(problems, self._renamed))

    def _keep(self, batch: Batch, subject: object) -> None:
        """Keep what rules say of the rows of a batch."""
        for rule in rules_for(type(subject)):
            found = rule.check(subject)
            if isinstance(found, BoxProblems):
                room = self._collector.room(rule, len(found))
                self._collector.count(rule, self.shard.name, len(found) - room)
                found = itertools.islice(found, room)
            for one, problem in with_own_keys(((rule, each) for each in found), self._renamed):
                self._collector.add(one, problem, batch.place(problem.row or 0))

    def _problems_of(self, facts: object, key: object = None) -> RuleProblems:
        """The problems of facts that recur, looked for once; a ``key`` stands for the facts."""
        key = facts if key is None else key
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            problems = (one for one in problems_of(facts) if self._collector.applies(*one))
            known = self._known[key] = with_own_keys(problems, self._renamed)
        return known

    def _report(self, batch: Batch, row: int, problems: RuleProblems) -> None:
        if problems:
            self._collector.add_all(problems, batch.place(row))

    # Images

    def _look_at_images(self, batch: Batch) -> None:
        found, images = batch.detections, batch.images.by_row
        rows: list[int] = batch.image_rows.tolist()
        missing = [row for row in rows if row not in images] if images else rows
        columns = (found.formats, found.heights, found.widths)
        if len(missing) == len(batch) and not any(
            self._problems_of(_missing((None, *one))) for one in set(zip(*columns, strict=True))
        ):
            return  # the usual shard of annotations alone
        stated: list[_Stated] = list(zip(found.headers, *columns, strict=True))
        for row in missing:
            self._report(batch, row, self._problems_of(_missing(stated[row])))
        for row, image in ((row, images[row]) for row in rows if row in images):
            self.shard.images += 1
            self.shard.decoded += image.decoded
            header, said = image.header, stated[row][1:]
            if header is None:
                facts = ImageFacts(image.length, None, image.looks, *said)
            else:
                turn = header.orientation >= 5 and needs_a_turn(batch.boxes.of(row), header)
                facts = ImageFacts(-1, header, "", *said, boxes_need_a_turn=turn)
            self._report(batch, row, self._problems_of(facts))
            checksum = found.sha256s[row]
            if checksum and checksum != image.sha256:
                self._add(batch, row, check_sha256(checksum, image.sha256))
            # Of one that is cut short, or that TensorFlow does not know, another rule tells.
            failure = image.failure
            if failure and header and header.complete and not obstacle_to_decoding(header):
                self._add(batch, row, check_decodes(failure))

    # Names

    def _look_at_names(self, batch: Batch) -> None:
        for row, key, value in batch.odd_texts():
            self._add(batch, row, not_utf8(key, value))
        name_key, id_key = self._mapping.filename, self._mapping.source_id
        if name_key is None:
            return
        found, rows = batch.detections, np.flatnonzero(batch.live).tolist()
        filenames, source_ids = found.filenames, found.source_ids
        if id_key is not None:
            # The first one of the shard's that some receivers do not read as the number it is.
            texts = [source_ids[row] for row in rows]
            kinds = zip((not_a_number, large_number), odd_source_ids(texts), strict=True)
            for rule, odd in kinds:
                if odd is not None:
                    self._add(batch, rows[odd], rule(texts[odd] or "", id_key))
        formats = [one and one.format for one in found.headers]
        have_objects = (batch.box_counts > 0).tolist()
        if None not in filenames and None not in source_ids:
            is_blank = "" in source_ids or any(map(str.isspace, filter(None, source_ids)))
            ids = {"id", ""} if is_blank else {"id"}
            names = _plain_names(filenames)
            every = itertools.product(names, ids, set(formats), set(have_objects))
            # Rarely some kind that no record is of: then each record is looked at.
            if names and not any(
                self._problems_of(NameFacts(name, name_key, one, id_key, *others))
                for name, one, *others in every
            ):
                return
        # EXA003 or EXA005 reports a name that is missing, or several.
        unnamed = set(batch.unnamed(name_key, filenames, self.instructions.exa003_reports_names))
        without_id = set(batch.unnamed(id_key, source_ids, True))
        for row in rows:
            facts = NameFacts(
                filenames[row],
                None if row in unnamed else name_key,
                source_ids[row],
                None if row in without_id else id_key,
                formats[row],
                has_objects=have_objects[row],
            )
            self._check(batch, row, facts)

    # Objects

    def _look_at_boxes(self, batch: Batch) -> None:
        shard = self.shard
        shard.boxes += int(batch.stated_box_counts.sum())
        for row, lengths in batch.lengths:
            self._add(batch, row, different_lengths(lengths))
        for problem in batch.detections.problems:
            self._check(batch, problem.row, problem)
        for row, key, size, of_image in batch.odd_masks():
            one = masks.object_mask_size if key == keys.MASK else masks.image_mask_size
            self._add(batch, row, one(key, size, of_image))
        for row, number, header, looks in batch.odd_mask_bytes():
            self._add(batch, row, masks.not_a_png_mask(number, header, looks))
        for row, largest in batch.mask_values(self.instructions.decoding):
            self._add(batch, row, masks.other_mask_values(largest))
        for row, far, points in batch.far_keypoints():
            self._add(batch, row, masks.keypoints_in_pixels(far, points))
        boxes = batch.boxes
        if self._mapping.height is not None or self._mapping.has_pixel_boxes:
            for row in np.flatnonzero(batch.without_size).tolist():
                self._add(batch, row, check_size_known(int(batch.stated_box_counts[row])))
        if len(boxes.corners):
            self._keep(batch, boxes)
            shard.box_figures += (
                BoxCounts(len(boxes.corners)) if boxes.are_proper else BoxCounts.of(boxes.corners)
            )
            shard.columns = shard.columns.with_boxes(boxes)
        if shard.objects is not None:
            shard.objects += ObjectFigures.of(batch)
        sizes = self.result.image_sizes
        sizes.update(count_sizes(boxes.height[batch.live], boxes.width[batch.live]))
        self.result.image_sizes = bound(sizes, slack=2)

    def _look_at_classes(self, batch: Batch) -> None:
        """Check what names a class once for all objects that have it."""
        codes, uses = batch.uses
        counts = np.bincount(codes, minlength=len(uses)).tolist()
        self._uses.update(dict(zip(uses, counts, strict=True)))
        self._uses = bound(self._uses, slack=2)
        problems = [self._problems_of(ClassUse(*use, self._label_map), use) for use in uses]
        bad = [code for code, one in enumerate(problems) if one]
        if bad:
            rows = np.repeat(np.arange(len(batch)), batch.box_counts)
            for box in np.flatnonzero(np.isin(codes, bad)).tolist():
                place = batch.place(int(rows[box]))
                self._collector.add_all(problems[int(codes[box])], place)


def _missing(stated: _Stated) -> ImageFacts:
    return ImageFacts(0, stated[0], "", *stated[1:])


def _plain_names(names: Sequence[str | None]) -> set[str]:
    """A name for each ending behind the last dot; none where a name is not a plain one."""
    # Most names of a shard differ by their numbers alone.
    shapes = "\0".join(filter(None, names)).encode().translate(_DIGITS).decode().split("\0")
    different = set(shapes)
    if len(shapes) != len(names) or _PLAIN_NAMES.fullmatch("\0".join([*different, ""])) is None:
        return set()
    endings = {shape.rpartition(".")[2] for shape in different}
    return set() if any("0" in one for one in endings) else {f"image.{one}" for one in endings}
