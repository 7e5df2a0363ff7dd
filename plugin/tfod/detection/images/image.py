"""What an image's own bytes say: its format, its size and its EXIF orientation.

Headers are read in place: no decoder, no copy, no exception on any bytes. One function a format
takes a place in a buffer, of at least ``_LEAST_BYTES`` that begin with the format's signature, and
gives None when the header is damaged. A usual JPEG costs about two microseconds. All loops are
bounded, and what is after ``end`` is not taken for the image.

Sources: ITU-T T.81 (JPEG), W3C's PNG specification, CompuServe's GIF89a, Microsoft's
BITMAPINFOHEADER, TIFF 6.0, Google's WebP container specification, CIPA DC-008 (EXIF, tag 0x0112).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeAlias

from tfod.tfrecord.image_names import split_extension

Bytes: TypeAlias = "bytes | bytearray"

_LEAST_BYTES = 16

_MOST_PARTS = 4096  # segments, chunks: an image of 8 KiB parts has as many in 32 MiB
_MOST_ENTRIES = 1024  # of a TIFF directory

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
    """What an image's header says; equal for images of a kind, so it can be a key.

    ``channels`` are as stored: 1 gray, 2 gray with alpha, 3 colour (also by palette), 4 colour with
    alpha or CMYK. ``bits`` are those of a channel, or of an index into the palette. ``height`` and
    ``width`` are as stored too: the orientation is not applied. ``complete`` says that the bytes
    reach to the end that the image has or announces. ``note`` holds words for what is odd:
    ``animated``, ``apple``, ``arithmetic``, ``cmyk``, ``compressed``, ``hierarchical``,
    ``interlaced``, ``lossless``, ``os2``, ``palette``, ``trailing`` (bytes after the pixels).
    """

    format: str  # jpeg, png, gif, bmp, tiff or webp
    height: int
    width: int
    channels: int
    bits: int
    orientation: int  # of EXIF, 1 to 8; 1 when it is absent
    complete: bool
    note: str


UPRIGHT = 1
"""The orientation of an image that is shown as it is stored."""
QUARTER = 5
"""From this orientation on height and width are exchanged."""

# JPEG

_APP1 = 0xFFE1
_SKIPPED = frozenset(
    {*range(0xFFE0, 0xFFFF), 0xFFC4, 0xFFC8, 0xFFCC, *range(0xFFDB, 0xFFE0)} - {_APP1}
)
_STANDALONE = frozenset({0xFF01, *range(0xFFD0, 0xFFD9)})
_NO_FRAME = frozenset({0xFFD9, 0xFFDA})  # the end or a scan, and no frame header before it
_FRAMES = {
    **dict.fromkeys((0xFFC0, 0xFFC1, 0xFFC2), ""),  # baseline, extended, progressive
    0xFFC3: "lossless",
    **dict.fromkeys((0xFFC5, 0xFFC6, 0xFFC7), "hierarchical"),
    **dict.fromkeys((0xFFC9, 0xFFCA), "arithmetic"),
    0xFFCB: "arithmetic lossless",
    **dict.fromkeys((0xFFCD, 0xFFCE, 0xFFCF), "arithmetic hierarchical"),
}


def _jpeg_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Walk the segments to the frame header, as libjpeg does: over fill bytes and stray bytes."""
    place = start + 2
    last = end - 10  # a frame header has ten bytes before its components
    orientation = 0
    for _ in range(_MOST_PARTS):
        if place > last:
            return None
        marker, length = _SEGMENT(buffer, place)
        if marker in _SKIPPED:
            place += 2 + length
        elif marker in _FRAMES:
            return _jpeg_frame(buffer, place, end, orientation or 1)
        elif marker == _APP1:
            if not orientation and buffer.startswith(b"Exif\0\0", place + 4):
                orientation = _orientation(buffer, place + 10, min(place + 2 + length, end))
            place += 2 + length
        elif marker in _NO_FRAME:
            return None
        elif marker in _STANDALONE:
            place += 2
        else:
            place = buffer.find(b"\xff", place + 1, end)
            if place < 0:
                return None
    return None


