"""Opening a shard, or what lies beside it, by its path: a file, or an entry of a zip."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import FileIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfod.shard_zip import ZipMember


def zip_member(path: str) -> ZipMember | None:
    """The entry of a zip that a path means; None when it means a file, or nothing.

    Raises:
        ShardError: the zip is damaged, or the entry is one that should not be read.
    """
    if os.path.lexists(path):
        return None
    from tfod.shard_zip import find_member, require_readable  # needed for zips alone

    member = find_member(path)
    if member is not None:
        require_readable(member)
    return member


@contextlib.contextmanager
def open_shard(path: str) -> Iterator[tuple[FileIO, int]]:
    """Open a shard to read it from its start; gives the unbuffered stream and its length.

    Raises:
        ShardError: it is in a zip that is damaged, or is an entry that should not be read.
        OSError: it cannot be opened.
    """
    member = zip_member(path)
    with open(path if member is None else member.archive, "rb", buffering=0) as file:
        if member is None:
            yield file, os.fstat(file.fileno()).st_size
        else:
            yield member.stream(file), member.size


def shard_size(path: str) -> int:
    """Length of a shard in bytes.

    Raises:
        ShardError, OSError: as :func:`open_shard`.
    """
    member = zip_member(path)
    return os.path.getsize(path) if member is None else member.size
