"""The picture of a record for Datumaro: its size, and its media, left where the bytes are."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tfod.datumaro import lines
from tfod.detection.detection import Detection
from tfod.detection.picture import (
    DEFAULT_EXTENSION,
    EXTENSION_OF_FORMAT,
    picture_size,
    read_picture_header,
    sniff_format,
)
from tfod.example.example import Example
from tfod.tfrecord.naming import split_extension
from tfod.tfrecord.shard_file import ByteSpan, ShardIdentity

_HEADER_BYTES = 1 << 15
Buffer: TypeAlias = "bytes | memoryview"


def record_size(
    detection: Detection, example: Example, on_disk: str | None
) -> tuple[int, int] | None:
    """Height and width: as the record says, or else as the picture's header says."""
    height, width = detection.height or 0, detection.width or 0
    if height > 0 and width > 0:
        return height, width
    data = bytes(detection.encoded or b"")
    if not data and on_disk:
        with open(on_disk, "rb") as file:
            data = file.read()
    size = picture_size(data) if data else None
    if size is None and len(detection.boxes):
        raise example.error(
            "the picture's size is not known (no image/height and image/width, and no picture "
            "to take it from), so its boxes cannot be scaled",
            remedy="write the size into the record",
        )
    return size


def record_media(
    detection: Detection,
    path: str,
    item_id: str,
    size: tuple[int, int] | None,
    shard: ShardIdentity,
    on_disk: str | None,
) -> Any:
    """The picture: in the shard, on disk beside it, or only its size."""
    extension = split_extension(path)[1]
    if detection.encoded is not None and len(detection.encoded):
        head = bytes(detection.encoded[:16])
        sniffed = sniff_format(head)
        span = ByteSpan(shard, detection.encoded_offset, len(detection.encoded))
        channels = _raw_channels(span.length, size) if sniffed is None else 0
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


def holds_image(encoded: Buffer, size: tuple[int, int] | None) -> bool:
    """Whether bytes are an image by their header, or pixels of this size without any encoding.

    Whoever uses the item's image later fails otherwise, far from here.
    """
    head = bytes(encoded[:_HEADER_BYTES])
    if read_picture_header(head, 0, len(head)) is not None:
        return True
    # Long EXIF or colour profiles push the size behind the first bytes.
    if len(encoded) > len(head) and sniff_format(head[:16]) is not None:
        whole = bytes(encoded)
        return read_picture_header(whole, 0, len(whole)) is not None
    return bool(_raw_channels(len(encoded), size))


def _raw_channels(length: int, size: tuple[int, int] | None) -> int:
    """How many channels bytes have that are pixels and no picture file; 0 when they are not."""
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
