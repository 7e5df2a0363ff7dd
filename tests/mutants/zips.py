"""Mutants of the zip around the shards: ZIP."""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator
from dataclasses import replace

from tests.mutants.framing import zipped
from tests.mutants.registry import Mutant, fail, mutants_of, near
from tests.mutants.sound import LABEL_MAP, TF, flip, jpeg, other, record, shard
from tests.zip_forge import Item, as_zip64, deflate, forge, quoting_zip

NAME = "default.tfrecord"
HOW = {"ending": ".zip", "options": TF}


def sound() -> bytes:
    """A shard of two records."""
    return shard(record(), other())


def packed(*more: Item, name: str = NAME, data: bytes | None = None, **odd: object) -> bytes:
    """A sound archive but for what is odd about its shard, and what else is in it."""
    item = replace(Item(name, sound() if data is None else data), **odd)
    return forge(item, Item("label_map.pbtxt", LABEL_MAP), *more)


@mutants_of("ZIP001")
def damaged_directory() -> Iterator[Mutant]:
    yield fail("empty", b"", **HOW)
    yield fail("html-page", b"<html><body>404</body></html>", **HOW)
    yield fail("last-byte-lost", packed()[:-1], **HOW)
    yield fail("one-bit-of-the-end", flip(packed(), -22), **HOW)
    yield near("byte-behind", packed() + b"\n", **HOW)
    yield near("program-in-front", b"#!/bin/sh\n" + packed(), **HOW)
    yield near("zip64", as_zip64(packed()), **HOW)


@mutants_of("ZIP002")
def path_outside() -> Iterator[Mutant]:
    cases = {
        "two-dots": "../a.jpg",
        "two-dots-within": "x/../../a.jpg",
        "backslashes": "..\\a.jpg",
        "two-dots-and-a-blank": ".. /a.jpg",
        "drive": "C:\\a.jpg",
        "zero-byte": "a\0.jpg",
    }
    for case, name in cases.items():
        yield fail(case, packed(Item(name, jpeg())), **HOW)
    yield near("dots-in-a-name", packed(Item("x/..a", jpeg())), **HOW)
    yield near("one-dot", packed(Item("./a.jpg", jpeg())), **HOW)

    yield fail("slash", packed(Item("/a.jpg", jpeg())), **HOW)
    yield fail("server", packed(Item("\\\\server\\a.jpg", jpeg())), **HOW)
    yield near("slash-within", packed(Item("x//a.jpg", jpeg())), **HOW)


@mutants_of("ZIP004")
def special_file() -> Iterator[Mutant]:
    link = Item("a.jpg", b"/etc/passwd", mode=stat.S_IFLNK | 0o777)
    yield fail("link", packed(link), at="a.jpg", **HOW)
    pipe = Item("a.jpg", mode=stat.S_IFIFO | 0o644)
    yield fail("pipe", packed(pipe), at="a.jpg", **HOW)
    yield near("no-mode", packed(replace(link, mode=0)), **HOW)
    yield near("plain", packed(replace(link, mode=stat.S_IFREG | 0o777)), **HOW)


@mutants_of("ZIP005")
def duplicate_entry() -> Iterator[Mutant]:
    image = Item("a.jpg", jpeg())
    yield fail("same-name", packed(image, image), at="a.jpg", **HOW)
    yield fail("capital-letter", packed(image, Item("A.jpg", jpeg())), at="A.jpg", **HOW)
    yield fail("one-dot", packed(image, Item("./a.jpg", jpeg())), **HOW)
    yield near("one-letter", packed(image, Item("b.jpg", jpeg())), **HOW)
    yield near("folder-twice", packed(Item("x/"), Item("x/")), **HOW)


