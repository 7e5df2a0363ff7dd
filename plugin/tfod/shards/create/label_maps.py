"""Which label map a set of shards gets: the one that is named, is there already, or is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tfod.detection.labels.label_map import (
    LabelMap,
    load_label_map,
    read_label_map,
    shipped_label_map,
)
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.errors import TfodError

BACKGROUND = "background"
"""The only class that may have the id 0: label_map_util.py of the OD API."""


@dataclass(frozen=True)
class ChosenLabelMap:
    """A label map, what messages call it, and liberties that were taken to read it."""

    label_map: LabelMap
    name: str
    notes: tuple[str, ...] = ()

    def id_of(self, text: str, where: str) -> int:
        """The id of a class; raises TfodError where the map lacks it."""
        item = self.label_map.find(text)
        if item is None:
            near = self.label_map.near_names.nearest(text)
            hint = f", did you mean {near!r}? Correct it" if near else "; correct it"
            raise TfodError(
                f"{where}: class {text!r} is not in the label map {self.name}{hint}, add it to the "
                "label map, or name another one with --label-map"
            )
        return item.id


def choose_label_map(
    named: str | None, path: str, make: Callable[[], ChosenLabelMap]
) -> ChosenLabelMap:
    """The label map that was named, else the one beside a shard to be written, else a made one."""
    if named is not None:
        return named_label_map(named)
    beside = os.path.join(os.path.dirname(path), LABEL_MAP_FILE)
    if path and os.path.exists(beside):  # the splits of a dataset in one folder get one map
        label_map, notes = read_label_map(beside)
        return ChosenLabelMap(label_map, beside, tuple(notes))
    return make()


def named_label_map(named: str) -> ChosenLabelMap:
    """A label map by its file, or by a name that tfod ships; raises LabelMapError."""
    label_map, notes = load_label_map(named)
    return ChosenLabelMap(label_map, named, tuple(notes))


def made_label_map(names: Iterable[str], origin: str, shipped: str = "") -> ChosenLabelMap:
    """The label map that tfod ships if it has every class, else one of the names in their order."""
    names = list(names)
    ready = shipped_label_map(shipped) if shipped else None
    if ready and all(ready.find(name) for name in names):
        return ChosenLabelMap(ready, shipped)
    return ChosenLabelMap(LabelMap.from_names(names), origin)
