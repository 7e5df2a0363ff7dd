"""From a frame of CVAT to a Detection and back, and a count of what cannot come.

The one way out of CVAT and into it: of its own formats (:mod:`tfod.cvat.server`), of the bridge
(:mod:`tfod.cvat.client`) and of its XML (:mod:`tfod.formats.cvat.cvat_for_images`).
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
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.losses import LossCounter
from tfod.errors import TfodError
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
_TRUTH = {"true": True, "false": False}
_VIDEO_FRAME_EXTENSION = ".PNG"
"""What CVAT's own exports add to a video frame's name (``FrameProvider.VIDEO_FRAME_EXT``)."""
_HUNDREDTH = 0.005
"""CVAT's XML has hundredths of a pixel: what reaches out by less is rounding."""
_READABLE = frozenset(("jpeg", "png", "gif", "bmp", None))
"""Formats that TensorFlow decodes (``tf.io.decode_image``); None is for us to leave alone."""

_NO_PLACE = "not written, the format has no place for them"
_OUTSIDE = "not written, wholly outside their frame"
_ATTRIBUTES = "attributes not written"
_ENCLOSED = "written as their enclosing box"
_RECTANGLES = "written as rectangles, which they remain after an import"
_MASKED = "written as masks"
TRACKS = "tracks written as single shapes, one a frame"
_CLIPPED = "clipped to their frame"
_CONVERTED = "images stored as PNG, for TensorFlow"
_NOT_SET = ("", "false")
_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"))


