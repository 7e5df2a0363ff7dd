"""The directory of a zip, read by ourselves: bounded, strict, and the same with every Python.

``zipfile`` cuts names at a NUL, gives up the whole archive for one bad name, loads a directory of
any size before it can be counted, believes the directory against the entries' own headers, and
notices overlaps only since 3.11.8 and 3.12.2 (CVE-2024-0450).
Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
"""

from __future__ import annotations

import itertools
import os
import stat
import struct
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from tfod.tfrecord.damage import looks_like
from tfod.tfrecord.framing import is_record_header

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_EXTRA = struct.Struct("<HH")
_LONGEST_COMMENT = 0xFFFF
_NEWEST_VERSION = 63  # of the format, in tenths
_IN_ZIP64 = 0xFFFFFFFF  # the real figure is in the zip64 field
_ZIP64_FIELD, _UNICODE_PATH_FIELD = 0x0001, 0x7075
_SEEN_AS_THEY_ARE = "\u200c\u200d\u00a0\u3000"  # joiners and spaces that scripts need
_ENCRYPTED, _SIZES_FOLLOW, _PATCH, _STRONGLY, _UTF8 = 1 << 0, 1 << 3, 1 << 5, 1 << 6, 1 << 11
_MASKED = 1 << 13 | _STRONGLY | _ENCRYPTED  # the entry's own header need not tell the truth


class DirectoryError(Exception):
    """The archive has no directory that can be believed; ``str()`` of it says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as the directory describes it: nothing of this is believed while reading.

    Attributes:
        number: its place in the directory, from 0.
        name: as it is stored, decoded; may hold anything.
        size: how many bytes it claims to unpack to.
        packed_size: how many bytes it takes up in the archive.
        crc: the CRC-32 that it claims to have.
        method: how it is compressed; 0 is stored, 8 is deflated.
        flags: the general purpose bits.
        mode: of the file on a Unix system; 0 where it was not noted.
        start: byte of the archive at which the entry's own header begins.
        data_start: byte at which its data begin; None where there is no header.
        damage: how its headers are broken or contradict one another.
    """

    number: int
    name: str
    size: int
    packed_size: int
    crc: int
    method: int
    flags: int
    mode: int
    start: int
    data_start: int | None
    damage: str | None

    @property
    def path(self) -> str:
        """The name with forward slashes and without what has no meaning in a path."""
        parts = self.name.replace("\\", "/").split("/")
        return "/".join(part for part in parts if part not in ("", "."))

    @property
    def shown(self) -> str:
        """The name as reports show it."""
        return printable(self.name)

    @property
    def is_folder(self) -> bool:
        """Whether it stands for a folder and has no data."""
        return self.name.endswith(("/", "\\")) or (stat.S_ISDIR(self.mode) and not self.size)

    @property
    def is_encrypted(self) -> bool:
        """Whether a password is needed."""
        return bool(self.flags & (_ENCRYPTED | _STRONGLY))

    @property
    def is_patch(self) -> bool:
        """Whether it holds differences from another file."""
        return bool(self.flags & _PATCH)

    @property
    def end(self) -> int | None:
        """Byte behind its data."""
        return None if self.data_start is None else self.data_start + self.packed_size


@dataclass(frozen=True)
class Directory:
    """What the directory says.

    Attributes:
        entries: in the order of the directory.
        promised: how many there are, by the end record.
        complete: whether these are all; otherwise a limit was reached.
        start: byte of the archive at which the directory begins.
    """

    entries: Sequence[Entry]
    promised: int
    complete: bool
    start: int


class Overlap(NamedTuple):
    """An entry whose data reach into the next entry, or into the directory (then None)."""

    entry: Entry
    into: Entry | None
    by: int


def read_directory(file: BinaryIO, most_entries: int, most_bytes: int) -> Directory:
    """Read so much of a zip's directory, and the header in front of each entry's data.

    Raises:
        DirectoryError: there is none, or it is damaged.
    """
    file_size = file.seek(0, os.SEEK_END)
    end = _find_end(file, file_size)
    listing = _read_at(file, end.directory, min(end.size, most_bytes))
    whole = end.size <= most_bytes
    entries: list[Entry] = []
    offset = 0
    while offset < len(listing) and len(entries) < most_entries:
        length = _central_length(listing, offset)
        if length is None:
            if not whole and listing.startswith(b"PK\1\2", offset):
                break
            raise DirectoryError(f"its directory is damaged at byte {end.directory + offset}")
        record = listing[offset : offset + length]
        entries.append(_read_entry(file, file_size, end.prefix, len(entries), record))
        offset += length
    complete = whole and offset >= len(listing)
    # Without zip64 the count has 16 bits; writers of larger archives let it run over.
    if complete and (len(entries) - end.entries) % (1 << 64 if end.is_zip64 else 1 << 16):
        raise DirectoryError(
            f"its end record promises {end.entries} entries and the directory has {len(entries)}"
        )
    return Directory(entries, max(end.entries, len(entries)), complete, end.directory)


