"""Pascal VOC: an XML file for each image, ``JPEGImages``, and lists in ``ImageSets/Main``.

Read as create_pascal_tf_record.py of the OD API reads it: boxes are VOC's pixels, which it counts
from 1, divided by the size that the XML gives; nothing is subtracted or rounded. Other than the
script this reads layouts that are not VOC's (``images`` and ``annotations``, or one folder), boxes
that are turned, and needs no label map. Written corners are pixels likewise. Sources: the devkit's
VOC2012; CVAT's export for ``occluded``; labelImg and roLabelImg for what they write.
"""

from __future__ import annotations

import contextlib
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
from tfod.errors import TfodError
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, Images, chosen
from tfod.formats.format_writer import FormatWriter
from tfod.formats.numbers import DECIMALS, digits, lines_of
from tfod.formats.options import ConversionProblems, Options
from tfod.formats.reading.documents import number_in, parse, read_lines, xml_text
from tfod.formats.reading.files import ImageFiles, ends_of, files_below
from tfod.formats.reading.objects import (
    ROTATED,
    AnnotatedObject,
    DatasetBuilder,
    SourceClasses,
    rotated,
)
from tfod.sources.format_recognition import ANNOTATION_FOLDERS
from tfod.tfrecord.image_names import safe_relative_path, split_extension
from tfod.tfrecord.shard_sets.shard_names import to_stem

_YEARS = ("VOC2007", "VOC2012")
_IMAGES = ("JPEGImages", "images")  # VOC's own; that of raccoon, kangaroo and most others
_SPLITS = ("train", "valid", "val", "test")  # Roboflow's: XML files and images in each
_LISTS = os.path.join("ImageSets", "Main")
_LIST = ".txt"
_JOINED, _PARTS = "trainval", ("train", "val")
_FLAG = re.compile(r"\s(-1|0|1)\Z")
_ROOT = "annotation"
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_CORNERS = tuple(f"{axis}{number}" for number in range(4) for axis in "xy")
_IN_BOX = frozenset((*_SIDES, *_CORNERS))
_CVATS_ROTATION = "attributes/attribute[name='rotation']/value"
_TURNED = ("cx", "cy", "w", "h", "angle")
_FLAGS = ("truncated", "difficult", "occluded")
_FIELDS = frozenset(("name", "bndbox", "robndbox", "pose", "type", *_FLAGS))
_NO = ("", "unspecified", "unknown", "false", "no", "n", "f", "none", "null", "nan")
_WORDS = {**dict.fromkeys(_NO, "0"), **dict.fromkeys(("true", "yes", "y", "t"), "1")}
_OTHER_XML = f"XML files whose root is not <{_ROOT}>, left out"
_UNKNOWN_POSE = "Unspecified"  # VOC's own word

# Reading


def _folders_of_images(folder: str) -> list[str]:
    """Return all folders with images, or none if two images have one name."""
    paths = list(files_below(folder, FORMAT_OF_EXTENSION))
    stems = {os.path.splitext(os.path.basename(path))[0] for path in paths}
    return sorted(set(map(os.path.dirname, paths))) if len(stems) == len(paths) else []


def _xml_files(folder: str) -> Iterator[str]:
    return files_below(folder, (".xml",))


def read(source: str, options: Options) -> Dataset:
    """Read VOC's folders, each list of images a subset; or XML files without lists as one.

    ``source`` is the folder of a year, the devkit with one, Roboflow's with one of each subset, or
    any that holds the annotations. Without a label map it is VOC's own, if it has every class; else
    one is made of all classes in the annotations, in the order of their names.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    year = _Year.at(source)
    problems = ConversionProblems(options)
    every = sorted(_xml_files(year.annotations))
    if not every:
        raise TfodError(f"{year.annotations} holds no XML file; name the folder that does")
    # All annotations are looked at, not those of one set: every set gets the same map.
    classes = SourceClasses.find(
        options, year.root, lambda: _class_names(every), year.annotations, "voc2007"
    )
    reading = DatasetBuilder(classes, options, problems)
    subsets = {
        subset: _detections(own, paths, reading)
        for subset, (own, paths) in _subsets(source, year, every, options.subset, problems).items()
    }
    return reading.dataset(subsets.items(), subsets, every)


def _subsets(
    source: str, year: _Year, every: Sequence[str], wanted: str | None, problems: ConversionProblems
) -> dict[str, tuple[_Year, Sequence[str]]]:
    """The XML files of each subset, and where it lies: of Roboflow's folders, of lists, or all."""
    tops = {os.path.relpath(one, year.root).split(os.sep)[0] for one in every}
    if tops <= {*_SPLITS}:
        roots = [os.path.join(year.root, name) for name in _SPLITS if name in tops]
        splits = {os.path.basename(one): _Year(one, one, "") for one in roots}
        found = chosen(splits, wanted, source)
        return {name: (one, sorted(_xml_files(one.root))) for name, one in found.items()}
    if names := year.set_names():
        wanted_names = names if wanted is None else [wanted]
        return {name: (year, year.files_of(name, problems)) for name in wanted_names}
    return {wanted or DEFAULT_SUBSET: (year, every)}


