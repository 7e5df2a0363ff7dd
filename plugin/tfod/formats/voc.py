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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfod.detection.boxes import PixelBox, enclosing_points, enclosing_rotated
from tfod.detection.detection import AttributeValue, Detection
from tfod.detection.images.image import DEFAULT_EXTENSION, FORMAT_OF_EXTENSION
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, Images, KnownClasses, annotated
from tfod.formats.documents import parse, parse_number, read_lines, xml_text
from tfod.formats.files import FoundImage, ImageFile, ImageFiles, read_image
from tfod.formats.numbers import digits, lines_of
from tfod.formats.objects import Objects, detection_of, frame_of
from tfod.formats.options import Options, Problems
from tfod.formats.writer import Writer
from tfod.tfrecord.image_names import safe_relative_path, split_extension
from tfod.tfrecord.shard_sets.names import stem_of_subset

_YEARS = ("VOC2007", "VOC2012")
_ANNOTATIONS = ("Annotations", "annotations", "annots")  # of VOC, raccoon and kangaroo
_IMAGES = ("JPEGImages", "images")  # VOC's own; that of raccoon, kangaroo and most others
_LISTS = os.path.join("ImageSets", "Main")
_LIST = ".txt"
_JOINED, _PARTS = "trainval", ("train", "val")
_FLAG = re.compile(r"\s(-1|0|1)\Z")
_FEW = 100  # lines, which say what kind of a list it is
_ROOT = re.compile(rb"<annotation[\s>]")  # not CVAT's <annotations>
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_CORNERS = tuple(f"{axis}{number}" for number in range(4) for axis in "xy")
_TURNED = ("cx", "cy", "w", "h", "angle")
_FIELDS = frozenset(("bndbox", "robndbox", "pose", "truncated", "difficult", "occluded", "type"))
_UNKNOWN_POSE = "Unspecified"  # VOC's own word
_OTHER_NAME = (
    "annotations whose <filename> is not their own; the image that is named as the XML file is read"
)
_ROTATED = "objects whose box is turned, read as the box around it"


# What the files say


class VocObject(NamedTuple):
    """One ``<object>``: its class, its line in the file, its box in pixels if it has one.

    ``texts`` are its other plain fields, ``nested`` the names of those that are not plain.
    """

    name: str
    line: int
    box: PixelBox | None
    is_turned: bool
    texts: dict[str, str]
    nested: tuple[str, ...] = ()


class VocImage(NamedTuple):
    """One file; ``filename`` is a safe relative path, and what is not there is None or ''."""

    file: str
    filename: str
    height: int | None
    width: int | None
    objects: tuple[VocObject, ...]


def read_xml(file: str) -> VocImage | None:
    """Read one file; None where it is XML of another kind.

    Numbers of boxes that are not finite are taken, to be checked later.

    Raises:
        TfodError: it cannot be read, is not well-formed XML, or has no number where one must be.
    """
    root = parse(file)
    if root.tag != "annotation":
        return None
    size = root.find("size")
    height, width = (
        None if size is None else _side(size, tag, file) for tag in ("height", "width")
    )
    filename = (root.findtext("filename") or "").strip()
    return VocImage(file, filename, height, width, tuple(_objects(root, file)))


def _objects(root: Any, file: str) -> Iterator[VocObject]:
    for one in root.iterfind("object"):
        box, is_turned = _box(one, file)
        texts = {child.tag: (child.text or "").strip() for child in one if not len(child)}
        read = [one.find("bndbox"), one.find("robndbox")]
        nested = tuple(child.tag for child in one if len(child) and child not in read)
        name = texts.pop("name", "")
        yield VocObject(name, one.sourceline, box, is_turned, texts, nested)


def _box(one: Any, file: str) -> tuple[PixelBox | None, bool]:
    """The box of an object, and whether it is one around a turned box."""
    corners = one.find("bndbox")
    if corners is not None and corners.find(_CORNERS[0]) is not None:
        points = [_number(corners, name, file, finite=False) for name in _CORNERS]
        return enclosing_points(points), True
    if corners is not None:
        left, top, right, bottom = (_number(corners, side, file, finite=False) for side in _SIDES)
        return (left, top, right, bottom), False
    turned = one.find("robndbox")
    if turned is None:
        return None, False
    x, y, width, height, angle = (_number(turned, name, file) for name in _TURNED)
    return enclosing_rotated(x, y, width, height, math.degrees(angle)), True


