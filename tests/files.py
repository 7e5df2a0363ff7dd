"""Files and shards: written for a test, and read back after it."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfod.tfrecord.reader import Record, RecordBatch, read_records, walk
from tfod.tfrecord.shard_sets.search import find_shards


def payloads(*paths: str | os.PathLike[str]) -> list[bytes]:
    """The payloads of shards, in order."""
    return [bytes(record.payload) for path in paths for record in read_records(path)]


def readable_records(path: Path | str) -> Iterator[Record]:
    """The records of a shard that may be damaged."""
    data = Path(path).read_bytes()
    for one in walk(io.BytesIO(data), str(path), len(data)):
        if isinstance(one, RecordBatch):
            yield from one.records()


def subsets_of(source: str | os.PathLike[str]) -> dict[str, Counter[bytes]]:
    """The payloads of each subset, without their order."""
    return {one.subset: Counter(payloads(*one.paths)) for one in find_shards(source)}


def files_in(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too but no links, with their content; or the file."""
    found = [folder] if folder.is_file() else folder.rglob("*")
    files = (one for one in found if one.is_file() and not one.is_symlink())
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


def write_file(path: Path, content: bytes | str) -> Path:
    """A file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_files(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """A folder with these files; the folder."""
    for name, content in files.items():
        write_file(folder / name, content)
    return folder
