"""Mutants of names: NAM."""

from __future__ import annotations

from functools import partial

from tests.mutants import registry
from tests.mutants.registry import Table
from tests.mutants.sound import TF, features, first, jpeg, png, record, second, shard

fail = partial(registry.fail, record=0, options=TF)
near = partial(registry.near, options=TF)
NO_OBJECTS = dict.fromkeys(("xmin", "ymin", "xmax", "ymax", "text", "label"))


def named(name: str) -> bytes:
    """A shard whose first record, a JPEG, has this file name."""
    return first(record(encoded=jpeg(), filename=name, source_id="1"))


def two(**second_record: str) -> bytes:
    """A shard of two valid records; the second one differs."""
    return shard(record(), record("b.jpg", encoded=jpeg(quality=50), **second_record))


def numbered(source_id: str | bytes | None) -> bytes:
    """A shard whose first record has this source id."""
    return first(record(source_id=source_id))


def mutants() -> Table:
    """Return the mutants of each rule."""
    same_id = features()["image/source_id"]
    as_bytes = first(record(encoded=jpeg(), filename=jpeg(), source_id="1"))
    nameless = first(record(filename=None, **NO_OBJECTS))
    return {
        "NAM001": [  # missing
            fail("empty", named("")),
            fail("no-feature", second(record(filename=None)), record=1),
            near("one-letter", named("a"), "NAM003"),
            near("no-objects", nameless, "NAM009"),
        ],
        "NAM009": [  # missing, and no objects
            fail("no-feature", nameless),
            fail("empty", first(record(filename="", **NO_OBJECTS))),
            near("named", first(record(**NO_OBJECTS))),
        ],
        "NAM002": [  # duplicate name
            fail("same-name", two(filename="a.jpg"), record=1),
            near("capital-letter", two(filename="A.jpg")),
            near("another-folder", two(filename="x/a.jpg")),
        ],
        "NAM013": [  # data instead of a name
            fail("jpeg", as_bytes, "EXA009", "NAM003", "NAM006"),
            fail("jpeg-as-utf-8", named(jpeg().decode("latin-1")), "NAM003", "NAM006"),
            fail("printed", named(repr(jpeg())), "NAM003", "NAM005"),
            fail("source-id", numbered(png()), "EXA009", "NAM010"),
            near("long-path", named("a/" * 200 + "a.jpg")),
            near("of-a-car", named("BMW " * 60 + ".jpg")),
        ],
        "NAM003": [  # no extension
            fail("no-dot", named("ajpg")),
            fail("number-behind-the-dot", named("frame.000123")),
            fail("dot-in-the-folder", named("x.jpg/a")),
            near("several-dots", named("a.v1.0.jpg")),
        ],
        "NAM004": [  # other extension
            fail("jpeg-called-png", named("a.png")),
            near("jpeg-called-jpeg", named("a.JPEG")),
            near("no-image-extension", named("a.data")),
        ],
        "NAM005": [  # path of another machine
            fail("two-dots", named("../a.jpg")),
            fail("two-dots-within", named("x/../a.jpg")),
            fail("absolute", named("/home/me/a.jpg")),
            fail("drive", named("C:/a.jpg")),
            fail("server", named("\\\\server\\a.jpg")),
            fail("backslash", named("x\\a.jpg")),
            near("dots-in-a-name", named("..a/a...jpg")),
            near("folder", named("x/a.jpg")),
        ],
        "NAM006": [  # control characters
            fail("line-end", named("a\n.jpg")),
            fail("zero-byte", named("a\0.jpg")),
            fail("right-to-left", named("a\u202egpj.jpg")),
            fail("zero-width", named("a\u200b.jpg")),
            fail("byte-order-mark", named("\ufeffa.jpg")),
            near("blank", named("a b.jpg")),
            near("ideographic-space", named("a\u3000b.jpg")),
        ],
        "NAM007": [  # no source id
            fail("no-feature", numbered(None)),
            near("empty", numbered(""), "NAM012"),
        ],
        "NAM012": [  # empty source id
            fail("empty", numbered("")),
            fail("blank", numbered(" "), "NAM010"),
            near("zero", numbered("0")),
        ],
        "NAM008": [  # duplicate source id
            fail("same-id", two(source_id=same_id), record=1),
            near("blank-behind", two(source_id=f"{same_id} ")),
        ],
        "NAM010": [  # not a number
            fail("name", numbered("a.jpg")),
            fail("decimal", numbered("1.0")),
            fail("64-bits", numbered(str(1 << 63))),
            fail("wide-digit", numbered("\uff11")),
            near("leading-zero-and-blanks", numbered(" 007 ")),
            near("negative", numbered("-1")),
        ],
        "NAM011": [  # large number
            fail("17-million", numbered("16777217")),
            near("float32", numbered("16777216")),
        ],
    }
