"""From Datumaro's annotations to the objects of a Detection."""

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
from tfod.detection.losses import LossCounter
from tfod.formats.reading.files import format_size

# Shapes that become an object of their own: its box, and its mask when masks are saved.
_BOX_TYPES = frozenset(("bbox", "rotated_bbox", "ellipse"))
_OUTLINE_TYPES = frozenset(("mask", "polygon"))
_MIN_OVERLAP = 0.5  # intersection over union from which a box and an outline are one object

NOT_CARRIED = "not written, the format has no place for them"
ATTRIBUTES = "attributes not written"
ENCLOSED = "written as their enclosing box"
OUTLINES = "outlines of boxes not written"
UNLABELLED = "without a class, written as id 0 with an empty text"
OUTSIDE = "boxes that reach outside the image, written so"
OTHER_SIZE = "masks of another size than their image, which trainers refuse, written so"
OBJECT_LOSSES = (NOT_CARRIED, ATTRIBUTES, ENCLOSED, OUTLINES, UNLABELLED, OUTSIDE, OTHER_SIZE)
"""What :class:`ObjectBuilder` counts, in the order of the message."""


@dataclass(slots=True)
class ExportedObject:
    """One object on its way into a record; corners and points are in pixels."""

    label: int | None
    corners: PixelBox
    attributes: dict[str, Any]
    outlines: list[Any] = field(default_factory=list)
    shape: Any = None
    outline: Sequence[float] | None = None  # of a shape that is no upright box: x, y, x, y, …
    drawn: ShapeDetails = field(default_factory=ShapeDetails)
    points: Any = None

    @property
    def id(self) -> int:
        """Number of the annotation that it was; 0 for none."""
        parts = [self.shape, *self.outlines, self.points]
        return next((int(part.id) for part in parts if part is not None and part.id), 0)


