"""Images with their objects: how they become records, whatever the format, and which boxes stay."""

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
from tfod.detection.images.mask_images import box_outline
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import (
    LabelMap,
    load_label_map,
    load_shipped_label_map,
    read_label_map,
)
from tfod.errors import TfodError
from tfod.formats.dataset import Dataset, Images
from tfod.formats.options import ConversionProblems, OddBoxes, Options, Refusal
from tfod.formats.reading.files import (
    OTHER_SIZE,
    AnnotatedSize,
    Frame,
    ImageFiles,
    Size,
    format_size,
    frame_of,
    to_output_frame,
)
from tfod.sources.label_map_search import find_folder_label_map
from tfod.tfrecord.image_names import safe_relative_path

_NO_SIZE = Refusal(
    "images without a size in their annotations, which boxes in pixels need",
    "write width and height there, or leave --no-images out",
)
_ROUNDING = 1e-5  # of the image's side: what float32 does
_DECIMALS = 0.011  # pixels: x and width of two decimals, as COCO has them, add up to so much

_BATCH = 16  # images, whose bytes are held
NORMALIZED = (1, 1)
"""In place of a size: boxes are divided by it already."""
_ORDER = "where many are, look whether xmin, ymin, xmax and ymax are mixed up; "
_FIX = "correct them"
_CHOICE = ", or choose --odd-boxes clip or --odd-boxes drop"
ROTATED = "rotated boxes, read as the boxes around them"
_NOT_FINITE = "boxes with a number that is not finite"
_INVERTED = "boxes whose maximum is below their minimum"
_FLAT = "boxes without width or height"
_OUTSIDE = "boxes that reach outside their image"
_LARGEST = float(np.finfo(np.float32).max)
_LEAST_SIDE = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class SourceClasses:
    """A label map that has to have every class, what messages call it, and how it was read.

    ``file`` is where the ids are from; '' for ids that were made.
    """

    label_map: LabelMap
    name: str
    notes: tuple[str, ...] = ()
    file: str = ""

    def id_of(self, text: str, where: str) -> int:
        """The id of a class; raises TfodError where the map lacks it."""
        item = self.label_map.find(text)
        if item is None:
            near = self.label_map.fuzzy_names.find_nearest(text)
            hint = f", did you mean {near!r:.81}? Correct it" if near else "; correct it"
            raise TfodError(
                f"{where}: class {text!r:.81} is not in the label map {self.name}{hint}, add it "
                "to the label map, or name another one with --label-map"
            )
        return item.id

    @classmethod
    def find(
        cls,
        options: Options,
        folder: str,
        names: Callable[[], Iterable[str]],
        origin: str,
        shipped: str = "",
    ) -> SourceClasses:
        """The label map that was named, that lies in a folder, or that is made of names.

        Args:
            options: name a label map, or the folder that was named.
            folder: of the source, whose label map has the ids that classes once had.
            names: of all classes, in their order.
            origin: where these are from, for messages.
            shipped: that is taken where it has every class.

        Raises:
            LabelMapError: a file is no label map.
        """
        if (named := options.label_map) is not None:
            label_map, notes = load_label_map(named)
            return cls(label_map, named, tuple(notes), named)
        found = list(dict.fromkeys(names()))
        beside, several = find_folder_label_map(folder or os.curdir, "")
        if not beside and not several and options.source:
            beside, several = find_folder_label_map(options.source, "")
        unused = [f"several label maps are there, none was used: {', '.join(several)}"]
        if beside is not None:
            label_map, notes = read_label_map(beside)
            lacking = [repr(one) for one in found if not label_map.find(one)]
            if not lacking:
                return cls(label_map, beside, tuple(notes), beside)
            unused = [f"{beside} was not used: it lacks the classes {', '.join(lacking)}"]
        unused *= bool(beside or several)
        ready = load_shipped_label_map(shipped) if shipped else None
        if ready and all(map(ready.find, found)):
            return cls(ready, shipped, tuple(unused))
        return cls(LabelMap.from_names(found), f"made from {origin}", tuple(unused))


