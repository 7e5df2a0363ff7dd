"""Detections in columns: the annotations of a batch of records, and their problems.

Unreadable values are problems with a row and a key (:mod:`tfod.detection.problems`). The checker
reports them; reading such a row as a Detection raises an error. Creating a batch checks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, overload

import numpy as np

from tfod.detection import keys
from tfod.detection.attributes import find_column, read_attributes
from tfod.detection.box_geometry import normalize_boxes
from tfod.detection.columns import DetectionColumns
from tfod.detection.detection import Detection, ImageLabel, Keypoints, PngMask
from tfod.detection.problems import DetectionProblem, find_problems
from tfod.errors import RecordError
from tfod.example.example_batch import Column
from tfod.example.wire import Kind


class Detections(DetectionColumns, Sequence[Detection]):
    """A batch of records as a sequence of :class:`Detection`."""

    @cached_property
    def box_rows(self) -> np.ndarray:
        """Whether the boxes of each record can be read, bool of shape (records,)."""
        rows = np.ones(len(self), bool)
        rows[list(self.examples.unreadable)] = False
        rows[[x.row for x in self.problems if x.hides_boxes(self.mapping)]] = False
        return rows

    @cached_property
    def boxes(self) -> np.ndarray:
        """The boxes of all readable records, float32 of shape (n, 4)."""
        readable, counts = self.box_rows, self.box_counts
        flat = self.flat_boxes
        columns = [self.column(key, Kind.FLOAT) for key in keys.BOX] if flat is None else [flat]
        lists = [column.values for column in columns]
        if not readable.all():
            lists = [x.values[np.repeat(readable, x.counts)] for x in columns]
        assert len({*map(len, lists)}) == 1, counts
        # Column-major order makes sums over the sides fast.
        values = np.stack(lists).T if flat is None else lists[0].reshape(-1, 4)
        if not self.has_pixel_boxes:
            return values
        sizes = np.repeat(self.sizes[readable], counts[readable], axis=0)
        return normalize_boxes(values, sizes, are_corners=flat is None)

    @cached_property
    def box_splits(self) -> np.ndarray:
        """The start of each record's boxes in :attr:`boxes`, and the end; intp."""
        counts = np.where(self.box_rows, self.box_counts, 0)
        return np.concatenate((np.zeros(1, np.intp), np.cumsum(counts)))

    @cached_property
    def problems(self) -> list[DetectionProblem]:
        """The problems by row; a record whose problems all have a case can still be read."""
        return find_problems(self)

    @cached_property
    def _first_problems(self) -> dict[int, DetectionProblem]:
        return {x.row: x for x in reversed(self.problems) if not x.case}

    @property
    def unreadable_rows(self) -> Set[int]:
        """The rows that cannot be read as a Detection."""
        return {*self.examples.unreadable, *self._first_problems}

    @cached_property
    def absent_keys(self) -> frozenset[str]:
        """The rare keys without any value in the batch."""
        kinds = {
            keys.IMAGE_CLASS_TEXT: Kind.BYTES,
            keys.IMAGE_CLASS_LABEL: Kind.INT64,
            keys.KEYPOINT_X: Kind.FLOAT,
        }
        absent = (key for key, kind in kinds.items() if not self.column(key, kind).counts.any())
        return frozenset(absent)

    def error(self, row: int) -> RecordError | None:
        """Return the first problem of a record as an exception, or None."""
        error = self.examples.parse_error(row)
        problem = self._first_problems.get(row)
        if error is not None or problem is None:
            return error
        return self.examples.error(row, problem.cause, feature=problem.key, fix=problem.fix)

    def __iter__(self) -> Iterator[Detection]:
        """Yield the rows in order; RecordError if a row has a problem."""
        return map(self.__getitem__, range(len(self)))

    @overload
    def __getitem__(self, row: int) -> Detection: ...
    @overload
    def __getitem__(self, row: slice) -> list[Detection]: ...
    def __getitem__(self, row: int | slice) -> Detection | list[Detection]:
        """Return a row without copying image or masks; RecordError if it has a problem."""
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(len(self)))]
        error = self.error(row)
        if error is not None:
            raise error
        return build_detection(self, row)


def build_detection(detections: Detections, row: int) -> Detection:
    """Build the Detection of a row without problems. Image and masks are not copied."""
    first, end = detections.box_splits[row : row + 2].tolist()
    start, stop = detections.encoded[row].tolist()
    records = detections.examples.records
    texts = detections.column(keys.CLASS_TEXT, Kind.BYTES)
    labels = detections.column(keys.CLASS_LABEL, Kind.INT64)
    return Detection(
        filename=detections.filenames[row],
        source_id=detections.source_ids[row],
        format=detections.formats[row],
        sha256=detections.sha256s[row],
        height=detections.heights[row],
        width=detections.widths[row],
        encoded=memoryview(records.buffer)[start:stop] if start >= 0 else None,
        boxes=detections.boxes[first:end],
        class_text=detections.class_text_values[slice(*texts.row_splits[row : row + 2].tolist())]
        or _no_values(texts, row, end - first),
        class_label=labels[row].tolist() or _no_values(labels, row, end - first),
        **(_read_rare_fields(detections, row, end - first) if detections.other_keys else {}),
        warnings=detections.warnings(row),
    )


