"""What an image's own bytes say: its format, its size and its EXIF orientation.

Source of the orientation: CIPA DC-008, tag 0x0112.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tfod.detection.detection import Keypoints
from tfod.detection.images.image_header import (
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
from tfod.tfrecord.image_names import split_extension

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


UPRIGHT = 1
"""The orientation of an image that is shown as it is stored."""
QUARTER = 5
"""From this orientation on height and width are exchanged."""


def boxes_turned_back(boxes: np.ndarray, orientation: int) -> np.ndarray:
    """Normalized boxes, ``xmin, ymin, xmax, ymax`` of each, of shape (n, 4)."""
    points = turned_back(boxes.reshape(-1, 2, 2), orientation)
    found: np.ndarray = np.concatenate((points.min(axis=1), points.max(axis=1)), axis=1)
    return found


def keypoints_turned_back(keypoints: Keypoints | None, orientation: int) -> Keypoints | None:
    """Keypoints; unlabelled ones stay 0, 0."""
    if keypoints is None:
        return None
    labelled = (keypoints.visibility > 0)[..., None] | keypoints.xy.any(axis=-1, keepdims=True)
    xy = np.where(labelled, turned_back(keypoints.xy, orientation), keypoints.xy)
    return replace(keypoints, xy=xy.astype(np.float32))


def turned_back(points: np.ndarray, orientation: int) -> np.ndarray:
    """Normalized points of an image as EXIF shows it, as points of its stored pixels.

    The last axis is x, y.
    """
    if orientation >= QUARTER:
        points, orientation = points[..., ::-1], _TRANSPOSED[orientation]
    rows, columns = _FLIPPED.get(orientation, (1, 1))
    x, y = points[..., 0], points[..., 1]
    return np.stack((x if columns > 0 else 1 - x, y if rows > 0 else 1 - y), axis=-1)


def mask_turned_back(mask: np.ndarray, orientation: int) -> np.ndarray:
    """A mask of an image as EXIF shows it, as one of its stored pixels, rows first."""
    if orientation >= QUARTER:
        mask, orientation = mask.T, _TRANSPOSED[orientation]
    rows, columns = _FLIPPED.get(orientation, (1, 1))
    return mask[::rows, ::columns]


_TRANSPOSED = {5: 1, 6: 4, 7: 3, 8: 2}  # what is left to do when rows and columns are exchanged
_FLIPPED = {2: (1, -1), 3: (-1, -1), 4: (-1, 1)}


def format_name(encoded: bytes | None, filename: str) -> str:
    """``image/format``: what the bytes are; by the name where they do not say; '' without any."""
    if not encoded:
        return ""
    extension = split_extension(filename)[1].lower()
    return sniff_format(encoded[:16]) or FORMAT_OF_EXTENSION.get(extension, "")
