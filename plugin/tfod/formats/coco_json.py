"""COCO's JSON as a document: which files there are, and what their lists say.

Sources: cocodataset.org/#format-data; Roboflow's export.
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.detection.labels.label_map import Keypoint, LabelMap, LabelMapItem, load_label_map
from tfod.errors import TfodError
from tfod.formats.dataset import BACKGROUND
from tfod.formats.documents import quoted, read_json
from tfod.formats.objects import KnownClasses
from tfod.formats.options import Problems
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.shard_sets.names import subset_of_stem

_PREFIXES = ("instances_", "person_keypoints_")
_LISTS = ("images", "annotations", "categories")
_ROBOFLOW = "_annotations.coco.json"  # of each subset's folder, beside its images
_FIELDS = frozenset(("id", "image_id", "category_id", "bbox", "iscrowd", "area", "attributes"))
_IMAGES = re.compile(rb'"images"\s*:')
_LONGEST_NAME = 64  # with the blanks behind it
_LARGEST_ID = (1 << 31) - 1
_LONGEST_REASON = 200
_LARGEST_VISIBILITY = 2
_LARGEST_SIDE = (1 << 31) - 1
_LARGEST = float(np.finfo(np.float32).max)
PERSON_KEYPOINTS = (
    *("nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder"),
    *("right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hip"),
    *("right_hip", "left_knee", "right_knee", "left_ankle", "right_ankle"),
)
"""COCO's names, for a file of keypoints of which no category has any."""


# Which files


def find_files(path: str) -> list[str]:
    """The JSONs of instances at a path: it, a folder's, or those in its ``annotations``."""
    if os.path.isfile(path):
        return [path] if path.lower().endswith(".json") and _has_images(path) else []
    roboflow = sorted(glob.glob(os.path.join(glob.escape(path), "*", _ROBOFLOW)))
    if roboflow:
        return roboflow
    inside = os.path.join(path, "annotations")
    folder = inside if os.path.isdir(inside) else path
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [name for name in names if name.lower().endswith(".json") and name[0] != "."]
    instances = [name for name in found if name.startswith("instances")]
    others = [name for name in found if not name.startswith(("captions", "panoptic", "stuff"))]
    paths = [os.path.join(folder, name) for name in instances or others]
    return [one for one in paths if os.path.isfile(one) and _has_images(one)]


