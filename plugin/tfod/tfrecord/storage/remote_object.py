"""The bytes of one remote object, from any offset on: by ranges, or as one answer of a web server.

All bytes are those of one and the same object, over any number of requests. Methods wait for the
store, and raise whatever it raises; :class:`ChangedError` where it has another object by now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tfod.tfrecord.storage.remote_errors import status_of
from tfod.tfrecord.storage.remote_files import filesystem_of
from tfod.tfrecord.storage.remote_timeout import remote_timeout

_STEP = 1 << 18
_NO_SUCH_RANGE = 416
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_MARKS = (
    "ETag",
    "etag",
    "generation",
    "md5Hash",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
)
"""What tells an object from another one of the same name, as the stores call it."""


class ChangedError(Exception):
    """The object is another one than when it was first opened."""


class _Object:
    """One object in a store.

    Attributes:
        size: its length in bytes as soon as it is open; None where the server does not say it.
        has_ranges: whether reading may begin anywhere without what is in front being sent too.
        marks: what tells it from another object of its name; None before it is first open.
    """

    def __init__(self, filesystem: Any, path: str, heard: Callable[[], None], marks: Any) -> None:
        self.size: int | None = None
        self.has_ranges = True
        self.marks = marks
        self._system = filesystem
        self._path = path
        self._heard = heard

    def _compare(self, marks: Any, size: int | None) -> None:
        if self.marks not in (None, marks):
            raise ChangedError
        self.marks, self.size = marks, size


class _StoreObject(_Object):
    """An object of a store that gives any range of it."""

    _file: Any = None  # None also where each range is asked for by itself
    _is_open = False

    def open(self, _: int = 0) -> None:
        """Ask for it, if that was not done."""
        from fsspec.spec import AbstractBufferedFile

        if self._is_open:
            return
        self._system.invalidate_cache(self._path)
        # No cache of fsspec's: whole pieces are asked for, the next one ahead of the reader.
        file = self._system.open(self._path, "rb", block_size=_STEP, cache_type="none")
        if isinstance(file, AbstractBufferedFile):
            self._file = file
            self._compare_info(file.details)
        else:  # such files may have one position for all who read them
            file.close()
            self._compare_info(self._system.info(self._path))
        self._is_open = True

    def read(self, offset: int, size: int) -> bytes:
        """Between 1 and so many bytes from an offset; none at the end."""
        self.open()
        data: bytes
        if self._file is None:
            data = self._system.cat_file(self._path, start=offset, end=offset + size)
        else:
            self._file.seek(offset)
            data = self._file.read(size)
        if len(data) > size:
            raise OSError("the server has sent more than the range it was asked for")
        self._heard()
        # s3fs asks for each range on the condition that the object is the one that was opened.
        is_certain = "IfMatch" in getattr(self._file, "read_kw", {})
        if not is_certain and self.size is not None and offset + len(data) >= self.size:
            self._system.invalidate_cache(self._path)  # before it is taken for the whole
            self._compare_info(self._system.info(self._path))
        return data

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _compare_info(self, info: Mapping[str, Any]) -> None:
        if info["type"] == "directory":
            raise IsADirectoryError(f"{self._path} is a folder")
        self._compare(
            {mark: info[mark] for mark in ("size", *_MARKS) if mark in info}, info.get("size")
        )


class _WebObject(_Object):
    """An object of a web server, which need not know ranges: one answer, read on and on.

    A server without ranges sends all again, and what was read before is dropped.
    """

    def __init__(
        self, filesystem: Any, path: str, heard: Callable[[], None], marks: Any, in_ranges: bool
    ) -> None:
        super().__init__(filesystem, path, heard, marks)
        self.size = marks[0] if marks else None
        self.has_ranges = False  # as far as is known
        self._in_ranges = in_ranges
        self._answer: Any = None
        self._position = 0
        self._end: int | None = None  # behind the range that is answered
        # Packed for the way: sizes and ranges would be those of the packed bytes.
        self._is_packed = bool(marks) and marks[0] is None

    def open(self, offset: int = 0) -> None:
        """Ask for it from there on."""
        try:
            self._request(offset, _STEP)
        except Exception as error:
            if not self._in_ranges or status_of(error) != _NO_SUCH_RANGE:
                raise
            self._in_ranges = False  # it is empty, and has no first byte
            self._request(0, _STEP)

    def read(self, offset: int, size: int) -> bytes:
        """Between 1 and so many bytes from an offset; none at the end."""
        is_range_read = self._position == self._end != self.size
        is_elsewhere = self._position > offset or (self._position < offset and self.has_ranges)
        if self._answer is None or is_range_read or is_elsewhere:
            self.close()
            self._request(offset, size)
        while self._position < offset:
            if not self._next(min(_STEP, offset - self._position)):
                raise EOFError("the answer ends early")
        parts: list[bytes] = []
        wanted = size
        try:
            while wanted and (part := self._next(wanted)):
                parts.append(part)
                wanted -= len(part)
        except Exception:
            if not parts:
                raise
            self.close()  # what has come before is not lost
        return b"".join(parts)

    def close(self) -> None:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            self._system.loop.call_soon_threadsafe(answer.close)

    def _next(self, size: int) -> bytes:
        from fsspec.asyn import sync

        # The library buffers twice as much as it is ever asked for.
        part: bytes = sync(self._system.loop, self._answer.content.read, min(size, _STEP))
        self._position += len(part)
        self._heard()
        return part

    def _request(self, offset: int, wanted: int) -> None:
        """Ask for the object from an offset on; for so many bytes where no more is wanted."""
        from fsspec.asyn import sync

        headers = {**self._system.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
        if (offset or self._in_ranges) and not self._is_packed:
            end = offset + wanted - 1 if self._in_ranges else ""
            headers["Range"] = f"bytes={offset}-{end}"
        self._answer = answer = sync(self._system.loop, self._ask, headers)
        found = _RANGE.match(answer.headers.get("Content-Range", ""))
        if answer.status == 206 and (found is None or int(found[1]) > offset):
            raise OSError("the server has sent another range than it was asked for")
        is_packed = answer.headers.get("Content-Encoding", "identity") != "identity"
        self._is_packed |= is_packed
        if answer.status == 206 and found is not None:
            self._position, self._end, length = int(found[1]), int(found[2]) + 1, found[3]
        else:
            self._position, self._end = 0, None
            length = answer.headers.get("Content-Length", "*")
        size = int(length) if length.isdigit() and not is_packed else None
        if self._end is not None and size is None:
            size = self.size  # a range need not say of how much it is one
        self._compare((size, answer.headers.get("ETag"), answer.headers.get("Last-Modified")), size)
        says_so = answer.headers.get("Accept-Ranges") == "bytes"
        self.has_ranges = size is not None and (self._end is not None or says_so)

    async def _ask(self, headers: Mapping[str, str]) -> Any:
        """The answer of the server, as far as its headers."""
        import aiohttp  # fsspec's file system for the web needs it

        system, silence = self._system, remote_timeout() / 3
        limits = aiohttp.ClientTimeout(total=None, sock_connect=silence, sock_read=silence)
        session = await system.set_session()
        options = {**system.kwargs, "headers": headers, "timeout": limits}
        answer = await session.get(system.encode_url(self._path), **options)
        try:
            if answer.status == 404:
                raise FileNotFoundError(self._path)
            answer.raise_for_status()
        except Exception:
            answer.close()
            raise
        return answer


RemoteObject: TypeAlias = _StoreObject | _WebObject


def remote_object(url: str, heard: Callable[[], None], in_ranges: bool, marks: Any) -> RemoteObject:
    """The object behind a URL; nothing is asked of the server yet.

    ``heard`` is called whenever bytes have come. A web server is asked ``in_ranges`` for no more
    than is read, in more requests. The marks are those of the object as it was opened before.
    """
    filesystem, path = filesystem_of(url)
    protocols = filesystem.protocol
    if "http" in ((protocols,) if isinstance(protocols, str) else protocols):
        return _WebObject(filesystem, path, heard, marks, in_ranges)
    return _StoreObject(filesystem, path, heard, marks)
