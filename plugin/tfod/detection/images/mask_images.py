"""Masks: outlines as pixels, pixels as PNG images without an image library, and COCO's outlines.

A pixel belongs to a shape when its centre does.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfod.detection.box_geometry import PixelBox
from tfod.detection.images.image import image_size
from tfod.errors import TfodError, how_to_install


def fill_polygon(points: Sequence[float], size: tuple[int, int]) -> np.ndarray:
    """The pixels inside a polygon, which may cross itself (even-odd): bool of shape ``size``.

    So a box from 10 to 20 is the pixels 10 to 19. A polygon so thin that no pixel's centre is in
    it is the one pixel nearest to its middle, as far as that is in the image.

    Args:
        points: x, y, x, y, … in pixels; at least one pair.
        size: height and width of the image.
    """
    height, width = size
    mask = np.zeros((height, width), bool)
    corners = np.asarray(points, np.float64).reshape(-1, 2)
    x0, y0 = corners[:, 0], corners[:, 1]
    x1, y1 = np.roll(x0, -1), np.roll(y0, -1)
    first = max(0, math.ceil(y0.min() - 0.5))
    last = min(height, math.ceil(y0.max() - 0.5))
    for row in range(first, last):
        middle = row + 0.5
        crossed = (y0 <= middle) != (y1 <= middle)
        above, left = y0[crossed], x0[crossed]
        crossings = left + (middle - above) * (x1[crossed] - left) / (y1[crossed] - above)
        edges = np.clip(np.ceil(np.sort(crossings) - 0.5), 0, width).astype(int).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            mask[row, start:end] = True
    if not mask.any():
        column, row = (int(value) for value in np.floor(corners.mean(axis=0)))
        if 0 <= row < height and 0 <= column < width:
            mask[row, column] = True
    return mask


def fill_box(corners: PixelBox, size: tuple[int, int]) -> np.ndarray:
    """The pixels inside a box that is not turned, as :func:`fill_polygon` finds them."""
    mask = np.zeros(size, bool)
    left, top, right, bottom = corners
    first_column, first_row, last_column, last_row = (
        max(0, math.ceil(value - 0.5)) for value in corners
    )
    mask[first_row:last_row, first_column:last_column] = True
    if mask.any():
        return mask
    return fill_polygon([left, top, right, top, right, bottom, left, bottom], size)


def ellipse_outline(
    cx: float, cy: float, rx: float, ry: float, degrees: float = 0.0
) -> list[float]:
    """The outline of an ellipse as x, y, x, y, …; off by less than a pixel up to 2,000 pixels.

    ``rx`` and ``ry`` are half its width and height before it is turned about ``cx``, ``cy``,
    clockwise as images have y down.
    """
    turn = np.linspace(0.0, 2 * np.pi, 128, endpoint=False)
    return turned(rx * np.cos(turn), ry * np.sin(turn), (cx, cy), degrees)


def box_outline(corners: tuple[float, float, float, float], degrees: float = 0.0) -> list[float]:
    """The four corners of a box that is turned about its centre, as x, y, x, y, …"""
    left, top, right, bottom = corners
    half_width, half_height = (right - left) / 2, (bottom - top) / 2
    xs = np.array((-half_width, half_width, half_width, -half_width))
    ys = np.array((-half_height, -half_height, half_height, half_height))
    return turned(xs, ys, (left + half_width, top + half_height), degrees)


def turned(
    xs: np.ndarray, ys: np.ndarray, centre: tuple[float, float], degrees: float
) -> list[float]:
    """Points about a centre, turned about it, as x, y, x, y, …"""
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    points = np.stack(
        (centre[0] + xs * cosine - ys * sine, centre[1] + xs * sine + ys * cosine), axis=1
    )
    flat: list[float] = points.reshape(-1).tolist()
    return flat


def run_lengths(flat: np.ndarray) -> list[int]:
    """How many pixels are outside, inside, outside, …; the first may be 0."""
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate(([0], changes, [len(flat)]))
    lengths: list[int] = np.diff(edges).tolist()
    return [0, *lengths] if flat[0] else lengths


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER_BYTES = len(_SIGNATURE) + 16  # as far as width and height: length and kind of IHDR, both
_ENOUGH = _HEADER_BYTES + 9  # the rest of IHDR
_EIGHT_BITS_GRAY = (8, 0, 0, 0, 0)  # bits, colour type, compression, filter, interlace
_NO_FILTER = 0
_MOST_PIXELS = 1 << 28
_WITHOUT_PALETTE_OR_OPACITY = {"P": "RGB", "PA": "RGB", "LA": "L"}


def encode_mask_png(mask: np.ndarray, *, is_box: bool = False) -> bytes:
    """A mask as a PNG of one channel, 1 where the object is, as create_coco_tf_record.py has it.

    Args:
        mask: bool or uint8 of shape (height, width); what is not 0 is the object.
        is_box: note that the object has no other mask than its box (:func:`is_box_png`): the OD API
            wants a mask for each object, or for none.
    """
    return encode_gray_png(mask != 0, is_box=is_box)


def encode_gray_png(pixels: np.ndarray, *, is_box: bool = False) -> bytes:
    """Numbers as a PNG of one channel of eight bits. Source: W3C's PNG specification.

    Args:
        pixels: bool or uint8 of shape (height, width).
        is_box: as :func:`encode_mask_png` has it.
    """
    height, width = pixels.shape
    rows = np.full((height, width + 1), _NO_FILTER, np.uint8)
    rows[:, 1:] = pixels
    return (
        _SIGNATURE
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *_EIGHT_BITS_GRAY))
        + _chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + (_BOX_NOTE if is_box else b"")
        + _chunk(b"IEND", b"")
    )


def decode_mask_png(data: bytes | memoryview, formats: Sequence[str] = ("PNG",)) -> np.ndarray:
    """The mask in a PNG, or an image of other formats, bool of shape (height, width).

    Raises as :func:`decode_pixels`.
    """
    pixels = decode_pixels(data, formats)
    # TensorFlow decodes one channel; a fourth one would be opacity.
    drawn = pixels[:, :, :3].any(axis=2) if pixels.ndim == 3 else pixels > 0
    return np.asarray(drawn)


def decode_pixels(data: bytes | memoryview, formats: Sequence[str] = ("PNG",)) -> np.ndarray:
    """The pixels of a PNG, or an image of other formats, of shape (height, width[, channels]).

    Needs Pillow.

    Raises:
        ValueError: the bytes are no PNG image, or one of too many pixels; with the reason.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=list(formats)) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise ValueError(f"{image.width}x{image.height} pixels are too many")
            plain = _WITHOUT_PALETTE_OR_OPACITY.get(image.mode)
            return np.asarray(image.convert(plain) if plain else image)
    except Exception as error:  # whatever Pillow raises for what is no image
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def png_sizes(buffer: bytes | bytearray, spans: np.ndarray) -> np.ndarray:
    """Height and width of PNGs by their headers, int64 of shape (n, 2); 0 where there is no PNG.

    ``spans`` are start and length of each in the buffer, int64 of shape (n, 2).
    """
    found = np.zeros((len(spans), 2), np.int64)
    long = np.flatnonzero(spans[:, 1] >= _HEADER_BYTES)
    heads = np.frombuffer(buffer, np.uint8)[spans[long, :1] + np.arange(_HEADER_BYTES)]
    is_png = (heads[:, : len(_SIGNATURE)] == np.frombuffer(_SIGNATURE, np.uint8)).all(axis=1)
    sides = heads[is_png, _HEADER_BYTES - 8 :].copy().view(">u4")
    found[long[is_png]] = sides[:, ::-1]
    return found