def _has_images(path: str) -> bool:
    """Whether a JSON may be COCO's; one that names no ``images`` is not."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        before = b""
        while more := file.read(1 << 20):
            if _IMAGES.search(before + more):
                return True
            before = more[-_LONGEST_NAME:]
    return False


@dataclass(frozen=True)
class CocoSet:
    """A subset: its JSON, and where its images are."""

    subset: str
    file: str
    folders: tuple[str, ...]

    @classmethod
    def of(cls, file: str, images: str | None) -> CocoSet:
        folder, name = os.path.split(os.path.abspath(file))
        if name == _ROBOFLOW:
            subset = os.path.basename(folder)
        else:
            # One prefix at most: a subset's name may begin with another.
            prefix: str = next(filter(name.startswith, _PREFIXES), "")
            subset = subset_of_stem(os.path.splitext(name)[0].removeprefix(prefix))
        places = [
            os.path.join(where, *parts)
            for where in (os.path.dirname(file), os.path.dirname(folder))
            for parts in (("images", subset), (subset,), ("images",), ())
        ]
        named = (os.path.join(images, subset), images) if images else ()
        return cls(subset, file, named or tuple(places))


# What they say


@dataclass(frozen=True)
class CocoDocument:
    """What a file says, its entries as the JSON has them; annotations by their image's id.

    Attributes:
        own: where it is, and its images.
        categories: by id, keypoints with their places among ``point_names``.
        used: of each id that an annotation has the place of the first.
    """

    own: CocoSet
    images: list[dict[str, Any]]
    annotations: dict[Any, list[dict[str, Any]]]
    categories: Mapping[int, LabelMapItem]
    used: Mapping[int, str]
    point_names: Sequence[str]

    @classmethod
    def read(cls, own: CocoSet, masks: bool) -> CocoDocument:
        """Read a file into memory, of each annotation only some fields: outlines are most of it."""
        path = own.file

        def slim(found: dict[str, Any]) -> dict[str, Any]:
            if "image_id" not in found:
                return found
            one = {key: value for key, value in found.items() if key in _FIELDS}
            if found.get("keypoints"):
                one["keypoints"] = found["keypoints"]
            outline = found.get("segmentation")
            if outline and masks and isinstance(outline, list):
                one["segmentation"] = [_packed(polygon) for polygon in outline]
            elif outline:
                one["segmentation"] = outline if masks else True
            return one

        lists = _lists(path, read_json(path, object_hook=slim))
        images, every, entries = (lists[name] for name in _LISTS)
        beside = _keypoints_beside(path)
        if beside is not None:
            points = _lists(beside, read_json(beside, object_hook=slim))
            with sound(beside):
                entries = _joined(entries, points["categories"])
                every = _joined(every, points["annotations"])
        has_points = any("keypoints" in one for one in every)
        categories, names = _categories(path, entries, has_points)
        annotations: dict[Any, list[dict[str, Any]]] = {}
        used: dict[int, str] = {}
        for one in every:
            where = place_of(path, one.get("id"))
            with sound(where):
                annotations.setdefault(scalar(one, "image_id"), []).append(one)
                number = whole_number(one, "category_id")
            if number not in categories:
                raise TfodError(f"{where}: there is no category {number}; add it to categories")
            used.setdefault(number, where)
        return cls(own, images, annotations, categories, used, names)


def _lists(path: str, found: Any) -> dict[str, list[dict[str, Any]]]:
    lists: dict[str, Any] = {
        name: found.get(name) if isinstance(found, dict) else None for name in _LISTS
    }
    if isinstance(found, dict) and "annotations" not in found:
        lists["annotations"] = []  # COCO's own of its test images
    for name, entries in lists.items():
        if not isinstance(entries, list):
            raise TfodError(f"{path} is not COCO JSON: it lacks {name}")
        for one in entries:
            if not isinstance(one, dict):
                raise TfodError(
                    f"{path}: an entry of {name} is {quoted(one)}, expected an object; correct it"
                )
    return lists


def _keypoints_beside(path: str) -> str | None:
    """COCO's file of keypoints of the same annotations, by their ids, beside that of instances."""
    folder, name = os.path.split(path)
    beside = os.path.join(folder, _PREFIXES[1] + name.removeprefix(_PREFIXES[0]))
    return beside if name.startswith(_PREFIXES[0]) and os.path.isfile(beside) else None


