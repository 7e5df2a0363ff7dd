"""Mutants of the encoded image: IMG."""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np
from PIL import Image

from tests.image_kinds import exif_block, file_of, gradient, image_of, saved, with_segment
from tests.mutants import registry
from tests.mutants.registry import Mutant
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

fail = partial(registry.fail, record=0, options=TF)
near = partial(registry.near, options=TF)
ALL, NONE = {**TF, "decode": "all"}, {**TF, "decode": "none"}
WIDER = WIDTH + 1


def imaged(encoded: bytes, format_: str = "jpeg", **changes: object) -> bytes:
    """A shard whose first record has this image."""
    ending = {"jpeg": "jpg", "tiff": "tif"}.get(format_, format_)
    named = {"filename": f"a.{ending}", "format": format_, **changes}
    return first(record(encoded=encoded, **named))


def kind(name: str) -> bytes:
    """A shard whose first record has an image of this kind of :mod:`tests.image_kinds`."""
    return imaged(image_of(name), name.split()[0], width=34, height=21)


def deep(largest: int) -> bytes:
    """A shard whose first record has a PNG of 16 bits per channel."""
    pixels = np.linspace(0, largest, WIDTH * HEIGHT).reshape(HEIGHT, WIDTH).astype(np.uint16)
    return imaged(file_of(Image.fromarray(pixels)), "png")


def exif(orientation: int, **changes: object) -> bytes:
    """A shard whose first record has a JPEG with this EXIF orientation."""
    return imaged(with_segment(jpeg(), 0xE1, b"Exif\0\0" + exif_block(orientation)), **changes)


def bmp(mode: str) -> bytes:
    """A shard whose first record has a BMP."""
    return imaged(saved(mode, "BMP", (WIDTH, HEIGHT)), "bmp")


def subsets(val: bytes) -> dict[str, bytes]:
    """A folder with shards of two subsets."""
    files = {"train.tfrecord": shard(record(), other()), "val.tfrecord": shard(val)}
    return {**files, "label_map.pbtxt": LABEL_MAP}


def mutants() -> list[Mutant]:
    damaged = flip(png(), png().index(b"IDAT") + 20)
    right = hashlib.sha256(jpeg()).hexdigest()
    wrong = right[:-1] + ("0" if right[-1] != "0" else "1")
    again, longer = (record("c.jpg", encoded=jpeg() + more) for more in (b"", b"\0"))
    leak = subsets(again)
    together = {"train-00000-of-00002": leak["train.tfrecord"]}
    together |= {"train-00001-of-00002": leak["val.tfrecord"], "label_map.pbtxt": LABEL_MAP}
    bare = {"encoded": None, "height": None, "width": None}
    # These have the profile cvat, since few of them have an image.
    without = [record(f"{n}.jpg", encoded=None, format=None, sha256=None) for n in range(2)]

    def named(name: str) -> str:
        return name.lower().replace(" ", "-")

    return [
        fail("IMG001-no-bytes", imaged(b"")),
        near("IMG001-one-byte", imaged(b"\xff"), "IMG002"),
        fail("IMG002-raw-pixels", imaged(gradient("RGB", (WIDTH, HEIGHT)).tobytes())),
        fail("IMG002-a-path", imaged(b"images/a.jpg")),
        fail("IMG002-first-byte-lost", imaged(jpeg()[1:])),
        near("IMG002-last-byte-lost", imaged(jpeg()[:-1]), "IMG009"),
        fail("IMG017-up-to-255", deep(255)),
        near("IMG017-up-to-4096", deep(4096)),
        near("IMG017-all-black", deep(0)),
        near("IMG017-not-decoded", deep(255), options=NONE),
        fail("IMG003-one-bit-of-the-pixels", imaged(damaged, "png")),
        fail("IMG003-one-bit-and-all-decoded", imaged(damaged, "png"), options=ALL),
        near("IMG003-same-bit-not-decoded", imaged(damaged, "png"), options=NONE),
        near("IMG003-byte-behind-the-end", imaged(png() + b"\0", "png")),
        fail("IMG004-jpeg-called-png", imaged(jpeg(), format="png")),
        near("IMG004-jpg", imaged(jpeg(), format="JPG")),
        *(
            fail(f"IMG005-{named(name)}", kind(name))
            for name in ("webp", "tiff RGB", "gif", "jpeg 12 bits", "bmp rle", "png apple")
        ),
        *(
            near(f"IMG005-{named(name)}", kind(name))
            for name in ("jpeg CMYK", "bmp 24 bits", "png color 0 bits 16", "jpeg arithmetic")
        ),
        fail("IMG006-one-pixel-wider", imaged(jpeg(), width=WIDER)),
        fail("IMG006-exchanged", imaged(jpeg(), width=HEIGHT, height=WIDTH)),
        near("IMG006-just-as-wide", imaged(jpeg((WIDER, HEIGHT)), width=WIDER)),
        fail("IMG007-by-a-quarter", exif(6)),
        fail("IMG007-mirrored", exif(2)),
        fail("IMG007-size-of-the-turned-image", exif(6, height=WIDTH, width=HEIGHT), "IMG006"),
        near("IMG007-upright", exif(1)),
        fail("IMG008-last-digit", imaged(jpeg(), sha256=wrong)),
        fail("IMG008-capital-letters", imaged(jpeg(), sha256=right.upper())),
        near("IMG008-right", imaged(jpeg(), sha256=right)),
        near("IMG008-empty", imaged(jpeg(), sha256="")),
        fail("IMG009-last-byte-lost", imaged(jpeg()[:-1])),
        fail("IMG009-png-without-its-end", imaged(png()[:-12], "png")),
        near("IMG009-bytes-behind-the-end", imaged(jpeg() + b"\0")),
        fail("IMG010-byte-for-byte", shard(record(), again), record=1),
        near("IMG010-one-byte-more", shard(record(), longer)),
        fail("IMG011-train-and-val", leak, at="val.tfrecord"),
        near("IMG011-one-byte-more", subsets(longer)),
        near("IMG011-one-subset", together, "IMG010"),
        fail("IMG012-height-0", imaged(jpeg(), height=0)),
        near("IMG012-height-1", imaged(jpeg((WIDTH, 1)), height=1), "BOX008"),
        fail("IMG013-bmp-with-colours", bmp("P")),
        near("IMG013-bmp-with-grays", bmp("L")),
        fail("IMG014-raw", imaged(jpeg(), format="raw")),
        near("IMG014-mixed-case", imaged(jpeg(), format="Raw"), "IMG004"),
        fail("IMG015-no-image-and-no-size", first(record(**bare)), "EXA003"),
        fail("IMG015-bytes-without-a-header", first(record(**{**bare, "encoded": b"x"})), "IMG002"),
        near("IMG015-header", imaged(jpeg(), height=None, width=None)),
        near("IMG015-no-image", first(record(encoded=None)), "EXA003"),
        registry.fail("IMG016-one-of-three", shard(*without, other())),
        registry.near("IMG016-none-of-two", shard(*without)),
        registry.near("IMG016-all", shard(record(), other())),
    ]
