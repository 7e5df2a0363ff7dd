"""Pascal VOC: an XML file per image, ``JPEGImages``, and lists in ``ImageSets/Main``.

Reading follows create_pascal_tf_record.py of the OD API: pixels, which VOC counts from 1, are
divided by the size in the XML, without subtracting or rounding. Unlike the script, it reads other
folders and rotated boxes, and needs no label map. Sources: the devkit's VOC2012; CVAT's export for
``occluded``; files of labelImg and roLabelImg.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfod.detection.box_geometry import PixelBox, enclose_points
from tfod.detection.detection import AttributeValue, Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError, excerpt, truncate
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, Images, select_subsets
from tfod.formats.format_writer import FormatWriter
from tfod.formats.numbers import DECIMALS, format_numbers, format_rows
from tfod.formats.options import ConversionProblems, Options
from tfod.formats.reading.documents import escape_text, parse_xml, read_lines, read_number
from tfod.formats.reading.files import ImageFiles, list_files, list_suffixes
from tfod.formats.reading.objects import (
    ROTATED,
    AnnotatedObject,
    DatasetBuilder,
    SourceClasses,
    read_rotation,
)
from tfod.sources.format_recognition import ANNOTATION_FOLDERS
from tfod.tfrecord.image_names import safe_relative_path, split_extension
from tfod.tfrecord.shard_sets.shard_names import to_stem

_YEARS = ("VOC2007", "VOC2012")
_IMAGES = ("JPEGImages", "images")  # names in VOC; in raccoon, kangaroo and most other datasets
_SPLITS = ("train", "valid", "val", "test")  # Roboflow's folders, each with XML files and images
_LISTS = os.path.join("ImageSets", "Main")
_LIST = ".txt"
_JOINED, _PARTS = "trainval", ("train", "val")
_list_xml_files = functools.partial(list_files, extensions=(".xml",))
_FLAG = re.compile(r"\s(-1|0|1)\Z")
_ROOT = "annotation"
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_CORNERS = tuple(f"{axis}{number}" for number in range(4) for axis in "xy")
_BOX_TAGS = frozenset((*_SIDES, *_CORNERS))
_CVAT_ROTATION = "attributes/attribute[name='rotation']/value"
_ROTATED_TAGS = ("cx", "cy", "w", "h", "angle")
_FLAGS = ("truncated", "difficult", "occluded")
_FIELDS = frozenset(("name", "bndbox", "robndbox", "pose", "type", *_FLAGS))
_FALSE = ("", "unspecified", "unknown", "false", "no", "n", "f", "none", "null", "nan")
_FLAG_WORDS = {**dict.fromkeys(_FALSE, "0"), **dict.fromkeys(("true", "yes", "y", "t"), "1")}
_OTHER_XML = f"XML files whose root is not <{_ROOT}>, left out"
_UNKNOWN_POSE = "Unspecified"  # as in VOC

# Reading


def _list_image_folders(folder: str) -> list[str]:
    """Return all folders with images, or none if two images have the same name."""
    paths = list(list_files(folder, FORMAT_OF_EXTENSION))
    stems = {os.path.splitext(os.path.basename(path))[0] for path in paths}
    return sorted(set(map(os.path.dirname, paths))) if len(stems) == len(paths) else []


def read(source: str, options: Options) -> Dataset:
    """Read VOC's folders, with a subset per list of images, or XML files; or raise TfodError.

    ``source`` is the folder of a year, the devkit, Roboflow's folder with a folder per subset, or
    any folder of annotations. Without a label map, VOC's is used if it has every class; otherwise
    a new one has all classes of the annotations in alphabetical order.
    """
    year = _Year.at(source)
    problems = ConversionProblems(options)
    paths = sorted(_list_xml_files(year.annotations))
    if not paths:
        raise TfodError(f"{year.annotations} contains no XML file; pass the annotations folder")
    # Read the annotations of all subsets, so that they all get the same label map.
    classes = SourceClasses.find(
        options, year.root, lambda: _read_class_names(paths), year.annotations, "voc2007"
    )
    builder = DatasetBuilder(classes, options, problems)
    parts = _find_subsets(source, year, paths, options, problems).items()
    subsets = {name: _build_detections(folder, files, builder) for name, (folder, files) in parts}
    return builder.build_dataset(subsets.items(), subsets, paths)


def _find_subsets(
    source: str, year: _Year, paths: Sequence[str], options: Options, problems: ConversionProblems
) -> dict[str, tuple[_Year, Sequence[str]]]:
    """Return folder and XML files of each subset: Roboflow's folders, the lists, or all files."""
    top_folders = {os.path.relpath(path, year.root).split(os.sep)[0] for path in paths}
    if top_folders <= {*_SPLITS}:
        roots = [os.path.join(year.root, name) for name in _SPLITS if name in top_folders]
        splits = {os.path.basename(root): _Year(root, root, "") for root in roots}
        selected = select_subsets(splits, options.subset, source)
        return {
            name: (split, sorted(_list_xml_files(split.root))) for name, split in selected.items()
        }
    if names := year.list_set_names():
        selected_names = names if options.subset is None else [options.subset]
        return {name: (year, year.list_files(name, problems)) for name in selected_names}
    return {options.subset or DEFAULT_SUBSET: (year, paths)}


