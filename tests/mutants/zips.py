"""Mutants of the zip around the shards: ZIP."""

from __future__ import annotations

import random
import stat
from dataclasses import replace
from functools import partial

from tests.mutants import registry
from tests.mutants.framing import zipped
from tests.mutants.registry import Mutant
from tests.mutants.sound import LABEL_MAP, TF, flip, jpeg, other, record, shard
from tests.zip_forge import Item, as_zip64, deflate, forge, quoting_zip

fail = partial(registry.fail, ending=".zip", options=TF)
near = partial(registry.near, ending=".zip", options=TF)
NAME = "default.tfrecord"
MAP = Item("label_map.pbtxt", LABEL_MAP)
TWO = shard(record(), other())
VOC = (
    b"<annotation><filename>a.jpg</filename><object><name>cat</name><bndbox><xmin>1</xmin>"
    b"<ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox></object></annotation>"
)


def packed(*more: Item, name: str = NAME, data: bytes = TWO, **changes: object) -> bytes:
    """A valid archive, with other entries and with changes of the shard's entry."""
    return forge(replace(Item(name, data), **changes), MAP, *more)


def image(name: str = "a.jpg", **changes: object) -> Item:
    """An entry with an image."""
    return replace(Item(name, jpeg()), **changes)


def limited(**limits: int) -> dict[str, object]:
    """The options with a limit of archives."""
    return {**TF, **{f"max_archive_{name}": value for name, value in limits.items()}}


def mutants() -> list[Mutant]:
    link = Item("a.jpg", b"/etc/passwd", mode=stat.S_IFLNK | 0o777)
    zeros = bytes(5 << 20)
    padded = Item("a.bin", packed=deflate(zeros) + bytes(9), size=len(zeros))
    part = random.Random(0).randbytes(1000)
    parts = packed(Item("a.bin", part), Item("b.bin", part))
    total = len(TWO) + len(LABEL_MAP) + 2 * len(part)
    stored = forge(MAP, Item(NAME, TWO, method=0, packed_size=len(TWO) + 1))
    more = shard(record("c.jpg", encoded=jpeg(quality=50)))
    voc = forge(Item("Annotations/a.xml", VOC), image("JPEGImages/a.jpg"))
    return [
        fail("ZIP001-empty", b""),
        fail("ZIP001-html-page", b"<html><body>404</body></html>"),
        fail("ZIP001-last-byte-lost", packed()[:-1]),
        fail("ZIP001-one-bit-of-the-end", flip(packed(), -22)),
        near("ZIP001-byte-behind", packed() + b"\n"),
        near("ZIP001-program-in-front", b"#!/bin/sh\n" + packed()),
        near("ZIP001-zip64", as_zip64(packed())),
        fail("ZIP002-two-dots", packed(image("../a.jpg"))),
        fail("ZIP002-two-dots-within", packed(image("x/../../a.jpg"))),
        fail("ZIP002-backslashes", packed(image("..\\a.jpg"))),
        fail("ZIP002-two-dots-and-a-blank", packed(image(".. /a.jpg"))),
        fail("ZIP002-drive", packed(image("C:\\a.jpg"))),
        fail("ZIP002-zero-byte", packed(image("a\0.jpg"))),
        near("ZIP002-dots-in-a-name", packed(image("x/..a"))),
        near("ZIP002-one-dot", packed(image("./a.jpg"))),
        fail("ZIP002-slash", packed(image("/a.jpg"))),
        fail("ZIP002-server", packed(image("\\\\server\\a.jpg"))),
        near("ZIP002-slash-within", packed(image("x//a.jpg"))),
        fail("ZIP004-link", packed(link), at="a.jpg"),
        fail("ZIP004-pipe", packed(Item("a.jpg", mode=stat.S_IFIFO | 0o644)), at="a.jpg"),
        near("ZIP004-no-mode", packed(replace(link, mode=0))),
        near("ZIP004-plain", packed(replace(link, mode=stat.S_IFREG | 0o777))),
        fail("ZIP005-same-name", packed(image(), image()), at="a.jpg"),
        fail("ZIP005-capital-letter", packed(image(), image("A.jpg")), at="A.jpg"),
        fail("ZIP005-one-dot", packed(image(), image("./a.jpg"))),
        near("ZIP005-one-letter", packed(image(), image("b.jpg"))),
        near("ZIP005-folder-twice", packed(Item("x/"), Item("x/"))),
        fail("ZIP007-zeros", packed(Item("a.bin", zeros)), at="a.bin"),
        fail("ZIP007-padded", packed(padded), at="a.bin"),
        near("ZIP007-few-zeros", packed(Item("a.bin", bytes(4 << 20)))),
        near("ZIP007-not-compressed", packed(Item("a.bin", zeros, method=0))),
        fail("ZIP007-quoted-headers", quoting_zip(), "TFR002"),
        fail("ZIP007-one-byte-over", parts, options=limited(bytes=total - 1)),
        near("ZIP007-at-the-limit", parts, options=limited(bytes=total)),
        fail("ZIP007-one-entry-over", packed(image()), options=limited(entries=2)),
        near("ZIP007-as-many-entries", packed(image()), options=limited(entries=3)),
        fail("ZIP010-one-bit", packed(flags=1), at=NAME),
        fail("ZIP010-aes", packed(flags=1, method=99), at=NAME),
        near("ZIP010-another-bit", packed(flags=2)),
        fail("ZIP010-bzip2", packed(method=12), at=NAME),
        fail("ZIP010-deflate64", packed(method=9), at=NAME),
        fail("ZIP010-patch", packed(flags=1 << 5), at=NAME),
        near("ZIP010-deflate", packed(method=8)),
        near("ZIP010-stored", packed(method=0)),
        fail("ZIP012-checksum", packed(crc=1), at=NAME),
        fail("ZIP012-one-byte-more", packed(size=len(TWO) - 1), "TFR005", at=NAME),
        fail("ZIP012-one-byte-less", packed(size=len(TWO) + 1), at=NAME),
        fail("ZIP012-of-a-image", packed(image(crc=1)), at="a.jpg"),
        near("ZIP012-right-checksum", packed(image())),
        fail("ZIP012-another-name-inside", packed(own_name=b"default.tfrecorc"), at=NAME),
        fail("ZIP012-stored-in-one-byte-more", stored, at=NAME),
        fail("ZIP013-nothing-at-all", forge()),
        fail("ZIP013-a-text", forge(Item("default.txt", b"x" * 40), MAP)),
        fail("ZIP013-of-another-format", voc),
        near("ZIP013-shard-of-any-name", packed(name="default.data")),
        fail("ZIP016-zip", packed(Item("more.zip", packed())), at="more.zip"),
        fail("ZIP016-rar", packed(Item("more.rar", b"Rar!")), at="more.rar"),
        near("ZIP016-numpy", packed(Item("more.npz", packed()))),
        near("ZIP016-zipped-shard", packed(Item("more.record.gz", zipped(more))), "TFR014"),
    ]
