"""Search for the file next to a shard that names its classes: a label map or ``labels.txt``."""

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
from tfod.tfrecord.storage.open import find_zip_entry
from tfod.tfrecord.storage.remote import RemoteError, list_remote_folder
from tfod.tfrecord.storage.urls import get_folder, get_name, is_url

LABEL_MAP_FILE = "label_map.pbtxt"
LABELS_FILE = "labels.txt"
_LABEL_MAP = "label_map"


def may_be_label_map(path: str) -> bool:
    """Return whether a file name has the extension of a label map."""
    return path.lower().endswith(".pbtxt")


def list_label_maps(folder: str) -> list[str]:
    """Return the paths of possible label maps in a folder, a zip or a remote folder.

    The result is empty if a remote folder cannot be listed, as on many servers.
    """
    if is_url(folder):
        return list(filter(may_be_label_map, _remote_files(folder)))
    if os.path.isdir(folder):
        paths = filter(may_be_label_map, glob.glob(os.path.join(glob.escape(folder), "*")))
        return sorted(path for path in paths if not os.path.isdir(path))
    from tfod.tfrecord.storage.archive import list_zip_folder  # only needed for zips

    return sorted(filter(may_be_label_map, list_zip_folder(folder)))


def read_label_map_or_none(path: str) -> LabelMap | None:
    """Read a label map; None if the file is not a label map or has no classes."""
    try:
        label_map = read_label_map(path)[0]
    except LabelMapError:
        return None
    return label_map if label_map.items else None


class ShardClasses(NamedTuple):
    """The texts of the classes of the first objects of a shard; the ids if there are no texts."""

    texts: AbstractSet[str] = frozenset()
    ids: AbstractSet[int] = frozenset()

    def are_in(self, label_map: LabelMap) -> bool:
        """Return whether a label map contains any of the texts or, without texts, all ids."""
        if self.texts:
            return any(label_map.find_ids(text) for text in self.texts)
        return all(label_map.find_id(class_id) for class_id in self.ids)


class LabelMapFinder:
    """A search for the label maps of shards, which lists each folder only once.

    Args:
        read_classes: function that returns the first classes of a shard.
        list_texts: function that lists the possible label maps in a folder.
        read: function that reads a label map, or returns None if the file is not one.

    Attributes:
        notes: sentences about label maps in parent folders that were not used.
    """

    def __init__(
        self,
        read_classes: Callable[[str], ShardClasses],
        list_texts: Callable[[str], Sequence[str]] = list_label_maps,
        read: Callable[[str], LabelMap | None] = read_label_map_or_none,
    ) -> None:
        self._read_classes = functools.cache(read_classes)
        self._list_texts, self._read = list_texts, functools.cache(read)
        self._folders: dict[str, _Candidates] = {}
        self._first_shards: dict[str, str] = {}
        self.notes: list[str] = []

    def find(self, shard: str) -> tuple[str | None, Sequence[str]]:
        """Find the label map of a shard: next to it, or in the parent folder.

        The names are tried in this order: ``<stem>_label_map.pbtxt``, ``label_map.pbtxt``, other
        ``*label*map*.pbtxt``, other ``*.pbtxt``. If several match, files that are not label maps
        are ignored. A label map in the parent folder must contain the classes of the folder's first
        shard (:meth:`ShardClasses.are_in`).

        Returns:
            The path and an empty sequence; None and the candidates if the choice is ambiguous.
            Shards with the same candidates share one sequence object.
        """
        folder = get_folder(shard)
        stem = stated_name(shard).stem.lower()
        first = self._first_shards.setdefault(folder, shard)
        label_map, candidates = self._choose(folder, stem)
        parent = get_folder(folder)
        # Do not search above a zip or a bucket.
        if label_map or candidates or parent == folder or os.path.isfile(folder):
            return label_map, candidates
        label_map, candidates = self._choose(parent, stem)
        # Use an unreadable file, so that the error is reported when it is read.
        classes = self._read(label_map) if label_map is not None else None
        if classes is not None and not self._read_classes(first).are_in(classes):
            note = f"{label_map} was not used: it has none of the classes of {first}"
            self.notes += [note] if note not in self.notes else []
            return None, ()
        return label_map, candidates

    def _choose(self, folder: str, stem: str) -> tuple[str | None, Sequence[str]]:
        if folder not in self._folders:
            self._folders[folder] = _Candidates(self._list_texts(folder), self._read)
        return self._folders[folder].choose(stem)


class _Candidates:
    def __init__(self, paths: Sequence[str], read: Callable[[str], LabelMap | None]) -> None:
        self._read = read
        self._by_name: dict[str, list[str]] = {}
        self._choices: dict[str, tuple[str | None, Sequence[str]]] = {}
        label_maps: list[str] = []
        other_texts: list[str] = []
        for path in paths:
            root = get_name(path).lower().removesuffix(".pbtxt")
            plain = root.replace("-", "_").replace(" ", "_").replace("labelmap", _LABEL_MAP)
            self._by_name.setdefault(plain, []).append(path)
            if "label" in plain and "map" in plain:
                label_maps.append(path)
            # Pipeline and graph files are protobuf text, too.
            elif not re.search(r"graph|pipeline|config|solver|train_val", root):
                other_texts.append(path)
        self._by_name.setdefault(_LABEL_MAP, label_maps or other_texts)

    def choose(self, stem: str) -> tuple[str | None, Sequence[str]]:
        """Return the best label map for shards with this stem; as :meth:`LabelMapFinder.find`."""
        stems = stem, stem.rstrip("0123456789").rstrip("-_. ")  # train_000 may belong to train
        names = (f"{stem}_{_LABEL_MAP}" for stem in stems)
        name = next((name for name in names if name in self._by_name), _LABEL_MAP)
        if name not in self._choices:
            matches = self._by_name[name]
            readable = list(filter(self._read, matches)) if len(matches) > 1 else matches
            is_unique = len(readable) == 1
            self._choices[name] = (readable[0], ()) if is_unique else (None, tuple(matches))
        return self._choices[name]


def find_folder_label_map(folder: str, shard: str) -> tuple[str | None, Sequence[str]]:
    """Find the label map of a shard in a folder, ignoring other protobuf text.

    Files whose name contains ``label`` are not ignored. Returns as :meth:`LabelMapFinder.find`.
    """
    paths = list_label_maps(folder) if os.path.isdir(folder) else ()
    paths = [path for path in paths if is_named_label_map(path) or read_label_map_or_none(path)]
    return _Candidates(paths, read_label_map_or_none).choose(stated_name(shard).stem.lower())


def is_named_label_map(path: str) -> bool:
    """Return whether a file name contains ``label``; other protobuf text rarely does."""
    return "label" in os.path.basename(path).lower()


def find_labels(folder: str) -> str | None:
    """Find the ``labels.txt`` of the shards in a folder: there or in the parent folder, or None."""
    parent = folder if os.path.isfile(folder) else get_folder(folder)  # do not search above a zip
    for candidate in dict.fromkeys((folder, parent)):
        if is_url(candidate):
            for url in _remote_files(candidate):
                if get_name(url) == LABELS_FILE:
                    return url
            continue
        path = os.path.join(candidate, LABELS_FILE)
        if os.path.isfile(path) or find_zip_entry(path) is not None:
            return path
    return None


def _remote_files(folder: str) -> list[str]:
    try:
        return list_remote_folder(folder)
    except RemoteError:
        return []