class AnnotatedObject(NamedTuple):
    """An object as a document has it.

    Attributes:
        name: of its class.
        box: xmin, ymin, xmax, ymax.
        place: where it is written, for messages.
        attributes: more values, by name.
        points: its keypoints, x, y and visibility in each row, in the unit of the box; of all
            objects of a dataset as many.
        outline: what its mask is drawn of.
        drawn: the box before it was rotated, if it was.
    """

    name: str
    box: Sequence[float]
    place: str
    attributes: Mapping[str, AttributeValue] = {}
    points: np.ndarray | None = None
    outline: Any = None
    drawn: ShapeDetails = ShapeDetails()

    def enclosed(self, size: Size) -> AnnotatedObject:
        """A rotated object with the box around what the image shows of it, and its outline."""
        if self.drawn.box is None:
            return self
        outline = box_outline(self.drawn.box, self.drawn.rotation)
        return self._replace(box=enclose_visible(outline, size), outline=self.outline or [outline])


def rotated(
    box: Sequence[float], rotation: object, place: str, problems: ConversionProblems
) -> ShapeDetails:
    """How a box was drawn that is rotated by some degrees, which is counted."""
    if degrees := parse_degrees(rotation):
        problems.add(ROTATED, place)
        left, top, right, bottom = box
        return ShapeDetails((left, top, right, bottom), degrees)
    return ShapeDetails()


@dataclass(frozen=True)
class DatasetBuilder:
    """A dataset while it is read.

    Attributes:
        classes: that its objects have to be of.
        options: what was asked for.
        problems: where what does not fit is counted.
        is_normalized: whether boxes and keypoints are not in pixels.
        draw: makes the mask of each object, when it is known in which frame they were drawn.
    """

    classes: SourceClasses
    options: Options
    problems: ConversionProblems
    is_normalized: bool = False
    draw: Callable[[Sequence[AnnotatedObject], Frame], Sequence[PngMask]] | None = None

    def detection(
        self,
        images: ImageFiles,
        names: Sequence[str],
        annotated: AnnotatedSize,
        objects: Sequence[AnnotatedObject],
        where: str,
        *,
        source_id: str | None = None,
        point_count: int = 0,
        point_names: Sequence[str] = (),
    ) -> Detection | None:
        """The record of an image, with its objects as far as their boxes can be written.

        None where its image is missing, which is counted.

        Args:
            images: where it is looked for.
            names: that the annotation has for it, the best first; this is also what the record
                calls an image that is not read.
            annotated: height and width as the annotation has them.
            objects: what is on it.
            where: the annotation, for messages.
            source_id: as the format has it.
            point_count: how many keypoints each object has.
            point_names: what these are called, where that is known.

        Raises:
            TfodError: a class is not known, or the image cannot be read or turned.
        """
        image, problems = None, self.problems
        is_needed = not self.options.no_images
        if is_needed or not all(annotated):
            image = images.read(names, where, problems, is_needed)
        if image is None and is_needed:
            return None
        problems.annotated += len(objects)
        frame = frame_of(image, annotated, bool(objects), where, problems)
        if frame.size and frame.own and frame.size != frame.own:
            problems.add(
                OTHER_SIZE,
                f"{where}: {format_size(frame.size)}, the image {format_size(frame.own)}",
            )
        size = NORMALIZED if self.is_normalized else frame.size
        if size is None and objects:
            problems.add(_NO_SIZE, where)
        size_or_unit = size or NORMALIZED
        objects = [one.enclosed(size_or_unit) for one in objects]
        corners, rows = select_writable_boxes(
            [one.box for one in objects],
            size_or_unit,
            [one.place for one in objects],
            self.options,
            problems,
        )
        kept = [objects[row] for row in rows]
        attributes = dict.fromkeys(name for one in objects for name in one.attributes)
        height, width = frame.own or (None, None)
        one = Detection(
            filename=image.name if image else safe_relative_path(names[0]),
            source_id=source_id,
            height=height,
            width=width,
            format="",
            encoded=image.data if image and is_needed else b"",
            boxes=corners / (size_or_unit[::-1] * 2),
            class_text=[one.name for one in kept],
            class_label=[self.classes.id_of(one.name, one.place) for one in kept],
            attributes={name: [one.attributes.get(name) for one in kept] for name in attributes},
            shape_details=index_shape_details([one.drawn for one in kept]),
            masks=self.draw(kept, frame) if self.draw and size else None,
            keypoints=_keypoints(kept, size, point_count, point_names)
            if size and point_count
            else None,
        )
        return to_output_frame(one, frame, self.options, problems)

    def dataset(
        self,
        parts: Iterable[tuple[str, Iterable[Detection | None]]],
        subsets: Iterable[str],
        files: Sequence[str],
        notes: Callable[[], Iterable[str]] = tuple,
        source_ids: Sequence[str] = (),
    ) -> Dataset:
        """A dataset of annotations, which are read once.

        Args:
            parts: subsets with images of theirs, read when they are asked for; None for an image
                that is left out.
            subsets: those that are known beforehand.
            files: that are read.
            notes: what is known beside problems when all is read.
            source_ids: of all images, where the format has ids.
        """
        label_map = self.classes.label_map
        target = self.options.target_map
        classes = Classes({self.classes.file: label_map}, target.base if target else None)

        def read() -> Iterator[Images]:
            for subset, found in parts:
                left = filter(None, found)
                while some := list(itertools.islice(left, _BATCH)):
                    yield Images.of(subset, some, label_map, classes)

        def finish(images: int, objects: int) -> Sequence[str]:
            self.problems.raise_refusals(images, objects)
            return [*self.classes.notes, *classes.notes(), *self.problems.sentences(), *notes()]

        return Dataset(classes, list(subsets), read, finish, files, source_ids)