def find_overlaps(directory: Directory) -> Iterator[Overlap]:
    """The entries whose data reach into what follows; without them all others are disjoint."""
    placed = [entry for entry in directory.entries if entry.end is not None]
    placed.sort(key=lambda entry: (entry.start, entry.number))
    for entry, following in itertools.zip_longest(placed, placed[1:]):
        limit = directory.start
        if following is not None and following.start < limit:
            limit = following.start
        else:
            following = None
        if entry.end is not None and entry.end > limit:
            yield Overlap(entry, following, entry.end - limit)


def same_file_key(path: str) -> str:
    """What two paths have in common that are one file on some system (Windows, macOS)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def printable(text: str) -> str:
    """The text in its own script, with what would move the cursor or turn the line escaped."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in _SEEN_AS_THEY_ARE else ascii(one)[1:-1] for one in text
    )


class _End(NamedTuple):
    """What the records at the end of the archive say."""

    entries: int
    size: int
    directory: int  # byte of the file at which the directory begins
    prefix: int  # bytes in front of the archive, as of a program that unpacks itself
    is_zip64: bool


def _find_end(file: BinaryIO, file_size: int) -> _End:
    tail_start = max(0, file_size - _END.size - _LONGEST_COMMENT)
    tail = _read_at(file, tail_start, file_size - tail_start)
    place = tail.rfind(b"PK\5\6", 0, max(0, len(tail) - _END.size + 4))
    if place < 0:
        raise DirectoryError(_what_it_is(_read_at(file, 0, 16), file_size))
    _, disk, directory_disk, _, count, size, offset, _ = _END.unpack_from(tail, place)
    end = tail_start + place
    zip64 = _find_end64(file, end)
    if zip64 is not None:
        end, locator_offset, *more = zip64
        if not _agree((disk, directory_disk, count, size, offset), more):
            raise DirectoryError("its two end records, zip and zip64, contradict each other")
        disk, directory_disk, count, size, offset = more
    if disk or directory_disk:
        raise DirectoryError("it is one part of an archive that was split into several files")
    directory = end - size
    prefix = directory - offset
    if directory < 0 or prefix < 0:
        raise DirectoryError(
            f"its end record places a directory of {size} bytes at byte {offset}, "
            f"and the file has {file_size} bytes"
        )
    if zip64 is not None and end not in (locator_offset, locator_offset + prefix):
        raise DirectoryError("its zip64 end record is not where its locator says")
    return _End(count, size, directory, prefix, zip64 is not None)


def _find_end64(file: BinaryIO, end: int) -> tuple[int, ...] | None:
    """Where the zip64 record is, where it is said to be, disk, disk, count, size, offset."""
    locator = _read_at(file, end - _END64_LOCATOR.size, _END64_LOCATOR.size)
    if len(locator) < _END64_LOCATOR.size or not locator.startswith(b"PK\6\7"):
        return None
    _, disk, offset, disks = _END64_LOCATOR.unpack(locator)
    if disk or disks > 1:
        raise DirectoryError("it is one part of an archive that was split into several files")
    # In front of the locator, unless it is longer than usual; the offset counts no prefix.
    for place in (end - _END64_LOCATOR.size - _END64.size, offset):
        record = _read_at(file, place, _END64.size) if place < end else b""
        if len(record) == _END64.size and record.startswith(b"PK\6\6"):
            _, length, _, _, disk, directory_disk, _, count, size, start = _END64.unpack(record)
            if place + 12 + length != end - _END64_LOCATOR.size:
                raise DirectoryError("its zip64 end record has a wrong length")
            return place, offset, disk, directory_disk, count, size, start
    raise DirectoryError("its zip64 end record is missing")


def _agree(short: Sequence[int], long: Sequence[int]) -> bool:
    """Whether the fields of the short end record are those of the long one, or point to it."""
    placeholders = (0xFFFF, 0xFFFF, 0xFFFF, _IN_ZIP64, _IN_ZIP64)
    return all(
        one in (other, pointer)
        for one, other, pointer in zip(short, long, placeholders, strict=True)
    )


def _what_it_is(head: bytes, file_size: int) -> str:
    if not file_size:
        return "it is empty (0 bytes)"
    if head.startswith(b"PK\3\4"):
        return f"it begins as a zip and was cut off: after {file_size} bytes it has no directory"
    if is_record_header(head):
        return "it is not a zip but a TFRecord shard"
    other = ("a gzip file",) if head.startswith(b"\x1f\x8b") else looks_like(head)
    return f"it is not a zip but {other[0]}" if other else "it has no directory of a zip"


