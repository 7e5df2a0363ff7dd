"""Masks: outlines to pixels (those whose centre is inside), pixels to PNG and back, and COCO."""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfod.detection.box_geometry import PixelBox
from tfod.detection.images.image import image_size
from tfod.detection.images.pillow import open_image
from tfod.errors import TfodError, excerpt, how_to_install


def fill_polygon(points: Sequence[float], size: tuple[int, int]) -> np.ndarray:
    """Return the pixels inside a polygon as bool of shape ``size``; it may cross itself (even-odd).

    A box from 10 to 20 fills the pixels 10 to 19. If a polygon is so thin that it contains no
    centre of a pixel, the pixel at its own centre is set, unless that is outside the image.

    Args:
        points: x, y, x, y, … in pixels; at least one pair.
        size: height and width of the image.
    """
    height, width = size
    mask = np.zeros((height, width), bool)
    corners = np.asarray(points, np.float64).reshape(-1, 2)
    x0, y0 = corners[:, 0], corners[:, 1]
    x1, y1 = np.roll(x0, -1), np.roll(y0, -1)
    # An edge crosses the centres of the rows from its first to before its last.
    firsts, lasts = (
        np.clip(np.ceil(y - 0.5), 0, height).astype(np.intp)
        for y in (np.minimum(y0, y1), np.maximum(y0, y1))
    )
    counts = lasts - firsts
    edges = np.repeat(np.arange(len(corners)), counts)
    rows = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - firsts, counts)
    y0, x0 = y0[edges], x0[edges]
    crossings = x0 + (rows + 0.5 - y0) * (x1[edges] - x0) / (y1[edges] - y0)
    order = np.lexsort((crossings, rows))
    columns = np.clip(np.ceil(crossings[order] - 0.5), 0, width).astype(np.intp).tolist()
    for row, start, end in zip(rows[order[::2]].tolist(), columns[::2], columns[1::2], strict=True):
        mask[row, start:end] = True
    if not mask.any():
        column, row = (int(value) for value in np.floor(corners.mean(axis=0)))
        if 0 <= row < height and 0 <= column < width:
            mask[row, column] = True
    return mask


def fill_box(corners: PixelBox, size: tuple[int, int]) -> np.ndarray:
    """Return the pixels inside a box that is not rotated, see :func:`fill_polygon`."""
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
    """Return an ellipse, rotated clockwise, as x, y, …, accurate to a pixel up to 2,000 pixels."""
    angles = np.linspace(0.0, 2 * np.pi, 128, endpoint=False)
    return rotate_points(rx * np.cos(angles), ry * np.sin(angles), (cx, cy), degrees)


def box_outline(corners: tuple[float, float, float, float], degrees: float = 0.0) -> list[float]:
    """Return the four corners of a box, rotated about its centre, as x, y, x, y, …"""
    left, top, right, bottom = corners
    half_width, half_height = (right - left) / 2, (bottom - top) / 2
    xs = np.array((-half_width, half_width, half_width, -half_width))
    ys = np.array((-half_height, -half_height, half_height, half_height))
    return rotate_points(xs, ys, (left + half_width, top + half_height), degrees)


def rotate_points(
    xs: np.ndarray, ys: np.ndarray, centre: tuple[float, float], degrees: float
) -> list[float]:
    """Rotate points, given relative to a centre, about that centre; return x, y, x, y, …"""
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    x, y = centre[0] + xs * cosine - ys * sine, centre[1] + xs * sine + ys * cosine
    flat: list[float] = np.stack((x, y), axis=1).reshape(-1).tolist()
    return flat


def run_lengths(flat: np.ndarray) -> list[int]:
    """Return the lengths of runs outside, inside, outside, …; the first may be 0."""
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate(([0], changes, [len(flat)]))
    lengths: list[int] = np.diff(edges).tolist()
    return [0, *lengths] if flat[0] else lengths


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER_BYTES = len(_SIGNATURE) + 16  # up to width and height in IHDR
_HEADER_WITH_FORMAT = _HEADER_BYTES + 9  # with the rest of IHDR
_GRAY = (8, 0, 0, 0, 0)  # bits, colour type, compression, filter, interlace
_PALETTE_OF_TWO = (1, 3, 0, 0, 0)
_NO_FILTER = 0
_MAX_PIXELS = 1 << 28
_WITHOUT_OPACITY = {"PA": "RGB", "LA": "L"}
_COMPRESSION = 3  # for masks: a third of the time of 6, for a quarter more bytes


