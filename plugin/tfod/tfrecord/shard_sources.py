"""What is to be read: the shards of one source or of several, each subset together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tfod.errors import TfodError
from tfod.tfrecord.damage import empty_file
from tfod.tfrecord.opening import open_shard
from tfod.tfrecord.remote import is_url
from tfod.tfrecord.shards import ShardSet, find_shards, is_one_of_several, missing_of_sets

_WRITE_AGAIN = "export or download the shards again"
Sources: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
"""A file, a folder, a zip, a glob or a URL with shards, or several of them."""


def find_all_shards(source: Sources) -> list[ShardSet]:
    """The shards to be read that one source means, or several: those of one subset together.

    The files of a numbered set may be named one by one, as a shell does with a glob.

    Raises:
        TfodError: a shard is given twice.
        ShardsNotFoundError, RemoteError: as :func:`find_shards`.
        ShardError: likewise, or all shards of a set are files of 0 bytes; some of them may be.
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else source
    found: dict[str, list[ShardSet]] = {}
    for one in (one for each in sources for one in find_shards(each)):
        found.setdefault(one.subset, []).append(one)
    sets = []
    for subset, parts in found.items():
        paths = [path for part in parts for path in part.paths]
        missing = parts[0].missing if len(parts) == 1 else missing_of_sets(paths)
        sets.append(ShardSet(subset, tuple(paths), tuple(missing)))
        require_content(paths)
    _require_different(path for one in sets for path in one.paths)
    return sets


def require_content(paths: Sequence[str]) -> None:
    """See that not all shards of a set are files of 0 bytes, which one of them may be.

    Raises:
        ShardError: they are.
    """
    # A file that stands alone is for its reader to judge.
    if (len(paths) > 1 or is_one_of_several(paths[0])) and all(map(_is_empty, paths)):
        what = "is empty (0 bytes), and so are all shards of its set that are there"
        raise replace(empty_file(paths[0]), cause=what, fix=_WRITE_AGAIN).to_error()


def _is_empty(path: str) -> bool:
    with open_shard(path) as (stream, size):
        return not stream.read(1) if size is None else size == 0


def _require_different(paths: Iterable[str]) -> None:
    seen: set[str] = set()
    for path in paths:
        real = path if is_url(path) else os.path.realpath(path)
        if real in seen:
            raise TfodError(f"{path} is given twice; name each shard once")
        seen.add(real)
