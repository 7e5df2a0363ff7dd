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
        self._frames = self._empty = self._objects = self._grouped = 0
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
        """By name, for a shard that is empty on purpose: only where there is nothing to say."""
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
        count = self._grouped
        return [f"{count} grouped shapes written without their group"] if count else []

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
