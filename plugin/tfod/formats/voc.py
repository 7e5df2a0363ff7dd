"""Pascal VOC: an XML file for each image, ``JPEGImages``, and lists in ``ImageSets/Main``.

Read as create_pascal_tf_record.py of the OD API reads it: boxes are VOC's pixels, which it counts
from 1, divided by the size that the XML gives; nothing is subtracted or rounded. Other than the
script this reads layouts that are not VOC's (``images`` and ``annotations``, or one folder), boxes
that are turned, and needs no label map. Written corners are pixels likewise. Sources: the devkit's
VOC2012; CVAT's export for ``occluded``; labelImg and roLabelImg for what they write.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfod.detection.boxes import PixelBox, enclosing_points, enclosing_rotated
from tfod.detection.detection import AttributeValue, Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, Images, chosen
from tfod.formats.documents import (
    begins_with,
    names_in,
    number_in,
    parse,
    parse_flag,
    read_lines,
    with_xml_files,
    xml_files,
    xml_text,
)
from tfod.formats.files import ImageFiles
from tfod.formats.numbers import digits, lines_of
from tfod.formats.objects import KnownClasses, Objects, Reading
from tfod.formats.options import Options, Problems
from tfod.formats.writer import Writer
from tfod.tfrecord.image_names import safe_relative_path, split_extension
from tfod.tfrecord.shard_sets.names import stem_of_subset

_YEARS = ("VOC2007", "VOC2012")
_ANNOTATIONS = ("Annotations", "annotations", "annots")  # of VOC, raccoon and kangaroo
_IMAGES = ("JPEGImages", "images")  # VOC's own; that of raccoon, kangaroo and most others
_SPLITS = ("train", "valid", "val", "test")  # Roboflow's: XML files and images in each
_LISTS = os.path.join("ImageSets", "Main")
_LIST = ".txt"
_JOINED, _PARTS = "trainval", ("train", "val")
_FLAG = re.compile(r"\s(-1|0|1)\Z")
_FEW = 100  # lines, which say what kind of a list it is
_ROOT = "annotation"
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_CORNERS = tuple(f"{axis}{number}" for number in range(4) for axis in "xy")
_TURNED = ("cx", "cy", "w", "h", "angle")
_FLAGS = ("truncated", "difficult", "occluded")
_FIELDS = frozenset(("name", "bndbox", "robndbox", "pose", "type", *_FLAGS))
_UNKNOWN_POSE = "Unspecified"  # VOC's own word
_OTHER_NAME = (
    "annotations whose <filename> is not their own; the image that is named as the XML file is read"
)
# Reading


def is_voc(path: str) -> bool:
    """Whether a folder is laid out as VOC's, or holds XML files of images."""
    names = os.listdir(path) if os.path.isdir(path) else []
    folders = {*_ANNOTATIONS, *_YEARS, *_SPLITS}.intersection(names)
    paths = (os.path.join(path, one) for one in names if one.lower().endswith(".xml"))
    beside = filter(os.path.isfile, paths)
    below = (xml_files(os.path.join(path, one)) for one in folders)
    firsts = (next(iter(some), None) for some in (beside, *below))
    return any(one is not None and begins_with(one, _ROOT) for one in firsts)


