"""Headers of image files: format, size and EXIF orientation.

Reading needs no decoder and no copy, and no bytes cause an exception. The reader of a format
takes a buffer of at least ``_MIN_BYTES`` that begins with its signature, and returns None if the
header is damaged. A JPEG takes some two microseconds. Loops are bounded, and end before ``end``.

Sources: ITU-T T.81 (JPEG), W3C's PNG specification, CompuServe's GIF89a, Microsoft's
BITMAPINFOHEADER, TIFF 6.0, Google's WebP container specification, CIPA DC-008 (EXIF, tag 0x0112).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeAlias

from tfod.tfrecord.image_names import split_extension

Bytes: TypeAlias = "bytes | bytearray"

_MIN_BYTES = 16
_MAX_PARTS = 4096  # segments or chunks; enough for 32 MiB in parts of 8 KiB
_MAX_ENTRIES = 1024  # in a TIFF directory

_SEGMENT = Struct(">HH").unpack_from
_FRAME = Struct(">BHHB").unpack_from
_IHDR = Struct(">IIBBBBB").unpack_from
_CHUNK = Struct(">I4s").unpack_from
_RIFF_CHUNK = Struct("<4sI").unpack_from
_TWO_SHORTS = Struct("<HH").unpack_from
_LONG = Struct("<I").unpack_from
_BMP_CORE = Struct("<HHHH").unpack_from
_BMP_INFO = Struct("<iiHHI").unpack_from


class ImageHeader(NamedTuple):
    """The header of an image. Images of the same kind have equal headers, which can be keys.

    Attributes:
        format: jpeg, png, gif, bmp, tiff or webp.
        height, width: size as stored, without the orientation.
        channels: 1 gray, 2 gray with alpha, 3 colour or palette, 4 colour with alpha or CMYK.
        bits: bits per channel, or per index into the palette.
        orientation: EXIF orientation, 1 to 8; 1 if it is missing.
        complete: whether the bytes reach the declared or actual end of the image.
        note: unusual properties, separated by spaces: ``animated``, ``apple``, ``arithmetic``,
            ``cmyk``, ``compressed``, ``hierarchical``, ``interlaced``, ``lossless``, ``os2``,
            ``palette``, ``trailing`` (bytes after the pixels).
    """

    format: str
    height: int
    width: int
    channels: int
    bits: int
    orientation: int
    complete: bool
    note: str


UPRIGHT = 1
"""Orientation of an image that is shown as stored."""
FIRST_TRANSPOSED = 5
"""First of the orientations that swap height and width."""

# JPEG

_APP1 = 0xFFE1
_SKIPPED = frozenset(
    {*range(0xFFE0, 0xFFFF), 0xFFC4, 0xFFC8, 0xFFCC, *range(0xFFDB, 0xFFE0)} - {_APP1}
)
_STANDALONE = frozenset({0xFF01, *range(0xFFD0, 0xFFD9)})
_NO_FRAME = frozenset({0xFFD9, 0xFFDA})  # end of image, start of scan: no frame header follows
_FRAMES = {
    **dict.fromkeys((0xFFC0, 0xFFC1, 0xFFC2), ""),  # baseline, extended, progressive
    0xFFC3: "lossless",
    **dict.fromkeys((0xFFC5, 0xFFC6, 0xFFC7), "hierarchical"),
    **dict.fromkeys((0xFFC9, 0xFFCA), "arithmetic"),
    0xFFCB: "arithmetic lossless",
    **dict.fromkeys((0xFFCD, 0xFFCE, 0xFFCF), "arithmetic hierarchical"),
}


def _read_jpeg_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Walk the segments to the frame header, skipping fill and stray bytes as libjpeg does."""
    position = start + 2
    last_position = end - 10  # of a frame header, whose first ten bytes are read
    orientation = 0
    for _ in range(_MAX_PARTS):
        if position > last_position:
            return None
        marker, length = _SEGMENT(buffer, position)
        if marker in _SKIPPED:
            position += 2 + length
        elif marker in _FRAMES:
            return _read_frame(buffer, position, end, orientation or 1)
        elif marker == _APP1:
            if not orientation and buffer.startswith(b"Exif\0\0", position + 4):
                orientation = _read_exif(buffer, position + 10, min(position + 2 + length, end))
            position += 2 + length
        elif marker in _NO_FRAME:
            return None
        elif marker in _STANDALONE:
            position += 2
        else:
            position = buffer.find(b"\xff", position + 1, end)
            if position < 0:
                return None
    return None