@dataclass(frozen=True)
class _Year:
    """The folder of a year of VOC, or of any other dataset, and that of its annotations."""

    root: str
    annotations: str
    lists: str  # of images, a folder

    @classmethod
    def at(cls, source: str) -> _Year:
        years = [one for one in _YEARS if os.path.isdir(os.path.join(source, one))]
        if len(years) > 1:
            raise TfodError(f"{source} holds {' and '.join(years)}; name one of them")
        root = os.path.join(source, *years)
        folders = filter(os.path.isdir, (os.path.join(root, name) for name in ANNOTATION_FOLDERS))
        # Of a disk that takes upper and lower case for the same, each is there once.
        known = {os.stat(one).st_ino: one for one in folders}.values()
        filled = [one for one in known if any(_xml_files(one))]
        if len(filled) > 1:
            raise TfodError(f"{' and '.join(filled)} hold XML files; put them into one folder")
        return cls(root, next(iter([*filled, *known]), root), os.path.join(root, _LISTS))

    def image_folders(self, named: str | None) -> list[str]:
        """Where images are looked for."""
        if named is not None:
            own = [os.path.join(named, os.path.basename(self.root))]
            return [*filter(os.path.isdir, own), named]
        # Where only the annotations were named, the images may be beside them.
        roots = (self.root, os.path.join(self.root, os.pardir))
        known = [os.path.normpath(os.path.join(root, one)) for root in roots for one in _IMAGES]
        own = list(filter(os.path.isdir, known[: len(_IMAGES)]))
        others = _folders_of_images(self.root) if not own else ()
        return [*(own or known[:1]), self.annotations, *known, self.root, *others]

    def set_names(self) -> list[str]:
        """Names of the sets that have a list, but for one that only joins two others.

        Lists of one class are none: they have a flag behind each name.
        """
        names = sorted(os.listdir(self.lists)) if os.path.isdir(self.lists) else []
        found = []
        for stem in (one[: -len(_LIST)] for one in names if one.endswith(_LIST) and one[0] != "."):
            _, line = next(read_lines(os.path.join(self.lists, stem + _LIST)), (0, ""))
            if line and (not _FLAG.search(line) or self._xml(line)):
                found.append(stem)
        if {_JOINED, *_PARTS}.issubset(found):
            joined, *parts = (
                set(self.files_of(one, ConversionProblems())) for one in (_JOINED, *_PARTS)
            )
            if joined.issubset(set().union(*parts)):
                found.remove(_JOINED)
        return found

    def files_of(self, name: str, problems: ConversionProblems) -> list[str]:
        """Paths of the XML files of a set, in the order of its list."""
        path = os.path.join(self.lists, name + _LIST)
        if not os.path.isfile(path):
            there = ", ".join(self.set_names())
            raise TfodError(
                f"{path}: no such list of the images of a set; choose another --set: {there}"
            )
        files: dict[str, None] = {}
        for number, line in read_lines(path):
            found = self._xml(line) or self._xml(_FLAG.sub("", line))
            if found is None:
                raise TfodError(
                    f"{path}, line {number}: {self.annotations} has no XML file for "
                    f"{line[:80]!r}; correct the line, or put the file there"
                )
            if found in files:
                problems.add("annotations that the list of the set has twice, written once", found)
            files[found] = None
        return list(files)

    def _xml(self, line: str) -> str | None:
        """The XML file that a line means: maybe with quotes, folders, an extension."""
        ends = ends_of(safe_relative_path(line.strip(" \"'")))
        stems = [*ends, *(split_extension(one)[0] for one in ends)]
        paths = (os.path.join(self.annotations, f"{one}.xml") for one in stems)
        return next(filter(os.path.isfile, paths), None)


def _class_names(paths: Sequence[str]) -> list[str]:
    roots = (root for root in map(parse, paths) if root.tag == _ROOT)
    objects = (one for root in roots for one in root.iter("object"))
    return sorted({(one.findtext("name") or "").strip() for one in objects})


