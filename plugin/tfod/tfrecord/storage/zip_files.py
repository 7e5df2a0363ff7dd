"""Shards inside a zip, read where they lie: Roboflow's exports come as one.

An entry has the path ``export.zip/train/Objects.tfrecord``, as if the archive were a folder, and
nothing is ever unpacked under a name that the archive chose. Entries that are stored are read in
place, deflated ones through a stream. An archive may be hostile: what it says of itself is read by
:mod:`tfod.tfrecord.storage.zip_directory`, and entries that nobody should unpack are refused.
"""

from __future__ import annotations

import functools
import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NoReturn, cast

from tfod.errors import ShardError
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.storage.zip_directory import (
    DirectoryError,
    Entry,
    find_overlaps,
    printable,
    read_directory,
)
from tfod.tfrecord.storage.zip_entry import DEFLATED, STORED, EntryStream

_MOST_ENTRIES = 100_000
_MOST_DIRECTORY_BYTES = 32 << 20
# Deflate reaches 1032; annotations without images 10 to 50, the same record again and again 290.
_MOST_RATIO = 200
_RATIO_FROM = 4 << 20
_SEPARATORS = frozenset((os.sep, os.altsep or os.sep))
_SEE = "look at the archive with: tfod check"


@dataclass(frozen=True, slots=True)
class ZipMember:
    """An entry of a zip.

    Attributes:
        path: of the entry, behind the archive's own.
        archive: path of the zip.
        entry: what the directory says of it.
    """

    path: str
    archive: str
    entry: Entry

    @property
    def size(self) -> int:
        """How many bytes it has when it is unpacked."""
        return self.entry.size

    @property
    def place(self) -> int | None:
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
        return cast(io.FileIO, _MemberStream(self, file))


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
    status = os.stat(archive)
    return _members(archive, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(2)  # a hostile directory of 100,000 entries takes up some 100 MB
def _members(archive: str, *_identity: int) -> Mapping[str, ZipMember]:
    with open(archive, "rb", buffering=0) as file:
        try:
            directory = read_directory(file, _MOST_ENTRIES, _MOST_DIRECTORY_BYTES)
        except DirectoryError as error:
            raise ShardError(
                f"is not a readable zip: {error}",
                shard=archive,
                fix="download or export it again",
            ) from None
    if not directory.complete:
        raise ShardError(
            f"has more than {_MOST_ENTRIES} entries or a directory of more than "
            f"{_MOST_DIRECTORY_BYTES >> 20} MiB",
            shard=archive,
            fix="unpack it, and read the folder",
        )
    for overlap in find_overlaps(directory):
        raise ShardError(
            f"entry {printable(overlap.entry.name)} reaches {overlap.by} bytes into what follows, "
            "as in a zip bomb",
            shard=archive,
            fix=_SEE,
        )
    found = {}
    for entry in directory.entries:
        if not entry.is_folder and entry.path:
            path = os.path.join(archive, *entry.path.split("/"))
            found[path] = ZipMember(path, archive, entry)  # of one name the last, as unzip does
    return found


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
    raise ShardError(f"entry {printable(entry.name)} {cause}", shard=member.archive, fix=_SEE)


def files_in(folder: str) -> Iterator[str]:
    """Paths of the files right in a folder of a zip; nothing where the folder is in none.

    Raises:
        ShardError: the archive is damaged.
    """
    archive = _archive_above(os.path.join(folder, ""))
    if archive is not None:
        status = os.stat(archive)
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        yield from _members_by_folder(archive, *identity).get(folder, ())


@functools.lru_cache(2)
def _members_by_folder(archive: str, *identity: int) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for path in _members(archive, *identity):
        found.setdefault(os.path.dirname(path), []).append(path)
    return found


class _MemberStream(EntryStream):
    """The plain bytes of one entry, which are counted."""

    def __init__(self, member: ZipMember, file: BinaryIO | io.FileIO) -> None:
        super().__init__(member.entry, cast(io.FileIO, file))
        self._member = member

    def account(self, unpacked: int, packed: int) -> None:
        if unpacked > max(_RATIO_FROM, _MOST_RATIO * packed):
            self.give_up(f"it unpacks to more than {_MOST_RATIO} times its size, as in a zip bomb")

    def give_up(self, cause: str) -> NoReturn:
        name = printable(self._member.entry.name)
        shard = self._member.archive
        raise ShardError(f"entry {name} is damaged: {cause}", shard=shard, fix=_SEE) from None