class ObjectBuilder:
    """Makes the objects of one image after the other.

    ``report`` is called with what is wrong with an annotation that cannot be written; it may raise.
    What does not come along is counted in ``losses``.
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
        known = dict[int | None, ExportClass](enumerate(classes.classes))
        self._by_label = {**known, None: ExportClass("", classes.unlabelled_id)}
        self._unlabelled = unlabelled
        self._save_masks = save_masks
        self._report = report
        self._losses = losses

    def build(self, annotations: Iterable[Any], size: tuple[int, int], **image: Any) -> Detection:
        """Make a Detection of an image of this height and width; what has no place is left out.

        ``image`` is what the Detection says of the image, such as its ``filename``.
        """
        annotations = list(annotations)
        boxes = None if self._save_masks else _plain_boxes(annotations, size)
        if boxes is not None:  # nearly always
            return self._assemble(boxes, annotations, image)
        others = [one for one in annotations if one.type is not AnnotationType.caption]
        found, image_labels = self.objects(others)
        return replace(
            self.assemble(found, size, **image),
            masks=[self._mask(one, size) for one in found] if found and self._save_masks else None,
            keypoints=self._keypoints(found, size),
            shape_details=index_shape_details([one.drawn for one in found]),
            image_labels=image_labels,
            captions=self._captions(annotations),
        )

    def objects(self, annotations: Iterable[Any]) -> tuple[list[ExportedObject], list[ImageLabel]]:
        """The objects of an image, in pixels, and the classes of the whole image."""
        groups: dict[Any, list[Any]] = {}
        image_labels: list[ImageLabel] = []
        parts: list[ExportedObject | list[Any]] = []  # objects, and groups that make some
        for one in annotations:
            kind = one.type.name
            if kind == "bbox" and not one.group:
                parts.append(self._box(one))
            elif kind == "label":
                image_labels.append(self._image_label(one))
            elif kind in _BOX_TYPES or kind in _OUTLINE_TYPES or kind == "points":
                if one.group not in groups or not one.group:
                    groups[one.group] = []
                    parts.append(groups[one.group])
                groups[one.group].append(one)
            else:
                self._losses[NOT_CARRIED][kind] += 1
        found: list[ExportedObject] = []
        for part in parts:
            found.extend(self._objects_of(part) if isinstance(part, list) else (part,))
        return [one for one in found if self._is_box(one)], image_labels

    def _is_box(self, one: ExportedObject) -> bool:
        if _are_corners(one.corners):
            return True
        values = ", ".join(f"{value:g}" for value in one.corners)
        self._report(f"a box is inverted or not finite (left, top, right, bottom = {values})")
        return False

    def _objects_of(self, members: list[Any]) -> list[ExportedObject]:
        """The objects of one group: boxes stay apart, an outline joins the box it belongs to."""
        objects = [self._box(one) for one in members if one.type.name in _BOX_TYPES]
        outlines: dict[Any, list[Any]] = {}
        for position, one in enumerate(members):
            if one.type.name in _OUTLINE_TYPES:
                # COCO's instances in several parts have one id; without ids parts are objects.
                key = (one.label, one.id) if one.id else (one.label, None, position)
                outlines.setdefault(key, []).append(one)
        for parts in outlines.values():
            self._add_outline(parts, objects)
        for one in members:
            if one.type.name == "points":
                self._add_points(one, objects)
        return objects

    def _box(self, one: Any) -> ExportedObject:
        kind, attributes = one.type.name, one.attributes
        if kind == "rotated_bbox" and not parse_degrees(one.r):
            kind = "bbox"
        if kind == "bbox" and "rotation" not in attributes:
            is_box = one.type.name == kind  # a rotated one has its centre, size and angle
            left, top, right, bottom = one.points if is_box else _as_corners(one.get_bbox())
            corners = left, top, right, bottom
            return ExportedObject(one.label, corners, attributes, shape=one, drawn=_how(one))
        corners = _as_corners(one.get_bbox())
        outline, drawn = None, _how(one)
        if kind == "rotated_bbox":
            half_width, half_height = one.w / 2, one.h / 2
            upright = (one.cx - half_width, one.cy - half_height,
                       one.cx + half_width, one.cy + half_height)  # fmt: skip
            outline = box_outline(upright, one.r)
            drawn = replace(drawn, box=upright, rotation=float(one.r))
        elif degrees := parse_degrees(attributes.get("rotation")):
            # The 0.3 line and CVAT keep a shape's rotation in an attribute, VOC's import as a text.
            attributes = {key: value for key, value in attributes.items() if key != "rotation"}
            outline = _turned(kind, corners, degrees)
            if kind == "bbox":
                kind, drawn = "rotated_bbox", replace(drawn, box=corners, rotation=degrees)
        if outline is not None:
            corners = enclose_points(outline)
        elif kind == "ellipse" and self._save_masks:
            # Pairs of coordinates in Datumaro 1.13, a flat list elsewhere.
            outline = np.asarray(one.as_polygon(), np.float64).reshape(-1).tolist()
        if kind != "bbox":
            self._losses[ENCLOSED][kind] += 1
        return ExportedObject(one.label, corners, attributes, [], one, outline, drawn)

    def _add_outline(self, parts: list[Any], objects: list[ExportedObject]) -> None:
        free = [one for one in objects if one.shape is not None and not one.outlines]
        corners = enclose_boxes([_outline_corners(part) for part in parts])
        found = _partner(parts[0], corners, free, _MIN_OVERLAP)
        if not self._save_masks:
            lost = self._losses[OUTLINES if found else ENCLOSED]
            lost[parts[0].type.name] += len(parts) if found else 1
        if found is None:
            found = ExportedObject(parts[0].label, corners, {}, drawn=_how(parts[0]))
            objects.append(found)
        found.outlines.extend(parts)
        found.attributes = {**parts[0].attributes, **found.attributes}

    def _add_points(self, one: Any, objects: list[ExportedObject]) -> None:
        known = one.label is not None and self._classes.of(one.label).keypoint_ids
        if not known or len(known) != len(one.visibility):
            self._losses[NOT_CARRIED]["points without a schema"] += 1
            return
        corners = _as_corners(one.get_bbox())
        found = _partner(one, corners, [each for each in objects if each.points is None])
        if found is None:
            found = ExportedObject(one.label, corners, {}, drawn=_how(one))
            objects.append(found)
        found.points = one
        found.attributes = {**one.attributes, **found.attributes}

    def assemble(
        self, found: Sequence[ExportedObject], size: tuple[int, int], **image: Any
    ) -> Detection:
        """Boxes, classes and attributes of objects on an image of this height and width."""
        height, width = size
        sides = [enclose_visible(x.outline, size) if x.outline else x.corners for x in found]
        corners = np.array(sides, np.float64)
        boxes = (corners.reshape(-1, 4) / (width, height, width, height)).astype(np.float32)
        made = self._assemble(boxes, found, image)
        self._losses[OUTSIDE][""] += int(((boxes < 0) | (boxes > 1)).any(axis=1).sum())
        return made

    def _assemble(
        self, boxes: np.ndarray, objects: Sequence[Any], image: Mapping[str, Any]
    ) -> Detection:
        """Objects of these normalized boxes, with the labels and attributes that they have."""
        labels = [one.label for one in objects]
        attributes = [one.attributes for one in objects]
        if None in labels:
            self._losses[self._unlabelled][""] += labels.count(None)
        find, of = self._by_label.get, self._classes.of
        known = [find(label) or of(label) for label in labels]
        return Detection(
            boxes=boxes,
            class_text=[one.text for one in known],
            class_label=[one.label for one in known],
            attributes=self._attributes(attributes) if any(attributes) else {},
            **image,
        )

    def _mask(self, one: ExportedObject, size: tuple[int, int]) -> PngMask:
        mask: np.ndarray | None = None
        for part in one.outlines:
            drawn = part.image if part.type.name == "mask" else _draw(part.points, size)
            drawn = np.asarray(drawn, bool)
            if drawn.shape != size:  # trainers stop at it
                if len(one.outlines) > 1:
                    mask_size, image_size = format_size(drawn.shape), format_size(size)
                    self._report(f"a mask is {mask_size}, its image {image_size}; resize it")
                    continue
                self._losses[OTHER_SIZE][""] += 1
            mask = drawn if mask is None else mask | drawn
        if mask is None and one.outline is None:
            return PngMask(encode_mask_png(fill_box(one.corners, size), is_box=True))
        return PngMask(encode_mask_png(_draw(one.outline or (), size) if mask is None else mask))

    def _keypoints(self, found: list[ExportedObject], size: tuple[int, int]) -> Keypoints | None:
        if not any(one.points is not None for one in found):
            return None
        names = self._classes.keypoint_names
        height, width = size
        xy = np.zeros((len(found), len(names), 2), np.float32)
        visibility = np.zeros((len(found), len(names)), np.int64)
        for row, one in enumerate(found):
            if one.points is None:
                continue
            assert one.label is not None  # points join objects of their own class
            ids = list(self._classes.of(one.label).keypoint_ids)
            points = np.array(one.points.points, np.float64).reshape(-1, 2)
            xy[row, ids] = points / (width, height)
            visibility[row, ids] = [int(value.value) for value in one.points.visibility]
        return Keypoints(xy, visibility, names)

    def _attributes(
        self, attributes: Sequence[Mapping[str, Any]]
    ) -> dict[str, list[AttributeValue]]:
        names = dict.fromkeys(itertools.chain.from_iterable(attributes))
        carried: dict[str, list[AttributeValue]] = {}
        for name in names:
            found = (one.get(name) for one in attributes)
            values = [one.item() if isinstance(one, np.generic) else one for one in found]
            unfit = [number for number, value in enumerate(values) if not is_attribute_value(value)]
            for number in unfit:
                self._losses[ATTRIBUTES][name] += 1
                values[number] = None
            if any(value is not None for value in values):
                carried[name] = values
        return carried

    def _captions(self, annotations: Iterable[Any]) -> list[str]:
        captions = []
        for one in annotations:
            if one.type is AnnotationType.caption:
                captions.append(one.caption)
                for name in one.attributes:
                    self._losses[ATTRIBUTES][f"{name} (of a caption)"] += 1
        return captions

    def _image_label(self, one: Any) -> ImageLabel:
        known = self._classes.of(one.label)
        score = one.attributes.get("score", one.attributes.get("confidence"))
        others = {k: v for k, v in one.attributes.items() if k not in ("score", "confidence")}
        attributes = {k: v for k, v in others.items() if is_attribute_value(v)}
        for name in (one for one in others if one not in attributes):
            self._losses[ATTRIBUTES][f"{name} (of a class of the image)"] += 1
        number = isinstance(score, (int, float))
        return ImageLabel(known.text, known.label, float(score) if number else None, attributes)


def _how(one: Any) -> ShapeDetails:
    """The layer and the group of an annotation."""
    return ShapeDetails(z_order=int(one.z_order), group=int(one.group))


def _plain_boxes(annotations: Iterable[Any], size: tuple[int, int]) -> np.ndarray | None:
    """The normalized boxes, float32 of shape (n, 4), where all annotations are plain boxes.

    None where one is something else, is turned, in a group or another layer, or not in the image.
    """
    height, width = size
    if not height or not width:
        return None
    found: list[float] = []
    for one in annotations:
        if type(one) is not annotation.Bbox or one.group or one.z_order:
            return None
        if one.attributes and "rotation" in one.attributes:
            return None
        left, top, right, bottom = one.points
        if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
            return None
        found += left / width, top / height, right / width, bottom / height
    return np.array(found, np.float32).reshape(-1, 4)  # NumPy's division costs more than this


def _are_corners(corners: Sequence[float]) -> bool:
    left, top, right, bottom = corners
    return left <= right and top <= bottom and math.isfinite(right - left + bottom - top)


def _as_corners(box: Sequence[float]) -> PixelBox:
    x, y, width, height = box
    return x, y, x + width, y + height


def _turned(kind: str, upright: PixelBox, degrees: float) -> list[float]:
    """The outline of a box or an ellipse that is turned about its centre."""
    if kind == "bbox":
        return box_outline(upright, degrees)
    left, top, right, bottom = upright
    center = (left + right) / 2, (top + bottom) / 2
    return ellipse_outline(*center, (right - left) / 2, (bottom - top) / 2, degrees)


def _partner(
    one: Any, corners: PixelBox, objects: Iterable[ExportedObject], least: float = 0.0
) -> ExportedObject | None:
    """The object that an outline, or points, belong to: of the same class, and by id or place.

    By place it is the one whose box overlaps the corners most; ``least`` is the intersection over
    union that it takes.
    """
    free = [each for each in objects if each.label == one.label]
    same = [each for each in free if one.id and each.shape is not None and each.shape.id == one.id]
    if not free:
        return None
    boxes = np.array([each.corners for each in same or free], np.float64)
    overlaps = iou(boxes, np.array(corners, np.float64))
    best = int(overlaps.argmax())
    return (same or free)[best] if same or overlaps[best] >= least else None


def _outline_corners(part: Any) -> PixelBox:
    if part.type.name != "mask":
        return _as_corners(part.get_bbox())
    if isinstance(part, BoxedMask) and part.has_its_box:
        return part.corners
    return enclose_pixels(np.asarray(part.image)) or (0.0, 0.0, 0.0, 0.0)


def _draw(points: Sequence[float], size: tuple[int, int]) -> np.ndarray:
    """The pixels inside a polygon, drawn as Datumaro's own transforms draw it."""
    from datumaro.util.mask_tools import rles_to_mask

    height, width = size
    return np.asarray(rles_to_mask([list(map(float, points))], width, height)).astype(bool)
