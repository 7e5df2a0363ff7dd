"""Conversion of Datumaro's annotations to the objects of a Detection."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfod.datumaro.categories import ExportClass, ExportClasses
from tfod.datumaro.compat import AnnotationType, annotation
from tfod.datumaro.media import BoxedMask
from tfod.detection.attributes import is_attribute_value
from tfod.detection.box_geometry import (
    PixelBox,
    enclose_boxes,
    enclose_pixels,
    enclose_points,
    enclose_visible,
    iou,
    parse_degrees,
)
from tfod.detection.detection import (
    AttributeValue,
    Detection,
    ImageLabel,
    Keypoints,
    PngMask,
    ShapeDetails,
    index_shape_details,
)
from tfod.detection.images.mask_images import (
    box_outline,
    ellipse_outline,
    encode_mask_png,
    fill_box,
)
from tfod.detection.losses import ATTRIBUTES, ENCLOSED, UNSUPPORTED, LossCounter
from tfod.formats.reading.files import format_size

# Types that become a separate object: its box, and its mask if masks are saved.
_BOX_TYPES = frozenset(("bbox", "rotated_bbox", "ellipse"))
_OUTLINE_TYPES = frozenset(("mask", "polygon"))
_MIN_OVERLAP = 0.5  # minimum intersection over union of a box and an outline of the same object

OUTLINES = "outlines of boxes not written"
UNLABELLED = "without a class, written as id 0 with an empty text"
OUTSIDE = "boxes that extend beyond the image, written unchanged"
OTHER_SIZE = "masks whose size differs from the image, which trainers reject, written unchanged"
OBJECT_LOSSES = (UNSUPPORTED, ATTRIBUTES, ENCLOSED, OUTLINES, UNLABELLED, OUTSIDE, OTHER_SIZE)
"""The losses that :class:`ObjectBuilder` counts, in the order of the message."""


@dataclass(slots=True)
class ExportedObject:
    """An object to write; corners and points are in pixels."""

    label: int | None
    corners: PixelBox
    attributes: dict[str, Any]
    outlines: list[Any] = field(default_factory=list)
    shape: Any = None
    outline: Sequence[float] | None = None  # x, y, x, y, …; None for an upright box
    details: ShapeDetails = field(default_factory=ShapeDetails)
    points: Any = None

    @property
    def id(self) -> int:
        """The id of its annotation, or 0."""
        parts = [self.shape, *self.outlines, self.points]
        return next((int(part.id) for part in parts if part is not None and part.id), 0)


class ObjectBuilder:
    """Creates the objects of images, and counts losses.

    ``report`` is called with the defect of an annotation that cannot be written, and may raise.
    """

    def __init__(
        self,
        classes: ExportClasses,
        save_masks: bool,
        report: Callable[[str], None],
        losses: LossCounter,
        unlabelled: str,
    ) -> None:
        self._classes = classes
        by_label = dict[int | None, ExportClass](enumerate(classes.classes))
        self._by_label = {**by_label, None: ExportClass("", classes.unlabelled_id)}
        self._unlabelled = unlabelled
        self._save_masks = save_masks
        self._report = report
        self._losses = losses

    def build(self, annotations: Iterable[Any], size: tuple[int, int], **image: Any) -> Detection:
        """Create a Detection of an image of this height and width, with the fields in ``image``."""
        annotations = list(annotations)
        boxes = None if self._save_masks else _normalize_plain_boxes(annotations, size)
        if boxes is not None:  # nearly always
            return self._assemble(boxes, annotations, image)
        shapes = [shape for shape in annotations if shape.type is not AnnotationType.caption]
        objects, image_labels = self.convert(shapes)
        has_masks = bool(objects) and self._save_masks
        return replace(
            self.assemble(objects, size, **image),
            masks=[self._make_mask(obj, size) for obj in objects] if has_masks else None,
            keypoints=self._make_keypoints(objects, size),
            shape_details=index_shape_details([obj.details for obj in objects]),
            image_labels=image_labels,
            captions=self._get_captions(annotations),
        )

    def convert(self, annotations: Iterable[Any]) -> tuple[list[ExportedObject], list[ImageLabel]]:
        """Convert the annotations of an image to objects and classes of the whole image."""
        groups: dict[Any, list[Any]] = {}
        image_labels: list[ImageLabel] = []
        # In the order of the annotations: objects, or groups with one or more objects.
        parts: list[ExportedObject | list[Any]] = []
        for shape in annotations:
            kind = shape.type.name
            if kind == "bbox" and not shape.group:
                parts.append(self._convert_box(shape))
            elif kind == "label":
                image_labels.append(self._make_image_label(shape))
            elif kind in _BOX_TYPES or kind in _OUTLINE_TYPES or kind == "points":
                if shape.group not in groups or not shape.group:
                    groups[shape.group] = []
                    parts.append(groups[shape.group])
                groups[shape.group].append(shape)
            else:
                self._losses[UNSUPPORTED][kind] += 1
        objects: list[ExportedObject] = []
        for part in parts:
            objects.extend(self._merge_group(part) if isinstance(part, list) else (part,))
        return [obj for obj in objects if self._has_valid_box(obj)], image_labels

    def _has_valid_box(self, obj: ExportedObject) -> bool:
        if _are_valid(obj.corners):
            return True
        values = ", ".join(f"{value:g}" for value in obj.corners)
        self._report(f"a box is inverted or not finite (left, top, right, bottom = {values})")
        return False

    def _merge_group(self, shapes: list[Any]) -> list[ExportedObject]:
        """Return the objects of a group: one for each box, with the outlines that belong to it."""
        objects = [self._convert_box(shape) for shape in shapes if shape.type.name in _BOX_TYPES]
        outlines: dict[Any, list[Any]] = {}
        for index, shape in enumerate(shapes):
            if shape.type.name in _OUTLINE_TYPES:
                # The parts of an instance of COCO share an id. Outlines without an id are objects.
                key = (shape.label, shape.id) if shape.id else (shape.label, None, index)
                outlines.setdefault(key, []).append(shape)
        for parts in outlines.values():
            self._add_outline(parts, objects)
        for shape in shapes:
            if shape.type.name == "points":
                self._add_points(shape, objects)
        return objects

    def _convert_box(self, shape: Any) -> ExportedObject:
        kind, attributes, details = shape.type.name, shape.attributes, _get_details(shape)
        if kind == "rotated_bbox" and not parse_degrees(shape.r):
            kind = "bbox"
        if kind == "bbox" and "rotation" not in attributes:
            is_box = shape.type.name == kind  # a rotated box has center, size and angle instead
            left, top, right, bottom = shape.points if is_box else _to_corners(shape.get_bbox())
            corners = left, top, right, bottom
            return ExportedObject(shape.label, corners, attributes, [], shape, None, details)
        corners, outline = _to_corners(shape.get_bbox()), None
        if kind == "rotated_bbox":
            half_width, half_height = shape.w / 2, shape.h / 2
            upright = (shape.cx - half_width, shape.cy - half_height,
                       shape.cx + half_width, shape.cy + half_height)  # fmt: skip
            outline = box_outline(upright, shape.r)
            details = replace(details, box=upright, rotation=float(shape.r))
        elif degrees := parse_degrees(attributes.get("rotation")):
            # The 0.3 line and CVAT store a rotation in an attribute, VOC's import as a text.
            attributes = {key: value for key, value in attributes.items() if key != "rotation"}
            outline = _rotate(kind, corners, degrees)
            if kind == "bbox":
                kind, details = "rotated_bbox", replace(details, box=corners, rotation=degrees)
        if outline is not None:
            corners = enclose_points(outline)
        elif kind == "ellipse" and self._save_masks:
            # Datumaro 1.13 returns pairs of coordinates, other versions a flat list.
            outline = np.asarray(shape.as_polygon(), np.float64).reshape(-1).tolist()
        if kind != "bbox":
            self._losses[ENCLOSED][kind] += 1
        return ExportedObject(shape.label, corners, attributes, [], shape, outline, details)

    def _add_outline(self, parts: list[Any], objects: list[ExportedObject]) -> None:
        free = [obj for obj in objects if obj.shape is not None and not obj.outlines]
        corners = enclose_boxes([_find_corners(part) for part in parts])
        obj = _find_partner(parts[0], corners, free, _MIN_OVERLAP)
        if not self._save_masks:
            lost = self._losses[OUTLINES if obj else ENCLOSED]
            lost[parts[0].type.name] += len(parts) if obj else 1
        if obj is None:
            obj = ExportedObject(parts[0].label, corners, {}, details=_get_details(parts[0]))
            objects.append(obj)
        obj.outlines.extend(parts)
        obj.attributes = {**parts[0].attributes, **obj.attributes}

    def _add_points(self, points: Any, objects: list[ExportedObject]) -> None:
        ids = points.label is not None and self._classes.get(points.label).keypoint_ids
        if not ids or len(ids) != len(points.visibility):
            self._losses[UNSUPPORTED]["points without a schema"] += 1
            return
        corners = _to_corners(points.get_bbox())
        obj = _find_partner(points, corners, [obj for obj in objects if obj.points is None])
        if obj is None:
            obj = ExportedObject(points.label, corners, {}, details=_get_details(points))
            objects.append(obj)
        obj.points = points
        obj.attributes = {**points.attributes, **obj.attributes}

    def assemble(
        self, objects: Sequence[ExportedObject], size: tuple[int, int], **image: Any
    ) -> Detection:
        """Create a Detection with the boxes, classes and attributes of objects."""
        height, width = size
        sides = [enclose_visible(o.outline, size) if o.outline else o.corners for o in objects]
        corners = np.array(sides, np.float64)
        boxes = (corners.reshape(-1, 4) / (width, height, width, height)).astype(np.float32)
        detection = self._assemble(boxes, objects, image)
        self._losses[OUTSIDE][""] += int(((boxes < 0) | (boxes > 1)).any(axis=1).sum())
        return detection

    def _assemble(
        self, boxes: np.ndarray, objects: Sequence[Any], image: Mapping[str, Any]
    ) -> Detection:
        labels = [shape.label for shape in objects]
        attributes = [shape.attributes for shape in objects]
        if None in labels:
            self._losses[self._unlabelled][""] += labels.count(None)
        find, get = self._by_label.get, self._classes.get
        classes = [find(label) or get(label) for label in labels]
        return Detection(
            boxes=boxes,
            class_text=[item.text for item in classes],
            class_label=[item.label for item in classes],
            attributes=self._make_attributes(attributes) if any(attributes) else {},
            **image,
        )

    def _make_mask(self, obj: ExportedObject, size: tuple[int, int]) -> PngMask:
        mask: np.ndarray | None = None
        for part in obj.outlines:
            pixels = part.image if part.type.name == "mask" else _draw(part.points, size)
            pixels = np.asarray(pixels, bool)
            if pixels.shape != size:  # trainers reject it
                if len(obj.outlines) > 1:
                    mask_size, image_size = format_size(pixels.shape), format_size(size)
                    self._report(f"a mask is {mask_size}, its image {image_size}; resize it")
                    continue
                self._losses[OTHER_SIZE][""] += 1
            mask = pixels if mask is None else mask | pixels
        if mask is None and obj.outline is None:
            return PngMask(encode_mask_png(fill_box(obj.corners, size), is_box=True))
        return PngMask(encode_mask_png(_draw(obj.outline or (), size) if mask is None else mask))

    def _make_keypoints(
        self, objects: list[ExportedObject], size: tuple[int, int]
    ) -> Keypoints | None:
        if not any(obj.points is not None for obj in objects):
            return None
        names = self._classes.keypoint_names
        height, width = size
        xy = np.zeros((len(objects), len(names), 2), np.float32)
        visibility = np.zeros((len(objects), len(names)), np.int64)
        for row, obj in enumerate(objects):
            if obj.points is None:
                continue
            assert obj.label is not None  # points only join objects of the same class
            ids = list(self._classes.get(obj.label).keypoint_ids)
            points = np.array(obj.points.points, np.float64).reshape(-1, 2)
            xy[row, ids] = points / (width, height)
            visibility[row, ids] = [int(value.value) for value in obj.points.visibility]
        return Keypoints(xy, visibility, names)

    def _make_attributes(
        self, attributes: Sequence[Mapping[str, Any]]
    ) -> dict[str, list[AttributeValue]]:
        names = dict.fromkeys(itertools.chain.from_iterable(attributes))
        columns: dict[str, list[AttributeValue]] = {}
        for name in names:
            column = (mapping.get(name) for mapping in attributes)
            values = [value.item() if isinstance(value, np.generic) else value for value in column]
            for number, value in enumerate(values):
                if not is_attribute_value(value):
                    self._losses[ATTRIBUTES][name] += 1
                    values[number] = None
            if any(value is not None for value in values):
                columns[name] = values
        return columns

    def _get_captions(self, annotations: Iterable[Any]) -> list[str]:
        captions = []
        for caption in annotations:
            if caption.type is AnnotationType.caption:
                captions.append(caption.caption)
                for name in caption.attributes:
                    self._losses[ATTRIBUTES][f"{name} (of a caption)"] += 1
        return captions

    def _make_image_label(self, label: Any) -> ImageLabel:
        item = self._classes.get(label.label)
        attributes = dict(label.attributes)
        confidence = attributes.pop("confidence", None)
        score = attributes.pop("score", confidence)
        for name in [name for name, value in attributes.items() if not is_attribute_value(value)]:
            del attributes[name]
            self._losses[ATTRIBUTES][f"{name} (of a class of the image)"] += 1
        is_number = isinstance(score, (int, float))
        return ImageLabel(item.text, item.label, float(score) if is_number else None, attributes)


def _get_details(shape: Any) -> ShapeDetails:
    return ShapeDetails(z_order=int(shape.z_order), group=int(shape.group))


def _normalize_plain_boxes(annotations: Iterable[Any], size: tuple[int, int]) -> np.ndarray | None:
    """Return normalized boxes, float32 of shape (n, 4), or None if a shape is not a plain box."""
    height, width = size
    if not height or not width:
        return None
    sides: list[float] = []
    for shape in annotations:
        if type(shape) is not annotation.Bbox or shape.group or shape.z_order:
            return None
        if shape.attributes and "rotation" in shape.attributes:
            return None
        left, top, right, bottom = shape.points
        if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
            return None
        sides += left / width, top / height, right / width, bottom / height
    return np.array(sides, np.float32).reshape(-1, 4)  # dividing arrays would be slower


def _are_valid(corners: Sequence[float]) -> bool:
    left, top, right, bottom = corners
    return left <= right and top <= bottom and math.isfinite(right - left + bottom - top)


def _to_corners(box: Sequence[float]) -> PixelBox:
    x, y, width, height = box
    return x, y, x + width, y + height


def _rotate(kind: str, upright: PixelBox, degrees: float) -> list[float]:
    if kind == "bbox":
        return box_outline(upright, degrees)
    left, top, right, bottom = upright
    center = (left + right) / 2, (top + bottom) / 2
    return ellipse_outline(*center, (right - left) / 2, (bottom - top) / 2, degrees)


def _find_partner(
    shape: Any, corners: PixelBox, objects: Iterable[ExportedObject], min_overlap: float = 0.0
) -> ExportedObject | None:
    """Find the object of an outline or of points: same class, and same id or largest overlap."""
    candidates = [obj for obj in objects if obj.label == shape.label]
    if not candidates:
        return None
    shapes = [obj for obj in candidates if shape.id and obj.shape is not None]
    same_id = [obj for obj in shapes if obj.shape.id == shape.id]
    candidates = same_id or candidates
    boxes = np.array([obj.corners for obj in candidates], np.float64)
    overlaps = iou(boxes, np.array(corners, np.float64))
    best = int(overlaps.argmax())
    return candidates[best] if same_id or overlaps[best] >= min_overlap else None


def _find_corners(part: Any) -> PixelBox:
    if part.type.name != "mask":
        return _to_corners(part.get_bbox())
    if isinstance(part, BoxedMask) and part.has_its_box:
        return part.corners
    return enclose_pixels(np.asarray(part.image)) or (0.0, 0.0, 0.0, 0.0)


def _draw(points: Sequence[float], size: tuple[int, int]) -> np.ndarray:
    """Return the pixels inside a polygon, drawn like in Datumaro's own transforms."""
    from datumaro.util.mask_tools import rles_to_mask

    height, width = size
    return np.asarray(rles_to_mask([list(map(float, points))], width, height)).astype(bool)