@mutants_of("ZIP007")
def too_large() -> Iterator[Mutant]:
    zeros = bytes(5 << 20)
    yield fail("zeros", packed(Item("a.bin", zeros)), at="a.bin", **HOW)
    lie = Item("a.bin", packed=deflate(zeros) + bytes(9), size=len(zeros))
    yield fail("padded", packed(lie), at="a.bin", **HOW)
    yield near("few-zeros", packed(Item("a.bin", bytes(4 << 20))), **HOW)
    yield near("not-compressed", packed(Item("a.bin", zeros, method=0)), **HOW)
    yield fail("quoted-headers", quoting_zip(), "TFR002", **HOW)
    part = random.Random(0).randbytes(1000)
    data = packed(Item("a.bin", part), Item("b.bin", part))
    total = len(sound()) + len(LABEL_MAP) + 2 * len(part)
    for case, most, make in (("one-byte-over", total - 1, fail), ("at-the-limit", total, near)):
        yield make(case, data, ending=".zip", options={**TF, "max_archive_bytes": most})
    data = packed(Item("a.jpg", jpeg()))
    for case, most, make in (("one-entry-over", 2, fail), ("as-many-entries", 3, near)):
        yield make(case, data, ending=".zip", options={**TF, "max_archive_entries": most})


@mutants_of("ZIP010")
def locked() -> Iterator[Mutant]:
    yield fail("one-bit", packed(flags=1), at=NAME, **HOW)
    yield fail("aes", packed(flags=1, method=99), at=NAME, **HOW)
    yield near("another-bit", packed(flags=2), **HOW)
    yield fail("bzip2", packed(method=12), at=NAME, **HOW)
    yield fail("deflate64", packed(method=9), at=NAME, **HOW)
    yield fail("patch", packed(flags=1 << 5), at=NAME, **HOW)
    yield near("deflate", packed(method=8), **HOW)
    yield near("stored", packed(method=0), **HOW)


@mutants_of("ZIP012")
def damaged_entry() -> Iterator[Mutant]:
    yield fail("checksum", packed(crc=1), at=NAME, **HOW)
    data = sound()
    yield fail("one-byte-more", packed(size=len(data) - 1), "TFR005", at=NAME, **HOW)
    yield fail("one-byte-less", packed(size=len(data) + 1), at=NAME, **HOW)
    image = Item("a.jpg", jpeg(), crc=1)
    yield fail("of-a-image", packed(image), at="a.jpg", **HOW)
    yield near("right-checksum", packed(replace(image, crc=None)), **HOW)
    yield fail("another-name-inside", packed(own_name=b"default.tfrecorc"), at=NAME, **HOW)
    alone = Item(NAME, sound(), method=0, packed_size=len(sound()) + 1)
    stored = forge(Item("label_map.pbtxt", LABEL_MAP), alone)
    yield fail("stored-in-one-byte-more", stored, at=NAME, **HOW)


@mutants_of("ZIP013")
def no_shard() -> Iterator[Mutant]:
    yield fail("nothing-at-all", forge(), **HOW)
    lacking = forge(Item("default.txt", b"x" * 40), Item("label_map.pbtxt", LABEL_MAP))
    yield fail("a-text", lacking, **HOW)
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>"
    voc = f"<annotation><filename>a.jpg</filename><object><name>cat</name>{box}</object>"
    files = (
        Item("Annotations/a.xml", f"{voc}</annotation>".encode()),
        Item("JPEGImages/a.jpg", jpeg()),
    )
    yield fail("of-another-format", forge(*files), **HOW)
    yield near("shard-of-any-name", packed(name="default.data"), **HOW)


@mutants_of("ZIP016")
def nested_archive() -> Iterator[Mutant]:
    yield fail("zip", packed(Item("more.zip", packed())), at="more.zip", **HOW)
    yield fail("rar", packed(Item("more.rar", b"Rar!")), at="more.rar", **HOW)
    yield near("numpy", packed(Item("more.npz", packed())), **HOW)
    second = shard(record("c.jpg", encoded=jpeg(quality=50)))
    yield near("zipped-shard", packed(Item("more.record.gz", zipped(second))), "TFR014", **HOW)
