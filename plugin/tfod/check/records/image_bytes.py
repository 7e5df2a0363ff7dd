"""Questions to the bytes beyond the header: what else is it, and does it decode."""

from __future__ import annotations

import importlib.util
import io
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfod.check.records.tensorflow_images import FORMAT_TITLES
from tfod.detection.images.image import Bytes, sniff_format
from tfod.errors import TfodError, how_to_install

# What bytes without an image's header are

_HEAD = 512
_LOOKS = tuple(
    (re.compile(pattern, re.DOTALL | re.IGNORECASE), look)
    for pattern, look in (
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
        if pattern.match(head):
            return look
    return "text" if _TEXT.fullmatch(head) else ""


# Decoding

PILLOW_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
"""No other decoder of Pillow is needed; some of them start programs (EPS)."""


def can_decode() -> bool:
    """Whether Pillow is there."""
    return importlib.util.find_spec("PIL") is not None


@contextmanager
def strict_pillow() -> Iterator[None]:
    """Pillow takes no image that is cut short, and warns of none; for all threads.

    Raises:
        TfodError: Pillow is not installed.
    """
    _, image_file = _pillow()
    truncated_is_fine = image_file.LOAD_TRUNCATED_IMAGES
    image_file.LOAD_TRUNCATED_IMAGES = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        image_file.LOAD_TRUNCATED_IMAGES = truncated_is_fine


def why_not_decoded(data: bytes | bytearray | memoryview) -> str:
    """Decode a whole image, in :func:`strict_pillow`: why that fails; empty where it does not."""
    pil_image, _ = _pillow()
    if _is_png_damaged(data):
        return "the checksum of a chunk of the PNG is wrong"
    try:
        with pil_image.open(io.BytesIO(data), formats=PILLOW_FORMATS) as image:
            image.load()
    except MemoryError:
        raise  # that says nothing of the image
    except pil_image.DecompressionBombError:
        limit = f"{2 * pil_image.MAX_IMAGE_PIXELS:,}"
        return f"its header announces more than {limit} pixels, a decompression bomb"
    except pil_image.UnidentifiedImageError:
        return "Pillow finds no image in it"
    except Exception as error:  # of any kind: Pillow's readers do not foresee all damage
        return " ".join(str(error).split())[:200] or type(error).__name__
    return ""


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


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageFile
    except ImportError:
        raise TfodError(f"decoding images needs Pillow; {how_to_install('validator')}") from None
    return Image, ImageFile
