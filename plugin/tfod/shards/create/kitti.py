"""KITTI's object detection to shards, as create_kitti_tf_record.py makes them.

Other than the script, which writes the full path on the disk of whoever ran it, file name and
source id are the image's file name; the format is what the bytes are, ``occluded`` is written
too, and a label map for other classes is made when none is named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfod.convert.kitti import BOX, FIELDS, KittiObject, read_kitti
from tfod.detection.detection import Detection
from tfod.detection.image import FORMAT_OF_EXTENSION
from tfod.detection.label_map import LabelMap
from tfod.errors import TfodError
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map, named_label_map
from tfod.shards.create.objects import Objects, detection_of
from tfod.shards.create.output import Created, Options, PlannedSet, write_sets
from tfod.shards.create.problems import Policy, Problems

DONT_CARE = "dontcare"
CLASSES_TO_USE = ("car", "pedestrian", DONT_CARE)
VALIDATION_SET_SIZE = 500
_ANNOTATIONS = os.path.join("training", "label_2")
_IMAGES = (
    os.path.join("data_object_image_2", "training", "image_2"),
    os.path.join("training", "image_2"),  # how the zip unpacks
)
_DIGITS, _LABELS = 6, ".txt"  # of a label file's name
_CARRIED = tuple(name for name in FIELDS if name not in FIELDS[BOX])


def create_kitti(
    data_dir: str,
    output_path: str,
    options: Options | None = None,
    *,
    classes_to_use: Sequence[str] = CLASSES_TO_USE,
    validation_set_size: int = VALIDATION_SET_SIZE,
) -> Created:
    """Write ``<output_path>_train.tfrecord`` and ``<output_path>_val.tfrecord``.

    Args:
        data_dir: holds ``training/label_2`` and the images, in ``training/image_2`` or in
            ``data_object_image_2/training/image_2``.
        output_path: what the files' names start with.
        options: as for all formats. Without a label map the one beside the shards is taken; else
            KITTI's own if it has every class, else one is made of ``classes_to_use``.
        classes_to_use: classes in lower case; other objects are left out. With ``dontcare`` so are
            objects whose box overlaps a region of that class.
        validation_set_size: images of lower numbers than this go into the validation set.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    options, problems = options or Options(), Problems()
    images = _find_images(data_dir)
    chosen = choose_label_map(
        options.label_map, output_path, lambda: _made_label_map(classes_to_use)
    )
    annotations = os.path.join(data_dir, _ANNOTATIONS)
    _count_unused_labels(annotations, images, problems)
    maker = _Maker(annotations, frozenset(classes_to_use), chosen, options.policy)
    sets: dict[str, list[str]] = {"train": [], "val": []}
    for path in images:
        sets["val" if _image_number(path) < validation_set_size else "train"].append(path)
    count = options.num_shards or 1
    planned = [
        PlannedSet(f"{output_path}_{name}.tfrecord", count, annotations, paths, maker)
        for name, paths in sets.items()
    ]
    return write_sets(planned, chosen, problems, options)


@dataclass(frozen=True)
class _Maker:
    """Makes the record of an image."""

    annotations: str
    classes: frozenset[str]
    chosen: ChosenLabelMap
    policy: Policy

    def __call__(self, path: str, problems: Problems) -> Detection | None:
        labels = os.path.join(self.annotations, _label_file(path))
        found = self._wanted(read_kitti(labels), labels, problems)
        image = read_image(path, labels, problems, self.policy)
        if image is None:
            return None
        values = np.array([one.values for one in found]).reshape(-1, len(FIELDS))
        columns = {name: values[:, FIELDS.index(name)].tolist() for name in _CARRIED}
        columns["occluded"] = [int(value) for value in columns["occluded"]]
        objects = Objects(
            names=[one.name for one in found],
            boxes=[one.box for one in found],
            places=[f"{labels}, line {one.line}" for one in found],
            attributes={"difficult": [0] * len(found), **columns},
        )
        name = os.path.basename(path)
        return detection_of(image, name, objects, self.chosen, self.policy, problems, where=path)

    def _wanted(
        self, objects: Sequence[KittiObject], labels: str, problems: Problems
    ) -> list[KittiObject]:
        regions = [one for one in objects if one.name == DONT_CARE in self.classes]
        wanted = []
        for one in objects:
            place = f"{labels}, line {one.line}"
            if one.name == DONT_CARE:
                continue
            problems.annotated += 1
            if one.name not in self.classes:
                problems.add("objects of other classes, left out", place)
            elif any(_overlap(one.box, region.box) for region in regions):
                problems.add("objects that overlap a dontcare region, left out", place)
            else:
                wanted.append(one)
        return wanted


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def _find_images(data_dir: str) -> list[str]:
    for folder in (os.path.join(data_dir, part) for part in _IMAGES):
        if os.path.isdir(folder):
            found = [name for name in os.listdir(folder) if not name.startswith(".")]
            return [
                os.path.join(folder, name)
                for name in sorted(found)
                if os.path.splitext(name)[1].lower() in FORMAT_OF_EXTENSION
            ]
    raise TfodError(f"{data_dir} holds neither {_IMAGES[0]} nor {_IMAGES[1]}; name KITTI's folder")


def _count_unused_labels(folder: str, images: Sequence[str], problems: Problems) -> None:
    used = {_label_file(path) for path in images}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(_LABELS) and name not in used:
            where = os.path.join(folder, name)
            problems.add("label files of images that are not there, left out", where)


def _label_file(path: str) -> str:
    """Name of the label file of an image."""
    return f"{_image_number(path):0{_DIGITS}d}{_LABELS}"


def _image_number(path: str) -> int:
    """The image's number, which says its set and its label file."""
    stem = os.path.basename(path).partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise TfodError(f"{path}: KITTI's images are named by number, as 000123.png")
    return int(stem)


def _made_label_map(classes: Sequence[str]) -> ChosenLabelMap:
    names = [name for name in dict.fromkeys(classes) if name != DONT_CARE]
    shipped = named_label_map("kitti")
    if all(shipped.label_map.find(name) for name in names):
        return shipped
    return ChosenLabelMap(LabelMap.from_names(names), "made of --classes_to_use")
