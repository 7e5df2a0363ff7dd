"""Judges the boxes and classes of many records at once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from tfod.check.annotations import Annotations
from tfod.check.batch import Batch
from tfod.check.box_columns import BoxColumns
from tfod.check.collector import Collector
from tfod.check.comparison import compare
from tfod.check.examined import Examined, Use
from tfod.check.kinds import MOST_KINDS, bound
from tfod.check.role_keys import RoleKeys, Said
from tfod.check.row_blocks import RowCollector
from tfod.check.rules.boxes import Boxes
from tfod.check.rules.labels import ClassUse
from tfod.check.rules.registry import judge
from tfod.detection.label_map import LabelMap
from tfod.detection.pixel_boxes import BoxTally


class BatchJudge:
    """Judges the batches of one shard.

    Args:
        result: takes the figures.
        rows: takes what is to be remembered of each record.
        collector: takes the findings.
        role_keys: how the profile calls things.
        label_map: of the shard.
        annotations: what the shard was made from, if it is to be compared.
    """

    def __init__(
        self,
        result: Examined,
        rows: RowCollector,
        collector: Collector,
        role_keys: RoleKeys,
        label_map: LabelMap | None,
        annotations: Annotations | None,
    ) -> None:
        self._result = result
        self._rows = rows
        self._collector = collector
        self._role_keys = role_keys
        self._label_map = label_map
        self._annotations = annotations
        self._judged_uses: set[Use] = set()
        self._bad_uses: dict[Use, Said] = {}
        self._found: set[int] = set()

    def judge(self, batch: Batch) -> None:
        """Judge the records of a batch, and remember what is asked for at the end."""
        result = self._result
        self._rows.add(batch.rows)
        boxes = batch.to_boxes()
        if len(boxes.corners):  # a zip may have 100,000 shards without a box
            for rule, problem in self._role_keys.in_own_words(judge(boxes)):
                self._collector.add(rule, problem, batch.place(problem.row or 0, result.shard))
            result.box_tally += BoxTally.of(boxes.corners)
            result.columns += BoxColumns.of(boxes)
        result.statistics.add_boxes(boxes.corners, boxes.counts)
        result.statistics.add_pictures(boxes.height, boxes.width)
        self._judge_classes(batch)
        if self._annotations is not None:
            self._compare(batch, boxes, self._annotations)

    def _judge_classes(self, batch: Batch) -> None:
        """Judge what has not been used before; tell of each record that uses what is wrong."""
        uses = batch.uses()
        counts = Counter(uses)
        if len(self._judged_uses) > MOST_KINDS:
            self._judged_uses.clear()
            self._bad_uses.clear()
        for use in counts.keys() - self._judged_uses:
            self._judged_uses.add(use)
            said = self._role_keys.in_own_words(judge(ClassUse(*use, self._label_map)))
            if said:
                self._bad_uses[use] = said
        result = self._result
        result.uses.update(counts)
        result.uses = bound(result.uses, slack=2)
        if self._bad_uses and not self._bad_uses.keys().isdisjoint(counts):
            following = iter(uses)
            for number, row in enumerate(batch.rows):
                for use in itertools.islice(following, row.boxes):
                    if use in self._bad_uses:
                        place = batch.place(number, result.shard)
                        self._collector.add_all(self._bad_uses[use], place)

    def _compare(self, batch: Batch, boxes: Boxes, annotations: Annotations) -> None:
        """Compare records with what they were made from."""
        for number, (row, (start, end)) in enumerate(zip(batch.rows, boxes.bounds, strict=True)):
            places = annotations.find(row.filename or "")
            if id(places) not in self._found:  # of one name always the same tuple
                self._found.add(id(places))
                self._result.seen.update(places)
            found = compare(
                annotations,
                row.filename or "",
                row.height,
                row.width,
                boxes.corners[start:end],
                self._class_names(boxes.classes[number], end - start),
            )
            if found is not None:
                self._collector.judge(found, batch.place(number, self._result.shard))

    def _class_names(self, classes: Sequence[object], count: int) -> list[str | None]:
        """Names of the classes of a record's boxes, by text or by id through the label map."""
        names: list[str | None] = []
        for one in classes or (None,) * count:
            if isinstance(one, int) and self._label_map is not None:
                item = self._label_map.find_id(one)
                one = item.class_name if item else None
            names.append(one if isinstance(one, str) else None)
        return names
