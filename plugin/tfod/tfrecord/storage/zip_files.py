"""Files inside a zip, read where they lie: Roboflow's exports come as one.

An entry has the path ``export.zip/train/Objects.tfrecord``, as if the archive were a folder, and
nothing is ever unpacked under a name that the archive chose. Entries that are stored are read in
place, deflated ones through a stream. An archive may be hostile: of what it says nothing is
believed, and entries that should not be unpacked are refused.
"""

from __future__ import annotations

import functools
import io
import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NoReturn, cast

from tfod.errors import ShardError
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.storage.zip_directory import (
    DirectoryError,
    Entry,
    find_overlaps,
    read_directory,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STORED, DEFLATED = 0, 8
"""The methods that are read. Source: PKWARE's APPNOTE.TXT, 4.4.5."""
_MOST_ENTRIES = 100_000
_MOST_DIRECTORY_BYTES = 32 << 20
# Deflate reaches 1032; annotations without images 10 to 50, the same record again and again 290.
_MOST_RATIO = 200
_RATIO_FROM = 4 << 20
_INPUT_STEP = 1 << 16
_SEPARATORS = frozenset((os.sep, os.altsep or os.sep))
_SEE = "look at the archive with: tfod check"


class EntryStream(io.RawIOBase):
    """The unpacked bytes of a stored or deflated entry, checked while they are read.

    Reading raises ShardError where size or checksum are wrong, the data are damaged, or too much
    unpacks; a subclass may report that in another way. The position of ``file`` is used.
    """

    def __init__(self, entry: Entry, file: BinaryIO | io.FileIO, archive: str = "") -> None:
        self._entry = entry
        self._file = cast(io.FileIO, file)
        self._archive_name = archive
        self._position = entry.data_start or 0
        self._left = entry.packed_size  # bytes of the entry that were not taken yet
        self._inflater = None if entry.method == STORED else zlib.decompressobj(-zlib.MAX_WBITS)
        self._pending = b""  # taken, but not inflated yet
        self._unpacked = 0
        self._crc = 0

    def give_up(self, cause: str) -> NoReturn:
        """Raise, since the entry is damaged."""
        cause = f"entry {self._entry.shown} is damaged: {cause}"
        raise ShardError(cause, shard=self._archive_name, fix=_SEE) from None

    def account(self, unpacked: int, packed: int) -> None:
        """See how much has come so far, out of how much; raise if it is too much."""
        if unpacked > max(_RATIO_FROM, _MOST_RATIO * packed):
            self.give_up(f"it unpacks to more than {_MOST_RATIO} times its size, as in a zip bomb")

    def settle(self) -> None:
        """The entry was read to its sound end."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill some of the target; 0 only at the sound end of the entry."""
        view = memoryview(buffer).cast("B")
        if not view:
            return 0
        data = self._next(len(view))
        if not data:
            self._check_end()
            return 0
        view[: len(data)] = data
        self._crc = zlib.crc32(data, self._crc)
        self._unpacked += len(data)
        self.account(self._unpacked, self._entry.packed_size - self._left - len(self._pending))
        if self._unpacked > self._entry.size:
            self.give_up(f"it holds more than the {self._entry.size} bytes that it declares")
        return len(data)

    def _next(self, most: int) -> bytes:
        """Some of the unpacked bytes; none at the end."""
        if self._inflater is None:
            return self._take(most)
        while not self._inflater.eof:
            self._pending = self._pending or self._take(_INPUT_STEP)
            at_end = not self._pending  # the inflater may still hold some of the last bytes
            try:
                data = self._inflater.decompress(self._pending, most)
            except zlib.error as error:
                self.give_up(
                    f"its compressed data are damaged after {self._unpacked} bytes ({error})"
                )
            self._pending = self._inflater.unconsumed_tail or self._inflater.unused_data
            if data or at_end:
                return data
        return b""

    def _take(self, most: int) -> bytes:
        self._file.seek(self._position)
        data = self._file.read(min(most, self._left))
        self._position += len(data)
        self._left -= len(data)
        return data

    def _check_end(self) -> None:
        size, crc = self._entry.size, self._entry.crc
        if self._inflater is not None and not self._inflater.eof:
            self.give_up(f"its compressed data end early: {self._unpacked} of {size} bytes unpack")
        if self._unpacked < size:
            self.give_up(f"it ends after {self._unpacked} of the {size} bytes it declares")
        spare = self._left + len(self._pending)
        if spare:
            self.give_up(f"its compressed data end {spare} bytes before the declared end")
        if self._crc != crc:
            self.give_up(f"its CRC-32 is {self._crc:08x}, and {crc:08x} according to the directory")
        self.settle()


@dataclass(frozen=True, slots=True)
class ZipMember:
    """An entry of a zip; its path begins with that of the archive."""

    path: str
    archive: str
    entry: Entry

    @property
    def size(self) -> int:
        """How many bytes it has when it is unpacked."""
        return self.entry.size

    @property
    def start(self) -> int | None:
        """Byte of the archive at which its plain bytes lie; None where they are deflated."""
        return self.entry.data_start if self.entry.method == STORED else None

    def head(self) -> bytes:
        """Its first bytes, enough to know a shard; nothing where it cannot be read."""
        try:
            require_readable(self)
            with open(self.archive, "rb", buffering=0) as file:
                return self.stream(file).read(HEADER_BYTES + 1)
        except (ShardError, OSError):
            return b""

    def stream(self, file: BinaryIO | io.FileIO) -> io.FileIO:
        """The entry's plain bytes, out of the open archive; the archive's position is used.

        Reading raises ShardError where more comes out than an honest entry holds.
        """
        return cast(io.FileIO, EntryStream(self.entry, file, self.archive))


def is_zip(path: str) -> bool:
    """Whether a file is a zip by its first bytes, or by its name when it is damaged."""
    if path.lower().endswith(".zip"):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PK\3\4"
    except OSError:
        return False


def find_member(path: str) -> ZipMember | None:
    """The entry that a path such as ``export.zip/train/Objects.tfrecord`` means; None for others.

    Raises:
        ShardError: the archive is damaged, or the entry is one that should not be read.
    """
    archive = _archive_above(path)
    if archive is None:
        return None
    inside = path[len(archive) + 1 :].replace(os.sep, "/")
    return members(archive).get(os.path.join(archive, *inside.split("/")))


def _archive_above(path: str) -> str | None:
    """The zip that a path leads into.

    From the top down: a path in a zip may have thousands of folders, above it there are few.
    """
    for place, letter in enumerate(path):
        if place and letter in _SEPARATORS and not os.path.isdir(path[:place]):
            return path[:place] if os.path.isfile(path[:place]) and is_zip(path[:place]) else None
    return None


def members(archive: str) -> Mapping[str, ZipMember]:
    """The files of a zip by their paths, in the order of the archive.

    Entries that cannot be or should not be unpacked are there too: :func:`require_readable`.

    Raises:
        ShardError: the archive is damaged, or its entries overlap.
        OSError: it cannot be read.
    """
    return _content(archive)[0]


def _content(archive: str) -> tuple[Mapping[str, ZipMember], Mapping[str, Sequence[str]]]:
    """The files by their paths, and those paths by folder."""
    status = os.stat(archive)
    return _read_content(archive, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(2)  # a hostile directory of 100,000 entries takes up some 100 MB
def _read_content(
    archive: str, *_identity: int
) -> tuple[Mapping[str, ZipMember], Mapping[str, Sequence[str]]]:
    with open(archive, "rb", buffering=0) as file:
        try:
            directory = read_directory(file, _MOST_ENTRIES, _MOST_DIRECTORY_BYTES)
        except DirectoryError as error:
            cause, fix = f"is not a readable zip: {error}", "download or export it again"
            raise ShardError(cause, shard=archive, fix=fix) from None
    if not directory.complete:
        cause = f"has more than {_MOST_ENTRIES} entries or a directory of more than"
        cause += f" {_MOST_DIRECTORY_BYTES >> 20} MiB"
        raise ShardError(cause, shard=archive, fix="unpack it, and read the folder")
    for overlap in find_overlaps(directory):
        cause = f"entry {overlap.entry.shown} reaches {overlap.by} bytes into what follows"
        raise ShardError(f"{cause}, as in a zip bomb", shard=archive, fix=_SEE)
    found: dict[str, ZipMember] = {}
    for entry in directory.entries:
        if not entry.is_folder and entry.path:
            path = os.path.join(archive, *entry.path.split("/"))
            found[path] = ZipMember(path, archive, entry)  # of one name the last, as unzip does
    folders: dict[str, list[str]] = {}
    for path in found:
        folders.setdefault(os.path.dirname(path), []).append(path)
    return found, folders


def require_readable(member: ZipMember) -> None:
    """Refuse an entry that is damaged, hostile or packed in a way that cannot be read.

    Raises:
        ShardError: it is; the message says why.
    """
    entry = member.entry
    kind = stat.S_IFMT(entry.mode)
    if entry.damage is not None:
        cause = f"is damaged: {entry.damage}"
    elif entry.name.startswith(("/", "\\")) or safe_relative_path(entry.name) != entry.path:
        cause = "has a name that leads out of the archive"
    elif entry.is_encrypted or entry.is_patch:
        cause = "needs a password" if entry.is_encrypted else "is a patch of another file"
    elif entry.method not in (STORED, DEFLATED):
        cause = f"is packed by method {entry.method}, which is neither stored nor deflated"
    elif kind not in (0, stat.S_IFREG):
        cause = "is not a regular file"
    elif entry.method == STORED and entry.size != entry.packed_size:
        cause = f"is stored, and has {entry.packed_size} of the {entry.size} bytes it declares"
    else:
        return
    raise ShardError(f"entry {entry.shown} {cause}", shard=member.archive, fix=_SEE)


def files_in(folder: str) -> Iterator[str]:
    """Paths of the files right in a folder of a zip; nothing where the folder is in none.

    Raises:
        ShardError: the archive is damaged.
    """
    archive = _archive_above(os.path.join(folder, ""))
    if archive is not None:
        yield from _content(archive)[1].get(folder, ())
