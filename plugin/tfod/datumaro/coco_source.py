"""The COCO file that a dataset was read from: what Datumaro's importer drops or changes of it.

It leaves out areas, gives categories new numbers, and puts the box of an outline in place of
``bbox``. Datasets remember their path, so an export to a format that has these can still be exact.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfod.convert.coco import numbers, read_coco, real_number, sound_coco, whole_number
from tfod.detection.corners import Corners
from tfod.detection.label_map import LabelMap, LabelMapItem

_FORMATS = frozenset(("coco", "coco_instances"))
_PREFIX, _ENDING = "instances_", ".json"
_SAME = 1.0  # pixels by which an outline's box may differ from bbox


@dataclass(frozen=True)
class CocoAnnotation:
    """An annotation as its file has it: x, y, width, height in pixels, and the area."""

    category: str
    box: tuple[float, float, float, float]
    area: float

    def is_still(self, category: str | None, corners: Corners) -> bool:
        """Whether an object is what was read: a transform may have changed it since."""
        left, top, right, bottom = corners
        now = (left, top, right - left, bottom - top)
        pairs = zip(self.box, now, strict=True)
        return category == self.category and all(abs(one - two) < _SAME for one, two in pairs)


class CocoSource:
    """The annotations of a dataset's COCO files, by subset and id.

    Args:
        paths: of the files, by subset.

    Raises:
        TfodError: one cannot be read.
    """

    def __init__(self, paths: dict[str, str]) -> None:
        self._annotations: dict[tuple[str, int], CocoAnnotation] = {}
        items: dict[int, LabelMapItem] = {}
        for subset, path in paths.items():
            found = read_coco(path, ("id", "category_id", "bbox", "area"))
            with sound_coco(path):
                names = {whole_number(one, "id"): str(one["name"]) for one in found.categories}
            for number, name in names.items():
                items.setdefault(number, LabelMapItem(number, name))
            for members in found.annotations.values():
                for one in members:
                    self._add(subset, one, names, path)
        self.label_map = LabelMap(tuple(items[number] for number in sorted(items)))

    @classmethod
    def of(cls, dataset: Any) -> CocoSource | None:
        """That of a dataset; None where it was not read from COCO, or the files are gone."""
        path = getattr(dataset, "data_path", None)
        if not path or getattr(dataset, "format", None) not in _FORMATS:
            return None
        files = {_subset(file): file for file in _files(path)}
        return cls(files) if files else None

    def find(self, subset: str, number: int) -> CocoAnnotation | None:
        """The annotation of this id."""
        return self._annotations.get((subset, number))

    def _add(self, subset: str, one: dict[str, Any], names: dict[int, str], path: str) -> None:
        with sound_coco(path):
            if not one.get("bbox") or one.get("area") is None:
                return
            x, y, width, height = numbers(one["bbox"], 4, "bbox")
            self._annotations[subset, whole_number(one, "id")] = CocoAnnotation(
                names[whole_number(one, "category_id")],
                (x, y, width, height),
                real_number(one["area"], "area"),
            )


def _files(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
        return
    for folder in (path, os.path.join(path, "annotations")):
        names: Sequence[str] = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
        for name in names:
            if name.startswith(_PREFIX) and name.endswith(_ENDING):
                yield os.path.join(folder, name)


def _subset(path: str) -> str:
    """As Datumaro names it."""
    return os.path.basename(path).removesuffix(_ENDING).removeprefix(_PREFIX)