def read(source: str, options: Options) -> Dataset:
    """Read VOC's folders, each list of images a subset; or XML files without lists as one.

    ``source`` is the folder of a year, the devkit with one, Roboflow's with one of each subset, or
    any that holds the annotations. Without a label map it is VOC's own, if it has every class; else
    one is made of all classes in the annotations, in the order of their names.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    year = _Year.at(source)
    problems = Problems(options)
    every = sorted(xml_files(year.annotations))
    if not every:
        raise TfodError(f"{year.annotations} holds no XML file; name the folder that does")
    files, years = {options.subset or DEFAULT_SUBSET: every}, year.splits(every)
    if years:
        years = chosen(years, options.subset, source)
        files = {name: sorted(xml_files(one.root)) for name, one in years.items()}
    elif names := year.set_names():
        wanted = [options.subset] if options.subset else names
        files = {name: year.files_of(name, problems) for name in wanted}
    # All annotations are looked at, not those of one set: every set gets the same map.
    classes = KnownClasses.find(
        options.label_map, year.root, lambda: _class_names(every), year.annotations, "voc2007"
    )
    reading = Reading(classes, options, problems)
    subsets = {}
    for subset, paths in files.items():
        own = years.get(subset, year)
        reader = _Reader(own, ImageFiles(own.image_folders(options.images)), reading)
        subsets[subset] = map(reader.detection, paths)
    return reading.dataset(subsets.items(), subsets, every)


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
        folders = [os.path.join(root, name) for name in _ANNOTATIONS]
        filled = with_xml_files(folders)
        if len(filled) > 1:
            raise TfodError(f"{' and '.join(filled)} hold XML files; put them into one folder")
        annotations = next(filter(os.path.isdir, [*filled, *folders]), root)
        return cls(root, annotations, os.path.join(root, _LISTS))

    def splits(self, paths: Sequence[str]) -> dict[str, _Year]:
        """The folder of each subset, as Roboflow has them; none where an XML file is elsewhere."""
        tops = {os.path.relpath(one, self.root).split(os.sep)[0] for one in paths}
        roots = {name: os.path.join(self.root, name) for name in _SPLITS if name in tops}
        return {name: _Year(one, one, "") for name, one in roots.items() if tops <= {*_SPLITS}}

    def image_folders(self, named: str | None) -> list[str]:
        """Where images are looked for."""
        if named is not None:
            own = [os.path.join(named, os.path.basename(self.root))]
            return [*filter(os.path.isdir, own), named]
        # Where only the annotations were named, the images may be beside them.
        roots = (self.root, os.path.join(self.root, os.pardir))
        known = [os.path.normpath(os.path.join(root, one)) for root in roots for one in _IMAGES]
        own = list(filter(os.path.isdir, known[: len(_IMAGES)])) or known[:1]
        return [*own, self.annotations, *known]

    def set_names(self) -> list[str]:
        """Names of the sets that have a list, but for one that only joins two others.

        Lists of one class each are none.
        """
        names = os.listdir(self.lists) if os.path.isdir(self.lists) else []
        stems = sorted(one[: -len(_LIST)] for one in names if one.endswith(_LIST) and one[0] != ".")
        found = [
            one
            for one in stems
            # By its name night_train may be a set as well as the list of a class: the flags say it.
            if not any(one.endswith(f"_{other}") for other in stems) or not self._has_flags(one)
        ]
        if {_JOINED, *_PARTS}.issubset(found):
            joined, *parts = (set(self.files_of(one, Problems())) for one in (_JOINED, *_PARTS))
            if joined.issubset(set().union(*parts)):
                found.remove(_JOINED)
        return found

    def files_of(self, name: str, problems: Problems) -> list[str]:
        """Paths of the XML files of a set, in the order of its list."""
        path = os.path.join(self.lists, name + _LIST)
        if not os.path.isfile(path):
            there = ", ".join(self.set_names())
            raise TfodError(
                f"{path}: no such list of the images of a set; choose another --set: {there}"
            )
        files: dict[str, None] = {}
        for number, line in read_lines(path):
            names = names_in(line, _FLAG.sub("", line))
            found = next(filter(os.path.isfile, map(self._xml, names)), None)
            if found is None:
                raise TfodError(
                    f"{path}, line {number}: {self.annotations} has no XML file for "
                    f"{line[:80]!r}; correct the line, or put the file there"
                )
            if found in files:
                problems.add("annotations that the list of the set has twice, written once", found)
            files[found] = None
        return list(files)

    def _has_flags(self, name: str) -> bool:
        """Whether a flag is behind each of the first names in a list, as in those of one class."""
        lines = itertools.islice(read_lines(os.path.join(self.lists, name + _LIST)), _FEW)
        return all(_FLAG.search(one) and not os.path.isfile(self._xml(one)) for _, one in lines)

    def _xml(self, name: str) -> str:
        return os.path.join(self.annotations, f"{name}.xml")


def _class_names(paths: Sequence[str]) -> list[str]:
    roots = map(parse, paths)
    objects = (one for root in roots if root.tag == _ROOT for one in root.iterfind("object"))
    return sorted({(one.findtext("name") or "").strip() for one in objects})


class _Object(NamedTuple):
    """An object that is written: its class, its box in pixels, and its other plain fields."""

    name: str
    box: PixelBox
    place: str
    texts: Mapping[str, str]

    def flag(self, name: str) -> int:
        return parse_flag(self.texts.get(name) or "0", f"{self.place}: <{name}> has")


@dataclass(frozen=True)
class _Reader:
    """Makes the Detection of an annotation.

    An image is named as its XML file, whatever ``<filename>`` and ``<path>`` say: who renames a
    dataset renames the files alone. Else it is the one that ``<filename>`` says.
    """

    year: _Year
    images: ImageFiles
    reading: Reading

    def detection(self, path: str) -> Detection | None:
        root = parse(path)
        if root.tag != _ROOT:
            raise TfodError(f"{path} is not a Pascal VOC annotation: its root is not <{_ROOT}>")
        found = [self._object(one, path) for one in root.iterfind("object")]
        wanted = [one for one in found if one is not None]
        objects = Objects(
            [one.name for one in wanted],
            [one.box for one in wanted],
            [one.place for one in wanted],
            _attributes(wanted),
        )
        size = _side(root, "height", path), _side(root, "width", path)
        stem, given = os.path.splitext(os.path.basename(path))[0], root.findtext("filename") or ""
        named = safe_relative_path(given.strip())
        names = self._names(path, stem, named)
        one = self.reading.detection(self.images, names, size, objects, path)
        if one is not None and one.encoded:
            own = os.path.splitext(os.path.basename(one.filename or ""))[0]
            if own == stem and os.path.basename(split_extension(named)[0]) not in ("", stem):
                self.reading.problems.add(_OTHER_NAME, f"{path}: {given.strip()}")
        return one

    def _names(self, path: str, stem: str, named: str) -> list[str]:
        """What its image may be called, with the annotation's folder and without."""
        within = os.path.relpath(os.path.dirname(path), self.year.annotations).replace(os.sep, "/")
        extension = split_extension(named)[1]
        own = stem + extension * (extension.lower() in FORMAT_OF_EXTENSION)
        return [f"{folder}/{one}" for one in (own, named) if one for folder in (within, ".")]

    def _object(self, one: Any, path: str) -> _Object | None:
        """An ``<object>``; None where it is left out."""
        place, problems = f"{path}, line {one.sourceline}", self.reading.problems
        texts = {child.tag: (child.text or "").strip() for child in one if not len(child)}
        name, box = texts.get("name"), _box(one, path)
        if not name:
            raise TfodError(f"{place}: <name> is empty; write the class there")
        if box is None:
            problems.add("objects without <bndbox>, left out", place)
            return None
        found = _Object(name, box, place, texts)
        if self.reading.options.ignore_difficult and found.flag("difficult"):
            problems.add("difficult objects, left out", place)
            return None
        if one.find("bndbox/xmin") is None:
            problems.add("objects whose box is turned, read as the box around it", place)
        if len(one.findall("bndbox")) > 1:
            problems.add("objects with another <bndbox>, of which the first is read", place)
        unread = [child.tag for child in one if len(child) or texts[child.tag]]
        unread = [tag for tag in unread if tag not in _FIELDS]
        if unread:
            problems.add("objects with fields that are not read", f"{place}: <{unread[0]}>")
        return found


