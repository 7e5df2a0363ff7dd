"""Conversion of detections to Datumaro's annotations.

| Detection | Datumaro's annotation |
|---|---|
| ``boxes``, ``class_*``, ``attributes``, ``shape_details`` | Bbox, RotatedBbox |
| the same with ``masks`` or ``numerical_masks`` | Mask, which keeps its box |
| ``keypoints`` of a box | Points in the group of the box |
| ``image_labels`` | Label |
| ``captions`` | Caption |

:class:`tfod.datumaro.export_annotations.ObjectBuilder` converts in the other direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfod.datumaro.compat import annotation, make_rotated_box
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
_FLAG_VALUES = {0: False, 1: True}
_CLAMPED = "boxes outside the image, clamped to its edge"
_OTHER_SIZE = "masks whose size differs from the image"
_EMPTY_MASKS = "masks without a pixel, imported as boxes"

ReportBox = Callable[[str], None]
"""Called with the defect of a box that cannot be imported."""


class AnnotationBuilder:
    """Creates the annotations of batches of records, one batch after the other.

    Labels are provisional numbers of the class table. In the end, :attr:`keypoint_names` has the
    names of all labels with keypoints. Deviations that were tolerated are counted in ``losses``.
    """

    def __init__(self, classes: ClassTable, losses: LossCounter) -> None:
        self._classes = classes
        self._losses = losses
        self.keypoint_names: dict[int, Sequence[str]] = {}

    def open(self, detections: Detections, scope: LabelScope, shard: ShardIdentity) -> None:
        """Begin a batch of records of a shard, from which masks are read later."""
        self._detections, self._scope, self._shard = detections, scope, shard
        counts = np.diff(detections.box_splits)
        sizes = np.repeat(detections.sizes, counts, axis=0)
        corners, clamped = to_pixel_corners(detections.boxes, sizes)
        # Comparisons with NaN are false.
        plain = (corners == clamped).all(axis=1) & (corners[:, 2:] >= corners[:, :2]).all(axis=1)
        plain &= (sizes > 0).all(axis=1)
        rows = np.repeat(np.arange(len(detections)), counts)
        self._rows_to_check = frozenset(rows[~plain].tolist())
        self._corners = _split_rows(round_points(clamped), detections.box_splits)
        texts = detections.column(keys.CLASS_TEXT, Kind.BYTES)
        ids = detections.column(keys.CLASS_LABEL, Kind.INT64)
        self._texts = _split_rows(detections.class_text_values, texts.row_splits)
        self._ids = _split_rows(ids.values.tolist(), ids.row_splits)

    def build(
        self, row: int, detection: Detection, size: tuple[int, int] | None, report: ReportBox
    ) -> list[Any]:
        """Create the annotations of one record of the batch.

        ``detection`` has its other fields, such as masks and keypoints. ``size`` is the height and
        width of its image, which boxes need. ``report`` may raise an exception for a defect.
        """
        image_labels = (self._make_image_label(label) for label in detection.image_labels)
        annotations: list[Any] = [label for label in image_labels if label is not None]
        annotations += [annotation.Caption(text) for text in detection.captions]
        corners = self._corners[row]
        count = len(corners)
        if not count:
            return annotations
        assert size is not None
        absent = (None,) * count
        texts, ids = self._texts[row] or absent, self._ids[row] or absent
        labels = self._classes.resolve_all(self._scope, texts, ids)
        defects: Mapping[int, str] = {}
        if row in self._rows_to_check:
            corners, defects = self._check_corners(row, size)
        boxes = make_boxes(corners, labels, _make_attribute_dicts(detection.attributes, count))
        for box, number in zip(boxes, self._detections.annotation_ids(row), strict=False):
            box.id = number
        if not defects and not _has_more_than_boxes(detection):
            return annotations + boxes
        masks = self._make_masks(row, detection, size)
        groups = (details.group for details in detection.shape_details.values())
        unused_group = 1 + max(groups, default=0)
        for index, box in enumerate(boxes):
            if index in defects:
                report(f"box {index} {defects[index]}")
                continue
            details = detection.shape_details.get(index) or ShapeDetails()
            points = self._make_points(detection, index, box.label, size)
            box.z_order = details.z_order
            box.group = details.group or (unused_group + index if points is not None else 0)
            mask = masks and masks[index]
            annotations.append(self._make_shape(box, details, corners[index], size, mask))
            if points is not None:
                points.group = box.group
                annotations.append(points)
        return annotations

    def _make_shape(
        self, box: Any, details: ShapeDetails, corners: Any, size: tuple[int, int], mask: Any
    ) -> Any:
        """Return a rotated box, a mask or a plain box, depending on how the object was drawn."""
        fields = {name: getattr(box, name) for name in _FIELDS}
        unrotated = find_unrotated_box(details, tuple(corners), size)
        if unrotated is not None:
            return make_rotated_box(unrotated, details.rotation, **fields)
        if mask is None:
            return box
        return BoxedMask.make(mask, tuple(corners), **fields)

    def _check_corners(
        self, row: int, size: tuple[int, int]
    ) -> tuple[list[list[float]], dict[int, str]]:
        """Return the corners of a record's boxes, clamped to the image, and defects by number."""
        first, end = self._detections.box_splits[row : row + 2].tolist()
        boxes = self._detections.boxes[first:end]
        corners, clamped = to_pixel_corners(boxes, size)
        rounded: list[list[float]] = round_points(clamped)
        # Compare rounded values, since float32 is inexact at the edge of the image.
        outside = (np.array(round_points(corners)) != rounded).any(axis=1)
        outside &= np.isfinite(boxes).all(axis=1)
        self._losses[_CLAMPED][""] += int(outside.sum())
        return rounded, _describe_defects(boxes)

    def _make_masks(
        self, row: int, detection: Detection, size: tuple[int, int]
    ) -> list[Callable[[], np.ndarray] | None] | None:
        if detection.masks is not None:
            sizes = [png_size(mask.data) for mask in detection.masks if mask]
            self._losses[_OTHER_SIZE][""] += len(sizes) - sizes.count(None) - sizes.count(size)
            return [
                None
                if mask is None or is_box_png(mask.data)
                else LazyPngMask(ByteSpan(self._shard, mask.offset, len(mask.data)))
                for mask in detection.masks
            ]
        if detection.numerical_masks is not None:
            numbers = detection.numerical_masks
            has_mask = np.any(numbers.reshape(len(numbers), -1) > 0, axis=1).tolist()
            self._losses[_EMPTY_MASKS][""] += has_mask.count(False)
            record = self._detections.examples.records.record(row)
            span = ByteSpan(self._shard, record.payload_offset, record.length)
            return [
                LazyNumericalMask(span, index) if is_drawn else None
                for index, is_drawn in enumerate(has_mask)
            ]
        return None

    def _make_points(
        self, detection: Detection, index: int, label: int | None, size: tuple[int, int]
    ) -> Any:
        keypoints = detection.keypoints
        if keypoints is None:
            return None
        indices, names = self._find_keypoints(detection, index)
        visibility = np.clip(keypoints.visibility[index, indices], 0, 2)
        if not visibility.any():
            return None  # padding for an object without keypoints
        height, width = size
        xy = np.nan_to_num(keypoints.xy[index, indices].astype(np.float64)) * (width, height)
        if label is not None:
            self.keypoint_names.setdefault(label, names)
        return annotation.Points(xy.reshape(-1).tolist(), visibility.tolist(), label=label)

    def _find_keypoints(self, detection: Detection, index: int) -> tuple[list[int], Sequence[str]]:
        assert detection.keypoints is not None
        count = detection.keypoints.xy.shape[1]
        item = None
        label_map = self._scope.label_map
        if label_map is not None:
            text = detection.class_text[index] if detection.class_text else ""
            item = label_map.find(text) if text else None
            if item is None and detection.class_label:
                item = label_map.find_id(detection.class_label[index])
        indices = [point.id for point in item.keypoints] if item else []
        if item is not None and indices and min(indices) >= 0 and max(indices) < count:
            return indices, [point.label for point in item.keypoints]
        names = detection.keypoints.names or [f"point_{i}" for i in range(count)]
        return list(range(count)), names

    def _make_image_label(self, label: ImageLabel) -> Any:
        number = self._classes.resolve(self._scope, label.text, label.label)
        if number is None:
            return None
        score = {} if label.confidence is None else {"score": label.confidence}
        return annotation.Label(number, attributes={**label.attributes, **score})


