"""Which file next to a shard names its classes: a label map, or a ``labels.txt``."""

from __future__ import annotations

import functools
import glob
import os
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tfod.detection.labels.label_map import LabelMap, read_label_map
from tfod.errors import LabelMapError
from tfod.tfrecord.shard_sets.shard_names import stated_name
from tfod.tfrecord.storage.open import zip_entry
from tfod.tfrecord.storage.remote import RemoteError, files_in_folder
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of

LABEL_MAP_FILE = "label_map.pbtxt"
LABELS_FILE = "labels.txt"
_LABEL_MAP = "label_map"


def may_be_label_map(path: str) -> bool:
    """Whether a file has the name of a label map."""
    return path.lower().endswith(".pbtxt")


def label_maps_in(folder: str) -> list[str]:
    """Paths of the files in a folder that may be label maps; it may be one of a zip or a URL.

    A remote folder that cannot be listed has none: many servers list nothing at all.
    """
    if is_url(folder):
        return list(filter(may_be_label_map, _remote_files(folder)))
    if os.path.isdir(folder):
        found = filter(may_be_label_map, glob.glob(os.path.join(glob.escape(folder), "*")))
        return sorted(path for path in found if not os.path.isdir(path))
    from tfod.tfrecord.storage.archive import files_in  # needed for zips alone

    return sorted(filter(may_be_label_map, files_in(folder)))


def read_label_map_or_none(path: str) -> LabelMap | None:
    """Read a label map; None if the file is not a label map or has no classes."""
    try:
        label_map = read_label_map(path)[0]
    except LabelMapError:
        return None
    return label_map if label_map.items else None


class ClassesOfShard(NamedTuple):
    """The classes of the first objects of a shard: their texts, or their ids if none has a text."""

    texts: AbstractSet[str] = frozenset()
    ids: AbstractSet[int] = frozenset()

    def are_in(self, label_map: LabelMap) -> bool:
        """Whether a label map has one of the texts or, if there are none, all ids."""
        if self.texts:
            return any(label_map.find_ids(text) for text in self.texts)
        return all(label_map.find_id(class_id) for class_id in self.ids)


class LabelMapFinder:
    """Finds the label maps of many shards, each folder looked at once: the only way to find them.

    Args:
        classes_of: returns the first classes of a shard, by its path.
        texts_in: lists the files of a folder that may be label maps.
        read: reads such a file; returns None if it is not a label map.

    Attributes:
        notes: which label maps one folder up were not used, as sentences.
    """

    def __init__(
        self,
        classes_of: Callable[[str], ClassesOfShard],
        texts_in: Callable[[str], Sequence[str]] = label_maps_in,
        read: Callable[[str], LabelMap | None] = read_label_map_or_none,
    ) -> None:
        self._classes_of = functools.cache(classes_of)
        self._texts_in, self._read = texts_in, functools.cache(read)
        self._folders: dict[str, _Candidates] = {}
        self._first_of_folder: dict[str, str] = {}
        self.notes: list[str] = []

    def find(self, shard: str) -> tuple[str | None, Sequence[str]]:
        """Find the label map that goes with a shard: next to it, or one folder up.

        In each folder the best name wins: ``<stem>_label_map.pbtxt``, ``label_map.pbtxt``, another
        ``*label*map*.pbtxt``, or another ``*.pbtxt``. Of several with equally good names the only
        one that can be read as a label map is taken. One folder up, a label map must have the
        classes of the first shard of the folder (:meth:`ClassesOfShard.are_in`).

        Returns:
            Its path or None, and the candidates when there are still several (then None): of all
            shards that have the same ones the same object.
        """
        folder = folder_of(shard)
        stem = stated_name(shard).stem.lower()
        first = self._first_of_folder.setdefault(folder, shard)
        label_map, several = self._best(folder, stem)
        above = folder_of(folder)
        # A zip is the top; so is a bucket.
        if label_map or several or above == folder or os.path.isfile(folder):
            return label_map, several
        label_map, several = self._best(above, stem)
        if label_map is not None and not self._has_classes(label_map, first):
            note = f"{label_map} was not used: it has none of the classes of {first}"
            self.notes += [note] if note not in self.notes else []
            return None, ()
        return label_map, several

    def _has_classes(self, path: str, shard: str) -> bool:
        label_map = self._read(path)
        # A file that is not a label map is taken, so that its reader says what is wrong with it.
        return label_map is None or self._classes_of(shard).are_in(label_map)

    def _best(self, folder: str, stem: str) -> tuple[str | None, Sequence[str]]:
        if folder not in self._folders:
            self._folders[folder] = _Candidates(self._texts_in(folder), self._read)
        return self._folders[folder].best(stem)


class _Candidates:
    """The label maps in one folder, by what their names say."""

    def __init__(self, paths: Sequence[str], read: Callable[[str], LabelMap | None]) -> None:
        self._read = read
        self._by_name: dict[str, list[str]] = {}
        self._decided: dict[str, tuple[str | None, Sequence[str]]] = {}
        named: list[str] = []
        others: list[str] = []
        for path in paths:
            root = name_of(path).lower().removesuffix(".pbtxt")
            plain = root.replace("-", "_").replace(" ", "_").replace("labelmap", _LABEL_MAP)
            self._by_name.setdefault(plain, []).append(path)
            if "label" in plain and "map" in plain:
                named.append(path)
            # pipeline and graph files are protobuf text too
            elif not re.search(r"graph|pipeline|config|solver|train_val", root):
                others.append(path)
        self._by_name.setdefault(_LABEL_MAP, named or others)

    def best(self, stem: str) -> tuple[str | None, Sequence[str]]:
        """The one that fits a shard of this stem best, or several."""
        stems = stem, stem.rstrip("0123456789").rstrip("-_. ")  # train_000 may be one of train
        own = (f"{one}_{_LABEL_MAP}" for one in stems)
        name = next((one for one in own if one in self._by_name), _LABEL_MAP)
        if name not in self._decided:
            fitting = self._by_name[name]
            readable = list(filter(self._read, fitting)) if len(fitting) > 1 else fitting
            one = len(readable) == 1
            self._decided[name] = (readable[0], ()) if one else (None, tuple(fitting))
        return self._decided[name]


def find_in_folder(folder: str, shard: str) -> tuple[str | None, Sequence[str]]:
    """Find the label map for a shard in one folder; returns as :meth:`LabelMapFinder.find`.

    Files that turn out to be other protobuf text are left out, unless they are named as label maps.
    """
    paths = label_maps_in(folder) if os.path.isdir(folder) else ()
    paths = [path for path in paths if is_named_label_map(path) or read_label_map_or_none(path)]
    return _Candidates(paths, read_label_map_or_none).best(stated_name(shard).stem.lower())


def is_named_label_map(path: str) -> bool:
    """Whether a file's name says that it is a label map, as opposed to some protobuf text."""
    return "label" in os.path.basename(path).lower()


def find_labels(folder: str) -> str | None:
    """The ``labels.txt`` that goes with the shards in a folder: in it, or one up; None without one.

    Raises:
        ShardError: they are in a zip that is damaged.
    """
    # A zip is the top.
    for where in dict.fromkeys((folder, folder if os.path.isfile(folder) else folder_of(folder))):
        if is_url(where):
            for url in _remote_files(where):
                if name_of(url) == LABELS_FILE:
                    return url
            continue
        path = os.path.join(where, LABELS_FILE)
        if os.path.isfile(path) or zip_entry(path) is not None:
            return path
    return None


def _remote_files(folder: str) -> list[str]:
    try:
        return files_in_folder(folder)
    except RemoteError:
        return []