def _joined(
    entries: Sequence[dict[str, Any]], others: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Entries with the keypoints that others of their ids have."""
    points = {scalar(one, "id"): one["keypoints"] for one in others if one.get("keypoints")}
    return [
        {**one, "keypoints": points[one["id"]]} if one.get("id") in points else one
        for one in entries
    ]


def _categories(
    path: str, entries: Sequence[Mapping[str, Any]], has_points: bool
) -> tuple[dict[int, LabelMapItem], list[str]]:
    """The categories by id, and the names of all keypoints: those of one class after another's."""
    is_usual = has_points and not any(one.get("keypoints") for one in entries)
    found: dict[int, LabelMapItem] = {}
    names: list[str] = []
    known: dict[tuple[str, ...], int] = {(): 0}
    for place, one in enumerate(entries, 1):
        with sound(f"{path}, category {place} in the list"):
            number, name = whole_number(one, "id"), one["name"]
            if not 0 <= number <= _LARGEST_ID:
                raise ValueError("its id is below 0 or beyond 32 bits")
            if name is None or not str(name).strip():
                raise ValueError(f"category {number} has no name")
            own = PERSON_KEYPOINTS if is_usual else tuple(map(str, one.get("keypoints") or ()))
            if own not in known:
                known[own] = len(names)
                names += own
            points = tuple(Keypoint(at, label) for at, label in enumerate(own, known[own]))
            item = found.setdefault(number, LabelMapItem(number, str(name), keypoints=points))
            if item.name != str(name):
                raise ValueError(f"id {number} is that of {item.name!r} and of {name!r}")
    return found, names


def classes_of(
    documents: Sequence[CocoDocument], label_map: str | None, problems: Problems
) -> KnownClasses:
    """The ids of the categories of all sets.

    Of categories of one name, which are one class, the lowest id is kept. The id 0 is left out
    where no annotation has it.

    Raises:
        TfodError: two sets give one id to different names, or an annotation has the category 0.
    """
    if label_map is not None:
        found, notes = load_label_map(label_map)
        return KnownClasses(found, label_map, tuple(notes))
    items: dict[int, LabelMapItem] = {}
    path = documents[0].own.file
    for one in documents:
        for number, item in one.categories.items():
            known = items.setdefault(number, item)
            if known.name != item.name:
                raise TfodError(
                    f"{one.own.file}: category {number} is {item.name!r}, and {known.name!r} in "
                    "another set; write them apart"
                )
    kept: dict[int, LabelMapItem] = {}
    first: dict[str, int] = {}
    # An id 0 only where its name has no other.
    for number in sorted(items, key=lambda number: (number == 0, number)):
        name = items[number].name
        if first.setdefault(name, number) == number:
            kept[number] = items[number]
            continue
        problems.add(
            "categories of a name that another one has, made one class",
            f"{path}: {name!r} is {first[name]} and {number}, written as {first[name]}",
        )
    if 0 in kept and kept[0].name != BACKGROUND:
        for one in documents:
            if 0 in one.used:
                raise TfodError(
                    f"{one.used[0]}: it is of category 0 ({kept[0].name!r}), and the OD API has 0 "
                    "for the background and refuses a label map with it; number the categories "
                    "from 1, or name a label map that has ids for them with --label-map"
                )
        problems.add(
            "categories of id 0 that no annotation has, left out: the OD API has 0 for the "
            "background",
            f"{path}: {kept.pop(0).name!r}",
        )
    made = LabelMap(tuple(kept[number] for number in sorted(kept)))
    return KnownClasses(made, f"that of {path}")


# Values as JSON has them


@contextlib.contextmanager
def sound(where: str) -> Iterator[None]:
    """Whatever is amiss with an entry inside becomes an error that reads as one line."""
    try:
        yield
    except KeyError as error:
        raise TfodError(f"{where}: {error} is missing; add it") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise TfodError(f"{where}: {reason}; correct it") from None
    except (TypeError, AttributeError, OverflowError):
        raise TfodError(
            f"{where}: a value has another type than COCO has there; correct it"
        ) from None


def scalar(entry: Mapping[str, Any], key: str) -> Any:
    """An entry's id, or that of another entry: a number or a text."""
    value = entry[key]
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    raise ValueError(f"{key} is {quoted(value)}, expected a number")


def whole_number(entry: Mapping[str, Any], key: str) -> int:
    """A number without a fraction, which may be written as a text."""
    value = scalar(entry, key)
    with contextlib.suppress(ValueError, OverflowError):
        number = int(value)
        if isinstance(value, str) or number == value:
            return number
    raise ValueError(f"{key} is {quoted(value)}, expected a whole number")


def numbers(value: Any, count: int, name: str) -> list[float]:
    """A list of so many numbers, which need not be finite."""
    if isinstance(value, list) and [type(one) in (int, float) for one in value] == [True] * count:
        return [float(one) for one in value]
    raise ValueError(f"{name} is {quoted(value)}, expected {count} numbers")


def real_number(value: Any, name: str) -> float:
    """A finite number; true and false are 1 and 0."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    raise ValueError(f"{name} is {quoted(value)}, expected a number")


def points_of(values: Any, count: int) -> np.ndarray:
    """The keypoints of an object: x and y in pixels, and visibility, of shape (count, 3)."""
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros(0)
    is_sound = found.shape == (count * 3,) and (abs(found) <= _LARGEST).all()
    if not is_sound or (abs(found[2::3]) > _LARGEST_VISIBILITY).any():
        raise ValueError(f"keypoints are not {count} times x, y and visibility")
    return found.reshape(-1, 3)


def file_name(entry: Mapping[str, Any]) -> str:
    """The name of an image as a safe relative path."""
    name = entry["file_name"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"file_name is {quoted(name)}, expected a text")
    return safe_relative_path(name)


def side(entry: Mapping[str, Any], key: str) -> int | None:
    """Height or width; None where it is not there, or is 0."""
    side = whole_number(entry, key) if entry.get(key) is not None else 0
    if side > _LARGEST_SIDE:
        raise ValueError(f"{key} is {quoted(side)}, expected a number of pixels")
    return side if side > 0 else None


def _packed(polygon: Any) -> Any:
    """A polygon in an eighth of the memory; whatever else it is stays and is checked later."""
    try:
        return array("d", polygon)
    except (TypeError, OverflowError):
        return polygon


def place_of(path: str, annotation_id: Any) -> str:
    """Where an annotation is, for messages."""
    return f"{path}, annotation {quoted(annotation_id)}"
