"""The sizes of the benchmark data. Imports nothing, since every process imports this module."""

from __future__ import annotations

from dataclasses import dataclass

IMAGE_BYTES = 100_000
HEIGHT, WIDTH = 480, 640
BOXES = 6
EXPORTED_BOXES = 10
CLASSES = tuple(f"class {number:02d}" for number in range(20))
WARM_UP = 20
MANY_SHARDS = 10
TRAINING_SHARDS = 4


@dataclass(frozen=True)
class Sizes:
    """The number of records of each measurement; a slow peer gets only the first of them.

    Attributes:
        images, images_of_peer: records with an image of 100 kB.
        bare, bare_of_peer: records without an image.
        validated: records without an image, for commands that check and convert.
        coco: images of a COCO dataset to convert.
        tiny_shards: shards with one record.
        growing: records without images, increasing numbers of them to check.
        files, files_of_peer: image files.
        training: records with an image, in several shards.
        exported: images of which only the annotations are exported.
        from_cvat: frames of a CVAT task to export.
        masks_from_cvat: frames of a CVAT task to export with a mask for each box.
        repeats: runs per side.
        repeats_of_exports: runs of exports per side, which vary more.
    """

    images: int
    images_of_peer: int
    bare: int
    bare_of_peer: int
    validated: int
    coco: int
    tiny_shards: int
    growing: tuple[int, ...]
    files: int
    files_of_peer: int
    training: int
    exported: int
    from_cvat: int
    masks_from_cvat: int
    repeats: int
    repeats_of_exports: int


FULL = Sizes(
    images=4000,
    images_of_peer=1000,
    bare=50_000,
    bare_of_peer=2500,
    validated=20_000,
    coco=500,
    tiny_shards=3000,
    growing=(100_000, 1_000_000, 10_000_000),
    files=1000,
    files_of_peer=200,
    training=1000,
    exported=5000,
    from_cvat=10_000,
    masks_from_cvat=3000,
    repeats=3,
    repeats_of_exports=6,
)
QUICK = Sizes(
    images=1000,
    images_of_peer=150,
    bare=10_000,
    bare_of_peer=500,
    validated=5000,
    coco=100,
    tiny_shards=600,
    growing=(20_000, 100_000),
    files=300,
    files_of_peer=60,
    training=300,
    exported=1000,
    from_cvat=2000,
    masks_from_cvat=1000,
    repeats=2,
    repeats_of_exports=3,
)
