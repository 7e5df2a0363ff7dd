"""Pascal VOC to shards, as create_pascal_tf_record.py makes them.

Boxes are VOC's pixels, which it counts from 1, divided by the size that the XML gives: nothing is
subtracted or rounded. Other than the script this reads layouts that are not VOC's (those of
xml_to_csv.py's users: ``images`` and ``annotations``, or one folder), checks boxes, keeps images
that are no JPEG, takes size and format from the image's own header, writes ``occluded`` where the
XML has it, reads objects without ``difficult``, ``truncated`` or ``pose`` as 0, 0 and Unspecified,
and needs no label map.
"""

from __future__ import annotations

import filecmp
import functools
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfod.convert.pascal import VOC_ANNOTATIONS, VocImage, VocObject, read_voc
from tfod.detection.detection import Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.errors import TfodError
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map, made_label_map
from tfod.shards.create.objects import detection_of
from tfod.shards.create.output import Options, Plan, PlannedSet, creates
from tfod.shards.create.problems import Problems, Refusal
from tfod.tfrecord.image_names import split_extension

YEARS = ("VOC2007", "VOC2012", "merged")
_FIRST_SET = "train"
_JOINED, _PARTS = "trainval", ("train", "val")
_ANNOTATIONS = (VOC_ANNOTATIONS, "annotations", "annots")  # of VOC, raccoon and kangaroo
_IMAGES = ("JPEGImages", "images")  # VOC's own; that of raccoon, kangaroo and most others
_LISTS = os.path.join("ImageSets", "Main")
_LIST = ".txt"
_FLAG = re.compile(r"\s(-1|0|1)\Z")
_FEW = 100  # lines, which say what kind of a list it is
_FIELDS = frozenset(("bndbox", "pose", "truncated", "difficult", "occluded"))
_UNKNOWN_POSE = "Unspecified"  # VOC's own word
_OTHER_NAME = (
    "annotations whose <filename> is not their own; the image that is named as the XML file is read"
)
_AMBIGUOUS = Refusal(
    "annotations of which several images have the name",
    "write the name with its extension into <filename>, or move the other images away",
)


