"""The index of a shard: the offset, the name and the classes of each record that is known."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from tfod.detection import keys
from tfod.detection.detections import Detections, read_image_labels
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.labels.label_map import LabelMap
from tfod.shards.show import name_class, name_label
from tfod.sources.resolved import Shard
from tfod.tfrecord.framing import FRAME_BYTES

UNREADABLE = -1
"""The offset of a damaged record."""


class ShardIndex:
    """The known records of a shard, in 8 bytes per record, 4 per class of it, and its name.

    Attributes:
        offsets: byte offset of each record, or `UNREADABLE`.
        by_class: numbers of the records with each class, ascending.
        mapping: keys of the records; None before the check reaches the shard.
    """

    def __init__(self, shard: Shard, label_map: LabelMap | None) -> None:
        self.shard, self.label_map = shard, label_map
        self.offsets = array("q")
        self.by_class: dict[str, array[int]] = {}
        self.mapping: FieldMapping | None = None
        self._next = 0, 0  # number and offset of the record after the last known one
        self._firsts: list[int] = []
        self._names: list[bytes] = []  # of each batch, which needs less memory than a list

    def add(self, detections: Detections, counts: Counter[str]) -> None:
        """Add a batch of records, and count the records of each class."""
        records = detections.examples.records
        self.mapping = detections.mapping
        self.put(records.end - 1)
        self.offsets[records.first : records.end] = array("q", records.offsets.tobytes())
        after = int(records.offsets[-1]) + int(records.lengths[-1]) + FRAME_BYTES
        self._next = max(self._next, (records.end, after))
        names = (name.replace("\0", " ") if name else "" for name in detections.filenames)
        self._firsts.append(records.first)
        self._names.append("\0".join(names).encode("utf-8", "replace"))
        for name, rows in self._find_classes(detections):
            numbers = self.by_class.setdefault(name, array("I"))
            numbers.extend(row + records.first for row in rows)
            counts[name] += len(rows)

    @property
    def has_batches(self) -> bool:
        """Whether the check has read records."""
        return bool(self._firsts)

    def put(self, number: int) -> None:
        """Add a record that cannot be read, and those before it, unless they are known."""
        self.offsets.extend([UNREADABLE] * (number + 1 - len(self.offsets)))

    def walk(self, read_length: Callable[[int], int | None], number: int) -> None:
        """Find the offsets up to a record from the headers of the records before it."""
        while len(self.offsets) <= number:
            known, offset = self._next
            length = read_length(offset)
            if length is None:
                return
            self.put(known)
            self.offsets[known] = offset
            self._next = known + 1, offset + length + FRAME_BYTES

    def get_name(self, number: int) -> str:
        """Return the file name of a record; empty if it has none or is not checked yet."""
        batch = bisect_right(self._firsts, number) - 1
        names = self._names[batch].split(b"\0") if batch >= 0 else []
        row = number - self._firsts[batch] if names else 0
        return names[row].decode("utf-8", "replace") if row < len(names) else ""

    def _find_classes(self, detections: Detections) -> Iterator[tuple[str, list[int]]]:
        """Yield the names of classes in a batch, and the rows that have an object or label."""
        parts: dict[str, list[np.ndarray]] = {}
        box_counts = np.diff(detections.box_splits)
        codes, uses = detections.class_uses(box_counts)
        rows = np.repeat(np.arange(len(detections)), box_counts)
        # Sorted by code, and each row once.
        pairs = np.unique(codes.astype(np.int64) * len(detections) + rows)
        starts = np.searchsorted(pairs, np.arange(1, len(uses), dtype=np.int64) * len(detections))
        for (text, label), part in zip(uses, np.split(pairs, starts), strict=bool(uses)):
            name = name_class(text or "", label, self.label_map)
            parts.setdefault(name, []).append(part % len(detections))
        label_keys = {keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL}
        has_labels = not label_keys <= detections.absent_keys
        for row in range(len(detections)) if has_labels else ():
            for image_label in () if detections.error(row) else read_image_labels(detections, row):
                name = name_label(image_label, self.label_map)
                parts.setdefault(name, []).append(np.array([row]))
        for name, arrays in parts.items():
            if name:
                yield name, np.unique(np.concatenate(arrays)).tolist()
