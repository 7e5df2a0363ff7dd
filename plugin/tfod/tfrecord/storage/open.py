"""Functions to open a shard or another input: a file, a zip entry or a URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import FileIO
from typing import TYPE_CHECKING, TypeAlias

from tfod.errors import ShardError
from tfod.tfrecord.storage.local import LocalFile
from tfod.tfrecord.storage.urls import is_url

if TYPE_CHECKING:
    from tfod.tfrecord.storage.remote import RemoteStream
    from tfod.tfrecord.storage.zip_entry import ZipEntry

ShardStream: TypeAlias = "FileIO | RemoteStream"


def find_zip_entry(path: str) -> ZipEntry | None:
    """Return the zip entry at a path, or None; raise ShardError if it is unsafe to read."""
    if is_url(path) or os.path.lexists(path) or os.path.isdir(os.path.dirname(path) or os.curdir):
        return None
    from tfod.tfrecord.storage.archive import find_entry  # only needed for zips

    return find_entry(path)


def open_stream(path: str, *, read_ahead: bool = True) -> ShardStream:
    """Open a file or URL, unbuffered; for ``read_ahead`` see ``RemoteStream``. Raises OSError."""
    if is_url(path):
        from tfod.tfrecord.storage.remote import RemoteStream  # only needed for URLs

        return RemoteStream(path, read_ahead=read_ahead)
    return LocalFile(path)


@contextlib.contextmanager
def open_shard(path: str) -> Iterator[tuple[ShardStream, int | None]]:
    """Open a shard, which may be a zip entry, and yield the stream and its length in bytes.

    The length is None if a server does not report it. Raises OSError if the shard cannot be
    opened, and ShardError if its zip is damaged or the entry is unsafe to read.
    """
    entry = find_zip_entry(path)
    if entry is not None:
        with entry.open() as stream:
            yield stream, entry.size
        return
    with open_stream(path) as opened:
        if isinstance(opened, FileIO):
            yield opened, os.fstat(opened.fileno()).st_size
        else:
            yield opened, opened.size


def read_at(handle: int, length: int, offset: int) -> bytes:
    """Read bytes of an open file from an offset; fewer at its end.

    ``pread`` does not move the file position, so threads and forked processes may share the file.
    """
    if hasattr(os, "pread"):
        return os.pread(handle, length, offset)
    os.lseek(handle, offset, os.SEEK_SET)  # Windows, where processes do not share files
    return os.read(handle, length)


def get_shard_size(path: str) -> int:
    """Return the length of a shard in bytes; raise ShardError or OSError if it is unknown."""
    with open_shard(path) as (_, size):
        if size is None:
            cause = "has an unknown length, because the server does not report it"
            raise ShardError(cause, shard=path, fix="download the shard first")
        return size
