"""Damages of the framing: what can be wrong with a shard as a sequence of records."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfod.errors import ShardError
from tfod.tfrecord.compression import is_tar
from tfod.tfrecord.framing import HEADER_BYTES

DOWNLOAD_AGAIN = "download or export the shard again"
WRONG_DATA = "the checksum of the data is wrong, the record was changed after it was written"
_SHARD = "pass the shard; tfod convert makes shards of annotations"
_UNPACK = "unpack it first"
_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive", "unpack it, or rename it to .zip"),
    (b"\xff\xd8\xff", "a JPEG image", "pass the shard, not the image"),
    (b"\x89PNG", "a PNG image", "pass the shard, not the image"),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the real file: git lfs pull"),
    (b"<!DOCTYPE", "an HTML page", "download the raw file, not the page about it"),
    (b"<!doctype", "an HTML page", "download the raw file, not the page about it"),
    (b"<HTML", "an HTML page", "download the raw file, not the page about it"),
    (b"<html", "an HTML page", "download the raw file, not the page about it"),
    (b"\x1f\x8b", "gzip inside gzip", "decompress it once"),
    (b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (b"\xfd7zXZ\0", "a file compressed by xz", _UNPACK),
    *((b"BZh%d1AY&SY" % level, "a file compressed by bzip2", _UNPACK) for level in range(1, 10)),
    (b"\x28\xb5\x2f\xfd", "a file compressed by Zstandard", _UNPACK),
    (b"{", "JSON text", _SHARD),
    (b"[", "JSON text", _SHARD),
    (b"<?xml", "XML text", _SHARD),
    (b"<annotation", "XML text", _SHARD),  # of Pascal VOC, most often without a declaration
)


class DamageKind(enum.Enum):
    """What kind of damage it is."""

    EMPTY = "empty file"
    FOREIGN = "not a TFRecord file"
    LENGTH_CRC = "checksum of a length"
    DATA_CRC = "checksum of the data"
    TRUNCATED_HEADER = "cut inside a header"
    TRUNCATED_RECORD = "cut inside a record"
    FORGED_LENGTH = "a length that cannot be"
    TRAILING_ZEROS = "zero bytes at the end"
    COMPRESSION = "damaged compression"
    OVERSIZE = "record beyond the limit"


@dataclass(frozen=True)
class Damage:
    """One damage, and where.

    Attributes:
        kind: what kind it is.
        shard: path or name of the file.
        cause: what is wrong, without a full stop.
        fix: what the user can do.
        record: number of the damaged record, from 0; None when the whole file is concerned.
        offset: byte at which it starts in the uncompressed file; None likewise.
        skipped: bytes that were passed over to find the next plausible record, or the end.
        resumed: whether a plausible record was found behind it.
        is_archive: whether the file is an archive, which may hold shards.
    """

    kind: DamageKind
    shard: str
    cause: str
    fix: str
    record: int | None = None
    offset: int | None = None
    skipped: int = 0
    resumed: bool = False
    is_archive: bool = False

    def to_error(self) -> ShardError:
        """The same as an exception, which says also what makes a sound copy of the shard."""
        fix = self.fix
        # Of the others nothing is sound, or all is.
        is_partly = self.record is not None or self.kind is DamageKind.COMPRESSION
        if is_partly and self.kind is not DamageKind.OVERSIZE:
            fix += "; tfod repair writes what is sound of it to a new shard"
        return ShardError(
            self.cause, shard=self.shard, record=self.record, offset=self.offset, fix=fix
        )


def empty_file(shard: str) -> Damage:
    """A file of zero bytes."""
    fix = "delete it if it is meant to be empty, otherwise export or download it again"
    return Damage(DamageKind.EMPTY, shard, "is empty (0 bytes)", fix)


def looks_like(head: bytes) -> tuple[str, str] | None:
    """What a file that is no shard is instead, by its first bytes, and what to do with it."""
    if is_tar(head):  # before the name of its first file is taken for something else
        return "a tar archive", _UNPACK
    text = head.lstrip()
    for signature, what, fix in _SIGNATURES:
        # A damaged length may begin with any byte, but it has zeros; text has none.
        if text.startswith(signature) and (len(signature) > 1 or b"\0" not in head):
            return what, fix
    return None


def foreign_file(shard: str, head: bytes) -> Damage:
    """A file that is no sequence of records at all."""
    cause = "is not a TFRecord file (its first 12 bytes are not a record header)"
    fix = "check that this is the shard, and download it again if it is"
    if other := looks_like(head):
        cause, fix = f"is not a TFRecord file but {other[0]}", other[1]
    return Damage(DamageKind.FOREIGN, shard, cause, fix, is_archive=fix == _UNPACK)


def bad_length(
    shard: str, record: int, offset: int, skipped: int = 0, resumed: bool = False
) -> Damage:
    """A length whose checksum is wrong."""
    cause = "the checksum of the length is wrong"
    if resumed:
        cause += f"; the next plausible record was found {skipped:,} bytes further on"
    elif skipped:
        cause += f", and no plausible record was found in the {skipped:,} bytes behind"
    else:
        cause += ", so nothing behind this byte can be read"
    return Damage(
        DamageKind.LENGTH_CRC, shard, cause, _again(record), record, offset, skipped, resumed
    )


def trailing_zeros(shard: str, record: int, offset: int, skipped: int = 0) -> Damage:
    """Zero bytes where a record should be: a disk ran full, or a download was preallocated."""
    many = f" ({skipped:,})" if skipped else ""
    cause = f"only zero bytes follow{many}, so nothing behind this byte can be read"
    return Damage(DamageKind.TRAILING_ZEROS, shard, cause, _again(record), record, offset, skipped)


def bad_data(shard: str, record: int, offset: int) -> Damage:
    """Data whose checksum is wrong."""
    return Damage(
        DamageKind.DATA_CRC, shard, WRONG_DATA, DOWNLOAD_AGAIN, record, offset, resumed=True
    )


def truncated(shard: str, record: int, offset: int, wanted: int, got: int) -> Damage:
    """The file ends inside a header or a record."""
    kind, part = DamageKind.TRUNCATED_RECORD, "the record"
    if got < HEADER_BYTES:
        kind, part, wanted = DamageKind.TRUNCATED_HEADER, "its header", HEADER_BYTES
    cause = f"the file ends inside {part} ({got:,} of {wanted:,} bytes are there)"
    return Damage(kind, shard, cause, _again(record), record, offset, skipped=got)


def forged_length(shard: str, record: int, offset: int, wanted: int, skipped: int) -> Damage:
    """A length with a right checksum that leads beyond the end, though records follow."""
    cause = (
        f"the record claims {wanted:,} bytes, more than the file has left, but the next plausible "
        f"record was found {skipped:,} bytes further on"
    )
    return Damage(
        DamageKind.FORGED_LENGTH, shard, cause, DOWNLOAD_AGAIN, record, offset, skipped, True
    )


def damaged_compression(shard: str, compression: str, reason: str) -> Damage:
    """A gzip or zlib stream that cannot be read on."""
    cause = f"its {compression} stream is damaged ({reason})"
    return Damage(DamageKind.COMPRESSION, shard, cause, DOWNLOAD_AGAIN)


def oversize(shard: str, record: int, offset: int, wanted: int, limit: int) -> Damage:
    """A record larger than what may be held in memory."""
    cause = f"the record has {wanted:,} bytes, more than the limit of {limit:,}; it was not read"
    fix = "raise TFOD_MAX_RECORD_BYTES if such records are meant"
    return Damage(DamageKind.OVERSIZE, shard, cause, fix, record, offset, wanted, True)


def _again(sound: int) -> str:
    if not sound:
        return DOWNLOAD_AGAIN
    before = f"the {sound} records before it are" if sound > 1 else "the record before it is"
    return f"{DOWNLOAD_AGAIN}; {before} sound"
