"""From a Detection to Datumaro's annotations: boxes in pixels, masks, points, labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tfod.datumaro.lines import annotation, make_boxes, round_points
from tfod.datumaro.masks import BoxedMask, LazyNumericalMask, LazyPngMask, png_size
from tfod.detection.classes import ClassTable, LabelScope
from tfod.detection.detection import Detection
from tfod.detection.pixel_boxes import BoxTally
from tfod.detection.png import is_box_png
from tfod.tfrecord.shard_file import ByteSpan, ShardIdentity

# Attributes that are truth values in Datumaro and CVAT where the shard has 0 and 1.
_FLAGS = frozenset(
    (
        *("difficult", "truncated", "occluded", "is_crowd"),
        *("group_of", "is_group_of", "depiction", "is_depiction"),
    )
)
_INTEGER_TRUTH = {0: False, 1: True}

ReportBox = Callable[[str], None]
"""Called with what is wrong with a box that cannot become an annotation."""


class AnnotationBuilder:
    """Makes the annotations of one record after the other.

    Labels are the class table's provisional numbers; the counters and :attr:`keypoint_names` tell
    afterwards what was met.
    """

    def __init__(self, classes: ClassTable) -> None:
        self._classes = classes
        self.clamped_boxes = 0
        self.boxes_in_pixels = 0
        self._box_tally = BoxTally()
        self.odd_masks = 0
        self.keypoint_names: dict[int, Sequence[str]] = {}

    def build(
        self,
        detection: Detection,
        size: tuple[int, int] | None,
        scope: LabelScope,
        shard: ShardIdentity,
        record_span: tuple[int, int],
        report: ReportBox,
    ) -> list[Any]:
        """Make the annotations of one picture.

        Args:
            detection: the record.
            size: height and width of the picture in pixels; needed when there are boxes.
            scope: how the record's shard names classes.
            shard: the file that masks are read from later.
            record_span: offset and length of the record's payload in it.
            report: called for each box that is no box; it may raise.
        """
        annotations: list[Any] = []
        if detection.image_labels:
            made = (self._image_label(label, scope) for label in detection.image_labels)
            annotations = [one for one in made if one is not None]
        annotations += [annotation.Caption(text) for text in detection.captions]
        count = len(detection.boxes)
        if not count:
            return annotations
        self._box_tally += BoxTally(count)
        assert size is not None
        labels = self._labels(detection, scope, count)
        attributes = _attribute_dicts(detection.attributes, count)
        if not _has_more_than_boxes(detection):
            sound = _sound_corners(detection.boxes, size)
            if sound is not None:
                return annotations + make_boxes(sound, labels, attributes)
        corners = self._pixels(detection.boxes, size)
        bad = _bad_boxes(detection.boxes)
        masks = self._masks(detection, shard, record_span, count)
        if detection.masks:
            sizes = (png_size(mask.data) for mask in detection.masks if mask)
            self.odd_masks += sum(one not in (None, size) for one in sizes)
        Bbox = annotation.Bbox
        for index, (x1, y1, x2, y2) in enumerate(corners):
            if bad and index in bad:
                report(f"box {index} {bad[index]}")
                continue
            points = self._points(detection, index, labels[index], scope, size)
            group = index + 1 if points is not None else 0
            mask = masks[index] if masks else None
            if mask is not None:
                shape = BoxedMask.make(
                    mask,
                    (x1, y1, x2, y2),
                    label=labels[index],
                    attributes=attributes[index],
                    group=group,
                )
            else:
                shape = Bbox(
                    x1,
                    y1,
                    x2 - x1,
                    y2 - y1,
                    label=labels[index],
                    attributes=attributes[index],
                    group=group,
                )
            annotations.append(shape)
            if points is not None:
                annotations.append(points)
        return annotations

    def finish_shard(self) -> None:
        """Decide whether the boxes since the last shard's end are in pixels."""
        self.boxes_in_pixels += self._box_tally.in_pixels
        self._box_tally = BoxTally()

    def _pixels(self, boxes: np.ndarray, size: tuple[int, int]) -> list[list[float]]:
        """Corners in pixels, clamped to the picture and rounded, as Datumaro's reader does."""
        height, width = size
        limits = np.array((width, height, width, height), np.float64)
        corners = boxes * limits
        clamped = np.clip(corners, 0.0, limits)
        outside = (clamped != corners).any(axis=1)  # also true for NaN, which is reported
        if outside.any():
            finite = outside & np.isfinite(boxes).all(axis=1)
            self.clamped_boxes += int(finite.sum())
            self._box_tally += replace(BoxTally.of(boxes), boxes=0)  # they are counted
        rounded: list[list[float]] = round_points(clamped)
        return rounded

    def _labels(self, detection: Detection, scope: LabelScope, count: int) -> Sequence[int | None]:
        texts: Sequence[str | None] = detection.class_text or (None,) * count
        ids: Sequence[int | None] = detection.class_label or (None,) * count
        resolve = self._classes.resolve
        return [resolve(scope, text, label) for text, label in zip(texts, ids, strict=True)]

    def _masks(
        self, detection: Detection, shard: ShardIdentity, record: tuple[int, int], count: int
    ) -> list[Callable[[], np.ndarray] | None] | None:
        if detection.masks is not None:
            return [
                None
                if mask is None or is_box_png(mask.data)
                else LazyPngMask(ByteSpan(shard, mask.offset, len(mask.data)))
                for mask in detection.masks
            ]
        if detection.numerical_masks is not None:
            drawn = np.any(detection.numerical_masks.reshape(count, -1) > 0, axis=1).tolist()
            span = ByteSpan(shard, *record)
            return [
                LazyNumericalMask(span, index) if has else None for index, has in enumerate(drawn)
            ]
        return None

    def _points(
        self,
        detection: Detection,
        index: int,
        label: int | None,
        scope: LabelScope,
        size: tuple[int, int],
    ) -> Any:
        keypoints = detection.keypoints
        if keypoints is None:
            return None
        places, names = self._keypoint_places(detection, index, scope)
        visibility = np.clip(keypoints.visibility[index, places], 0, 2)
        if not visibility.any():
            return None  # padding for an object without keypoints
        height, width = size
        xy = np.nan_to_num(keypoints.xy[index, places].astype(np.float64)) * (width, height)
        if label is not None:
            self.keypoint_names.setdefault(label, names)
        return annotation.Points(
            xy.reshape(-1).tolist(), visibility.tolist(), label=label, group=index + 1
        )

    def _keypoint_places(
        self, detection: Detection, index: int, scope: LabelScope
    ) -> tuple[list[int], Sequence[str]]:
        """Which of the record's keypoints belong to the object's class, and their names."""
        assert detection.keypoints is not None
        count = detection.keypoints.xy.shape[1]
        item = None
        if scope.label_map is not None:
            text = detection.class_text[index] if detection.class_text else ""
            item = scope.label_map.find(text) if text else None
            if item is None and detection.class_label:
                item = scope.label_map.find_id(detection.class_label[index])
        places = [point.id for point in item.keypoints] if item else []
        if item is not None and places and min(places) >= 0 and max(places) < count:
            return places, [point.label for point in item.keypoints]
        names = detection.keypoints.names or [f"point_{i}" for i in range(count)]
        return list(range(count)), names

    def _image_label(self, label: Any, scope: LabelScope) -> Any:
        number = self._classes.resolve(scope, label.text, label.label)
        if number is None:
            return None
        attributes = {} if label.confidence is None else {"score": label.confidence}
        return annotation.Label(number, attributes=attributes)


