"""Mutants of what the images are like: DAT051 and following. They are checked with ``--hints``."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from tests.mutants.registry import Content, Mutant, fail, mutants_of, near
from tests.mutants.sets import together
from tests.mutants.sound import TF, record, shard

HINTS = {**TF, "hints": True}


@functools.cache
def scene(number: int, size: tuple[int, int] = (96, 64)) -> Image.Image:
    """An image of many edges, unlike those of other numbers."""
    random = np.random.default_rng(number)
    coarse = Image.fromarray(random.integers(0, 256, (8, 12, 3), np.uint8))
    return coarse.resize(size, Image.Resampling.NEAREST)


def saved(image: Image.Image, image_format: str = "PNG", **how: int) -> bytes:
    """Its bytes."""
    stream = io.BytesIO()
    image.save(stream, image_format, **how)
    return stream.getvalue()


def darkened(share: float, offset: int = 0) -> Image.Image:
    """A scene whose values are so many times as large."""
    return scene(0).point(lambda value: value * share + offset)


def of_image(name: str, encoded: bytes, **changes: Any) -> bytes:
    """A record with an image of any size."""
    width, height = Image.open(io.BytesIO(encoded)).size
    return record(name, encoded=encoded, height=height, width=width, **changes)


def shard_of(images: Sequence[bytes], first: int = 0) -> bytes:
    """A shard with a record for each image."""
    endings = ["png" if one[1:4] == b"PNG" else "jpg" for one in images]
    return shard(
        *(
            of_image(f"{number}.{ending}", one, source_id=str(number))
            for number, (ending, one) in enumerate(zip(endings, images, strict=True), first)
        )
    )


def one(case: str, image: Image.Image, fires: bool, *also: str) -> Mutant:
    """A shard of one image."""
    declare = fail if fires else near
    return declare(case, shard_of([saved(image)]), *also, options=HINTS)


@mutants_of("DAT051")
def dark() -> Iterator[Mutant]:
    yield one("a-quarter-of-the-light", darkened(0.25), True)
    yield one("half-of-the-light", darkened(0.5), False)


@mutants_of("DAT052")
def bright() -> Iterator[Mutant]:
    yield one("a-twentieth-below-white", darkened(0.04, 245), True)
    yield one("a-fifth-below-white", darkened(0.2, 204), False)


@mutants_of("DAT053")
def blurred() -> Iterator[Mutant]:
    yield one("blurred", scene(0).filter(ImageFilter.GaussianBlur(6)), True)
    yield one("a-little-blurred", scene(0).filter(ImageFilter.GaussianBlur(1)), False)


@mutants_of("DAT054")
def blank() -> Iterator[Mutant]:
    gray = Image.new("RGB", (96, 64), (90, 120, 100))
    yield one("one-colour", gray, True)
    yield one("black", Image.new("RGB", (96, 64)), True)
    yield one("high-and-narrow", Image.new("L", (8, 800), 3), True)
    yield one("black-and-white", Image.effect_mandelbrot((96, 64), (-3, -2, 2, 2), 9), False)


@mutants_of("DAT055")
def little_information() -> Iterator[Mutant]:
    halves = Image.new("RGB", (96, 64), (90, 120, 100))
    halves.paste((200, 40, 60), (0, 0, 48, 64))
    yield one("two-halves", halves, True)
    yield one("many-colours", scene(0), False)


@mutants_of("DAT056")
def odd_size() -> Iterator[Mutant]:
    def sizes(*last: tuple[int, int]) -> bytes:
        usual = [(96, 64)] * (11 - len(last))
        return shard_of([saved(scene(at, size)) for at, size in enumerate([*usual, *last])])

    yield fail("an-icon", sizes((24, 16)), record=10, options=HINTS)
    yield near("three-quarters", sizes((72, 48)), options=HINTS)


@mutants_of("DAT057")
def odd_ratio() -> Iterator[Mutant]:
    def sizes(usual: tuple[int, int], last: tuple[int, int]) -> bytes:
        return shard_of([saved(scene(at, size)) for at, size in enumerate([usual] * 10 + [last])])

    yield fail("a-strip", sizes((96, 64), (192, 32)), record=10, options=HINTS)
    yield near("strips-all", sizes((192, 32), (192, 32)), options=HINTS)


def _copies() -> Mapping[str, Image.Image]:
    image = scene(1, (192, 128))
    return {
        "re-encoded": image,
        "half-as-large": image.resize((96, 64), Image.Resampling.BICUBIC),
        "two-percent-cropped": image.crop((2, 1, 190, 127)),
        "mirrored": ImageOps.mirror(image),
        "darker": image.point(lambda value: value * 0.8),
    }


@mutants_of("DAT058")
def near_image() -> Iterator[Mutant]:
    first = saved(scene(1, (192, 128)))
    for case, image in _copies().items():
        content = shard_of([first, saved(scene(2)), saved(image, "JPEG", quality=60)])
        yield fail(case, content, record=2, options=HINTS)
    yield near("others", shard_of([first, saved(scene(2)), saved(scene(3))]), options=HINTS)
    yield near("the-same-bytes", shard_of([first, first]), "IMG010", options=HINTS)


@mutants_of("DAT059")
def near_shared_image() -> Iterator[Mutant]:
    def subsets(name: str, image: bytes) -> Content:
        train = shard_of([saved(scene(1)), saved(scene(2))])
        return together({"train.tfrecord": train, f"{name}.tfrecord": shard_of([image], 2)})

    again = saved(scene(1), "JPEG", quality=60)
    yield fail("train-and-val", subsets("val", again), at="val.tfrecord", record=0, options=HINTS)
    yield near("another-image", subsets("val", saved(scene(3))), options=HINTS)
    yield near("the-same-bytes", subsets("val", saved(scene(1))), "IMG011", options=HINTS)
