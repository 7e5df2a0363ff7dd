"""The folder that an export writes to: shards and label map appear together, stale ones go."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from typing import Protocol

from tfod.detection import keys
from tfod.errors import ShardsNotFoundError
from tfod.example.columns import ExampleBatch
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.damage import HEADER_BYTES
from tfod.tfrecord.publishing import publish_together, recover
from tfod.tfrecord.records import read_record_batches, shard_compression
from tfod.tfrecord.shards import SHARD_EXTENSIONS, find_shards
from tfod.tfrecord.writer import AtomicFile

_log = logging.getLogger(__name__)
LABEL_MAP_FILE = "label_map.pbtxt"


class SubsetWriter(Protocol):
    """Writes the files of one subset aside, until they are published."""

    def write(self, payload: bytes, /) -> None: ...

    def complete(self) -> None: ...

    def pending(self) -> dict[str, str]: ...

    def discard(self) -> None: ...


class ShardSets(contextlib.AbstractContextManager["ShardSets"]):
    """The writers of all subsets; their files appear together, at the end.

    Args:
        folder: where to write.
        make_writer: makes the writer of a subset.
        names_file: the file that names the classes, beside the shards.
        own_shards: finds the shards, by subset, that an earlier export has left in the folder.
    """

    def __init__(
        self,
        folder: str,
        make_writer: Callable[[str], SubsetWriter],
        names_file: str,
        own_shards: Callable[[str], dict[str, list[str]]],
    ) -> None:
        self._folder = folder
        self._make_writer = make_writer
        self._names_file = names_file
        self._own_shards = own_shards
        self._writers: dict[str, SubsetWriter] = {}
        self._files: dict[str, AtomicFile] = {}
        recover(folder)

    def __contains__(self, subset: str) -> bool:
        return subset in self._writers

    def writer(self, subset: str) -> SubsetWriter:
        """The writer of a subset, made when it is first asked for."""
        if subset not in self._writers:
            self._writers[subset] = self._make_writer(subset)
        return self._writers[subset]

    def add_file(self, path: str, content: bytes) -> None:
        """A file in or below the folder that appears with the shards."""
        file = AtomicFile(*os.path.split(path))
        self._files[path] = file
        file.write(content)
        file.complete()

    def publish(self, names: str, stale: Iterable[str] = ()) -> set[str]:
        """Complete all files, then give them their names; drop stale shards.

        Args:
            names: the text of the file of names.
            stale: files of an earlier export that go, besides the shards of the same subsets.

        Returns:
            The absolute paths of the shards.
        """
        self.add_file(os.path.join(self._folder, self._names_file), names.encode())
        shards: dict[str, str] = {}
        for writer in self._writers.values():
            writer.complete()
            shards |= writer.pending()
        before = self._own_shards(self._folder)
        self._warn_of_others(before, names)
        files = {path: file.aside for path, file in self._files.items()}
        goes = {*stale, *(path for one in self._writers for path in before.get(one, ()))}
        written = set(map(os.path.abspath, shards))
        publish_together({**shards, **files}, goes - written, self._folder)
        return written

    def _warn_of_others(self, before: dict[str, list[str]], names: str) -> None:
        """Shards that stay in the folder were written for the names that go."""
        others = sorted(set(before) - set(self._writers))
        path = os.path.join(self._folder, self._names_file)
        if others and os.path.exists(path) and text_without_comments(path) != _uncommented(names):
            _log.warning(
                "%s: the label map changes, but these subsets in the folder were written with "
                "the old one: %s",
                path,
                ", ".join(others),
            )

    def __exit__(self, *_: object) -> None:
        for file in reversed(self._files.values()):
            file.discard()
        for writer in self._writers.values():
            writer.discard()


def our_shards(folder: str) -> dict[str, list[str]]:
    """Absolute paths, by subset, of the shards in a folder that lie as this exporter lays them."""
    root = os.path.abspath(folder)
    found: dict[str, list[str]] = {}
    try:
        sets = find_shards(root) if os.path.isdir(root) else []
    except ShardsNotFoundError:
        return found
    for one in sets:
        for path in map(os.path.abspath, one.paths):
            if os.path.dirname(path) == root and path.endswith(SHARD_EXTENSIONS[0]):
                found.setdefault(one.subset, []).append(path)
    return found


def holds_images(paths: Iterable[str]) -> bool:
    """Whether any record of these shards has an image's bytes."""
    for path in paths:
        if os.path.getsize(path):
            for records in read_record_batches(path):
                for example in ExampleBatch.of(records):
                    if any(start < end for start, end in example.byte_spans(keys.ENCODED)):
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
