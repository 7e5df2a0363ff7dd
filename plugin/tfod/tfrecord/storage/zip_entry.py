"""An entry of a zip: its name, and its bytes, which are checked while they are read."""

from __future__ import annotations

import copy
import io
import os
import stat
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NoReturn, cast

from tfod.errors import ShardError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SEE = "look at the archive with: tfod check"
_LOCAL_MAGIC, LOCAL_BYTES = b"PK\3\4", 30
"""An entry's own header, without its name."""
_UTF8 = 1 << 11
_AT_ONCE = 1 << 16
"""Bytes: of so many the sound ones are lost where compressed data are damaged."""
_SEEN_AS_THEY_ARE = "\u200c\u200d\u00a0\u3000"  # joiners and spaces that scripts need


class ZipEntryError(ShardError):
    """An entry cannot be read further: it is damaged, for this reason."""

    reason = ""


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """An entry of a zip.

    Attributes:
        archive: path of the zip.
        name: as it is stored, decoded; may hold anything.
        info: what the directory says of it.
    """

    archive: str
    name: str
    info: zipfile.ZipInfo

    @property
    def inside(self) -> str:
        """The name with forward slashes and without what has no meaning in a path."""
        parts = self.name.replace("\\", "/").split("/")
        return "/".join(part for part in parts if part not in ("", "."))

    @property
    def path(self) -> str:
        """Where it is, as if the archive were a folder."""
        return os.path.join(self.archive, *self.inside.split("/"))

    @property
    def shown(self) -> str:
        """The name as reports show it."""
        return printable(self.name)

    @property
    def is_folder(self) -> bool:
        """Whether it stands for a folder and has no data."""
        is_folder = stat.S_ISDIR(self.mode) and not self.info.file_size
        return self.name.endswith(("/", "\\")) or is_folder

    @property
    def mode(self) -> int:
        """Of the file on a Unix system; 0 where it was not noted."""
        return self.info.external_attr >> 16

    @property
    def size(self) -> int:
        """How many bytes it has when it is unpacked; never more are read."""
        return self.info.file_size

    def open(self) -> io.FileIO:
        """Its plain bytes, in order.

        Reading raises ZipEntryError where the data are damaged, or not those of the directory.

        Raises:
            OSError: the archive cannot be opened.
        """
        return cast(io.FileIO, _EntryStream(self))

    def head(self, most: int) -> bytes:
        """At most so many of its first bytes; nothing where it cannot be read."""
        try:
            with self.open() as stream:
                return io.BufferedReader(stream, max(most, 1 << 13)).read(most)
        except (ShardError, OSError):
            return b""

    def give_up(self, cause: str) -> NoReturn:
        """Raise, since it is damaged."""
        what = f"entry {self.shown} is damaged: {cause}"
        error = ZipEntryError(what, shard=self.archive, fix=SEE)
        error.reason = cause
        raise error from None


def decode_name(info: zipfile.ZipInfo) -> str:
    """The whole name: macOS writes UTF-8 and does not say so."""
    if info.flag_bits & _UTF8:
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.orig_filename


def stored_name(info: zipfile.ZipInfo) -> bytes:
    """The name as it is in the archive."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def printable(text: str) -> str:
    """The text in its own script, with what would move the cursor or turn the line escaped."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in _SEEN_AS_THEY_ARE else ascii(one)[1:-1] for one in text
    )


def _data_start(entry: ZipEntry, file: io.FileIO) -> int:
    """Byte of the archive at which an entry's data begin, behind its own header."""
    offset, name = entry.info.header_offset, stored_name(entry.info)
    try:
        file.seek(offset)
    except (OSError, ValueError, OverflowError):
        entry.give_up(f"the directory places it at byte {offset}")
    header = file.read(LOCAL_BYTES)
    if len(header) < LOCAL_BYTES or not header.startswith(_LOCAL_MAGIC):
        entry.give_up(f"no entry begins at byte {offset}, where the directory places it")
    name_bytes, extra_bytes = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    own_name = file.read(name_bytes)
    if own_name != name:
        entry.give_up(f"its own header calls it {printable(own_name.decode('utf-8', 'replace'))}")
    return offset + LOCAL_BYTES + name_bytes + extra_bytes


class _EntryStream(io.RawIOBase):
    """The unpacked bytes of an entry; what is wrong with them is a ZipEntryError."""

    def __init__(self, entry: ZipEntry) -> None:
        self._entry = entry
        self._file = open(entry.archive, "rb", buffering=0)
        self._unpacked: zipfile.ZipExtFile | None = None
        self._count = self._crc = 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill some of the target; 0 only at the sound end of the entry."""
        view = memoryview(buffer).cast("B")
        data = self._read(len(view)) if view else b""
        view[: len(data)] = data
        return len(data)

    def _read(self, most: int) -> bytes:
        entry = self._entry
        if self._unpacked is None:
            self._file.seek(_data_start(entry, self._file))
            # zipfile would keep the last bytes of an entry back whose checksum is wrong.
            info = copy.copy(entry.info)
            del info.CRC
            self._unpacked = zipfile.ZipExtFile(cast(IO[bytes], self._file), "r", info)
        try:
            data = self._unpacked.read1(min(most, _AT_ONCE))
        except zlib.error as error:
            entry.give_up(f"its compressed data are damaged after {self._count} bytes ({error})")
        except EOFError:
            entry.give_up("the archive ends before it does")
        self._count += len(data)
        self._crc = zlib.crc32(data, self._crc)
        if not data and self._count < entry.size:
            entry.give_up(f"it ends after {self._count} of the {entry.size} bytes it declares")
        if not data and self._crc != entry.info.CRC:
            entry.give_up(f"its CRC-32 is not {entry.info.CRC:08x}, as the directory says")
        return data