def _side(size: Any, tag: str, file: str) -> int | None:
    if not (size.findtext(tag) or "").strip():
        return None
    value = int(_number(size, tag, file))
    return value if value > 0 else None


def _number(element: Any, tag: str, file: str, *, finite: bool = True) -> float:
    found = element.find(tag)
    text = "" if found is None else (found.text or "").strip()
    line = (element if found is None else found).sourceline
    return parse_number(text, f"{file}, line {line}: <{tag}> has", finite)


# Reading


def is_voc(path: str) -> bool:
    """Whether a folder is laid out as VOC's, or holds XML files of images."""
    names = os.listdir(path) if os.path.isdir(path) else []
    folders = {*_ANNOTATIONS, *_YEARS}.intersection(names)
    beside = (os.path.join(path, one) for one in names if one.lower().endswith(".xml"))
    below = (_xml_files(os.path.join(path, one)) for one in folders)
    firsts = (next(iter(some), None) for some in (beside, *below))
    return any(one is not None and _is_annotation(one) for one in firsts)


def _is_annotation(path: str) -> bool:
    with open(path, "rb") as file:
        return _ROOT.search(file.read(1024)) is not None


def read(source: str, options: Options) -> Dataset:
    """Read VOC's folders, each list of images a subset; or XML files without lists as one.

    ``source`` is the folder of a year, the devkit with that of 2007, or any folder that holds the
    annotations. Without a label map it is VOC's own, if it has every class; else one is made of all
    classes in the annotations, in the order of their names.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    year = _Year.at(source)
    problems = Problems(options)
    names = year.set_names()
    if names and options.subset:
        names = [options.subset]
    files = {name: year.files_of(name, problems) for name in names}
    if not files:
        every = sorted(_xml_files(year.annotations))
        if not every:
            raise TfodError(f"{year.annotations} holds no XML file; name the folder that does")
        files = {options.subset or DEFAULT_SUBSET: every}
    # All annotations are looked at, not those of one set: every set gets the same map.
    classes = KnownClasses.find(
        options.label_map,
        year.root,
        lambda: _class_names(year.annotations),
        year.annotations,
        shipped="voc2007",
    )
    reader = _Reader(
        year, ImageFiles(year.image_folders(options.images)), classes, options, problems
    )

    subsets = {subset: map(reader.detection, paths) for subset, paths in files.items()}
    every = [path for paths in files.values() for path in paths]
    return annotated(subsets, subsets.items(), classes, problems, every)


@dataclass(frozen=True)
class _Year:
    """The folder of a year of VOC, or of any other dataset, and that of its annotations."""

    root: str
    annotations: str

    @classmethod
    def at(cls, source: str) -> _Year:
        if not os.path.isdir(source):
            raise TfodError(f"{source} is not a folder; name that of the dataset")
        roots = [os.path.join(source, one) for one in _YEARS]
        root = next(filter(os.path.isdir, roots), source)
        found = (os.path.join(root, name) for name in _ANNOTATIONS)
        annotations = next(filter(os.path.isdir, found), root)
        if annotations == root and os.path.isdir(os.path.join(root, _LISTS)):
            raise TfodError(
                f"{os.path.join(root, _ANNOTATIONS[0])}: no such folder of annotations; put it "
                f"beside that of {_LISTS}"
            )
        return cls(root, annotations)

    @property
    def lists(self) -> str:
        """The folder of the lists of images."""
        return os.path.join(self.root, _LISTS)

    def image_folders(self, named: str | None) -> list[str]:
        """Where images are looked for."""
        if named is not None:
            return [named]
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
            if not any(one.endswith(f"_{other}") for other in stems)
            or not all(self._flags(os.path.join(self.lists, one + _LIST)))
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
            file = self._file_of(line, f"{path}, line {number}")
            if file in files:
                problems.add("annotations that the list of the set has twice, written once", file)
            files[file] = None
        return list(files)

    def _flags(self, path: str) -> list[bool]:
        """Whether a flag is behind each of the first names in a list, as in those of one class."""
        return [
            _FLAG.search(line) is not None and not os.path.isfile(self._xml(line))
            for _, line in itertools.islice(read_lines(path), _FEW)
        ]

    def _file_of(self, line: str, where: str) -> str:
        """The XML file that a line means: a name, maybe with a flag, quotes, folders, extension."""
        names: list[str] = []
        for text in (line, _FLAG.sub("", line).rstrip()):
            for plain in (text, text.strip("\"'")):
                parts = [one for one in plain.replace("\\", "/").split("/") if one.strip(".")]
                names += ["/".join(parts[at:]) for at in range(len(parts))]
        names += [split_extension(one)[0] for one in names]
        found = next(filter(os.path.isfile, map(self._xml, names)), None)
        if found is None:
            raise TfodError(
                f"{where}: {self.annotations} has no XML file for {line[:80]!r}; correct the line, "
                "or put the file there"
            )
        return found

    def _xml(self, name: str) -> str:
        return os.path.join(self.annotations, f"{name}.xml")


def _xml_files(folder: str) -> Iterator[str]:
    """Paths of the XML files in a folder and all below it, hidden ones left out."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.lower().endswith(".xml") and not name.startswith("."):
                yield os.path.join(where, name)


