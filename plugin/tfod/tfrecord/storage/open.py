"""Opening a shard, or what lies beside it: a file, an entry of a zip, or a URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import FileIO
from typing import TYPE_CHECKING

from tfod.errors import ShardError
from tfod.tfrecord.storage.urls import is_url

if TYPE_CHECKING:
    from tfod.tfrecord.framing import ShardPart
    from tfod.tfrecord.storage.remote_stream import RemoteStream
    from tfod.tfrecord.storage.zip_files import ZipMember


def zip_member(path: str) -> ZipMember | None:
    """The entry of a zip that a path means; None when it means a file, or nothing.

    Raises:
        ShardError: the zip is damaged, or the entry is one that should not be read.
    """
    if is_url(path) or os.path.lexists(path) or os.path.isdir(os.path.dirname(path) or os.curdir):
        return None
    from tfod.tfrecord.storage.zip_files import find_member, require_readable  # for zips alone

    member = find_member(path)
    if member is not None:
        require_readable(member)
    return member


@contextlib.contextmanager
def open_shard(
    path: str, part: ShardPart | None = None
) -> Iterator[tuple[FileIO | RemoteStream, int | None]]:
    """Open a shard to read it; gives the unbuffered stream and the length of the shard.

    The length is None only for a URL whose server does not say it.

    Args:
        path: a file, an entry of a zip, or a URL.
        part: of a plain shard that is no entry of a zip: the stream begins there, and of a URL
            nothing behind it is fetched.

    Raises:
        ShardError: it is in a zip that is damaged, or is an entry that should not be read.
        OSError: it cannot be opened.
    """
    if is_url(path):
        from tfod.tfrecord.storage.remote_stream import RemoteStream  # needed for URLs alone

        with RemoteStream(path) as stream:
            if part is not None:
                stream.narrow(part.start, part.stop)
            yield stream, stream.size
        return
    member = zip_member(path)
    with open(path if member is None else member.archive, "rb", buffering=0) as file:
        if member is None:
            if part is not None:
                file.seek(part.start)
            yield file, os.fstat(file.fileno()).st_size
        else:
            yield member.stream(file), member.size


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
    if is_url(path):
        with open_shard(path) as (_, size):
            if size is None:
                cause = "has a length that its server does not say"
                raise ShardError(cause, shard=path, fix="copy it here first")
            return size
    member = zip_member(path)
    return os.path.getsize(path) if member is None else member.size
