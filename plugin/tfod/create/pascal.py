"""Pascal VOC to shards, as create_pascal_tf_record.py makes them.

Boxes are VOC's pixels, which it counts from 1, divided by the size that the XML gives: nothing is
subtracted, clipped or rounded. Other than the script this keeps pictures that are no JPEG, takes
size and format from the picture's own header, writes ``occluded`` where the XML has it, reads
objects without ``difficult``, ``truncated`` or ``pose`` as 0, 0 and Unspecified, and needs no
label map.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfod.create.boxes import normalized
from tfod.create.label_maps import ChosenLabelMap, choose_label_map, shipped_label_map
from tfod.create.output import Created, PlannedSet, write_sets
from tfod.create.pictures import Picture, read_picture
from tfod.create.tally import Tally
from tfod.detection import Detection
from tfod.errors import TfodError
from tfod.label_map import LabelMap
from tfod.naming import split_extension
from tfod.picture import FORMAT_OF_EXTENSION
from tfod.voc import VOC_ANNOTATIONS, VocObject, VocPicture, read_voc

if TYPE_CHECKING:
    from tfod.beam import Runner

YEARS = ("VOC2007", "VOC2012", "merged")
_FIRST_SET = "train"
_PICTURES = "JPEGImages"
_LISTS = os.path.join("ImageSets", "Main")
_LIST = ".txt"
_FIELDS = frozenset(("pose", "truncated", "difficult", "occluded"))
_UNKNOWN_POSE = "Unspecified"  # VOC's own word


@dataclass(frozen=True)
class PascalSource:
    """Where a VOC dataset is.

    Attributes:
        data_dir: the devkit, with a folder for each year; or one such folder; or any folder that
            holds the annotations.
        year: one of :data:`YEARS`; None is VOC2007 where there is one, else ``data_dir`` itself.
        set: VOC's ``train``, ``val``, ``trainval`` or ``test``, or the name of another list, as
            CVAT's ``default``; None is ``train`` where there are lists, else every annotation.
        annotations_dir: of the XML files, relative to the year's folder.
    """

    data_dir: str
    year: str | None = None
    set: str | None = None
    annotations_dir: str = VOC_ANNOTATIONS


def create_pascal(
    source: PascalSource,
    output_path: str,
    *,
    label_map: str | None = None,
    ignore_difficult_instances: bool = False,
    num_shards: int = 1,
    overwrite: bool = False,
    runner: Runner | None = None,
) -> Created:
    """Write the pictures of one set.

    Args:
        source: the dataset.
        output_path: of the shard; of several the numbered names start with it.
        label_map: a file, or a name that tfod ships. Without it the one beside the shards is
            taken; else VOC's own, if it has every class; else one is made of all classes in the
            annotations, in the order of their names.
        ignore_difficult_instances: leave out objects that are difficult.
        num_shards: how many files.
        overwrite: replace what is there.
        runner: lets workers of Apache Beam make the records.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    roots = _roots(source)
    files = [(root, path) for root in roots for path in _annotation_files(root, source)]
    tally = Tally()
    chosen = choose_label_map(
        label_map,
        os.path.dirname(output_path) or ".",
        lambda: _made_label_map([os.path.join(root, source.annotations_dir) for root in roots]),
    )
    maker = _Maker(source.annotations_dir, chosen, ignore_difficult_instances)
    planned = PlannedSet(output_path, num_shards, files, maker)
    return write_sets([planned], chosen, tally, overwrite, runner=runner)


@dataclass(frozen=True)
class _Maker:
    """Makes the record of an annotation file, which comes with the year's folder."""

    annotations_dir: str
    chosen: ChosenLabelMap
    ignore_difficult: bool

    def __call__(self, file: tuple[str, str], tally: Tally) -> Detection:
        root, path = file
        voc = read_voc(path)
        if voc is None:
            raise TfodError(f"{path} is no Pascal VOC annotation: its root is not <annotation>")
        if not voc.filename:
            raise TfodError(f"{path}: <filename> is missing or empty; say which picture it is of")
        place, filename = _find_picture(root, os.path.join(root, self.annotations_dir), voc)
        picture = read_picture(place, path)
        objects = [one for one in voc.objects if self._is_wanted(one, path, tally)]
        return Detection(
            **picture.fields(filename),
            boxes=_boxes(objects, voc, picture, tally),
            class_text=[one.name for one in objects],
            class_label=[self.chosen.id_of(one.name, _place(path, one)) for one in objects],
            attributes=_attributes(objects, path),
        )

    def _is_wanted(self, one: VocObject, path: str, tally: Tally) -> bool:
        if one.box is None:
            tally.add("objects without <bndbox>, left out", _place(path, one))
            return False
        if self.ignore_difficult and _flag(one, "difficult", path):
            tally.add("difficult objects, left out", _place(path, one))
            return False
        unread = [*one.nested, *(tag for tag, text in one.texts.items() if text)]
        unread = [tag for tag in unread if tag not in _FIELDS]
        if unread:
            where = f"{_place(path, one)}: <{unread[0]}>"
            tally.add("objects with fields that are not read", where)
        return True