def _has_more_than_boxes(detection: Detection) -> bool:
    return (
        detection.masks is not None
        or detection.numerical_masks is not None
        or detection.keypoints is not None
    )


def _sound_corners(boxes: np.ndarray, size: tuple[int, int]) -> list[list[float]] | None:
    """Corners in pixels where all boxes are sound and inside the picture; None otherwise."""
    height, width = size
    limits = np.array((width, height, width, height), np.float64)
    corners: list[list[float]] = round_points(boxes * limits)
    # Quicker than NumPy for the few boxes of a picture. Comparisons with NaN are false.
    for left, top, right, bottom in corners:
        if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
            return None
    return corners


def sound_boxes(boxes: np.ndarray) -> np.ndarray:
    """Which boxes become annotations, bool of shape (n,): those that are finite and upright."""
    # False for NaN as well: one pass finds both.
    upright = (boxes[:, 2] >= boxes[:, 0]) & (boxes[:, 3] >= boxes[:, 1])
    sound: np.ndarray = upright & np.isfinite(boxes).all(axis=1)
    return sound


def _bad_boxes(boxes: np.ndarray) -> dict[int, str]:
    """Number of each box that is none, with the reason."""
    sound = sound_boxes(boxes)
    if sound.all():
        return {}
    found = {}
    for index, box in enumerate(boxes):
        values = ", ".join(f"{value:g}" for value in box)
        if not np.isfinite(box).all():
            found[index] = f"is no box of finite numbers (xmin, ymin, xmax, ymax = {values})"
        elif not sound[index]:
            found[index] = f"is inverted (xmin, ymin, xmax, ymax = {values})"
    return found


def _attribute_dicts(attributes: Any, count: int) -> list[dict[str, Any]]:
    """Turn name → values into one dict an object, without what the object does not have."""
    dicts: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in attributes.items():
        flag = name in _FLAGS
        for target, value in zip(dicts, values, strict=True):
            if value is None:
                continue
            if flag and type(value) is int:
                target[name] = _INTEGER_TRUTH.get(value, value)
            else:
                target[name] = value
    return dicts