def _jpeg_frame(buffer: Bytes, place: int, end: int, orientation: int) -> ImageHeader | None:
    bits, height, width, channels = _FRAME(buffer, place + 4)
    if not channels:
        return None
    note = _FRAMES[buffer[place] << 8 | buffer[place + 1]]
    if channels == 4:
        note = f"cmyk {note}".rstrip()
    # Thumbnails with an end of their own are before the frame header.
    complete = (buffer[end - 1] == 0xD9 and buffer[end - 2] == 0xFF) or (
        buffer.rfind(b"\xff\xd9", place + 10, end) >= 0
    )
    return ImageHeader("jpeg", height, width, channels, bits, orientation, complete, note)


# PNG

_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_END = b"IEND\xaeB`\x82"


def _png_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Of bytes that begin as a PNG does."""
    place = start + 8
    notes = []
    if buffer.startswith(b"CgBI", place + 4):  # iOS has another chunk first
        notes.append("apple")
        place += 16
    if end - place < 25 or not buffer.startswith(b"IHDR", place + 4):
        return None
    width, height, bits, colour, _, _, interlace = _IHDR(buffer, place + 8)
    if bits not in _PNG_BITS.get(colour, ()):
        return None
    if colour == 3:
        notes.append("palette")
    if interlace:
        notes.append("interlaced")
    place += 25
    orientation = 1
    for _ in range(_MOST_PARTS):
        if place + 8 > end:
            break
        length, kind = _CHUNK(buffer, place)
        if kind == b"IDAT" or kind == b"IEND":
            break
        if kind == b"eXIf":
            orientation = _orientation(buffer, place + 8, min(place + 8 + length, end)) or 1
        elif kind == b"acTL":
            notes.append("animated")
        place += 12 + length
    complete = buffer.endswith(_PNG_END, start, end) or buffer.rfind(_PNG_END, place, end) >= 0
    channels = _PNG_CHANNELS[colour]
    note = " ".join(notes)
    return ImageHeader("png", height, width, channels, bits, orientation, complete, note)


# GIF


def _gif_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Of bytes that begin as a GIF does."""
    width, height = _TWO_SHORTS(buffer, start + 6)
    # The extension that makes it repeat follows the colour table; a GIF that moves once lacks it.
    heads_end = min(start + 13 + 3 * 256 + 64, end)
    animated = buffer.find(b"NETSCAPE2.0", start + 13, heads_end) >= 0
    complete = buffer[end - 1] == 0x3B or buffer.rfind(b"\0;", start + 13, end) >= 0
    return ImageHeader("gif", height, width, 3, 8, 1, complete, "animated" if animated else "")


# BMP


def _bmp_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Of bytes that begin as a BMP does."""
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
    if compression in (0, 3, 6):  # 3 and 6 say which bits are which colour
        missing = start + pixels + (width * bits + 31) // 32 * 4 * height - end
        complete = missing <= 0
        notes.extend(["trailing"] if missing < 0 else [])
    else:
        notes.append("compressed")
    channels = 4 if bits == 32 else 3 if bits > 8 or "palette" in notes else 1
    depth = bits if bits <= 8 else 5 if bits == 16 else 8
    return ImageHeader("bmp", height, width, channels, depth, 1, complete, " ".join(notes))


_GRAYS = bytes(range(256))


def _is_gray_ramp(buffer: Bytes, start: int, pixels: int, end: int) -> bool:
    """Whether the palette gives each of 256 indices its own gray; the fourth byte is padding."""
    if pixels - start < 1024 or pixels > end:
        return False
    palette = buffer[start : start + 1024]
    return palette[0::4] == palette[1::4] == palette[2::4] == _GRAYS


# TIFF, and EXIF, which is a TIFF without an image

_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES = 256, 257, 258, 262, 274, 277
_TAGS = frozenset({_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES})
_BYTE_ORDERS = {
    b"II*\0": (Struct("<H").unpack_from, Struct("<I").unpack_from, Struct("<HHI").unpack_from),
    b"MM\0*": (Struct(">H").unpack_from, Struct(">I").unpack_from, Struct(">HHI").unpack_from),
}
_SIZES = {1: 1, 3: 2, 4: 4}  # BYTE, SHORT, LONG
_PHOTOMETRIC_NOTES = {3: "palette", 5: "cmyk"}


def _tiff_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Of bytes that begin as a TIFF does."""
    tags = _first_directory(buffer, start, end)
    if _WIDTH not in tags or _HEIGHT not in tags:
        return None
    note = _PHOTOMETRIC_NOTES.get(tags.get(_PHOTOMETRIC, 1), "")
    channels = 3 if note == "palette" else tags.get(_SAMPLES, 1)
    orientation = _as_orientation(tags.get(_ORIENTATION, 1))
    bits = tags.get(_BITS, 1)
    return ImageHeader("tiff", tags[_HEIGHT], tags[_WIDTH], channels, bits, orientation, True, note)