def _read_frame(buffer: Bytes, position: int, end: int, orientation: int) -> ImageHeader | None:
    bits, height, width, channels = _FRAME(buffer, position + 4)
    if not channels:
        return None
    note = _FRAMES[buffer[position] << 8 | buffer[position + 1]]
    if channels == 4:
        note = f"cmyk {note}".rstrip()
    # Thumbnails, which have end markers too, precede the frame header.
    complete = (buffer[end - 1] == 0xD9 and buffer[end - 2] == 0xFF) or (
        buffer.rfind(b"\xff\xd9", position + 10, end) >= 0
    )
    return ImageHeader("jpeg", height, width, channels, bits, orientation, complete, note)


# PNG

_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_END = b"IEND\xaeB`\x82"


def _read_png_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    position = start + 8
    notes = []
    if buffer.startswith(b"CgBI", position + 4):  # iOS writes an additional first chunk
        notes.append("apple")
        position += 16
    if end - position < 25 or not buffer.startswith(b"IHDR", position + 4):
        return None
    width, height, bits, colour, _, _, interlace = _IHDR(buffer, position + 8)
    if bits not in _PNG_BITS.get(colour, ()):
        return None
    if colour == 3:
        notes.append("palette")
    if interlace:
        notes.append("interlaced")
    position += 25
    orientation = 1
    for _ in range(_MAX_PARTS):
        if position + 8 > end:
            break
        length, kind = _CHUNK(buffer, position)
        if kind == b"IDAT" or kind == b"IEND":
            break
        if kind == b"eXIf":
            orientation = _read_exif(buffer, position + 8, min(position + 8 + length, end)) or 1
        elif kind == b"acTL":
            notes.append("animated")
        position += 12 + length
    complete = buffer.endswith(_PNG_END, start, end) or buffer.rfind(_PNG_END, position, end) >= 0
    channels, note = _PNG_CHANNELS[colour], " ".join(notes)
    return ImageHeader("png", height, width, channels, bits, orientation, complete, note)


# GIF


def _read_gif_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    width, height = _TWO_SHORTS(buffer, start + 6)
    # The loop extension follows the colour table; a GIF that plays once lacks it.
    search_end = min(start + 13 + 3 * 256 + 64, end)
    animated = buffer.find(b"NETSCAPE2.0", start + 13, search_end) >= 0
    complete = buffer[end - 1] == 0x3B or buffer.rfind(b"\0;", start + 13, end) >= 0
    return ImageHeader("gif", height, width, 3, 8, 1, complete, "animated" if animated else "")


# BMP


def _read_bmp_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    if end - start < 26:
        return None
    (pixels,) = _LONG(buffer, start + 10)
    (header_bytes,) = _LONG(buffer, start + 14)
    compression = 0
    if header_bytes == 12:
        width, height, planes, bits = _BMP_CORE(buffer, start + 18)
    elif 40 <= header_bytes <= 124 and end - start >= 34:
        width, height, planes, bits, compression = _BMP_INFO(buffer, start + 18)
    else:
        return None
    if planes != 1 or bits not in (1, 2, 4, 8, 16, 24, 32) or width < 0:
        return None
    height = abs(height)
    notes = ["os2"] if header_bytes == 12 else []
    if bits <= 8 and not _is_gray_ramp(buffer, start + 14 + header_bytes, start + pixels, end):
        notes.append("palette")
    complete = True
    if compression in (0, 3, 6):  # uncompressed, or uncompressed with colour bit masks
        missing = start + pixels + (width * bits + 31) // 32 * 4 * height - end
        complete = missing <= 0
        if missing < 0:
            notes.append("trailing")
    else:
        notes.append("compressed")
    channels = 4 if bits == 32 else 3 if bits > 8 or "palette" in notes else 1
    depth = bits if bits <= 8 else 5 if bits == 16 else 8  # 16 bits are 5 per colour
    return ImageHeader("bmp", height, width, channels, depth, 1, complete, " ".join(notes))


