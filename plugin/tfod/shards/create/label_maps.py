"""Which label map a set of shards gets: the one that is named, is there already, or is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tfod.detection.label_map import LabelMap, load_label_map, read_label_map
from tfod.errors import TfodError
from tfod.tfrecord.label_files import LABEL_MAP_FILE

BACKGROUND = "background"
"""The only class that may have the id 0: label_map_util.py of the OD API."""


@dataclass(frozen=True)
class ChosenLabelMap:
    """A label map and what messages call it.

    Attributes:
        label_map: the classes.
        name: the file or name it came from; where it was made, what from.
        notes: liberties that were taken to read it.
    """

    label_map: LabelMap
    name: str
    notes: tuple[str, ...] = ()

    def id_of(self, text: str, where: str) -> int:
        """The id of a class.

        Raises:
            TfodError: the map lacks it.
        """
        item = self.label_map.find(text)
        if item is None:
            raise TfodError(
                f"{where}: class {text!r} is not in the label map {self.name}; add it there, or "
                "name another one"
            )
        return item.id


def choose_label_map(
    named: str | None, path: str, make: Callable[[], ChosenLabelMap]
) -> ChosenLabelMap:
    """The label map that was named, else the one in the shards' folder, else one that is made.

    Args:
        named: a file, or a name that tfod ships.
        path: of a shard to be written; the splits of a dataset in one folder get one map.
        make: makes one.

    Raises:
        LabelMapError: it cannot be read.
    """
    beside = os.path.join(os.path.dirname(path), LABEL_MAP_FILE)
    if named is not None:
        return named_label_map(named)
    if os.path.exists(beside):
        label_map, notes = read_label_map(beside)
        return ChosenLabelMap(label_map, beside, tuple(notes))
    return make()


def named_label_map(named: str) -> ChosenLabelMap:
    """A label map by its file, or by a name that tfod ships.

    Raises:
        LabelMapError: it cannot be read.
    """
    label_map, notes = load_label_map(named)
    return ChosenLabelMap(label_map, named, tuple(notes))


def must_write_label_map(chosen: ChosenLabelMap, folder: str, overwrite: bool) -> bool:
    """Whether the map has to be written into the folder; not where the same one is there.

    Raises:
        TfodError: another one is there.
    """
    beside = os.path.join(folder, LABEL_MAP_FILE)
    if not os.path.exists(beside):
        return True
    if read_label_map(beside)[0] == chosen.label_map:
        return False
    if overwrite:
        return True
    raise TfodError(
        f"{beside} is there already and is not {chosen.name}; write elsewhere, or over it with "
        "--overwrite"
    )