def _box(one: Any, path: str) -> PixelBox | None:
    """The box of an object in pixels, of one that is turned the box around it."""
    corners, turned = one.find("bndbox"), one.find("robndbox")
    if corners is not None and corners.find(_CORNERS[0]) is not None:
        return enclosing_points([number_in(corners, one, path, finite=False) for one in _CORNERS])
    if corners is not None:
        # Numbers that are not finite are taken, to be checked with all boxes.
        left, top, right, bottom = (number_in(corners, one, path, finite=False) for one in _SIDES)
        return left, top, right, bottom
    if turned is None:
        return None
    x, y, width, height, angle = (number_in(turned, name, path) for name in _TURNED)
    return enclosing_rotated(x, y, width, height, math.degrees(angle))


def _side(root: Any, tag: str, path: str) -> int | None:
    is_given = (root.findtext(f"size/{tag}") or "").strip()
    value = int(number_in(root.find("size"), tag, path)) if is_given else 0
    return value if value > 0 else None


def _attributes(objects: Sequence[_Object]) -> dict[str, list[Any]]:
    """Objects without ``difficult``, ``truncated`` or ``pose`` have 0, 0 and Unspecified."""
    attributes: dict[str, list[Any]] = {
        "difficult": [int(one.flag("difficult") != 0) for one in objects],
        "truncated": [one.flag("truncated") for one in objects],
        "view": [one.texts.get("pose") or _UNKNOWN_POSE for one in objects],
    }
    if any("occluded" in one.texts for one in objects):
        attributes["occluded"] = [one.flag("occluded") for one in objects]
    return attributes