_GRAYS = bytes(range(256))


def _is_gray_ramp(buffer: Bytes, start: int, pixels: int, end: int) -> bool:
    """Return whether the palette is the 256 grays in order; every fourth byte is padding."""
    if pixels - start < 1024 or pixels > end:
        return False
    palette = buffer[start : start + 1024]
    return palette[0::4] == palette[1::4] == palette[2::4] == _GRAYS


# TIFF, and EXIF, whose tags are in TIFF format

_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES = 256, 257, 258, 262, 274, 277
_TAGS = frozenset({_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES})
_BYTE_ORDERS = {
    b"II*\0": (Struct("<H").unpack_from, Struct("<I").unpack_from, Struct("<HHI").unpack_from),
    b"MM\0*": (Struct(">H").unpack_from, Struct(">I").unpack_from, Struct(">HHI").unpack_from),
}
_SIZES = {1: 1, 3: 2, 4: 4}  # BYTE, SHORT, LONG
_PHOTOMETRIC_NOTES = {3: "palette", 5: "cmyk"}


def _read_tiff_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    tags = _read_directory(buffer, start, end)
    if _WIDTH not in tags or _HEIGHT not in tags:
        return None
    note = _PHOTOMETRIC_NOTES.get(tags.get(_PHOTOMETRIC, 1), "")
    channels = 3 if note == "palette" else tags.get(_SAMPLES, 1)
    orientation = _check_orientation(tags.get(_ORIENTATION, 1))
    bits = tags.get(_BITS, 1)
    return ImageHeader("tiff", tags[_HEIGHT], tags[_WIDTH], channels, bits, orientation, True, note)


def _read_exif(buffer: Bytes, start: int, end: int) -> int:
    return _check_orientation(_read_directory(buffer, start, end).get(_ORIENTATION, 1))


def _check_orientation(value: int) -> int:
    return value if 1 <= value <= 8 else 1


def _read_directory(buffer: Bytes, start: int, end: int) -> dict[int, int]:
    """Return the first value of each known tag in the first directory."""
    order = _BYTE_ORDERS.get(bytes(buffer[start : start + 4]))
    if order is None or end - start < 14:
        return {}
    short, long, entry = order
    position = start + long(buffer, start + 4)[0]
    if position + 2 > end:
        return {}
    entries = min(short(buffer, position)[0], _MAX_ENTRIES)
    position += 2
    tags = {}
    for entry_at in range(position, min(position + 12 * entries, end - 11), 12):
        tag, kind, count = entry(buffer, entry_at)
        if tag not in _TAGS or kind not in _SIZES or not count:
            continue
        size = _SIZES[kind]
        # Values of at most four bytes are in the entry itself.
        value_at = entry_at + 8 if size * count <= 4 else start + long(buffer, entry_at + 8)[0]
        if value_at + size <= end:
            read = short if size == 2 else long
            tags[tag] = buffer[value_at] if size == 1 else read(buffer, value_at)[0]
    return tags


# WebP


