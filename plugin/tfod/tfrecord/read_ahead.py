"""The thread that fetches a remote object ahead of its reader.

It fetches the next pieces while the one before is read, tries again where the connection fails,
and computes the SHA-256 on the way. Whoever reads waits for bytes, but not for ever: a library
that is stuck in the thread is left there.
"""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NoReturn, TypeVar

from tfod.tfrecord.remote_errors import is_final, reason_of, remote_error
from tfod.tfrecord.remote_source import ByteSource, ChangedError, Head, source_of
from tfod.tfrecord.remote_waiting import (
    LONGEST_WAIT,
    WHEN_WELL,
    SilentError,
    heed_interrupt,
    patience,
    server_of,
)

T = TypeVar("T")
_SMALLEST_PIECE = 1 << 18
_LEAST_PIECE = 1 << 16  # on a slow line
_LARGEST_PIECE = 8 << 20
_MOST_WAITING = 2 * _LARGEST_PIECE  # bytes; one more piece is being read
_LONGEST_PIECE = 4.0  # seconds that a piece may take, at the rate of the last one
_LONGEST_HEAD = 8 << 20
_TRIES_TO_OPEN = 3  # what is open is tried again as long as patience lasts
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds; doubled after each try


_LOST = (
    "was removed while it was read, or may not be read any longer",
    "see whether it is there, and whether your credentials or its signature are still valid",
)


