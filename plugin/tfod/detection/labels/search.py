"""Which file beside a shard names its classes: a label map, or what other formats have instead."""

from __future__ import annotations

import functools
import glob
import os
import re
from collections.abc import Callable, Sequence

from tfod.detection.labels.label_map import read_label_map
from tfod.errors import LabelMapError
from tfod.tfrecord.shard_sets.names import stated_name
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


def is_label_map(path: str) -> bool:
    """Whether a file can be read as a label map, and has classes."""
    try:
        return bool(read_label_map(path)[0].items)
    except LabelMapError:
        return False


def find_label_map(shard: str) -> tuple[str | None, list[str]]:
    """Find the label map that goes with one shard; as :meth:`LabelMapFinder.find`."""
    found, candidates = LabelMapFinder().find(shard)
    return found, list(candidates)


class LabelMapFinder:
    """Finds the label maps of many shards, each folder looked at once: the only way to find them.

    Args:
        texts_in: lists the files of a folder that may be label maps.
        is_one: whether such a file is one.
    """

    def __init__(
        self,
        texts_in: Callable[[str], Sequence[str]] = label_maps_in,
        is_one: Callable[[str], bool] = is_label_map,
    ) -> None:
        self._texts_in, self._is_one = texts_in, is_one
        self._folders: dict[str, _Candidates] = {}

    def find(self, shard: str) -> tuple[str | None, Sequence[str]]:
        """Find the label map that goes with a shard: beside it, or one folder up.

        In each folder the best name wins: ``<stem>_label_map.pbtxt``, ``label_map.pbtxt``, another
        ``*label*map*.pbtxt``, or another ``*.pbtxt``. Of several with equally good names the only
        one that can be read as a label map is taken.

        Returns:
            Its path or None, and the candidates when there are still several (then None): of all
            shards that have the same ones the same object.
        """
        folder = folder_of(shard)
        stem = stated_name(shard).stem.lower()
        places = [folder, folder_of(folder)]
        # A zip is the top; so is a bucket.
        for where in places[:1] if os.path.isfile(folder) else dict.fromkeys(places):
            if where not in self._folders:
                self._folders[where] = _Candidates(self._texts_in(where), self._is_one)
            found, several = self._folders[where].best(stem)
            if found or several:
                return found, several
        return None, ()


class _Candidates:
    """The label maps that lie in one folder, by what their names say."""

    def __init__(self, paths: Sequence[str], is_one: Callable[[str], bool]) -> None:
        self._is_one = is_one
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
            readable = list(filter(self._is_one, fitting)) if len(fitting) > 1 else fitting
            one = len(readable) == 1
            self._decided[name] = (readable[0], ()) if one else (None, tuple(fitting))
        return self._decided[name]


def is_named_label_map(path: str) -> bool:
    """Whether a file's name says that it is a label map, as opposed to some protobuf text."""
    return "label" in os.path.basename(path).lower()


def find_labels(folder: str) -> str | None:
    """The ``labels.txt`` that goes with the shards in a folder: in it, or one up; None without one.

    Raises:
        ShardError: they are in a zip that is damaged.
    """
    for where in dict.fromkeys((folder, folder_of(folder))):
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


def label_maps_of(paths: Sequence[str], notes: list[str]) -> dict[str, str | None]:
    """The label map, or the ``labels.txt``, of each shard; None where it has neither.

    Shards beside which several label maps lie are noted; none of these is theirs.
    """
    finder, labels_for = LabelMapFinder(), functools.cache(find_labels)
    found: dict[str, str | None] = {}
    for path in paths:
        label_map, candidates = finder.find(path)
        if candidates:
            names = ", ".join(candidates)
            notes.append(f"{path}: several label maps are there, none was used: {names}")
        found[path] = label_map or (None if candidates else labels_for(folder_of(path)))
    return found
