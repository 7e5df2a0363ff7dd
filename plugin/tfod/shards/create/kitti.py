"""KITTI's object detection to shards, as create_kitti_tf_record.py makes them.

Other than the script, which writes the full path on the disk of whoever ran it, file name and
source id are the image's file name; the format is what the bytes are, ``occluded`` is written
too, and a label map for other classes is made when none is named.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.detection.detection import Detection
from tfod.detection.image import FORMAT_OF_EXTENSION
from tfod.detection.label_map import LabelMap
from tfod.errors import TfodError
from tfod.shards.create.boxes import normalized, sound_boxes
from tfod.shards.create.frames import frame_of
from tfod.shards.create.images import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map, shipped_label_map
from tfod.shards.create.output import Created, PlannedSet, Runner, Verify, write_sets
from tfod.shards.create.policy import STRICT, Policy
from tfod.shards.create.tally import Tally

DONT_CARE = "dontcare"
CLASSES_TO_USE = ("car", "pedestrian", DONT_CARE)
VALIDATION_SET_SIZE = 500
_ANNOTATIONS = os.path.join("training", "label_2")
_IMAGES = (
    os.path.join("data_object_image_2", "training", "image_2"),
    os.path.join("training", "image_2"),  # how the zip unpacks
)
_DIGITS, _LABELS = 6, ".txt"  # of a label file's name
# The devkit's order of fields; a sixteenth, the score of a detection, may follow.
_FIELDS = (
    *("truncated", "occluded", "alpha", "xmin", "ymin", "xmax", "ymax"),
    *("3d_bbox_height", "3d_bbox_width", "3d_bbox_length"),
    *("3d_bbox_x", "3d_bbox_y", "3d_bbox_z", "3d_bbox_rot_y"),
)
_BOX = slice(_FIELDS.index("xmin"), _FIELDS.index("ymax") + 1)
_CARRIED = tuple(name for name in _FIELDS if name not in _FIELDS[_BOX])


@dataclass(frozen=True)
class _Object:
    """One line: the class in lower case, as the script has it, and the numbers of ``_FIELDS``."""

    name: str
    line: int
    values: tuple[float, ...]

    @property
    def box(self) -> tuple[float, ...]:
        """xmin, ymin, xmax, ymax in pixels."""
        return self.values[_BOX]


def create_kitti(
    data_dir: str,
    output_path: str,
    *,
    classes_to_use: Sequence[str] = CLASSES_TO_USE,
    label_map: str | None = None,
    validation_set_size: int = VALIDATION_SET_SIZE,
    num_shards: int = 1,
    overwrite: bool = False,
    runner: Runner | None = None,
    policy: Policy = STRICT,
    verify: Verify | None = None,
) -> Created:
    """Write ``<output_path>_train.tfrecord`` and ``<output_path>_val.tfrecord``.

    Args:
        data_dir: holds ``training/label_2`` and the images, in ``training/image_2`` or in
            ``data_object_image_2/training/image_2``.
        output_path: what the files' names start with.
        classes_to_use: classes in lower case; other objects are left out. With ``dontcare`` so are
            objects whose box overlaps a region of that class.
        label_map: a file, or a name that tfod ships. Without it the one beside the shards is
            taken; else KITTI's own if it has every class, else one is made of ``classes_to_use``.
        validation_set_size: images of lower numbers than this go into the validation set.
        num_shards: how many files for each set.
        overwrite: replace what is there.
        runner: lets workers of Apache Beam make the records.
        policy: what to do with boxes and images that do not fit.
        verify: is given the complete files before they have their names.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    tally = Tally()
    images = _find_images(data_dir)
    chosen = choose_label_map(
        label_map,
        os.path.dirname(output_path) or ".",
        lambda: _made_label_map(classes_to_use),
    )
    _count_unused_labels(os.path.join(data_dir, _ANNOTATIONS), images, tally)
    maker = _Maker(os.path.join(data_dir, _ANNOTATIONS), frozenset(classes_to_use), chosen, policy)
    val = [path for path in images if _image_number(path) < validation_set_size]
    train = [path for path in images if _image_number(path) >= validation_set_size]
    planned = [
        PlannedSet(f"{output_path}_{name}.tfrecord", num_shards, maker.annotations, paths, maker)
        for name, paths in (("train", train), ("val", val))
    ]
    return write_sets(planned, chosen, tally, overwrite, runner=runner, verify=verify)


