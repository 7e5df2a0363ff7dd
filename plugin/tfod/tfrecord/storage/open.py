"""Opening a shard, or what lies beside it: a file, an entry of a zip, or a URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import FileIO
from typing import TYPE_CHECKING, TypeAlias

from tfod.errors import ShardError
from tfod.tfrecord.storage.urls import is_url

if TYPE_CHECKING:
    from tfod.tfrecord.storage.remote import RemoteStream
    from tfod.tfrecord.storage.zip_entry import ZipEntry

ShardStream: TypeAlias = "FileIO | RemoteStream"


def zip_entry(path: str) -> ZipEntry | None:
    """The entry of a zip that a path means; None when it means a file, or nothing.

    Raises:
        ShardError: the zip is damaged, or the entry is one that should not be read.
    """
    if is_url(path) or os.path.lexists(path) or os.path.isdir(os.path.dirname(path) or os.curdir):
        return None
    from tfod.tfrecord.storage.archive import find_entry  # for zips alone

    return find_entry(path)


def open_stream(path: str, *, read_ahead: bool = True) -> ShardStream:
    """Open a file or a URL, unbuffered; ``read_ahead`` is of a ``RemoteStream``.

    Raises OSError where it cannot.
    """
    if is_url(path):
        from tfod.tfrecord.storage.remote import RemoteStream  # needed for URLs alone

        return RemoteStream(path, read_ahead=read_ahead)
    return open(path, "rb", buffering=0)


@contextlib.contextmanager
def open_shard(path: str) -> Iterator[tuple[ShardStream, int | None]]:
    """Open a shard, also in a zip, to read it; gives the stream and the length of the shard.

    The length is None only for a URL whose server does not say it.

    Raises:
        ShardError: it is in a zip that is damaged, or is an entry that should not be read.
        OSError: it cannot be opened.
    """
    entry = zip_entry(path)
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
    """Bytes of an open file from an offset on; fewer at its end.

    Where the system has it, in one step, so that threads and forked processes may share the file.
    """
    if hasattr(os, "pread"):
        return os.pread(handle, length, offset)
    os.lseek(handle, offset, os.SEEK_SET)  # Windows, whose processes share no file
    return os.read(handle, length)


def shard_size(path: str) -> int:
    """Length of a shard in bytes.

    Raises:
        ShardError, OSError: as :func:`open_shard`; the former if a server does not say it, too.
    """
    with open_shard(path) as (_, size):
        if size is None:
            cause = "has a length that its server does not say"
            raise ShardError(cause, shard=path, fix="copy it here first")
        return size
