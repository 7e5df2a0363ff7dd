"""Joined label maps of copied shards, and the class ids that change in the records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from tfod.detection import keys
from tfod.detection.columns import decode_text
from tfod.detection.detections import Detections
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import read_classes
from tfod.errors import LabelMapError, excerpt
from tfod.example.example import int64_feature
from tfod.example.example_batch import Column, ExampleBatch, copy_bytes, decode_texts
from tfod.example.wire import Kind

_TEXT_KEYS = {
    keys.CLASS_LABEL: keys.CLASS_TEXT,
    keys.IMAGE_CLASS_LABEL: keys.IMAGE_CLASS_TEXT,
    **dict.fromkeys(keys.IMAGE_ATTRIBUTES.values()),
}
"""Keys of class ids, each with the key of the class texts; None if the ids have no texts."""
_MASK_OF_CLASSES = keys.IMAGE_MASKS["panoptic_category"]


class JoinedClasses:
    """The ids that records get if their shards share one label map (:class:`Classes`).

    Args:
        files: label map file of each shard; None if it has no label map.
        base: label map whose ids are kept; None to join all label maps.

    Raises LabelMapError if a file is not a label map.
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
        """Return the encoded features whose ids change, by row and key.

        Raises RecordError for a record that is not an Example or has an id without a known class,
        and LabelMapError if a class text would get the id of a different class.
        """
        detections = Detections(batch)
        class_keys = {*_TEXT_KEYS, *_TEXT_KEYS.values()}
        invalid = {problem.row for problem in detections.problems if problem.key in class_keys}
        for row in sorted({*batch.unreadable, *invalid}):
            if error := detections.error(row):
                raise error
        if batch.lists and keys.KNOWN_KEYS.isdisjoint(batch.columns):
            cause = f"has none of {keys.ENCODED}, {keys.CLASS_LABEL}, …, so its classes are unknown"
            fix = "convert it to the OD API's keys first: datum convert"
            raise batch.error(0, cause, fix=fix)
        label_map = self._maps.get(self._files[batch.records.shard] or "")
        changes: dict[int, dict[str, bytes]] = {}
        for key, text_key in _TEXT_KEYS.items():
            ids = batch.column(key, Kind.INT64)
            new_ids = self._new_ids(batch, ids, text_key, label_map)
            rows = np.repeat(np.arange(len(batch)), ids.counts)
            for row in dict.fromkeys(rows[new_ids != ids.values].tolist()):
                start, stop = ids.row_splits[row : row + 2].tolist()
                changes.setdefault(row, {})[key] = int64_feature(new_ids[start:stop].tolist())
        if len(batch.column(_MASK_OF_CLASSES, Kind.BYTES).values):
            self.classes.require_same_ids(label_map, batch.records.shard)
        return changes

    def _new_ids(
        self, batch: ExampleBatch, ids: Column, text_key: str | None, label_map: LabelMap | None
    ) -> np.ndarray:
        """Return the ids that replace those of a column, int64 of the same length."""
        texts, texts_without_ids = _class_texts(batch, ids, text_key)
        labels: list[int] = ids.values.tolist()
        self.classes.ids(label_map, texts_without_ids, [None] * len(texts_without_ids))
        new_ids = self.classes.ids(label_map, texts, labels)
        for _, unknown in self.classes.unknown_ids:
            index = next(i for i, label in enumerate(labels) if label == unknown and not texts[i])
            row = int(np.searchsorted(ids.row_splits, index, "right")) - 1
            cause = f"has the id {unknown} without a class text, and the label map has no such id"
            fix = "put a label map with this id next to the shard, as label_map.pbtxt"
            raise batch.error(row, cause, feature=ids.key, fix=fix)
        for text, number in dict.fromkeys(zip(texts, new_ids, strict=True)):
            item = self.classes.label_map.find(text or "")
            if text and (item is None or item.id != number):
                raise LabelMapError(
                    f"{batch.records.shard}: the class {excerpt(text)} has id "
                    f"{item.id if item else 'none'} in the joined label map, but its objects would "
                    f"get id {number}; give the classes unique names"
                )
        return np.where(np.array(new_ids, np.int64) < 0, ids.values, new_ids)


def _class_texts(
    batch: ExampleBatch, ids: Column, key: str | None
) -> tuple[list[str | None], list[str]]:
    """Return the text of each id, None if its record has no texts, and the texts without ids."""
    if key is None:
        return [None] * len(ids.values), []
    column = batch.column(key, Kind.BYTES)
    texts = decode_texts(batch.buffer, column.values)
    if texts is None:
        texts = list(map(decode_text, copy_bytes(batch.buffer, column.values)))
    has_ids = np.repeat(ids.counts > 0, column.counts).tolist()
    remaining = itertools.compress(texts, has_ids)
    has_text = np.repeat(column.counts > 0, ids.counts).tolist()
    id_texts = [next(remaining) if is_named else None for is_named in has_text]
    return id_texts, [text for text, has_id in zip(texts, has_ids, strict=True) if not has_id]
