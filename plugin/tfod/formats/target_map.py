"""The label map of a folder that is written to, which gives the classes their ids."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfod.detection.labels.dataset_classes import BACKGROUND, Classes
from tfod.detection.labels.label_map import LabelMap, LabelMapItem, decode_label_map, read_label_map
from tfod.detection.labels.labels_file import load_classes
from tfod.errors import LabelMapError
from tfod.sources.label_map_search import (
    LABEL_MAP_FILE,
    find_folder_label_map,
    list_label_maps,
    read_label_map_or_none,
)


class CompleteMap(NamedTuple):
    """A label map with all classes, what its file will hold, and sentences about added classes."""

    label_map: LabelMap
    content: bytes
    notes: Sequence[str]


@dataclass(frozen=True)
class TargetMap:
    """A label map whose ids the classes keep; other classes get ids above its highest.

    Attributes:
        path: its file in the folder that is written to.
        content: what the file holds; None for a file to be made.
        label_map: its classes.
        others: by file, label maps that must not give a class another id.
    """

    path: str
    content: bytes | None
    label_map: LabelMap
    others: Mapping[str, LabelMap]

    @classmethod
    def find(cls, folder: str, shards: Sequence[str], named: str | None) -> TargetMap | None:
        """Find the label map in a folder that readers of some shards would use; None without one.

        ``named`` is a file, or the name of a label map that tfod ships, with the same ids.

        Raises:
            LabelMapError: a label map cannot be read, or there are several.
        """
        folder = folder or os.curdir
        paths: set[str] = set()
        for shard in shards:
            own, several = find_folder_label_map(os.path.dirname(shard) or os.curdir, shard)
            if not own and not several:
                own, several = find_folder_label_map(folder, shard)
            paths.update(several or filter(None, [own]))
        if not paths:
            return None
        path = min(paths)
        if len(paths) > 1:
            names = ", ".join(sorted(paths))
            raise LabelMapError(f"{names}: keep only the label map that gives the ids")
        others = {
            one: label_map
            for one in list_label_maps(os.path.dirname(path))
            if one != path and (label_map := read_label_map_or_none(one))
        }
        if named is not None:
            others[named] = load_classes(named)[0]
        with open(path, "rb") as file:
            return cls(path, file.read(), read_label_map(path)[0], others)

    @classmethod
    def like(cls, folder: str, named: str) -> TargetMap:
        """A new label map in a folder, with the ids of a file or of one that tfod ships."""
        path = os.path.join(folder, LABEL_MAP_FILE)
        return cls(path, None, LabelMap(), {named: load_classes(named)[0]})

    @property
    def base(self) -> LabelMap:
        """Its own classes, and those of the others whose ids are free."""
        items = {item.id: item for item in self.label_map.items}
        for item in (item for other in self.others.values() for item in other.items):
            if self.label_map.find(item.class_name) is None:
                items.setdefault(item.id, item)
        return LabelMap(tuple(items.values()))

    def complete(self, classes: Classes, overwrite: bool) -> CompleteMap:
        """Add the classes of records that it lacks.

        Raises:
            LabelMapError: it lacks some and may not be overwritten, another label map gives one
                another id, or a class has the id 0.
        """
        zero = (self.base if self.content is None else self.label_map).find_id(0)
        if zero is not None and zero.class_name != BACKGROUND:
            cause = f"the class {zero.class_name!r} has the id 0, which is that of the background"
            raise LabelMapError(f"{self.path}: {cause}; number the classes from 1")
        for file, item in ((file, item) for file in self.others for item in classes.used):
            other = self.others[file].find(item.class_name)
            if other is not None and other.id != item.id:
                raise LabelMapError(
                    f"the class {item.class_name!r} has the id {item.id} by {self.path}, and "
                    f"{other.id} by {file}; correct one of them, or write to another folder"
                )
        own = self.base if self.content is None else self.label_map
        lacking = tuple(item for item in classes.used if own.find_id(item.id) is None)
        items = sorted((*own.items, *lacking), key=lambda item: item.id)
        added = ", ".join(f"{item.class_name!r} ({item.id})" for item in lacking)
        return CompleteMap(
            LabelMap(tuple(items)),
            self._content_with(lacking, overwrite) or LabelMap(tuple(items)).to_text().encode(),
            [f"classes added to the label map: {added}"] if added else [],
        )

    def _content_with(self, lacking: Sequence[LabelMapItem], overwrite: bool) -> bytes | None:
        """The content with more classes behind it; None for a file to be made."""
        if self.content is None or not lacking:
            return self.content
        if not overwrite:
            names = ", ".join(repr(item.class_name) for item in lacking)
            near = self.label_map.fuzzy_names.find_nearest(lacking[0].class_name)
            hint = f" (did you mean {near!r}?)" if near else ""
            fix = "add them to the file, or append them to it with --overwrite"
            raise LabelMapError(f"{self.path} lacks the classes {names}{hint}; {fix}")
        items, label_map = tuple(lacking), LabelMap()
        content = self.content.rstrip(b"\n") + b"\n" + LabelMap(items).to_text().encode()
        with contextlib.suppress(LabelMapError):
            label_map = decode_label_map(content, self.path)[0]
        if label_map.items != (*self.label_map.items, *items):
            raise LabelMapError(f"{self.path}: no class can be added to it; save it as UTF-8")
        return content
