"""Zips: their entries, read without unpacking, and the problems that make them unsafe to read.

An archive may be hostile. Its directory is loaded only if it is not too long, and an entry yields
at most the bytes that it declares. Entries have paths as if the archive were a folder, such as
``export.zip/train/a.tfrecord``; nothing is ever unpacked under a name from the archive.
"""

from __future__ import annotations

import enum
import errno
import functools
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
from tfod.tfrecord.damage import detect_file_type
from tfod.tfrecord.framing import HEADER_BYTES, is_record_header
from tfod.tfrecord.storage.local import LocalFile
from tfod.tfrecord.storage.urls import is_zip
from tfod.tfrecord.storage.zip_entry import (
    LOCAL_BYTES,
    ZipEntry,
    decode_name,
    encode_name,
    inspect_zip,
)

_CENTRAL, _LOCAL, _END = b"PK\1\2", b"PK\3\4", b"PK\5\6"
_MAX_END_BYTES = 22 + 0xFFFF
"""The largest size of the record at the end that locates the directory, with its comment."""
_SEPARATORS = frozenset((os.sep, os.altsep or os.sep))
_ENCRYPTED, _PATCH, _STRONGLY = 1 << 0, 1 << 5, 1 << 6
_DRIVE = re.compile(r"[A-Za-z]:")
# Except for the carriage return in the name of a folder's icon on macOS.
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
    """Limits above which a zip, or an entry, is not read.

    Attributes:
        entries: maximum number of entries.
        total_bytes: maximum uncompressed size of all entries.
        ratio: maximum ratio of uncompressed to compressed size. Deflate reaches 1032, annotations
            without images 10 to 50, and repetitions of the same record 290.
        ratio_from: uncompressed size up to which the ratio is not checked.
        directory_bytes: maximum size of the directory; 100,000 entries need 10 to 30 MB.
    """

    entries: int = 100_000
    total_bytes: int = 64 << 30
    ratio: float = 200.0
    ratio_from: int = 4 << 20
    directory_bytes: int = 32 << 20


class ZipFault(enum.Enum):
    """The kinds of problems of a zip or a zip entry."""

    DIRECTORY = "damaged directory"
    OUTSIDE = "path outside the folder"
    SPECIAL = "link or device"
    DUPLICATE = "two entries for one file"
    TOO_LARGE = "uncompressed size too large"
    UNSUPPORTED = "encrypted, or unsupported compression"
    DAMAGED = "damaged entry"


@dataclass(frozen=True)
class ZipProblem:
    """A problem of a zip entry, or of the whole archive if ``entry`` is None."""

    fault: ZipFault
    cause: str
    entry: ZipEntry | None = None


@dataclass(frozen=True)
class ZipContent:
    """The content of a zip.

    Attributes:
        entries: files by path, in the order of the directory; the last one for duplicate names.
        problems: problems that the directory shows.
        rejected: problem of each entry that is not read, by path.
        damage: problem because of which the whole zip is not read, or None.
    """

    entries: Mapping[str, ZipEntry] = field(default_factory=dict)
    problems: Sequence[ZipProblem] = ()
    rejected: Mapping[str, ZipProblem] = field(default_factory=dict)
    damage: ZipProblem | None = None

    @functools.cached_property
    def readable(self) -> Mapping[str, ZipEntry]:
        """The entries that can be read, by path."""
        return {path: entry for path, entry in self.entries.items() if path not in self.rejected}

    @functools.cached_property
    def folders(self) -> Mapping[str, Sequence[str]]:
        """The paths of all files by folder."""
        folders: dict[str, list[str]] = {}
        for path in self.entries:
            folders.setdefault(os.path.dirname(path), []).append(path)
        return folders


def read_zip(archive: str, limits: ZipLimits | None = None) -> ZipContent:
    """Read the directory of a zip and check its entries. Results are cached. Raises OSError."""
    status = os.stat(archive)
    identity = status.st_ino, status.st_size, status.st_mtime_ns
    return _read_content(archive, limits or ZipLimits(), *identity)