def _detections(
    year: _Year, paths: Sequence[str], reading: DatasetBuilder
) -> Iterator[Detection | None]:
    """The records of annotations.

    An image is named as its XML file, whatever ``<filename>`` and ``<path>`` say: who renames a
    dataset renames the files alone. Else it is the one that ``<filename>`` says, or ``<path>``.
    """
    options = reading.options
    images = ImageFiles(year.image_folders(options.images), root=options.unpacked)
    for path in paths:
        root = parse(path)
        if root.tag != _ROOT:
            if year.annotations != year.root or root.find(".//bndbox") is not None:
                raise TfodError(f"{path} is not a Pascal VOC annotation: its root is not <{_ROOT}>")
            reading.problems.add(_OTHER_XML, path)
            continue
        elements = list(root.iter("object"))
        is_boxless = all(one.find("bndbox") is one.find("robndbox") for one in elements)
        if is_boxless and (elements or root.find(".//bndbox") is not None):
            tags = " ".join(f"<{child.tag}>" for child in next(iter(elements), root))
            raise TfodError(f"{path}: no object has a <bndbox>, but {tags:.80}; write it there")
        # Only some tools have it, and then of all objects.
        flags = _FLAGS if root.find("object/occluded") is not None else _FLAGS[:2]
        found = (_object(one, path, flags, reading) for one in elements)
        objects = list(filter(None, found))
        size = _side(root, "height", path), _side(root, "width", path)
        stem = os.path.splitext(os.path.basename(path))[0]
        named, whole = ((root.findtext(tag) or "").strip() for tag in ("filename", "path"))
        extension = split_extension(named)[1]
        own = stem + extension * (extension.lower() in FORMAT_OF_EXTENSION)
        # With the annotation's folder and without.
        within = os.path.relpath(os.path.dirname(path), year.annotations).replace(os.sep, "/")
        within = within if within != "." else ""
        above = posixpath.dirname(within)
        beside = (posixpath.join(above, one) for one in _IMAGES if within)
        folders = dict.fromkeys((within, *beside, above, ""))
        names = [posixpath.join(folder, one) for one in (own, named) for folder in folders]
        names.append(whole)
        yield reading.detection(images, names, size, objects, path)


def _object(
    one: Any, path: str, flags: Sequence[str], reading: DatasetBuilder
) -> AnnotatedObject | None:
    """An ``<object>`` with its flags, 0 where it has none; None where it is left out."""
    place, problems = f"{path}, line {one.sourceline}", reading.problems
    texts = {child.tag: (child.text or "").strip() for child in one if not len(child)}
    name = problems.trim(one.findtext("name") or texts.get("name", ""), place)
    box, degrees = _box(one, path, place, problems)
    if not name:
        raise TfodError(f"{place}: <name> is empty; write the class there")
    if box is None:
        problems.add("objects without <bndbox>, left out", place)
        return None
    values = {tag: _read_flag(texts.get(tag, ""), tag, place, problems) for tag in flags}
    values["difficult"] = int(values["difficult"] != 0)
    if reading.options.ignore_difficult and values["difficult"]:
        problems.add("difficult objects, left out", place)
        return None
    if len(one.findall("bndbox")) > 1:
        problems.add("objects with another <bndbox>, of which the first is read", place)
    unread = [child.tag for child in one if len(child) or texts[child.tag]]
    unread = [tag for tag in unread if tag not in _FIELDS]
    unread += [child.tag for child in one.iterfind("bndbox/*") if child.tag not in _IN_BOX]
    if unread:  # seldom
        degrees = degrees or one.findtext(".//rotation") or one.findtext(_CVATS_ROTATION)
        is_other = any(x.findtext("name") != "rotation" for x in one.iterfind("attributes/*"))
        known = ("rotation",) if is_other else ("rotation", "attributes")
        for tag in [tag for tag in unread if tag not in known][:1]:
            problems.add("objects with fields that are not read", f"{place}: <{tag}>")
    attributes = {**values, "view": texts.get("pose") or _UNKNOWN_POSE}
    return AnnotatedObject(
        name, box, place, attributes, drawn=rotated(box, degrees, place, problems)
    )


def _read_flag(text: str, tag: str, place: str, problems: ConversionProblems) -> int:
    """Read a whole number, or a word for 0 or 1; 0 for anything else, which is counted."""
    with contextlib.suppress(ValueError):
        value = float(_WORDS.get(text.lower(), text))
        if value.is_integer() and abs(value) < 1 << 63:
            return int(value)
    problems.add(
        "flags that are not 0, 1, true or false, read as 0", f"{place}: <{tag}> {text:.40}"
    )
    return 0


