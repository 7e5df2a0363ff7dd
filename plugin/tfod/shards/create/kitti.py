"""KITTI's object detection to shards, as create_kitti_tf_record.py makes them.

Other than the script, which writes the full path on the disk where it ran, file name and
source id are the image's file name; the format is what the bytes are, ``occluded`` is written
too, and a label map for other classes is made when none is named. Label files are one text file an
image, one line an object (source: the object development kit's readme.txt).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfod.convert.documents import parse_number
from tfod.detection.detection import Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.errors import TfodError
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map, made_label_map
from tfod.shards.create.objects import detection_of
from tfod.shards.create.output import Created, Options, Plan, PlannedSet, write_sets
from tfod.shards.create.problems import Problems

DONT_CARE = "dontcare"
CLASSES_TO_USE = ("car", "pedestrian", DONT_CARE)
VALIDATION_SET_SIZE = 500
_ANNOTATIONS = os.path.join("training", "label_2")
_IMAGES = (
    os.path.join("data_object_image_2", "training", "image_2"),
    os.path.join("training", "image_2"),  # how the zip unpacks
)
_DIGITS, _LABELS = 6, ".txt"  # of a label file's name
# The numbers behind the class, in their order; a sixteenth, the score of a detection, may follow.
_FIELDS = (
    *("truncated", "occluded", "alpha", "xmin", "ymin", "xmax", "ymax"),
    *("3d_bbox_height", "3d_bbox_width", "3d_bbox_length"),
    *("3d_bbox_x", "3d_bbox_y", "3d_bbox_z", "3d_bbox_rot_y"),
)
_BOX = slice(_FIELDS.index("xmin"), _FIELDS.index("ymax") + 1)


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
    options = options or Options()
    problems = Problems(options.policy)
    images = _find_images(data_dir)
    names = [name for name in dict.fromkeys(classes_to_use) if name != DONT_CARE]
    chosen = choose_label_map(
        options.label_map,
        output_path,
        lambda: made_label_map(names, "made of --classes_to_use", shipped="kitti"),
    )
    annotations = os.path.join(data_dir, _ANNOTATIONS)
    _count_unused_labels(annotations, images, problems)
    make = functools.partial(_make, annotations, frozenset(classes_to_use), chosen)
    sets: dict[str, list[str]] = {"train": [], "val": []}
    for path in images:
        sets["val" if _image_number(path) < validation_set_size else "train"].append(path)
    count = options.num_shards or 1
    planned = [
        PlannedSet(f"{output_path}_{name}.tfrecord", count, annotations, paths, make)
        for name, paths in sets.items()
    ]
    return write_sets(Plan(planned, chosen, problems, options))


@dataclass(frozen=True)
class _Object:
    """One line: the class in lower case, as the OD API's script has it, and the numbers."""

    name: str
    place: str
    values: tuple[float, ...]

    @property
    def box(self) -> tuple[float, ...]:
        """xmin, ymin, xmax, ymax in pixels, which need not be finite."""
        return self.values[_BOX]


def _make(
    annotations: str,
    classes: frozenset[str],
    chosen: ChosenLabelMap,
    path: str,
    problems: Problems,
) -> Detection | None:
    labels = os.path.join(annotations, _label_file(path))
    found = _wanted(_read_labels(labels), classes, problems)
    image = read_image(path, labels, problems)
    if image is None:
        return None
    columns = np.array([one.values for one in found]).reshape(-1, len(_FIELDS)).T.tolist()
    values = dict(zip(_FIELDS, columns, strict=True))
    carried = {name: values[name] for name in _FIELDS if name not in _FIELDS[_BOX]}
    carried["occluded"] = [int(value) for value in carried["occluded"]]
    return detection_of(
        image,
        os.path.basename(path),
        chosen,
        problems,
        where=path,
        names=[one.name for one in found],
        boxes=[one.box for one in found],
        places=[one.place for one in found],
        attributes={"difficult": [0] * len(found), **carried},
    )


def _wanted(
    objects: Sequence[_Object], classes: frozenset[str], problems: Problems
) -> list[_Object]:
    regions = [one.box for one in objects if one.name == DONT_CARE in classes]
    wanted = []
    for one in objects:
        if one.name == DONT_CARE:
            continue
        problems.annotated += 1
        if one.name not in classes:
            problems.add("objects of other classes, left out", one.place)
        elif any(_overlap(one.box, region) for region in regions):
            problems.add("objects that overlap a dontcare region, left out", one.place)
        else:
            wanted.append(one)
    return wanted


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def _find_images(data_dir: str) -> list[str]:
    for folder in (os.path.join(data_dir, part) for part in _IMAGES):
        if os.path.isdir(folder):
            return [
                os.path.join(folder, name)
                for name in sorted(os.listdir(folder))
                if os.path.splitext(name)[1].lower() in FORMAT_OF_EXTENSION and name[0] != "."
            ]
    raise TfodError(f"{data_dir} holds neither {_IMAGES[0]} nor {_IMAGES[1]}; name KITTI's folder")


def _count_unused_labels(folder: str, images: Sequence[str], problems: Problems) -> None:
    used = {_label_file(path) for path in images}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(_LABELS) and name not in used:
            where = os.path.join(folder, name)
            problems.add("label files of images that are not there, left out", where)


def _label_file(path: str) -> str:
    return f"{_image_number(path):0{_DIGITS}d}{_LABELS}"


def _image_number(path: str) -> int:
    """The image's number, which says its set and its label file."""
    stem = os.path.basename(path).partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise TfodError(f"{path}: KITTI's images are named by number, as 000123.png")
    return int(stem)


def _read_labels(path: str) -> list[_Object]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise TfodError(f"{path} cannot be read ({error.strerror}); each image has one") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path} is not a KITTI label file: it is not UTF-8") from None
    found = []
    for number, line in enumerate(lines, start=1):
        name, *texts = line.split() or ("",)
        if name:
            place = f"{path}, line {number}"
            found.append(_Object(name.lower(), place, _values(texts, place)))
    return found


def _values(texts: Sequence[str], where: str) -> tuple[float, ...]:
    values = tuple(parse_number(text, f"{where}:", finite=False) for text in texts[: len(_FIELDS)])
    others = (*values[: _BOX.start], *values[_BOX.stop :])
    if len(values) < len(_FIELDS) or not all(map(math.isfinite, others)):
        raise TfodError(
            f"{where}: {len(texts)} numbers behind the class, expected {len(_FIELDS)} finite ones "
            "(KITTI's label fields)"
        )
    return values
