"""The bytes of one remote object, from any place on: by ranges, or as one answer of a web server.

Both see to it that all bytes are those of one and the same object, over any number of requests.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tfod.tfrecord.remote import filesystem_of
from tfod.tfrecord.remote_errors import status_of
from tfod.tfrecord.remote_waiting import patience

# What tells an object from another one of the same name, as the stores call it.
_MARKS = ("size", "ETag", "etag", "generation", "md5Hash", "LastModified", "last_modified",
          "mtime", "created")  # fmt: skip
_STEP = 1 << 18
_LEAST_RANGE = 1 << 12
_NO_SUCH_RANGE = 416
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class ChangedError(Exception):
    """The object is another one than at the first look."""


@dataclass(frozen=True)
class Head:
    """The first bytes of an object, for who reads it next.

    Attributes:
        data: those bytes.
        size: of the whole object.
        marks: what tells it from another object of its name.
    """

    data: bytes
    size: int
    marks: Any


class ByteSource(Protocol):
    """One object in a store. Its methods wait for the store, and raise whatever it raises."""

    size: int | None
    """Its length in bytes as soon as it is open; None where the server does not say it."""
    has_ranges: bool
    """Whether reading may begin anywhere without what is in front being sent too."""
    marks: Any
    """What tells the object from another one of its name, as soon as it is open."""

    def open(self) -> None:
        """Look at the object for the first time."""

    def read(self, offset: int, size: int) -> bytes:
        """Between 1 and so many bytes from an offset; none at the end.

        Raises:
            ChangedError: it has become another object.
        """

    def reset(self) -> None:
        """Let go of the connection; the next read begins anew."""


Came: TypeAlias = "Callable[[bool], None]"
"""Told whenever bytes have come: whether some are from beyond the furthest place reached."""


def source_of(
    url: str, came: Came, *, in_ranges: bool = False, head: Head | None = None
) -> ByteSource:
    """The object behind a URL; nothing is asked of the server yet.

    Args:
        url: of the object.
        came: is called whenever bytes have come.
        in_ranges: whether to ask for no more than is read, even where that takes more requests.
        head: what is known of the object already, and is not asked for again.
    """
    filesystem, path = filesystem_of(url)
    protocols = filesystem.protocol
    if "http" in ((protocols,) if isinstance(protocols, str) else protocols):
        source: ByteSource = _WebSource(filesystem, path, came, in_ranges)
    else:
        source = _RangedSource(filesystem, path, came)
    return source if head is None else _HeadedSource(source, head)


class _HeadedSource:
    """An object whose first bytes are there: the server is asked for what is behind them."""

    has_ranges = True

    def __init__(self, source: ByteSource, head: Head) -> None:
        self._source = source
        self._head = head.data
        self.size: int | None = head.size
        self.marks = source.marks = head.marks
        source.size, source.has_ranges = head.size, True

    def open(self) -> None:
        pass  # when the first byte behind the head is read

    def read(self, offset: int, size: int) -> bytes:
        if offset < len(self._head):
            return self._head[offset : offset + size]
        return self._source.read(offset, size)

    def reset(self) -> None:
        self._source.reset()


def _silent(seconds: float) -> ConnectionError:
    """In place of a TimeoutError, whose words get lost on the way out of the loop."""
    return ConnectionError(f"no byte came for {seconds:.3g} s")


class _RangedSource:
    """An object of a store that gives any range of it."""

    has_ranges = True

    def __init__(self, filesystem: Any, path: str, came: Came) -> None:
        self.size: int | None = None
        self.marks: dict[str, Any] | None = None
        self._system = filesystem
        self._path = path
        self._came = came
        self._is_open = False
        self._file: Any = None  # None also where each range is asked for by itself

    def open(self) -> None:
        from fsspec.spec import AbstractBufferedFile

        self._system.invalidate_cache(self._path)
        file = self._system.open(self._path, "rb", block_size=_STEP, cache_type="none")
        if isinstance(file, AbstractBufferedFile):
            self._file = file
            self._compare(file.details)
        else:  # such files may have one position for all who read them
            file.close()
            self._compare(self._system.info(self._path))
        self._is_open = True

    def read(self, offset: int, size: int) -> bytes:
        if not self._is_open:
            self.open()
        data: bytes
        if self._file is None:
            data = self._system.cat_file(self._path, start=offset, end=offset + size)
        elif hasattr(self._file, "read_kw") and hasattr(self._system, "_call_s3"):
            from fsspec.asyn import sync

            data = sync(self._system.loop, self._receive, offset, size)
        else:
            self._file.seek(offset)
            data = self._file.read(size)
        if len(data) > size:
            raise OSError("the server has sent more than the range it was asked for")
        self._came(True)
        # s3fs asks for each range on the condition that the object is the one that was opened.
        is_certain = "IfMatch" in getattr(self._file, "read_kw", {})
        if not is_certain and self.size is not None and offset + len(data) >= self.size:
            self._system.invalidate_cache(self._path)
            self._compare(self._system.info(self._path))  # before anybody takes it for the whole
        return data

    async def _receive(self, offset: int, size: int) -> bytes:
        """A range from S3, of which every byte is seen as it comes; s3fs waits for the last one.

        A connection that is silent is let go while there is patience left to try another one.
        """
        file, silence = self._file, patience() / 3
        parts: list[bytes] = []
        body: Any = None
        version = {"VersionId": file.version_id} if file.version_id else {}
        what = {"Bucket": file.bucket, "Key": file.key, **version, **file.read_kw}
        try:
            asked = self._system._call_s3(
                "get_object", Range=f"bytes={offset}-{offset + size - 1}", **what
            )
            body = (await asyncio.wait_for(asked, silence))["Body"]
            while sum(map(len, parts)) <= size and (
                part := await asyncio.wait_for(body.read(_STEP), silence)
            ):
                parts.append(part)
                self._came(True)  # none of them is asked for again
        except Exception as error:
            if not parts and isinstance(error, asyncio.TimeoutError):
                raise _silent(silence) from None
            if not parts:
                raise
        finally:
            if body is not None:
                body.close()
        return b"".join(parts)

    def reset(self) -> None:
        self._is_open = False
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _compare(self, info: Mapping[str, Any]) -> None:
        if info["type"] == "directory":
            raise IsADirectoryError(f"{self._path} is a folder")
        marks = {mark: info[mark] for mark in _MARKS if mark in info}
        if self.marks is None:
            self.marks, self.size = marks, info.get("size")
        elif marks != self.marks:
            raise ChangedError


class _WebSource:
    """An object of a web server, which need not know ranges: one answer, read on and on.

    After an error the rest is asked for; a server without ranges sends all again, and what has
    been read is dropped. Where an answer breaks off before a byte of it could be read (the library
    drops what lies in its buffer), less is asked for at once.
    """

    def __init__(self, filesystem: Any, path: str, came: Came, in_ranges: bool) -> None:
        self.size: int | None = None
        self.has_ranges = False
        self.marks: tuple[Any, ...] | None = None
        self._system = filesystem
        self._path = path
        self._came = came
        self._in_ranges = in_ranges
        self._span: int | None = None  # so many bytes are asked for at once; None is all
        self._end: int | None = None  # behind the range that is answered
        self._furthest = 0
        self._is_packed = False  # for the way only: sizes and ranges are those of the packed bytes
        self._answer: Any = None
        self._position = 0
        self._failure: Exception | None = None

    def open(self) -> None:
        try:
            self._begin(0, _STEP)
        except Exception as error:
            if not self._in_ranges or status_of(error) != _NO_SUCH_RANGE:
                raise
            self._in_ranges = False  # it is empty, and has no first byte
            self._begin(0, _STEP)

    def read(self, offset: int, size: int) -> bytes:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._answer is not None and self._position == self._end != self.size:
            self.reset()  # the range has come, and more is there
        # Without ranges what is in front is sent anyway.
        is_far = self._answer is not None and self._position < offset and self.has_ranges
        if self._answer is None or self._position > offset or is_far:
            self.reset()
            self._begin(offset, size)
        first = self._position
        while self._position < offset:
            if not self._next(min(_STEP, offset - self._position)):
                raise EOFError("the answer ends early")
        parts: list[bytes] = []
        wanted = size
        try:
            while wanted and (part := self._next(wanted)):
                parts.append(part)
                wanted -= len(part)
        except Exception as failure:
            if not parts:
                if self._position == first:
                    self._ask_for_less()
                raise
            self._failure = failure  # what has come before is not lost
        return b"".join(parts)

    def _ask_for_less(self) -> None:
        asked = self._span or 4 * _STEP
        self._span = max(asked // 4, _LEAST_RANGE)

    def reset(self) -> None:
        self._failure = None
        if self._answer is not None:
            answer, self._answer = self._answer, None
            self._system.loop.call_soon_threadsafe(answer.close)

    def _next(self, size: int) -> bytes:
        # The library buffers twice as much as it is ever asked for.
        from fsspec.asyn import sync

        part: bytes = sync(self._system.loop, self._read_on, min(size, _STEP))
        if part:
            self._position += len(part)
            self._came(self._position > self._furthest)
            self._furthest = max(self._furthest, self._position)
        return part

    def _begin(self, offset: int, wanted: int) -> None:
        """Ask for the object from an offset on; for so many bytes where no more is wanted."""
        import aiohttp  # fsspec's file system for the web needs it
        from fsspec.asyn import sync

        headers = {**self._system.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
        span = wanted if self._in_ranges else self._span
        if (offset or span) and not self._is_packed:
            headers["Range"] = f"bytes={offset}-{offset + span - 1 if span else ''}"
        silence = patience() / 3  # so that it is tried again before it is given up
        limits = aiohttp.ClientTimeout(total=None, sock_connect=silence, sock_read=silence)
        self._answer = answer = sync(self._system.loop, self._ask, headers=headers, within=limits)
        found = _RANGE.match(answer.headers.get("Content-Range", ""))
        is_part = answer.status == 206 and found is not None
        self._position = int(found[1]) if is_part and found else 0
        if self._position > offset or (answer.status == 206 and not found):
            raise OSError("the server has sent another range than it was asked for")
        self._is_packed = answer.headers.get("Content-Encoding", "identity") != "identity"
        self._end = int(found[2]) + 1 if is_part and found else None
        told = found[3] if is_part and found else answer.headers.get("Content-Length", "*")
        size = int(told) if told.isdigit() and not self._is_packed else None
        if is_part and size is None:
            size = self.size  # a part need not say of how much it is one
        marks = (size, answer.headers.get("ETag"), answer.headers.get("Last-Modified"))
        if self.marks is None:
            self.marks, self.size = marks, size
            says_so = answer.headers.get("Accept-Ranges") == "bytes"
            self.has_ranges = size is not None and (is_part or says_so)
        elif marks != self.marks:
            raise ChangedError

    async def _read_on(self, size: int) -> bytes:
        try:
            part: bytes = await self._answer.content.read(size)
        except asyncio.TimeoutError:
            raise _silent(patience() / 3) from None
        return part

    async def _ask(self, headers: Mapping[str, str], within: Any) -> Any:
        """The answer of the server, as far as its headers; a refusal is closed, and raised."""
        system = self._system
        session = await system.set_session()
        options = {**system.kwargs, "headers": headers, "timeout": within}
        try:
            answer = await session.get(system.encode_url(self._path), **options)
        except asyncio.TimeoutError:
            raise _silent(patience() / 3) from None
        try:
            system._raise_not_found_for_status(answer, self._path)
        except Exception:
            answer.close()
            raise
        return answer
