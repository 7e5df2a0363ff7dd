"""Mutants of the encoded image: IMG."""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np
from PIL import Image

from tests.image_kinds import exif_block, file_of, gradient, image_of, saved, with_segment
from tests.mutants import registry
from tests.mutants.registry import Table
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


def mutants() -> Table:
    """Return the mutants of each rule."""
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

    return {
        "IMG001": [  # missing
            fail("no-bytes", imaged(b"")),
            near("one-byte", imaged(b"\xff"), "IMG002"),
        ],
        "IMG002": [  # not an image
            fail("raw-pixels", imaged(gradient("RGB", (WIDTH, HEIGHT)).tobytes())),
            fail("a-path", imaged(b"images/a.jpg")),
            fail("first-byte-lost", imaged(jpeg()[1:])),
            near("last-byte-lost", imaged(jpeg()[:-1]), "IMG009"),
        ],
        "IMG017": [  # black in TensorFlow
            fail("up-to-255", deep(255)),
            near("up-to-4096", deep(4096)),
            near("all-black", deep(0)),
            near("not-decoded", deep(255), options=NONE),
        ],
        "IMG003": [  # does not decode
            fail("one-bit-of-the-pixels", imaged(damaged, "png")),
            fail("one-bit-and-all-decoded", imaged(damaged, "png"), options=ALL),
            near("same-bit-not-decoded", imaged(damaged, "png"), options=NONE),
            near("byte-behind-the-end", imaged(png() + b"\0", "png")),
        ],
        "IMG004": [  # other format
            fail("jpeg-called-png", imaged(jpeg(), format="png")),
            near("jpg", imaged(jpeg(), format="JPG")),
        ],
        "IMG005": [  # not decodable
            *(
                fail(named(name), kind(name))
                for name in ("webp", "tiff RGB", "gif", "jpeg 12 bits", "bmp rle", "png apple")
            ),
            *(
                near(named(name), kind(name))
                for name in ("jpeg CMYK", "bmp 24 bits", "png color 0 bits 16", "jpeg arithmetic")
            ),
        ],
        "IMG006": [  # size differs
            fail("one-pixel-wider", imaged(jpeg(), width=WIDER)),
            fail("exchanged", imaged(jpeg(), width=HEIGHT, height=WIDTH)),
            near("just-as-wide", imaged(jpeg((WIDER, HEIGHT)), width=WIDER)),
        ],
        "IMG007": [  # rotated by EXIF
            fail("by-a-quarter", exif(6)),
            fail("mirrored", exif(2)),
            fail("size-of-the-turned-image", exif(6, height=WIDTH, width=HEIGHT), "IMG006"),
            near("upright", exif(1)),
        ],
        "IMG008": [  # checksum differs
            fail("last-digit", imaged(jpeg(), sha256=wrong)),
            fail("capital-letters", imaged(jpeg(), sha256=right.upper())),
            near("right", imaged(jpeg(), sha256=right)),
            near("empty", imaged(jpeg(), sha256="")),
        ],
        "IMG009": [  # truncated
            fail("last-byte-lost", imaged(jpeg()[:-1])),
            fail("png-without-its-end", imaged(png()[:-12], "png")),
            near("bytes-behind-the-end", imaged(jpeg() + b"\0")),
        ],
        "IMG010": [  # same image
            fail("byte-for-byte", shard(record(), again), record=1),
            near("one-byte-more", shard(record(), longer)),
        ],
        "IMG011": [  # shared image
            fail("train-and-val", leak, at="val.tfrecord"),
            near("one-byte-more", subsets(longer)),
            near("one-subset", together, "IMG010"),
        ],
        "IMG012": [  # size is not positive
            fail("height-0", imaged(jpeg(), height=0)),
            near("height-1", imaged(jpeg((WIDTH, 1)), height=1), "BOX008"),
        ],
        "IMG013": [  # palette
            fail("bmp-with-colours", bmp("P")),
            near("bmp-with-grays", bmp("L")),
        ],
        "IMG014": [  # raw pixels
            fail("raw", imaged(jpeg(), format="raw")),
            near("mixed-case", imaged(jpeg(), format="Raw"), "IMG004"),
        ],
        "IMG015": [  # unknown size
            fail("no-image-and-no-size", first(record(**bare)), "EXA003"),
            fail("bytes-without-a-header", first(record(**{**bare, "encoded": b"x"})), "IMG002"),
            near("header", imaged(jpeg(), height=None, width=None)),
            near("no-image", first(record(encoded=None)), "EXA003"),
        ],
        "IMG016": [  # some images
            registry.fail("one-of-three", shard(*without, other())),
            registry.near("none-of-two", shard(*without)),
            registry.near("all", shard(record(), other())),
        ],
    }