class DetectionBuilder:
    """Makes a Detection of one image after the other; counts what does not come along.

    ``input_types`` are those of attributes by class and name, as the document's head says.
    ``left_out`` is what is not in the shards, ``changed`` what is there in another form. Without
    ``clip_boxes`` boxes that are not rotated stay as they are, even outside their frame.
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
        self._numbers = itertools.count(1)  # source ids, which several trainers parse
        self.left_out = LossCounter(_NO_PLACE, _OUTSIDE, _ATTRIBUTES)
        self.changed = LossCounter(TRACKS, _ENCLOSED, _RECTANGLES, _MASKED, _CLIPPED, _CONVERTED)
        self._tracks: dict[tuple[int | None, int], int] = {}  # each task counts its own from 0

    def build(self, image: CvatImage) -> Detection:
        """Make the Detection of a frame, with those of its shapes of which it shows something.

        Raises:
            TfodError: a class is not in the label map, or the size is not known.
        """
        size = frame_size(image)
        self.left_out[_NO_PLACE].update(image.others)
        shapes, corners = [], []
        for shape in map(_upright, image.shapes):
            seen = self._visible(shape, size)
            if seen is None:
                _count_shape(self.left_out[_OUTSIDE])
            else:
                shapes.append(shape)
                corners.append(seen)
        self._count_changed(shapes)
        masks = None
        if self._save_masks and shapes:
            masks = [
                PngMask(encode_mask_png(draw_shape(one, size), is_box=is_plain_box(one)))
                for one in shapes
            ]
        height, width = size
        boxes = np.array(corners, np.float64).reshape(-1, 4) / (width, height, width, height)
        return Detection(
            # What has no extension is a frame of a video.
            filename=image.name + _VIDEO_FRAME_EXTENSION * (not split_extension(image.name)[1]),
            format="",
            sha256="",
            height=height,
            width=width,
            encoded=b"",
            boxes=boxes,
            class_text=[one.label for one in shapes],
            class_label=[self._id(one.label, image) for one in shapes],
            masks=masks,
            attributes=self._attributes(shapes, image.task),
            shape_details=index_shape_details([_drawn(one) for one in shapes]),
            image_labels=[
                ImageLabel(
                    tag.label,
                    self._id(tag.label, image),
                    attributes=self._values(tag.label, tag.attributes),
                )
                for tag in image.tags
            ],
        )

    def complete(self, one: Detection, encoded: bytes | None) -> Detection:
        """Number a Detection that is to be written, and add its image file, if there is one.

        Raises:
            TfodError: the file is in a format that TensorFlow does not read, and broken.
        """
        one = replace(one, source_id=str(next(self._numbers)))
        if not encoded:
            return one
        filename = one.filename or ""
        encoded = self._readable(encoded, filename)
        return replace(
            one,
            encoded=encoded,
            format=find_format(encoded, filename),
            sha256=hashlib.sha256(encoded).hexdigest(),
        )

    def _visible(self, shape: CvatShape, size: tuple[int, int]) -> PixelBox | None:
        """The enclosing box of the part inside the frame; None where there is no such part.

        The editor lets rotated boxes and ellipses reach out (``cvat-core``,
        ``annotations-objects/drawn.ts``), its API any shape.
        """
        height, width = size
        left, top, right, bottom = corners = shape.corners
        if left >= 0 and top >= 0 and right <= width and bottom <= height:
            return corners
        if not self._clip_boxes and is_plain_box(shape):
            return corners
        if left >= width or top >= height or right <= 0 or bottom <= 0:
            return None
        seen: PixelBox | None = (max(left, 0), max(top, 0), min(right, width), min(bottom, height))
        if max(-left, -top, right - width, bottom - height) < _HUNDREDTH:
            return seen
        if shape.kind == MASK:
            seen = enclose_pixels(decode_runs(shape.runs, shape.extent, size))
        elif shape.kind != BOX or shape.rotation:
            outline = clip_outline(shape.outline, size)
            seen = enclose_points(outline) if outline else None
        if seen is not None:
            _count_shape(self.changed[_CLIPPED])
        return seen

    def _readable(self, encoded: bytes, name: str) -> bytes:
        """An image file that TensorFlow can read, with the same pixels."""
        kind = sniff_format(encoded[:16])
        if kind in _READABLE:
            return encoded
        out = io.BytesIO()
        try:
            from PIL import Image

            with Image.open(io.BytesIO(encoded)) as opened:
                kept = opened if opened.mode in _PNG_MODES else opened.convert("RGB")
                exif = opened.getexif()  # with the orientation, by which its pixels are shown
                kept.save(out, "PNG", exif=exif.tobytes() if exif else b"")
        except Exception as error:  # whatever Pillow raises for what is not an image
            reason = " ".join(str(error).split()) or type(error).__name__
            raise TfodError(
                f"frame {name!r:.81} is {kind}, which TensorFlow does not read, and cannot be "
                f"stored as PNG ({reason}); export without images"
            ) from None
        self.changed[_CONVERTED][str(kind)] += 1
        return out.getvalue()

    def _id(self, label: str, image: CvatImage) -> int:
        item = self._label_map.find(label)
        if item is None:
            raise TfodError(
                f"image {image.name!r:.81} has the class {label!r:.81}, which is not a label of "
                "the task; export it again"
            )
        return item.id

    def _count_changed(self, shapes: Sequence[CvatShape]) -> None:
        for shape in shapes:
            kind = f"rotated {shape.kind}" if shape.rotation else shape.kind
            if not self._save_masks and not is_plain_box(shape):
                self.changed[_ENCLOSED if shape.kind == BOX else _RECTANGLES][kind] += 1
            elif self._save_masks and shape.kind not in (BOX, MASK):
                self.changed[_MASKED][kind] += 1

    def _attributes(
        self, shapes: Sequence[CvatShape], task: int | None
    ) -> dict[str, list[AttributeValue]]:
        found = [self._values(shape.label, shape.attributes) for shape in shapes]
        for shape, own in zip(shapes, found, strict=True):
            # CVAT's own mark and an attribute of that name cannot both be written.
            text = str(own.pop(OCCLUDED, ""))
            self.left_out[_ATTRIBUTES][OCCLUDED] += text.lower() not in _NOT_SET
            own[OCCLUDED] = int(shape.occluded)
            if shape.track is not None:
                number = self._tracks.setdefault((task, shape.track), len(self._tracks))
                own.setdefault(TRACK, number)
        self.changed[TRACKS][""] = len(self._tracks)
        names = dict.fromkeys(name for own in found for name in own)
        return {name: [own.get(name) for own in found] for name in names}

    def _values(self, label: str, attributes: Attributes) -> dict[str, AttributeValue]:
        """The values that texts mean, by the kinds of the attributes."""
        found: dict[str, AttributeValue] = dict(attributes)
        for name, text in attributes:
            kind = self._input_types.get((label, name), "")
            if kind == _CHECKBOX:
                found[name] = _TRUTH.get(text.lower(), text)
            elif kind == _NUMBER and len(text) <= 20:
                found[name] = parse_typed_number(text)
        return found


def _drawn(shape: CvatShape) -> ShapeDetails:
    """How a shape was drawn that is not a plain box."""
    if not (shape.rotation or shape.z_order or shape.group):
        return _PLAIN
    turned = shape.kind == BOX and shape.rotation
    return ShapeDetails(
        box=shape.extent if turned else None,
        rotation=shape.rotation if turned else 0.0,
        z_order=shape.z_order,
        group=shape.group,
    )


_PLAIN = ShapeDetails()
FitAttributes = Callable[[str, Mapping[str, AttributeValue]], Attributes]
"""Makes texts of an object's attributes, by the name of its class."""


