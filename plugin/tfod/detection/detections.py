"""Detections in columns: what a batch of records says of its images, and what is wrong with it.

What cannot be read is a problem with its row and key (:mod:`tfod.detection.problems`), not an
exception: the checker reports problems; a row that has one raises it when it is asked for as a
:class:`~tfod.detection.detection.Detection`. A row is a view: nothing is checked when it is made.

Boxes are float32, normalized ``xmin, ymin, xmax, ymax``, x to the right and y down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, overload

import numpy as np

from tfod.detection import keys
from tfod.detection.attributes import attributes_of, column_of
from tfod.detection.box_geometry import normalized
from tfod.detection.columns import DetectionColumns
from tfod.detection.detection import Detection, ImageLabel, Keypoints, PngMask
from tfod.detection.problems import DetectionProblem, find_problems
from tfod.errors import RecordError
from tfod.example.example_batch import Column
from tfod.example.wire import Kind


class Detections(DetectionColumns, Sequence[Detection]):
    """The records of a batch as Detections; a row is a :class:`Detection`."""

    @cached_property
    def box_rows(self) -> np.ndarray:
        """Which records have boxes that can be read, bool of shape (records,)."""
        rows = np.ones(len(self), bool)
        rows[list(self.examples.refused)] = False
        rows[[one.row for one in self.problems if one.hides_boxes(self.mapping)]] = False
        return rows

    @cached_property
    def boxes(self) -> np.ndarray:
        """The boxes of all records that can be read, float32 of shape (n, 4)."""
        good, counts = self.box_rows, self.box_counts
        flat = self.flat_boxes
        columns = [self.column(key, Kind.FLOAT) for key in keys.BOX] if flat is None else [flat]
        lists = [one.values for one in columns]
        if not good.all():
            lists = [one.values[np.repeat(good, one.counts)] for one in columns]
        assert len({len(one) for one in lists}) == 1, counts
        # One column behind the other, which makes sums over the sides quick.
        values = np.stack(lists).T if flat is None else lists[0].reshape(-1, 4)
        if not self.has_pixel_boxes:
            return values
        sizes = np.repeat(self.sizes[good], counts[good], axis=0)
        return normalized(values, sizes, are_corners=flat is None)

    @cached_property
    def box_splits(self) -> np.ndarray:
        """Where the boxes of each record begin in :attr:`boxes`, and the end; int64."""
        counts = np.where(self.box_rows, self.box_counts, 0)
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))

    @cached_property
    def problems(self) -> list[DetectionProblem]:
        """What is wrong, in the order of the rows; of those with a case, records are read."""
        return find_problems(self)

    @cached_property
    def _first_problems(self) -> dict[int, DetectionProblem]:
        return {one.row: one for one in reversed(self.problems) if not one.case}

    @property
    def refused_rows(self) -> Set[int]:
        """The rows that are not read as a Detection."""
        return {*self.examples.refused, *self._first_problems}

    @cached_property
    def absent_keys(self) -> frozenset[str]:
        """Which of the keys of rare things no record of the batch has values of."""
        kinds = {
            keys.IMAGE_CLASS_TEXT: Kind.BYTES,
            keys.IMAGE_CLASS_LABEL: Kind.INT64,
            keys.KEYPOINT_X: Kind.FLOAT,
        }
        return frozenset(
            key for key, kind in kinds.items() if not self.column(key, kind).counts.any()
        )

    def error(self, row: int) -> RecordError | None:
        """The first problem of a record as an exception; None where it has none."""
        refusal = self.examples.refusal(row)
        found = self._first_problems.get(row)
        if refusal is not None or found is None:
            return refusal
        return self.examples.error(row, found.cause, feature=found.key, fix=found.fix)

    def __iter__(self) -> Iterator[Detection]:
        """The rows, in order.

        Raises:
            RecordError: one has a problem.
        """
        return map(self.__getitem__, range(len(self)))

    @overload
    def __getitem__(self, row: int) -> Detection: ...
    @overload
    def __getitem__(self, row: slice) -> list[Detection]: ...
    def __getitem__(self, row: int | slice) -> Detection | list[Detection]:
        """A row as a Detection, which copies no images and no masks.

        Raises:
            RecordError: the row has a problem.
        """
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        error = self.error(row)
        if error is not None:
            raise error
        return detection_of(self, row)


def detection_of(found: Detections, row: int) -> Detection:
    """A row that has no problem. Copies no images and no masks."""
    first, end = found.box_splits[row : row + 2].tolist()
    start, stop = found.encoded[row].tolist()
    records = found.examples.records
    texts = found.column(keys.CLASS_TEXT, Kind.BYTES)
    labels = found.column(keys.CLASS_LABEL, Kind.INT64)
    return Detection(
        filename=found.filenames[row],
        source_id=found.source_ids[row],
        format=found.formats[row],
        sha256=found.sha256s[row],
        height=found.heights[row],
        width=found.widths[row],
        encoded=memoryview(records.buffer)[start:stop] if start >= 0 else None,
        boxes=found.boxes[first:end],
        class_text=found.class_text_values[slice(*texts.row_splits[row : row + 2].tolist())]
        or _nothing(texts, row, end - first),
        class_label=labels[row].tolist() or _nothing(labels, row, end - first),
        **(_rare_fields(found, row, end - first) if found.other_keys else {}),
        warnings=found.warnings(row),
    )


def _nothing(column: Column, row: int, count: int) -> list[Any] | None:
    """Return what stands for no values: an empty list if no object needs one, None for no key."""
    return [] if column.has(row) and not count else None


def _rare_fields(found: Detections, row: int, count: int) -> dict[str, Any]:
    """The fields of a Detection that most records have no keys for."""
    there = found.other_keys_in(row)
    if not there:
        return {}
    attributes, extra = attributes_of(found, row, count)
    masks = found.column(keys.MASK, Kind.BYTES)
    numbers = found.column(keys.MASK, Kind.FLOAT)[row]
    return {
        "masks": _png_masks(found, masks[row].tolist()) or None,
        "numerical_masks": numbers.reshape(count, *found.sizes[row]) if len(numbers) else None,
        "keypoints": _keypoints(found, row, count),
        "image_extra": extra.image,
        "attributes": attributes,
        "drawn": extra.drawn,
        "image_labels": [
            replace(one, attributes=extra.labels[number]) if number in extra.labels else one
            for number, one in enumerate(image_labels_of(found, row))
        ],
        "captions": _captions(found, row),
        "image_masks": {
            name: mask
            for name, key in keys.IMAGE_MASKS.items()
            if key in there
            for mask in _png_masks(found, found.column(key, Kind.BYTES)[row].tolist())
            if mask is not None
        },
        "image_attributes": {
            name: found.column(key, Kind.INT64)[row].tolist()
            for name, key in keys.IMAGE_ATTRIBUTES.items()
            if key in there
        },
        "unread_keys": [key for key in there if _is_unread(found, key)],
    }


def _is_unread(found: Detections, key: str) -> bool:
    return not (
        key in keys.KNOWN_KEYS
        or key in found.mapping.all_keys
        or key.startswith(keys.ATTRIBUTE_PREFIX)
    )


def _png_masks(found: Detections, spans: Sequence[tuple[int, int]]) -> list[PngMask | None]:
    records = found.examples.records
    view = memoryview(records.buffer)
    return [
        PngMask(view[start : start + length], records.base + start) if length else None
        for start, length in spans
    ]


def _keypoints(found: Detections, row: int, count: int) -> Keypoints | None:
    if keys.KEYPOINT_X in found.absent_keys:
        return None
    column_x = found.column(keys.KEYPOINT_X, Kind.FLOAT)
    x, y = column_x[row], found.column(keys.KEYPOINT_Y, Kind.FLOAT)[row]
    if not len(x):
        return None
    visibility = found.column(keys.KEYPOINT_VISIBILITY, Kind.INT64)[row]
    if len(visibility) != len(x):
        # The OD API's decoder does the same: points that are numbers are visible.
        visibility = np.where(np.isfinite(x) & np.isfinite(y), 2, 0)
    names = found.texts_in(found.column(keys.KEYPOINT_TEXT, Kind.BYTES), row)
    points = len(x) // count
    return Keypoints(
        xy=np.stack((x, y), axis=-1).reshape(count, points, 2),
        visibility=visibility.reshape(count, points),
        names=tuple(names[:points]) if len(names) in (points, points * count) else (),
    )


def image_labels_of(found: Detections, row: int) -> list[ImageLabel]:
    """The classes of the whole image of a row that has no problem."""
    if {keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL} <= found.absent_keys:
        return []
    texts = found.texts_in(found.column(keys.IMAGE_CLASS_TEXT, Kind.BYTES), row)
    labels = found.column(keys.IMAGE_CLASS_LABEL, Kind.INT64)[row].tolist()
    if found.has_one_class and len(labels) > 1:
        labels = [labels.index(1)]  # a vector of zeros with a one in the place of the class
    confidences = found.column(keys.IMAGE_CLASS_CONFIDENCE, Kind.FLOAT)[row].tolist()
    nothing = [None] * (len(texts) or len(labels))
    columns = (texts or nothing, labels or nothing, confidences or nothing)
    return [ImageLabel(*one) for one in zip(*columns, strict=True)]


def _captions(found: Detections, row: int) -> list[str]:
    column = column_of(found.columns_of(keys.CAPTION), row)
    if column is not None and column.kind is not Kind.BYTES:
        found.note(row, f"{keys.CAPTION} is not a list of texts, not read")
    return found.texts_in(found.column(keys.CAPTION, Kind.BYTES), row)
