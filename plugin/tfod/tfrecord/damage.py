"""Damage of a shard, with a message and a fix for each kind."""

from __future__ import annotations

import enum
import shlex
from dataclasses import dataclass

from tfod.errors import ShardError
from tfod.tfrecord.compression import is_tar
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.storage.urls import is_url

DOWNLOAD_AGAIN = "download or export the shard again"
WRONG_DATA = "the checksum of the data is wrong, the record was changed after it was written"
_SHARD = "pass a shard; tfod convert creates shards from annotations"
_UNPACK = "unpack it first"
_PASS_SHARDS = "pass the shards, or convert the dataset of the image with tfod convert"
_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive", "unpack it, or rename it to .zip"),
    (b"\xff\xd8\xff", "a JPEG image", _PASS_SHARDS),
    (b"\x89PNG", "a PNG image", _PASS_SHARDS),
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
    (b"<annotation", "XML text", _SHARD),  # Pascal VOC usually has no XML declaration
)


class DamageKind(enum.Enum):
    """The kinds of damage."""

    EMPTY = "empty file"
    FOREIGN = "not a TFRecord file"
    LENGTH_CRC = "wrong checksum of a length"
    DATA_CRC = "wrong checksum of the data"
    TRUNCATED_HEADER = "truncated header"
    TRUNCATED_RECORD = "truncated record"
    FORGED_LENGTH = "length beyond the end"
    TRAILING_ZEROS = "zero bytes at the end"
    COMPRESSION = "damaged compression"
    OVERSIZE = "record above the limit"


@dataclass(frozen=True)
class Damage:
    """Damage in a shard, and its location.

    Attributes:
        shard: path or name of the shard.
        cause: description of the damage, without a full stop.
        fix: advice for the user.
        record: number of the damaged record, from 0; None if the whole file is damaged.
        offset: byte at which the record starts in the uncompressed file, or None.
        skipped: number of bytes up to the next plausible record, or to the end.
        resumed: whether a plausible record was found after the damage.
        is_archive: whether the file is an archive, which may contain shards.
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
        """Return the damage as an exception, which also mentions tfod repair if it can help."""
        fix = self.fix
        # Other damage leaves no record undamaged, or all records.
        has_undamaged = self.record is not None or self.kind is DamageKind.COMPRESSION
        if has_undamaged and self.kind is not DamageKind.OVERSIZE and not is_url(self.shard):
            command = f"tfod repair {shlex.quote(self.shard)} repaired"
            fix += f"; to write the undamaged records to a new shard, type: {command}"
        return ShardError(
            self.cause, shard=self.shard, record=self.record, offset=self.offset, fix=fix
        )


def empty_file(shard: str) -> Damage:
    """Return the damage of a file of zero bytes."""
    fix = "delete the file if it should be empty, otherwise export or download it again"
    return Damage(DamageKind.EMPTY, shard, "is empty (0 bytes)", fix)


def detect_file_type(head: bytes) -> tuple[str, str] | None:
    """Return the type of a file that is not a shard, by its first bytes, and a fix; or None."""
    if is_tar(head):  # first, because it begins with a file name, which can be any text
        return "a tar archive", _UNPACK
    text = head.lstrip()
    for signature, file_type, fix in _SIGNATURES:
        # A damaged length may begin with any byte, but it contains zeros, unlike text.
        if text.startswith(signature) and (len(signature) > 1 or b"\0" not in head):
            return file_type, fix
    return None


def foreign_file(shard: str, head: bytes) -> Damage:
    """Return the damage of a file that is not a TFRecord file."""
    cause = "is not a TFRecord file (its first 12 bytes are not a record header)"
    fix = "check that this is the shard, and download it again if it is"
    if detected := detect_file_type(head):
        cause, fix = f"is not a TFRecord file but {detected[0]}", detected[1]
    return Damage(DamageKind.FOREIGN, shard, cause, fix, is_archive=fix == _UNPACK)


def bad_length(
    shard: str, record: int, offset: int, skipped: int = 0, resumed: bool = False
) -> Damage:
    """Return the damage of a length with a wrong checksum."""
    cause = "the checksum of the length is wrong"
    if resumed:
        cause += f"; the next plausible record was found {skipped:,} bytes further on"
    elif skipped:
        cause += f", and no plausible record was found in the following {skipped:,} bytes"
    else:
        cause += ", so nothing after this byte can be read"
    kind, fix = DamageKind.LENGTH_CRC, _again(record)
    return Damage(kind, shard, cause, fix, record, offset, skipped, resumed)


def trailing_zeros(shard: str, record: int, offset: int, skipped: int = 0) -> Damage:
    """Return the damage of zero bytes at the end, from a full disk or a preallocated download."""
    count = f" ({skipped:,})" if skipped else ""
    cause = f"only zero bytes follow{count}, so nothing after this byte can be read"
    return Damage(DamageKind.TRAILING_ZEROS, shard, cause, _again(record), record, offset, skipped)


def bad_data(shard: str, record: int, offset: int) -> Damage:
    """Return the damage of a payload with a wrong checksum."""
    kind = DamageKind.DATA_CRC
    return Damage(kind, shard, WRONG_DATA, DOWNLOAD_AGAIN, record, offset, resumed=True)


def truncated(shard: str, record: int, offset: int, size: int, available: int) -> Damage:
    """Return the damage of a file that ends inside a header or a record."""
    kind, part = DamageKind.TRUNCATED_RECORD, "the record"
    if available < HEADER_BYTES:
        kind, part, size = DamageKind.TRUNCATED_HEADER, "its header", HEADER_BYTES
    cause = f"the file ends inside {part} ({available:,} of {size:,} bytes exist)"
    return Damage(kind, shard, cause, _again(record), record, offset, skipped=available)


def forged_length(shard: str, record: int, offset: int, size: int, skipped: int) -> Damage:
    """Return the damage of a length that is too large although its checksum is correct."""
    cause = (
        f"the length of the record is {size:,} bytes, more than the rest of the file, but the next "
        f"plausible record was found {skipped:,} bytes further on"
    )
    kind = DamageKind.FORGED_LENGTH
    return Damage(kind, shard, cause, DOWNLOAD_AGAIN, record, offset, skipped, True)


def damaged_compression(shard: str, compression: str, reason: str) -> Damage:
    """Return the damage of a gzip or zlib stream that cannot be decompressed."""
    cause = f"its {compression} stream is damaged ({reason})"
    return Damage(DamageKind.COMPRESSION, shard, cause, DOWNLOAD_AGAIN)


def oversize(shard: str, record: int, offset: int, size: int, limit: int) -> Damage:
    """Return the damage of a record that is larger than the limit."""
    cause = f"the record has {size:,} bytes, more than the limit of {limit:,}; it was not read"
    fix = "if you expect records this large, increase TFOD_MAX_RECORD_BYTES"
    return Damage(DamageKind.OVERSIZE, shard, cause, fix, record, offset, size, True)


def _again(undamaged: int) -> str:
    if not undamaged:
        return DOWNLOAD_AGAIN
    if undamaged == 1:
        return f"{DOWNLOAD_AGAIN}; the record before it is undamaged"
    return f"{DOWNLOAD_AGAIN}; the {undamaged} records before it are undamaged"
