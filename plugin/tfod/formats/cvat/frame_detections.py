"""Conversion of CVAT's frames to Detections and back.

It is shared by CVAT's formats on the server (:mod:`tfod.cvat.server`), by the bridge
(:mod:`tfod.cvat.client`), and by CVAT's XML (:mod:`tfod.formats.cvat.cvat_for_images`).
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tfod.detection.attributes import find_unrotated_box, parse_typed_number
from tfod.detection.box_geometry import PixelBox, clip_outline, enclose_pixels, enclose_points
from tfod.detection.detection import (
    AttributeValue,
    Detection,
    ImageLabel,
    PngMask,
    ShapeDetails,
    index_shape_details,
)
from tfod.detection.images.image import find_format, sniff_format
from tfod.detection.images.mask_images import encode_mask_png
from tfod.detection.images.pillow import open_image
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.losses import ATTRIBUTES, ENCLOSED, UNSUPPORTED, LossCounter
from tfod.errors import TfodError, excerpt
from tfod.formats.cvat.shapes import (
    BOX,
    MASK,
    POINTS,
    Attributes,
    CvatImage,
    CvatShape,
    decode_runs,
    draw_shape,
    encode_runs,
)
from tfod.formats.numbers import multiply_as_typed
from tfod.tfrecord.image_names import split_extension

OCCLUDED = "occluded"
TRACK = "track_id"
_CHECKBOX, _NUMBER = "checkbox", "number"
_BOOLEANS = {"true": True, "false": False}
_VIDEO_FRAME_EXTENSION = ".PNG"
"""Extension of video frames in CVAT's own exports (``FrameProvider.VIDEO_FRAME_EXT``)."""
_MAX_ROUNDING = 0.005
"""Rounding error of CVAT's XML, which has hundredths of a pixel."""
_READABLE = frozenset(("jpeg", "png", "gif", "bmp", None))
"""Formats that ``tf.io.decode_image`` decodes; files of unknown format are also kept."""

_OUTSIDE = "not written, because they are completely outside their frame"
_RECTANGLES = "replaced by rectangles, which an import does not undo"
_MASKED = "replaced by masks"
TRACKS = "tracks split into single shapes, one per frame"
_CLIPPED = "clipped to their frame"
_CONVERTED = "images converted to PNG for TensorFlow"
_NOT_SET = ("", "false")
_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"))