def plan_pascal(
    data_dir: str,
    output_path: str,
    options: Options | None = None,
    *,
    year: str | None = None,
    image_set: str | None = None,
    annotations_dir: str | None = None,
    image_dir: str | None = None,
    ignore_difficult_instances: bool = False,
) -> Plan:
    """Find the images of one set, to be written.

    Args:
        data_dir: the devkit, with a folder for each year; or one such folder; or any folder that
            holds the annotations.
        output_path: of the shard; of several the numbered names start with it.
        options: as for all formats. Without a label map the one beside the shards is taken; else
            VOC's own, if it has every class; else one is made of all classes in the annotations,
            in the order of their names.
        year: one of :data:`YEARS`; None is VOC2007 where there is one, else ``data_dir`` itself.
        image_set: VOC's ``train``, ``val``, ``trainval`` or ``test``, or the name of another list,
            as CVAT's ``default``; None is ``train`` where there are lists, else every annotation.
        annotations_dir: of the XML files, relative to the year's folder; None is ``Annotations``
            where there is one, else ``annotations`` or ``annots``, else the year's folder itself.
        image_dir: the folder of the images; None is looked for around the annotations.
        ignore_difficult_instances: leave out objects that are difficult.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    options = options or Options()
    years = _years(data_dir, year, annotations_dir)
    problems = Problems(options.policy)
    files: dict[tuple[_Year, str], None] = {}
    for file in ((one, path) for one in years for path in _annotation_files(one, image_set)):
        if file in files:
            problems.add("annotations that the list of the set has twice, written once", file[1])
        files[file] = None
    folders = [one.annotations for one in years]
    chosen = choose_label_map(
        options.label_map,
        output_path,
        # All annotations are looked at, not those of one set: every set gets the same map.
        lambda: made_label_map(_class_names(folders), f"made from {folders[0]}", "voc2007"),
    )
    make = functools.partial(_make, _ImageFinder(image_dir), chosen, ignore_difficult_instances)
    planned = PlannedSet(output_path, options.num_shards or 1, folders[0], list(files), make)
    return Plan([planned], chosen, problems, options)


create_pascal = creates(plan_pascal)
"""Write what it plans."""


def image_sets(data_dir: str) -> list[str]:
    """Names of the sets that a dataset lists, but for one that only joins two others."""
    year = _years(data_dir, None, None)[0]
    names = _set_names(year)
    if {_JOINED, *_PARTS}.issubset(names):
        joined, *parts = (set(_annotation_files(year, one)) for one in (_JOINED, *_PARTS))
        if joined.issubset(set().union(*parts)):
            names.remove(_JOINED)
    return names


class _Year(NamedTuple):
    """The folder of a year of VOC, or of any other dataset, and that of its annotations."""

    root: str
    annotations: str


def _make(
    finder: _ImageFinder,
    chosen: ChosenLabelMap,
    ignore_difficult: bool,
    file: tuple[_Year, str],
    problems: Problems,
) -> Detection | None:
    year, path = file
    voc = read_voc(path)
    if voc is None:
        raise TfodError(f"{path} is not a Pascal VOC annotation: its root is not <annotation>")
    image_path, name = finder.find(year, voc, problems)
    image = read_image(image_path, path, problems)
    if image is None:
        return None
    problems.annotated += len(voc.objects)
    wanted = [one for one in voc.objects if _is_wanted(one, path, ignore_difficult, problems)]
    return detection_of(
        image,
        name,
        chosen,
        problems,
        where=path,
        names=[one.name for one in wanted],
        boxes=[one.box for one in wanted if one.box is not None],
        places=[_place(path, one) for one in wanted],
        attributes=_attributes(wanted, path),
        annotated=(voc.height, voc.width),
    )


def _is_wanted(one: VocObject, path: str, ignore_difficult: bool, problems: Problems) -> bool:
    place = _place(path, one)
    if not one.name:
        raise TfodError(f"{place}: <name> is empty; write the class there")
    if one.box is None:
        problems.add("objects without <bndbox>, left out", place)
        return False
    if ignore_difficult and _flag(one, "difficult", path):
        problems.add("difficult objects, left out", place)
        return False
    if "bndbox" in one.nested:
        problems.add("objects with another <bndbox>, of which the first is read", place)
    unread = [*one.nested, *(tag for tag, text in one.texts.items() if text)]
    unread = [tag for tag in unread if tag not in _FIELDS]
    if unread:
        problems.add("objects with fields that are not read", f"{place}: <{unread[0]}>")
    return True


def _attributes(objects: Sequence[VocObject], path: str) -> dict[str, list[Any]]:
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


# The files


def _years(data_dir: str, year: str | None, annotations_dir: str | None) -> list[_Year]:
    """The folders that hold annotations and images, one a year."""
    if year is not None and year not in YEARS:
        raise TfodError(f"--year must be one of {', '.join(YEARS)}, not {year!r}")
    if not os.path.isdir(data_dir):
        raise TfodError(f"{data_dir} is not a folder; name that of the dataset")
    if year is None:
        root = os.path.join(data_dir, YEARS[0])
        roots = [root if os.path.isdir(root) else data_dir]
    else:
        names = YEARS[:-1] if year == YEARS[-1] else (year,)
        roots = [os.path.join(data_dir, name) for name in names]
    return [_Year(root, _annotations_folder(root, annotations_dir)) for root in roots]


def _annotations_folder(root: str, named: str | None) -> str:
    """The folder of the XML files; the root itself is the last one that is thought of."""
    folders = [os.path.join(root, name) for name in ((named,) if named else _ANNOTATIONS)]
    found = next(filter(os.path.isdir, folders), None)
    if found is not None:
        return found
    if not named and os.path.isdir(root) and not os.path.isdir(os.path.join(root, _LISTS)):
        return root
    raise TfodError(
        f"{folders[0]}: no such folder of annotations; name it with --annotations-dir, and the "
        "folder above it with --data-dir"
    )


def _annotation_files(year: _Year, wanted: str | None) -> list[str]:
    """Paths of the XML files of a set, in the order of its list."""
    folder = year.annotations
    lists = os.path.join(year.root, _LISTS)
    if wanted is None and not os.path.isdir(lists):
        files = sorted(xml_files(folder))
        if not files:
            raise TfodError(f"{folder} holds no XML file; name the folder with --annotations-dir")
        return files
    name = wanted or _FIRST_SET
    # Each of VOC's lists of one class names every image of the set; the script reads this one.
    of_a_class, own = (os.path.join(lists, f"{one}.txt") for one in (f"aeroplane_{name}", name))
    flags = _flags(year, of_a_class) if os.path.isfile(of_a_class) else []
    for path in (of_a_class, own) if flags and all(flags) else (own,):
        if os.path.isfile(path):
            return [_xml_path(folder, line) for line in _lines(path)]
    there = _set_names(year)
    raise TfodError(
        f"{own}: no such list of the images of a set; choose another --set"
        + (f": {', '.join(there)}" if there else "")
    )


def _set_names(year: _Year) -> list[str]:
    """Names of the sets that have a list, without the lists of one class each."""
    lists = os.path.join(year.root, _LISTS)
    names = os.listdir(lists) if os.path.isdir(lists) else []
    stems = sorted(one[: -len(_LIST)] for one in names if one.endswith(_LIST) and one[0] != ".")
    return [
        one
        for one in stems
        # By its name night_train may be a set as well as the list of a class: the flags say which.
        if not any(one.endswith(f"_{other}") for other in stems)
        or not all(_flags(year, os.path.join(lists, one + _LIST)))
    ]


def _flags(year: _Year, path: str) -> list[bool]:
    """Whether a flag is behind each of the first names in a list, as in those of one class."""
    return [
        _FLAG.search(line) is not None and not os.path.isfile(_xml_named(year.annotations, line))
        for line in _lines(path, _FEW)
    ]


def _lines(path: str, most: int | None = None) -> list[str]:
    """The lines of a list, or its first ones, without empty ones."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return [line.strip() for line in itertools.islice(file, most) if line.strip()]
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path} is not a list of images: it is not UTF-8") from None


