"""The encoded images of a batch: what can be said of them only while their bytes are in memory."""

from __future__ import annotations

import functools
import importlib.util
import io
import math
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from tfod.checker.finding import Levels
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.images.image import FORMAT_OF_EXTENSION, Bytes, ImageHeader, sniff_format
from tfod.errors import TfodError, how_to_install
from tfod.kernel import hash_spans

MOST_DECODED = 200
"""So many images of each shard are decoded unless another number is asked for: a second for images
of a megapixel. To decode takes ten times as long as all else."""
FORMAT_TITLES = {
    "jpeg": "JPEG",
    "png": "PNG",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "webp": "WebP",
}
"""The names of the formats as people write them."""
_PIXELS_OF_A_BYTE = 256
_SMALL = 1 << 18
_SLOPPY = 0.02  # of a side: so far boxes reach outside by carelessness


def read_most_decoded(text: str) -> int | None:
    """What ``all``, ``none`` or a number means: so many images of each shard, None for all.

    Raises:
        ValueError: it is something else.
    """
    if text in ("all", "none"):
        return None if text == "all" else 0
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not all, none or a whole number")
    return int(text)


def why_not_all_decoded(most: int | None, levels: Levels) -> str:
    """Why a check with these levels does not decode all images."""
    if most == 0:
        return "not asked for"
    if not can_decode():
        return "Pillow is not installed: pip install Pillow"
    if levels["IMG003"] is None:
        return "IMG003 is off"
    if most is not None:
        return f"the first {most:,} of each shard; choose to decode all for every one"
    return "the others are not images"


class Decoder:
    """Decodes the first images of a shard, in threads: Pillow lets others work meanwhile.

    Args:
        most: so many of them; None for all. Unless all are asked for, images are passed over that
            have many more pixels than bytes: one may take a second for each kilobyte.
        threads: how many at a time; None for as many as there are cores.
    """

    def __init__(self, most: int | None, threads: int | None = None) -> None:
        self._every = most is None
        self._left = (math.inf if most is None else most) if can_decode() else 0
        self._threads = threads or os.cpu_count() or 1

    def failures(self, found: Detections, rows: Sequence[int]) -> dict[int, str]:
        """Of the first of these records why their images do not decode; empty for those that do."""
        chosen: list[int] = []
        spans: list[memoryview] = []
        for row in rows:
            if self._left < 1:
                break
            header, (start, end) = found.headers[row], found.encoded[row].tolist()
            cheap = max(_SMALL, (end - start) * _PIXELS_OF_A_BYTE)
            if header and (self._every or header.height * header.width <= cheap):
                chosen.append(row)
                spans.append(memoryview(found.examples.buffer)[start:end])
                self._left -= 1
        if not spans:
            return {}
        with strict_pillow():
            if min(len(spans), self._threads) < 2:
                return dict(zip(chosen, map(why_not_decoded, spans), strict=True))
            from concurrent.futures import ThreadPoolExecutor  # for images alone

            with ThreadPoolExecutor(self._threads) as pool:
                return dict(zip(chosen, pool.map(why_not_decoded, spans), strict=True))


class EncodedImage(NamedTuple):
    """An image that a record has.

    Attributes:
        length: bytes.
        looks: what bytes without a header look like; may be empty.
        sha256: its digest, where the record has one to be compared with.
        failure: why it could not be decoded; empty where it could, None where it was not tried.
        brightest: the largest value of a decoded PNG of 16 bits; 0 for other images.
    """

    length: int
    looks: str
    sha256: str
    failure: str | None
    brightest: int = 0


class EncodedImages(NamedTuple):
    """The images of a batch of records.

    Attributes:
        by_row: of the records that have one.
        headers: of every record, None where there is none.
        hashes: of every record, 0 where there is no image; uint64 of shape (records,).
    """

    by_row: Mapping[int, EncodedImage]
    headers: Sequence[ImageHeader | None]
    hashes: np.ndarray

    @classmethod
    def of(cls, found: Detections, decoder: Decoder) -> EncodedImages:
        """Those of a batch that has its bytes."""
        spans = np.stack((found.encoded[:, 0], found.encoded[:, 1] - found.encoded[:, 0]), axis=1)
        rows = np.flatnonzero(spans[:, 1] > 0)
        hashes = np.zeros(len(found), np.uint64)
        hashes[rows] = hash_spans(found.examples.buffer, spans[rows])
        failures = decoder.failures(found, rows.tolist())
        by_row: dict[int, EncodedImage] = {}
        for row, (start, end) in zip(rows.tolist(), found.encoded[rows].tolist(), strict=True):
            buffer, sha256 = found.examples.buffer, ""
            looks = looks_like(buffer, start, end) if found.headers[row] is None else ""
            if found.sha256s[row]:
                import hashlib  # loads OpenSSL, and few records have a digest

                sha256 = hashlib.sha256(memoryview(buffer)[start:end]).hexdigest()
            header, failure = found.headers[row], failures.get(row)
            is_deep = failure == "" and header and (header.format, header.bits) == ("png", 16)
            brightest = _brightest(memoryview(buffer)[start:end]) if is_deep else 0
            by_row[row] = EncodedImage(end - start, looks, sha256, failure, brightest)
        return cls(by_row, found.headers, hashes)

    @classmethod
    def joined(cls, parts: Sequence[EncodedImages]) -> EncodedImages:
        """Those of batches that follow each other."""
        if len(parts) == 1:
            return parts[0]
        by_row: dict[int, EncodedImage] = {}
        headers: list[ImageHeader | None] = []
        for part in parts:
            by_row |= {len(headers) + row: one for row, one in part.by_row.items()}
            headers += part.headers
        return cls(by_row, headers, np.concatenate([part.hashes for part in parts]))


