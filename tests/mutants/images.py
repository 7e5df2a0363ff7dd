"""Mutants of the encoded image: IMG."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from tests.image_kinds import exif_block, file_of, gradient, image_of, saved, with_segment
from tests.mutants.registry import Mutant, fail, mutants_of, near
from tests.mutants.sound import (
    HEIGHT,
    LABEL_MAP,
    TF,
    WIDTH,
    first,
    flip,
    jpeg,
    other,
    png,
    record,
    shard,
)

HOW = {"record": 0, "options": TF}
KIND_SIZE = {"width": 34, "height": 21}
"""Of the images of :mod:`tests.image_kinds`."""


def imaged(encoded: bytes, format_: str = "jpeg", **changes: object) -> bytes:
    """A shard whose first record has this image."""
    ending = {"jpeg": "jpg", "tiff": "tif"}.get(format_, format_)
    named = {"filename": f"a.{ending}", "format": format_, **changes}
    return first(record(encoded=encoded, **named))


def kind(name: str) -> bytes:
    """A shard whose first record has an image of this kind."""
    return imaged(image_of(name), name.split()[0], **KIND_SIZE)


@mutants_of("IMG001")
def missing() -> Iterator[Mutant]:
    yield fail("no-bytes", imaged(b""), **HOW)
    yield near("one-byte", imaged(b"\xff"), "IMG002", options=TF)


@mutants_of("IMG002")
def no_image() -> Iterator[Mutant]:
    yield fail("raw-pixels", imaged(gradient("RGB", (WIDTH, HEIGHT)).tobytes()), **HOW)
    yield fail("a-path", imaged(b"images/a.jpg"), **HOW)
    yield fail("first-byte-lost", imaged(jpeg()[1:]), **HOW)
    yield near("last-byte-lost", imaged(jpeg()[:-1]), "IMG009", options=TF)


@mutants_of("IMG017")
def black_in_tensorflow() -> Iterator[Mutant]:
    def deep(largest: int) -> bytes:
        pixels = np.linspace(0, largest, WIDTH * HEIGHT).reshape(HEIGHT, WIDTH).astype(np.uint16)
        return imaged(file_of(Image.fromarray(pixels)), "png")

    yield fail("up-to-255", deep(255), **HOW)
    yield near("up-to-4096", deep(4096), options=TF)
    yield near("all-black", deep(0), options=TF)
    yield near("not-decoded", deep(255), options={**TF, "decode": "none"})


@mutants_of("IMG003")
def does_not_decode() -> Iterator[Mutant]:
    data = png()
    broken = flip(data, data.index(b"IDAT") + 20)
    yield fail("one-bit-of-the-pixels", imaged(broken, "png"), record=0, options=TF)
    every = {**TF, "decode": "all"}
    yield fail("one-bit-and-all-decoded", imaged(broken, "png"), record=0, options=every)
    none = {**TF, "decode": "none"}
    yield near("same-bit-not-decoded", imaged(broken, "png"), options=none)
    yield near("byte-behind-the-end", imaged(data + b"\0", "png"), options=TF)


@mutants_of("IMG004")
def other_format() -> Iterator[Mutant]:
    yield fail("jpeg-called-png", imaged(jpeg(), format="png"), **HOW)
    yield near("jpg", imaged(jpeg(), format="JPG"), options=TF)


@mutants_of("IMG005")
def not_decodable() -> Iterator[Mutant]:
    for name in ("webp", "tiff RGB", "gif", "jpeg 12 bits", "bmp rle", "png apple"):
        yield fail(name.lower().replace(" ", "-"), kind(name), **HOW)
    for name in ("jpeg CMYK", "bmp 24 bits", "png color 0 bits 16", "jpeg arithmetic"):
        yield near(name.lower().replace(" ", "-"), kind(name), options=TF)


@mutants_of("IMG006")
def other_size() -> Iterator[Mutant]:
    yield fail("one-pixel-wider", imaged(jpeg(), width=WIDTH + 1), **HOW)
    yield fail("exchanged", imaged(jpeg(), width=HEIGHT, height=WIDTH), **HOW)
    yield near("just-as-wide", imaged(jpeg((WIDTH + 1, HEIGHT)), width=WIDTH + 1), options=TF)


@mutants_of("IMG007")
def turned() -> Iterator[Mutant]:
    def exif(orientation: int) -> bytes:
        return with_segment(jpeg(), 0xE1, b"Exif\0\0" + exif_block(orientation))

    yield fail("by-a-quarter", imaged(exif(6)), **HOW)
    yield fail("mirrored", imaged(exif(2)), **HOW)
    turned_size = imaged(exif(6), height=WIDTH, width=HEIGHT)
    yield fail("size-of-the-turned-image", turned_size, "IMG006", **HOW)
    yield near("upright", imaged(exif(1)), options=TF)


@mutants_of("IMG008")
def other_checksum() -> Iterator[Mutant]:
    right = hashlib.sha256(jpeg()).hexdigest()
    wrong = right[:-1] + ("0" if right[-1] != "0" else "1")
    yield fail("last-digit", imaged(jpeg(), sha256=wrong), **HOW)
    yield fail("capital-letters", imaged(jpeg(), sha256=right.upper()), **HOW)
    yield near("right", imaged(jpeg(), sha256=right), options=TF)
    yield near("empty", imaged(jpeg(), sha256=""), options=TF)


@mutants_of("IMG009")
def cut_short() -> Iterator[Mutant]:
    yield fail("last-byte-lost", imaged(jpeg()[:-1]), **HOW)
    yield fail("png-without-its-end", imaged(png()[:-12], "png"), **HOW)
    yield near("bytes-behind-the-end", imaged(jpeg() + b"\0"), options=TF)


@mutants_of("IMG010")
def same_image() -> Iterator[Mutant]:
    again = record("c.jpg", encoded=jpeg())
    yield fail("byte-for-byte", shard(record(), again), record=1, options=TF)
    longer = record("c.jpg", encoded=jpeg() + b"\0")
    yield near("one-byte-more", shard(record(), longer), options=TF)


@mutants_of("IMG011")
def shared_image() -> Iterator[Mutant]:
    def subsets(val: bytes) -> dict[str, bytes]:
        files = {"train.tfrecord": shard(record(), other()), "val.tfrecord": shard(val)}
        return {**files, "label_map.pbtxt": LABEL_MAP}

    again = subsets(record("c.jpg", encoded=jpeg()))
    yield fail("train-and-val", again, at="val.tfrecord", record=0, options=TF)
    yield near("one-byte-more", subsets(record("c.jpg", encoded=jpeg() + b"\0")), options=TF)
    together = {"train-00000-of-00002": again["train.tfrecord"]}
    together |= {"train-00001-of-00002": again["val.tfrecord"], "label_map.pbtxt": LABEL_MAP}
    yield near("one-subset", together, "IMG010", options=TF)


@mutants_of("IMG012")
def not_positive() -> Iterator[Mutant]:
    yield fail("height-0", imaged(jpeg(), height=0), **HOW)
    yield near("height-1", imaged(jpeg((WIDTH, 1)), height=1), "BOX008", options=TF)


@mutants_of("IMG013")
def palette() -> Iterator[Mutant]:
    def bmp(mode: str) -> bytes:
        return imaged(saved(mode, "BMP", (WIDTH, HEIGHT)), "bmp")

    yield fail("bmp-with-colours", bmp("P"), **HOW)
    yield near("bmp-with-grays", bmp("L"), options=TF)


@mutants_of("IMG014")
def raw() -> Iterator[Mutant]:
    yield fail("raw", imaged(jpeg(), format="raw"), **HOW)
    yield near("mixed-case", imaged(jpeg(), format="Raw"), "IMG004", options=TF)


@mutants_of("IMG015")
def unknown_size() -> Iterator[Mutant]:
    bare = {"encoded": None, "height": None, "width": None}
    yield fail("no-image-and-no-size", first(record(**bare)), "EXA003", **HOW)
    no_image = record(**{**bare, "encoded": b"x"})
    yield fail("bytes-without-a-header", first(no_image), "IMG002", **HOW)
    yield near("header", imaged(jpeg(), height=None, width=None), options=TF)
    yield near("no-image", first(record(encoded=None)), "EXA003", options=TF)


@mutants_of("IMG016")
def some_images() -> Iterator[Mutant]:
    # Of these the profile is cvat, since few have an image.
    bare = [record(f"{n}.jpg", encoded=None, format=None, sha256=None) for n in range(2)]
    yield fail("one-of-three", shard(*bare, other()))
    yield near("none-of-two", shard(*bare))
    yield near("all", shard(record(), other()))