# Writing

_DECIMALS = 6
_NO_LABEL = re.compile(r"[:\r\n]|\A#")
_UNLISTED = "classes left out of labelmap.txt, which takes no colon, line end or leading #"
_FRACTIONS = "flags that are no whole numbers, rounded up"


class VocWriter(Writer):
    """Names of images are unique in the whole dataset, since all XML files share a folder."""

    IMAGES = _IMAGES[0]
    LISTS_CLASSES = False
    STRIPPED_IN = "VOC"  # the lines of its lists, and by most readers the classes
    CARRIES = frozenset(("view", "pose", *_FLAGS))

    def begin(self, subset: str) -> None:
        self._list(subset, "")

    def add(self, subset: str, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images)
        classes = label_map.class_names  # made once for each label map
        left, top, right, bottom = (digits(side, _DECIMALS) for side in images.in_pixels().T)
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
                f"<object><name>{xml_text(classes[images.classes[at]].strip())}</name>"
                f"{flags[at - start]}<bndbox>{corners[at]}</bndbox></object>\n"
                for at in range(start, end)
            )
            text = (
                f"<annotation>\n<filename>{xml_text(name)}</filename>\n<size><width>{width}</width>"
                f"<height>{height}</height><depth>3</depth></size>\n{objects}</annotation>\n"
            )
            path = os.path.join(self.folder, _ANNOTATIONS[0], f"{stem}.xml")
            self._write(path, text.encode("utf-8", "replace"))
        self._list(subset, "".join(f"{stem}\n" for stem in stems))

    def finish(self, label_map: LabelMap) -> None:
        classes = self._classes_without_blanks(label_map)
        names = [one for one in classes if not _NO_LABEL.search(one)]
        self.losses[_UNLISTED][""] += len(classes) - len(names)
        # Datumaro and CVAT take other classes than VOC's own from here.
        lines = [f"{name}:::\n" for name in names]
        text = "".join(("# label:color_rgb:parts:actions\n", *lines))
        self._write(os.path.join(self.folder, "labelmap.txt"), text.encode())
        self._write_label_map(label_map)

    def _list(self, subset: str, lines: str) -> None:
        """Add lines to the list of a subset."""
        path = os.path.join(self.folder, _LISTS, stem_of_subset(subset) + _LIST)
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
