"""The folder that an export writes to: shards and label map appear together, stale ones go."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable

from tfod import keys
from tfod.compression import Compression
from tfod.damage import HEADER_BYTES
from tfod.errors import ShardsNotFoundError
from tfod.example import Example
from tfod.records import read_records, shard_compression
from tfod.shards import SHARD_EXTENSIONS, find_shards
from tfod.writer import AtomicFile, ShardSetWriter

_log = logging.getLogger(__name__)
LABEL_MAP_FILE = "label_map.pbtxt"


class ShardSets(contextlib.AbstractContextManager["ShardSets"]):
    """The writers of all subsets; their files appear together, at the end."""

    def __init__(self, folder: str, make_writer: Callable[[str], ShardSetWriter]) -> None:
        self._folder = folder
        self._make_writer = make_writer
        self._writers: dict[str, ShardSetWriter] = {}

    def __contains__(self, subset: str) -> bool:
        return subset in self._writers

    def writer(self, subset: str) -> ShardSetWriter:
        """The writer of a subset, made when it is first asked for."""
        if subset not in self._writers:
            self._writers[subset] = self._make_writer(subset)
        return self._writers[subset]

    def publish(self, label_map: str) -> set[str]:
        """Complete all files, then give them their names; drop stale shards.

        Returns the absolute paths of the shards.
        """
        text = AtomicFile(self._folder, LABEL_MAP_FILE)
        try:
            text.write(label_map.encode())
            text.complete()
            for writer in self._writers.values():
                writer.complete()
            before = our_shards(self._folder)
            paths = [path for writer in self._writers.values() for path in writer.publish()]
            self._warn_of_others(before, label_map)
            text.publish(LABEL_MAP_FILE)
        finally:
            text.discard()
        written = set(map(os.path.abspath, paths))
        for subset in self._writers:
            for path in set(before.get(subset, ())) - written:
                os.unlink(path)
        return written

    def _warn_of_others(self, before: dict[str, list[str]], label_map: str) -> None:
        """Shards that stay in the folder were written for the label map that goes."""
        others = sorted(set(before) - set(self._writers))
        path = os.path.join(self._folder, LABEL_MAP_FILE)
        if (
            others
            and os.path.exists(path)
            and text_without_comments(path) != _uncommented(label_map)
        ):
            _log.warning(
                "%s: the label map changes, but these subsets in the folder were written with "
                "the old one: %s",
                path,
                ", ".join(others),
            )

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.discard()


def our_shards(folder: str) -> dict[str, list[str]]:
    """Absolute paths, by subset, of the shards in a folder that lie as this exporter lays them."""
    root = os.path.abspath(folder)
    found: dict[str, list[str]] = {}
    try:
        sets = find_shards(root)
    except ShardsNotFoundError:
        return found
    for one in sets:
        for path in map(os.path.abspath, one.paths):
            if os.path.dirname(path) == root and path.endswith(SHARD_EXTENSIONS[0]):
                found.setdefault(one.subset, []).append(path)
    return found


def holds_pictures(paths: Iterable[str]) -> bool:
    """Whether any record of these shards has a picture's bytes."""
    for path in paths:
        if os.path.getsize(path):
            for record in read_records(path):
                spans = Example(record, path).byte_spans(keys.ENCODED)
                if any(start < end for start, end in spans):
                    return True
    return False


def layout_of(paths: list[str]) -> tuple[int, Compression]:
    """Number of shards and compression of a subset that is to be written again."""
    with open(paths[0], "rb") as file:
        return len(paths), shard_compression(file.read(HEADER_BYTES))


def text_without_comments(path: str) -> str:
    """A label map's text as far as it means something."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return _uncommented(file.read())


def _uncommented(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith("#"))
