"""Zips, read where they lie: what is in them, and what should not be read.

An archive may be hostile. ``zipfile`` reads its directory, once that is known not to be too long.
Of an entry no more is unpacked than it declares (:mod:`tfod.tfrecord.storage.zip_entry`). An entry
has the path ``export.zip/train/Objects.tfrecord``, as if the archive were a folder, and nothing is
ever unpacked under a name that the archive chose.
"""

from __future__ import annotations

import enum
import errno
import functools
import io
import itertools
import os
import re
import stat
import struct
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tfod.errors import ShardError
from tfod.tfrecord.compression import HEAD_BYTES
from tfod.tfrecord.damage import looks_like
from tfod.tfrecord.framing import HEADER_BYTES, is_record_header
from tfod.tfrecord.storage.urls import is_zip
from tfod.tfrecord.storage.zip_entry import LOCAL_BYTES, SEE, ZipEntry, decode_name, stored_name

_CENTRAL, _LOCAL, _END = b"PK\1\2", b"PK\3\4", b"PK\5\6"
_LONGEST_END = 22 + 0xFFFF
"""Bytes of the record that leads to the directory, with the comment behind it."""
_SEPARATORS = frozenset((os.sep, os.altsep or os.sep))
_ENCRYPTED, _PATCH, _STRONGLY = 1 << 0, 1 << 5, 1 << 6
_DRIVE = re.compile(r"[A-Za-z]:")
# But for the one in the name of a folder's icon on macOS.
_CONTROL = re.compile(r"[\0-\x0c\x0e-\x1f\x7f-\x9f]|(?<!Icon)\r")
_METHODS = {9: "Deflate64", 12: "BZIP2", 14: "LZMA", 93: "Zstandard", 99: "AES encryption"}
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


@dataclass(frozen=True)
class ZipLimits:
    """What is not read of a zip.

    Attributes:
        entries: an archive of more is not read.
        total_bytes: what goes beyond so many unpacked bytes in all is not read.
        ratio: an entry that unpacks to more times its packed size is not read. Deflate reaches
            1032; annotations without images 10 to 50, the same record again and again 290.
        ratio_from: how many bytes an entry unpacks to before the ratio is looked at.
        directory_bytes: how long a directory is loaded; 100,000 entries take up 10 to 30 MB.
    """

    entries: int = 100_000
    total_bytes: int = 64 << 30
    ratio: float = 200.0
    ratio_from: int = 4 << 20
    directory_bytes: int = 32 << 20


class ZipFault(enum.Enum):
    """What may be wrong with a zip, or with an entry of it."""

    DIRECTORY = "damaged directory"
    OUTSIDE = "path outside the folder"
    SPECIAL = "link or device"
    TWICE = "two entries for one file"
    TOO_LARGE = "unpacks to too much"
    LOCKED = "encrypted, or packed in another way"
    DAMAGED = "damaged entry"


@dataclass(frozen=True)
class ZipProblem:
    """What is wrong with an entry, or with the whole archive where ``entry`` is None."""

    fault: ZipFault
    cause: str
    entry: ZipEntry | None = None


@dataclass(frozen=True)
class ZipContent:
    """What is in a zip.

    Attributes:
        entries: its files by their path, in the order of the directory; of one name the last.
        problems: what is wrong with it, as far as the directory says.
        refused: those of them for which an entry is not read, by its path.
        damage: why it is no zip that is read at all.
    """

    entries: Mapping[str, ZipEntry] = field(default_factory=dict)
    problems: Sequence[ZipProblem] = ()
    refused: Mapping[str, ZipProblem] = field(default_factory=dict)
    damage: ZipProblem | None = None

    @functools.cached_property
    def readable(self) -> Mapping[str, ZipEntry]:
        """The entries that are read."""
        return {path: one for path, one in self.entries.items() if path not in self.refused}

    @functools.cached_property
    def folders(self) -> Mapping[str, Sequence[str]]:
        """The paths of all files by their folder."""
        found: dict[str, list[str]] = {}
        for path in self.entries:
            found.setdefault(os.path.dirname(path), []).append(path)
        return found


def read_zip(archive: str, limits: ZipLimits | None = None) -> ZipContent:
    """Read the directory of a zip, and see what is wrong with it; that of the last ones is kept.

    Raises:
        OSError: it cannot be read.
    """
    status = os.stat(archive)
    identity = status.st_ino, status.st_size, status.st_mtime_ns
    return _read_content(archive, limits or ZipLimits(), *identity)


