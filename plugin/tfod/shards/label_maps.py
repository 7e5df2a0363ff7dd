"""The label maps of shards that are copied, joined into one, and the ids in the records by it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from tfod.detection import keys
from tfod.detection.columns import lenient_text
from tfod.detection.detections import Detections
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import read_classes
from tfod.errors import LabelMapError
from tfod.example.example import int64_feature
from tfod.example.example_batch import Column, ExampleBatch, bytes_of, texts_of
from tfod.example.wire import Kind

_IDS = {
    keys.CLASS_LABEL: keys.CLASS_TEXT,
    keys.IMAGE_CLASS_LABEL: keys.IMAGE_CLASS_TEXT,
    **dict.fromkeys(keys.IMAGE_ATTRIBUTES.values()),
}
"""Where records have ids of classes, and where the texts beside them are, if anywhere."""
_MASK_OF_CLASSES = keys.IMAGE_MASKS["panoptic_category"]


class JoinedClasses:
    """The ids that records get if their shards have one label map (:class:`Classes`).

    Args:
        files: the file of each shard's label map, None if it has none.
        base: the label map whose ids are kept; None to make one of all label maps.

    Attributes:
        classes: all of them.
        notes: what is odd about the label maps.

    Raises:
        LabelMapError: a file is not a label map.
    """

    def __init__(self, files: Mapping[str, str | None], base: LabelMap | None = None) -> None:
        self.notes: list[str] = []
        self._files = files
        self._maps: dict[str, LabelMap] = {}
        for file in filter(None, dict.fromkeys(files.values())):
            self._maps[file], deviations = read_classes(file)
            self.notes += deviations
        self.classes = Classes(self._maps, base)

    def changes(self, batch: ExampleBatch) -> dict[int, dict[str, bytes]]:
        """By record the features of a batch whose ids are others now.

        Raises:
            RecordError: a record is no Example, or has an id that nothing explains.
            LabelMapError: a text would name another class.
        """
        detections = Detections(batch)
        wrong = {one.row for one in detections.problems if one.key in (*_IDS, *_IDS.values())}
        for row in sorted({*batch.refused, *wrong}):
            if error := detections.error(row):
                raise error
        if batch.lists and keys.KNOWN_KEYS.isdisjoint(batch.columns):
            what = f"holds none of {keys.ENCODED}, {keys.CLASS_LABEL}, …"
            fix = "convert it to the OD API's keys first: datum convert"
            raise batch.error(0, f"{what}, so its classes are unknown", fix=fix)
        label_map = self._maps.get(self._files[batch.records.shard] or "")
        changed: dict[int, dict[str, bytes]] = {}
        for key, text_key in _IDS.items():
            ids = batch.column(key, Kind.INT64)
            new = self._new_ids(batch, ids, text_key, label_map)
            rows = np.repeat(np.arange(len(batch)), ids.counts)
            for row in dict.fromkeys(rows[new != ids.values].tolist()):
                start, stop = ids.row_splits[row : row + 2].tolist()
                changed.setdefault(row, {})[key] = int64_feature(new[start:stop].tolist())
        if len(batch.column(_MASK_OF_CLASSES, Kind.BYTES).values):
            self.classes.require_same_ids(label_map, batch.records.shard)
        return changed

    def _new_ids(
        self, batch: ExampleBatch, ids: Column, text_key: str | None, label_map: LabelMap | None
    ) -> np.ndarray:
        """The ids that replace those of a column, int64 of its length."""
        texts, bare_texts = _texts_beside(batch, ids, text_key)
        labels: list[int] = ids.values.tolist()
        self.classes.ids(label_map, bare_texts, [None] * len(bare_texts))
        new = self.classes.ids(label_map, texts, labels)
        for _, label in self.classes.unknown_ids:
            at = next(n for n, one in enumerate(labels) if one == label and not texts[n])
            row = int(np.searchsorted(ids.row_splits, at, "right")) - 1
            cause = f"holds the id {label}, which its label map lacks and no text explains"
            fix = "put a label map that has it beside the shard, as label_map.pbtxt"
            raise batch.error(row, cause, feature=ids.key, fix=fix)
        for text, number in dict.fromkeys(zip(texts, new, strict=True)):
            item = self.classes.label_map.find(text or "")
            if text and (item is None or item.id != number):
                raise LabelMapError(
                    f"{batch.records.shard}: the class {text!r:.81} is that of id "
                    f"{item.id if item else 'none'} in the joined label map, and not that of id "
                    f"{number}; give the classes names of their own"
                )
        return np.where(np.array(new, np.int64) < 0, ids.values, new)


def _texts_beside(
    batch: ExampleBatch, ids: Column, key: str | None
) -> tuple[list[str | None], list[str]]:
    """The text beside each id, None if its record has no texts; and the texts without ids."""
    if key is None:
        return [None] * len(ids.values), []
    column = batch.column(key, Kind.BYTES)
    texts = texts_of(batch.buffer, column.values)
    if texts is None:
        texts = list(map(lenient_text, bytes_of(batch.buffer, column.values)))
    has_ids = np.repeat(ids.counts > 0, column.counts).tolist()
    remaining = itertools.compress(texts, has_ids)
    has_text = np.repeat(column.counts > 0, ids.counts).tolist()
    beside = [next(remaining) if is_named else None for is_named in has_text]
    return beside, [text for text, has_id in zip(texts, has_ids, strict=True) if not has_id]
