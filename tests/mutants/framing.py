"""Mutants of the framing: TFR."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator

from tfod.tfrecord.framing import masked_crc32c

from tests.mutants.registry import Link, Mutant, fail, mutants_of, near
from tests.mutants.sound import (
    LABEL_MAP,
    TF,
    first,
    flip,
    frame,
    jpeg,
    other,
    padded,
    record,
    shard,
)

HEAD = 12
THREE = (record(), other(), record("c.jpg", encoded=jpeg(quality=50)))


def sound() -> bytes:
    """Three records."""
    return shard(*THREE)


def forged(length: int) -> bytes:
    """A header with a right checksum of a wrong length, and the payload of a record."""
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc32c(head)) + frame(record())[HEAD:]


def zipped(data: bytes) -> bytes:
    """The same as gzip, without the time."""
    return gzip.compress(data, mtime=0)


@mutants_of("TFR001")
def not_a_tfrecord() -> Iterator[Mutant]:
    yield fail("html-page", b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n")
    yield fail("jpeg", jpeg())
    yield fail("git-lfs-pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    yield fail("gzip-in-gzip", zipped(zipped(sound())), "TFR014", ending=".tfrecord.gz")
    yield fail("one-bit-of-the-only-header", flip(shard(record()), 9))
    yield near("one-bit-of-the-first-header", flip(sound(), 9), "TFR003", record=0, options=TF)
    yield near("braces-in-the-length", shard(padded(record(), 0x7B7B)), options=TF)


@mutants_of("TFR002")
def empty_file() -> Iterator[Mutant]:
    yield fail("no-bytes", b"", options=TF)
    yield near("one-byte", b"\0", "TFR006", options=TF)


@mutants_of("TFR003")
def length_checksum() -> Iterator[Mutant]:
    start = len(frame(THREE[0]))
    yield fail("one-bit-of-the-checksum", flip(sound(), start + 11, 7), record=1, options=TF)
    yield fail("one-bit-of-the-length", flip(sound(), start), record=1, options=TF)
    yield near("one-bit-behind-the-checksum", flip(sound(), start + HEAD), "TFR004", options=TF)


@mutants_of("TFR004")
def data_checksum() -> Iterator[Mutant]:
    start = len(frame(THREE[0]))
    place = start + frame(THREE[1]).index(b"b.png")
    yield fail("one-bit-of-a-name", flip(sound(), place), record=1, options=TF)
    yield fail("last-bit-of-the-file", flip(sound(), -1, 7), record=2, options=TF)
    renamed = THREE[1].replace(b"b.png", b"c.png")
    yield near("same-bit-with-its-checksum", shard(THREE[0], renamed, THREE[2]), options=TF)


@mutants_of("TFR005")
def truncated_record() -> Iterator[Mutant]:
    yield fail("one-byte-short", sound()[:-1], record=2, options=TF)
    yield fail("header-alone", shard(*THREE[:2]) + frame(THREE[2])[:HEAD], record=2, options=TF)
    yield near("cut-between-records", shard(*THREE[:2]), options=TF)


@mutants_of("TFR006")
def truncated_header() -> Iterator[Mutant]:
    two = shard(*THREE[:2])
    yield fail("eleven-bytes", two + frame(THREE[2])[: HEAD - 1], record=2, options=TF)
    yield fail("one-byte", two + frame(THREE[2])[:1], record=2, options=TF)
    yield near("twelve-bytes", two + frame(THREE[2])[:HEAD], "TFR005", options=TF)


@mutants_of("TFR007")
def forged_length() -> Iterator[Mutant]:
    rest = shard(*THREE[1:])
    yield fail("terabyte", forged(1 << 40) + rest, record=0, options=TF)
    yield fail("whole-64-bits", forged((1 << 64) - 1) + rest, record=0, options=TF)
    yield fail("one-byte-too-many", _one_too_many() + frame(THREE[2]), record=0, options=TF)
    yield near("nothing-follows", forged(1 << 40), "TFR005", options=TF)
    exact = forged(len(THREE[0]) + len(rest)) + rest
    yield near("up-to-the-end", exact, "TFR004", options=TF)


def _one_too_many() -> bytes:
    return forged(len(THREE[0]) + len(frame(THREE[2])) + 1)


@mutants_of("TFR008")
def trailing_zeros() -> Iterator[Mutant]:
    yield fail("page-of-zeros", sound() + bytes(4096), record=3, options=TF)
    yield fail("nine-zeros", sound() + bytes(9), record=3, options=TF)
    yield near("one-bit-among-them", flip(sound() + bytes(4096), -1), "TFR003", options=TF)
    yield near("eight-zeros", sound() + bytes(8), "TFR006", options=TF)


@mutants_of("TFR009")
def zero_length_record() -> Iterator[Mutant]:
    nothing = shard(THREE[0], b"", THREE[1])
    yield fail("empty-payload", nothing, record=1, options=TF)
    bare = shard(THREE[0], b"\n\0", THREE[1])
    yield near("example-without-features", bare, "EXA003", "NAM007", "NAM009", options=TF)


@mutants_of("TFR010")
def silent_compression() -> Iterator[Mutant]:
    yield fail("gzip", zipped(sound()), options=TF)
    yield fail("zlib", zlib.compress(sound()), options=TF)
    named = {"ending": ".tfrecord.gz", "options": TF}
    yield near("gzip-that-says-so", zipped(sound()), "TFR014", **named)
    yield near("stored-length-like-gzip", shard(padded(record(), 0x8B1F)), options=TF)


@mutants_of("TFR011")
def damaged_compression() -> Iterator[Mutant]:
    whole, named = zipped(sound()), {"ending": ".tfrecord.gz", "options": TF}
    yield fail("one-byte-short", whole[:-1], "TFR014", **named)
    yield fail("one-bit-of-the-checksum", flip(whole, -8), "TFR014", **named)
    two = zipped(shard(*THREE[:2])) + zipped(shard(THREE[2]))
    yield near("two-members", two, "TFR014", **named)


@mutants_of("TFR012")
def oversize_record() -> Iterator[Mutant]:
    big = record(encoded=jpeg() + bytes(600_000))
    limit = len(frame(big))
    yield fail("one-byte-over", first(big), record=0, options={**TF, "max_record_bytes": limit - 1})
    yield near("at-the-limit", first(big), options={**TF, "max_record_bytes": limit})


@mutants_of("TFR013")
def unreadable() -> Iterator[Mutant]:
    # Reading the start of a process's memory is an I/O error, whoever asks.
    files = {"default.tfrecord": Link("/proc/self/mem"), "label_map.pbtxt": LABEL_MAP}
    yield fail("input-output-error", files, at="default.tfrecord", options=TF)
    files = {"default.tfrecord": Link("shard.data"), "label_map.pbtxt": LABEL_MAP}
    yield near("link-to-a-shard", {**files, "shard.data": sound()}, options=TF)


@mutants_of("TFR014")
def compression_that_says_so() -> Iterator[Mutant]:
    yield fail("gzip", zipped(sound()), ending=".tfrecord.gz", options=TF)
    yield fail("zlib", zlib.compress(sound()), ending=".tfrecord.zz", options=TF)
    yield near("plain", sound(), ending=".tfrecord.gz", options=TF)