def _orientation(buffer: Bytes, start: int, end: int) -> int:
    return _as_orientation(_first_directory(buffer, start, end).get(_ORIENTATION, 1))


def _as_orientation(value: int) -> int:
    return value if 1 <= value <= 8 else 1


def _first_directory(buffer: Bytes, start: int, end: int) -> dict[int, int]:
    """The first value of each tag that we know, of the first directory."""
    order = _BYTE_ORDERS.get(bytes(buffer[start : start + 4]))
    if order is None or end - start < 14:
        return {}
    short, long, entry = order
    place = start + long(buffer, start + 4)[0]
    if place + 2 > end:
        return {}
    entries = min(short(buffer, place)[0], _MOST_ENTRIES)
    place += 2
    found = {}
    for each in range(place, min(place + 12 * entries, end - 11), 12):
        tag, kind, count = entry(buffer, each)
        if tag not in _TAGS or kind not in _SIZES or not count:
            continue
        size = _SIZES[kind]
        at = each + 8 if size * count <= 4 else start + long(buffer, each + 8)[0]
        if at + size <= end:
            found[tag] = buffer[at] if size == 1 else (short if size == 2 else long)(buffer, at)[0]
    return found


# WebP


def _webp_header(buffer: Bytes, start: int, end: int) -> ImageHeader | None:
    """Of bytes that begin as a RIFF container does."""
    if not buffer.startswith(b"WEBP", start + 8):
        return None
    kind = buffer[start + 12 : start + 16]
    complete = start + 8 + _LONG(buffer, start + 4)[0] <= end
    orientation = 1
    note = ""
    if end - start < (25 if kind == b"VP8L" else 30):
        return None
    if kind == b"VP8 " and buffer.startswith(b"\x9d\x01\x2a", start + 23):
        width, height = (side & 0x3FFF for side in _TWO_SHORTS(buffer, start + 26))
        alpha = False
    elif kind == b"VP8L" and buffer[start + 20] == 0x2F:
        (packed,) = _LONG(buffer, start + 21)
        width, height = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        alpha = bool(packed >> 28 & 1)
    elif kind == b"VP8X":
        flags = buffer[start + 20]
        width = int.from_bytes(buffer[start + 24 : start + 27], "little") + 1
        height = int.from_bytes(buffer[start + 27 : start + 30], "little") + 1
        alpha = bool(flags & 0x10)
        note = "animated" if flags & 2 else ""
        orientation = _webp_orientation(buffer, start, end) if flags & 8 else 1
    else:
        return None
    channels = 4 if alpha else 3
    return ImageHeader("webp", height, width, channels, 8, orientation, complete, note)


def _webp_orientation(buffer: Bytes, start: int, end: int) -> int:
    place = start + 30
    for _ in range(_MOST_PARTS):
        if place + 8 > end:
            break
        kind, length = _RIFF_CHUNK(buffer, place)
        place += 8
        if kind == b"EXIF":
            body_end = min(place + length, end)
            # Some writers keep the six bytes that JPEG needs before it.
            place += 6 if buffer.startswith(b"Exif\0\0", place) else 0
            return _orientation(buffer, place, body_end)
        place += length + length % 2
    return 1


# Any of them

_SIGNATURES = (
    (b"\xff\xd8\xff", "jpeg", _jpeg_header),
    (b"\x89PNG\r\n\x1a\n", "png", _png_header),
    (b"GIF8", "gif", _gif_header),
    (b"BM", "bmp", _bmp_header),
    (b"II*\0", "tiff", _tiff_header),
    (b"MM\0*", "tiff", _tiff_header),
    (b"RIFF", "webp", _webp_header),
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
FORMAT_OF_EXTENSION = {extension: name for name, extension in EXTENSION_OF_FORMAT.items()} | {
    ".jpeg": "jpeg",
    ".jpe": "jpeg",
    ".tiff": "tiff",
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
    if end - start < _LEAST_BYTES:
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


def format_name(encoded: bytes | None, filename: str) -> str:
    """``image/format``: what the bytes are; by the name where they do not say; '' without any."""
    if not encoded:
        return ""
    extension = split_extension(filename)[1].lower()
    return sniff_format(encoded[:16]) or FORMAT_OF_EXTENSION.get(extension, "")