def encode_mask_png(mask: np.ndarray, *, is_box: bool = False) -> bytes:
    """Encode a mask as a one-bit PNG that decodes to 0 and 1, like create_coco_tf_record.py's.

    Its palette is (0, 0, 0), (1, 1, 1): decoders scale one bit of gray to 0 and 255.
    ``is_box`` marks a placeholder: the OD API needs a mask for every object or for none.
    """
    header = struct.pack(">II5B", *mask.shape[::-1], *_PALETTE_OF_TWO)
    chunks = (
        _chunk(b"IHDR", header)
        + _PALETTE
        + _pack_rows(np.packbits(mask.astype(bool, copy=False), axis=1))
    )
    return _SIGNATURE + chunks + (_BOX_MARKER if is_box else b"") + _END


def encode_gray_png(pixels: np.ndarray) -> bytes:
    """Encode bool or uint8 of shape (height, width) as a one-channel PNG of eight bits.

    Raises ValueError for other shapes.
    """
    height, width = pixels.shape
    header = struct.pack(">II5B", width, height, *_GRAY)
    return _SIGNATURE + _chunk(b"IHDR", header) + _pack_rows(pixels) + _END


def _pack_rows(rows: np.ndarray) -> bytes:
    """Return the IDAT chunk of rows of bytes."""
    filtered = np.full((len(rows), rows.shape[1] + 1), _NO_FILTER, np.uint8)
    filtered[:, 1:] = rows
    return _chunk(b"IDAT", zlib.compress(filtered.tobytes(), _COMPRESSION))


def decode_mask_png(data: bytes | memoryview, formats: Sequence[str] = ("PNG",)) -> np.ndarray:
    """Decode a mask as bool of shape (height, width), with errors as in :func:`decode_pixels`."""
    pixels = decode_pixels(data, formats)
    # TensorFlow decodes one channel; a fourth channel would be opacity.
    return np.asarray(pixels[:, :, :3].any(axis=2) if pixels.ndim == 3 else pixels > 0)


def decode_pixels(data: bytes | memoryview, formats: Sequence[str] = ("PNG",)) -> np.ndarray:
    """Decode a PNG or other format to (height, width[, channels]), or raise ValueError.

    Palettes are applied, also in one channel if all colours are gray.
    """
    try:
        with open_image(data, formats) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"{image.width}x{image.height} pixels, too many")
            if image.mode == "P":
                colors = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
                palette = np.zeros((256, 3), np.uint8)  # black if a pixel has no colour
                palette[: len(colors)] = colors
                is_gray = (palette == palette[:, :1]).all()
                return np.asarray((palette[:, 0] if is_gray else palette)[np.asarray(image)])
            plain_mode = _WITHOUT_OPACITY.get(image.mode)
            return np.asarray(image.convert(plain_mode) if plain_mode else image)
    except Exception as error:  # Pillow raises many types for an invalid image
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def png_sizes(buffer: bytes | bytearray, spans: np.ndarray) -> np.ndarray:
    """Read height and width of PNGs by their start and length, int64 (n, 2); 0 if not a PNG."""
    sizes = np.zeros((len(spans), 2), np.int64)
    candidates = np.flatnonzero(spans[:, 1] >= _HEADER_BYTES)
    heads = np.frombuffer(buffer, np.uint8)[spans[candidates, :1] + np.arange(_HEADER_BYTES)]
    is_png = (heads[:, : len(_SIGNATURE)] == np.frombuffer(_SIGNATURE, np.uint8)).all(axis=1)
    sides = heads[is_png, _HEADER_BYTES - 8 :].copy().view(">u4")
    sizes[candidates[is_png]] = sides[:, ::-1]
    return sizes


def png_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """Read the height and width of a PNG from its header; None if it is not an image."""
    return image_size(bytes(data[:_HEADER_WITH_FORMAT]))


def is_box_png(data: bytes | memoryview) -> bool:
    """Return whether a mask was exported as a placeholder for an object that has only a box."""
    return bytes(data[-_MARKER_FROM_END : -len(_END)]) == _BOX_MARKER


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_PALETTE = _chunk(b"PLTE", bytes((0, 0, 0, 1, 1, 1)))
_END = _chunk(b"IEND", b"")
_BOX_MARKER = _chunk(b"tEXt", b"Comment\0tfod: a box")  # image readers skip text chunks
_MARKER_FROM_END = len(_BOX_MARKER) + len(_END)