def _box(
    one: Any, path: str, place: str, problems: ConversionProblems
) -> tuple[PixelBox | None, object]:
    """The box of an object in pixels, and the degrees by which a <robndbox> is rotated."""
    corners, turned = one.find("bndbox"), one.find("robndbox")
    if corners is not None and corners.find(_CORNERS[0]) is not None:
        problems.add(ROTATED, place)
        points = [number_in(corners, one, path, finite=False) for one in _CORNERS]
        return enclose_points(points), None
    if corners is not None:
        # Numbers that are not finite are taken, to be checked with all boxes.
        left, top, right, bottom = (number_in(corners, one, path, finite=False) for one in _SIDES)
        return (left, top, right, bottom), None
    if turned is None:
        return None, None
    x, y, width, height, angle = (number_in(turned, name, path) for name in _TURNED)
    box = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    return box, math.degrees(angle)


def _side(root: Any, tag: str, path: str) -> int | None:
    is_given = (root.findtext(f"size/{tag}") or "").strip()
    value = int(number_in(root.find("size"), tag, path)) if is_given else 0
    return value if value > 0 else None


# Writing

_NO_LABEL = re.compile(r"[:\r\n]|\A#")
_UNLISTED = "classes left out of labelmap.txt, which takes no colon, line end or leading #"
_FRACTIONS = "flags that are no whole numbers, rounded up"


class Writer(FormatWriter):
    """Names of images are unique in the whole dataset, since all XML files share a folder."""

    IMAGES = _IMAGES[0]
    LISTS_CLASSES = False
    CARRIES = frozenset(("view", "pose", *_FLAGS))

    def begin(self, subset: str) -> None:
        self._list(subset, "")

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images)
        classes = label_map.class_names  # made once for each label map
        left, top, right, bottom = (digits(side, DECIMALS) for side in images.in_pixels().T)
        lines = lines_of(
            *(b"<xmin>", left, b"</xmin><ymin>", top, b"</ymin><xmax>", right),
            *(b"</xmax><ymax>", bottom, b"</ymax>\n"),
        )
        corners = lines.decode().splitlines()
        stems = [os.path.splitext(name)[0] for name in names]
        for row, (stem, name) in enumerate(zip(stems, names, strict=True)):
            height, width = images.sizes[row].tolist()
            start, end = images.splits[row : row + 2]
            flags = [""] * (end - start) if images.is_plain else self._flags(images, row)
            objects = "".join(
                f"<object><name>{xml_text(classes[images.classes[at]])}</name>"
                f"{flags[at - start]}<bndbox>{corners[at]}</bndbox></object>\n"
                for at in range(start, end)
            )
            text = (
                f"<annotation>\n<filename>{xml_text(name)}</filename>\n<size><width>{width}</width>"
                f"<height>{height}</height><depth>3</depth></size>\n{objects}</annotation>\n"
            )
            path = os.path.join(self.folder, ANNOTATION_FOLDERS[0], f"{stem}.xml")
            self._write(path, text.encode("utf-8", "replace"))
        self._list(images.subset, "".join(f"{stem}\n" for stem in stems))

    def finish(self, label_map: LabelMap) -> None:
        self._require_no_blanks(label_map)
        classes = [one.class_name for one in label_map.items]
        names = [one for one in classes if not _NO_LABEL.search(one)]
        self.losses[_UNLISTED][""] += len(classes) - len(names)
        # Datumaro and CVAT take other classes than VOC's own from here.
        lines = [f"{name}:::\n" for name in names]
        text = "".join(("# label:color_rgb:parts:actions\n", *lines))
        self._write(os.path.join(self.folder, "labelmap.txt"), text.encode())
        self._write_label_map(label_map)

    def _list(self, subset: str, lines: str) -> None:
        """Add lines to the list of a subset."""
        path = os.path.join(self.folder, _LISTS, to_stem(subset) + _LIST)
        self._write(path, lines.encode("utf-8", "surrogateescape"), "ab")

    def _flags(self, images: Images, row: int) -> list[str]:
        """What the XML has between the class and the box of each object."""
        attributes = images.detections[row].attributes
        views = attributes.get("view") or attributes.get("pose")
        texts = [""] * (images.splits[row + 1] - images.splits[row])
        for name, values in (("pose", views), *((name, attributes.get(name)) for name in _FLAGS)):
            for at, value in enumerate(values or ()):
                if value is not None:
                    text = xml_text(str(value)) if name == "pose" else self._flag(value)
                    texts[at] += f"<{name}>{text}</{name}>"
        return texts

    def _flag(self, value: AttributeValue) -> int:
        if isinstance(value, int):
            return int(value)
        self.losses[_FRACTIONS][""] += bool(value)
        return int(bool(value))
