"""Mutants of names: NAM."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.registry import Mutant, fail, mutants_of, near
from tests.mutants.sound import TF, features, first, jpeg, png, record, second, shard

HOW = {"record": 0, "options": TF}
NO_OBJECTS = dict.fromkeys(("xmin", "ymin", "xmax", "ymax", "text", "label"))


def named(name: str) -> bytes:
    """A shard whose first record, a JPEG, has this file name."""
    return first(record(encoded=jpeg(), filename=name, source_id="1"))


def two(**second_record: str) -> bytes:
    """Two sound records, the second of which differs."""
    return shard(record(), record("b.jpg", encoded=jpeg(quality=50), **second_record))


@mutants_of("NAM001")
def missing() -> Iterator[Mutant]:
    yield fail("empty", named(""), **HOW)
    yield fail("no-feature", second(record(filename=None)), record=1, options=TF)
    yield near("one-letter", named("a"), "NAM003", options=TF)
    yield near("no-objects", first(record(filename=None, **NO_OBJECTS)), "NAM009", options=TF)


@mutants_of("NAM009")
def missing_without_objects() -> Iterator[Mutant]:
    yield fail("no-feature", first(record(filename=None, **NO_OBJECTS)), **HOW)
    yield fail("empty", first(record(filename="", **NO_OBJECTS)), **HOW)
    yield near("named", first(record(**NO_OBJECTS)), options=TF)


@mutants_of("NAM002")
def duplicate_name() -> Iterator[Mutant]:
    yield fail("same-name", two(filename="a.jpg"), record=1, options=TF)
    yield near("capital-letter", two(filename="A.jpg"), options=TF)
    yield near("another-folder", two(filename="x/a.jpg"), options=TF)


@mutants_of("NAM013")
def data_instead_of_a_name() -> Iterator[Mutant]:
    image, also = jpeg().decode("latin-1"), ("EXA009", "NAM003", "NAM006")
    as_bytes = first(record(encoded=jpeg(), filename=jpeg(), source_id="1"))
    yield fail("jpeg", as_bytes, *also, **HOW)
    yield fail("jpeg-as-utf-8", named(image), *also[1:], **HOW)
    yield fail("printed", named(repr(jpeg())), "NAM003", "NAM005", **HOW)
    yield fail("source-id", first(record(source_id=png())), "EXA009", "NAM010", **HOW)
    yield near("long-path", named("a/" * 200 + "a.jpg"), options=TF)
    yield near("of-a-car", named("BMW " * 60 + ".jpg"), options=TF)


@mutants_of("NAM003")
def no_extension() -> Iterator[Mutant]:
    yield fail("no-dot", named("ajpg"), **HOW)
    yield fail("number-behind-the-dot", named("frame.000123"), **HOW)
    yield fail("dot-in-the-folder", named("x.jpg/a"), **HOW)
    yield near("several-dots", named("a.v1.0.jpg"), options=TF)


@mutants_of("NAM004")
def other_extension() -> Iterator[Mutant]:
    yield fail("jpeg-called-png", named("a.png"), **HOW)
    yield near("jpeg-called-jpeg", named("a.JPEG"), options=TF)
    yield near("no-image-extension", named("a.data"), options=TF)


@mutants_of("NAM005")
def path_of_another_machine() -> Iterator[Mutant]:
    cases = {
        "two-dots": "../a.jpg",
        "two-dots-within": "x/../a.jpg",
        "absolute": "/home/me/a.jpg",
        "drive": "C:/a.jpg",
        "server": "\\\\server\\a.jpg",
        "backslash": "x\\a.jpg",
    }
    for case, name in cases.items():
        yield fail(case, named(name), **HOW)
    yield near("dots-in-a-name", named("..a/a...jpg"), options=TF)
    yield near("folder", named("x/a.jpg"), options=TF)


@mutants_of("NAM006")
def control_characters() -> Iterator[Mutant]:
    cases = {
        "line-end": "a\n.jpg",
        "zero-byte": "a\0.jpg",
        "right-to-left": "a\u202egpj.jpg",
        "zero-width": "a\u200b.jpg",
        "byte-order-mark": "\ufeffa.jpg",
    }
    for case, name in cases.items():
        yield fail(case, named(name), **HOW)
    yield near("blank", named("a b.jpg"), options=TF)
    yield near("ideographic-space", named("a\u3000b.jpg"), options=TF)


@mutants_of("NAM007")
def no_source_id() -> Iterator[Mutant]:
    yield fail("no-feature", first(record(source_id=None)), **HOW)
    yield near("empty", first(record(source_id="")), "NAM012", options=TF)


@mutants_of("NAM012")
def empty_source_id() -> Iterator[Mutant]:
    yield fail("empty", first(record(source_id="")), **HOW)
    yield fail("blank", first(record(source_id=" ")), "NAM010", **HOW)
    yield near("zero", first(record(source_id="0")), options=TF)


@mutants_of("NAM008")
def duplicate_source_id() -> Iterator[Mutant]:
    yield fail("same-id", two(source_id=features()["image/source_id"]), record=1, options=TF)
    yield near("blank-behind", two(source_id=features()["image/source_id"] + " "), options=TF)


@mutants_of("NAM010")
def not_a_number() -> Iterator[Mutant]:
    cases = {"name": "a.jpg", "decimal": "1.0", "64-bits": str(1 << 63), "wide-digit": "\uff11"}
    for case, text in cases.items():
        yield fail(case, first(record(source_id=text)), **HOW)
    yield near("leading-zero-and-blanks", first(record(source_id=" 007 ")), options=TF)
    yield near("negative", first(record(source_id="-1")), options=TF)


@mutants_of("NAM011")
def large_number() -> Iterator[Mutant]:
    yield fail("17-million", first(record(source_id="16777217")), **HOW)
    yield near("float32", first(record(source_id="16777216")), options=TF)
