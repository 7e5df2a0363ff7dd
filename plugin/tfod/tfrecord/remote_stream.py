"""Reading a remote object as a stream: ahead, in order, and never whole in memory.

The work is done by the thread of :mod:`tfod.tfrecord.read_ahead`; whoever reads here waits for it.
"""

from __future__ import annotations

import io

from tfod.tfrecord.read_ahead import ReadAhead, RemoteReadError
from tfod.tfrecord.remote_source import Head

__all__ = ["RemoteReadError", "RemoteStream"]


class RemoteStream(io.RawIOBase):
    """The bytes of a remote object, read ahead.

    Attributes:
        size: its length in bytes; None where the server does not say it.

    It keeps at most some 32 MiB, and fetches little as long as little is read. Reading may stop at
    any time. Every read raises OSError where the object cannot be read on: no byte came for
    :func:`tfod.tfrecord.remote.patience` seconds, however often it was tried, the object was
    changed meanwhile, or is no longer there.
    """

    def __init__(
        self, url: str, *, hashed: bool = False, is_look: bool = False, head: Head | None = None
    ) -> None:
        """Open it.

        Args:
            url: any that fsspec knows.
            hashed: whether the SHA-256 is to be computed, for :meth:`digest`.
            is_look: whether only the start is looked at: nothing is read ahead, and what has come
                is kept, for :meth:`head`.
            head: what a look at the object has seen, which is not fetched again.

        Raises:
            OSError: it is not there, cannot be reached or may not be read; there is no such kind
                of URL, or its package is missing.
        """
        self._ahead = ReadAhead(url, hashed, is_look, head)
        self._piece = memoryview(b"")
        self._place: int | None = None
        self.size: int | None = self._ahead.open()

    def readable(self) -> bool:
        return True

    # RawIOBase takes any buffer; who reads here hands over memoryviews.
    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill at most ``len(target)`` bytes, often fewer; 0 only at the end of the object."""
        if not self._piece:
            self._piece = memoryview(self._next())
        count = min(len(target), len(self._piece))
        target[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        self._place = (self._place or 0) + count
        return count

    def seekable(self) -> bool:
        """Whether what is in front of a place need not come too, to begin there."""
        return self._ahead.has_ranges

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go on at another byte, counted from the start of the object."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a remote stream seeks from its start only")
        self.narrow(offset, None)
        return offset

    def narrow(self, start: int, stop: int | None) -> None:
        """Go on at the byte ``start``, and end in front of ``stop``."""
        self._piece = memoryview(b"")
        self._place = start
        self._ahead.begin(start, stop)

    def tell(self) -> int:
        return self._place or 0

    def digest(self) -> str:
        """Read on to the end; the SHA-256 of the whole object as hexadecimal digits.

        Raises:
            OSError: the object cannot be read to its end.
            ValueError: the stream is not ``hashed``, or was not read from its start.
        """
        while self._next():
            pass
        self._piece = memoryview(b"")
        return self._ahead.digest()

    def head(self) -> Head | None:
        """What a look has seen; None where the server has no ranges to go on behind it."""
        return self._ahead.head()

    def close(self) -> None:
        """Stop to read ahead."""
        if "_ahead" in vars(self):  # there is none where it could not be made
            self._ahead.stop()
        super().close()

    def _next(self) -> bytes:
        if self.closed:
            raise ValueError("the stream is closed")
        if self._place is None:
            self.narrow(0, None)
        return self._ahead.next_piece()