def _class_names(folder: str) -> list[str]:
    found = (read_xml(path) for path in sorted(_xml_files(folder)))
    return sorted({one.name for voc in found if voc for one in voc.objects})


@dataclass(frozen=True)
class _Reader:
    """Makes the Detection of an annotation.

    An image is named as its XML file, whatever ``<filename>`` and ``<path>`` say: who renames a
    dataset renames the files alone. Else it is the one that ``<filename>`` says.
    """

    year: _Year
    images: ImageFiles
    classes: KnownClasses
    options: Options
    problems: Problems

    def detection(self, path: str) -> Detection:
        voc = read_xml(path)
        if voc is None:
            raise TfodError(f"{path} is not a Pascal VOC annotation: its root is not <annotation>")
        found, image = self._image(voc)
        wanted = [one for one in voc.objects if self._is_wanted(one, path)]
        objects = Objects(
            [one.name for one in wanted],
            [one.box for one in wanted if one.box is not None],
            [_place(path, one) for one in wanted],
            _attributes(wanted, path),
        )
        size = (voc.height, voc.width)
        frame = frame_of(image, size, objects.boxes, path, self.problems)
        common = (self.classes, self.options, self.problems)
        return detection_of(image, found.name, objects, frame, *common, where=path)

    def _image(self, voc: VocImage) -> tuple[FoundImage, ImageFile | None]:
        """The image of an annotation, under its name with the annotation's folder."""
        path = voc.file
        stem = os.path.splitext(os.path.basename(path))[0]
        within = os.path.relpath(os.path.dirname(path), self.year.annotations).replace(os.sep, "/")
        named = safe_relative_path(voc.filename)
        extension = split_extension(named)[1]
        if extension.lower() not in FORMAT_OF_EXTENSION:
            extension = ""
        names = [
            f"{folder}/{name}" if folder != "." else name
            for name in (stem + extension, named)
            for folder in (within, ".")
            if name
        ]
        unread = FoundImage("", names[0] if extension else names[0] + DEFAULT_EXTENSION)
        is_needed = not self.options.no_images
        if not is_needed and voc.height and voc.width:
            return unread, None
        found = read_image(self.images, names, path, self.problems, is_needed)
        if found is None:
            return unread, None
        own = os.path.splitext(os.path.basename(found[0].name))[0]
        if own == stem and os.path.basename(split_extension(named)[0]) not in ("", stem):
            self.problems.add(_OTHER_NAME, f"{path}: {voc.filename}")
        return found

    def _is_wanted(self, one: VocObject, path: str) -> bool:
        place, problems = _place(path, one), self.problems
        if not one.name:
            raise TfodError(f"{place}: <name> is empty; write the class there")
        if one.box is None:
            problems.add("objects without <bndbox>, left out", place)
            return False
        if self.options.ignore_difficult and _flag(one, "difficult", path):
            problems.add("difficult objects, left out", place)
            return False
        if one.is_turned:
            problems.add(_ROTATED, place)
        if "bndbox" in one.nested:
            problems.add("objects with another <bndbox>, of which the first is read", place)
        unread = [*one.nested, *(tag for tag, text in one.texts.items() if text)]
        unread = [tag for tag in unread if tag not in _FIELDS]
        if unread:
            problems.add("objects with fields that are not read", f"{place}: <{unread[0]}>")
        return True


