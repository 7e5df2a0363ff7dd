"""Zip entries: their names, and their bytes, which are checked while they are read."""

from __future__ import annotations

import copy
import io
import os
import shlex
import stat
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NoReturn, cast

from tfod.errors import ShardError
from tfod.tfrecord.storage.local import LocalFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_LOCAL_MAGIC, LOCAL_BYTES = b"PK\3\4", 30
"""The local header of an entry, and its size without the name."""
_UTF8 = 1 << 11
_MAX_READ_BYTES = 1 << 16
"""The number of bytes to decompress at once, which are lost if one of them is damaged."""
_PRINTABLE_SPACES = "\u200c\u200d\u00a0\u3000"  # joiners and spaces that some scripts need


def inspect_zip(path: str) -> str:
    """Return the advice for a zip that is damaged or has rejected entries."""
    return f"inspect the archive with: tfod check {shlex.quote(path)}"


class ZipEntryError(ShardError):
    """An entry is damaged; ``reason`` describes the damage."""

    reason = ""


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """An entry of a zip.

    Attributes:
        archive: path of the zip.
        name: decoded name, which may contain anything.
        info: entry in the directory of the zip.
    """

    archive: str
    name: str
    info: zipfile.ZipInfo

    @property
    def inside(self) -> str:
        """The path inside the zip, with forward slashes and without empty parts."""
        parts = self.name.replace("\\", "/").split("/")
        return "/".join(part for part in parts if part not in ("", "."))

    @property
    def path(self) -> str:
        """The path of the entry, as if the archive were a folder."""
        return os.path.join(self.archive, *self.inside.split("/"))

    @property
    def shown(self) -> str:
        """The name for reports, with special characters escaped."""
        return to_printable(self.name)

    @property
    def is_folder(self) -> bool:
        """Whether the entry is a folder, without data."""
        is_folder = stat.S_ISDIR(self.mode) and not self.info.file_size
        return self.name.endswith(("/", "\\")) or is_folder

    @property
    def mode(self) -> int:
        """The Unix file mode, or 0 if it is not stored."""
        return self.info.external_attr >> 16

    @property
    def size(self) -> int:
        """The declared uncompressed size in bytes, which limits reading."""
        return self.info.file_size

    def open(self) -> io.FileIO:
        """Open the uncompressed bytes; reading raises ZipEntryError if they are damaged."""
        return cast(io.FileIO, _EntryStream(self))

    def read_head(self, max_bytes: int) -> bytes:
        """Read the first bytes, at most ``max_bytes``; empty if the entry cannot be read."""
        try:
            with self.open() as stream:
                return io.BufferedReader(stream, max(max_bytes, 1 << 13)).read(max_bytes)
        except (ShardError, OSError):
            return b""

    def raise_damaged(self, cause: str) -> NoReturn:
        """Raise ZipEntryError with this cause."""
        message = f"entry {self.shown} is damaged: {cause}"
        error = ZipEntryError(message, shard=self.archive, fix=inspect_zip(self.archive))
        error.reason = cause
        raise error from None


def decode_name(info: zipfile.ZipInfo) -> str:
    """Decode the name of an entry; macOS writes UTF-8 without setting the flag."""
    if info.flag_bits & _UTF8:
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.orig_filename


def encode_name(info: zipfile.ZipInfo) -> bytes:
    """Encode the name of an entry as in the archive."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def to_printable(text: str) -> str:
    """Escape control characters and those that change the direction of the text."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _PRINTABLE_SPACES else ascii(char)[1:-1]
        for char in text
    )


def _find_data(entry: ZipEntry, file: io.FileIO) -> int:
    """Return the offset of the data in the archive, after the local header."""
    offset, name = entry.info.header_offset, encode_name(entry.info)
    try:
        file.seek(offset)
    except (OSError, ValueError, OverflowError):
        entry.raise_damaged(f"the zip directory has an impossible offset, byte {offset}")
    header = file.read(LOCAL_BYTES)
    if len(header) < LOCAL_BYTES or not header.startswith(_LOCAL_MAGIC):
        entry.raise_damaged(f"no entry begins at byte {offset}, the offset in the zip directory")
    name_bytes, extra_bytes = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    local_name = file.read(name_bytes)
    if local_name != name:
        text = to_printable(local_name.decode("utf-8", "replace"))
        entry.raise_damaged(f"its local header has a different name: {text}")
    return offset + LOCAL_BYTES + name_bytes + extra_bytes


class _EntryStream(io.RawIOBase):
    """The uncompressed bytes of an entry; reading damaged bytes raises ZipEntryError."""

    def __init__(self, entry: ZipEntry) -> None:
        self._entry = entry
        self._file = LocalFile(entry.archive)
        self._data: zipfile.ZipExtFile | None = None
        self._count = self._crc = 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read bytes into the buffer and return their number; 0 only at an undamaged end."""
        view = memoryview(buffer).cast("B")
        data = self._read(len(view)) if view else b""
        view[: len(data)] = data
        return len(data)

    def _read(self, max_bytes: int) -> bytes:
        entry = self._entry
        if self._data is None:
            self._file.seek(_find_data(entry, self._file))
            # With a wrong CRC, zipfile would not return the last bytes of the entry.
            info = copy.copy(entry.info)
            del info.CRC
            self._data = zipfile.ZipExtFile(cast(IO[bytes], self._file), "r", info)
        try:
            data = self._data.read1(min(max_bytes, _MAX_READ_BYTES))
        except zlib.error as error:
            cause = f"its compressed data are damaged after {self._count} bytes ({error})"
            entry.raise_damaged(cause)
        except EOFError:
            entry.raise_damaged("the archive ends inside the entry")
        self._count += len(data)
        self._crc = zlib.crc32(data, self._crc)
        if not data and self._count < entry.size:
            entry.raise_damaged(f"it ends after {self._count} of {entry.size} declared bytes")
        if not data and self._crc != entry.info.CRC:
            entry.raise_damaged(f"its CRC-32 differs from {entry.info.CRC:08x} in the directory")
        return data
