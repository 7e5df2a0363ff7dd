"""What training reads: which shards, and which id a class text stands for.

Shared by the ways into TensorFlow and PyTorch, so that both read the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from tfod.detection.labels.label_map import LabelMap, load_label_map, read_label_map
from tfod.detection.labels.search import LabelMapFinder
from tfod.errors import LabelMapError
from tfod.tfrecord.shard_sets.search import find_all_shards

UNKNOWN = -1
"""The id of a class that the label map does not have, as the OD API's decoder gives it."""

LabelMapLike = str | os.PathLike[str] | LabelMap
"""A label map, the path of one, or the name of one that tfod ships."""


def shards_to_read(source: str | os.PathLike[str]) -> list[str]:
    """The paths of the shards that a file, a folder or a glob means, in order.

    Warns of shards that the numbering ``-of-N`` promises and that are not there.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: all shards of a set are empty.
    """
    sets = find_all_shards(source)
    missing = [name for one in sets for name in one.missing]
    if missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        warnings.warn(
            f"{os.fspath(source)}: shards are missing from a numbered set: {shown}", stacklevel=3
        )
    return [path for one in sets for path in one.paths]


@dataclass(frozen=True)
class ClassIds:
    """The ids of class texts.

    Attributes:
        by_text: every name and display name of the label map; of two items that one text names,
            the decoder takes the larger id, and the later item of two with equal names.
        has_zero: whether the map has a class of id 0.
    """

    by_text: dict[str, int]
    has_zero: bool

    @classmethod
    def of(cls, label_map: LabelMap) -> ClassIds:
        """Make the table of a label map."""
        by_name = {item.name: item.id for item in label_map.items}
        by_display_name = {item.display_name: item.id for item in label_map.items}
        by_text = {
            text: max(by_name.get(text, UNKNOWN), by_display_name.get(text, UNKNOWN))
            for text in {**by_name, **by_display_name}
            if text
        }
        return cls(by_text, any(item.id == 0 for item in label_map.items))

    def ids(
        self, texts: Sequence[str] | None, labels: Sequence[int] | None, count: int
    ) -> list[int]:
        """The ids of one record's objects: by text, by id where there is no text."""
        ids = list(labels or [UNKNOWN] * count)
        for number, text in enumerate(texts or ()):
            if text:
                ids[number] = self.by_text.get(text, UNKNOWN)
            elif ids[number] == 0 and not self.has_zero:
                # Datumaro writes 0 and an empty text for an object without a class.
                ids[number] = UNKNOWN
        return ids


def label_map_for(paths: Sequence[str], given: LabelMapLike | None) -> LabelMap | None:
    """The label map of shards: the one that is given, or the one that lies beside them, if any.

    Raises:
        LabelMapError: a map cannot be read, or it is not plain which map the shards go with.
    """
    if isinstance(given, LabelMap):
        return given
    if given is not None:
        return load_label_map(given)[0]
    maps: dict[str, LabelMap] = {}
    without: list[str] = []
    finder = LabelMapFinder()
    for path in paths:
        found, several = finder.find(path)
        if several:
            raise LabelMapError(
                f"{path}: several label maps lie beside it ({', '.join(several)}); "
                "choose one by label_map="
            )
        if found is None:
            without.append(path)
        elif found not in maps:
            maps[found] = read_label_map(found)[0]
    first, *others = maps.items() or [(None, None)]
    for name, other in others:
        if other != first[1]:
            raise LabelMapError(
                f"{first[0]} and {name} differ, and ids mean nothing without their map; "
                "put the shards together with tfod reshard, or choose a map by label_map="
            )
    if maps and without:
        raise LabelMapError(
            f"{without[0]}: no label map lies beside it, but {first[0]} beside others; "
            "choose it by label_map="
        )
    return first[1]