def _split_rows(values: list[Any], splits: np.ndarray) -> list[list[Any]]:
    return [values[start:end] for start, end in itertools.pairwise(splits.tolist())]


def _has_more_than_boxes(detection: Detection) -> bool:
    return (
        detection.masks is not None
        or detection.numerical_masks is not None
        or detection.keypoints is not None
        or bool(detection.shape_details)
    )


def _describe_defects(boxes: np.ndarray) -> dict[int, str]:
    is_finite = np.isfinite(boxes).all(axis=1)
    is_ordered = (boxes[:, 2:] >= boxes[:, :2]).all(axis=1)  # False for NaN
    defects = {}
    for index in np.flatnonzero(~(is_finite & is_ordered)).tolist():
        defect = "is inverted" if is_finite[index] else "is not a box of finite numbers"
        values = ", ".join(f"{value:g}" for value in boxes[index])
        defects[index] = f"{defect} (xmin, ymin, xmax, ymax = {values})"
    return defects


def _make_attribute_dicts(attributes: Any, count: int) -> list[dict[str, Any]]:
    dicts: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in attributes.items():
        is_flag = name in keys.FLAGS
        for target, value in zip(dicts, values, strict=True):
            if value is None:
                continue
            if is_flag and type(value) is int:
                target[name] = _FLAG_VALUES.get(value, value)
            else:
                target[name] = value
    return dicts
