"""Mutants of boxes: BOX. Images are 40 x 20."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from tfod.detection.images.mask_images import encode_gray_png, encode_mask_png

from tests.mutants import registry
from tests.mutants.registry import Table
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


def mutants() -> Table:
    """Return the mutants of each rule."""
    largest = float(np.finfo(np.float32).max)
    just_above_2, hanging = (0.25, 0.25, after(2.0), after(2.0)), (-0.5, 0.25, 1.5, 2.25)
    twice, moved = [CAT_BOX, CAT_BOX], [CAT_BOX, (after(CAT_BOX[0]), *CAT_BOX[1:])]
    unknown_size = with_boxes([(0.5, 0.25, 0.51, 0.75)], encoded=b"x", width=None, height=None)
    many = [(n / 202, 0.25, n / 202 + 0.5, 0.75) for n in range(101)]
    cat, dog = np.zeros((2, *SIZE), np.uint8)
    cat[5:15, 10:20] = dog[2:18, 20:] = 1
    numbers = [*map(float, (1 - cat).flat), *map(float, dog.flat)]
    png = encode_mask_png(np.zeros(SIZE))
    # Twenty boxes of 4 x 5 pixels in a row, as corners, as corner and size, as center and size.
    x, y, sides = np.arange(20) + 16, np.arange(20) % 15, (WIDTH, HEIGHT, WIDTH, HEIGHT)
    corners = np.stack((x, y, x + 4, y + 5), axis=1) / sides
    sizes = np.stack((x, y, x * 0 + 4, y * 0 + 5), axis=1) / sides
    centers = np.stack((x + 2, y + 2.5, x * 0 + 4, y * 0 + 5), axis=1) / sides
    return {
        "BOX001": [  # different lengths
            fail("one-xmax-less", changed(xmax=[0.5])),
            fail("one-label-less", changed(label=[1])),
            fail("one-flag-less", changed(**{"image/object/difficult": [0]})),
            fail("no-xmin", second(record(xmin=None)), record=1),
            near("no-texts-at-all", changed(text=None)),
            near("as-many-flags", changed(**{"image/object/difficult": [0, 0]})),
        ],
        "BOX002": [  # not finite
            fail("nan", one(math.nan, 0.25, 0.5, 0.75)),
            fail("infinity", one(0.25, 0.25, math.inf, 0.75)),
            near("largest-number", one(0.25, 0.25, largest, 0.75), "BOX003"),
        ],
        "BOX003": [  # far outside
            fail("beyond-1.1", one(0.25, 0.25, 0.5, 1.10002)),
            fail("below-minus-0.1", one(0.25, -0.10002, 0.5, 0.75)),
            near("just-1.1", one(0.25, 0.25, 0.5, 1.1), "BOX004"),
            near("just-minus-0.1", one(0.25, -0.1, 0.5, 0.75), "BOX004"),
        ],
        "BOX004": [  # slightly outside
            fail("above-1", one(0.25, 0.25, 0.5, 1.00002)),
            fail("below-0", one(0.25, -0.00002, 0.5, 0.75)),
            near("rounding-above-1", one(0.25, 0.25, 0.5, after(1.0))),
            near("just-1", one(0.0, 0.0, 1.0, 1.0)),
        ],
        "BOX005": [  # looks like pixels
            fail("pixels", one(10.0, 5.0, 20.0, 15.0)),
            fail("next-above-2-in-both-directions", only(just_above_2, (0.1, 0.1, 9.0, 9.0))),
            fail("from-the-first-pixel", only((0.0, 0.0, 34.0, 21.0), (0.0, 0.0, 20.0, 8.0))),
            near("just-2", one(0.25, 0.25, 0.5, 2.0), "BOX003"),
            near("one-that-hangs-over", one(*hanging), "BOX003"),
            near("half-of-them-hang-over", only(hanging, (0.1, 0.1, 0.5, 0.5)), "BOX003"),
        ],
        "BOX006": [  # inverted
            fail("xmax-just-left-of-xmin", one(0.5, 0.25, before(0.5), 0.75)),
            fail("ymax-above-ymin", one(0.25, 0.75, 0.5, 0.25)),
            fail("both", one(0.5, 0.75, 0.25, 0.25)),
            near("no-width", one(0.5, 0.25, 0.5, 0.75), "BOX007"),
        ],
        "BOX007": [  # no area
            fail("no-width", one(0.5, 0.25, 0.5, 0.75)),
            near("next-float-right", one(0.5, 0.25, after(0.5), 0.75), "BOX008"),
        ],
        "BOX008": [  # smaller than a pixel
            fail("almost-a-pixel-wide", one(0.5, 0.25, 0.5 + 0.99 / WIDTH, 0.75)),
            near("a-pixel-wide", one(0.5, 0.25, 0.5 + 1 / WIDTH, 0.75)),
            near("of-a-image-of-unknown-size", first(unknown_size), "IMG002", "IMG015"),
        ],
        "BOX009": [  # duplicate box
            fail("class-and-all", first(with_boxes(twice))),
            near("of-another-class", first(with_boxes(twice, ["cat", "dog"], [1, 2]))),
            near("one-bit-apart", first(with_boxes(moved))),
        ],
        "BOX010": [  # too many boxes
            fail("101", first(with_boxes(many))),
            fail("100", first(with_boxes(many[:100]))),
            near("99", first(with_boxes(many[:99]))),
        ],
        "BOX011": [  # swapped axes
            fail("divided-by-the-other-side", lone(0.25, 0.1, 1.10002, 0.5), "BOX003"),
            near("over-the-edge", lone(0.25, 0.1, before(1.1), 0.5), "BOX004"),
            near("lower-than-that-allows", lone(0.25, 0.1, 1.2, 0.51), "BOX003"),
            near("left-of-the-image", lone(-0.05, 0.1, 1.2, 0.5), "BOX003"),
        ],
        "BOX012": [  # mostly flat
            fail("five-of-ten", with_flat(5), "BOX007", record=None),
            fail("all", with_flat(10), "BOX007", record=None),
            near("four-of-ten", with_flat(4), "BOX007"),
        ],
        "BOX013": [  # permuted columns
            fail("xmin-and-xmax-exchanged", only(*exchanged(8)), "BOX006", record=None),
            near("but-not-in-half-of-them", first(with_boxes(exchanged(4))), "BOX006"),
            near("three-boxes", first(with_boxes(exchanged(3))), "BOX006"),
        ],
        "BOX014": [  # not four numbers
            fail("three", annotation(1.0, 2.0, 3.0), "BOX001", options=KERAS),
            near("four", annotation(1.0, 2.0, 3.0, 4.0), "LAB013", options=KERAS),
        ],
        "BOX015": [  # mask size differs
            fail("one-pixel-less", changed(**{MASK: [1.0] * (2 * WIDTH * HEIGHT - 1)})),
            fail("of-one-object", changed(**{MASK: [1.0] * (WIDTH * HEIGHT)})),
            near("of-both", changed(**{MASK: [0.0] * (2 * WIDTH * HEIGHT)})),
        ],
        "BOX016": [  # uneven keypoints
            fail("three-of-two-objects", points([0.5] * 3, [0.5] * 3)),
            fail("one-y-less", points([0.5] * 4, [0.5] * 3)),
            near("two-of-each", points([0.5] * 4, [0.5] * 4)),
        ],
        "BOX017": [  # size of an object's mask differs
            fail("of-the-second-object", sized_masks(MASK, SIZE, HALF_SIZE), "BOX023"),
            near("of-the-image's-size", sized_masks(MASK, SIZE, SIZE), "BOX023"),
        ],
        "BOX018": [  # size of the image's mask differs
            fail("half-as-high", sized_masks("image/panoptic/category_mask", HALF_SIZE)),
            near("of-the-image's-size", sized_masks("image/panoptic/category_mask", SIZE)),
        ],
        "BOX019": [  # other mask values
            fail("of-255", gray_masks(255, 255), "BOX023"),
            fail("empty-and-then-of-2", gray_masks(0, 2), "BOX023"),
            near("of-1", gray_masks(1, 0), "BOX023"),
        ],
        "BOX022": [  # not two corners
            fail("divided-twice", only(*(corners / sides).tolist()), "BOX008", record=None),
            fail("percent", only(*(corners * 100).tolist()), "BOX005", record=None),
            fail("x-y-width-height", only(*sizes.tolist()), "BOX006", record=None),
            fail("center-and-size", only(*centers.tolist()), "BOX006", "BOX013", record=None),
            near("small-in-the-first-corner", only(*(corners * 0.25).tolist())),
            near("pixels", only(*(corners * sides * 2).tolist()), "BOX005"),
        ],
        "BOX023": [  # mask outside its box
            fail("trimap", gray_masks(cat, 2 - dog), "BOX019"),
            fail("inverted", gray_masks(1 - cat, 1 - dog)),
            fail("of-each-other", gray_masks(dog, cat)),
            fail("inverted-numbers", changed(**{MASK: numbers})),
            near("two-pixels-too-far", gray_masks(np.roll(cat, 2, axis=1), dog)),
            near("empty", gray_masks(cat * 0, dog)),
        ],
        "BOX020": [  # not a PNG mask
            fail("text-of-the-second", changed(**{MASK: (png, b"https://example.org/mask.png")})),
            fail("a-jpeg", changed(**{MASK: (jpeg(), png)})),
            fail("cut-in-its-header", changed(**{MASK: (png[:20], png)})),
            near("empty", changed(**{MASK: (png, b"")})),
        ],
        "BOX021": [  # keypoints in pixels
            fail("of-both-objects", points([12.0, 0.0, 30.0, 31.0], [5.0, 0.0, 8.0, 1.5])),
            fail("two-of-three", points([0.5, 12.0, 30.0, 0.0], [0.5, 5.0, 8.0, 0.0])),
            near("one-that-is-far", points([0.5, 0.25, 2.5, 0.0], [0.5, 0.5, 0.5, 0.0])),
            near("just-2", points([2.0, 2.0], [2.0, 2.0])),
        ],
    }
