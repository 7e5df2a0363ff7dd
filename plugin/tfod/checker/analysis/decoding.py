"""Decoding of images with Pillow, to find damage in the middle of their bytes."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from tfod.detection.detections import Detections
from tfod.detection.images.pillow import open_image, strict_pillow

MaxDecoded: TypeAlias = int | Literal["auto"] | None
"""The number of images to decode per shard: None for all, "auto" for all images of small shards
and a sample of large ones."""
MAX_BYTES_TO_DECODE = 200_000_000
"""Total size of the shards, in bytes, up to which all images are decoded by default."""
_SAMPLE, _SAMPLE_PER_SHARD = 1000, 200
_MAX_PIXELS_PER_BYTE = 256
_SMALL_IMAGE = 1 << 18  # pixels


def parse_max_decoded(text: str) -> MaxDecoded:
    """Parse ``auto``, ``all``, ``none`` or a number; raise ValueError for other texts."""
    if text == "auto":
        return "auto"
    if text in ("all", "none"):
        return None if text == "all" else 0
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not all, none or a whole number")
    return int(text)


class Decoding(NamedTuple):
    """The images of each shard that are decoded.

    Attributes:
        limit: maximum number of images per shard; None for all.
        skips_bombs: whether images with many more pixels than bytes are skipped, because they can
            take a second per kilobyte.
    """

    limit: int | None = None
    skips_bombs: bool = True


def choose_decoding(requested: MaxDecoded, sizes: Sequence[int | None]) -> Decoding:
    """Choose the images to decode in shards of these sizes in bytes; None if a size is unknown."""
    if requested != "auto":
        return Decoding(requested, skips_bombs=requested is not None)
    if sum(math.inf if size is None else size for size in sizes) <= MAX_BYTES_TO_DECODE:
        return Decoding()
    return Decoding(max(_SAMPLE_PER_SHARD, _SAMPLE // len(sizes)))


class Decoder:
    """Decodes images of a shard, in threads, since Pillow releases the GIL.

    With a limit, the first tenth of the images to decode are the first ones of the shard, and the
    others are spread over it by offset. So all images are decoded if there are at most as many,
    unless their sizes differ a lot between the parts of the shard.

    Args:
        decoding: images to decode.
        size: length of the uncompressed shard in bytes; None if unknown, which selects the first
            images.
        threads: number of threads; None for one per core.
    """

    def __init__(self, decoding: Decoding, size: int | None, threads: int | None = None) -> None:
        self._skips_bombs = decoding.skips_bombs
        limit = math.inf if decoding.limit is None else decoding.limit
        self._limit = limit if can_decode() else 0
        self._size = size
        self._count = 0
        self._threads = threads or os.cpu_count() or 1

    def failures(self, detections: Detections, rows: Sequence[int]) -> dict[int, str]:
        """Decode images of these records, and return the error of each, or ""."""
        images: dict[int, memoryview] = {}
        offsets = detections.examples.records.offsets
        for row in rows:
            if self._count >= self._limit:
                break
            header, (start, end) = detections.headers[row], detections.encoded[row].tolist()
            max_pixels = max(_SMALL_IMAGE, (end - start) * _MAX_PIXELS_PER_BYTE)
            is_skipped = self._skips_bombs and header and header.height * header.width > max_pixels
            if header and not is_skipped and self._is_due(int(offsets[row])):
                images[row] = memoryview(detections.examples.buffer)[start:end]
                self._count += 1
        if not images:
            return {}
        with strict_pillow():
            if min(len(images), self._threads) < 2:
                return {row: find_decoding_error(image) for row, image in images.items()}
            from concurrent.futures import ThreadPoolExecutor  # only needed for images

            with ThreadPoolExecutor(self._threads) as pool:
                errors = pool.map(find_decoding_error, images.values())
                return dict(zip(images, errors, strict=True))

    def _is_due(self, offset: int) -> bool:
        """Return whether to decode the image of the record at an offset."""
        if not self._size:
            return True
        return 10 * self._count * self._size <= self._limit * (self._size + 9 * offset)


@functools.cache  # called for each shard, of which a zip may have thousands
def can_decode() -> bool:
    """Return whether Pillow is installed."""
    return importlib.util.find_spec("PIL") is not None


def find_decoding_error(data: bytes | bytearray | memoryview) -> str:
    """Decode a whole image, in :func:`strict_pillow`, and return the error, or ""."""
    from PIL import Image

    if _is_png_damaged(data):
        return "the checksum of a chunk of the PNG is wrong"
    try:
        with open_image(data) as image:
            # All bytes of a JPEG are decoded, but only to a gray image with an eighth of the width:
            # the same errors in half the time, in a browser in less than a third.
            image.draft("L", (1, 1))
            image.load()
    except MemoryError:
        raise  # not an error of the image
    except Image.DecompressionBombError:
        limit = f"{2 * (Image.MAX_IMAGE_PIXELS or 0):,}"
        return f"its header declares more than {limit} pixels, a decompression bomb"
    except Exception as error:  # Pillow raises many types for damaged images
        return " ".join(str(error).split())[:200] or type(error).__name__
    return ""


def _is_png_damaged(data: bytes | bytearray | memoryview) -> bool:
    """Return whether a checksum of pixel data is wrong: libpng checks it, Pillow does not."""
    view = memoryview(data)
    if bytes(view[:8]) != b"\x89PNG\r\n\x1a\n":
        return False
    start = 8
    while start + 12 <= len(view):
        length = int.from_bytes(view[start : start + 4], "big")
        end = start + 8 + length
        kind = bytes(view[start + 4 : start + 8])
        stored = int.from_bytes(view[end : end + 4], "big")
        if kind == b"IDAT" and stored != zlib.crc32(view[start + 4 : end]):
            return True
        if kind == b"IEND":
            break
        start = end + 4
    return False
