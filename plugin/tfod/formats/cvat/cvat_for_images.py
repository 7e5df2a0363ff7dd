"""CVAT's own XML: "CVAT for images 1.1", a file with its images or the zip that CVAT gives."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tfod.detection.box_geometry import PixelBox, enclose_pixels
from tfod.detection.detection import AttributeValue, Detection
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.cvat.document import END, CvatMeta, head_text, image_text, read_cvat_xml
from tfod.formats.cvat.frame_detections import DetectionBuilder, frame_size, is_plain_box, shapes_of
from tfod.formats.cvat.shapes import BOX, Attributes, CvatImage, CvatShape, CvatTag
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, Images, no_subset
from tfod.formats.format_writer import ATTRIBUTES, DRAWN, LABELS, NO_PLACE, FormatWriter, masks_of
from tfod.formats.numbers import DECIMALS
from tfod.formats.options import ConversionProblems, OddBoxes, Options
from tfod.formats.reading.files import (
    OTHER_SIZE,
    ImageFiles,
    format_size,
    frame_of,
    to_output_frame,
)
from tfod.formats.reading.objects import DatasetBuilder, SourceClasses, select_writable_boxes
from tfod.sources.format_recognition import CVAT_FILE, SourceFiles, find_cvat_file


def read(source: str, options: Options) -> Dataset:
    """Read the frames of a document, in its order, each of the subset that it says.

    Raises:
        TfodError: it is something else, or a frame has no image.
    """
    default = os.path.join(source, CVAT_FILE) if os.path.isdir(source) else source
    file = find_cvat_file(SourceFiles.at(source)) or default
    parts = read_cvat_xml(file)
    meta = next(parts)
    assert isinstance(meta, CvatMeta)  # the head comes first
    labels = list(meta.labels)
    classes = SourceClasses.find(options, os.path.dirname(file), lambda: labels, file)
    clip = options.odd_boxes is not OddBoxes.KEEP
    builder = DetectionBuilder(classes.label_map, meta.input_types, options.masks, clip)
    problems = ConversionProblems(options)
    reading = DatasetBuilder(classes, options, problems)
    images = _image_files(file, options)
    subset = meta.subset or DEFAULT_SUBSET

    def frames() -> Iterator[CvatImage]:
        there: dict[str, None] = {}
        for part in parts:
            if part is None:
                raise TfodError(f"{file} has tracks; export the task as CVAT for images 1.1")
            assert isinstance(part, CvatImage)  # what follows the head
            there[own := part.subset or subset] = None
            if options.subset in (None, own) or not meta.project:
                yield part
        if meta.project and options.subset and options.subset not in there:
            raise no_subset(source, options.subset, there)

    # Of a project the frames of its subsets may come in any order.
    in_turn = itertools.groupby(frames(), lambda one: options.subset or one.subset or subset)
    subsets = (
        (own, (_detection(one, builder, images, file, reading) for one in some))
        for own, some in in_turn
    )

    def notes() -> list[str]:
        return [*builder.left_out.sentences(), *builder.changed.sentences()]

    names = [] if meta.project else [options.subset or subset]
    return reading.dataset(subsets, names, [file], notes)


def _image_files(file: str, options: Options) -> ImageFiles:
    named = options.images
    above = os.path.dirname(file)
    folders = [named] if named else [os.path.join(above, "images"), above]
    return ImageFiles(folders, root=options.unpacked)


def image_of_frame(images: ImageFiles, frame: CvatImage) -> bytes | None:
    """The bytes of a frame's image; None where there is none."""
    problems = ConversionProblems()
    found = images.find(_names(frame), frame.name, problems)
    problems.raise_refusals(images=1, objects=0)
    return images.content(found[0], frame.name) if found else None


def _names(frame: CvatImage) -> list[str]:
    return [f"{frame.subset}/{frame.name}"] * bool(frame.subset) + [frame.name]


def _detection(
    frame: CvatImage,
    builder: DetectionBuilder,
    images: ImageFiles,
    file: str,
    reading: DatasetBuilder,
) -> Detection | None:
    """A frame as a Detection; CVAT shows photos as their EXIF orientation says."""
    options, problems = reading.options, reading.problems
    where = f"{file}: {frame.name}"
    image = None
    if not options.no_images:
        image = images.read(_names(frame), where, problems)
        if image is None:
            return None
    problems.annotated += len(frame.shapes)
    frame = _with_sound_boxes(frame, where, reading)
    if options.label_map is not None:
        labels = *(shape.label for shape in frame.shapes), *(tag.label for tag in frame.tags)
        for label in labels:
            reading.classes.id_of(label, where)
    one = builder.complete(builder.build(frame), image.data if image else None)
    drawn = frame_of(image, (frame.height, frame.width), len(one.boxes) > 0, where, problems)
    if drawn.own is not None and drawn.own != (one.height, one.width):
        own = f"{frame.width}x{frame.height}, the image {format_size(drawn.own)}"
        problems.add(OTHER_SIZE, f"{where}: {own}")
        one = replace(one, height=drawn.own[0], width=drawn.own[1])
    return to_output_frame(one, drawn, options, problems)


