"""CVAT's own format, "CVAT for images 1.1": an XML with its images, or the zip of an export."""

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
from tfod.detection.losses import UNSUPPORTED
from tfod.errors import TfodError
from tfod.formats.cvat.document import END, CvatMeta, format_head, format_image, read_cvat_xml
from tfod.formats.cvat.frame_detections import (
    DetectionBuilder,
    build_shapes,
    get_frame_size,
    is_plain_box,
)
from tfod.formats.cvat.shapes import BOX, Attributes, CvatImage, CvatShape, CvatTag
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, Images, subset_error
from tfod.formats.format_writer import (
    ATTRIBUTES,
    IMAGE_CLASS_ATTRIBUTES,
    SHAPE_DETAILS,
    FormatWriter,
    get_masks,
)
from tfod.formats.numbers import DECIMALS
from tfod.formats.options import ConversionProblems, OddBoxes, Options
from tfod.formats.reading.files import (
    SIZE_MISMATCH,
    ImageFiles,
    find_frame,
    format_size,
    to_output_frame,
)
from tfod.formats.reading.objects import DatasetBuilder, SourceClasses
from tfod.formats.reading.odd_boxes import select_writable_boxes
from tfod.sources.format_recognition import CVAT_FILE, SourceFiles, find_cvat_file


def read(source: str, options: Options) -> Dataset:
    """Read the frames of a document in order, with its subsets, or raise TfodError."""
    default = os.path.join(source, CVAT_FILE) if os.path.isdir(source) else source
    file = find_cvat_file(SourceFiles.at(source)) or default
    parts = read_cvat_xml(file)
    meta = next(parts)
    assert isinstance(meta, CvatMeta)  # the head comes first
    labels, folder = meta.labels, os.path.dirname(file)
    classes = SourceClasses.find(options, folder, lambda: labels, file)
    clip = options.odd_boxes is not OddBoxes.KEEP
    detection_builder = DetectionBuilder(classes.label_map, meta.input_types, options.masks, clip)
    builder = DatasetBuilder(classes, options, ConversionProblems(options))
    folders = [options.images] if options.images else [os.path.join(folder, "images"), folder]
    images = ImageFiles(folders, root=options.unpacked_folder)
    default_subset = meta.subset or DEFAULT_SUBSET

    def read_frames() -> Iterator[CvatImage]:
        names: dict[str, None] = {}
        for part in parts:
            if part is None:
                raise TfodError(f"{file} has tracks; export the task as CVAT for images 1.1")
            assert isinstance(part, CvatImage)  # there is only one head
            name = part.subset or default_subset
            names[name] = None
            if options.subset in (None, name) or not meta.is_project:
                yield part
        if meta.is_project and options.subset and options.subset not in names:
            raise subset_error(source, options.subset, names)

    # The frames of a project may alternate between subsets.
    groups = itertools.groupby(
        read_frames(), lambda frame: options.subset or frame.subset or default_subset
    )
    subsets = (
        (name, (_build(frame, detection_builder, images, file, builder) for frame in frames))
        for name, frames in groups
    )
    losses = detection_builder.losses, detection_builder.changes
    return builder.build_dataset(subsets, [], [file], losses=losses)


def read_frame_image(images: ImageFiles, frame: CvatImage) -> bytes | None:
    """Return the bytes of the image of a frame, or None if it is missing."""
    problems = ConversionProblems()
    match = images.find(_list_names(frame), frame.name, problems)
    problems.raise_refusals(images=1, objects=0)
    return images.read_bytes(match[0], frame.name) if match else None


def _list_names(frame: CvatImage) -> list[str]:
    return [f"{frame.subset}/{frame.name}", frame.name] if frame.subset else [frame.name]


def _build(
    frame: CvatImage,
    detection_builder: DetectionBuilder,
    images: ImageFiles,
    file: str,
    builder: DatasetBuilder,
) -> Detection | None:
    """Convert a frame to a Detection; CVAT shows photos rotated by their EXIF orientation."""
    options, problems = builder.options, builder.problems
    location = f"{file}: {frame.name}"
    image = None
    if not options.no_images:
        image = images.read(_list_names(frame), location, problems)
        if image is None:
            return None
    problems.annotated += len(frame.shapes)
    frame = _select_boxes(frame, location, builder)
    if options.label_map is not None:
        for label in [shape.label for shape in frame.shapes] + [tag.label for tag in frame.tags]:
            builder.classes.get_id(label, location)
    detection = detection_builder.build(frame)
    detection = detection_builder.complete(detection, image.data if image else None)
    size, has_objects = (frame.height, frame.width), len(detection.boxes) > 0
    shown = find_frame(image, size, has_objects, location, problems)
    if shown.image_size is not None and shown.image_size != (detection.height, detection.width):
        height, width = shown.image_size
        sizes = f"{frame.width}x{frame.height}, the image {format_size(shown.image_size)}"
        problems.add(SIZE_MISMATCH, f"{location}: {sizes}")
        detection = replace(detection, height=height, width=width)
    return to_output_frame(detection, shown, options, problems)