def _xml_path(folder: str, line: str) -> str:
    """The file that a line means: all of it, or what stands before a flag."""
    whole = _xml_named(folder, line)
    return whole if os.path.isfile(whole) else _xml_named(folder, line.rsplit(maxsplit=1)[0])


def _xml_named(folder: str, name: str) -> str:
    return os.path.join(folder, f"{name}.xml")


def xml_files(folder: str) -> Iterator[str]:
    """Paths of the XML files in a folder and all below it, hidden ones left out."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.lower().endswith(".xml") and not name.startswith("."):
                yield os.path.join(where, name)


def _class_names(folders: Sequence[str]) -> list[str]:
    paths = itertools.chain.from_iterable(sorted(xml_files(folder)) for folder in folders)
    read = (read_voc(path) for path in paths)
    return sorted({one.name for voc in read if voc for one in voc.objects})


@dataclass(frozen=True)
class _ImageFinder:
    """Finds the images of annotations.

    An image is named as its XML file, whatever ``<filename>`` and ``<path>`` say: who renames a
    dataset renames the files alone. Else it is the one that ``<filename>`` says, which may lack the
    extension. It is in ``image_dir``; without one in a folder of images beside that of the
    annotations, there in a folder as its annotation is, or beside its annotation.
    """

    image_dir: str | None = None
    _listed: dict[str, Mapping[str, list[str]]] = field(default_factory=dict, repr=False)

    def find(self, year: _Year, voc: VocImage, problems: Problems) -> tuple[str, str]:
        """The path of the image of an annotation, and its name with the annotation's folder.

        Where there is none it is where it would be looked for first. Counted are annotations whose
        ``<filename>`` is passed over; those that several unequal images are named as are refused.
        """
        beside = os.path.dirname(voc.file)
        stem = os.path.splitext(os.path.basename(voc.file))[0]
        named, extension = split_extension(voc.filename)
        places = list(dict.fromkeys(self._places(year, beside)))
        for name in dict.fromkeys((stem, named)):
            folder_in_name, own = os.path.split(name)
            for folder, above in places:
                images = self._images(os.path.join(folder, folder_in_name), own, extension)
                if not images:
                    continue
                if len(images) > 1:
                    problems.add(_AMBIGUOUS, f"{voc.file}: {', '.join(images)}")
                if name == stem and os.path.basename(named) not in ("", stem):
                    problems.add(_OTHER_NAME, f"{voc.file}: {voc.filename}")
                inside = os.path.normpath(os.path.join(above, folder_in_name, images[0]))
                path = os.path.join(folder, folder_in_name, images[0])
                return path, inside.replace(os.sep, "/")
        name = voc.filename or stem
        return os.path.join(places[0][0], name), name

    def _places(self, year: _Year, beside: str) -> Iterator[tuple[str, str]]:
        """Folders to look in, each with what it adds to the image's name."""
        within = os.path.relpath(beside, year.annotations)
        if self.image_dir is not None:
            folders = [self.image_dir]
        else:
            folders = [os.path.join(year.root, name) for name in _IMAGES]
            folders = [one for one in folders if os.path.isdir(one)] or folders[:1]
        for folder in folders:
            yield os.path.normpath(os.path.join(folder, within)), within
            yield folder, ""
        if self.image_dir is None:
            yield beside, within
            if year.annotations == year.root:  # only they were named
                for name in _IMAGES:
                    yield os.path.normpath(os.path.join(year.root, os.pardir, name)), ""

    def _images(self, folder: str, stem: str, extension: str) -> list[str]:
        """Names of the images of this stem in a folder: of this extension, or unequal ones."""
        if folder not in self._listed:
            names: dict[str, list[str]] = {}
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                own, ending = os.path.splitext(name)
                if ending.lower() in FORMAT_OF_EXTENSION:
                    names.setdefault(own, []).append(name)
            self._listed[folder] = names
        found = self._listed[folder].get(stem, [])
        if stem + extension in found:
            return [stem + extension]
        first, *others = (os.path.join(folder, name) for name in found) if found else ("",)
        if all(filecmp.cmp(first, other, shallow=False) for other in others):
            return found[:1]
        return found
