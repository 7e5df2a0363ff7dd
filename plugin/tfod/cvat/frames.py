"""The frames of an export, as our exporter wants to see CVAT's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfod.datumaro.lines import AnnotationType, annotation

# CVAT's own notes on a shape, which mean nothing outside of it.
_INTERNAL = ("keyframe", "outside")
_FRAME_NUMBER = "frame"


@dataclass(frozen=True)
class ExportFrame:
    """One frame, with the fields of Datumaro's items that the exporter reads."""

    id: str
    subset: str
    media: Any
    annotations: list[Any]
    attributes: dict[str, Any]


class ExportFrames:
    """Walks through CVAT's extractor once, and counts.

    Groups of shapes are taken apart: the format has no key for them, and shapes that CVAT's users
    group are different objects. Parts of skeletons are no classes.
    """

    def __init__(self, extractor: Any, *, drop_empty: bool) -> None:
        self._extractor = extractor
        self._drop_empty = drop_empty
        self._frames = self._empty = self._objects = 0
        self._grouped = self._outside = 0
        labels = extractor.categories()[AnnotationType.label]
        kept = [place for place, one in enumerate(labels) if not one.parent]
        self._categories = {
            AnnotationType.label: annotation.LabelCategories.from_iterable(
                labels[place].name for place in kept
            )
        }
        # None where labels keep their numbers, which is nearly always.
        self._new_numbers = (
            None if len(kept) == len(labels) else {old: new for new, old in enumerate(kept)}
        )

    def __len__(self) -> int:
        return len(self._extractor)

    def __iter__(self) -> Iterator[ExportFrame]:
        for item in self._extractor:
            annotations = list(item.annotations)  # made when asked for, on newer servers
            size = item.media.size if item.media is not None and item.media.has_size else None
            if size is not None:
                annotations = [one for one in annotations if self._is_inside(one, size)]
            self._frames += 1
            self._empty += not annotations
            self._objects += len(annotations)
            if annotations or not self._drop_empty:
                for one in annotations:
                    self._free_of_cvat(one)
                attributes = {
                    name: value for name, value in item.attributes.items() if name != _FRAME_NUMBER
                }
                yield ExportFrame(item.id, item.subset, item.media, annotations, attributes)

    def categories(self) -> dict[Any, Any]:
        """Classes in the order of the task's labels."""
        return self._categories

    def subsets(self) -> dict[str, Any]:
        """Subsets that get a shard without a frame: all, or none if frames were dropped."""
        if self._drop_empty and self._empty < self._frames:
            return {}
        subsets: dict[str, Any] = self._extractor.subsets()
        return subsets

    def summary(self) -> str:
        """How much went past."""
        fate = "left out" if self._drop_empty else "kept"
        return (
            f"{self._frames} frames, {self._empty} of them without annotations ({fate}), "
            f"{self._objects} shapes and tags"
        )

    def losses(self) -> list[str]:
        """What the format could not take, beside what the exporter counts."""
        losses = []
        if self._grouped:
            losses.append(f"{self._grouped} grouped shapes written without their group")
        if self._outside:
            losses.append(f"{self._outside} shapes wholly outside of their picture not written")
        return losses

    def _is_inside(self, one: Any, size: tuple[int, int]) -> bool:
        """Whether any of a shape is in the picture, after its corners were put in order."""
        kind = one.type
        if kind is AnnotationType.bbox:
            left, top, right, bottom = one.points
            if left > right or top > bottom:  # by CVAT's API only
                left, right = sorted((left, right))
                top, bottom = sorted((top, bottom))
                one.points = [left, top, right, bottom]
            if one.attributes.get("rotation"):
                return True
        elif kind is AnnotationType.polygon:
            left, right = min(one.points[::2]), max(one.points[::2])
            top, bottom = min(one.points[1::2]), max(one.points[1::2])
        else:
            return True
        height, width = size
        if left <= width and top <= height and right >= 0 and bottom >= 0:
            return True
        self._outside += 1
        return False

    def _free_of_cvat(self, one: Any) -> None:
        """Drop what only CVAT understands; the annotation was made for this export alone."""
        for name in _INTERNAL:
            one.attributes.pop(name, None)
        if not one.attributes.get("rotation", True):
            del one.attributes["rotation"]  # 0 degrees
        if one.group:
            self._grouped += 1
            one.group = 0
        if self._new_numbers is not None and one.label is not None:
            one.label = self._new_numbers.get(one.label)