def _boxes(
    objects: Sequence[VocObject], voc: VocPicture, picture: Picture, tally: Tally
) -> np.ndarray:
    # The XML's size is the one that its boxes were drawn on.
    height, width = voc.height or picture.height, voc.width or picture.width
    if (height, width) != (picture.height, picture.width):
        tally.add(
            "pictures of another size than their annotation says; their boxes are divided by "
            "the annotation's",
            f"{voc.file}: {width}x{height}, the picture {picture.width}x{picture.height}",
        )
    boxes = [one.box for one in objects if one.box is not None]
    return normalized(boxes, (height, width), voc.file)


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


def _roots(source: PascalSource) -> list[str]:
    """The folders that hold annotations and pictures, one a year."""
    if not os.path.isdir(source.data_dir):
        raise TfodError(f"{source.data_dir} is no folder; name that of the dataset")
    if source.year is None:
        root = os.path.join(source.data_dir, YEARS[0])
        roots = [root if os.path.isdir(root) else source.data_dir]
    else:
        years = YEARS[:-1] if source.year == YEARS[-1] else (source.year,)
        roots = [os.path.join(source.data_dir, year) for year in years]
    for root in roots:
        folder = os.path.join(root, source.annotations_dir)
        if not os.path.isdir(folder):
            raise TfodError(
                f"{folder}: no such folder of annotations; name it with --annotations_dir, and the "
                "folder above it with --data_dir"
            )
    return roots


def _annotation_files(root: str, source: PascalSource) -> list[str]:
    """Paths of the XML files of a set, in the order of its list."""
    folder = os.path.join(root, source.annotations_dir)
    lists = os.path.join(root, _LISTS)
    if source.set is None and not os.path.isdir(lists):
        files = _xml_files(folder)
        if not files:
            raise TfodError(f"{folder} holds no XML file; name the folder with --annotations_dir")
        return files
    name = source.set or _FIRST_SET
    # Each of VOC's lists of one class names every picture of the set; the script reads this one.
    candidates = [os.path.join(lists, file) for file in (f"aeroplane_{name}.txt", f"{name}.txt")]
    for path in candidates:
        if os.path.isfile(path):
            return [_xml_path(folder, line) for line in _lines(path)]
    there = _set_names(lists)
    raise TfodError(
        f"{candidates[1]}: no such list of the pictures of a set; choose another --set"
        + (f": {', '.join(there)}" if there else "")
    )


def _set_names(lists: str) -> list[str]:
    """Names of the sets that have a list, without the lists of one class each."""
    names = os.listdir(lists) if os.path.isdir(lists) else []
    stems = sorted(name[: -len(_LIST)] for name in names if name.endswith(_LIST))
    return [one for one in stems if not any(one.endswith(f"_{other}") for other in stems)]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path} is no list of pictures: it is not UTF-8") from None


def _xml_path(folder: str, line: str) -> str:
    """The file that a line means: all of it, or what stands before a flag."""
    whole = os.path.join(folder, f"{line}.xml")
    before = os.path.join(folder, f"{line.rsplit(maxsplit=1)[0]}.xml")
    return whole if os.path.isfile(whole) else before


def _xml_files(folder: str) -> list[str]:
    """Paths of the XML files in a folder and all below it, hidden ones left out."""
    found: list[str] = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            os.path.join(where, name)
            for name in names
            if name.lower().endswith(".xml") and not name.startswith(".")
        ]
    return sorted(found)


def _find_picture(root: str, annotations: str, voc: VocPicture) -> tuple[str, str]:
    """The picture's path, and its name with its extension, which old LabelImgs leave out.

    It lies in VOC's folder of pictures, there in a folder as its annotation does, or beside its
    annotation, as by LabelImg. Such a folder is a part of the name: others have a 1.jpg too.
    """
    usual = os.path.join(root, _PICTURES)
    beside = os.path.dirname(voc.file)
    within = os.path.relpath(beside, annotations)
    deeper = os.path.normpath(os.path.join(usual, within))
    endings = [] if split_extension(voc.filename)[1] else FORMAT_OF_EXTENSION
    for ending in ("", *endings, *(one.upper() for one in endings)):
        name = voc.filename + ending
        for folder, above in ((deeper, within), (usual, ""), (beside, within)):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                return path, os.path.normpath(os.path.join(above, name)).replace(os.sep, "/")
    return os.path.join(usual, voc.filename), voc.filename


def _made_label_map(folders: Sequence[str]) -> ChosenLabelMap:
    """VOC's own map if it has every class, else one of all classes, in the order of their names.

    All annotations are looked at, not those of one set, so that every set gets the same map.
    """
    names = set(_class_names(folders))
    shipped = shipped_label_map("voc2007")
    if all(shipped.label_map.find(name) for name in names):
        return shipped
    return ChosenLabelMap(LabelMap.from_names(sorted(names)), f"made from {folders[0]}")


def _class_names(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        for path in _xml_files(folder):
            voc = read_voc(path)
            yield from (one.name for one in voc.objects) if voc else ()
