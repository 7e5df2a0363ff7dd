"""Mutants of the zip around the shards: ZIP."""

from __future__ import annotations

import random
import stat
from dataclasses import replace
from functools import partial

from tests.mutants import registry
from tests.mutants.framing import zipped
from tests.mutants.registry import Table
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


def mutants() -> Table:
    """Return the mutants of each rule."""
    link = Item("a.jpg", b"/etc/passwd", mode=stat.S_IFLNK | 0o777)
    zeros = bytes(5 << 20)
    padded = Item("a.bin", packed=deflate(zeros) + bytes(9), size=len(zeros))
    part = random.Random(0).randbytes(1000)
    parts = packed(Item("a.bin", part), Item("b.bin", part))
    total = len(TWO) + len(LABEL_MAP) + 2 * len(part)
    stored = forge(MAP, Item(NAME, TWO, method=0, packed_size=len(TWO) + 1))
    more = shard(record("c.jpg", encoded=jpeg(quality=50)))
    voc = forge(Item("Annotations/a.xml", VOC), image("JPEGImages/a.jpg"))
    return {
        "ZIP001": [  # damaged directory
            fail("empty", b""),
            fail("html-page", b"<html><body>404</body></html>"),
            fail("last-byte-lost", packed()[:-1]),
            fail("one-bit-of-the-end", flip(packed(), -22)),
            near("byte-behind", packed() + b"\n"),
            near("program-in-front", b"#!/bin/sh\n" + packed()),
            near("zip64", as_zip64(packed())),
        ],
        "ZIP002": [  # path outside
            fail("two-dots", packed(image("../a.jpg"))),
            fail("two-dots-within", packed(image("x/../../a.jpg"))),
            fail("backslashes", packed(image("..\\a.jpg"))),
            fail("two-dots-and-a-blank", packed(image(".. /a.jpg"))),
            fail("drive", packed(image("C:\\a.jpg"))),
            fail("zero-byte", packed(image("a\0.jpg"))),
            near("dots-in-a-name", packed(image("x/..a"))),
            near("one-dot", packed(image("./a.jpg"))),
            fail("slash", packed(image("/a.jpg"))),
            fail("server", packed(image("\\\\server\\a.jpg"))),
            near("slash-within", packed(image("x//a.jpg"))),
        ],
        "ZIP004": [  # special file
            fail("link", packed(link), at="a.jpg"),
            fail("pipe", packed(Item("a.jpg", mode=stat.S_IFIFO | 0o644)), at="a.jpg"),
            near("no-mode", packed(replace(link, mode=0))),
            near("plain", packed(replace(link, mode=stat.S_IFREG | 0o777))),
        ],
        "ZIP005": [  # duplicate entry
            fail("same-name", packed(image(), image()), at="a.jpg"),
            fail("capital-letter", packed(image(), image("A.jpg")), at="A.jpg"),
            fail("one-dot", packed(image(), image("./a.jpg"))),
            near("one-letter", packed(image(), image("b.jpg"))),
            near("folder-twice", packed(Item("x/"), Item("x/"))),
        ],
        "ZIP007": [  # too large
            fail("zeros", packed(Item("a.bin", zeros)), at="a.bin"),
            fail("padded", packed(padded), at="a.bin"),
            near("few-zeros", packed(Item("a.bin", bytes(4 << 20)))),
            near("not-compressed", packed(Item("a.bin", zeros, method=0))),
            fail("quoted-headers", quoting_zip(), "TFR002"),
            fail("one-byte-over", parts, options=limited(bytes=total - 1)),
            near("at-the-limit", parts, options=limited(bytes=total)),
            fail("one-entry-over", packed(image()), options=limited(entries=2)),
            near("as-many-entries", packed(image()), options=limited(entries=3)),
        ],
        "ZIP010": [  # encrypted
            fail("one-bit", packed(flags=1), at=NAME),
            fail("aes", packed(flags=1, method=99), at=NAME),
            near("another-bit", packed(flags=2)),
            fail("bzip2", packed(method=12), at=NAME),
            fail("deflate64", packed(method=9), at=NAME),
            fail("patch", packed(flags=1 << 5), at=NAME),
            near("deflate", packed(method=8)),
            near("stored", packed(method=0)),
        ],
        "ZIP012": [  # damaged entry
            fail("checksum", packed(crc=1), at=NAME),
            fail("one-byte-more", packed(size=len(TWO) - 1), "TFR005", at=NAME),
            fail("one-byte-less", packed(size=len(TWO) + 1), at=NAME),
            fail("of-a-image", packed(image(crc=1)), at="a.jpg"),
            near("right-checksum", packed(image())),
            fail("another-name-inside", packed(own_name=b"default.tfrecorc"), at=NAME),
            fail("stored-in-one-byte-more", stored, at=NAME),
        ],
        "ZIP013": [  # no shard
            fail("nothing-at-all", forge()),
            fail("a-text", forge(Item("default.txt", b"x" * 40), MAP)),
            fail("of-another-format", voc),
            near("shard-of-any-name", packed(name="default.data")),
        ],
        "ZIP016": [  # nested archive
            fail("zip", packed(Item("more.zip", packed())), at="more.zip"),
            fail("rar", packed(Item("more.rar", b"Rar!")), at="more.rar"),
            near("numpy", packed(Item("more.npz", packed()))),
            near("zipped-shard", packed(Item("more.record.gz", zipped(more))), "TFR014"),
        ],
    }