def _central_length(listing: bytes, offset: int) -> int | None:
    """Length of the record at this offset; None where there is no whole one."""
    if len(listing) - offset < _CENTRAL.size or not listing.startswith(b"PK\1\2", offset):
        return None
    lengths = struct.unpack_from("<3H", listing, offset + 28)  # name, extra, comment
    length = _CENTRAL.size + sum(lengths)
    return length if offset + length <= len(listing) else None


def _read_entry(file: BinaryIO, file_size: int, prefix: int, number: int, record: bytes) -> Entry:
    central = _CENTRAL.unpack_from(record)
    flags, method, crc, packed_size, size, name_length, extra_length = (
        *central[3:5],
        *central[7:12],
    )
    raw_name = record[_CENTRAL.size :][:name_length]
    damage: str | None = None
    figures = (size, packed_size, central[-1])
    fields: dict[int, bytes] = {}
    try:
        fields = _extra_fields(record[_CENTRAL.size + name_length :][:extra_length])
        figures = _long_figures(figures, fields.get(_ZIP64_FIELD, b""))
        name = _decode_name(raw_name, flags, fields.get(_UNICODE_PATH_FIELD, b""))
    except DirectoryError as error:
        damage = str(error)
        name = raw_name.decode("cp437")
    size, packed_size, start = figures
    start += prefix
    data_start = None
    if start <= file_size - _LOCAL.size:
        local = _read_at(file, start, _LOCAL.size + name_length)
        said = (flags, method, crc, packed_size, size)
        data_start, contradiction = _compare(local, start, raw_name, said)
        damage = damage or contradiction
    version = central[2] & 0xFF
    if version > _NEWEST_VERSION:
        damage = damage or f"it claims to need version {version / 10} of the zip format"
    if data_start is None:
        damage = damage or f"no entry begins at byte {start}, where the directory places it"
    mode = central[-2] >> 16
    return Entry(
        *(number, name, size, packed_size, crc, method, flags, mode, start, data_start, damage)
    )


def _extra_fields(extra: bytes) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    offset = 0
    while offset + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, offset)
        offset += _EXTRA.size
        if offset + length > len(extra):
            raise DirectoryError("an extra field of its directory record runs over its end")
        fields.setdefault(kind, extra[offset : offset + length])
        offset += length
    return fields


def _long_figures(figures: tuple[int, int, int], zip64: bytes) -> tuple[int, int, int]:
    """Size, packed size and start, each from the zip64 field where it is pointed to."""
    found = list(figures)
    offset = 0
    for place, figure in enumerate(figures):
        if figure == _IN_ZIP64:
            if offset + 8 > len(zip64):
                raise DirectoryError("its zip64 field is missing or too short")
            found[place] = int.from_bytes(zip64[offset : offset + 8], "little")
            offset += 8
    return found[0], found[1], found[2]


def _decode_name(raw: bytes, flags: int, unicode_path: bytes) -> str:
    if flags & _UTF8:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise DirectoryError("its name is marked as UTF-8 and is not") from None
    # Info-ZIP's field holds for the name that it has the checksum of.
    is_current = unicode_path[1:5] == zlib.crc32(raw).to_bytes(4, "little")
    candidates = (unicode_path[5:], raw) if is_current else (raw,)
    for candidate in candidates:
        try:
            return candidate.decode("utf-8")  # macOS does not mark what it writes
        except UnicodeDecodeError:
            continue
    return raw.decode("cp437")


def _compare(
    local: bytes, start: int, raw_name: bytes, told: tuple[int, int, int, int, int]
) -> tuple[int | None, str | None]:
    """Where the data begin, and how the entry's own header contradicts the directory."""
    if len(local) < _LOCAL.size or not local.startswith(b"PK\3\4"):
        return None, None
    _, _, own_flags, own_method, _, _, *own, name_length, extra_length = _LOCAL.unpack_from(local)
    data_start = start + _LOCAL.size + name_length + extra_length
    flags, method, *figures = told
    if name_length != len(raw_name) or local[_LOCAL.size :] != raw_name:
        own_name = local[_LOCAL.size :][:name_length].decode("utf-8", "replace")
        return data_start, f"its own header calls it {printable(own_name)}"
    if (flags ^ own_flags) & _ENCRYPTED or method != own_method:
        return data_start, "its own header and the directory disagree on how it is packed"
    if (flags | own_flags) & (_MASKED | _SIZES_FOLLOW):
        return data_start, None
    names = ("CRC-32", "packed size", "size")
    for name, mine, theirs in zip(names, own, figures, strict=True):
        if mine not in (theirs, _IN_ZIP64):
            return data_start, f"its own header says {name} {mine} and the directory {theirs}"
    return data_start, None


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """The bytes at an offset; fewer where the file ends."""
    if offset < 0:
        return b""
    file.seek(offset)
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
