"""The records of a shard compared with what a detector predicts on their images."""

from __future__ import annotations

import numpy as np

from tfod.check.records.batch import Batch
from tfod.check.references.predictions.comparison import (
    TYPES,
    compare,
)
from tfod.check.references.predictions.predictions import Predictions
from tfod.check.references.predictions.suspects import Suspects, in_percent
from tfod.check.rules.references.predictions import Suspect
from tfod.detection.box_pairs import NO_CLASS, ranges
from tfod.detection.labels.label_map import LabelMap

_NEVER_PREDICTED = -2


class PredictionComparison:
    """Compares the batches of one shard; ``suspects`` is what they show."""

    def __init__(self, predictions: Predictions, label_map: LabelMap | None, most: int) -> None:
        self._predictions = predictions
        self._label_map = label_map
        self._by_name = {name: number for number, name in predictions.names.items()}
        self.suspects = Suspects(most)
        for category in np.unique(predictions.categories).tolist():
            item = label_map.find_id(category) if label_map else None
            name = predictions.names.get(category, item.class_name if item else "")
            if name:
                self.suspects.names[category] = name
            elif label_map is not None:
                self.suspects.nameless.add(category)

    def add(self, batch: Batch) -> None:
        """Compare a batch."""
        predictions, suspects = self._predictions, self.suspects
        boxes, live = batch.boxes, batch.live
        names = zip(batch.detections.source_ids, batch.detections.filenames, strict=True)
        places = (predictions.find(*one) for one in names)
        images = np.array([-1 if one is None else one for one in places], np.int64)
        images[~live] = -1
        suspects.seen.update(images[images >= 0].tolist())
        has_boxes = live & (boxes.counts > 0)
        suspects.records += int(has_boxes.sum())
        suspects.unmatched += int((has_boxes & (images < 0)).sum())

        codes, uses = batch.uses
        codes = np.append(codes, len(uses))  # of what is at place -1: no box, which has no class
        classes = [*(self._class_of(*use) for use in uses), (NO_CLASS, "")]
        categories = np.array([number for number, _ in classes], np.int64)[codes]
        starts = np.cumsum(boxes.counts) - boxes.counts
        sizes = predictions.sizes[images]
        sizes = np.where(np.isnan(sizes), np.stack((boxes.height, boxes.width), axis=-1), sizes)

        known = np.flatnonzero((images >= 0) & np.isfinite(sizes).all(axis=1))
        first = predictions.row_splits[images[known]]
        predicted = predictions.row_splits[images[known] + 1] - first
        limits = np.repeat(sizes[known], predicted, axis=0)[:, ::-1]
        suspects.add_units(predictions.boxes[ranges(first, predicted)], limits)

        def names_of(numbers: np.ndarray) -> list[str]:
            return [classes[code][1] for code in codes[numbers].tolist()]

        def describe(place: int) -> Suspect:
            number, score, row, box, other, confidence, overlap = found[place].tolist()
            kind: type[Suspect] = TYPES[number]
            return kind(
                score,
                batch.place(row),
                number=box - int(starts[row]) if box >= 0 else None,
                name=classes[codes[box]][1],
                confidence=confidence,
                predicted=self._name_of(int(predictions.categories[other])) if other >= 0 else "",
                corners=(predictions.boxes[other] / sizes[row, [1, 0, 1, 0]]).tolist()
                if other >= 0
                else (),
                overlap=overlap,
            )

        shard = batch.records.shard
        compared = compare(predictions, images, sizes, boxes.counts, boxes.corners, categories)
        for found, paired, others in compared:
            suspects.add(found, names_of(found["box"]), shard, describe)
            suspects.confidences.update(in_percent(predictions.scores[others]))
            own, predicted = categories[paired].tolist(), predictions.categories[others].tolist()
            suspects.pairs.update(zip(names_of(paired), own, predicted, strict=True))

    def _class_of(self, text: str | None, label: int | None) -> tuple[int, str]:
        item = None
        if self._label_map is not None:
            item = self._label_map.find(text) if text else self._label_map.find_id(label or 0)
        name = text or (item.class_name if item else f"#{label}")
        for known in (name, item.name if item else "", item.display_name if item else ""):
            if known in self._by_name:
                return self._by_name[known], name
        if self._by_name:
            return _NEVER_PREDICTED, name
        number = item.id if item else label
        return NO_CLASS if number is None else number, name

    def _name_of(self, category: int) -> str:
        return self.suspects.names.get(category, f"#{category}")
