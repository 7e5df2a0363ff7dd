"""Which label map goes with a shard (named, beside it, or in its folder), and what is in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property

from tfod.check.dataset import LabelMapFile
from tfod.detection.labels.label_map import (
    LONGEST_LABEL_MAP,
    decode_label_map,
    load_label_map,
    read_text_file,
)
from tfod.errors import LabelMapError, TfodError
from tfod.tfrecord.label_files import (
    LabelMapFinder,
    is_named_label_map,
    label_maps_in,
    may_be_label_map,
)
from tfod.tfrecord.shard_sets.names import parse_shard_name
from tfod.tfrecord.shard_sets.search import files_below
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.urls import absolute, folder_of, is_url, name_of


class LabelMapSearch:
    """Finds label maps, and calls them as the user has called the shards.

    Args:
        named: those that the user has named. A single one goes with all shards, but for those that
            have one of their own where it lies beside others; of several each goes with the shards
            of its folder.
        is_given: whether there is one for all shards already.
    """

    def __init__(self, named: Sequence[str] = (), is_given: bool = False) -> None:
        self._is_given = is_given
        self.for_all = named[0] if len(named) == 1 and not is_given else None
        self._named: dict[str, list[str]] = {}
        for path in named:
            self._named.setdefault(folder_of(path), []).append(path)
        self._finder = LabelMapFinder(self._texts_in)

    def of(self, shard: str) -> tuple[str | None, tuple[str, ...]]:
        """The label map of a shard; or those that fit equally well, when there are several."""
        if self._is_given or (self.for_all and not self._has_other_shards(folder_of(shard))):
            return self.for_all, ()
        found, candidates = _called_as(shard, *self._finder.find(shard))
        return (found or self.for_all), () if self.for_all else candidates

    def for_zip(self, path: str) -> str | None:
        """The one that was named for a zip, in place of those in it."""
        return None if self._has_other_shards(folder_of(path)) else self.for_all

    def _has_other_shards(self, folder: str) -> bool:
        """Whether the single named one lies in another folder than this, beside shards there.

        pre-commit names what has changed: a label map of one dataset, and shards of another.
        """
        return folder_of(self.for_all or "") != folder and self._is_beside_shards

    @cached_property
    def _is_beside_shards(self) -> bool:
        return self.for_all is not None and bool(shards_beside(self.for_all))

    def within(self, root: str, shards: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Label maps of shards that have none beside them: further up, or in a sibling folder.

        From the shard's folder up to the root the nearest one counts: in that folder itself, or in
        a folder below it where there are no shards.

        Args:
            root: the folder that was searched for shards.
            shards: all shards in it.

        Returns:
            By shard the one that fits best, or several that fit equally well.
        """
        top = absolute(root)
        busy = {folder for shard in shards for folder in _up_to(top, folder_of(shard))}
        inside: dict[str, list[str]] = {}
        below: dict[str, list[str]] = {}
        for path in files_below(root):
            if may_be_label_map(path) and is_named_label_map(path):
                folder = folder_of(path)
                inside.setdefault(folder, []).append(path)
                if folder not in busy:
                    below.setdefault(os.path.dirname(folder), []).append(path)
        finder = LabelMapFinder(lambda folder: inside.get(folder) or below.get(folder) or ())
        found = {}
        for shard in shards:
            for where in _up_to(top, folder_of(shard)):
                best, candidates = _called_as(
                    shard, *finder.find(os.path.join(where, name_of(shard)))
                )
                if best or candidates:
                    found[shard] = (best,) if best else candidates
                    break
        return found

    def _texts_in(self, folder: str) -> Sequence[str]:
        return self._named.get(folder) or label_maps_in(folder)


def shards_beside(label_map: str) -> list[str]:
    """The shards in the folder of a label map; of one in a bucket none."""
    folder = os.path.dirname(label_map)
    if is_url(label_map) or not os.path.isdir(folder or os.curdir):
        return []
    names = sorted(os.listdir(folder or os.curdir))
    return [os.path.join(folder, name) for name in names if parse_shard_name(name)]


def _up_to(top: str, folder: str) -> list[str]:
    found = [folder]
    while folder != top and len(folder) > len(top):
        folder = os.path.dirname(folder)
        found.append(folder)
    return found


def _called_as(
    shard: str, found: str | None, candidates: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Paths that are relative where the shard's is."""
    if is_url(shard) or os.path.isabs(shard):
        return found, tuple(candidates)
    return found and os.path.relpath(found), tuple(map(os.path.relpath, candidates))


def label_map_file(data: bytes, name: str, path: str) -> LabelMapFile:
    """A label map from bytes, which may be none; longer ones than are read need not be complete."""
    try:
        label_map, liberties = decode_label_map(data, name)
    except LabelMapError as error:
        return LabelMapFile(name, None, str(error), path=path, data=data)
    return LabelMapFile(name, label_map, "", liberties, path, data)


def read_label_map(name: str, path: str) -> LabelMapFile:
    """The label map of a file or a URL, under its name in reports."""
    try:
        return label_map_file(read_text_file(path, LONGEST_LABEL_MAP), name, path)
    except LabelMapError as error:
        return LabelMapFile(name, None, str(error), path=path)


def named_label_map(name: str) -> LabelMapFile:
    """The one that the user has named for all shards: a file, or a name of one that tfod ships.

    Raises:
        LabelMapError: there is none.
    """
    try:
        label_map, liberties = load_label_map(name)
    except LabelMapError as error:
        if not _is_there(name):
            raise
        return LabelMapFile(name, None, str(error), path=name)
    return LabelMapFile(name, label_map, "", liberties, name)


def _is_there(name: str) -> bool:
    if not is_url(name):
        return os.path.isfile(name)
    try:
        with open_shard(name):
            return True
    except (OSError, TfodError):
        return False
