"""Parsing of COCO's JSON: its files, lists and values.

Sources: cocodataset.org/#format-data; Roboflow's export.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.detection.labels.dataset_classes import BACKGROUND
from tfod.detection.labels.label_map import Keypoint, LabelMap, LabelMapItem, load_label_map
from tfod.errors import TfodError, excerpt
from tfod.formats.options import ConversionProblems
from tfod.formats.reading.documents import read_json, to_short_json
from tfod.formats.reading.objects import SourceClasses
from tfod.sources.format_recognition import COCO_ROBOFLOW_FILE
from tfod.tfrecord.shard_sets.shard_names import to_subset

_PREFIXES = ("instances_", "person_keypoints_")
_LISTS = ("images", "annotations", "categories")
_MAX_INT32 = (1 << 31) - 1
_MAX_REASON = 200
_MAX_VISIBILITY = 2
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class CocoDocument:
    """The JSON of a subset.

    Attributes:
        file: path of the JSON.
        folders: folders to search for images.
        images: entries of all images.
        annotations: entries of annotations by image id.
        categories: classes by category id; their keypoints have indexes into ``point_names``.
        locations: location of the first annotation of each category that is used.
        point_names: names of the keypoints of all classes.
    """

    subset: str
    file: str
    folders: tuple[str, ...]
    images: Sequence[Mapping[str, Any]]
    annotations: Mapping[Any, Sequence[Mapping[str, Any]]]
    categories: Mapping[int, LabelMapItem]
    locations: Mapping[int, str]
    point_names: Sequence[str]

    @classmethod
    def read(cls, subset: str, path: str, image_folder: str | None) -> CocoDocument:
        """Read a JSON; raise TfodError if it is not COCO JSON, or an entry is invalid."""
        lists = _read_lists(path)
        folder, name = os.path.split(path)
        keypoint_file = os.path.join(folder, _PREFIXES[1] + name.removeprefix(_PREFIXES[0]))
        if name.startswith(_PREFIXES[0]) and os.path.isfile(keypoint_file):
            # COCO has a second file with the keypoints of the same annotations.
            keypoint_lists = _read_lists(keypoint_file)
            for key in ("annotations", "categories"):
                with convert_entry_errors(keypoint_file):
                    points = {entry["id"]: entry.get("keypoints") for entry in keypoint_lists[key]}
                    for entry in lists[key]:
                        if points.get(entry.get("id")):
                            entry["keypoints"] = points[entry["id"]]
        categories, names = _read_categories(path, lists["categories"])
        annotations: dict[Any, list[dict[str, Any]]] = {}
        locations: dict[int, str] = {}
        for entry in lists["annotations"]:
            location = format_location(path, entry.get("id"))
            with convert_entry_errors(location):
                annotations.setdefault(get_scalar(entry, "image_id"), []).append(entry)
                number = get_whole_number(entry, "category_id")
            if number not in categories:
                raise TfodError(f"{location}: there is no category {number}; add it to categories")
            locations.setdefault(number, location)
        folders = _list_image_folders(path, subset, image_folder)
        images = lists["images"]
        return cls(subset, path, folders, images, annotations, categories, locations, names)


def get_subset(path: str) -> str:
    """Return the name of the subset of a JSON."""
    folder, name = os.path.split(os.path.abspath(path))
    if name == COCO_ROBOFLOW_FILE:
        return os.path.basename(folder)
    # Removes only one prefix, since the name of a subset may begin with the other.
    prefix: str = next(filter(name.startswith, _PREFIXES), "")
    return to_subset(os.path.splitext(name)[0].removeprefix(prefix))


def _list_image_folders(path: str, subset: str, requested: str | None) -> tuple[str, ...]:
    if requested:
        return os.path.join(requested, subset), requested
    parent = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    return tuple(
        os.path.join(folder, *parts)
        for folder in (os.path.dirname(path), parent)
        for parts in (("images", subset), (subset,), ("images",), ())
    )


def _read_lists(path: str) -> dict[str, list[dict[str, Any]]]:
    document = read_json(path)
    if not isinstance(document, dict):
        raise TfodError(f"{path} is not COCO JSON: it lacks {_LISTS[0]}")
    document.setdefault("annotations", [])  # missing in COCO's JSONs of test images
    for name in _LISTS:
        if not isinstance(document.get(name), list):
            raise TfodError(f"{path} is not COCO JSON: it lacks {name}")
        for entry in document[name]:
            if not isinstance(entry, dict):
                text = to_short_json(entry)
                raise TfodError(
                    f"{path}: an entry of {name} is {text}, expected an object; correct it"
                )
    return document


def _read_categories(
    path: str, entries: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, LabelMapItem], list[str]]:
    categories: dict[int, LabelMapItem] = {}
    names: list[str] = []
    starts: dict[tuple[str, ...], int] = {(): 0}
    for position, entry in enumerate(entries, 1):
        with convert_entry_errors(f"{path}, category {position} in the list"):
            number, name = get_whole_number(entry, "id"), entry["name"]
            if not 0 <= number <= _MAX_INT32:
                raise ValueError("its id is below 0 or too large for 32 bits")
            if name is None or not str(name).strip():
                raise ValueError(f"category {number} has no name")
            labels = tuple(map(str, entry.get("keypoints") or ()))
            if labels not in starts:
                starts[labels] = len(names)
                names += labels
            start = starts[labels]
            points = tuple(Keypoint(index, label) for index, label in enumerate(labels, start))
            item = categories.setdefault(number, LabelMapItem(number, str(name), keypoints=points))
            if item.name != str(name):
                raise ValueError(f"id {number} is used by {excerpt(item.name)} and {excerpt(name)}")
    return categories, names


def merge_categories(
    documents: Sequence[CocoDocument], label_map: str | None, problems: ConversionProblems
) -> SourceClasses:
    """Return the classes of all documents, with their category ids.

    Categories with the same name become one class with the lowest id. An unused 0 is left out.
    Raises TfodError if two documents use an id for different names, or an annotation category 0.
    """
    if label_map is not None:
        loaded, notes = load_label_map(label_map)
        return SourceClasses(loaded, label_map, tuple(notes), label_map)
    items: dict[int, LabelMapItem] = {}
    path = documents[0].file
    for document in documents:
        for number, item in document.categories.items():
            other = items.setdefault(number, item)
            if other.name != item.name:
                raise TfodError(
                    f"{document.file}: category {number} is {excerpt(item.name)}, but "
                    f"{excerpt(other.name)} in another set; convert them separately"
                )
    kept: dict[int, LabelMapItem] = {}
    first: dict[str, int] = {}
    # The id 0 comes last, so that it is only kept if its name has no other id.
    for number in sorted(items, key=lambda number: (number == 0, number)):
        name = items[number].name
        if first.setdefault(name, number) == number:
            kept[number] = items[number]
            continue
        problems.add(
            "categories with the name of another one, merged into one class",
            f"{path}: {excerpt(name)} is {first[name]} and {number}, written as {first[name]}",
        )
    if 0 in kept and kept[0].name != BACKGROUND:
        for document in documents:
            if 0 in document.locations:
                raise TfodError(
                    f"{document.locations[0]}: category 0 ({excerpt(kept[0].name)}) is used, but "
                    "the OD API reserves 0 for the background and rejects a label map with it; "
                    "number the categories from 1, "
                    "or choose a label map with other ids with --label-map"
                )
        problems.add(
            "categories with id 0 and without annotations, left out because the OD API reserves 0 "
            "for the background",
            f"{path}: {excerpt(kept.pop(0).name)}",
        )
    merged = LabelMap(tuple(kept[number] for number in sorted(kept)))
    return SourceClasses(merged, f"made from {path}", file=path)


# Values of JSON


class convert_entry_errors:  # noqa: N801 - a context manager, ten times as fast as a generator
    """Convert errors from parsing the entry at ``location`` to TfodError."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            return
        if isinstance(error, KeyError):
            reason = f"{error} is missing; add it"
        elif isinstance(error, ValueError):
            reason = f"{' '.join(str(error).split())[:_MAX_REASON]}; correct it"
        elif isinstance(error, (TypeError, AttributeError, OverflowError)):
            reason = "a value has the wrong type; correct it"
        else:
            return
        raise TfodError(f"{self._location}: {reason}") from None