@functools.lru_cache(2)  # a hostile directory of 100,000 entries needs about 100 MB
def _read_content(archive: str, limits: ZipLimits, *_identity: int) -> ZipContent:
    try:
        with _Source(archive, limits) as file, zipfile.ZipFile(file) as opened:
            entries = [ZipEntry(archive, decode_name(info), info) for info in opened.infolist()]
    except _TooLargeError as error:
        return _unreadable(ZipFault.TOO_LARGE, str(error))
    # zipfile raises these for a damaged directory, or one of an unknown version.
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        return _unreadable(ZipFault.DIRECTORY, _describe_file(archive, error))
    except (OSError, OverflowError) as error:
        # The directory would begin before the file, or beyond the largest file size.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        return _unreadable(ZipFault.DIRECTORY, _describe_file(archive, error))
    problems = [
        ZipProblem(*fault, entry)
        for entry in entries
        for fault in (_check_path(entry), _check_type(entry), _check_data(entry, limits))
        if fault is not None
    ]
    problems += _find_overlaps(entries)
    rejected = {problem.entry.path: problem for problem in reversed(problems) if problem.entry}
    files = {entry.path: entry for entry in entries if not entry.is_folder and entry.inside}
    total = 0
    for path in [path for path in files if path not in rejected]:
        total += files[path].size
        if total > limits.total_bytes:
            cause = f"its entries unpack to more than {limits.total_bytes} bytes"
            beyond = ZipProblem(ZipFault.TOO_LARGE, f"{cause}; the other entries were not read")
            problems += [] if beyond in rejected.values() else [beyond]
            rejected[path] = beyond
    return ZipContent(files, [*problems, *_find_duplicates(entries)], rejected)


def _unreadable(fault: ZipFault, cause: str) -> ZipContent:
    damage = ZipProblem(fault, cause)
    return ZipContent(problems=[damage], damage=damage)


class _TooLargeError(Exception):
    """The directory is too large to load."""


class _Source(LocalFile):
    """An archive that rejects a directory above the limits, before ``zipfile`` loads it."""

    def __init__(self, path: str, limits: ZipLimits) -> None:
        super().__init__(path)
        self._limits = limits

    def read(self, size: int | None = -1, /) -> bytes:
        limits = self._limits
        count = -1 if size is None else size
        if count > limits.directory_bytes:
            raise _TooLargeError(f"its directory has {count} bytes; it was not read")
        data = super().read(count) or b""
        # Checked here, before zipfile creates an object of several hundred bytes for each entry.
        if data.startswith(_CENTRAL) and data.count(_CENTRAL) > limits.entries:
            raise _TooLargeError(f"it has more than {limits.entries} entries; none was read")
        return data


def _describe_file(archive: str, error: Exception) -> str:
    with LocalFile(archive) as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, os.SEEK_END)
    if not size:
        return "it is empty (0 bytes)"
    if is_record_header(head[:HEADER_BYTES]):
        return "it is not a zip but a TFRecord shard"
    if _has_end_record(archive):
        return f"its directory is damaged ({error})"
    if head.startswith(_LOCAL):
        return f"it is a truncated zip: it has no directory after {size} bytes"
    detected = ("a gzip file",) if head.startswith(b"\x1f\x8b") else detect_file_type(head)
    return f"it is not a zip but {detected[0]}" if detected else "it has no zip directory"


def _has_end_record(archive: str) -> bool:
    # Unlike zipfile.is_zipfile of Python 3.14, this accepts a damaged directory.
    with LocalFile(archive) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_END_BYTES))
        return _END in file.read()


def _check_path(entry: ZipEntry) -> tuple[ZipFault, str] | None:
    """Check that a path is not empty, and stays in the folder on every operating system."""
    name, shown = entry.name, entry.shown
    parts = name.replace("\\", "/").split("/")
    cause = ""
    if name.startswith(("/", "\\")):
        cause = f"the name {shown} is absolute"
    elif not entry.inside and not entry.is_folder:
        cause = f"an entry has no file name: '{shown}'"
    # Windows strips dots and spaces from the end of a part, so '.. ' means '..'.
    elif any(".." in part and not part.strip(" .") for part in parts):
        cause = f"the path {shown} contains '..'"
    elif _DRIVE.match(name):
        cause = f"the path {shown} begins with a drive"
    elif _CONTROL.search(name):
        cause = f"the path {shown} contains control characters"
    return (ZipFault.OUTSIDE, cause) if cause else None


def _check_type(entry: ZipEntry) -> tuple[ZipFault, str] | None:
    kind = _KINDS.get(stat.S_IFMT(entry.mode))
    return (ZipFault.SPECIAL, f"it is {kind}") if kind else None