def _keypoints(
    objects: Sequence[AnnotatedObject], size: Size, count: int, names: Sequence[str]
) -> Keypoints:
    """The points of all objects; zeros for an object that has none."""
    nothing = np.zeros((count, 3))
    found = [nothing if one.points is None else one.points for one in objects]
    points = np.reshape(found, (len(objects), count, 3))
    return Keypoints(points[:, :, :2] / size[::-1], points[:, :, 2].astype(np.int64), tuple(names))


def select_writable_boxes(
    boxes: Sequence[Sequence[float]],
    size: Size,
    places: Sequence[str],
    options: Options,
    problems: ConversionProblems,
) -> tuple[np.ndarray, list[int]]:
    """Find the boxes that can be written, by one policy, whatever format they are from.

    Boxes are xmin, ymin, xmax, ymax in the pixels of ``size``, which is 1, 1 for normalized ones;
    messages say by ``places`` where each is written.

    Returns:
        Those boxes, float64 of shape (n, 4), clipped to the image unless the policy keeps them, in
        the unit in which they came; and which of the boxes that were given these are.
    """
    height, width = size
    odd = options.odd_boxes
    given = np.array(boxes, np.float64).reshape(-1, 4)
    sides = np.array((width, height, width, height), np.float64)
    in_pixels = size != NORMALIZED
    if in_pixels:
        problems.count_boxes(given)
    is_inside = (given >= 0).all() and (given <= sides).all()
    if is_inside and (given[:, 2:] - given[:, :2] > _LEAST_SIDE * sides[2:]).all():  # nearly always
        return given, list(range(len(given)))
    clipped = np.clip(given, 0, sides)
    rounding = _ROUNDING + (_DECIMALS / sides if in_pixels else 0)
    kept = []
    for row, oddity in enumerate(_oddities(given / sides, clipped / sides, rounding)):
        if not oddity:
            kept.append(row)
            continue
        if odd is OddBoxes.KEEP and oddity in (_FLAT, _OUTSIDE):
            kept.append(row)
            clipped[row] = given[row]
            continue
        spelled = "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*given[row])
        where = f"{places[row]}: {spelled}" + f" in {width}x{height}" * in_pixels
        if odd in (OddBoxes.REFUSE, OddBoxes.KEEP):
            choice = _CHOICE * (odd is OddBoxes.REFUSE)
            problems.add(Refusal(oddity, _ORDER * (oddity == _INVERTED) + _FIX + choice), where)
        elif odd is OddBoxes.CLIP and oddity == _OUTSIDE and _has_area(clipped[row] / sides):
            problems.add(f"{oddity}, clipped to it", where)
            kept.append(row)
        else:
            problems.add(f"{oddity}, left out", where)
    return clipped[kept], kept


def _oddities(given: np.ndarray, clipped: np.ndarray, rounding: np.ndarray | float) -> list[str]:
    """What is odd about each normalized box; '' for nothing."""
    with np.errstate(invalid="ignore"):
        finite = (np.abs(given) <= _LARGEST).all(axis=1)
        inverted = (given[:, 2:] < given[:, :2]).any(axis=1)
        flat = (given[:, 2:] - given[:, :2] <= _LEAST_SIDE).any(axis=1)
        outside = (np.abs(given - clipped) > rounding).any(axis=1)
        outside |= ~_has_area(clipped)
    conditions = [~finite, inverted, flat, outside]
    found: list[str] = np.select(conditions, [_NOT_FINITE, _INVERTED, _FLAT, _OUTSIDE], "").tolist()
    return found


def _has_area(boxes: np.ndarray) -> np.ndarray:
    found: np.ndarray = (boxes[..., 2:] - boxes[..., :2] > _LEAST_SIDE).all(axis=-1)
    return found