@functools.lru_cache(2)  # a hostile directory of 100,000 entries takes up some 100 MB
def _read_content(archive: str, limits: ZipLimits, *_identity: int) -> ZipContent:
    try:
        with _Source(archive, limits) as file, zipfile.ZipFile(file) as opened:
            entries = [ZipEntry(archive, decode_name(one), one) for one in opened.infolist()]
    except _TooLargeError as error:
        return _unreadable(ZipFault.TOO_LARGE, str(error))
    # What zipfile raises for a damaged directory, or one of a version that it does not know.
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        return _unreadable(ZipFault.DIRECTORY, _what_it_is(archive, error))
    except (OSError, OverflowError) as error:
        # A directory in front of the file's first byte, or beyond what a file can have.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        return _unreadable(ZipFault.DIRECTORY, _what_it_is(archive, error))
    problems = [*_problems_of_each(entries, limits), *_overlaps(entries)]
    refused = {one.entry.path: one for one in reversed(problems) if one.entry}
    files = {one.path: one for one in entries if not one.is_folder and one.inside}
    total = 0
    for path in [path for path in files if path not in refused]:
        total += files[path].size
        if total > limits.total_bytes:
            cause = f"its entries unpack to more than {limits.total_bytes} bytes"
            beyond = ZipProblem(ZipFault.TOO_LARGE, f"{cause}; the rest was not read")
            problems += [] if beyond in refused.values() else [beyond]
            refused[path] = beyond
    return ZipContent(files, [*problems, *_of_one_file(entries)], refused)


def _unreadable(fault: ZipFault, cause: str) -> ZipContent:
    damage = ZipProblem(fault, cause)
    return ZipContent(problems=[damage], damage=damage)


class _TooLargeError(Exception):
    """The directory is not loaded."""


class _Source(io.FileIO):
    """An archive whose directory ``zipfile`` loads in one piece, if it is not too large."""

    def __init__(self, path: str, limits: ZipLimits) -> None:
        super().__init__(path)
        self._limits = limits

    def read(self, size: int | None = -1, /) -> bytes:
        limits = self._limits
        wanted = -1 if size is None else size
        if wanted > limits.directory_bytes:
            raise _TooLargeError(f"its directory has {wanted} bytes; it was not read")
        data = super().read(wanted) or b""
        # Counted before each entry becomes an object of some hundred bytes.
        if data.startswith(_CENTRAL) and data.count(_CENTRAL) > limits.entries:
            raise _TooLargeError(f"it has more than {limits.entries} entries; none was read")
        return data


def _what_it_is(archive: str, error: Exception) -> str:
    with open(archive, "rb") as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, os.SEEK_END)
    if not size:
        return "it is empty (0 bytes)"
    if is_record_header(head[:HEADER_BYTES]):
        return "it is not a zip but a TFRecord shard"
    if _has_end(archive):
        return f"its directory is damaged ({error})"
    if head.startswith(_LOCAL):
        return f"it begins as a zip and was cut off: after {size} bytes it has no directory"
    other = ("a gzip file",) if head.startswith(b"\x1f\x8b") else looks_like(head)
    return f"it is not a zip but {other[0]}" if other else "it has no directory of a zip"


def _has_end(archive: str) -> bool:
    """Whether there is a record at the end that leads to a directory.

    ``zipfile.is_zipfile`` of Python 3.14 wants a sound directory, too.
    """
    with open(archive, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_END))
        return _END in file.read()


def _problems_of_each(entries: Sequence[ZipEntry], limits: ZipLimits) -> Iterator[ZipProblem]:
    for entry in entries:
        checks = _path_fault(entry), _kind_fault(entry), _packing_fault(entry, limits)
        for found in checks:
            if found is not None:
                yield ZipProblem(*found, entry)


def _path_fault(entry: ZipEntry) -> tuple[ZipFault, str] | None:
    """A path stays in the folder, with the separators of any system, and is one at all."""
    name, shown = entry.name, entry.shown
    parts = name.replace("\\", "/").split("/")
    cause = ""
    if name.startswith(("/", "\\")):
        cause = f"the name {shown} is absolute"
    elif not entry.inside and not entry.is_folder:
        cause = f"an entry has no file name: '{shown}'"
    # Windows trims dots and blanks from the end of a part: '.. ' is as bad as '..'.
    elif any(".." in part and not part.strip(" .") for part in parts):
        cause = f"the path {shown} has '..' in it"
    elif _DRIVE.match(name):
        cause = f"the path {shown} names a drive"
    elif _CONTROL.search(name):
        cause = f"the path {shown} has control characters"
    return (ZipFault.OUTSIDE, cause) if cause else None


def _kind_fault(entry: ZipEntry) -> tuple[ZipFault, str] | None:
    kind = _KINDS.get(stat.S_IFMT(entry.mode))
    return (ZipFault.SPECIAL, f"it is {kind}") if kind else None


