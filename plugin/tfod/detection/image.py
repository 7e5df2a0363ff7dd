"""What an image's own bytes say: its format and its size."""

from __future__ import annotations

from tfod.detection.image_header import (
    LEAST_BYTES,
    Bytes,
    ImageHeader,
    bmp_header,
    gif_header,
    jpeg_header,
    png_header,
    tiff_header,
    webp_header,
)

__all__ = [
    "DEFAULT_EXTENSION",
    "EXTENSION_OF_FORMAT",
    "FORMAT_OF_EXTENSION",
    "ImageHeader",
    "image_size",
    "read_image_header",
    "sniff_format",
]

_SIGNATURES = (
    (b"\xff\xd8\xff", "jpeg", jpeg_header),
    (b"\x89PNG\r\n\x1a\n", "png", png_header),
    (b"GIF8", "gif", gif_header),
    (b"BM", "bmp", bmp_header),
    (b"II*\0", "tiff", tiff_header),
    (b"MM\0*", "tiff", tiff_header),
    (b"RIFF", "webp", webp_header),
)
# No two signatures begin with the same byte.
_BY_FIRST_BYTE = {signature[0]: (signature, read) for signature, _, read in _SIGNATURES}

DEFAULT_EXTENSION = ".jpg"
"""Of an image that says nothing."""

EXTENSION_OF_FORMAT = {
    "jpeg": ".jpg",
    "png": ".png",
    "gif": ".gif",
    "bmp": ".bmp",
    "tiff": ".tif",
    "webp": ".webp",
}
FORMAT_OF_EXTENSION = {
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".jpe": "jpeg",
    ".png": "png",
    ".gif": "gif",
    ".bmp": "bmp",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".webp": "webp",
}


def sniff_format(head: bytes) -> str | None:
    """The format of an encoded image by its first 16 bytes, as ``image/format`` spells it."""
    for signature, name, _ in _SIGNATURES:
        if head.startswith(signature):
            return name if name != "webp" or head[8:12] == b"WEBP" else None
    return None


def read_image_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """The header of the image in ``buffer[start:end]``; None when there is none we can read.

    Copies nothing, needs no decoder, and raises nothing, whatever the bytes are.
    """
    if end - start < LEAST_BYTES:
        return None
    kind = _BY_FIRST_BYTE.get(buffer[start])
    if kind is None or not buffer.startswith(kind[0], start):
        return None
    return kind[1](buffer, start, end)


def image_size(data: bytes) -> tuple[int, int] | None:
    """Height and width in pixels from an image's header; None when it has none we can read.

    EXIF orientation is not applied, as TensorFlow and OpenCV's plain decoding do not apply it
    either.
    """
    header = read_image_header(data, 0, len(data))
    if header is None or not header.height or not header.width:
        return None
    return header.height, header.width