class DetectionBuilder:
    """Converts frames to Detections, and counts what is lost or changed.

    Args:
        label_map: the label map, which must contain every class.
        input_types: input types of attributes by class and name.
        save_masks: whether to draw a mask for each shape.
        clip_boxes: whether to clip boxes that are not rotated to the frame.

    Attributes:
        losses: counts what is not in the shards.
        changes: counts what is in the shards in another form.
    """

    def __init__(
        self,
        label_map: LabelMap,
        input_types: Mapping[tuple[str, str], str],
        save_masks: bool,
        clip_boxes: bool = True,
    ) -> None:
        self._label_map = label_map
        self._input_types = input_types
        self._save_masks = save_masks
        self._clip_boxes = clip_boxes
        self._numbers = itertools.count(1)  # source ids, which several trainers parse as numbers
        self.losses = LossCounter(UNSUPPORTED, _OUTSIDE, ATTRIBUTES)
        self.changes = LossCounter(TRACKS, ENCLOSED, _RECTANGLES, _MASKED, _CLIPPED, _CONVERTED)
        self._tracks: dict[tuple[int | None, int], int] = {}  # each task counts from 0

    def build(self, image: CvatImage) -> Detection:
        """Convert a frame without shapes outside it; raises TfodError for unknown classes."""
        size = get_frame_size(image)
        self.losses[UNSUPPORTED].update(image.other_shapes)
        shapes, corners = [], []
        for shape in map(_sort_corners, image.shapes):
            visible = self._clip(shape, size)
            if visible is None:
                _count_shape(self.losses[_OUTSIDE])
            else:
                shapes.append(shape)
                corners.append(visible)
        self._count_changes(shapes)
        masks = None
        if self._save_masks and shapes:
            masks = [
                PngMask(encode_mask_png(draw_shape(shape, size), is_box=is_plain_box(shape)))
                for shape in shapes
            ]
        height, width = size
        boxes = np.array(corners, np.float64).reshape(-1, 4) / (width, height, width, height)
        return Detection(
            # Only frames of a video have no extension.
            filename=image.name + _VIDEO_FRAME_EXTENSION * (not split_extension(image.name)[1]),
            format="",
            sha256="",
            height=height,
            width=width,
            encoded=b"",
            boxes=boxes,
            class_text=[shape.label for shape in shapes],
            class_label=[self._get_id(shape.label, image) for shape in shapes],
            masks=masks,
            attributes=self._collect_attributes(shapes, image.task),
            shape_details=index_shape_details([_get_details(shape) for shape in shapes]),
            image_labels=[
                ImageLabel(
                    tag.label,
                    self._get_id(tag.label, image),
                    attributes=self._parse_values(tag.label, tag.attributes),
                )
                for tag in image.tags
            ],
        )

    def complete(self, detection: Detection, encoded: bytes | None) -> Detection:
        """Add a source id, and the image file if any; raises TfodError if the file is damaged."""
        detection = replace(detection, source_id=str(next(self._numbers)))
        if not encoded:
            return detection
        filename = detection.filename or ""
        encoded = self._to_readable(encoded, filename)
        return replace(
            detection,
            encoded=encoded,
            format=find_format(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest(),
        )

    def _clip(self, shape: CvatShape, size: tuple[int, int]) -> PixelBox | None:
        """Return the enclosing box of the part inside the frame, or None.

        The editor allows rotated boxes and ellipses to extend outside (``cvat-core``,
        ``annotations-objects/drawn.ts``), and the API allows it for any shape.
        """
        height, width = size
        left, top, right, bottom = corners = shape.corners
        if left >= 0 and top >= 0 and right <= width and bottom <= height:
            return corners
        if not self._clip_boxes and is_plain_box(shape):
            return corners
        if left >= width or top >= height or right <= 0 or bottom <= 0:
            return None
        visible: PixelBox | None
        visible = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
        if max(-left, -top, right - width, bottom - height) < _MAX_ROUNDING:
            return visible
        if shape.kind == MASK:
            visible = enclose_pixels(decode_runs(shape.runs, shape.extent, size))
        elif shape.kind != BOX or shape.rotation:
            outline = clip_outline(shape.outline, size)
            visible = enclose_points(outline) if outline else None
        if visible is not None:
            _count_shape(self.changes[_CLIPPED])
        return visible

    def _to_readable(self, encoded: bytes, name: str) -> bytes:
        """Convert an image file that TensorFlow cannot read to PNG."""
        image_format = sniff_format(encoded[:16])
        if image_format in _READABLE:
            return encoded
        out = io.BytesIO()
        try:
            with open_image(encoded) as image:
                converted = image if image.mode in _PNG_MODES else image.convert("RGB")
                exif = image.getexif()  # keeps the orientation
                converted.save(out, "PNG", exif=exif.tobytes() if exif else b"")
        except Exception as error:  # Pillow raises many kinds of errors for damaged images
            reason = " ".join(str(error).split()) or type(error).__name__
            raise TfodError(
                f"frame {excerpt(name)} is {image_format}, which TensorFlow does not read, and "
                f"cannot be converted to PNG ({reason}); export without images"
            ) from None
        self.changes[_CONVERTED][str(image_format)] += 1
        return out.getvalue()

    def _get_id(self, label: str, image: CvatImage) -> int:
        item = self._label_map.find(label)
        if item is None:
            raise TfodError(
                f"image {excerpt(image.name)} has the class {excerpt(label)}, which is not a "
                "label of the task; export it again"
            )
        return item.id

    def _count_changes(self, shapes: Sequence[CvatShape]) -> None:
        for shape in shapes:
            kind = f"rotated {shape.kind}" if shape.rotation else shape.kind
            if not self._save_masks and not is_plain_box(shape):
                self.changes[ENCLOSED if shape.kind == BOX else _RECTANGLES][kind] += 1
            elif self._save_masks and shape.kind not in (BOX, MASK):
                self.changes[_MASKED][kind] += 1

    def _collect_attributes(
        self, shapes: Sequence[CvatShape], task: int | None
    ) -> dict[str, list[AttributeValue]]:
        rows = [self._parse_values(shape.label, shape.attributes) for shape in shapes]
        for shape, values in zip(shapes, rows, strict=True):
            # CVAT's flag replaces an attribute of the same name.
            text = str(values.pop(OCCLUDED, ""))
            self.losses[ATTRIBUTES][OCCLUDED] += text.lower() not in _NOT_SET
            values[OCCLUDED] = int(shape.occluded)
            if shape.track is not None:
                number = self._tracks.setdefault((task, shape.track), len(self._tracks))
                values.setdefault(TRACK, number)
        self.changes[TRACKS][""] = len(self._tracks)
        names = dict.fromkeys(name for values in rows for name in values)
        return {name: [values.get(name) for values in rows] for name in names}

    def _parse_values(self, label: str, attributes: Attributes) -> dict[str, AttributeValue]:
        values: dict[str, AttributeValue] = dict(attributes)
        for name, text in attributes:
            input_type = self._input_types.get((label, name), "")
            if input_type == _CHECKBOX:
                values[name] = _BOOLEANS.get(text.lower(), text)
            elif input_type == _NUMBER and len(text) <= 20:
                values[name] = parse_typed_number(text)
        return values


def _get_details(shape: CvatShape) -> ShapeDetails:
    if not (shape.rotation or shape.z_order or shape.group):
        return _PLAIN
    is_rotated = shape.kind == BOX and shape.rotation
    return ShapeDetails(
        box=shape.extent if is_rotated else None,
        rotation=shape.rotation if is_rotated else 0.0,
        z_order=shape.z_order,
        group=shape.group,
    )


_PLAIN = ShapeDetails()
FitAttributes = Callable[[str, Mapping[str, AttributeValue]], Attributes]
"""Converts the attributes of an object to texts; the first argument is the name of its class."""


def build_shapes(
    detection: Detection,
    classes: Sequence[str],
    corners: Sequence[PixelBox],
    size: tuple[int, int],
    draw: Callable[[int], np.ndarray | None],
    fit: FitAttributes,
) -> Iterator[CvatShape]:
    """Yield the shapes of the objects of a record, each followed by its keypoints.

    Args:
        detection: the record.
        classes: class name of each object.
        corners: box of each object in pixels.
        size: height and width of the frame.
        draw: draws the mask of an object by its index; returns None for a filled box.
        fit: converts the attributes of an object.
    """
    free_group = 1 + max((details.group for details in detection.shape_details.values()), default=0)
    for number, (label, box) in enumerate(zip(classes, corners, strict=True)):
        values = {
            name: column[number]
            for name, column in detection.attributes.items()
            if column[number] is not None
        }
        details = detection.shape_details.get(number, _PLAIN)
        points = get_keypoints(detection, number, size)
        unrotated = find_unrotated_box(details, box, size)
        mask = draw(number) if unrotated is None else None
        runs, extent = (None if mask is None else encode_runs(mask)) or ((), unrotated or box)
        group = details.group or (free_group + number if points else 0)
        yield CvatShape(
            kind=MASK if runs else BOX,
            label=label,
            extent=extent,
            rotation=details.rotation if unrotated is not None else 0.0,
            runs=tuple(runs),
            occluded=values.pop(OCCLUDED, 0) == 1,
            group=group,
            attributes=fit(label, values),
            z_order=details.z_order,
        )
        if points:
            yield CvatShape(POINTS, label, enclose_points(points), points=points, group=group)


def get_keypoints(detection: Detection, number: int, size: tuple[int, int]) -> tuple[float, ...]:
    """Return the labelled keypoints of an object in pixels: x, y, x, y, …"""
    keypoints = detection.keypoints
    if keypoints is None:
        return ()
    is_labelled = keypoints.visibility[number] > 0
    xy = np.nan_to_num(keypoints.xy[number][is_labelled])
    return tuple(multiply_as_typed(xy, np.array(size[::-1])).reshape(-1).tolist())


def _count_shape(counter: Counter[str]) -> None:
    count = counter.total() + 1
    counter.clear()
    counter["shape" if count == 1 else "shapes"] = count


def _sort_corners(shape: CvatShape) -> CvatShape:
    """Sort the corners of a box, since CVAT's API accepts any order."""
    left, top, right, bottom = shape.extent
    if shape.kind != BOX or (left <= right and top <= bottom):
        return shape
    extent = min(left, right), min(top, bottom), max(left, right), max(top, bottom)
    return replace(shape, extent=extent)


def is_plain_box(shape: CvatShape) -> bool:
    """Return whether a shape is a box without rotation."""
    return shape.kind == BOX and not shape.rotation


def get_frame_size(image: CvatImage) -> tuple[int, int]:
    """Return height and width of a frame; raises TfodError if they are unknown."""
    if not image.height or not image.width or min(image.height, image.width) < 0:
        raise TfodError(f"image {excerpt(image.name)} has no size, which is needed for its boxes")
    return image.height, image.width