@dataclass(frozen=True)
class _Year:
    """The folders of a year of VOC or of another dataset: root, annotations, lists of images."""

    root: str
    annotations: str
    lists: str

    @classmethod
    def at(cls, source: str) -> _Year:
        years = [year for year in _YEARS if os.path.isdir(os.path.join(source, year))]
        if len(years) > 1:
            raise TfodError(f"{source} contains {' and '.join(years)}; choose one of them")
        root = os.path.join(source, *years)
        folders = filter(os.path.isdir, (os.path.join(root, name) for name in ANNOTATION_FOLDERS))
        # Compare inodes, since a disk may ignore the case of names.
        distinct = {os.stat(folder).st_ino: folder for folder in folders}.values()
        filled = [folder for folder in distinct if any(_list_xml_files(folder))]
        if len(filled) > 1:
            raise TfodError(f"{' and '.join(filled)} contain XML files; move them into one folder")
        return cls(root, next(iter([*filled, *distinct]), root), os.path.join(root, _LISTS))

    def list_image_folders(self, requested: str | None) -> list[str]:
        """Return the folders to search for images."""
        if requested is not None:
            subfolder = os.path.join(requested, os.path.basename(self.root))
            return [*filter(os.path.isdir, [subfolder]), requested]
        # The images may be next to the root, if it only contains the annotations.
        roots = (self.root, os.path.join(self.root, os.pardir))
        usual = [os.path.normpath(os.path.join(root, name)) for root in roots for name in _IMAGES]
        existing = list(filter(os.path.isdir, usual[: len(_IMAGES)]))
        unusual = _list_image_folders(self.root) if not existing else ()
        return [*(existing or usual[:1]), self.annotations, *usual, self.root, *unusual]

    def list_set_names(self) -> list[str]:
        """Return the names of the sets with a list, except for trainval if it joins train and val.

        Lists of a single class, which have a flag after each name, are ignored.
        """
        files = sorted(os.listdir(self.lists)) if os.path.isdir(self.lists) else []
        names = []
        stems = [file[: -len(_LIST)] for file in files if file.endswith(_LIST) and file[0] != "."]
        for name in stems:
            _, line = next(read_lines(os.path.join(self.lists, name + _LIST)), (0, ""))
            if line and (not _FLAG.search(line) or self._find_xml(line)):
                names.append(name)
        if {_JOINED, *_PARTS}.issubset(names):
            lists = (self.list_files(name, ConversionProblems()) for name in (_JOINED, *_PARTS))
            joined, *parts = map(set, lists)
            if joined.issubset(set().union(*parts)):
                names.remove(_JOINED)
        return names

    def list_files(self, name: str, problems: ConversionProblems) -> list[str]:
        """Return the paths of the XML files of a set, in the order of its list."""
        path = os.path.join(self.lists, name + _LIST)
        if not os.path.isfile(path):
            names = ", ".join(self.list_set_names())
            raise TfodError(f"{path}: no such list of images; choose another --set: {names}")
        files: dict[str, None] = {}
        for number, line in read_lines(path):
            file = self._find_xml(line) or self._find_xml(_FLAG.sub("", line))
            if file is None:
                raise TfodError(
                    f"{path}, line {number}: {self.annotations} has no XML file for "
                    f"{excerpt(line)}; correct the line or add the file"
                )
            if file in files:
                problems.add("annotations that are listed twice in a set, written once", file)
            files[file] = None
        return list(files)

    def _find_xml(self, line: str) -> str | None:
        """Return the XML file for a line, which may have quotes, folders and an extension."""
        suffixes = list_suffixes(safe_relative_path(line.strip(" \"'")))
        stems = [*suffixes, *(split_extension(suffix)[0] for suffix in suffixes)]
        paths = (os.path.join(self.annotations, f"{stem}.xml") for stem in stems)
        return next(filter(os.path.isfile, paths), None)