def png_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """Height and width of one PNG by its header; None where there is none."""
    return image_size(bytes(data[:_ENOUGH]))


def is_box_png(data: bytes | memoryview) -> bool:
    """Whether a mask stands for an object that has only a box, as our exports note it."""
    return bytes(data[-_FROM_END:-_END_BYTES]) == _BOX_NOTE


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


_BOX_NOTE = _chunk(b"tEXt", b"Comment\0tfod: a box")  # a text that readers of images pass over
_END_BYTES = len(_chunk(b"IEND", b""))
_FROM_END = len(_BOX_NOTE) + _END_BYTES


# COCO's outlines, which pycocotools alone draws as everybody expects: polygons at five times the
# size, rounded in its own way. By pixels' centres, as above, they differ along the edge.

_LEAST_NUMBERS = 6  # of a polygon: three corners; pycocotools takes four numbers for a box
_FURTHEST = 8  # sides of the image: pycocotools walks along edges, and far ones overflow in it


def draw_segmentation(segmentation: Any, size: tuple[int, int], where: str) -> np.ndarray | None:
    """The pixels of a ``segmentation``: polygons, or runs, compressed or not.

    Args:
        segmentation: as in the JSON; polygons may be arrays.
        size: height and width of the image.
        where: for errors.

    Returns:
        uint8, 1 where the object is, of the shape of the image, or of runs their own; None where
        there is no outline.

    Raises:
        TfodError: it is none, or pycocotools is not installed.
    """
    if not segmentation:
        return None
    mask = _pycocotools()
    if size[0] * size[1] > _MOST_PIXELS:
        raise TfodError(f"{where}: a mask of {size[1]}x{size[0]} pixels is too large")
    try:
        if isinstance(segmentation, dict):
            runs = _runs(segmentation)
            is_packed = isinstance(runs["counts"], bytes)
            drawn = mask.decode([runs] if is_packed else mask.frPyObjects([runs], *runs["size"]))
        else:
            if not isinstance(segmentation, list):
                raise ValueError("it is neither polygons nor runs")
            polygons = [_polygon(one, max(size) * _FURTHEST) for one in segmentation]
            drawn = mask.decode(mask.frPyObjects(polygons, *size))
    except ValueError as error:
        raise TfodError(f"{where}: invalid segmentation ({error}); correct it") from None
    return np.asarray(drawn.max(axis=2))


