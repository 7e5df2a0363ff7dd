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
    """Return the payloads of shards, in order."""
    return [bytes(record.payload) for path in paths for record in read_records(path)]


def readable_records(path: Path | str) -> Iterator[Record]:
    """Yield the readable records of a damaged shard."""
    data = Path(path).read_bytes()
    for part in walk(io.BytesIO(data), str(path), len(data)):
        if isinstance(part, RecordBatch):
            yield from part.records()


def subsets_of(source: str | os.PathLike[str]) -> dict[str, Counter[bytes]]:
    """Return the payloads of each subset, without their order."""
    return {shards.subset: Counter(payloads(*shards.paths)) for shards in find_shards(source)}


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the contents of a file or of all files below a folder, except for links."""
    found = [folder] if folder.is_file() else folder.rglob("*")
    files = (path for path in found if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def write_file(path: Path, content: bytes | str) -> Path:
    """Write a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_files(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files into a folder, and return the folder."""
    for name, content in files.items():
        write_file(folder / name, content)
    return folder