class ImageFacts(NamedTuple):
    """What a record has for an image and says about it; equal facts are checked once.

    ``header`` is what the image's own header says, and where there is none ``size`` is the number
    of the encoded bytes and ``looks_like`` what they resemble; beside a header it is -1. The others
    are what the record says, sizes in pixels. ``boxes_need_a_turn``: see :func:`needs_a_turn`.
    """

    size: int
    header: ImageHeader | None = None
    looks_like: str = ""
    declared_format: str | None = None
    declared_height: int | None = None
    declared_width: int | None = None
    boxes_need_a_turn: bool = False

    @property
    def says_raw(self) -> bool:
        """Whether encoded bytes are said to be pixels."""
        return self.header is not None and self.declared_format in ("raw", "RAW")

    @property
    def says_another_format(self) -> bool:
        """Whether the bytes are of one format, and the record says another."""
        if self.header is None or not self.declared_format or self.says_raw:
            return False
        name = self.declared_format.strip().lower().removeprefix("image/").removeprefix(".")
        return FORMAT_OF_EXTENSION.get(f".{name}", name) != self.header.format

    @property
    def other_sides(self) -> Sequence[str]:
        """The keys of the height and width that the record says, and that are not the image's."""
        header = self.header
        found: list[str] = []
        if header is not None and header.height and header.width:
            sides = (
                (keys.HEIGHT, self.declared_height, header.height),
                (keys.WIDTH, self.declared_width, header.width),
            )
            found = [key for key, said, own in sides if said and said > 0 and said != own]
        return found

    @property
    def no_sides(self) -> Mapping[str, int]:
        """What the record says for a height or width that can be none, by its key."""
        said = {keys.HEIGHT: self.declared_height, keys.WIDTH: self.declared_width}
        return {key: one for key, one in said.items() if one is not None and one <= 0}


def needs_a_turn(corners: np.ndarray, header: ImageHeader) -> bool:
    """Whether boxes reach outside the image as it is stored, and all fit it turned by a quarter.

    ``corners`` are ``xmin, ymin, xmax, ymax`` of all boxes, float64 of shape (n, 4).
    """
    furthest = corners[:, 2:].max(axis=0, initial=0)
    if not corners.min(initial=0) >= -_SLOPPY or not furthest.max() > 1 + _SLOPPY:
        return False
    stored = np.array([header.width, header.height], np.float64)
    return bool((furthest * stored <= stored[::-1] * (1 + _SLOPPY)).all())


# What bytes without an image's header are

_HEAD = 512
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
    """What the bytes look like when no header was found: ``HTML``, ``all zeros``; or nothing."""
    head = bytes(buffer[start : min(end, start + _HEAD)])
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


# Decoding

PILLOW_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
"""No other decoder of Pillow is needed; some of them start programs (EPS)."""


@functools.cache  # a zip may have thousands of shards, and each asks
def can_decode() -> bool:
    """Whether Pillow is there."""
    return importlib.util.find_spec("PIL") is not None


@contextmanager
def strict_pillow() -> Iterator[None]:
    """Pillow takes no image that is cut short, and warns of none; for all threads.

    Raises:
        TfodError: Pillow is not installed.
    """
    try:
        from PIL import ImageFile
    except ImportError:
        raise TfodError(f"decoding images needs Pillow; {how_to_install('validator')}") from None
    truncated_is_fine = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = truncated_is_fine


def why_not_decoded(data: bytes | bytearray | memoryview) -> str:
    """Decode a whole image, in :func:`strict_pillow`: why that fails; empty where it does not."""
    from PIL import Image, UnidentifiedImageError

    if _is_png_damaged(data):
        return "the checksum of a chunk of the PNG is wrong"
    try:
        with Image.open(io.BytesIO(data), formats=PILLOW_FORMATS) as image:
            image.load()
    except MemoryError:
        raise  # that says nothing of the image
    except Image.DecompressionBombError:
        limit = f"{2 * (Image.MAX_IMAGE_PIXELS or 0):,}"
        return f"its header announces more than {limit} pixels, a decompression bomb"
    except UnidentifiedImageError:
        return "Pillow finds no image in it"
    except Exception as error:  # of any kind: Pillow's readers do not foresee all damage
        return " ".join(str(error).split())[:200] or type(error).__name__
    return ""


def _brightest(data: memoryview) -> int:
    """Return the largest value of a PNG of 16 bits, without opacity."""
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
        highest = np.reshape(image.getextrema(), (-1, 2))[:, 1]
        if image.mode.startswith("I"):
            return int(highest[0])
        # Of colors, and of gray with opacity, Pillow keeps the high byte.
        return int(highest[: 1 if image.mode == "LA" else 3].max()) << 8 | 0xFF


def _is_png_damaged(data: bytes | bytearray | memoryview) -> bool:
    """Whether a checksum of pixels is wrong: libpng stops at it, Pillow does not look."""
    view = memoryview(data)
    if bytes(view[:8]) != b"\x89PNG\r\n\x1a\n":
        return False
    place = 8
    while place + 12 <= len(view):
        length = int.from_bytes(view[place : place + 4], "big")
        end = place + 8 + length
        kind = bytes(view[place + 4 : place + 8])
        stored = int.from_bytes(view[end : end + 4], "big")
        if kind == b"IDAT" and stored != zlib.crc32(view[place + 4 : end]):
            return True
        if kind == b"IEND":
            break
        place = end + 4
    return False
