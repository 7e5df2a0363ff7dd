"""The label map of a folder that is written to, which gives the classes their ids."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfod.detection.labels.dataset_classes import BACKGROUND, Classes
from tfod.detection.labels.label_map import LabelMap, decode_label_map, read_label_map
from tfod.detection.labels.labels_file import load_classes
from tfod.detection.labels.search import (
    LABEL_MAP_FILE,
    LabelMapFinder,
    is_named_label_map,
    label_maps_in,
)
from tfod.errors import LabelMapError


class Completed(NamedTuple):
    """A label map that has all classes: the content of its file, and the classes added to it."""

    label_map: LabelMap
    content: bytes
    added: Sequence[str]

    @property
    def notes(self) -> Sequence[str]:
        """The added classes as a sentence, if there are any."""
        return [f"classes added to the label map: {', '.join(self.added)}"] if self.added else []


@dataclass(frozen=True)
class TargetMap:
    """A label map whose ids the classes keep; other classes get ids above its highest.

    Attributes:
        path: its file in the folder that is written to.
        content: what the file holds; None if it does not exist yet.
        label_map: its classes.
        others: by file, label maps that must not give a class another id.
    """

    path: str
    content: bytes | None
    label_map: LabelMap
    others: Mapping[str, LabelMap]

    @classmethod
    def find(cls, folder: str, shards: Sequence[str], named: str | None = None) -> TargetMap | None:
        """Find the label map that the readers of some shards would find; None without one.

        Args:
            folder: folder to write; label maps above it are not looked at.
            shards: paths of the shards, one per subset.
            named: a file, or the name of a label map that tfod ships, with the same ids.

        Raises:
            LabelMapError: a label map cannot be read, or there are several.
        """
        maps: dict[str, LabelMap] = {}
        by_folder: dict[str, list[str]] = {}
        for one in dict.fromkeys((folder, *map(os.path.dirname, shards))):
            readable = by_folder[os.path.abspath(one)] = []
            for path in label_maps_in(one or ".") if os.path.isdir(one or ".") else ():
                try:
                    maps[path] = read_label_map(path)[0]
                    readable.append(path)
                except LabelMapError:
                    if is_named_label_map(path):
                        raise
        finder = LabelMapFinder(lambda one: by_folder.get(one, ()))
        results = [finder.find(shard) for shard in shards]
        found = sorted({path for path, several in results for path in several or (path,) if path})
        if not found:
            return None
        if len(found) > 1:
            raise LabelMapError(
                f"{', '.join(found)}: which of these has the ids is unknown; keep one of them"
            )
        path, own = found[0], maps.pop(found[0])
        if named is not None:
            maps[named] = load_classes(named)[0]
        with open(path, "rb") as file:
            return cls(path, file.read(), own, maps)

    @classmethod
    def like(cls, folder: str, named: str) -> TargetMap:
        """A new label map in a folder, with the ids of a file or of one that tfod ships."""
        path = os.path.join(folder, LABEL_MAP_FILE)
        return cls(path, None, LabelMap(), {named: load_classes(named)[0]})

    @property
    def base(self) -> LabelMap:
        """The classes whose ids are known: its own, and those of others with an id that is free."""
        items = {item.id: item for item in self.label_map.items}
        for item in (item for other in self.others.values() for item in other.items):
            if self.label_map.find(item.class_name) is None:
                items.setdefault(item.id, item)
        return LabelMap(tuple(items.values()))

    def complete(self, classes: Classes, overwrite: bool) -> Completed:
        """Add the classes of records that it lacks.

        Raises:
            LabelMapError: it lacks some and may not be overwritten, another label map gives one
                another id, or a class has the id 0.
        """
        zero = self.base.find_id(0) if self.content is None else self.label_map.find_id(0)
        if zero is not None and zero.class_name != BACKGROUND:
            raise LabelMapError(
                f"{self.path}: the class {zero.class_name!r} has the id 0, which is that of the "
                "background; number the classes from 1"
            )
        for item in classes.used:
            for file, other in self.others.items():
                known = other.find(item.class_name)
                if known is not None and known.id != item.id:
                    raise LabelMapError(
                        f"the class {item.class_name!r} has the id {item.id} by {self.path}, and "
                        f"{known.id} by {file}; correct one of them, or write to another folder"
                    )
        if self.content is None:
            known_ids = {item.id for item in self.base.items}
            added = [f"{x.class_name!r} ({x.id})" for x in classes.used if x.id not in known_ids]
            label_map = classes.label_map
            return Completed(label_map, label_map.to_text().encode(), added)
        lacking = tuple(x for x in classes.used if self.label_map.find_id(x.id) is None)
        if lacking and not overwrite:
            near = self.label_map.near_names.nearest(lacking[0].class_name)
            raise LabelMapError(
                f"{self.path} lacks the classes {', '.join(repr(x.class_name) for x in lacking)}"
                + (f" (did you mean {near!r}?)" if near else "")
                + "; add them to the file, or append them to it with --overwrite"
            )
        content, label_map = self.content, LabelMap()
        if lacking:
            content = content.rstrip(b"\n") + b"\n" + LabelMap(lacking).to_text().encode()
            with contextlib.suppress(LabelMapError):
                label_map = decode_label_map(content, self.path)[0]
            if label_map.items != (*self.label_map.items, *lacking):
                raise LabelMapError(f"{self.path}: no class can be added to it; save it as UTF-8")
        items = sorted((*self.label_map.items, *lacking), key=lambda item: item.id)
        added = [f"{x.class_name!r} ({x.id})" for x in lacking]
        return Completed(LabelMap(tuple(items)), content, added)