def _read_class_names(paths: Sequence[str]) -> list[str]:
    roots = (root for root in map(parse_xml, paths) if root.tag == _ROOT)
    objects = (element for root in roots for element in root.iter("object"))
    return sorted({(element.findtext("name") or "").strip() for element in objects})


def _build_detections(
    year: _Year, paths: Sequence[str], builder: DatasetBuilder
) -> Iterator[Detection | None]:
    options = builder.options
    images = ImageFiles(year.list_image_folders(options.images), root=options.unpacked_folder)
    for path in paths:
        root = parse_xml(path)
        if root.tag != _ROOT:
            if year.annotations != year.root or root.find(".//bndbox") is not None:
                raise TfodError(f"{path} is not a Pascal VOC annotation: its root is not <{_ROOT}>")
            builder.problems.add(_OTHER_XML, path)
            continue
        elements = list(root.iter("object"))
        is_boxless = all(item.find("bndbox") is item.find("robndbox") for item in elements)
        if is_boxless and (elements or root.find(".//bndbox") is not None):
            tags = " ".join(f"<{child.tag}>" for child in next(iter(elements), root))
            raise TfodError(
                f"{path}: no object has a <bndbox>, only {truncate(tags)}; add a <bndbox>"
            )
        # Tools that write <occluded> write it for all objects.
        flags = _FLAGS if root.find("object/occluded") is not None else _FLAGS[:2]
        objects = (_read_object(element, path, flags, builder) for element in elements)
        existing = list(filter(None, objects))
        size = _read_side(root, "height", path), _read_side(root, "width", path)
        names = _list_image_names(root, path, year)
        yield builder.build_detection(images, names, size, existing, path)


def _list_image_names(root: Any, path: str, year: _Year) -> list[str]:
    """Return the possible names of an image: of the XML file, <filename> and <path>.

    The name of the XML file comes first, since users rename files without changing their content.
    """
    stem = os.path.splitext(os.path.basename(path))[0]
    filename, whole_path = ((root.findtext(tag) or "").strip() for tag in ("filename", "path"))
    extension = split_extension(filename)[1]
    name = stem + (extension if extension.lower() in FORMAT_OF_EXTENSION else "")
    # Images may have the same subfolders as the annotations.
    subfolder = os.path.relpath(os.path.dirname(path), year.annotations).replace(os.sep, "/")
    subfolder = subfolder if subfolder != "." else ""
    parent = posixpath.dirname(subfolder)
    siblings = (posixpath.join(parent, sibling) for sibling in _IMAGES if subfolder)
    folders = dict.fromkeys((subfolder, *siblings, parent, ""))
    names = [posixpath.join(folder, file) for file in (name, filename) for folder in folders]
    return [*names, whole_path]


