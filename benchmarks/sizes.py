"""How much is measured, and what the records are like. Imports nothing: every process reads it."""

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
    """How many records each measurement has; a slow peer gets the first few of the same.

    Attributes:
        images, images_of_peer: records with an image of 100 kB.
        bare, bare_of_peer: records without an image.
        validated: records without an image that are checked by a whole process.
        coco: images of a COCO dataset that becomes shards.
        growing: records without images that a whole process checks, more and more.
        files, files_of_peer: image files.
        training: records with an image, in several shards.
        exported: images of the export of annotations alone.
        from_cvat: frames of the task that a CVAT server exports.
        repeats: how often each side runs.
        repeats_of_exports: likewise; writing is noisier than reading.
    """

    images: int
    images_of_peer: int
    bare: int
    bare_of_peer: int
    validated: int
    coco: int
    growing: tuple[int, ...]
    files: int
    files_of_peer: int
    training: int
    exported: int
    from_cvat: int
    repeats: int
    repeats_of_exports: int


FULL = Sizes(
    images=4000,
    images_of_peer=1000,
    bare=50_000,
    bare_of_peer=2500,
    validated=20_000,
    coco=500,
    growing=(100_000, 1_000_000, 10_000_000),
    files=1000,
    files_of_peer=200,
    training=1000,
    exported=5000,
    from_cvat=10_000,
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
    growing=(20_000, 100_000),
    files=300,
    files_of_peer=60,
    training=300,
    exported=1000,
    from_cvat=2000,
    repeats=2,
    repeats_of_exports=3,
)
