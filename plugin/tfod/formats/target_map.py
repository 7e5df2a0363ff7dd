"""The label map of the output folder, which determines the ids of the classes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfod.detection.labels.dataset_classes import BACKGROUND, Classes
from tfod.detection.labels.label_map import LabelMap, LabelMapItem, decode_label_map, read_label_map
from tfod.detection.labels.labels_file import load_classes
from tfod.errors import LabelMapError, excerpt
from tfod.sources.label_map_search import (
    LABEL_MAP_FILE,
    find_folder_label_map,
    list_label_maps,
    read_label_map_or_none,
)


class CompleteMap(NamedTuple):
    """A label map with all classes, the content of its file, and notes about added classes."""

    label_map: LabelMap
    content: bytes
    notes: Sequence[str]


@dataclass(frozen=True)
class TargetMap:
    """A label map whose classes keep their ids; new classes get ids above its highest.

    Attributes:
        path: path of the file in the output folder.
        content: content of the file; None if it is new.
        label_map: classes of the file.
        other_maps: label maps that must not give a class a different id, by file.
    """

    path: str
    content: bytes | None
    label_map: LabelMap
    other_maps: Mapping[str, LabelMap]

    @classmethod
    def find(cls, folder: str, shards: Sequence[str], requested: str | None) -> TargetMap | None:
        """Find the label map that readers of some shards would use.

        Args:
            folder: output folder.
            shards: paths of the shards, which may be in subfolders.
            requested: path of another label map, or name of a shipped one; its ids must agree.

        Raises:
            LabelMapError: a label map cannot be read, or there are several.
        """
        folder = folder or os.curdir
        paths: set[str] = set()
        for shard in shards:
            nearest, several = find_folder_label_map(os.path.dirname(shard) or os.curdir, shard)
            if not nearest and not several:
                nearest, several = find_folder_label_map(folder, shard)
            paths.update(several or filter(None, [nearest]))
        if not paths:
            return None
        path = min(paths)
        if len(paths) > 1:
            names = ", ".join(sorted(paths))
            raise LabelMapError(f"{names}: keep only the label map with the correct ids")
        other_maps = {
            other: label_map
            for other in list_label_maps(os.path.dirname(path))
            if other != path and (label_map := read_label_map_or_none(other))
        }
        if requested is not None:
            other_maps[requested] = load_classes(requested)[0]
        with open(path, "rb") as file:
            return cls(path, file.read(), read_label_map(path)[0], other_maps)

    @classmethod
    def create(cls, folder: str, requested: str) -> TargetMap:
        """Create a label map in a folder, with the ids of a file or of a shipped label map."""
        path = os.path.join(folder, LABEL_MAP_FILE)
        return cls(path, None, LabelMap(), {requested: load_classes(requested)[0]})

    @property
    def base(self) -> LabelMap:
        """The label map, with those classes of other label maps whose ids are free."""
        items = {item.id: item for item in self.label_map.items}
        for item in (item for label_map in self.other_maps.values() for item in label_map.items):
            if self.label_map.find(item.class_name) is None:
                items.setdefault(item.id, item)
        return LabelMap(tuple(items.values()))

    def complete(self, classes: Classes, overwrite: bool) -> CompleteMap:
        """Add the classes of the records that are missing.

        Raises:
            LabelMapError: a class is missing and the file may not be overwritten, another label
                map gives a class a different id, or a class has the id 0.
        """
        present = self.base if self.content is None else self.label_map
        zero = present.find_id(0)
        if zero is not None and zero.class_name != BACKGROUND:
            cause = (
                f"class {excerpt(zero.class_name)} has the id 0, which is reserved for the "
                "background"
            )
            raise LabelMapError(f"{self.path}: {cause}; number the classes from 1")
        for file, item in ((file, item) for file in self.other_maps for item in classes.used):
            other = self.other_maps[file].find(item.class_name)
            if other is not None and other.id != item.id:
                raise LabelMapError(
                    f"class {excerpt(item.class_name)} has the id {item.id} in {self.path}, but "
                    f"{other.id} in {file}; correct one of them, or write to another folder"
                )
        missing = tuple(item for item in classes.used if present.find_id(item.id) is None)
        items = sorted((*present.items, *missing), key=lambda item: item.id)
        label_map = LabelMap(tuple(items))
        added = ", ".join(f"{excerpt(item.class_name)} ({item.id})" for item in missing)
        return CompleteMap(
            label_map,
            self._append(missing, overwrite) or label_map.to_text().encode(),
            [f"classes added to the label map: {added}"] if added else [],
        )

    def _append(self, missing: Sequence[LabelMapItem], overwrite: bool) -> bytes | None:
        """Return the content with the missing classes appended, or None for a new file."""
        if self.content is None or not missing:
            return self.content
        if not overwrite:
            names = ", ".join(repr(item.class_name) for item in missing)
            near = self.label_map.fuzzy_names.find_nearest(missing[0].class_name)
            hint = f" (did you mean {excerpt(near)}?)" if near else ""
            fix = "add them to the file, or append them with --overwrite"
            raise LabelMapError(f"{self.path} lacks the classes {names}{hint}; {fix}")
        items, label_map = tuple(missing), LabelMap()
        content = self.content.rstrip(b"\n") + b"\n" + LabelMap(items).to_text().encode()
        with contextlib.suppress(LabelMapError):
            label_map = decode_label_map(content, self.path)[0]
        if label_map.items != (*self.label_map.items, *items):
            raise LabelMapError(f"{self.path}: classes cannot be appended; save it as UTF-8")
        return content