@dataclass(frozen=True)
class _Maker:
    """Makes the record of an image."""

    annotations: str
    classes: frozenset[str]
    chosen: ChosenLabelMap
    policy: Policy

    def __call__(self, path: str, tally: Tally) -> Detection | None:
        labels = os.path.join(self.annotations, _label_file(path))
        objects = self._wanted(list(_read_objects(labels)), labels, tally)
        image = read_image(path, labels, tally, self.policy)
        if image is None:
            return None
        boxes = [one.box for one in objects]
        choice = self.policy.exif_orientation
        frame = frame_of(image, (None, None), boxes, choice, path, tally)
        places = [f"{labels}, line {one.line}" for one in objects]
        sound = sound_boxes(boxes, frame.own, places, self.policy.odd_boxes, tally)
        objects = [objects[row] for row in sound.kept]
        values = np.array([one.values for one in objects]).reshape(-1, len(_FIELDS))
        columns = {name: values[:, _FIELDS.index(name)].tolist() for name in _CARRIED}
        columns["occluded"] = [int(value) for value in columns["occluded"]]
        return Detection(
            **image.fields(os.path.basename(path)),
            boxes=normalized(sound.corners, frame.own, frame.orientation),
            class_text=[one.name for one in objects],
            class_label=[
                self.chosen.id_of(one.name, f"{labels}, line {one.line}") for one in objects
            ],
            attributes={"difficult": [0] * len(objects), **columns},
        )

    def _wanted(self, objects: Sequence[_Object], labels: str, tally: Tally) -> list[_Object]:
        regions = [one for one in objects if one.name == DONT_CARE in self.classes]
        wanted = []
        for one in objects:
            place = f"{labels}, line {one.line}"
            if one.name == DONT_CARE:
                continue
            tally.annotated += 1
            if one.name not in self.classes:
                tally.add("objects of other classes, left out", place)
            elif any(_overlap(one, region) for region in regions):
                tally.add("objects that overlap a dontcare region, left out", place)
            else:
                wanted.append(one)
        return wanted


def _overlap(one: _Object, region: _Object) -> bool:
    a, b = one.box, region.box
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def _read_objects(path: str) -> Iterator[_Object]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise TfodError(f"{path} cannot be read ({error.strerror}); each image has one") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path} is not a KITTI label file: it is not UTF-8") from None
    for number, line in enumerate(lines, start=1):
        name, *texts = line.split() or ("",)
        if not name:
            continue
        yield _Object(name.lower(), number, _values(texts, f"{path}, line {number}"))


def _values(texts: Sequence[str], where: str) -> tuple[float, ...]:
    values = tuple(_number(text, where) for text in texts[: len(_FIELDS)])
    others = (*values[: _BOX.start], *values[_BOX.stop :])
    if len(values) < len(_FIELDS) or not all(map(math.isfinite, others)):
        raise TfodError(
            f"{where}: {len(texts)} numbers behind the class, expected {len(_FIELDS)} finite ones "
            "(KITTI's label fields)"
        )
    return values


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TfodError(
            f"{where}: {text[:40]!r} where a number is expected (KITTI's label fields); correct it"
        ) from None


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


def _count_unused_labels(folder: str, images: Sequence[str], tally: Tally) -> None:
    used = {_label_file(path) for path in images}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(_LABELS) and name not in used:
            where = os.path.join(folder, name)
            tally.add("label files of images that are not there, left out", where)


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
    shipped = shipped_label_map("kitti")
    if all(shipped.label_map.find(name) for name in names):
        return shipped
    return ChosenLabelMap(LabelMap.from_names(names), "made of --classes_to_use")
