"""COCO's JSON as a document: which files there are, and what their lists say.

Sources: cocodataset.org/#format-data; Roboflow's export.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.detection.labels.dataset_classes import BACKGROUND
from tfod.detection.labels.label_map import Keypoint, LabelMap, LabelMapItem, load_label_map
from tfod.errors import TfodError
from tfod.formats.options import ConversionProblems
from tfod.formats.reading.documents import quoted, read_json
from tfod.formats.reading.objects import SourceClasses
from tfod.sources.format_recognition import COCO_ROBOFLOW_FILE
from tfod.tfrecord.shard_sets.shard_names import to_subset

_PREFIXES = ("instances_", "person_keypoints_")
_LISTS = ("images", "annotations", "categories")
_LARGEST_WHOLE = (1 << 31) - 1  # of an id, and of pixels
_LONGEST_REASON = 200
_LARGEST_VISIBILITY = 2
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class CocoDocument:
    """A subset: what its file says, its entries as the JSON has them.

    Attributes:
        subset, file, folders: what it is called, where it is, and where its images are.
        images: all entries.
        annotations: by their image's id.
        categories: by id, keypoints with their places among ``point_names``.
        used: of each id that an annotation has the place of the first.
        point_names: the keypoints of one class after those of another.
    """

    subset: str
    file: str
    folders: tuple[str, ...]
    images: Sequence[Mapping[str, Any]]
    annotations: Mapping[Any, Sequence[Mapping[str, Any]]]
    categories: Mapping[int, LabelMapItem]
    used: Mapping[int, str]
    point_names: Sequence[str]

    @classmethod
    def read(cls, subset: str, path: str, images: str | None) -> CocoDocument:
        """Read a file; its images may be in a folder that was named.

        Raises:
            TfodError: it is no COCO JSON, or an entry makes no sense.
        """
        lists = _lists(path)
        folder, name = os.path.split(path)
        beside = os.path.join(folder, _PREFIXES[1] + name.removeprefix(_PREFIXES[0]))
        if name.startswith(_PREFIXES[0]) and os.path.isfile(beside):
            # COCO's file of keypoints of the same annotations, by their ids.
            others = _lists(beside)
            for key in ("annotations", "categories"):
                with require_valid_entry(beside):
                    points = {other["id"]: other.get("keypoints") for other in others[key]}
                    for entry in lists[key]:
                        if points.get(entry.get("id")):
                            entry["keypoints"] = points[entry["id"]]
        categories, names = _categories(path, lists["categories"])
        annotations: dict[Any, list[dict[str, Any]]] = {}
        used: dict[int, str] = {}
        for one in lists["annotations"]:
            where = place_of(path, one.get("id"))
            with require_valid_entry(where):
                annotations.setdefault(scalar(one, "image_id"), []).append(one)
                number = whole_number(one, "category_id")
            if number not in categories:
                raise TfodError(f"{where}: there is no category {number}; add it to categories")
            used.setdefault(number, where)
        places = _image_folders(path, subset, images)
        return cls(subset, path, places, lists["images"], annotations, categories, used, names)


def subset_of(path: str) -> str:
    """What the subset of a file is called."""
    folder, name = os.path.split(os.path.abspath(path))
    if name == COCO_ROBOFLOW_FILE:
        return os.path.basename(folder)
    # One prefix at most: a subset's name may begin with another.
    prefix: str = next(filter(name.startswith, _PREFIXES), "")
    return to_subset(os.path.splitext(name)[0].removeprefix(prefix))


def _image_folders(path: str, subset: str, named: str | None) -> tuple[str, ...]:
    if named:
        return os.path.join(named, subset), named
    above = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    return tuple(
        os.path.join(where, *parts)
        for where in (os.path.dirname(path), above)
        for parts in (("images", subset), (subset,), ("images",), ())
    )


def _lists(path: str) -> dict[str, list[dict[str, Any]]]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise TfodError(f"{path} is not COCO JSON: it lacks {_LISTS[0]}")
    found.setdefault("annotations", [])  # COCO's own of its test images have none
    for name in _LISTS:
        if not isinstance(found.get(name), list):
            raise TfodError(f"{path} is not COCO JSON: it lacks {name}")
        for one in found[name]:
            if not isinstance(one, dict):
                raise TfodError(
                    f"{path}: an entry of {name} is {quoted(one)}, expected an object; correct it"
                )
    return found


def _categories(
    path: str, entries: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, LabelMapItem], list[str]]:
    """The categories by id, and the names of all keypoints: those of one class after another's."""
    found: dict[int, LabelMapItem] = {}
    names: list[str] = []
    known: dict[tuple[str, ...], int] = {(): 0}
    for place, one in enumerate(entries, 1):
        with require_valid_entry(f"{path}, category {place} in the list"):
            number, name = whole_number(one, "id"), one["name"]
            if not 0 <= number <= _LARGEST_WHOLE:
                raise ValueError("its id is below 0 or beyond 32 bits")
            if name is None or not str(name).strip():
                raise ValueError(f"category {number} has no name")
            own = tuple(map(str, one.get("keypoints") or ()))
            if own not in known:
                known[own] = len(names)
                names += own
            points = tuple(Keypoint(at, label) for at, label in enumerate(own, known[own]))
            item = found.setdefault(number, LabelMapItem(number, str(name), keypoints=points))
            if item.name != str(name):
                raise ValueError(f"id {number} is that of {item.name!r:.81} and of {name!r:.81}")
    return found, names