def get_scalar(entry: Mapping[str, Any], key: str) -> Any:
    """Return an id of an entry: a number or a text."""
    value = entry[key]
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    raise ValueError(f"{key} is {to_short_json(value)}, expected a number")


def get_whole_number(entry: Mapping[str, Any], key: str) -> int:
    """Return a whole number of an entry, which may be written as a text."""
    value = get_scalar(entry, key)
    if type(value) is int:
        return value
    with contextlib.suppress(ValueError, OverflowError):
        number = int(value)
        if isinstance(value, str) or number == value:
            return number
    raise ValueError(f"{key} is {to_short_json(value)}, expected a whole number")


def parse_box(value: Any) -> list[float]:
    """Return the four numbers of a box, which need not be finite."""
    if isinstance(value, list) and [type(number) in (int, float) for number in value] == [True] * 4:
        return [float(number) for number in value]
    raise ValueError(f"bbox is {to_short_json(value)}, expected 4 numbers")


def parse_real_number(value: Any, name: str) -> float:
    """Return a finite number; true and false become 1 and 0."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    raise ValueError(f"{name} is {to_short_json(value)}, expected a number")


def parse_keypoints(values: Any, count: int) -> np.ndarray:
    """Return x and y in pixels and the visibility of each keypoint, of shape (count, 3)."""
    try:
        numbers = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.zeros(0)
    is_valid = numbers.shape == (count * 3,) and (abs(numbers) <= _MAX_FLOAT32).all()
    if not is_valid or (abs(numbers[2::3]) > _MAX_VISIBILITY).any():
        raise ValueError(f"keypoints are not x, y, visibility of the category's {count} keypoints")
    return numbers.reshape(-1, 3)


def get_side(entry: Mapping[str, Any], key: str) -> int | None:
    """Return the height or width; None if it is missing or 0."""
    side = get_whole_number(entry, key) if entry.get(key) is not None else 0
    if side > _MAX_INT32:
        raise ValueError(f"{key} is {to_short_json(side)}, expected a number of pixels")
    return side if side > 0 else None


def format_location(path: str, annotation_id: Any) -> str:
    """Return the location of an annotation for messages."""
    return f"{path}, annotation {to_short_json(annotation_id)}"
