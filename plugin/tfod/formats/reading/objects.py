"""Conversion of annotated images of any format to records: class ids, boxes, masks and keypoints.

Readers pass each object as an :class:`AnnotatedObject` to a :class:`DatasetBuilder`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfod.detection.box_geometry import enclose_visible, parse_degrees
from tfod.detection.detection import (
    AttributeValue,
    Detection,
    Keypoints,
    PngMask,
    ShapeDetails,
    index_shape_details,
)
from tfod.detection.images.mask_images import box_outline, encode_mask_png, fill_box
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import (
    LabelMap,
    load_label_map,
    load_shipped_label_map,
    read_label_map,
)
from tfod.detection.losses import LossCounter
from tfod.errors import TfodError, excerpt
from tfod.formats.dataset import Dataset, Images
from tfod.formats.options import ConversionProblems, Options, Refusal
from tfod.formats.reading.files import (
    SIZE_MISMATCH,
    AnnotatedSize,
    Frame,
    ImageFiles,
    Size,
    find_frame,
    format_size,
    to_output_frame,
)
from tfod.formats.reading.odd_boxes import NORMALIZED, select_writable_boxes
from tfod.sources.label_map_search import find_folder_label_map
from tfod.tfrecord.image_names import safe_relative_path

_NO_SIZE = Refusal(
    "images without a size in their annotations, which is needed to normalize boxes in pixels",
    "add width and height to the annotation, or omit --no-images to read them from the image",
)
_BATCH_SIZE = 16  # images, whose bytes are kept in memory
ROTATED = "rotated boxes, replaced by their enclosing boxes"


@dataclass(frozen=True)
class SourceClasses:
    """The label map that gives the classes of a dataset their ids.

    Attributes:
        label_map: label map, which must contain every class of the dataset.
        name: name of the label map in messages.
        notes: warnings from reading the label map.
        file: file of the label map; '' if there is none.
    """

    label_map: LabelMap
    name: str
    notes: tuple[str, ...] = ()
    file: str = ""

    def get_id(self, text: str, location: str) -> int:
        """Return the id of a class; raise TfodError if the label map lacks it."""
        item = self.label_map.find(text)
        if item is None:
            near = self.label_map.fuzzy_names.find_nearest(text)
            hint = f". Did you mean {excerpt(near)}? Correct it" if near else "; correct it"
            raise TfodError(
                f"{location}: class {excerpt(text)} is not in the label map {self.name}{hint}, "
                "add it to the label map, or pass another one with --label-map"
            )
        return item.id

    @classmethod
    def find(
        cls,
        options: Options,
        folder: str,
        class_names: Callable[[], Iterable[str]],
        origin: str,
        shipped: str = "",
    ) -> SourceClasses:
        """Choose the label map: the requested one, the one in the folder, or a new one.

        A file that is not a label map raises LabelMapError.

        Args:
            options: options of the conversion, which may request a label map.
            folder: folder of the source. Its label map is used if it has every class.
            class_names: function that returns all class names, in the order of a new label map.
            origin: source of the names, for messages.
            shipped: name of a shipped label map to use if it has every class.
        """
        if (requested := options.label_map) is not None:
            label_map, notes = load_label_map(requested)
            return cls(label_map, requested, tuple(notes), requested)
        names = list(dict.fromkeys(class_names()))
        nearest, several = find_folder_label_map(folder or os.curdir, "")
        if not nearest and not several and options.source:
            nearest, several = find_folder_label_map(options.source, "")
        unused = []
        if nearest is not None:
            label_map, notes = read_label_map(nearest)
            missing = [repr(name) for name in names if not label_map.find(name)]
            if not missing:
                return cls(label_map, nearest, tuple(notes), nearest)
            unused = [f"{nearest} was not used: it lacks the classes {', '.join(missing)}"]
        elif several:
            unused = [f"the folder has several label maps; none was used: {', '.join(several)}"]
        shipped_map = load_shipped_label_map(shipped) if shipped else None
        if shipped_map and all(map(shipped_map.find, names)):
            return cls(shipped_map, shipped, tuple(unused))
        return cls(LabelMap.from_names(names), f"made from {origin}", tuple(unused))


class AnnotatedObject(NamedTuple):
    """An object as its annotation describes it.

    Attributes:
        name: class name.
        box: xmin, ymin, xmax and ymax, in pixels or normalized (``DatasetBuilder.is_normalized``).
        location: location of the annotation, for messages.
        attributes: other values by name.
        points: x, y and visibility of keypoints, in the unit of the box; same number per object.
        outline: outline for ``DatasetBuilder.draw``.
        details: box before rotation, if it is rotated.
    """

    name: str
    box: Sequence[float]
    location: str
    attributes: Mapping[str, AttributeValue] = {}
    points: np.ndarray | None = None
    outline: Any = None
    details: ShapeDetails = ShapeDetails()

    def enclose(self, size: Size) -> AnnotatedObject:
        """Return a rotated object with its outline, and the box around its visible part."""
        if self.details.box is None:
            return self
        outline = box_outline(self.details.box, self.details.rotation)
        box = enclose_visible(outline, size)
        return self._replace(box=box, outline=self.outline or [outline])


def read_rotation(
    box: Sequence[float], rotation: object, location: str, problems: ConversionProblems
) -> ShapeDetails:
    """Return the shape of a box that is rotated by some degrees, and count it."""
    if degrees := parse_degrees(rotation):
        problems.add(ROTATED, location)
        left, top, right, bottom = box
        return ShapeDetails((left, top, right, bottom), degrees)
    return ShapeDetails()


def draw_masks(
    draw_outline: Callable[[Any, Size, str], np.ndarray | None],
    problems: ConversionProblems,
    objects: Sequence[AnnotatedObject],
    frame: Frame,
) -> list[PngMask]:
    """Draw a mask for each object, since the OD API needs all of them; boxes are in pixels.

    ``draw_outline`` draws an outline in a size, at a location for messages; None if it is empty.
    """
    size, image_size = frame.size or (0, 0), frame.image_size or (0, 0)
    masks = []
    for item in objects:
        pixels = draw_outline(item.outline, size, item.location) if item.outline else None
        if is_box := pixels is None:
            problems.add("annotations without segmentation, replaced by their box", item.location)
            corners = item.box * np.tile(np.divide(image_size, size)[::-1], 2)
            pixels = fill_box(tuple(corners.tolist()), image_size)
        masks.append(PngMask(encode_mask_png(pixels, is_box=is_box)))
    return masks


@dataclass(frozen=True)
class DatasetBuilder:
    """Builds the records of a dataset from its annotations.

    Attributes:
        classes: label map, which must contain every class.
        problems: counts of annotations that cannot be converted.
        is_normalized: whether boxes and keypoints are normalized instead of in pixels.
        draw: function that makes the masks of objects in the frame of their annotations.
    """

    classes: SourceClasses
    options: Options
    problems: ConversionProblems
    is_normalized: bool = False
    draw: Callable[[Sequence[AnnotatedObject], Frame], Sequence[PngMask] | None] | None = None

    def build_detection(
        self,
        images: ImageFiles,
        names: Sequence[str],
        annotated_size: AnnotatedSize,
        objects: Sequence[AnnotatedObject],
        location: str,
        *,
        source_id: str | None = None,
        point_count: int = 0,
        point_names: Sequence[str] = (),
    ) -> Detection | None:
        """Build the record of an image, with those objects whose boxes can be written.

        Args:
            images: image files of the dataset.
            names: names of the image in the annotation, the most reliable first. The first one is
                also the file name of the record if the image is not read.
            annotated_size: height and width according to the annotation.
            objects: objects of the image.
            location: location of the annotation, for messages.
            source_id: id of the image, if the format has ids.
            point_count: number of keypoints per object.
            point_names: names of the keypoints, if known.

        Returns:
            The record, or None if its image is missing, which is counted as a problem.

        Raises:
            TfodError: a class is not in the label map, or the image cannot be read or rotated.
        """
        image, problems = None, self.problems
        is_needed = not self.options.no_images
        if is_needed or not all(annotated_size):
            image = images.read(names, location, problems, is_needed)
        if image is None and is_needed:
            return None
        problems.annotated += len(objects)
        frame = find_frame(image, annotated_size, bool(objects), location, problems)
        if frame.size and frame.image_size and frame.size != frame.image_size:
            problems.add(
                SIZE_MISMATCH,
                f"{location}: {format_size(frame.size)}, the image {format_size(frame.image_size)}",
            )
        size = NORMALIZED if self.is_normalized else frame.size
        if size is None and objects:
            problems.add(_NO_SIZE, location)
            objects = []  # every box would be outside its image
        unit = size or NORMALIZED
        objects = [item.enclose(unit) for item in objects]
        corners, rows = select_writable_boxes(
            [item.box for item in objects],
            unit,
            [item.location for item in objects],
            self.options,
            problems,
        )
        kept = [objects[row] for row in rows]
        attributes = dict.fromkeys(name for item in objects for name in item.attributes)
        height, width = frame.image_size or (None, None)
        detection = Detection(
            filename=image.name if image else safe_relative_path(names[0]),
            source_id=source_id,
            height=height,
            width=width,
            format="",
            encoded=image.data if image and is_needed else b"",
            boxes=corners / (unit[::-1] * 2),
            class_text=[item.name for item in kept],
            class_label=[self.classes.get_id(item.name, item.location) for item in kept],
            attributes={name: [item.attributes.get(name) for item in kept] for name in attributes},
            shape_details=index_shape_details([item.details for item in kept]),
            masks=self.draw(kept, frame) if self.draw and frame.size else None,
            keypoints=_stack_keypoints(kept, size, point_count, point_names)
            if size and point_count
            else None,
        )
        return to_output_frame(detection, frame, self.options, problems)

    def build_dataset(
        self,
        parts: Iterable[tuple[str, Iterable[Detection | None]]],
        subsets: Iterable[str],
        files: Sequence[str],
        source_ids: Sequence[str] = (),
        losses: Sequence[LossCounter] = (),
    ) -> Dataset:
        """Return a dataset that can be read once.

        Args:
            parts: pairs of a subset and some of its records, built lazily; None for no record.
            subsets: names of the subsets that are known in advance.
            files: files that are read.
            source_ids: ids of all images, if the format has them.
            losses: further counters of data that is left out or changed.
        """
        label_map = self.classes.label_map
        target = self.options.target_map
        classes = Classes({self.classes.file: label_map}, target.base if target else None)

        def read() -> Iterator[Images]:
            for subset, detections in parts:
                built = filter(None, detections)
                while batch := list(itertools.islice(built, _BATCH_SIZE)):
                    yield Images.of(subset, batch, label_map, classes)

        counters: list[LossCounter] = [self.problems, *losses]

        def finish(images: int, objects: int) -> Sequence[str]:
            self.problems.raise_refusals(images, objects)
            lost = (sentence for counter in counters for sentence in counter.sentences())
            return [*self.classes.notes, *classes.notes(), *lost]

        return Dataset(classes, list(subsets), read, finish, files, source_ids, counters)


def _stack_keypoints(
    objects: Sequence[AnnotatedObject], size: Size, count: int, names: Sequence[str]
) -> Keypoints:
    unlabelled = np.zeros((count, 3))
    rows = [unlabelled if item.points is None else item.points for item in objects]
    points = np.reshape(rows, (len(objects), count, 3))
    return Keypoints(points[:, :, :2] / size[::-1], points[:, :, 2].astype(np.int64), tuple(names))
