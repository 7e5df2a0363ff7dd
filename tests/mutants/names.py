"""Mutants of names: NAM."""

from __future__ import annotations

from functools import partial

from tests.mutants import registry
from tests.mutants.registry import Mutant
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


def mutants() -> list[Mutant]:
    same_id = features()["image/source_id"]
    as_bytes = first(record(encoded=jpeg(), filename=jpeg(), source_id="1"))
    nameless = first(record(filename=None, **NO_OBJECTS))
    return [
        fail("NAM001-empty", named("")),
        fail("NAM001-no-feature", second(record(filename=None)), record=1),
        near("NAM001-one-letter", named("a"), "NAM003"),
        near("NAM001-no-objects", nameless, "NAM009"),
        fail("NAM009-no-feature", nameless),
        fail("NAM009-empty", first(record(filename="", **NO_OBJECTS))),
        near("NAM009-named", first(record(**NO_OBJECTS))),
        fail("NAM002-same-name", two(filename="a.jpg"), record=1),
        near("NAM002-capital-letter", two(filename="A.jpg")),
        near("NAM002-another-folder", two(filename="x/a.jpg")),
        fail("NAM013-jpeg", as_bytes, "EXA009", "NAM003", "NAM006"),
        fail("NAM013-jpeg-as-utf-8", named(jpeg().decode("latin-1")), "NAM003", "NAM006"),
        fail("NAM013-printed", named(repr(jpeg())), "NAM003", "NAM005"),
        fail("NAM013-source-id", numbered(png()), "EXA009", "NAM010"),
        near("NAM013-long-path", named("a/" * 200 + "a.jpg")),
        near("NAM013-of-a-car", named("BMW " * 60 + ".jpg")),
        fail("NAM003-no-dot", named("ajpg")),
        fail("NAM003-number-behind-the-dot", named("frame.000123")),
        fail("NAM003-dot-in-the-folder", named("x.jpg/a")),
        near("NAM003-several-dots", named("a.v1.0.jpg")),
        fail("NAM004-jpeg-called-png", named("a.png")),
        near("NAM004-jpeg-called-jpeg", named("a.JPEG")),
        near("NAM004-no-image-extension", named("a.data")),
        fail("NAM005-two-dots", named("../a.jpg")),
        fail("NAM005-two-dots-within", named("x/../a.jpg")),
        fail("NAM005-absolute", named("/home/me/a.jpg")),
        fail("NAM005-drive", named("C:/a.jpg")),
        fail("NAM005-server", named("\\\\server\\a.jpg")),
        fail("NAM005-backslash", named("x\\a.jpg")),
        near("NAM005-dots-in-a-name", named("..a/a...jpg")),
        near("NAM005-folder", named("x/a.jpg")),
        fail("NAM006-line-end", named("a\n.jpg")),
        fail("NAM006-zero-byte", named("a\0.jpg")),
        fail("NAM006-right-to-left", named("a\u202egpj.jpg")),
        fail("NAM006-zero-width", named("a\u200b.jpg")),
        fail("NAM006-byte-order-mark", named("\ufeffa.jpg")),
        near("NAM006-blank", named("a b.jpg")),
        near("NAM006-ideographic-space", named("a\u3000b.jpg")),
        fail("NAM007-no-feature", numbered(None)),
        near("NAM007-empty", numbered(""), "NAM012"),
        fail("NAM012-empty", numbered("")),
        fail("NAM012-blank", numbered(" "), "NAM010"),
        near("NAM012-zero", numbered("0")),
        fail("NAM008-same-id", two(source_id=same_id), record=1),
        near("NAM008-blank-behind", two(source_id=f"{same_id} ")),
        fail("NAM010-name", numbered("a.jpg")),
        fail("NAM010-decimal", numbered("1.0")),
        fail("NAM010-64-bits", numbered(str(1 << 63))),
        fail("NAM010-wide-digit", numbered("\uff11")),
        near("NAM010-leading-zero-and-blanks", numbered(" 007 ")),
        near("NAM010-negative", numbered("-1")),
        fail("NAM011-17-million", numbered("16777217")),
        near("NAM011-float32", numbered("16777216")),
    ]