def _no_values(column: Column, row: int, count: int) -> list[Any] | None:
    """Return an empty list if the key exists and no object needs a value, else None."""
    return [] if column.has(row) and not count else None


def _read_rare_fields(detections: Detections, row: int, count: int) -> dict[str, Any]:
    """Return the fields of a Detection whose keys most records lack."""
    row_keys = detections.other_keys_in(row)
    if not row_keys:
        return {}
    attributes, extra = read_attributes(detections, row, count)
    masks = detections.column(keys.MASK, Kind.BYTES)
    numbers = detections.column(keys.MASK, Kind.FLOAT)[row]
    return {
        "masks": _get_masks(detections, masks[row].tolist()) or None,
        "numerical_masks": numbers.reshape(count, *detections.sizes[row]) if len(numbers) else None,
        "keypoints": _read_keypoints(detections, row, count),
        "image_extra": extra.image,
        "attributes": attributes,
        "shape_details": extra.shape_details,
        "image_labels": [
            replace(label, attributes=extra.labels[number]) if number in extra.labels else label
            for number, label in enumerate(read_image_labels(detections, row))
        ],
        "captions": _read_captions(detections, row),
        "image_masks": {
            name: mask
            for name, key in keys.IMAGE_MASKS.items()
            if key in row_keys
            for mask in _get_masks(detections, detections.column(key, Kind.BYTES)[row].tolist())
            if mask is not None
        },
        "image_attributes": {
            name: detections.column(key, Kind.INT64)[row].tolist()
            for name, key in keys.IMAGE_ATTRIBUTES.items()
            if key in row_keys
        },
        "unread_keys": [key for key in row_keys if _is_unread(detections, key)],
    }


def _is_unread(detections: Detections, key: str) -> bool:
    return not (
        key in keys.KNOWN_KEYS
        or key in detections.mapping.all_keys
        or key.startswith(keys.ATTRIBUTE_PREFIX)
    )


def _get_masks(detections: Detections, spans: Sequence[tuple[int, int]]) -> list[PngMask | None]:
    records = detections.examples.records
    view = memoryview(records.buffer)
    return [
        PngMask(view[start : start + length], records.base + start) if length else None
        for start, length in spans
    ]


def _read_keypoints(detections: Detections, row: int, count: int) -> Keypoints | None:
    if keys.KEYPOINT_X in detections.absent_keys:
        return None
    column_x = detections.column(keys.KEYPOINT_X, Kind.FLOAT)
    x, y = column_x[row], detections.column(keys.KEYPOINT_Y, Kind.FLOAT)[row]
    if not len(x):
        return None
    visibility = detections.column(keys.KEYPOINT_VISIBILITY, Kind.INT64)[row]
    if len(visibility) != len(x):
        # Like the OD API's decoder: points with finite coordinates are visible.
        visibility = np.where(np.isfinite(x) & np.isfinite(y), np.int64(2), 0)
    names = detections.texts_in(detections.column(keys.KEYPOINT_TEXT, Kind.BYTES), row)
    points = len(x) // count
    return Keypoints(
        xy=np.stack((x, y), axis=-1).reshape(count, points, 2),
        visibility=visibility.reshape(count, points),
        names=tuple(names[:points]) if len(names) in (points, points * count) else (),
    )


def read_image_labels(detections: Detections, row: int) -> list[ImageLabel]:
    """Return the classes of the whole image, for a row without problems."""
    if {keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL} <= detections.absent_keys:
        return []
    texts = detections.texts_in(detections.column(keys.IMAGE_CLASS_TEXT, Kind.BYTES), row)
    labels = detections.column(keys.IMAGE_CLASS_LABEL, Kind.INT64)[row].tolist()
    if detections.has_one_class and len(labels) > 1:
        labels = [labels.index(1)]  # one-hot vector
    confidences = detections.column(keys.IMAGE_CLASS_CONFIDENCE, Kind.FLOAT)[row].tolist()
    no_values = [None] * (len(texts) or len(labels))
    columns = (texts or no_values, labels or no_values, confidences or no_values)
    return [ImageLabel(*values) for values in zip(*columns, strict=True)]


def _read_captions(detections: Detections, row: int) -> list[str]:
    column = find_column(detections.find_columns(keys.CAPTION), row)
    if column is not None and column.kind is not Kind.BYTES:
        detections.note(row, f"{keys.CAPTION} is not a list of texts; ignored")
    return detections.texts_in(detections.column(keys.CAPTION, Kind.BYTES), row)
