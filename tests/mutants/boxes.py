"""Mutants of boxes: BOX. Images are 40 x 20."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from tfod.detection.images.mask_images import encode_gray_png, encode_mask_png

from tests.mutants.registry import Mutant, fail, mutants_of, near
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

HOW = {"record": 0, "options": TF}


def one(*box: float) -> bytes:
    """A shard whose first record has this box, and a sound one."""
    return first(with_boxes([box, DOG_BOX], ["cat", "dog"], [1, 2]))


def only(*boxes: tuple[float, float, float, float]) -> bytes:
    """A shard of one record with these two boxes."""
    return shard(with_boxes(boxes, ["cat", "dog"], [1, 2]))


def after(value: float) -> float:
    """The next float32 above."""
    return float(np.nextafter(np.float32(value), np.float32(np.inf)))


def before(value: float) -> float:
    """The next float32 below."""
    return float(np.nextafter(np.float32(value), np.float32(-np.inf)))


@mutants_of("BOX001")
def different_lengths() -> Iterator[Mutant]:
    yield fail("one-xmax-less", first(record(xmax=[0.5])), **HOW)
    yield fail("one-label-less", first(record(label=[1])), **HOW)
    yield fail("one-flag-less", first(record(**{"image/object/difficult": [0]})), **HOW)
    yield fail("no-xmin", second(record(xmin=None)), record=1, options=TF)
    yield near("no-texts-at-all", first(record(text=None)), options=TF)
    flags = {"image/object/difficult": [0, 0]}
    yield near("as-many-flags", first(record(**flags)), options=TF)


@mutants_of("BOX002")
def not_finite() -> Iterator[Mutant]:
    yield fail("nan", one(math.nan, 0.25, 0.5, 0.75), **HOW)
    yield fail("infinity", one(0.25, 0.25, math.inf, 0.75), **HOW)
    largest = float(np.finfo(np.float32).max)
    yield near("largest-number", one(0.25, 0.25, largest, 0.75), "BOX003", options=TF)


@mutants_of("BOX003")
def far_outside() -> Iterator[Mutant]:
    yield fail("beyond-1.1", one(0.25, 0.25, 0.5, 1.10002), **HOW)
    yield fail("below-minus-0.1", one(0.25, -0.10002, 0.5, 0.75), **HOW)
    yield near("just-1.1", one(0.25, 0.25, 0.5, 1.1), "BOX004", options=TF)
    yield near("just-minus-0.1", one(0.25, -0.1, 0.5, 0.75), "BOX004", options=TF)


@mutants_of("BOX004")
def slightly_outside() -> Iterator[Mutant]:
    yield fail("above-1", one(0.25, 0.25, 0.5, 1.00002), **HOW)
    yield fail("below-0", one(0.25, -0.00002, 0.5, 0.75), **HOW)
    yield near("rounding-above-1", one(0.25, 0.25, 0.5, after(1.0)), options=TF)
    yield near("just-1", one(0.0, 0.0, 1.0, 1.0), options=TF)


@mutants_of("BOX005")
def looks_like_pixels() -> Iterator[Mutant]:
    yield fail("pixels", one(10.0, 5.0, 20.0, 15.0), **HOW)
    yield fail(
        "next-above-2-in-both-directions",
        only((0.25, 0.25, after(2.0), after(2.0)), (0.1, 0.1, 9.0, 9.0)),
        **HOW,
    )
    yield fail("from-the-first-pixel", only((0.0, 0.0, 34.0, 21.0), (0.0, 0.0, 20.0, 8.0)), **HOW)
    yield near("just-2", one(0.25, 0.25, 0.5, 2.0), "BOX003", options=TF)
    yield near("one-that-hangs-over", one(-0.5, 0.25, 1.5, 2.25), "BOX003", options=TF)
    yield near(
        "half-of-them-hang-over",
        only((-0.5, 0.25, 1.5, 2.25), (0.1, 0.1, 0.5, 0.5)),
        "BOX003",
        options=TF,
    )


@mutants_of("BOX006")
def inverted() -> Iterator[Mutant]:
    yield fail("xmax-just-left-of-xmin", one(0.5, 0.25, before(0.5), 0.75), **HOW)
    yield fail("ymax-above-ymin", one(0.25, 0.75, 0.5, 0.25), **HOW)
    yield fail("both", one(0.5, 0.75, 0.25, 0.25), **HOW)
    yield near("no-width", one(0.5, 0.25, 0.5, 0.75), "BOX007", options=TF)


@mutants_of("BOX007")
def no_area() -> Iterator[Mutant]:
    yield fail("no-width", one(0.5, 0.25, 0.5, 0.75), **HOW)
    yield near("next-float-right", one(0.5, 0.25, after(0.5), 0.75), "BOX008", options=TF)


@mutants_of("BOX008")
def smaller_than_a_pixel() -> Iterator[Mutant]:
    yield fail("almost-a-pixel-wide", one(0.5, 0.25, 0.5 + 0.99 / WIDTH, 0.75), **HOW)
    yield near("a-pixel-wide", one(0.5, 0.25, 0.5 + 1 / WIDTH, 0.75), options=TF)
    unknown = with_boxes([(0.5, 0.25, 0.51, 0.75)], encoded=b"x", width=None, height=None)
    yield near("of-a-image-of-unknown-size", first(unknown), "IMG002", "IMG015", options=TF)


@mutants_of("BOX009")
def duplicate_box() -> Iterator[Mutant]:
    twice = [CAT_BOX, CAT_BOX]
    yield fail("class-and-all", first(with_boxes(twice)), **HOW)
    other_class = with_boxes(twice, ["cat", "dog"], [1, 2])
    yield near("of-another-class", first(other_class), options=TF)
    moved = with_boxes([CAT_BOX, (after(CAT_BOX[0]), *CAT_BOX[1:])])
    yield near("one-bit-apart", first(moved), options=TF)


@mutants_of("BOX010")
def too_many_boxes() -> Iterator[Mutant]:
    boxes = [(n / 202, 0.25, n / 202 + 0.5, 0.75) for n in range(101)]
    yield fail("101", first(with_boxes(boxes)), **HOW)
    yield fail("100", first(with_boxes(boxes[:100])), **HOW)
    yield near("99", first(with_boxes(boxes[:99])), options=TF)


@mutants_of("BOX011")
def swapped_axes() -> Iterator[Mutant]:
    def alone(*box: float) -> bytes:
        return first(with_boxes([box]))

    yield fail("divided-by-the-other-side", alone(0.25, 0.1, 1.10002, 0.5), "BOX003", **HOW)
    yield near("over-the-edge", alone(0.25, 0.1, before(1.1), 0.5), "BOX004", options=TF)
    yield near("lower-than-that-allows", alone(0.25, 0.1, 1.2, 0.51), "BOX003", options=TF)
    yield near("left-of-the-image", alone(-0.05, 0.1, 1.2, 0.5), "BOX003", options=TF)


@mutants_of("BOX012")
def mostly_flat() -> Iterator[Mutant]:
    """A shard of ten boxes, each at a place of its own."""

    def shard_with(flat: int) -> bytes:
        rest = [(n / 20, 0.25, n / 20 + 0.5, 0.75) for n in range(flat, 10)]
        boxes = [(n / 20, 0.5, n / 20, 0.5) for n in range(flat)] + rest
        return shard(with_boxes(boxes, ["cat", "dog"] * 5, [1, 2] * 5))

    yield fail("five-of-ten", shard_with(5), "BOX007", options=TF)
    yield fail("all", shard_with(10), "BOX007", options=TF)
    yield near("four-of-ten", shard_with(4), "BOX007", options=TF)


@mutants_of("BOX013")
def permuted_columns() -> Iterator[Mutant]:
    true = [(n / 16, (7 - n) / 16, n / 16 + 0.25, (7 - n) / 16 + 0.5) for n in range(8)]

    def mixed_up(count: int) -> bytes:
        swapped = [(box[2], box[1], box[0], box[3]) for box in true[:count]]
        return first(with_boxes([*swapped, *true[count:]]))

    classes = {"text": ["cat", "dog"] * 4, "label": [1, 2] * 4}
    alone = with_boxes([(box[2], box[1], box[0], box[3]) for box in true], **classes)
    yield fail("xmin-and-xmax-exchanged", shard(alone), "BOX006", options=TF)
    yield near("but-not-in-half-of-them", mixed_up(4), "BOX006", options=TF)
    yield near("three-boxes", mixed_up(3), "BOX006", options=TF)


def annotation(*box: float) -> bytes:
    """A record as the Keras guide writes it, one an annotation, with these numbers for its box."""
    found = {"image": jpeg(), "path": "a.jpg", "area": 1.0, "category_id": 1, "id": 1}
    return shard(encode({**found, "image_id": 1, "bbox": list(box)}))


@mutants_of("BOX014")
def not_four_numbers() -> Iterator[Mutant]:
    keras = {"options": {"profile": "keras_coco"}}
    yield fail("three", annotation(1.0, 2.0, 3.0), "BOX001", record=0, **keras)
    yield near("four", annotation(1.0, 2.0, 3.0, 4.0), "LAB013", **keras)


@mutants_of("BOX015")
def mask_of_another_size() -> Iterator[Mutant]:
    key = "image/object/mask"
    yield fail("one-pixel-less", first(record(**{key: [1.0] * (2 * WIDTH * HEIGHT - 1)})), **HOW)
    yield fail("of-one-object", first(record(**{key: [1.0] * (WIDTH * HEIGHT)})), **HOW)
    yield near("of-both", first(record(**{key: [0.0] * (2 * WIDTH * HEIGHT)})), options=TF)


@mutants_of("BOX016")
def uneven_keypoints() -> Iterator[Mutant]:
    def points(x: int, y: int) -> bytes:
        named = {"image/object/keypoint/x": [0.5] * x, "image/object/keypoint/y": [0.5] * y}
        return first(record(**named))

    yield fail("three-of-two-objects", points(3, 3), **HOW)
    yield fail("one-y-less", points(4, 3), **HOW)
    yield near("two-of-each", points(4, 4), options=TF)


OWN_SIZE, OTHER_SIZE = (HEIGHT, WIDTH), (HEIGHT // 2, WIDTH)


def with_masks(key: str, *sizes: tuple[int, int]) -> bytes:
    """A shard whose first record has PNG masks of these sizes under a key."""
    return first(record(**{key: [encode_mask_png(np.ones(size)) for size in sizes]}))


@mutants_of("BOX017")
def object_mask_of_another_size() -> Iterator[Mutant]:
    key = "image/object/mask"
    yield fail("of-the-second-object", with_masks(key, OWN_SIZE, OTHER_SIZE), "BOX023", **HOW)
    yield near("of-the-image's-size", with_masks(key, OWN_SIZE, OWN_SIZE), "BOX023", options=TF)


@mutants_of("BOX018")
def image_mask_of_another_size() -> Iterator[Mutant]:
    key = "image/panoptic/category_mask"
    yield fail("half-as-high", with_masks(key, OTHER_SIZE), **HOW)
    yield near("of-the-image's-size", with_masks(key, OWN_SIZE), options=TF)


@mutants_of("BOX019")
def other_mask_values() -> Iterator[Mutant]:
    def masks(*values: int) -> bytes:
        pngs = [encode_gray_png(np.full(OWN_SIZE, one, np.uint8)) for one in values]
        return first(record(**{"image/object/mask": pngs}))

    yield fail("of-255", masks(255, 255), "BOX023", **HOW)
    yield fail("empty-and-then-of-2", masks(0, 2), "BOX023", **HOW)
    yield near("of-1", masks(1, 0), "BOX023", options=TF)


@mutants_of("BOX022")
def not_two_corners() -> Iterator[Mutant]:
    """Twenty boxes of 4 x 5 pixels, one behind the other, in another unit or form."""
    x, y, sides = np.arange(20) + 16, np.arange(20) % 15, (WIDTH, HEIGHT, WIDTH, HEIGHT)
    corners = np.stack((x, y, x + 4, y + 5), axis=1) / sides
    sizes = np.stack((x, y, x * 0 + 4, y * 0 + 5), axis=1) / sides
    centers = np.stack((x + 2, y + 2.5, x * 0 + 4, y * 0 + 5), axis=1) / sides

    def written(boxes: np.ndarray) -> bytes:
        return shard(with_boxes(boxes.tolist(), ["cat", "dog"] * 10, [1, 2] * 10))

    yield fail("divided-twice", written(corners / sides), "BOX008", options=TF)
    yield fail("percent", written(corners * 100), "BOX005", options=TF)
    yield fail("x-y-width-height", written(sizes), "BOX006", options=TF)
    yield fail("center-and-size", written(centers), "BOX006", "BOX013", options=TF)
    yield near("small-in-the-first-corner", written(corners * 0.25), options=TF)
    yield near("pixels", written(corners * sides * 2), "BOX005", options=TF)


@mutants_of("BOX023")
def mask_outside_its_box() -> Iterator[Mutant]:
    def masks(*values: np.ndarray) -> bytes:
        return first(record(**{"image/object/mask": [encode_gray_png(one) for one in values]}))

    cat, dog = np.zeros((2, *OWN_SIZE), np.uint8)
    cat[5:15, 10:20] = dog[2:18, 20:] = 1
    yield fail("trimap", masks(cat, 2 - dog), "BOX019", **HOW)
    yield fail("inverted", masks(1 - cat, 1 - dog), **HOW)
    yield fail("of-each-other", masks(dog, cat), **HOW)
    numbers = {"image/object/mask": [*map(float, (1 - cat).flat), *map(float, dog.flat)]}
    yield fail("inverted-numbers", first(record(**numbers)), **HOW)
    yield near("two-pixels-too-far", masks(np.roll(cat, 2, axis=1), dog), options=TF)
    yield near("empty", masks(cat * 0, dog), options=TF)


@mutants_of("BOX020")
def not_a_png_mask() -> Iterator[Mutant]:
    def masks(*values: bytes) -> bytes:
        return first(record(**{"image/object/mask": values}))

    png = encode_mask_png(np.zeros(OWN_SIZE))
    yield fail("text-of-the-second", masks(png, b"https://example.org/mask.png"), **HOW)
    yield fail("a-jpeg", masks(jpeg(), png), **HOW)
    yield fail("cut-in-its-header", masks(png[:20], png), **HOW)
    yield near("empty", masks(png, b""), options=TF)


@mutants_of("BOX021")
def keypoints_in_pixels() -> Iterator[Mutant]:
    def points(x: list[float], y: list[float]) -> bytes:
        named = {"image/object/keypoint/x": x, "image/object/keypoint/y": y}
        return first(record(**named))

    yield fail("of-both-objects", points([12.0, 0.0, 30.0, 31.0], [5.0, 0.0, 8.0, 1.5]), **HOW)
    yield fail("two-of-three", points([0.5, 12.0, 30.0, 0.0], [0.5, 5.0, 8.0, 0.0]), **HOW)
    yield near("one-that-is-far", points([0.5, 0.25, 2.5, 0.0], [0.5, 0.5, 0.5, 0.0]), options=TF)
    yield near("just-2", points([2.0, 2.0], [2.0, 2.0]), options=TF)
