"""Mutants of the framing: TFR."""

from __future__ import annotations

import gzip
import struct
import zlib
from functools import partial

from tfod.tfrecord.framing import masked_crc32c

from tests.mutants import registry
from tests.mutants.registry import Link, Mutant
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

fail = partial(registry.fail, options=TF)
near = partial(registry.near, options=TF)
GZ, ZZ = ".tfrecord.gz", ".tfrecord.zz"
HEAD = 12
THREE = (record(), other(), record("c.jpg", encoded=jpeg(quality=50)))


def forged(length: int) -> bytes:
    """A header with a right checksum of a wrong length, and the payload of a record."""
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc32c(head)) + frame(record())[HEAD:]


def zipped(data: bytes) -> bytes:
    """The same as gzip, without the time."""
    return gzip.compress(data, mtime=0)


def mutants() -> list[Mutant]:
    three, two, last = shard(*THREE), shard(*THREE[:2]), frame(THREE[2])
    start, rest = len(frame(THREE[0])), shard(*THREE[1:])
    name = start + frame(THREE[1]).index(b"b.png")
    renamed = THREE[1].replace(b"b.png", b"c.png")
    too_many, exact = len(THREE[0]) + len(last) + 1, len(THREE[0]) + len(rest)
    bare = shard(THREE[0], b"\n\0", THREE[1])
    big = record(encoded=jpeg() + bytes(600_000))
    over, limit = ({**TF, "max_record_bytes": len(frame(big)) - n} for n in (1, 0))
    # Reading the start of a process's memory is an I/O error for every user.
    link = {"default.tfrecord": Link("/proc/self/mem"), "label_map.pbtxt": LABEL_MAP}
    linked = {**link, "default.tfrecord": Link("shard.data"), "shard.data": three}
    html = b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n"
    lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n"
    return [
        registry.fail("TFR001-html-page", html),
        registry.fail("TFR001-jpeg", jpeg()),
        registry.fail("TFR001-git-lfs-pointer", lfs),
        registry.fail("TFR001-gzip-in-gzip", zipped(zipped(three)), "TFR014", ending=GZ),
        registry.fail("TFR001-one-bit-of-the-only-header", flip(shard(record()), 9)),
        near("TFR001-one-bit-of-the-first-header", flip(three, 9), "TFR003", record=0),
        near("TFR001-braces-in-the-length", shard(padded(record(), 0x7B7B))),
        fail("TFR002-no-bytes", b""),
        near("TFR002-one-byte", b"\0", "TFR006"),
        fail("TFR003-one-bit-of-the-checksum", flip(three, start + 11, 7), record=1),
        fail("TFR003-one-bit-of-the-length", flip(three, start), record=1),
        near("TFR003-one-bit-behind-the-checksum", flip(three, start + HEAD), "TFR004"),
        fail("TFR004-one-bit-of-a-name", flip(three, name), record=1),
        fail("TFR004-last-bit-of-the-file", flip(three, -1, 7), record=2),
        near("TFR004-same-bit-with-its-checksum", shard(THREE[0], renamed, THREE[2])),
        fail("TFR005-one-byte-short", three[:-1], record=2),
        fail("TFR005-header-alone", two + last[:HEAD], record=2),
        near("TFR005-cut-between-records", two),
        fail("TFR006-eleven-bytes", two + last[: HEAD - 1], record=2),
        fail("TFR006-one-byte", two + last[:1], record=2),
        near("TFR006-twelve-bytes", two + last[:HEAD], "TFR005"),
        fail("TFR007-terabyte", forged(1 << 40) + rest, record=0),
        fail("TFR007-whole-64-bits", forged((1 << 64) - 1) + rest, record=0),
        fail("TFR007-one-byte-too-many", forged(too_many) + last, record=0),
        near("TFR007-nothing-follows", forged(1 << 40), "TFR005"),
        near("TFR007-up-to-the-end", forged(exact) + rest, "TFR004"),
        fail("TFR008-page-of-zeros", three + bytes(4096), record=3),
        fail("TFR008-nine-zeros", three + bytes(9), record=3),
        near("TFR008-one-bit-among-them", flip(three + bytes(4096), -1), "TFR003"),
        near("TFR008-eight-zeros", three + bytes(8), "TFR006"),
        fail("TFR009-empty-payload", shard(THREE[0], b"", THREE[1]), record=1),
        near("TFR009-example-without-features", bare, "EXA003", "NAM007", "NAM009"),
        fail("TFR010-gzip", zipped(three)),
        fail("TFR010-zlib", zlib.compress(three)),
        near("TFR010-gzip-that-says-so", zipped(three), "TFR014", ending=GZ),
        near("TFR010-stored-length-like-gzip", shard(padded(record(), 0x8B1F))),
        fail("TFR011-one-byte-short", zipped(three)[:-1], "TFR014", ending=GZ),
        fail("TFR011-one-bit-of-the-checksum", flip(zipped(three), -8), "TFR014", ending=GZ),
        near("TFR011-two-members", zipped(two) + zipped(last), "TFR014", ending=GZ),
        fail("TFR012-one-byte-over", first(big), record=0, options=over),
        near("TFR012-at-the-limit", first(big), options=limit),
        fail("TFR013-input-output-error", link, at="default.tfrecord"),
        near("TFR013-link-to-a-shard", linked),
        fail("TFR014-gzip", zipped(three), ending=GZ),
        fail("TFR014-zlib", zlib.compress(three), ending=ZZ),
        near("TFR014-plain", three, ending=GZ),
    ]
