"""The bytes of one entry of a zip, of which nothing is believed: judged while they are read."""

from __future__ import annotations

import abc
import io
import zlib
from typing import NoReturn

from tfod.tfrecord.storage.zip_directory import Entry

STORED, DEFLATED = 0, 8
"""The methods that are read. Source: PKWARE's APPNOTE.TXT, 4.4.5."""
_INPUT_STEP = 1 << 16


class EntryStream(io.RawIOBase):
    """The unpacked bytes of one entry; whoever reads it says what a limit and a damage are.

    Args:
        entry: which is stored or deflated.
        file: the archive, whose position is used.
    """

    def __init__(self, entry: Entry, file: io.FileIO) -> None:
        self._entry = entry
        self._file = file
        self._position = entry.data_start or 0
        self._left = entry.packed_size  # bytes of the entry that were not taken yet
        self._inflater = None if entry.method == STORED else zlib.decompressobj(-zlib.MAX_WBITS)
        self._pending = b""  # taken, but not inflated yet
        self._unpacked = 0
        self._crc = 0

    @abc.abstractmethod
    def give_up(self, cause: str) -> NoReturn:
        """Raise, since the entry is damaged."""

    @abc.abstractmethod
    def account(self, unpacked: int, packed: int) -> None:
        """Judge how much has come so far, out of how much; raise if it is too much."""

    def settle(self) -> None:
        """The entry was read to its sound end."""

    def readable(self) -> bool:
        return True

    # RawIOBase takes any buffer; who reads here hands over memoryviews, which need no copy.
    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        """Fill some of the target; 0 only at the sound end of the entry.

        Raises whatever :meth:`give_up` and :meth:`account` do.
        """
        view = memoryview(target).cast("B")
        if not view:
            return 0
        count = self._copy_into(view) if self._inflater is None else self._inflate_into(view)
        if not count:
            self._check_end()
            return 0
        self._crc = zlib.crc32(view[:count], self._crc)
        self._unpacked += count
        entry = self._entry
        self.account(self._unpacked, entry.packed_size - self._left - len(self._pending))
        if self._unpacked > entry.size:
            self.give_up(f"it holds more than the {entry.size} bytes that it declares")
        return count

    def _copy_into(self, view: memoryview) -> int:
        self._file.seek(self._position)
        count = self._file.readinto(view[: self._left])
        self._position += count
        self._left -= count
        return count

    def _inflate_into(self, view: memoryview) -> int:
        assert self._inflater is not None
        while not self._inflater.eof:
            self._pending = self._pending or self._take()
            at_end = not self._pending  # the inflater may still hold some of the last bytes
            try:
                data = self._inflater.decompress(self._pending, len(view))
            except zlib.error as error:
                self.give_up(
                    f"its compressed data are damaged after {self._unpacked} bytes ({error})"
                )
            self._pending = self._inflater.unconsumed_tail or self._inflater.unused_data
            if data:
                view[: len(data)] = data
                return len(data)
            if at_end:
                break
        return 0

    def _take(self) -> bytes:
        self._file.seek(self._position)
        data = self._file.read(min(_INPUT_STEP, self._left))
        self._position += len(data)
        self._left -= len(data)
        return data

    def _check_end(self) -> None:
        entry = self._entry
        if self._inflater is not None and not self._inflater.eof:
            self.give_up(
                f"its compressed data end early: {self._unpacked} of {entry.size} bytes unpack"
            )
        if self._unpacked < entry.size:
            self.give_up(f"it ends after {self._unpacked} of the {entry.size} bytes it declares")
        spare = self._left + len(self._pending)
        if spare:
            self.give_up(f"its compressed data end {spare} bytes before the declared end")
        if self._crc != entry.crc:
            self.give_up(
                f"its CRC-32 is {self._crc:08x}, and {entry.crc:08x} according to the directory"
            )
        self.settle()