def shapes_of(
    one: Detection,
    classes: Sequence[str],
    corners: Sequence[PixelBox],
    size: tuple[int, int],
    pixels: Callable[[int], np.ndarray | None],
    fit: FitAttributes,
) -> Iterator[CvatShape]:
    """The shapes of a record's objects, as they were drawn, each followed by its keypoints.

    Args:
        one: the record.
        classes: the names of its objects' classes.
        corners: their boxes in pixels.
        size: height and width of the frame.
        pixels: draws an object's mask by its number; None where it has none but its box.
        fit: what is kept of its attributes.
    """
    free = 1 + max((drawn.group for drawn in one.shape_details.values()), default=0)
    for number, (label, box) in enumerate(zip(classes, corners, strict=True)):
        values = {
            name: column[number]
            for name, column in one.attributes.items()
            if column[number] is not None
        }
        drawn = one.shape_details.get(number, _PLAIN)
        points = keypoints_of(one, number, size)
        before = find_unrotated_box(drawn, box, size)
        mask = pixels(number) if before is None else None
        runs, extent = (None if mask is None else encode_runs(mask)) or ((), before or box)
        group = drawn.group or (free + number if points else 0)
        yield CvatShape(
            kind=MASK if runs else BOX,
            label=label,
            extent=extent,
            rotation=drawn.rotation if before is not None else 0.0,
            runs=tuple(runs),
            occluded=values.pop(OCCLUDED, 0) == 1,
            group=group,
            attributes=fit(label, values),
            z_order=drawn.z_order,
        )
        if points:
            yield CvatShape(POINTS, label, enclose_points(points), points=points, group=group)


def keypoints_of(one: Detection, number: int, size: tuple[int, int]) -> tuple[float, ...]:
    """The keypoints of an object that are there, in pixels: x, y, x, y, …"""
    if one.keypoints is None:
        return ()
    there = one.keypoints.visibility[number] > 0
    xy = multiply_as_typed(np.nan_to_num(one.keypoints.xy[number][there]), np.array(size[::-1]))
    return tuple(xy.reshape(-1).tolist())


def _count_shape(counter: Counter[str]) -> None:
    count = counter.total() + 1
    counter.clear()
    counter["shape" if count == 1 else "shapes"] = count


def _upright(shape: CvatShape) -> CvatShape:
    """A box with its corners in order; CVAT's API takes others."""
    left, top, right, bottom = shape.extent
    if shape.kind != BOX or (left <= right and top <= bottom):
        return shape
    extent = min(left, right), min(top, bottom), max(left, right), max(top, bottom)
    return replace(shape, extent=extent)


def is_plain_box(shape: CvatShape) -> bool:
    """Whether it is a box that is not turned."""
    return shape.kind == BOX and not shape.rotation


def frame_size(image: CvatImage) -> tuple[int, int]:
    """Height and width of a frame; raises TfodError where they are not known."""
    if not image.height or not image.width or min(image.height, image.width) < 0:
        raise TfodError(f"image {image.name!r:.81} has no size, so its boxes cannot be normalized")
    return image.height, image.width