def _check_data(entry: ZipEntry, limits: ZipLimits) -> tuple[ZipFault, str] | None:
    info = entry.info
    size, packed = info.file_size, info.compress_size
    if info.flag_bits & (_ENCRYPTED | _STRONGLY):
        return ZipFault.UNSUPPORTED, "it is encrypted"
    if info.flag_bits & _PATCH:
        return ZipFault.UNSUPPORTED, "it contains patches for a file instead of the file"
    # Other methods decompress with unlimited memory.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        name = _METHODS.get(info.compress_type, "unknown")
        return ZipFault.UNSUPPORTED, f"it is compressed by method {info.compress_type} ({name})"
    if size > max(limits.ratio_from, limits.ratio * packed):
        cause = f"its {packed} bytes unpack to {size}, {size / max(1, packed):.0f} times as many"
        return ZipFault.TOO_LARGE, f"{cause}; the maximum is {limits.ratio:g} times"
    if info.compress_type == zipfile.ZIP_STORED and size != packed:
        return ZipFault.DAMAGED, f"it is stored with {packed} of {size} declared bytes"
    return None


def _find_overlaps(entries: Sequence[ZipEntry]) -> Iterator[ZipProblem]:
    """Yield entries whose data overlap the next one, which would decompress bytes twice.

    Python checks this since 3.11.8 and 3.12.2, but only when an entry is opened (CVE-2024-0450).
    Without the extra fields, whose length is unknown, all other data are at most the file's size.
    """
    ordered = sorted(entries, key=lambda entry: entry.info.header_offset)
    for entry, following in itertools.pairwise(ordered):
        info = entry.info
        end = info.header_offset + LOCAL_BYTES + len(encode_name(info)) + info.compress_size
        overlap = end - following.info.header_offset
        if overlap > 0:
            cause = f"its data overlap the entry {following.shown} by {overlap} bytes"
            yield ZipProblem(ZipFault.TOO_LARGE, f"{cause}, as in a zip bomb", entry)


def _find_duplicates(entries: Sequence[ZipEntry]) -> Iterator[ZipProblem]:
    """Yield entries that would be unpacked to the same file on some operating system."""
    # The keys are hashes, because a hostile archive may have very long names.
    entries_by_hash: dict[int, tuple[int, ZipEntry]] = {}
    for number, entry in enumerate(entries):
        key = _normalize(entry.inside)
        earlier_number, earlier = entries_by_hash.get(hash(key), (0, entry))
        entries_by_hash[hash(key)] = number, entry
        if earlier is entry or _normalize(earlier.inside) != key:
            continue
        if entry.is_folder and earlier.is_folder:
            continue
        if earlier.inside == entry.inside:
            names = f"entries {earlier_number} and {number} have this name"
            cause = f"{names}; only the last is checked"
        else:
            cause = f"its name differs from {earlier.shown} only in case or in the encoding of "
            cause += "accents; on Windows and macOS they are the same file"
        yield ZipProblem(ZipFault.DUPLICATE, cause, entry)


def _normalize(path: str) -> str:
    """Return a key that is equal for paths of the same file on Windows or macOS."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _find_zip(path: str) -> str | None:
    # The search begins at the top, because a path inside a zip may have thousands of folders.
    for index, character in enumerate(path):
        if index and character in _SEPARATORS and not os.path.isdir(path[:index]):
            archive = path[:index]
            # A self-extracting zip begins with a program, so its end is checked, too.
            is_archive = os.path.isfile(archive) and (is_zip(archive) or _has_end_record(archive))
            return archive if is_archive else None
    return None


def read_valid_zip(archive: str) -> ZipContent:
    """Read the content of a zip; raise ShardError if it is damaged."""
    content = read_zip(archive)
    if content.damage is not None:
        cause, fix = content.damage.cause, "download or export it again"
        raise ShardError(f"is not a readable zip: {cause}", shard=archive, fix=fix)
    return content


def find_entry(path: str) -> ZipEntry | None:
    """Return the zip entry at a path, or None; raise ShardError if it is unsafe to read."""
    archive = _find_zip(path)
    if archive is None:
        return None
    inside = path[len(archive) + 1 :].replace(os.sep, "/")
    content = read_valid_zip(archive)
    entry = content.entries.get(os.path.join(archive, *inside.split("/")))
    if entry is not None:
        require_readable(entry, content)
    return entry


def require_readable(entry: ZipEntry, content: ZipContent, archive: str = "") -> None:
    """Raise ShardError if an entry is unsafe to read; ``archive`` is a name for its zip."""
    rejected = content.rejected.get(entry.path)
    if rejected is not None:
        cause = f"entry {entry.shown} is not read: {rejected.cause}"
        name = archive or entry.archive
        raise ShardError(cause, shard=name, fix=inspect_zip(name))


def list_zip_folder(folder: str) -> Sequence[str]:
    """Return the files directly in a folder of a zip; empty for other folders."""
    archive = _find_zip(os.path.join(folder, ""))
    return read_valid_zip(archive).folders.get(folder, ()) if archive is not None else ()