def _select_boxes(frame: CvatImage, location: str, builder: DatasetBuilder) -> CvatImage:
    """Return the frame with those boxes that can be written, and with all other shapes."""
    size, problems = get_frame_size(frame), builder.problems
    other_extents = [shape.extent for shape in frame.shapes if not is_plain_box(shape)]
    problems.count_boxes(np.array(other_extents, np.float64).reshape(-1, 4))
    rows = [row for row, shape in enumerate(frame.shapes) if is_plain_box(shape)]
    extents = [frame.shapes[row].extent for row in rows]
    locations = [f"{location}, box {number}" for number, _ in enumerate(rows, 1)]
    boxes, kept = select_writable_boxes(extents, size, locations, builder.options, problems)
    new_extents = {rows[index]: tuple(box) for index, box in zip(kept, boxes.tolist(), strict=True)}
    shapes = tuple(
        replace(shape, extent=new_extents[row]) if row in new_extents else shape
        for row, shape in enumerate(frame.shapes)
        if row in new_extents or not is_plain_box(shape)
    )
    return replace(frame, shapes=shapes)


_MAX_ERROR = 0.01  # pixels
_TIGHTENED = "boxes with masks, replaced by the enclosing box of the mask"
_EMPTY = "masks without pixels, replaced by boxes"
_INPUT_TYPES = {bool: "checkbox", int: "number", float: "number", str: "text"}


class Writer(FormatWriter):
    """Writes frames numbered from 0; they are in a temporary file until the end."""

    SUPPORTED = frozenset(
        ("masks", "image classes", "keypoints", SHAPE_DETAILS, IMAGE_CLASS_ATTRIBUTES, ATTRIBUTES)
    )

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        super().__init__(folder, image_folder, options)
        self._frames = self._open(os.path.join(folder, "frames"))
        self._count = 0
        self._subsets: list[str] = []
        self._input_types: dict[str, dict[str, str]] = {}
        self.documents.append(os.path.join(folder, CVAT_FILE))

    def begin(self, subset: str) -> None:
        self._subsets.append(subset)

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images, images.subset)
        classes = label_map.class_names
        corners = images.to_pixels().tolist()
        for row, name in enumerate(names):
            indexes = range(*images.splits[row : row + 2])
            texts = [classes[images.classes[index]] for index in indexes]
            boxes: list[PixelBox] = [tuple(corners[index]) for index in indexes]
            height, width = images.sizes[row].tolist()
            shapes = [CvatShape(BOX, *pair) for pair in zip(texts, boxes, strict=True)]
            tags: list[CvatTag] = []
            if not images.is_plain:
                detection = images.renumber(row, images.detections[row])
                shapes = self._make_shapes(detection, shapes, (height, width))
                tags = self._make_tags(detection)
            frame = {"id": self._count, "name": name, "subset": images.subset}
            text = format_image(frame, (height, width), shapes, tags, DECIMALS)
            self._frames.write(text.encode("utf-8", "replace"))
            self._count += 1

    def finish(self, label_map: LabelMap) -> None:
        labels = {**{item.class_name: {} for item in label_map.items}, **self._input_types}
        with open(self.documents[0], "xb") as file:
            file.write(format_head("tfod", labels, self._subsets).encode())
            self._frames.seek(0)
            shutil.copyfileobj(self._frames, file, 1 << 20)
            file.write(END.encode())
        self._frames.close()
        os.unlink(self._frames.name)
        self._write_label_map(label_map)

    def _make_shapes(
        self, detection: Detection, boxes: Sequence[CvatShape], size: tuple[int, int]
    ) -> list[CvatShape]:
        """Return the masks, boxes before rotation, and keypoints of all objects."""
        masks = get_masks(detection)

        def draw(number: int) -> np.ndarray | None:
            mask = masks[number]
            pixels = None if mask is None else self._fit_mask(mask, detection, size)
            corners = None if pixels is None else enclose_pixels(pixels)
            self.losses[_EMPTY][""] += pixels is not None and corners is None
            if corners is not None:
                is_different = not np.allclose(corners, boxes[number].extent, atol=_MAX_ERROR)
                self.losses[_TIGHTENED][""] += is_different
            return pixels

        classes, extents = [box.label for box in boxes], [box.extent for box in boxes]
        return list(build_shapes(detection, classes, extents, size, draw, self._to_attributes))

    def _to_attributes(self, label: str, values: Mapping[str, AttributeValue]) -> Attributes:
        """Format the attributes of an object, and remember the input types of its class."""
        input_types = self._input_types.setdefault(label, {})
        attributes = []
        for name, value in values.items():
            input_type = _INPUT_TYPES.get(type(value))
            if input_type is None:
                self.losses[UNSUPPORTED][name] += 1
                continue
            if input_types.setdefault(name, input_type) != input_type:
                input_types[name] = "text"
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # as CVAT writes it
            text = str(value)
            attributes.append((name, text.lower() if input_type == "checkbox" else text))
        return tuple(attributes)

    def _make_tags(self, detection: Detection) -> list[CvatTag]:
        tags = []
        for label in detection.image_labels:
            name = label.text
            if not name or label.confidence == 0:
                self.losses[UNSUPPORTED]["classes that are absent or have no name"] += 1
                continue
            tags.append(CvatTag(name, self._to_attributes(name, label.attributes)))
        return tags
