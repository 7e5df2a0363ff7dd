"""From detections to Datumaro's annotations.

| of a Detection | Datumaro's annotation |
|---|---|
| ``boxes``, ``class_*``, ``attributes``, ``shape_details`` | Bbox, RotatedBbox |
| the same with ``masks`` or ``numerical_masks`` | Mask, which keeps its box |
| ``keypoints`` of a box | Points in the group of the box |
| ``image_labels`` | Label |
| ``captions`` | Caption |

:meth:`AnnotationBuilder.build` goes through this table, and
:meth:`tfod.datumaro.export_annotations.ObjectBuilder.build` through it the other way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfod.datumaro.compat import annotation, rotated_box
from tfod.datumaro.construct import make_boxes, round_points
from tfod.datumaro.media import BoxedMask, LazyNumericalMask, LazyPngMask
from tfod.detection import keys
from tfod.detection.attributes import find_unrotated_box
from tfod.detection.box_geometry import to_pixel_corners
from tfod.detection.detection import Detection, ImageLabel, ShapeDetails
from tfod.detection.detections import Detections
from tfod.detection.images.mask_images import is_box_png, png_size
from tfod.detection.labels.classes import ClassTable, LabelScope
from tfod.detection.losses import LossCounter
from tfod.example.wire import Kind
from tfod.tfrecord.record_index import ByteSpan, ShardIdentity

_FIELDS = ("id", "label", "attributes", "group", "z_order")
_INTEGER_TRUTH = {0: False, 1: True}
_CLAMPED = "boxes outside the image, clamped to its edge"
_OTHER_SIZE = "masks of another size than the image"
_EMPTY_MASKS = "masks without a pixel, imported as boxes"

ReportBox = Callable[[str], None]
"""Called with what is wrong with a box that cannot become an annotation."""


class AnnotationBuilder:
    """Makes the annotations of one batch of records after the other.

    Labels are the class table's provisional numbers; :attr:`keypoint_names` tells afterwards which
    were met. What is taken with a liberty is counted in ``losses``.
    """

    def __init__(self, classes: ClassTable, losses: LossCounter) -> None:
        self._classes = classes
        self._losses = losses
        self.keypoint_names: dict[int, Sequence[str]] = {}

    def open(self, found: Detections, scope: LabelScope, shard: ShardIdentity) -> None:
        """Take the columns of a batch of a shard, which masks are read from later."""
        self._found, self._scope, self._shard = found, scope, shard
        counts = np.diff(found.box_splits)
        sizes = np.repeat(found.sizes, counts, axis=0)
        corners, clamped = to_pixel_corners(found.boxes, sizes)
        # Comparisons with NaN are false.
        plain = (corners == clamped).all(axis=1) & (corners[:, 2:] >= corners[:, :2]).all(axis=1)
        plain &= (sizes > 0).all(axis=1)
        self._odd_rows = frozenset(np.repeat(np.arange(len(found)), counts)[~plain].tolist())
        self._corners = _by_row(round_points(clamped), found.box_splits)
        texts, ids = (
            found.column(keys.CLASS_TEXT, Kind.BYTES),
            found.column(keys.CLASS_LABEL, Kind.INT64),
        )
        self._texts = _by_row(found.class_text_values, texts.row_splits)
        self._ids = _by_row(ids.values.tolist(), ids.row_splits)

    def build(
        self, row: int, more: Detection, size: tuple[int, int] | None, report: ReportBox
    ) -> list[Any]:
        """Make the annotations of one record of the batch.

        Args:
            row: the record.
            more: what it says beside its boxes and classes.
            size: height and width of its image in pixels; needed when there are boxes.
            report: may raise.
        """
        annotations: list[Any] = []
        if more.image_labels:
            made = (self._image_label(label) for label in more.image_labels)
            annotations = [one for one in made if one is not None]
        annotations += [annotation.Caption(text) for text in more.captions]
        corners = self._corners[row]
        count = len(corners)
        if not count:
            return annotations
        assert size is not None
        nothing = (None,) * count
        labels = self._classes.resolve_all(
            self._scope, self._texts[row] or nothing, self._ids[row] or nothing
        )
        bad: Mapping[int, str] = {}
        if row in self._odd_rows:
            corners, bad = self._odd_corners(row, size)
        boxes = make_boxes(corners, labels, _attribute_dicts(more.attributes, count))
        for box, number in zip(boxes, self._found.annotation_ids(row), strict=False):
            box.id = number
        if not bad and not _has_more_than_boxes(more):
            return annotations + boxes
        masks = self._masks(row, more, size)
        free = 1 + max((one.group for one in more.shape_details.values()), default=0)
        for index, box in enumerate(boxes):
            if index in bad:
                report(f"box {index} {bad[index]}")
                continue
            drawn = more.shape_details.get(index) or ShapeDetails()
            points = self._points(more, index, box.label, size)
            box.z_order = drawn.z_order
            box.group = drawn.group or (free + index if points is not None else 0)
            annotations.append(
                self._shape(box, drawn, corners[index], size, masks and masks[index])
            )
            if points is not None:
                points.group = box.group
                annotations.append(points)
        return annotations

    def _shape(
        self, box: Any, drawn: ShapeDetails, corners: Any, size: tuple[int, int], mask: Any
    ) -> Any:
        """An object as it was drawn: its box before that was turned, its mask, or its box."""
        fields = {name: getattr(box, name) for name in _FIELDS}
        upright = find_unrotated_box(drawn, tuple(corners), size)
        if upright is not None:
            return rotated_box(upright, drawn.rotation, **fields)
        if mask is None:
            return box
        return BoxedMask.make(mask, tuple(corners), **fields)

    def _odd_corners(
        self, row: int, size: tuple[int, int]
    ) -> tuple[list[list[float]], dict[int, str]]:
        """Corners where boxes are not all within the image, and why some are no boxes."""
        first, end = self._found.box_splits[row : row + 2].tolist()
        boxes = self._found.boxes[first:end]
        corners, clamped = to_pixel_corners(boxes, size)
        rounded: list[list[float]] = round_points(clamped)
        # What rounding takes away is outside by no more than float32 is inexact.
        outside = (np.array(round_points(corners)) != rounded).any(axis=1)
        outside &= np.isfinite(boxes).all(axis=1)
        self._losses[_CLAMPED][""] += int(outside.sum())
        return rounded, _bad_boxes(boxes)

    def _masks(
        self, row: int, detection: Detection, size: tuple[int, int]
    ) -> list[Callable[[], np.ndarray] | None] | None:
        if detection.masks is not None:
            sizes = (png_size(mask.data) for mask in detection.masks if mask)
            self._losses[_OTHER_SIZE][""] += sum(one not in (None, size) for one in sizes)
            return [
                None
                if mask is None or is_box_png(mask.data)
                else LazyPngMask(ByteSpan(self._shard, mask.offset, len(mask.data)))
                for mask in detection.masks
            ]
        if detection.numerical_masks is not None:
            numbers = detection.numerical_masks
            drawn = np.any(numbers.reshape(len(numbers), -1) > 0, axis=1).tolist()
            self._losses[_EMPTY_MASKS][""] += drawn.count(False)
            record = self._found.examples.records.record(row)
            span = ByteSpan(self._shard, record.payload_offset, record.length)
            return [
                LazyNumericalMask(span, index) if has else None for index, has in enumerate(drawn)
            ]
        return None

    def _points(
        self, detection: Detection, index: int, label: int | None, size: tuple[int, int]
    ) -> Any:
        keypoints = detection.keypoints
        if keypoints is None:
            return None
        places, names = self._keypoint_places(detection, index)
        visibility = np.clip(keypoints.visibility[index, places], 0, 2)
        if not visibility.any():
            return None  # padding for an object without keypoints
        height, width = size
        xy = np.nan_to_num(keypoints.xy[index, places].astype(np.float64)) * (width, height)
        if label is not None:
            self.keypoint_names.setdefault(label, names)
        return annotation.Points(xy.reshape(-1).tolist(), visibility.tolist(), label=label)

    def _keypoint_places(self, detection: Detection, index: int) -> tuple[list[int], Sequence[str]]:
        """Which of the record's keypoints belong to the object's class, and their names."""
        assert detection.keypoints is not None
        count = detection.keypoints.xy.shape[1]
        item = None
        label_map = self._scope.label_map
        if label_map is not None:
            text = detection.class_text[index] if detection.class_text else ""
            item = label_map.find(text) if text else None
            if item is None and detection.class_label:
                item = label_map.find_id(detection.class_label[index])
        places = [point.id for point in item.keypoints] if item else []
        if item is not None and places and min(places) >= 0 and max(places) < count:
            return places, [point.label for point in item.keypoints]
        names = detection.keypoints.names or [f"point_{i}" for i in range(count)]
        return list(range(count)), names

    def _image_label(self, label: ImageLabel) -> Any:
        number = self._classes.resolve(self._scope, label.text, label.label)
        if number is None:
            return None
        score = {} if label.confidence is None else {"score": label.confidence}
        return annotation.Label(number, attributes={**label.attributes, **score})


def _by_row(values: list[Any], splits: np.ndarray) -> list[list[Any]]:
    """The values of a column as one list for each record."""
    return [values[start:end] for start, end in itertools.pairwise(splits.tolist())]


def _has_more_than_boxes(detection: Detection) -> bool:
    return (
        detection.masks is not None
        or detection.numerical_masks is not None
        or detection.keypoints is not None
        or bool(detection.shape_details)
    )


def _bad_boxes(boxes: np.ndarray) -> dict[int, str]:
    """Number of each box that is not valid, with the reason."""
    finite = np.isfinite(boxes).all(axis=1)
    # False for NaN as well.
    upright = (boxes[:, 2:] >= boxes[:, :2]).all(axis=1)
    found = {}
    for index in np.flatnonzero(~(finite & upright)).tolist():
        what = "is inverted" if finite[index] else "is not a box of finite numbers"
        values = ", ".join(f"{value:g}" for value in boxes[index])
        found[index] = f"{what} (xmin, ymin, xmax, ymax = {values})"
    return found


def _attribute_dicts(attributes: Any, count: int) -> list[dict[str, Any]]:
    """Turn name → values into one dict an object, without what the object does not have."""
    dicts: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in attributes.items():
        flag = name in keys.FLAGS
        for target, value in zip(dicts, values, strict=True):
            if value is None:
                continue
            if flag and type(value) is int:
                target[name] = _INTEGER_TRUTH.get(value, value)
            else:
                target[name] = value
    return dicts
