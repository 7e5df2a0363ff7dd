"""The keypoints of a COCO file of its own, for the objects of another one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.convert.coco import quoted, read_coco, scalar, sound_coco, whole_number
from tfod.detection.detection import Keypoints
from tfod.errors import TfodError

PERSON_KEYPOINTS = (
    *("nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder"),
    *("right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hip"),
    *("right_hip", "left_knee", "right_knee", "left_ankle", "right_ankle"),
)
"""COCO's names, for a file of which no category has any."""

_VALUES = 3  # x, y, visibility
_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_VISIBILITY = 2


@dataclass(frozen=True)
class KeypointFile:
    """The keypoints of a set.

    Attributes:
        path: of the file.
        names: of all points of a record, those of one class after those of another.
        places: of each category with keypoints the places of its points among them.
        annotations: by the image's id, then by the annotation's.
    """

    path: str
    names: tuple[str, ...]
    places: Mapping[int, range]
    annotations: Mapping[Any, Mapping[Any, Mapping[str, Any]]]

    def keypoints(
        self, image_id: Any, annotation_ids: Sequence[Any], size: tuple[int, int]
    ) -> Keypoints:
        """The points of these objects of an image, divided by height and width; zeros for an
        object that has none.

        Raises:
            TfodError: they make no sense, or two objects have the id of one with points.
        """
        height, width = size
        xy = np.zeros((len(annotation_ids), len(self.names), 2), np.float32)
        visibility = np.zeros((len(annotation_ids), len(self.names)), np.int64)
        known = self.annotations.get(image_id, {})
        joined: set[Any] = set()
        for row, annotation_id in enumerate(annotation_ids):
            if annotation_id not in known:
                continue
            if annotation_id in joined:
                raise TfodError(
                    f"{self.path}, annotation {annotation_id}: two objects of image "
                    f"{quoted(image_id)} have this id, so it is unclear whose keypoints these are; "
                    "give every annotation an id of its own"
                )
            joined.add(annotation_id)
            places, values = self._points(known[annotation_id], annotation_id)
            xy[row, places] = values[:, :2] / (width, height)
            visibility[row, places] = values[:, 2].astype(np.int64)
        return Keypoints(xy, visibility, self.names)

    def unused(self, used: Mapping[Any, frozenset[Any]]) -> Iterator[str]:
        """Places of annotations that belong to none of these objects (ids by image id)."""
        for image_id, members in self.annotations.items():
            for annotation_id in members:
                if annotation_id not in used.get(image_id, ()):
                    yield f"{self.path}, annotation {annotation_id}"

    def _points(self, annotation: Mapping[str, Any], number: Any) -> tuple[range, np.ndarray]:
        where = f"{self.path}, annotation {number}"
        with sound_coco(where):
            category = whole_number(annotation, "category_id")
        if category not in self.places:
            raise TfodError(f"{where}: there is no category {category}; add it to categories")
        places = self.places[category]
        try:
            values = np.array(annotation["keypoints"], np.float64)
        except (TypeError, ValueError, OverflowError):
            values = np.zeros(0)
        is_sound = values.shape == (len(places) * _VALUES,) and (abs(values) <= _LARGEST).all()
        if not is_sound or (abs(values[2::_VALUES]) > _LARGEST_VISIBILITY).any():
            raise TfodError(
                f"{where}: keypoints are not {len(places)} times x, y and visibility; correct them"
            )
        return places, values.reshape(-1, _VALUES)


def _by_id(annotations: Iterable[Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
    found: dict[Any, Mapping[str, Any]] = {}
    for one in annotations:
        number = scalar(one, "id")
        if number in found:
            raise ValueError(f"image {quoted(one['image_id'])} has two annotations of id {number}")
        found[number] = one
    return found


def read_keypoints(path: str) -> KeypointFile:
    """Read a file of keypoints (``person_keypoints_train2017.json``).

    Raises:
        TfodError: it cannot be read, or is not COCO JSON.
    """
    found = read_coco(path, ("id", "category_id", "keypoints"))
    names: list[str] = []
    places: dict[int, range] = {}
    known: dict[tuple[str, ...], range] = {}
    with sound_coco(path):
        usual = () if any(one.get("keypoints") for one in found.categories) else PERSON_KEYPOINTS
    for place, one in enumerate(found.categories, 1):
        with sound_coco(f"{path}, category {place} in the list"):
            own = tuple(str(name) for name in one.get("keypoints") or usual)
            if own not in known:
                known[own] = range(len(names), len(names) + len(own))
                names += own
            places[whole_number(one, "id")] = known[own]
    with sound_coco(path):
        annotations = {
            image_id: _by_id(one for one in members if one.get("keypoints"))
            for image_id, members in found.annotations.items()
        }
    return KeypointFile(path, tuple(names), places, annotations)