def classes_of(
    documents: Sequence[CocoDocument], label_map: str | None, problems: ConversionProblems
) -> SourceClasses:
    """The ids of the categories of all sets.

    Of categories of one name, which are one class, the lowest id is kept. The id 0 is left out
    where no annotation has it.

    Raises:
        TfodError: two sets give one id to different names, or an annotation has the category 0.
    """
    if label_map is not None:
        found, notes = load_label_map(label_map)
        return SourceClasses(found, label_map, tuple(notes), label_map)
    items: dict[int, LabelMapItem] = {}
    path = documents[0].file
    for one in documents:
        for number, item in one.categories.items():
            known = items.setdefault(number, item)
            if known.name != item.name:
                raise TfodError(
                    f"{one.file}: category {number} is {item.name!r:.81}, and {known.name!r:.81} "
                    "in another set; write them apart"
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
            f"{path}: {name!r:.81} is {first[name]} and {number}, written as {first[name]}",
        )
    if 0 in kept and kept[0].name != BACKGROUND:
        for one in documents:
            if 0 in one.used:
                raise TfodError(
                    f"{one.used[0]}: it is of category 0 ({kept[0].name!r:.81}), and the OD API "
                    "has 0 for the background and refuses a label map with it; number the "
                    "categories from 1, or name a label map that has ids for them with --label-map"
                )
        problems.add(
            "categories of id 0 that no annotation has, left out: the OD API has 0 for the "
            "background",
            f"{path}: {kept.pop(0).name!r:.81}",
        )
    made = LabelMap(tuple(kept[number] for number in sorted(kept)))
    return SourceClasses(made, f"that of {path}", file=path)


# Values as JSON has them


@contextlib.contextmanager
def require_valid_entry(where: str) -> Iterator[None]:
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
    if type(value) is int:
        return value
    with contextlib.suppress(ValueError, OverflowError):
        number = int(value)
        if isinstance(value, str) or number == value:
            return number
    raise ValueError(f"{key} is {quoted(value)}, expected a whole number")


def box_of(value: Any) -> list[float]:
    """The four numbers of a box, which need not be finite."""
    if isinstance(value, list) and [type(one) in (int, float) for one in value] == [True] * 4:
        return [float(one) for one in value]
    raise ValueError(f"bbox is {quoted(value)}, expected 4 numbers")


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
        raise ValueError(
            f"keypoints are not {count} times x, y and visibility, as its category names them"
        )
    return found.reshape(-1, 3)


def side(entry: Mapping[str, Any], key: str) -> int | None:
    """Height or width; None where it is not there, or is 0."""
    side = whole_number(entry, key) if entry.get(key) is not None else 0
    if side > _LARGEST_WHOLE:
        raise ValueError(f"{key} is {quoted(side)}, expected a number of pixels")
    return side if side > 0 else None


def place_of(path: str, annotation_id: Any) -> str:
    """Where an annotation is, for messages."""
    return f"{path}, annotation {quoted(annotation_id)}"
