"""COCO's categories as classes: one id for each name, none of them 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfod.convert.coco import CocoFile, sound_coco, whole_number
from tfod.convert.coco_keypoints import KeypointFile
from tfod.detection.labels.label_map import Keypoint, LabelMap, LabelMapItem
from tfod.errors import TfodError
from tfod.shards.create.label_maps import BACKGROUND, ChosenLabelMap, named_label_map
from tfod.shards.create.problems import Problems

_LARGEST_ID = (1 << 31) - 1  # of a label map


@dataclass(frozen=True)
class Categories:
    """The categories of a file.

    Attributes:
        path: of the file.
        names: by id.
        used: of each id that an annotation has the place of the first.
        keypoints: those of the same set.
    """

    path: str
    names: Mapping[int, str]
    used: Mapping[int, str]
    keypoints: KeypointFile | None = None


def read_categories(file: CocoFile, keypoints: KeypointFile | None) -> Categories:
    """The categories of a file, and which of them its annotations have.

    Raises:
        TfodError: one makes no sense, or an annotation has another.
    """
    names: dict[int, str] = {}
    for place, one in enumerate(file.categories, 1):
        with sound_coco(f"{file.path}, category {place} in the list"):
            number, name = whole_number(one, "id"), one["name"]
            if not 0 <= number <= _LARGEST_ID:
                raise ValueError("its id is below 0 or beyond 32 bits")
            if name is None or not str(name).strip():
                raise ValueError(f"category {number} has no name")
            if names.setdefault(number, str(name)) != str(name):
                raise ValueError(f"id {number} is that of {names[number]!r} and of {name!r}")
    used: dict[int, str] = {}
    for members in file.annotations.values():
        for one in members:
            where = f"{file.path}, annotation {one.get('id')}"
            with sound_coco(where):
                number = whole_number(one, "category_id")
            if number not in names:
                raise TfodError(f"{where}: there is no category {number}; add it to categories")
            used.setdefault(number, where)
    return Categories(file.path, names, used, keypoints)


def choose_classes(
    files: Sequence[Categories], label_map: str | None, problems: Problems
) -> ChosenLabelMap:
    """Find the ids of the categories of all sets.

    Without a label map (a file, or a name that tfod ships) they keep their own. Of categories of
    one name, which are one class, the lowest id is kept. The id 0 is left out where no annotation
    has it.

    Raises:
        TfodError: two sets give one id to different names, or an annotation has the category 0.
    """
    if label_map is not None:
        return named_label_map(label_map)
    items: dict[int, LabelMapItem] = {}
    for one in files:
        for number, name in one.names.items():
            points = _keypoint_items(one.keypoints, number)
            known = items.setdefault(number, LabelMapItem(number, name, keypoints=points))
            if known.name != name:
                raise TfodError(
                    f"{one.path}: category {number} is {name!r}, and {known.name!r} in "
                    "another set; write them apart"
                )
    path = files[0].path
    kept = _without_namesakes(items, path, problems)
    if 0 in kept and kept[0].name != BACKGROUND:
        for one in files:
            if 0 in one.used:
                raise TfodError(
                    f"{one.used[0]}: it is of category 0 ({one.names[0]!r}), and the OD API has 0 "
                    "for the background and refuses a label map with it; number the categories "
                    "from 1, or name a label map that has ids for them with --label-map"
                )
        problems.add(
            "categories of id 0 that no annotation has, left out: the OD API has 0 for the "
            "background",
            f"{path}: {kept.pop(0).name!r}",
        )
    made = LabelMap(tuple(kept[number] for number in sorted(kept)))
    return ChosenLabelMap(made, f"that of {path}")


def _without_namesakes(
    items: Mapping[int, LabelMapItem], path: str, problems: Problems
) -> dict[int, LabelMapItem]:
    """One item for each name: that of its lowest id, and of 0 only where it has no other."""
    kept: dict[int, LabelMapItem] = {}
    first: dict[str | None, int] = {}
    for number in sorted(items, key=lambda number: (number == 0, number)):
        item = items[number]
        if item.name not in first:
            first[item.name], kept[number] = number, item
            continue
        problems.add(
            "categories of a name that another one has, made one class",
            f"{path}: {item.name!r} is {first[item.name]} and {number}, written as "
            f"{first[item.name]}",
        )
    return kept


def _keypoint_items(keypoints: KeypointFile | None, category: int) -> tuple[Keypoint, ...]:
    if keypoints is None:
        return ()
    places = keypoints.places.get(category, range(0))
    return tuple(Keypoint(place, keypoints.names[place]) for place in places)