def _with_sound_boxes(frame: CvatImage, where: str, reading: DatasetBuilder) -> CvatImage:
    """The frame with those boxes that can be written; what is turned or no box stays as it is."""
    size, problems = frame_size(frame), reading.problems
    others = [one.extent for one in frame.shapes if not is_plain_box(one)]
    problems.count_boxes(np.array(others, np.float64).reshape(-1, 4))
    rows = [row for row, one in enumerate(frame.shapes) if is_plain_box(one)]
    extents = [frame.shapes[row].extent for row in rows]
    places = [f"{where}, box {number}" for number, _ in enumerate(rows, 1)]
    boxes, kept = select_writable_boxes(extents, size, places, reading.options, problems)
    sound = {rows[at]: tuple(box) for at, box in zip(kept, boxes.tolist(), strict=True)}
    shapes = tuple(
        replace(one, extent=sound[row]) if row in sound else one
        for row, one in enumerate(frame.shapes)
        if row in sound or not is_plain_box(one)
    )
    return replace(frame, shapes=shapes)


_MOVED = 0.01  # pixels
_ENCLOSED = "boxes of masks, written as the box of their pixels"
_EMPTY = "masks without a pixel, written as boxes"
_KINDS = {bool: "checkbox", int: "number", float: "number", str: "text"}


class Writer(FormatWriter):
    """The frames are numbered from 0; what they hold lies in a file of its own until the end."""

    CARRIES = frozenset(("masks", "image classes", "keypoints", DRAWN, LABELS, ATTRIBUTES))

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        super().__init__(folder, image_folder, options)
        self._frames = self._open(os.path.join(folder, "frames"))
        self._count = 0
        self._subsets: list[str] = []
        self._kinds: dict[str, dict[str, str]] = {}
        self.documents.append(os.path.join(folder, CVAT_FILE))

    def begin(self, subset: str) -> None:
        self._subsets.append(subset)

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images, images.subset)
        classes = label_map.class_names
        corners = images.in_pixels().tolist()
        for row, name in enumerate(names):
            places = range(*images.splits[row : row + 2])
            texts = [classes[images.classes[at]] for at in places]
            boxes: list[PixelBox] = [tuple(corners[at]) for at in places]
            height, width = images.sizes[row].tolist()
            shapes = [CvatShape(BOX, *pair) for pair in zip(texts, boxes, strict=True)]
            tags: list[CvatTag] = []
            if not images.is_plain:
                one = images.renumbered(row, images.detections[row])
                shapes = self._shapes(one, shapes, (height, width))
                tags = self._tags(one)
            frame = {"id": self._count, "name": name, "subset": images.subset}
            text = image_text(frame, (height, width), shapes, tags, DECIMALS)
            self._frames.write(text.encode("utf-8", "replace"))
            self._count += 1

    def finish(self, label_map: LabelMap) -> None:
        labels = {**{one.class_name: {} for one in label_map.items}, **self._kinds}
        with open(self.documents[0], "xb") as file:
            file.write(head_text("tfod", labels, self._subsets).encode())
            self._frames.seek(0)
            shutil.copyfileobj(self._frames, file, 1 << 20)
            file.write(END.encode())
        self._frames.close()
        os.unlink(self._frames.name)
        self._write_label_map(label_map)

    def _shapes(
        self, one: Detection, boxes: Sequence[CvatShape], size: tuple[int, int]
    ) -> list[CvatShape]:
        """The boxes as they were drawn, with what the record says of them; masks in their place."""
        masks = masks_of(one)

        def pixels(number: int) -> np.ndarray | None:
            mask = masks[number]
            drawn = None if mask is None else self._pixels(mask, one, size)
            corners = None if drawn is None else enclose_pixels(drawn)
            self.losses[_EMPTY][""] += drawn is not None and corners is None
            if corners is not None:
                far = not np.allclose(corners, boxes[number].extent, atol=_MOVED)
                self.losses[_ENCLOSED][""] += far
            return drawn

        classes, extents = [box.label for box in boxes], [box.extent for box in boxes]
        return list(shapes_of(one, classes, extents, size, pixels, self._attributes))

    def _attributes(self, label: str, values: Mapping[str, AttributeValue]) -> Attributes:
        kinds = self._kinds.setdefault(label, {})
        found = []
        for name, value in values.items():
            kind = _KINDS.get(type(value))
            if kind is None:
                self.losses[NO_PLACE][name] += 1
                continue
            if kinds.setdefault(name, kind) != kind:
                kinds[name] = "text"
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # as CVAT writes it
            found.append((name, str(value).lower() if kind == "checkbox" else str(value)))
        return tuple(found)

    def _tags(self, one: Detection) -> list[CvatTag]:
        tags = []
        for each in one.image_labels:
            name = each.text
            if not name or each.confidence == 0:
                self.losses[NO_PLACE]["classes that are absent, or have no name"] += 1
                continue
            tags.append(CvatTag(name, self._attributes(name, each.attributes)))
        return tags
