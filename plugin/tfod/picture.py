"""What a picture's own bytes say: its format and its size."""

from __future__ import annotations

import io

_SIGNATURES = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
)

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
    """The format of an encoded picture by its first 16 bytes, as ``image/format`` spells it."""
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    return None


def picture_size(data: bytes) -> tuple[int, int] | None:
    """Height and width in pixels from a picture's header; None when it has none we can read.

    Reads no pixels. EXIF orientation is not applied, as TensorFlow and OpenCV's plain decoding
    do not apply it either. Needs Pillow, which Datumaro and CVAT both bring.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return height, width