def _packing_fault(entry: ZipEntry, limits: ZipLimits) -> tuple[ZipFault, str] | None:
    info = entry.info
    size, packed = info.file_size, info.compress_size
    if info.flag_bits & (_ENCRYPTED | _STRONGLY):
        return ZipFault.LOCKED, "it is encrypted"
    if info.flag_bits & _PATCH:
        return ZipFault.LOCKED, "it holds patches of a file and not the file"
    # The others unpack without a bound on memory.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        name = _METHODS.get(info.compress_type, "unknown")
        return ZipFault.LOCKED, f"it is compressed by method {info.compress_type} ({name})"
    if size > max(limits.ratio_from, limits.ratio * packed):
        cause = f"its {packed} bytes unpack to {size}, {size / max(1, packed):.0f} times as many"
        return ZipFault.TOO_LARGE, f"{cause}; {limits.ratio:g} times are allowed"
    if info.compress_type == zipfile.ZIP_STORED and size != packed:
        return ZipFault.DAMAGED, f"it is stored, and has {packed} of the {size} bytes it declares"
    return None


def _overlaps(entries: Sequence[ZipEntry]) -> Iterator[ZipProblem]:
    """Entries whose data reach into the next one: the same bytes would unpack again and again.

    Python sees that itself since 3.11.8 and 3.12.2, and only when the entry is opened
    (CVE-2024-0450). The length of the extra field in front of the data is not known here; without
    it the packed data of all other entries are no more than the file has bytes.
    """
    placed = sorted(entries, key=lambda one: one.info.header_offset)
    for entry, following in itertools.pairwise(placed):
        info = entry.info
        end = info.header_offset + LOCAL_BYTES + len(stored_name(info)) + info.compress_size
        reach = end - following.info.header_offset
        if reach > 0:
            cause = f"its data overlap the entry {following.shown} by {reach} bytes"
            yield ZipProblem(ZipFault.TOO_LARGE, f"{cause}, as in a zip bomb", entry)


def _of_one_file(entries: Sequence[ZipEntry]) -> Iterator[ZipProblem]:
    """Entries that are one file when they are unpacked, on some system."""
    known: dict[int, tuple[int, ZipEntry]] = {}  # by hash: a hostile archive's names are long
    for number, entry in enumerate(entries):
        key = _same_file_key(entry.inside)
        before, earlier = known.get(hash(key), (0, entry))
        known[hash(key)] = number, entry
        if earlier is entry or _same_file_key(earlier.inside) != key:
            continue
        if entry.is_folder and earlier.is_folder:
            continue
        if earlier.inside == entry.inside:
            cause = f"entries {before} and {number} have this name; unpacking leaves the last one, "
            cause += "and that one was checked"
        else:
            cause = f"its name differs from {earlier.shown} only by case or by how accents are "
            cause += "encoded; on Windows and macOS they are one file"
        yield ZipProblem(ZipFault.TWICE, cause, entry)


def _same_file_key(path: str) -> str:
    """What two paths have in common that are one file on some system (Windows, macOS)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _zip_above(path: str) -> str | None:
    """The zip that a path leads into.

    From the top down: a path in a zip may have thousands of folders, above it there are few.
    """
    for place, letter in enumerate(path):
        if place and letter in _SEPARATORS and not os.path.isdir(path[:place]):
            archive = path[:place]
            # By its end, too: one that unpacks itself has a program in front.
            is_one = os.path.isfile(archive) and (is_zip(archive) or _has_end(archive))
            return archive if is_one else None
    return None


def sound_content(archive: str) -> ZipContent:
    """What is in a zip.

    Raises:
        ShardError: it cannot be read.
        OSError: it cannot be opened.
    """
    content = read_zip(archive)
    if content.damage is not None:
        cause, fix = content.damage.cause, "download or export it again"
        raise ShardError(f"is not a readable zip: {cause}", shard=archive, fix=fix)
    return content


def find_entry(path: str) -> ZipEntry | None:
    """The entry that a path such as ``export.zip/train/Objects.tfrecord`` means; None for others.

    Raises:
        ShardError: the archive is damaged, or the entry is one that should not be read.
    """
    archive = _zip_above(path)
    if archive is None:
        return None
    inside = path[len(archive) + 1 :].replace(os.sep, "/")
    content = sound_content(archive)
    entry = content.entries.get(os.path.join(archive, *inside.split("/")))
    if entry is not None:
        require_readable(entry, content)
    return entry


def require_readable(entry: ZipEntry, content: ZipContent, archive: str = "") -> None:
    """Refuse an entry that is damaged, hostile or packed in a way that is not read.

    ``archive`` is what messages call the zip, if not by its path.

    Raises:
        ShardError: it is; the message says why.
    """
    refused = content.refused.get(entry.path)
    if refused is not None:
        cause = f"entry {entry.shown} is not read: {refused.cause}"
        raise ShardError(cause, shard=archive or entry.archive, fix=SEE)


def files_in(folder: str) -> Sequence[str]:
    """Paths of the files right in a folder of a zip; nothing where the folder is in none.

    Raises:
        ShardError: the archive is damaged.
    """
    archive = _zip_above(os.path.join(folder, ""))
    return sound_content(archive).folders.get(folder, ()) if archive is not None else ()