class RemoteReadError(OSError):
    """A remote object could not be read; ``filename`` is its URL, ``strerror`` says why."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class _Run:
    """One run of reading, from some byte on: what has come and is not yet read."""

    def __init__(self, start: int, stop: int | None, is_ahead: bool) -> None:
        self.start = start
        self.stop = stop
        self._is_ahead = is_ahead
        self.got = self._taken = start  # the bytes up to which all have come, and been read
        self.asked = self.given = 0  # how many pieces were asked for, and taken
        self.pieces: deque[bytes] = deque()
        self.is_finished = False
        self.checksum = hashlib.sha256()
        self._wanted = _SMALLEST_PIECE

    def take(self) -> bytes:
        """The first of the pieces that wait."""
        piece = self.pieces.popleft()
        self.given += 1
        self._taken += len(piece)
        return piece

    def has_room(self) -> bool:
        """Whether to fetch more; who looks at the first bytes alone shall not pay for others."""
        if self.is_finished:
            return False
        if not self._is_ahead:
            return self.asked > self.given and not self.pieces
        if self.got == self.start:
            return self.asked > 0
        waiting = self.got - self._taken
        most = min(self._taken - self.start, _MOST_WAITING)
        return self.asked > 1 and (not waiting or waiting + self._next_size() <= most)

    def fetch(self, source: ByteSource) -> bytes:
        """The next piece; no bytes at the end.

        Raises:
            EOFError: the object has no more bytes, and should have.
        """
        ends = [end for end in (source.size, self.stop) if end is not None]
        wanted = min([self._next_size(), *(end - self.got for end in ends)])
        if wanted <= 0:
            return b""
        began = time.monotonic()
        piece = source.read(self.got, wanted)
        if not piece and ends:
            raise EOFError("the object ends early")
        if piece:
            self._fit_pieces(len(piece) / max(time.monotonic() - began, 1e-6))
        return piece

    def _fit_pieces(self, rate: float) -> None:
        """Choose the next size: of some stores no byte is seen before the whole piece has come."""
        fitting = int(rate * min(_LONGEST_PIECE, patience() / 6))
        largest = min(4 * self._wanted, _LARGEST_PIECE)
        self._wanted = max(min(fitting, largest), _LEAST_PIECE)

    def _next_size(self) -> int:
        return min(self._wanted, max(self._taken - self.start, _SMALLEST_PIECE))


class ReadAhead:
    """What the fetching thread and the reader share.

    The thread knows nothing of the stream: a stream that nobody holds any more is closed.
    """

    def __init__(self, url: str, hashed: bool, is_look: bool, head: Head | None) -> None:
        self._url = url
        self._is_look = is_look
        self._head = head
        self._kept = bytearray()
        self._server = server_of(url)
        self._is_hashed = hashed
        self._source: ByteSource | None = None
        self._run = _Run(0, None, not is_look)
        self._changed = threading.Condition()
        self._is_open = self._is_stopped = False
        self._failure: RemoteReadError | None = None
        self._last_byte = self._last_heard = 0.0  # when a new one came, and any
        self._tried = 0  # how often what comes next was tried in vain
        self._reason = ""  # why the last try was in vain
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tfod-remote-read", daemon=True)

    # What the reader calls.

    def open(self) -> int | None:
        """Start, and wait until the object is open; returns its size.

        Raises:
            RemoteReadError: it cannot be opened.
        """
        try:
            self._server.require_hope()
        except SilentError as error:
            reason = f"cannot be reached: {error}"
            raise RemoteReadError(errno.ETIMEDOUT, reason, self._url) from None
        self._thread.start()
        try:
            self._wait(lambda: self._is_open)
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if self._failure is not None:
            raise self._failure
        return None if self._source is None else self._source.size

    @property
    def has_ranges(self) -> bool:
        """Whether reading may begin anywhere."""
        return self._source is not None and self._source.has_ranges

    def begin(self, start: int, stop: int | None) -> None:
        """Read these bytes from now on; they are fetched when the first piece is asked for."""
        with self._changed:
            self._run = _Run(start, stop, not self._is_look)
            self._changed.notify_all()

    def next_piece(self) -> bytes:
        """The next bytes; none at the end.

        Raises:
            RemoteReadError: they cannot be had.
        """
        run = self._run
        with self._changed:
            run.asked += 1
            self._changed.notify_all()
        self._wait(lambda: bool(run.pieces) or run.is_finished)
        with self._changed:
            if run.pieces:
                self._changed.notify_all()
                return run.take()
        if self._failure is not None:
            raise self._failure
        return b""

    def head(self) -> Head | None:
        """What has come of a look; None where a reader cannot go on behind it."""
        source = self._source
        if source is None or not source.has_ranges or source.size is None or not self._kept:
            return None
        return Head(bytes(self._kept), source.size, source.marks)

    def digest(self) -> str:
        """The SHA-256, when all is read.

        Raises:
            ValueError: it was not asked for, or not all was read.
        """
        run = self._run
        if not self._is_hashed or run.start or run.stop is not None:
            raise ValueError("only a hashed stream that is read from its start has a digest")
        return run.checksum.hexdigest()

    def stop(self) -> None:
        """Let the thread end; it is not waited for."""
        with self._changed:
            self._is_stopped = self._run.is_finished = True
            self._run.pieces.clear()
            self._changed.notify_all()
        self._pause.set()

    def _wait(self, is_there: Callable[[], bool]) -> None:
        """Wait for the thread as long as bytes come; a failure ends it too."""
        heed_interrupt()
        began, patient = time.monotonic(), patience()
        with self._changed:
            while not is_there() and self._failure is None:
                left = max(began, self._last_byte) + patient - time.monotonic()
                if left > 0:
                    self._changed.wait(min(left, LONGEST_WAIT))
                    heed_interrupt()
                    continue
                if time.monotonic() - self._last_heard >= patient:
                    self._server.was_silent()
                    what = f"no {'byte' if self._is_open else 'answer'} came for {patient:g} s"
                else:
                    what = (
                        f"the server has sent nothing new for {patient:g} s: it has no ranges, and "
                        "begins again whenever the connection breaks off"
                    )
                self._failure = self._error(what, WHEN_WELL, errno.ETIMEDOUT)
                self.stop()

    # What the thread does.

    def _work(self) -> None:
        try:
            self._source = self._persist(self._open, _TRIES_TO_OPEN)
            with self._changed:
                self._is_open = True
                self._changed.notify_all()
            while True:
                self._fetch_next(self._source)
        except _StoppedError:
            pass
        except RemoteReadError as failure:
            self._fail(failure)
        except BaseException as error:  # nobody else would hear of it
            self._fail(self._error(reason_of(error), WHEN_WELL, errno.EIO))
        finally:
            if self._source is not None:
                self._source.reset()

    def _fail(self, failure: RemoteReadError) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _open(self) -> ByteSource:
        source = source_of(self._url, self._note_bytes, in_ranges=self._is_look, head=self._head)
        source.open()
        return source

    def _fetch_next(self, source: ByteSource) -> None:
        """Fetch one piece, as soon as there is room for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._run.has_room())
            run = self._run
        piece = self._persist(lambda: run.fetch(source))
        if self._is_hashed:
            run.checksum.update(piece)
        with self._changed:
            if self._is_look and run.got == len(self._kept) <= _LONGEST_HEAD:
                self._kept += piece
            run.got += len(piece)
            if piece and not self._is_stopped:
                run.pieces.append(piece)
            run.is_finished = not piece or run.got in (source.size, run.stop)
            self._changed.notify_all()

    def _persist(self, request: Callable[[], T], most: int | None = None) -> T:
        """Ask until it succeeds, with longer and longer pauses.

        Args:
            request: is tried.
            most: how often; None as long as the reader has patience.

        Raises:
            RemoteReadError: it was in vain.
        """
        self._tried = 0
        while not self._is_stopped:
            try:
                return request()
            except ChangedError:
                what = "was changed while it was read"
                raise self._error(what, "try again", errno.EIO) from None
            except Exception as error:
                self._tried += 1
                self._reason = reason_of(error)
                if self._source is not None:
                    self._source.reset()
                if is_final(error) or self._tried == most:
                    self._give_up(error)
            self._pause.wait(min(_FIRST_PAUSE * 2 ** (self._tried - 1), _LONGEST_PAUSE))
        raise _StoppedError

    def _give_up(self, error: Exception) -> NoReturn:
        if self._is_open:
            what, fix = _LOST if is_final(error) else ("reading stopped", WHEN_WELL)
            raise self._error(what, fix, errno.EIO)
        found = remote_error(self._url, error)
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EIO
        raise RemoteReadError(number, found.reason, self._url)

    def _error(self, what: str, fix: str, number: int) -> RemoteReadError:
        """The error that says how far it came."""
        text = what
        if self._is_open:
            size = self._source.size if self._source else None
            text += f": {self._run.got}" + (f" of {size} bytes" if size else " bytes") + " came"
        if self._tried:
            times = "once" if self._tried == 1 else f"{self._tried} times"
            what_follows = "what follows" if self._is_open else "it"
            text += f", {what_follows} was tried {times} ({self._reason})"
        return RemoteReadError(number, f"{text}; {fix}", self._url)

    def _note_bytes(self, are_new: bool) -> None:
        self._last_heard = time.monotonic()
        if are_new:
            self._last_byte = self._last_heard
        self._server.heard()


class _StoppedError(Exception):
    """Nobody reads any more."""
