"""Reading back what the chores have written."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_search import find_shards


def payloads(*paths: str | os.PathLike[str]) -> list[bytes]:
    """The payloads of shards, in order."""
    return [bytes(record.payload) for path in paths for record in read_records(path)]


def subsets_of(source: str | os.PathLike[str]) -> dict[str, Counter[bytes]]:
    """The payloads of each subset, without their order."""
    return {one.subset: Counter(payloads(*one.paths)) for one in find_shards(source)}


def files_in(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too, with their content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
