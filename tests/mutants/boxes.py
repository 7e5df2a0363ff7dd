"""Mutants of boxes: BOX. Images are 40 x 20."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from tfod.detection.images.mask_images import encode_gray_png, encode_mask_png

from tests.mutants import registry
from tests.mutants.registry import Mutant
from tests.mutants.sound import (
    CAT_BOX,
    DOG_BOX,
    HEIGHT,
    TF,
    WIDTH,
    first,
    jpeg,
    record,
    second,
    shard,
    with_boxes,
)
from tests.records import encode

fail = partial(registry.fail, record=0, options=TF)
near = partial(registry.near, options=TF)
Box = tuple[float, float, float, float]
KERAS = {"profile": "keras_coco"}
SIZE, HALF_SIZE = (HEIGHT, WIDTH), (HEIGHT // 2, WIDTH)
MASK = "image/object/mask"


def changed(**changes: object) -> bytes:
    """A shard whose first record is changed."""
    return first(record(**changes))


def one(*box: float) -> bytes:
    """A shard with this box and another one in its first record."""
    return first(with_boxes([box, DOG_BOX], ["cat", "dog"], [1, 2]))


def lone(*box: float) -> bytes:
    """A shard with only this box in its first record."""
    return first(with_boxes([box]))


def only(*boxes: Sequence[float]) -> bytes:
    """A shard of one record with these boxes, cats and dogs in turn."""
    half = len(boxes) // 2
    return shard(with_boxes(boxes, ["cat", "dog"] * half, [1, 2] * half))


def after(value: float) -> float:
    """The next float32 above."""
    return float(np.nextafter(np.float32(value), np.float32(np.inf)))


def before(value: float) -> float:
    """The next float32 below."""
    return float(np.nextafter(np.float32(value), np.float32(-np.inf)))


def with_flat(flat: int) -> bytes:
    """A shard of ten boxes, some of them without an area."""
    rest = [(n / 20, 0.25, n / 20 + 0.5, 0.75) for n in range(flat, 10)]
    return only(*[(n / 20, 0.5, n / 20, 0.5) for n in range(flat)], *rest)


EIGHT = [(n / 16, (7 - n) / 16, n / 16 + 0.25, (7 - n) / 16 + 0.5) for n in range(8)]


def exchanged(count: int) -> list[Box]:
    """Eight boxes, of which the first have xmin and xmax exchanged."""
    return [(box[2], box[1], box[0], box[3]) for box in EIGHT[:count]] + EIGHT[count:]


def annotation(*box: float) -> bytes:
    """A record of one annotation like in the Keras guide, with these numbers for its box."""
    found = {"image": jpeg(), "path": "a.jpg", "area": 1.0, "category_id": 1, "id": 1}
    return shard(encode({**found, "image_id": 1, "bbox": list(box)}))


def points(x: Sequence[float], y: Sequence[float]) -> bytes:
    """A shard with these keypoints in its first record."""
    return changed(**{"image/object/keypoint/x": list(x), "image/object/keypoint/y": list(y)})


def sized_masks(key: str, *sizes: tuple[int, int]) -> bytes:
    """A shard whose first record has PNG masks of these sizes under a key."""
    return changed(**{key: [encode_mask_png(np.ones(size)) for size in sizes]})


def gray_masks(*masks: np.ndarray | int) -> bytes:
    """A shard whose first record has masks with these values."""
    arrays = (np.broadcast_to(np.uint8(mask), SIZE) for mask in masks)
    return changed(**{MASK: [encode_gray_png(np.array(array)) for array in arrays]})


def mutants() -> list[Mutant]:
    largest = float(np.finfo(np.float32).max)
    just_above_2, hanging = (0.25, 0.25, after(2.0), after(2.0)), (-0.5, 0.25, 1.5, 2.25)
    twice, moved = [CAT_BOX, CAT_BOX], [CAT_BOX, (after(CAT_BOX[0]), *CAT_BOX[1:])]
    unknown_size = with_boxes([(0.5, 0.25, 0.51, 0.75)], encoded=b"x", width=None, height=None)
    many = [(n / 202, 0.25, n / 202 + 0.5, 0.75) for n in range(101)]
    cat, dog = np.zeros((2, *SIZE), np.uint8)
    cat[5:15, 10:20] = dog[2:18, 20:] = 1
    numbers = [*map(float, (1 - cat).flat), *map(float, dog.flat)]
    png, url = encode_mask_png(np.zeros(SIZE)), b"https://example.org/mask.png"
    # Twenty boxes of 4 x 5 pixels in a row, as corners, as corner and size, as center and size.
    x, y, sides = np.arange(20) + 16, np.arange(20) % 15, (WIDTH, HEIGHT, WIDTH, HEIGHT)
    corners = np.stack((x, y, x + 4, y + 5), axis=1) / sides
    sizes = np.stack((x, y, x * 0 + 4, y * 0 + 5), axis=1) / sides
    centers = np.stack((x + 2, y + 2.5, x * 0 + 4, y * 0 + 5), axis=1) / sides
    return [
        fail("BOX001-one-xmax-less", changed(xmax=[0.5])),
        fail("BOX001-one-label-less", changed(label=[1])),
        fail("BOX001-one-flag-less", changed(**{"image/object/difficult": [0]})),
        fail("BOX001-no-xmin", second(record(xmin=None)), record=1),
        near("BOX001-no-texts-at-all", changed(text=None)),
        near("BOX001-as-many-flags", changed(**{"image/object/difficult": [0, 0]})),
        fail("BOX002-nan", one(math.nan, 0.25, 0.5, 0.75)),
        fail("BOX002-infinity", one(0.25, 0.25, math.inf, 0.75)),
        near("BOX002-largest-number", one(0.25, 0.25, largest, 0.75), "BOX003"),
        fail("BOX003-beyond-1.1", one(0.25, 0.25, 0.5, 1.10002)),
        fail("BOX003-below-minus-0.1", one(0.25, -0.10002, 0.5, 0.75)),
        near("BOX003-just-1.1", one(0.25, 0.25, 0.5, 1.1), "BOX004"),
        near("BOX003-just-minus-0.1", one(0.25, -0.1, 0.5, 0.75), "BOX004"),
        fail("BOX004-above-1", one(0.25, 0.25, 0.5, 1.00002)),
        fail("BOX004-below-0", one(0.25, -0.00002, 0.5, 0.75)),
        near("BOX004-rounding-above-1", one(0.25, 0.25, 0.5, after(1.0))),
        near("BOX004-just-1", one(0.0, 0.0, 1.0, 1.0)),
        fail("BOX005-pixels", one(10.0, 5.0, 20.0, 15.0)),
        fail("BOX005-next-above-2-in-both-directions", only(just_above_2, (0.1, 0.1, 9.0, 9.0))),
        fail("BOX005-from-the-first-pixel", only((0.0, 0.0, 34.0, 21.0), (0.0, 0.0, 20.0, 8.0))),
        near("BOX005-just-2", one(0.25, 0.25, 0.5, 2.0), "BOX003"),
        near("BOX005-one-that-hangs-over", one(*hanging), "BOX003"),
        near("BOX005-half-of-them-hang-over", only(hanging, (0.1, 0.1, 0.5, 0.5)), "BOX003"),
        fail("BOX006-xmax-just-left-of-xmin", one(0.5, 0.25, before(0.5), 0.75)),
        fail("BOX006-ymax-above-ymin", one(0.25, 0.75, 0.5, 0.25)),
        fail("BOX006-both", one(0.5, 0.75, 0.25, 0.25)),
        near("BOX006-no-width", one(0.5, 0.25, 0.5, 0.75), "BOX007"),
        fail("BOX007-no-width", one(0.5, 0.25, 0.5, 0.75)),
        near("BOX007-next-float-right", one(0.5, 0.25, after(0.5), 0.75), "BOX008"),
        fail("BOX008-almost-a-pixel-wide", one(0.5, 0.25, 0.5 + 0.99 / WIDTH, 0.75)),
        near("BOX008-a-pixel-wide", one(0.5, 0.25, 0.5 + 1 / WIDTH, 0.75)),
        near("BOX008-of-a-image-of-unknown-size", first(unknown_size), "IMG002", "IMG015"),
        fail("BOX009-class-and-all", first(with_boxes(twice))),
        near("BOX009-of-another-class", first(with_boxes(twice, ["cat", "dog"], [1, 2]))),
        near("BOX009-one-bit-apart", first(with_boxes(moved))),
        fail("BOX010-101", first(with_boxes(many))),
        fail("BOX010-100", first(with_boxes(many[:100]))),
        near("BOX010-99", first(with_boxes(many[:99]))),
        fail("BOX011-divided-by-the-other-side", lone(0.25, 0.1, 1.10002, 0.5), "BOX003"),
        near("BOX011-over-the-edge", lone(0.25, 0.1, before(1.1), 0.5), "BOX004"),
        near("BOX011-lower-than-that-allows", lone(0.25, 0.1, 1.2, 0.51), "BOX003"),
        near("BOX011-left-of-the-image", lone(-0.05, 0.1, 1.2, 0.5), "BOX003"),
        fail("BOX012-five-of-ten", with_flat(5), "BOX007", record=None),
        fail("BOX012-all", with_flat(10), "BOX007", record=None),
        near("BOX012-four-of-ten", with_flat(4), "BOX007"),
        fail("BOX013-xmin-and-xmax-exchanged", only(*exchanged(8)), "BOX006", record=None),
        near("BOX013-but-not-in-half-of-them", first(with_boxes(exchanged(4))), "BOX006"),
        near("BOX013-three-boxes", first(with_boxes(exchanged(3))), "BOX006"),
        fail("BOX014-three", annotation(1.0, 2.0, 3.0), "BOX001", options=KERAS),
        near("BOX014-four", annotation(1.0, 2.0, 3.0, 4.0), "LAB013", options=KERAS),
        fail("BOX015-one-pixel-less", changed(**{MASK: [1.0] * (2 * WIDTH * HEIGHT - 1)})),
        fail("BOX015-of-one-object", changed(**{MASK: [1.0] * (WIDTH * HEIGHT)})),
        near("BOX015-of-both", changed(**{MASK: [0.0] * (2 * WIDTH * HEIGHT)})),
        fail("BOX016-three-of-two-objects", points([0.5] * 3, [0.5] * 3)),
        fail("BOX016-one-y-less", points([0.5] * 4, [0.5] * 3)),
        near("BOX016-two-of-each", points([0.5] * 4, [0.5] * 4)),
        fail("BOX017-of-the-second-object", sized_masks(MASK, SIZE, HALF_SIZE), "BOX023"),
        near("BOX017-of-the-image's-size", sized_masks(MASK, SIZE, SIZE), "BOX023"),
        fail("BOX018-half-as-high", sized_masks("image/panoptic/category_mask", HALF_SIZE)),
        near("BOX018-of-the-image's-size", sized_masks("image/panoptic/category_mask", SIZE)),
        fail("BOX019-of-255", gray_masks(255, 255), "BOX023"),
        fail("BOX019-empty-and-then-of-2", gray_masks(0, 2), "BOX023"),
        near("BOX019-of-1", gray_masks(1, 0), "BOX023"),
        fail("BOX022-divided-twice", only(*(corners / sides).tolist()), "BOX008", record=None),
        fail("BOX022-percent", only(*(corners * 100).tolist()), "BOX005", record=None),
        fail("BOX022-x-y-width-height", only(*sizes.tolist()), "BOX006", record=None),
        fail("BOX022-center-and-size", only(*centers.tolist()), "BOX006", "BOX013", record=None),
        near("BOX022-small-in-the-first-corner", only(*(corners * 0.25).tolist())),
        near("BOX022-pixels", only(*(corners * sides * 2).tolist()), "BOX005"),
        fail("BOX023-trimap", gray_masks(cat, 2 - dog), "BOX019"),
        fail("BOX023-inverted", gray_masks(1 - cat, 1 - dog)),
        fail("BOX023-of-each-other", gray_masks(dog, cat)),
        fail("BOX023-inverted-numbers", changed(**{MASK: numbers})),
        near("BOX023-two-pixels-too-far", gray_masks(np.roll(cat, 2, axis=1), dog)),
        near("BOX023-empty", gray_masks(cat * 0, dog)),
        fail("BOX020-text-of-the-second", changed(**{MASK: (png, url)})),
        fail("BOX020-a-jpeg", changed(**{MASK: (jpeg(), png)})),
        fail("BOX020-cut-in-its-header", changed(**{MASK: (png[:20], png)})),
        near("BOX020-empty", changed(**{MASK: (png, b"")})),
        fail("BOX021-of-both-objects", points([12.0, 0.0, 30.0, 31.0], [5.0, 0.0, 8.0, 1.5])),
        fail("BOX021-two-of-three", points([0.5, 12.0, 30.0, 0.0], [0.5, 5.0, 8.0, 0.0])),
        near("BOX021-one-that-is-far", points([0.5, 0.25, 2.5, 0.0], [0.5, 0.5, 0.5, 0.0])),
        near("BOX021-just-2", points([2.0, 2.0], [2.0, 2.0])),
    ]