def _read_object(
    element: Any, path: str, flags: Sequence[str], builder: DatasetBuilder
) -> AnnotatedObject | None:
    """Read an <object>, or return None if it is left out; missing flags are 0."""
    location, problems = f"{path}, line {element.sourceline}", builder.problems
    children = list(element)
    texts = {child.tag: (child.text or "").strip() for child in children if not len(child)}
    name = problems.trim(element.findtext("name") or texts.get("name", ""), location)
    box, degrees = _read_box(element, path, location, problems)
    if not name:
        raise TfodError(f"{location}: <name> is empty; add the class")
    if box is None:
        problems.add("objects without <bndbox>, left out", location)
        return None
    values = {tag: _read_flag(texts.get(tag, ""), tag, location, problems) for tag in flags}
    values["difficult"] = int(values["difficult"] != 0)
    if builder.options.ignore_difficult and values["difficult"]:
        problems.add("difficult objects, left out", location)
        return None
    boxes = [child for child in children if child.tag == "bndbox"]
    if len(boxes) > 1:
        problems.add("objects with several <bndbox>, read only the first", location)
    tags = (child.tag for child in children if child.tag not in _FIELDS)
    unread = [tag for tag in tags if texts.get(tag) != ""]
    unread += [side.tag for child in boxes for side in child if side.tag not in _BOX_TAGS]
    if unread:
        degrees = degrees or element.findtext(".//rotation") or element.findtext(_CVAT_ROTATION)
        names = {item.findtext("name") for item in element.iterfind("attributes/*")}
        read_tags = ("rotation", "attributes") if names <= {"rotation"} else ("rotation",)
        for tag in [tag for tag in unread if tag not in read_tags][:1]:
            problems.add("objects with unknown fields, ignored", f"{location}: <{tag}>")
    attributes = {**values, "view": texts.get("pose") or _UNKNOWN_POSE}
    details = read_rotation(box, degrees, location, problems)
    return AnnotatedObject(name, box, location, attributes, details=details)


def _read_flag(text: str, tag: str, location: str, problems: ConversionProblems) -> int:
    """Read a whole number, or a word for 0 or 1; other texts are counted and become 0."""
    with contextlib.suppress(ValueError):
        value = float(_FLAG_WORDS.get(text.lower(), text))
        if value.is_integer() and abs(value) < 1 << 63:
            return int(value)
    problem = "flags that are not 0, 1, true or false, read as 0"
    problems.add(problem, f"{location}: <{tag}> {excerpt(text)}")
    return 0


def _read_box(
    element: Any, path: str, location: str, problems: ConversionProblems
) -> tuple[PixelBox | None, object]:
    """Return the box of an object in pixels, and the rotation of a <robndbox> in degrees."""
    corners = element.find("bndbox")
    if corners is not None and len(corners) == len(_SIDES):  # the usual case
        texts = {child.tag: child.text or "" for child in corners}
        with contextlib.suppress(KeyError, ValueError):
            left, top, right, bottom = (float(texts[side]) for side in _SIDES)
            return (left, top, right, bottom), None
    rotated = element.find("robndbox")
    if corners is not None and corners.find(_CORNERS[0]) is not None:
        problems.add(ROTATED, location)
        points = [read_number(corners, tag, path, finite=False) for tag in _CORNERS]
        return enclose_points(points), None
    if corners is not None:
        # Numbers that are not finite are reported later, with all invalid boxes.
        left, top, right, bottom = (read_number(corners, x, path, finite=False) for x in _SIDES)
        return (left, top, right, bottom), None
    if rotated is None:
        return None, None
    x, y, width, height, angle = (read_number(rotated, tag, path) for tag in _ROTATED_TAGS)
    box = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    return box, math.degrees(angle)


