"""The encoded images of a batch: facts that are collected while the bytes are in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfod.checker.analysis.column_order import MAX_COORDINATE, ROUNDING_ERROR
from tfod.checker.analysis.decoding import Decoder
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.images.image import (
    FIRST_TRANSPOSED,
    FORMAT_OF_EXTENSION,
    Bytes,
    ImageHeader,
    sniff_format,
)
from tfod.detection.images.pillow import open_image
from tfod.kernel import hash_spans

FORMAT_TITLES = {
    "jpeg": "JPEG",
    "png": "PNG",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "webp": "WebP",
}
"""The usual spelling of the format names."""
_TOLERANCE = 0.02  # of a side; boxes often extend this far beyond the image


class EncodedImage(NamedTuple):
    """An encoded image of a record.

    Attributes:
        looks: probable content of bytes without an image header; may be empty.
        sha256: digest of the bytes, if the record has one to compare with; else empty.
        failure: decoding error; empty if the image was decoded, None if this was not tried.
        brightest: largest value of a decoded 16-bit PNG; 0 for other images.
    """

    length: int
    looks: str
    sha256: str
    failure: str | None
    brightest: int = 0


class EncodedImages(NamedTuple):
    """The images of a batch, and the header (or None) and hash (or 0) of each record."""

    by_row: Mapping[int, EncodedImage]
    headers: Sequence[ImageHeader | None]
    hashes: np.ndarray

    @classmethod
    def of(cls, detections: Detections, decoder: Decoder) -> EncodedImages:
        """Examine the images of a batch that still has its bytes."""
        encoded, buffer = detections.encoded, detections.examples.buffer
        spans = np.stack((encoded[:, 0], encoded[:, 1] - encoded[:, 0]), axis=1)
        rows = np.flatnonzero(spans[:, 1] > 0)
        hashes = np.zeros(len(detections), np.uint64)
        hashes[rows] = hash_spans(buffer, spans[rows])
        failures = decoder.failures(detections, rows.tolist())
        by_row: dict[int, EncodedImage] = {}
        for row, (start, end) in zip(rows.tolist(), encoded[rows].tolist(), strict=True):
            header, failure, sha256 = detections.headers[row], failures.get(row), ""
            looks = looks_like(buffer, start, end) if header is None else ""
            if detections.sha256s[row]:
                import hashlib  # loads OpenSSL, and few records have a digest

                sha256 = hashlib.sha256(memoryview(buffer)[start:end]).hexdigest()
            is_deep = failure == "" and header and (header.format, header.bits) == ("png", 16)
            brightest = _brightest(memoryview(buffer)[start:end]) if is_deep else 0
            by_row[row] = EncodedImage(end - start, looks, sha256, failure, brightest)
        return cls(by_row, detections.headers, hashes)

    @classmethod
    def joined(cls, parts: Sequence[EncodedImages]) -> EncodedImages:
        """Join the images of consecutive batches."""
        if len(parts) == 1:
            return parts[0]
        by_row: dict[int, EncodedImage] = {}
        headers: list[ImageHeader | None] = []
        for part in parts:
            by_row |= {len(headers) + row: image for row, image in part.by_row.items()}
            headers += part.headers
        return cls(by_row, headers, np.concatenate([part.hashes for part in parts]))


class ImageFacts(NamedTuple):
    """The image of a record and its declared properties. Equal facts are checked only once.

    Attributes:
        size: number of encoded bytes if there is no image header, else -1.
        header: header of the image, or None.
        looks_like: probable content of bytes without a header.
        declared_format, declared_height, declared_width: values in the record, sizes in pixels.
        boxes_need_rotation: result of :func:`needs_rotation`.
        boxes_extend_far: result of :func:`extend_far`, if the declared size is wrong.
    """

    size: int
    header: ImageHeader | None = None
    looks_like: str = ""
    declared_format: str | None = None
    declared_height: int | None = None
    declared_width: int | None = None
    boxes_need_rotation: bool = False
    boxes_extend_far: bool = False

    @property
    def is_declared_raw(self) -> bool:
        """Whether the record declares that the encoded bytes are pixels."""
        return self.header is not None and self.declared_format in ("raw", "RAW")

    @property
    def has_wrong_format(self) -> bool:
        """Whether the declared format differs from the format of the bytes."""
        if self.header is None or not self.declared_format or self.is_declared_raw:
            return False
        name = self.declared_format.strip().lower().removeprefix("image/").removeprefix(".")
        return FORMAT_OF_EXTENSION.get(f".{name}", name) != self.header.format

    @property
    def wrong_size_keys(self) -> Sequence[str]:
        """The keys of the height and width if the declared value differs from the image."""
        header = self.header
        wrong_keys: list[str] = []
        if header is not None and header.height and header.width:
            sides = (
                (keys.HEIGHT, self.declared_height, header.height),
                (keys.WIDTH, self.declared_width, header.width),
            )
            wrong_keys = [
                key
                for key, declared, actual in sides
                if declared and declared > 0 and declared != actual
            ]
        return wrong_keys

    @property
    def is_swapped(self) -> bool:
        """Whether the declared height is the width of the image, and vice versa."""
        declared, header = (self.declared_height, self.declared_width), self.header
        return header is not None and declared == (header.width, header.height)

    @property
    def is_size_repairable(self) -> bool:
        """Whether the size of the image is certain to be what the record should declare.

        A size that EXIF swaps, or by which far boxes may have been normalized, is not.
        """
        header = self.header
        if header is None or self.boxes_extend_far:
            return False
        return not (self.is_swapped and header.orientation >= FIRST_TRANSPOSED)

    @property
    def invalid_sizes(self) -> Mapping[str, int]:
        """The declared height and width that are 0 or negative, by key."""
        declared = {keys.HEIGHT: self.declared_height, keys.WIDTH: self.declared_width}
        return {key: side for key, side in declared.items() if side is not None and side <= 0}


def needs_rotation(corners: np.ndarray, header: ImageHeader) -> bool:
    """Return whether boxes extend beyond the stored image, but all fit it rotated by 90 degrees.

    ``corners`` are ``xmin, ymin, xmax, ymax`` of all boxes, float64 of shape (n, 4).
    """
    furthest = corners[:, 2:].max(axis=0, initial=0)
    if not corners.min(initial=0) >= -_TOLERANCE or not furthest.max() > 1 + _TOLERANCE:
        return False
    stored = np.array([header.width, header.height], np.float64)
    return bool((furthest * stored <= stored[::-1] * (1 + _TOLERANCE)).all())


def extend_far(corners: np.ndarray) -> bool:
    """Return whether a box extends far beyond the image, as if normalized by another size."""
    outside = np.maximum(corners - 1, -corners)
    return bool((outside > MAX_COORDINATE - 1 + ROUNDING_ERROR).any())


# Content of bytes without an image header

_HEAD_BYTES = 512
_LOOKS = (
    (rb"....ftyp(avif|avis)", "an AVIF image"),
    (rb"....ftyp(heic|heix|hevc|mif1|msf1)", "a HEIC image"),
    (rb"....ftyp", "a video"),
    (rb"\xff\x0a|\0\0\0\x0cJXL ", "a JPEG XL image"),
    (rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51", "a JPEG 2000 image"),
    (rb"(II\x2b\0|MM\0\x2b)", "a BigTIFF image"),
    (rb"8BPS", "a Photoshop image"),
    (rb"P[1-6]\s", "a PNM image"),
    (rb"\x93NUMPY", "a NumPy array"),
    (rb"\x80[\x02-\x05]", "a Python pickle"),
    (
        rb"\xc3\xbf\xc3\x98|\xc2\x89PNG|\xef\xbf\xbd(PNG|\xef\xbf\xbd\xef\xbf\xbd)",
        "text that was an image",
    ),
    (rb"b(['\"])(\\xff\\xd8|\\x89PNG)", "the text that Python prints for bytes"),
    (rb"data:image/", "a data URL"),
    (rb"(/9j/|iVBORw0KGgo|R0lGOD|UklGR)[\w+/=\s-]*\Z", "an image in base64"),
    (rb"https?://", "a URL"),
    (rb"PK\x03\x04", "a zip archive"),
    (rb"\x1f\x8b", "gzip"),
    (rb"%PDF", "a PDF"),
    (rb"Rar!", "a RAR archive"),
    (rb"7z\xbc\xaf", "a 7-Zip archive"),
    (rb"version https://git-lfs", "a Git LFS pointer"),
    (rb"\s*(<\?xml[^>]*>\s*)?<svg", "an SVG drawing"),
    (rb"\s*<(!doctype html|html|head|body)", "HTML"),
    (rb"\s*<\?xml", "XML"),
    (rb"\s*[\[{]", "JSON"),
    (rb"[^\r\n\0]{1,400}\.(jpe?g|png|gif|bmp|tiff?|webp)\Z", "a path"),
)
_TEXT = re.compile(rb"[\t\n\r -~]+")


def looks_like(buffer: Bytes, start: int, end: int) -> str:
    """Return the probable content of bytes without an image header: ``HTML``, ``all zeros``, ""."""
    head = bytes(buffer[start : min(end, start + _HEAD_BYTES)])
    if not head:
        return ""
    image_format = sniff_format(head)
    if image_format:
        return f"a {FORMAT_TITLES[image_format]} with a damaged header"
    if buffer.count(head[0], start, end) == end - start:
        return "all zeros" if head[0] == 0 else f"{end - start} times the byte {head[0]}"
    for pattern, look in _LOOKS:
        if re.match(pattern, head, re.DOTALL | re.IGNORECASE):
            return look
    return "text" if _TEXT.fullmatch(head) else ""


def _brightest(data: memoryview) -> int:
    """Return the largest value of a 16-bit PNG, except for its alpha channel."""
    with open_image(data, ["PNG"]) as image:
        highest = np.reshape(image.getextrema(), (-1, 2))[:, 1]
        if image.mode.startswith("I"):
            return int(highest[0])
        # For colors, and for gray with alpha, Pillow keeps only the high byte.
        return int(highest[: 1 if image.mode == "LA" else 3].max()) << 8 | 0xFF