def _attributes(objects: Sequence[VocObject], path: str) -> dict[str, list[Any]]:
    """Objects without ``difficult``, ``truncated`` or ``pose`` have 0, 0 and Unspecified."""
    attributes: dict[str, list[Any]] = {
        "difficult": [int(_flag(one, "difficult", path) != 0) for one in objects],
        "truncated": [_flag(one, "truncated", path) for one in objects],
        "view": [one.texts.get("pose") or _UNKNOWN_POSE for one in objects],
    }
    if any("occluded" in one.texts for one in objects):
        attributes["occluded"] = [_flag(one, "occluded", path) for one in objects]
    return attributes


def _flag(one: VocObject, name: str, path: str) -> int:
    text = one.texts.get(name) or "0"
    try:
        return int(text)
    except ValueError:
        raise TfodError(
            f"{_place(path, one)}: <{name}> has {text[:40]!r} where 0 or 1 is expected; correct it"
        ) from None


def _place(path: str, one: VocObject) -> str:
    return f"{path}, line {one.line}"


# Writing

_DECIMALS = 6
_FLAGS = ("truncated", "difficult", "occluded")
_FRACTIONS = "flags that are no whole numbers, rounded up"


class VocWriter(Writer):
    """Names of images are unique in the whole dataset, since all XML files share a folder."""

    IMAGES = _IMAGES[0]
    STRIPPED_IN = "VOC"  # the lines of its lists, and by most readers the classes
    CARRIES = frozenset(("view", "pose", *_FLAGS))

    def begin(self, subset: str) -> None:
        self._list(subset, "")

    def add(self, subset: str, images: Images, label_map: LabelMap) -> None:
        names = self._image_names(images)
        self._write_images(images, names)
        self._count_losses(images)
        classes = {one.id: xml_text(one.class_name.strip()) for one in label_map.items}
        left, top, right, bottom = (digits(side, _DECIMALS) for side in images.in_pixels().T)
        corners = (
            lines_of(
                *(b"<xmin>", left, b"</xmin><ymin>", top, b"</ymin><xmax>", right),
                *(b"</xmax><ymax>", bottom, b"</ymax>\n"),
            )
            .decode()
            .splitlines()
        )
        stems = [os.path.splitext(name)[0] for name in names]
        for row, (stem, name) in enumerate(zip(stems, names, strict=True)):
            height, width = images.sizes[row].tolist()
            start, end = images.splits[row : row + 2]
            flags = [""] * (end - start) if images.is_plain else self._flags(images, row)
            objects = "".join(
                f"<object><name>{classes[images.classes[at]]}</name>{flags[at - start]}"
                f"<bndbox>{corners[at]}</bndbox></object>\n"
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
        # Datumaro and CVAT take other classes than VOC's own from here.
        lines = [f"{name}:::\n" for name in self._classes_without_blanks(label_map)]
        text = "".join(("# label:color_rgb:parts:actions\n", *lines))
        self._write(os.path.join(self.folder, "labelmap.txt"), text.encode())
        self._write_label_map(label_map)

    def _list(self, subset: str, lines: str) -> None:
        """Add lines to the list of a subset."""
        path = os.path.join(self.folder, _LISTS, stem_of_subset(subset) + _LIST)
        if path not in self.documents:
            self.documents.append(path)
            self._write(path, b"")
        with open(path, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(lines)

    def _flags(self, images: Images, row: int) -> list[str]:
        """What the XML has between the class and the box of each object."""
        attributes = images.detections[row].attributes
        views = attributes.get("view") or attributes.get("pose")
        texts = [""] * (images.splits[row + 1] - images.splits[row])
        for at in range(len(texts)):
            if views is not None and views[at] is not None:
                texts[at] += f"<pose>{xml_text(str(views[at]))}</pose>"
            for name in _FLAGS:
                value = attributes[name][at] if name in attributes else None
                if value is not None:
                    texts[at] += f"<{name}>{self._flag(value)}</{name}>"
        return texts

    def _flag(self, value: AttributeValue) -> int:
        if isinstance(value, int):
            return int(value)
        self.losses[_FRACTIONS][""] += bool(value)
        return int(bool(value))
