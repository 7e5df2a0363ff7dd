"""The image of a record for Datumaro: its size, and its media, left where the bytes are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfod.datumaro import lines
from tfod.detection.columns import Detections
from tfod.detection.image import (
    DEFAULT_EXTENSION,
    EXTENSION_OF_FORMAT,
    image_size,
    sniff_format,
)
from tfod.tfrecord.naming import split_extension
from tfod.tfrecord.shard_file import ByteSpan


def record_size(found: Detections, row: int, on_disk: str | None) -> tuple[int, int] | None:
    """Height and width: as the record says, or else as its image's header says.

    Raises:
        RecordError: neither says it, and there are boxes.
    """
    height, width = found.sizes[row].tolist()
    if height > 0 and width > 0:
        return height, width
    size = None
    if on_disk:
        with open(on_disk, "rb") as file:
            size = image_size(file.read())
    if size is None and found.box_counts[row]:
        raise found.examples.error(
            row,
            "the image's size is not known (no image/height and image/width, and no image "
            "to take it from), so its boxes cannot be scaled",
            fix="write the size into the record",
        )
    return size


def record_media(
    head: bytes,
    span: ByteSpan,
    path: str,
    item_id: str,
    size: tuple[int, int] | None,
    on_disk: str | None,
) -> Any:
    """The image: in the shard, on disk beside it, or only its size.

    Args:
        head: the first 16 bytes of the encoded image; may be empty.
        span: where that is in the shard.
        path: its name, a safe relative path; may be empty.
        item_id: what it is called otherwise.
        size: height and width in pixels; None where they are not known.
        on_disk: its file beside the shard; None where there is none.
    """
    extension = split_extension(path)[1]
    if head:
        sniffed = sniff_format(head)
        channels = raw_channels(span.length, size) if sniffed is None else 0
        if channels and size is not None:
            pixels = RawPixels(span, (*size, channels))
            return lines.image_from_pixels(pixels, ".png", size)
        if not extension:
            extension = EXTENSION_OF_FORMAT.get(sniffed or "", DEFAULT_EXTENSION)
            path = item_id + extension
        return lines.image_from_bytes(span, path, size)
    if on_disk:
        return lines.image_from_file(on_disk, size)
    return None if size is None else lines.image_without_data(extension or DEFAULT_EXTENSION, size)


def raw_channels(length: int, size: tuple[int, int] | None) -> int:
    """How many channels bytes have that are pixels and no image file; 0 when they are not."""
    if size is None:
        return 0
    return next((n for n in (3, 1, 4) if length == size[0] * size[1] * n), 0)


class RawPixels:
    """Pixels that a shard holds without any encoding (``image/format`` is ``raw``)."""

    def __init__(self, span: ByteSpan, shape: tuple[int, int, int]) -> None:
        self.span = span
        self.shape = shape

    def __call__(self, *_: object) -> np.ndarray:
        """Return the pixels, uint8 of shape (height, width, channels), BGR as Datumaro has it."""
        pixels = np.frombuffer(self.span.read(), np.uint8).reshape(self.shape)
        return pixels[:, :, 0] if self.shape[2] == 1 else pixels[:, :, [2, 1, 0]]