def _read_webp_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    if not buffer.startswith(b"WEBP", start + 8):
        return None
    kind = buffer[start + 12 : start + 16]
    complete = start + 8 + _LONG(buffer, start + 4)[0] <= end
    orientation, note = 1, ""
    if end - start < (25 if kind == b"VP8L" else 30):
        return None
    if kind == b"VP8 " and buffer.startswith(b"\x9d\x01\x2a", start + 23):
        width, height = (side & 0x3FFF for side in _TWO_SHORTS(buffer, start + 26))
        has_alpha = False
    elif kind == b"VP8L" and buffer[start + 20] == 0x2F:
        (bits,) = _LONG(buffer, start + 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        has_alpha = bool(bits >> 28 & 1)
    elif kind == b"VP8X":
        flags = buffer[start + 20]
        width = int.from_bytes(buffer[start + 24 : start + 27], "little") + 1
        height = int.from_bytes(buffer[start + 27 : start + 30], "little") + 1
        has_alpha = bool(flags & 0x10)
        note = "animated" if flags & 2 else ""
        orientation = _read_webp_exif(buffer, start, end) if flags & 8 else 1
    else:
        return None
    channels = 4 if has_alpha else 3
    return ImageHeader("webp", height, width, channels, 8, orientation, complete, note)


def _read_webp_exif(buffer: Bytes, start: int, end: int) -> int:
    position = start + 30
    for _ in range(_MAX_PARTS):
        if position + 8 > end:
            break
        kind, length = _RIFF_CHUNK(buffer, position)
        position += 8
        if kind == b"EXIF":
            body_end = min(position + length, end)
            # Some writers keep the six-byte prefix of EXIF in JPEG.
            position += 6 if buffer.startswith(b"Exif\0\0", position) else 0
            return _read_exif(buffer, position, body_end)
        position += length + length % 2
    return 1


# All formats

_SIGNATURES = (
    (b"\xff\xd8\xff", "jpeg", _read_jpeg_header),
    (b"\x89PNG\r\n\x1a\n", "png", _read_png_header),
    (b"GIF8", "gif", _read_gif_header),
    (b"BM", "bmp", _read_bmp_header),
    (b"II*\0", "tiff", _read_tiff_header),
    (b"MM\0*", "tiff", _read_tiff_header),
    (b"RIFF", "webp", _read_webp_header),
)
# The signatures differ in their first bytes.
_BY_FIRST_BYTE = {signature[0]: (signature, read) for signature, _, read in _SIGNATURES}

DEFAULT_EXTENSION = ".jpg"
"""Extension for an image of unknown format."""

EXTENSION_OF_FORMAT = {
    "jpeg": ".jpg",
    "png": ".png",
    "gif": ".gif",
    "bmp": ".bmp",
    "tiff": ".tif",
    "webp": ".webp",
}
FORMAT_OF_EXTENSION = {extension: name for name, extension in EXTENSION_OF_FORMAT.items()} | {
    ".jpeg": "jpeg",
    ".jpe": "jpeg",
    ".tiff": "tiff",
}


def sniff_format(head: bytes) -> str | None:
    """Return the ``image/format`` of an encoded image from its first 16 bytes, or None."""
    for signature, name, _ in _SIGNATURES:
        if head.startswith(signature):
            return name if name != "webp" or head[8:12] == b"WEBP" else None
    return None


def read_image_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Read the header of the image in ``buffer[start:end]``; None if unknown or damaged."""
    if end - start < _MIN_BYTES:
        return None
    kind = _BY_FIRST_BYTE.get(buffer[start])
    if kind is None or not buffer.startswith(kind[0], start):
        return None
    return kind[1](buffer, start, end)


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return height and width in pixels from a header, without EXIF orientation, or None."""
    header = read_image_header(data, 0, len(data))
    if header is None or not header.height or not header.width:
        return None
    return header.height, header.width


def find_format(encoded: bytes | None, filename: str) -> str:
    """Return the ``image/format`` by the bytes, else by the file name; '' without an image."""
    if not encoded:
        return ""
    extension = split_extension(filename)[1].lower()
    return sniff_format(encoded[:16]) or FORMAT_OF_EXTENSION.get(extension, "")
