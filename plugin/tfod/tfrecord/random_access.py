"""Random access to the records of an open shard by their byte offset.

Uncompressed files are read from any offset. Other streams (compressed shards and zip entries) are
read forward, and opened again for an offset before the current position.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any

from tfod.errors import TfodError
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, decode_length, masked_crc32c
from tfod.tfrecord.reader import Record

_MAX_RECORD_BYTES = 64 << 20
_STEP = 1 << 20


class RecordReader:
    """A reader of single records, which keeps its stream open.

    Args:
        open_stream: function that opens the shard; called again to read backward. It may raise
            OSError and TfodError.
        max_record_bytes: maximum length of a payload.

    Attributes:
        is_seekable: whether reading at any offset takes the same time.
    """

    def __init__(
        self, open_stream: Callable[[], Any], max_record_bytes: int = _MAX_RECORD_BYTES
    ) -> None:
        self._open_stream, self._max_record_bytes = open_stream, max_record_bytes
        self._stream: Any = None
        self._open()

    def close(self) -> None:
        """Close the stream."""
        if self._stream is not None:
            self._file.close()
            self._stream = None

    def read(self, offset: int, number: int = 0) -> Record | None:
        """Read the record at an offset; None if it is damaged, too large or cannot be read."""
        length = self.read_length(offset)
        if length is None or length > self._max_record_bytes:
            return None
        data = self._read(length + FOOTER_BYTES)
        payload = data[:length]
        if masked_crc32c(payload) != int.from_bytes(data[length:], "little"):
            return None
        return Record(number, offset, bytearray(HEADER_BYTES) + payload, HEADER_BYTES, length)

    def read_length(self, offset: int) -> int | None:
        """Read the header at an offset, and return the length of the payload or None."""
        if self._stream is None or (offset < self._position and not self.is_seekable):
            self._open()
        if self.is_seekable:
            self._file.seek(offset)
        while self._position < offset and not self.is_seekable:
            if not self._read(min(offset - self._position, _STEP)):
                return None
        return decode_length(self._read(HEADER_BYTES))

    def _open(self) -> None:
        self.close()
        self._file = self._open_stream()
        peeked = PeekedStream(self._file)
        is_plain = peeked.compression is Compression.NONE
        self.is_seekable = is_plain and self._file.seekable()
        self._stream = self._file if self.is_seekable else peeked.plain()
        self._position = 0

    def _read(self, count: int) -> bytes:
        """Read bytes; fewer at the end of the stream or before damage."""
        parts = []
        with contextlib.suppress(OSError, TfodError, zlib.error, EOFError):
            while count and (part := self._stream.read(count)):
                parts.append(part)
                count -= len(part)
                self._position += len(part)
        return b"".join(parts)
