"""Masks that stay in their shard until their pixels are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import attr
import numpy as np

from tfod.datumaro.compat import annotation
from tfod.detection.boxes import PixelBox
from tfod.detection.images.masks import decode_mask_png
from tfod.detection.stream import decode_detection
from tfod.errors import ShardError
from tfod.example.example import Example
from tfod.tfrecord.record_index import ByteSpan

_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")  # the format asks for PNG; writers err


@attr.s(slots=True, order=False, eq=False)
class BoxedMask(annotation.Mask):
    """A mask that knows the box its record gives the object.

    The box need not be the mask's extent (COCO's, for one, are not); it goes back out on export,
    as long as the pixels are the ones that it was given for.
    Equal to a plain ``Mask`` of the same pixels.
    """

    corners: PixelBox = attr.ib(kw_only=True, default=(0.0, 0.0, 0.0, 0.0))
    boxed: Any = attr.ib(kw_only=True, default=None)

    @classmethod
    def make(cls, image: Any, corners: PixelBox, **fields: Any) -> BoxedMask:
        """Build one; ``image`` is the pixels or a callable that returns them."""
        build: Callable[..., BoxedMask] = cls  # attrs makes its arguments, which have no types
        return build(image=image, corners=corners, boxed=image, **fields)

    @property
    def size_on_disk(self) -> tuple[int, int] | None:
        """Height and width of a mask that is a PNG in its shard, from its header.

        None where it is no PNG. Masks that are numbers have the size of their record.
        """
        if isinstance(self.boxed, LazyPngMask):
            return png_size(self.boxed.span.read())
        return tuple(np.asarray(self.image).shape)

    @property
    def has_its_box(self) -> bool:
        """Whether the pixels are still those that the box is of; transforms replace them."""
        return self._image is self.boxed

    def get_bbox(self) -> list[float]:
        """The object's box as x, y, width, height; needs no look at the pixels."""
        if not self.has_its_box:
            return list(super().get_bbox())
        left, top, right, bottom = self.corners
        return [left, top, right - left, bottom - top]


@dataclass(frozen=True)
class LazyPngMask:
    """A mask that is read from its shard and decoded when Datumaro asks for it."""

    span: ByteSpan

    def __call__(self, *_: object) -> np.ndarray:
        """Return the mask, bool of shape (height, width).

        Raises:
            ShardError: the bytes are no image.
        """
        try:
            return decode_mask_png(self.span.read(), _FORMATS)
        except ValueError:
            raise ShardError(
                "a mask cannot be decoded, its bytes are not a PNG image",
                shard=self.span.shard.path,
                offset=self.span.offset,
                fix="export the shard again",
            ) from None


@dataclass(frozen=True)
class LazyNumericalMask:
    """One object's mask of a record that has them as numbers."""

    record: ByteSpan
    index: int

    def __call__(self, *_: object) -> np.ndarray:
        """Return the mask, bool of shape (height, width)."""
        example = Example.from_bytes(self.record.read(), self.record.shard.path)
        masks = decode_detection(example).numerical_masks
        assert masks is not None  # it was there when the mask was made
        return np.asarray(masks[self.index] > 0)


def png_size(data: memoryview | bytes) -> tuple[int, int] | None:
    """Height and width of a PNG from its header; None for other bytes."""
    head = bytes(data[:24])
    if len(head) < 24 or head[12:16] != b"IHDR":
        return None
    return int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")