def _read_side(root: Any, tag: str, path: str) -> int | None:
    has_value = (root.findtext(f"size/{tag}") or "").strip()
    value = int(read_number(root.find("size"), tag, path)) if has_value else 0
    return value if value > 0 else None


# Writing

_UNSAFE_LABEL = re.compile(r"[:\r\n]|\A#")
_UNLISTED = "classes with a colon, line break or leading #, left out of labelmap.txt"
_FRACTIONS = "flags that are not whole numbers, rounded up"


class Writer(FormatWriter):
    """Writes VOC's folders. Image names are unique, because all XML files are in one folder."""

    IMAGES = _IMAGES[0]
    LISTS_CLASSES = False
    SUPPORTED = frozenset(("view", "pose", *_FLAGS))

    def begin(self, subset: str) -> None:
        self._append_to_list(subset, "")

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images)
        classes = label_map.class_names
        left, top, right, bottom = (format_numbers(x, DECIMALS) for x in images.to_pixels().T)
        lines = format_rows(
            *(b"<xmin>", left, b"</xmin><ymin>", top, b"</ymin><xmax>", right),
            *(b"</xmax><ymax>", bottom, b"</ymax>\n"),
        )
        corners = lines.decode().splitlines()
        stems = [os.path.splitext(name)[0] for name in names]
        for row, (stem, name) in enumerate(zip(stems, names, strict=True)):
            height, width = images.sizes[row].tolist()
            start, end = images.splits[row : row + 2]
            flags = [""] * (end - start) if images.is_plain else self._format_flags(images, row)
            objects = "".join(
                f"<object><name>{escape_text(classes[images.classes[index]])}</name>"
                f"{flags[index - start]}<bndbox>{corners[index]}</bndbox></object>\n"
                for index in range(start, end)
            )
            text = (
                f"<annotation>\n<filename>{escape_text(name)}</filename>\n<size><width>{width}</width>"
                f"<height>{height}</height><depth>3</depth></size>\n{objects}</annotation>\n"
            )
            path = os.path.join(self.folder, ANNOTATION_FOLDERS[0], f"{stem}.xml")
            self._write(path, text.encode("utf-8", "replace"))
        self._append_to_list(images.subset, "".join(f"{stem}\n" for stem in stems))

    def finish(self, label_map: LabelMap) -> None:
        self._require_trimmed_names(label_map)
        classes = [item.class_name for item in label_map.items]
        names = [name for name in classes if not _UNSAFE_LABEL.search(name)]
        self.losses[_UNLISTED][""] += len(classes) - len(names)
        # Datumaro and CVAT need this file for classes that VOC does not have.
        lines = [f"{name}:::\n" for name in names]
        text = "".join(("# label:color_rgb:parts:actions\n", *lines))
        self._write(os.path.join(self.folder, "labelmap.txt"), text.encode())
        self._write_label_map(label_map)

    def _append_to_list(self, subset: str, lines: str) -> None:
        path = os.path.join(self.folder, _LISTS, to_stem(subset) + _LIST)
        self._write(path, lines.encode("utf-8", "surrogateescape"), "ab")

    def _format_flags(self, images: Images, row: int) -> list[str]:
        attributes = images.detections[row].attributes
        views = attributes.get("view") or attributes.get("pose")
        texts = [""] * (images.splits[row + 1] - images.splits[row])
        for name, values in (("pose", views), *((flag, attributes.get(flag)) for flag in _FLAGS)):
            for index, value in enumerate(values or ()):
                if value is not None:
                    text = escape_text(str(value)) if name == "pose" else self._to_flag(value)
                    texts[index] += f"<{name}>{text}</{name}>"
        return texts

    def _to_flag(self, value: AttributeValue) -> int:
        if isinstance(value, int):
            return int(value)
        self.losses[_FRACTIONS][""] += bool(value)
        return int(bool(value))