def _runs(segmentation: dict[str, Any]) -> dict[str, Any]:
    """Runs that fill their size: pycocotools writes where they say, however far that is."""
    counts, own = segmentation.get("counts"), segmentation.get("size")
    is_size = isinstance(own, list) and len(own) == 2 and all(type(one) is int for one in own)
    if own is None or not is_size or min(own) < 1 or own[0] * own[1] > _MOST_PIXELS:
        raise ValueError(f"its size is {own!r:.60}, expected height and width")
    if isinstance(counts, list) and all(type(count) is int for count in counts):
        lengths = counts
    elif isinstance(counts, (str, bytes)) and counts.isascii():
        counts = counts.encode("ascii") if isinstance(counts, str) else counts
        lengths = decode_counts(counts)
    else:
        raise ValueError(f"its counts are {counts!r:.60}, expected whole numbers or a text")
    if min(lengths, default=0) < 0 or sum(lengths) != own[0] * own[1]:
        raise ValueError("its runs are not as many pixels as its size has")
    return {"size": own, "counts": counts}


def decode_counts(counts: bytes) -> list[int]:
    """Lengths of runs from COCO's compressed text.

    Six bits a character, least significant first, of which one says that more follow; from the
    fourth run on the difference to the run before the last. Source: cocoapi's maskApi.c.

    Raises:
        ValueError: the text is cut off.
    """
    lengths: list[int] = []
    value = shift = 0
    more = False
    for character in counts:
        bits = character - 48
        if not 0 <= bits < 64:
            raise ValueError("counts is not in COCO's compressed form")
        value |= (bits & 31) << shift
        shift += 5
        more = bool(bits & 32)
        if more:
            continue
        if bits & 16:
            value -= 1 << shift
        lengths.append(value + lengths[-2] if len(lengths) > 2 else value)
        value = shift = 0
    if more:
        raise ValueError("counts is cut off")
    return lengths


def _polygon(points: Sequence[float], furthest: int) -> list[float]:
    try:
        numbers = [float(value) for value in points]
    except (TypeError, ValueError, OverflowError):
        raise ValueError("a polygon is three or more pairs of finite numbers") from None
    if len(numbers) < _LEAST_NUMBERS or len(numbers) % 2 or not np.isfinite(numbers).all():
        raise ValueError("a polygon is three or more pairs of finite numbers")
    if max(map(abs, numbers)) > furthest:
        raise ValueError("a polygon goes far beyond the image")
    return numbers


def _pycocotools() -> Any:
    try:
        from pycocotools import mask
    except ImportError:
        raise TfodError(f"COCO's masks need pycocotools; {how_to_install('coco')}") from None
    return mask
