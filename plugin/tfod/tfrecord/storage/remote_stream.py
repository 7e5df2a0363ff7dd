"""Reading a remote object as a stream: in pieces, one ahead of the reader, never whole in memory.

Where a connection fails or is silent the piece is asked for again, and smaller, over a connection
of its own, for as long as :func:`tfod.tfrecord.storage.remote_timeout.remote_timeout` says.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import hashlib
import io
import time
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from tfod.tfrecord.storage.remote_errors import is_final, reason_of, remote_error
from tfod.tfrecord.storage.remote_object import ChangedError, RemoteObject, remote_object
from tfod.tfrecord.storage.remote_timeout import (
    TRY_AGAIN,
    NoAnswerError,
    call,
    pause,
    remote_timeout,
    server_of,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")
_FIRST_PIECE = 1 << 18
_SMALLEST_PIECE = 1 << 12
_LARGEST_PIECE = 8 << 20
_LONGEST_PIECE = 4.0  # seconds that a piece may take, at the rate of the last one
_TRIES_TO_OPEN = 3  # what is open is tried again as long as the timeout lasts
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds; doubled after each try
_MOST_KEPT = 2 << 20  # of the bytes that a look has fetched
_MOST_STARTS = 4
_LONGEST_KEPT = 30.0  # seconds: after that a small object that was changed is read anew
_LOST = (
    "was removed while it was read, or may not be read any longer",
    "see whether it is there, and whether your credentials or its signature are still valid",
)


class _Start(NamedTuple):
    """The first bytes of an object that was looked at, for the one who reads it next."""

    data: bytes
    size: int
    marks: Any
    time: float  # of the monotonic clock


_starts: OrderedDict[str, _Start] = OrderedDict()


class RemoteReadError(OSError):
    """A remote object could not be read; ``filename`` is its URL, ``strerror`` says why."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class RemoteStream(io.RawIOBase):
    """The bytes of a remote object.

    Attributes:
        size: its length in bytes; None where the server does not say it.

    It keeps two pieces of at most 8 MiB, and fetches little as long as little is read. Reading may
    stop at any time. Every read raises OSError where the object cannot be read on: no byte came
    within the timeout, however often it was tried, the object was changed meanwhile, or is no
    longer there. What was read without reading ahead, up to 2 MiB of each of the last 4 objects,
    is kept half a minute for the next stream of this process that reads the object.
    """

    def __init__(self, url: str, *, hashed: bool = False, read_ahead: bool = True) -> None:
        """Open it.

        Args:
            url: any that fsspec knows.
            hashed: whether the SHA-256 is to be computed, for :meth:`digest`.
            read_ahead: whether the next piece is fetched while one is read, and a web server asked
                for all; without it no more comes than is read.

        Raises:
            OSError: it is not there, cannot be reached or may not be read; there is no such kind
                of URL, or its package is missing.
        """
        self._url = url
        self._server = server_of(url)
        self._checksum = hashlib.sha256() if hashed else None
        self._reads_ahead = read_ahead
        self._object: RemoteObject | None = None
        self._ahead: Future[tuple[bytes, float]] | None = None
        self._piece = memoryview(b"")
        self._kept = b""  # the first bytes, from an earlier look
        self._pieces: list[bytes] = []  # to be kept
        self._most = _FIRST_PIECE  # bytes of the next piece
        self._start = self._fetched = 0  # where reading began, and up to where it has come
        self.size: int | None = None
        self._is_open = False
        self._open()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill at most as many bytes as there is room for, often fewer; 0 only at the end."""
        target = memoryview(buffer)
        if not self._piece:
            self._piece = memoryview(self._next_piece())
        count = min(len(target), len(self._piece))
        target[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def seekable(self) -> bool:
        """Whether what is in front of a byte need not come too, to begin there."""
        return self._object is not None and self._object.has_ranges

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go on at another byte, counted from the start of the object."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a remote stream seeks from its start only")
        self._pieces.clear()
        if self._ahead is not None:
            self._renew()
        self._piece = memoryview(b"")
        self._start = self._fetched = offset
        if offset:
            self._checksum = None
        return offset

    def tell(self) -> int:
        return self._fetched - len(self._piece)

    def digest(self) -> str:
        """Read on to the end; the SHA-256 of the whole object as hexadecimal digits.

        Raises:
            OSError: the object cannot be read to its end.
            ValueError: the stream is not ``hashed``, or was not read from its start.
        """
        if self._checksum is None:
            raise ValueError("only a hashed stream that is read from its start has a digest")
        while self._next_piece():
            pass
        self._piece = memoryview(b"")
        return self._checksum.hexdigest()

    def close(self) -> None:
        """Let go of the connection; no call that is under way is waited for."""
        if not self.closed and vars(self).get("_object") is not None:
            self._keep_start()
            self._abandon()
        super().close()

    def _open(self) -> None:
        """Look at the object for the first time."""
        kept = _starts.pop(self._url, None)
        if kept and (not self._reads_ahead or time.monotonic() > kept.time + _LONGEST_KEPT):
            kept = None
        try:
            self._server.require_alive()
            self._renew(kept.marks if kept else None)
        except Exception as error:
            self._fail(error)
        if kept is not None:
            self._kept, self.size = kept.data, kept.size
            self._is_open = len(kept.data) == kept.size
        began, tried = time.monotonic(), 0
        while not self._is_open:
            assert self._object is not None
            opened = call(functools.partial(self._object.open, len(self._kept)))
            is_done = self._server.wait_for(opened, remote_timeout() / 3)
            try:
                _result(opened, is_done)
            except ChangedError:  # since its first bytes were kept
                self._kept, self._object = b"", None
                self._renew()
            except Exception as error:
                tried += 1
                if tried == _TRIES_TO_OPEN or is_final(error):
                    self._give_up(error, began, tried)
                self._pause(tried)
            else:
                self.size, self._is_open = self._object.size, True

    def _next_piece(self) -> bytes:
        """The next bytes; none at the end."""
        if self.closed:
            raise ValueError("the stream is closed")
        if self._kept and not self._fetched:
            piece, self._kept = self._kept, b""
        else:
            piece = self._fetch()
        self._fetched += len(piece)
        if not (self._reads_ahead or self._start) and self._fetched <= _MOST_KEPT:
            self._pieces.append(piece)
        # Who looks at the first bytes alone shall not pay for others.
        if piece and self._reads_ahead and self._fetched - self._start > _FIRST_PIECE:
            self._ahead = self._request()
        if self._checksum is not None:
            self._checksum.update(piece)
        return piece

    def _fetch(self) -> bytes:
        began, tried = time.monotonic(), 0
        while True:
            asked, self._ahead = self._ahead or self._request(), None
            is_done = self._server.wait_for(asked, remote_timeout() / 3)
            try:
                piece, seconds = _result(asked, is_done)
            except Exception as error:
                tried += 1
                is_over = time.monotonic() - began >= remote_timeout()
                if is_over or is_final(error) or isinstance(error, ChangedError):
                    self._give_up(error, began, tried)
                self._most = max(self._most // 16, _SMALLEST_PIECE)
                self._pause(tried)
            else:
                # Of some stores no byte is seen before the whole piece has come.
                in_time = (
                    len(piece) / max(seconds, 1e-6) * min(_LONGEST_PIECE, remote_timeout() / 6)
                )
                most = min(2 * self._most, _LARGEST_PIECE, int(in_time))
                self._most = max(most, _SMALLEST_PIECE)
                return piece

    def _request(self) -> Future[tuple[bytes, float]]:
        """Have the next piece fetched; the future has its bytes, and the seconds that took."""
        source, offset = self._object, self._fetched
        assert source is not None
        whole = source.size
        size = self._most if whole is None else min(self._most, whole - offset)

        def fetch() -> tuple[bytes, float]:
            began = time.monotonic()
            piece = source.read(offset, size)
            if not piece and whole is not None:
                raise EOFError("the object ends early")
            return piece, time.monotonic() - began

        if size > 0:
            return call(fetch)
        nothing: Future[tuple[bytes, float]] = Future()
        nothing.set_result((b"", 1.0))
        return nothing

    def _keep_start(self) -> None:
        """Keep what a look at the start has fetched, if reading can go on behind it."""
        known, data = self._object, b"".join(self._pieces)
        if known is None or not data or known.size is None:
            return
        if known.has_ranges or len(data) == known.size:
            _starts[self._url] = _Start(data, known.size, known.marks, time.monotonic())
            while len(_starts) > _MOST_STARTS:
                _starts.popitem(last=False)

    def _renew(self, marks: Any = None) -> None:
        """Begin with a connection of its own; what is under way is left to itself."""
        known = self._abandon()
        in_ranges = not self._reads_ahead or known is not None
        marks = marks if known is None else known.marks
        self._object = remote_object(self._url, self._server.heard, in_ranges, marks)

    def _abandon(self) -> RemoteObject | None:
        known, self._object, self._ahead = self._object, None, None
        if known is not None:
            call(known.close)  # which may wait for the server
        return known

    def _pause(self, tried: int) -> None:
        """Wait before the next try, but for the first; and begin anew."""
        if tried > 1:
            pause(min(_FIRST_PAUSE * 2 ** (tried - 2), _LONGEST_PAUSE))
        self._renew()

    def _give_up(self, error: Exception, began: float, tried: int) -> NoReturn:
        """Say how far it came, how often it was tried, and why that was in vain."""
        is_silent = isinstance(error, (NoAnswerError, TimeoutError, asyncio.TimeoutError))
        fix, number = TRY_AGAIN, errno.EIO
        if isinstance(error, ChangedError):
            what, fix = "was changed while it was read", "try again"
        elif self._is_open and is_final(error):
            what, fix = _LOST
        elif not self._is_open and not is_silent:
            self._fail(error)
        else:
            if self._server.last_heard < began:
                self._server.was_silent()
            came = "byte" if self._is_open else "answer"
            if self._is_open and not self.seekable():  # begins again when the connection breaks off
                came = "new byte"
            what = f"no {came} came for {remote_timeout():g} s"
            number = errno.ETIMEDOUT
        what_follows = "it"
        if self._is_open:
            of = f" of {self.size} bytes" if self.size else " bytes"
            what += f": {self._fetched - self._start}{of} came"
            what_follows = "what follows"
        if not isinstance(error, ChangedError):
            silence = f"no byte came for {remote_timeout() / 3:.3g} s"
            times = "once" if tried == 1 else f"{tried} times"
            reason = silence if is_silent else reason_of(error)
            what += f", {what_follows} was tried {times} ({reason})"
        raise RemoteReadError(number, f"{what}; {fix}", self._url) from None

    def _fail(self, error: Exception) -> NoReturn:
        """Say why it cannot be opened."""
        if isinstance(error, NoAnswerError):
            raise RemoteReadError(
                errno.ETIMEDOUT, f"cannot be reached: {error}", self._url
            ) from None
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EIO
        raise RemoteReadError(number, remote_error(self._url, error).reason, self._url) from None


def _result(answer: Future[T], is_done: bool) -> T:
    if not is_done:
        raise NoAnswerError
    return answer.result()