# COCO segmentations. Only pycocotools draws them as users expect: it scales polygons by five and
# rounds in its own way, so edges differ from fill_polygon, which tests the centres of pixels.

_MIN_NUMBERS = 6  # three corners; pycocotools treats four numbers as a box
_MAX_SIDES = 8  # of the image: pycocotools overflows on edges that are far outside


def draw_segmentation(segmentation: Any, size: tuple[int, int], location: str) -> np.ndarray | None:
    """Draw a ``segmentation``: polygons, or runs, compressed or not.

    Returns:
        bool of the size of the image or of the runs, true for the object; None if it is empty.

    Raises:
        TfodError: the segmentation at ``location`` is invalid, or pycocotools is not installed.
    """
    if not segmentation:
        return None
    if size[0] * size[1] > _MAX_PIXELS:
        raise TfodError(f"{location}: a mask of {size[1]}x{size[0]} pixels is too large")
    try:
        if isinstance(segmentation, dict):
            return _draw_runs(*_check_runs(segmentation))
        if not isinstance(segmentation, list):
            raise ValueError("expected polygons or runs")
        polygons = [_check_polygon(points, max(size) * _MAX_SIDES) for points in segmentation]
        coco_mask = _pycocotools()
        drawn = coco_mask.merge(coco_mask.frPyObjects(polygons, *size))
        return _draw_runs(decode_counts(drawn["counts"]), size)
    except ValueError as error:
        raise TfodError(f"{location}: invalid segmentation ({error}); correct it") from None


def _check_runs(segmentation: dict[str, Any]) -> tuple[list[int], tuple[int, int]]:
    """Return lengths of runs that fill their size, and the size, or raise ValueError."""
    counts, size = segmentation.get("counts"), segmentation.get("size")
    is_size = isinstance(size, list) and len(size) == 2 and all(type(side) is int for side in size)
    if size is None or not is_size or min(size) < 1 or size[0] * size[1] > _MAX_PIXELS:
        raise ValueError(f"size is {excerpt(size)}, expected height and width")
    if isinstance(counts, list) and all(type(count) is int for count in counts):
        lengths = counts
    elif isinstance(counts, (str, bytes)) and counts.isascii():
        lengths = decode_counts(counts.encode("ascii") if isinstance(counts, str) else counts)
    else:
        raise ValueError(f"counts is {excerpt(counts)}, expected whole numbers or a text")
    if min(lengths, default=0) < 0 or sum(lengths) != size[0] * size[1]:
        raise ValueError("counts do not add up to the number of pixels in size")
    return lengths, (size[0], size[1])


def _draw_runs(lengths: Sequence[int], size: tuple[int, int]) -> np.ndarray:
    """Draw runs outside, inside, outside, …, column by column, as bool of shape ``size``."""
    height = size[0]
    edges = list(itertools.accumulate(lengths))
    runs = list(zip(edges[::2], edges[1::2], strict=False))
    mask = np.zeros(size, bool)
    if runs:
        first, last = runs[0][0] // height, -(-runs[-1][1] // height)
        columns = np.zeros((last - first) * height, bool)
        for start, end in runs:
            columns[start - first * height : end - first * height] = True
        mask[:, first:last] = columns.reshape(-1, height).T
    return mask


def decode_counts(counts: bytes) -> list[int]:
    """Decode COCO's compressed lengths of runs (cocoapi's maskApi.c), or raise ValueError.

    Each character has six bits, least significant first; one bit means that another character
    follows. From the fourth run on, the number is relative to the run before the previous one.
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
        raise ValueError("counts is truncated")
    return lengths


def _check_polygon(points: Sequence[float], max_distance: int) -> list[float]:
    try:
        numbers = [float(value) for value in points]
    except (TypeError, ValueError, OverflowError):
        raise ValueError("a polygon needs three or more pairs of finite numbers") from None
    if len(numbers) < _MIN_NUMBERS or len(numbers) % 2 or not np.isfinite(numbers).all():
        raise ValueError("a polygon needs three or more pairs of finite numbers")
    if max(map(abs, numbers)) > max_distance:
        raise ValueError("a polygon extends far beyond the image")
    return numbers


def _pycocotools() -> Any:
    try:
        from pycocotools import mask
    except ImportError:
        raise TfodError(f"COCO masks need pycocotools; {how_to_install('coco')}") from None
    return mask
