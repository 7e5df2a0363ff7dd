"""A small image of every kind that a shard may hold.

Kinds that no library here writes are built from their specifications: ITU-T T.81 (JPEG), the PNG
specification, the BMP headers; or by changing the marker of another image.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, features

HEIGHT, WIDTH = 21, 34

Maker = Callable[[], bytes]


def saved(
    mode: str, image_format: str, size: tuple[int, int] = (WIDTH, HEIGHT), **how: Any
) -> bytes:
    """Return a gradient in a mode, as Pillow writes it."""
    return file_of(gradient(mode, size), image_format, **how)


def plain_image(
    size: tuple[int, int], colour: Any = "white", kind: str = "JPEG", mode: str = "RGB", **how: Any
) -> bytes:
    """Return an image of one colour."""
    return file_of(Image.new(mode, size, colour), kind, **how)


def image_of_pixels(pixels: Any, kind: str = "PNG") -> bytes:
    """Return an image of rows of pixels, each a number or three."""
    return file_of(Image.fromarray(np.array(pixels, np.uint8)), kind)


def file_of(image: Image.Image, kind: str = "PNG", **how: Any) -> bytes:
    """Return an image as Pillow writes it."""
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def gradient(mode: str, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Image.Image:
    """Return an image of different pixels."""
    width, height = size
    if mode == "I;16":
        return Image.frombytes("I;16", size, bytes(2 * width * height))
    pixels = [(x * 7 + y, y * 9, x * y) for y in range(height) for x in range(width)]
    image = Image.frombytes("RGB", size, bytes(value & 255 for pixel in pixels for value in pixel))
    image = image.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(gradient("L", size))
    return image


def exif_block(orientation: int, order: str = "<") -> bytes:
    """Return a TIFF header and a directory with an ImageWidth and the orientation."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    wide = struct.pack(order + "HHIHH", 0x0100, 3, 1, WIDTH, 0)
    turned = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return head + struct.pack(order + "H", 2) + wide + turned + bytes(4)


def with_segment(jpeg: bytes, marker: int, body: bytes) -> bytes:
    """Return a JPEG with another segment after its first marker."""
    return jpeg[:2] + struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body + jpeg[2:]


def exif_jpeg(orientation: int = 6, order: str = "<") -> bytes:
    """Return a JPEG that viewers rotate."""
    return with_segment(saved("RGB", "JPEG"), 0xE1, b"Exif\0\0" + exif_block(orientation, order))


def with_frame(jpeg: bytes, marker: int, bits: int = 8) -> bytes:
    """Return a baseline JPEG with the frame header of another coding."""
    place = max(jpeg.find(b"\xff\xc0"), jpeg.find(b"\xff\xc2"))
    changed = bytearray(jpeg)
    changed[place + 1], changed[place + 4] = marker, bits
    return bytes(changed)


def lossless_jpeg(bits: int = 8, components: int = 3) -> bytes:
    """Return a lossless JPEG (T.81, annex H) in which every sample is the first prediction.

    All differences are zero, so it needs only one Huffman code of one bit.
    """
    parts = b"".join(bytes((number, 0x11, 0)) for number in range(1, components + 1))
    frame = struct.pack(">BHHB", bits, HEIGHT, WIDTH, components) + parts
    table = bytes((0, 1)) + bytes(15) + b"\0"
    picked = b"".join(bytes((number, 0)) for number in range(1, components + 1))
    scan = bytes((components,)) + picked + b"\x01\0\0"
    samples = HEIGHT * WIDTH * components
    coded = bytes(samples // 8) + bytes(((1 << (8 - samples % 8)) - 1,))
    segments = ((0xC3, frame), (0xC4, table), (0xDA, scan))
    head = b"".join(
        struct.pack(">BBH", 0xFF, mark, len(body) + 2) + body for mark, body in segments
    )
    return b"\xff\xd8" + head + coded + b"\xff\xd9"


def png(bits: int, color: int, *, interlaced: bool = False, chunks: bytes = b"") -> bytes:
    """Return a black PNG; ``color`` is the colour type of its header."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    steps = ["0088", "4088", "0448", "2044", "0224", "1022", "0112"] if interlaced else ["0011"]
    passes = [
        (-(-(WIDTH - x) // dx), -(-(HEIGHT - y) // dy))
        for x, y, dx, dy in (map(int, each) for each in steps)
    ]
    rows = b"".join(bytes(1 + -(-width * bits * samples // 8)) * height for width, height in passes)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, color, 0, 0, interlaced)
    palette = chunk(b"PLTE", bytes(3)) if color == 3 else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunks
        + palette
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def chunk(name: bytes, body: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def apple_png() -> bytes:
    """Return a PNG that Xcode rewrote for iOS: with CgBI, and pixels without zlib's header."""
    plain = png(8, 6)
    return plain[:8] + chunk(b"CgBI", b"P\0 \x02") + plain[8:]


def bmp(bits: int, *, compression: int = 0, top_down: bool = False, core: bool = False) -> bytes:
    """Return a black BMP; ``core`` has the short header of OS/2."""
    row = -(-WIDTH * bits // 32) * 4
    palette = bytes((3 if core else 4) << bits) if bits <= 8 else b""
    if core:
        header = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits)
    else:
        height = -HEIGHT if top_down else HEIGHT
        header = struct.pack("<IiiHHIIiiII", 40, WIDTH, height, 1, bits, compression, 0, 0, 0, 0, 0)
    start = 14 + len(header) + len(palette)
    pixels = bytes(row * HEIGHT)
    return struct.pack("<2sIII", b"BM", start + len(pixels), 0, start) + header + palette + pixels


def _animated(mode: str, image_format: str) -> bytes:
    more = [gradient(mode).rotate(180)]
    return saved(mode, image_format, save_all=True, append_images=more, duration=50, loop=0)


def _ycck_jpeg() -> bytes:
    """Return a JPEG in CMYK whose marker of Adobe has the value for YCCK."""
    jpeg = saved("CMYK", "JPEG")
    place = jpeg.index(b"Adobe") + 11
    return jpeg[:place] + b"\x02" + jpeg[place + 1 :]


def _without_height() -> bytes:
    """Return a JPEG whose height belongs into a DNL segment (T.81, B.2.5)."""
    jpeg = saved("L", "JPEG")
    place = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:place] + b"\0\0" + jpeg[place + 2 :]


def _kinds() -> Iterator[tuple[str, Maker]]:
    """Yield the name of each kind and its maker."""
    for mode in ("1", "L", "RGB", "CMYK"):
        yield f"jpeg {mode}", partial(saved, mode, "JPEG")
        yield f"jpeg {mode} progressive", partial(saved, mode, "JPEG", progressive=True)
    for name, how in {
        "444": {"subsampling": 0},
        "comment": {"comment": b"made by hand"},
        "icc": {"icc_profile": bytes(70000)},
        "optimised": {"optimize": True, "quality": 95},
        "restart": {"restart_marker_rows": 1},
    }.items():
        yield f"jpeg {name}", partial(saved, "RGB", "JPEG", **how)
    yield "jpeg ycck", _ycck_jpeg
    for order in "<>":
        yield f"jpeg exif {order}", partial(exif_jpeg, 6, order)
    for name, marker, bits in (
        ("12 bits", 0xC1, 12),
        ("extended", 0xC1, 8),
        ("arithmetic", 0xC9, 8),
        ("arithmetic progressive", 0xCA, 8),
        ("hierarchical", 0xC5, 8),
    ):
        plain = saved("L", "JPEG", progressive="progressive" in name)
        yield f"jpeg {name}", partial(with_frame, plain, marker, bits)
    yield "jpeg lossless gray", partial(lossless_jpeg, 8, 1)
    yield "jpeg lossless", partial(lossless_jpeg, 8, 3)
    yield "jpeg lossless 16 bits", partial(lossless_jpeg, 16, 1)
    yield "jpeg two components", _two_components
    yield "jpeg without height", _without_height
    plain = saved("RGB", "JPEG")
    for name, data in {
        "fill bytes": plain.replace(b"\xff\xdb", b"\xff\xff\xff\xdb", 1),
        "bytes after the end": plain + bytes(50),
        "bytes between": plain.replace(b"\xff\xdb", b"\0\0\xff\xdb", 1),
        "without jfif": plain[:2] + plain[20:],
    }.items():
        yield f"jpeg {name}", partial(bytes, data)
    depths = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    for color, bits in ((color, bits) for color, some in depths.items() for bits in some):
        name = f"png color {color} bits {bits}"
        yield name, partial(png, bits, color)
        yield f"{name} interlaced", partial(png, bits, color, interlaced=True)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        yield f"png {mode}", partial(saved, mode, "PNG")
    yield "png transparent colour", partial(saved, "RGB", "PNG", transparency=(0, 0, 0))
    yield "png transparent palette", partial(saved, "P", "PNG", transparency=0)
    yield "png exif", partial(png, 8, 2, chunks=chunk(b"eXIf", exif_block(8, ">")))
    yield "png text", partial(png, 8, 2, chunks=chunk(b"tEXt", b"Software\0tfod"))
    yield "png animated", partial(_animated, "RGB", "PNG")
    yield "png apple", apple_png
    yield "gif", partial(saved, "P", "GIF")
    yield "gif gray", partial(saved, "L", "GIF")
    yield "gif animated", partial(_animated, "P", "GIF")
    for bits in (1, 4, 8, 16, 24, 32):
        yield f"bmp {bits} bits", partial(bmp, bits)
        yield f"bmp {bits} bits top down", partial(bmp, bits, top_down=True)
    for bits in (1, 4, 8, 24):
        yield f"bmp {bits} bits os2", partial(bmp, bits, core=True)
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield f"bmp {mode}", partial(saved, mode, "BMP")
    yield "bmp rle", bmp_rle
    yield "bmp bytes after the end", partial(bytes, bmp(24) + b"\0\0")
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16"):
        yield f"tiff {mode}", partial(saved, mode, "TIFF")
    yield "tiff lzw", partial(saved, "RGB", "TIFF", compression="tiff_lzw")
    yield "tiff orientation", partial(saved, "RGB", "TIFF", tiffinfo={0x0112: 6})
    if features.check("webp"):
        yield "webp", partial(saved, "RGB", "WEBP")
        yield "webp alpha", partial(saved, "RGBA", "WEBP")
        yield "webp lossless", partial(saved, "RGB", "WEBP", lossless=True)
        yield "webp lossless alpha", partial(saved, "RGBA", "WEBP", lossless=True)
        yield "webp exif", partial(saved, "RGB", "WEBP", exif=b"Exif\0\0" + exif_block(3))
        yield "webp animated", partial(_animated, "RGB", "WEBP")


def bmp_rle() -> bytes:
    """Return a BMP of eight bits with run lengths: each line is one run and its end."""
    plain = bmp(8, compression=1)
    start = 14 + 40 + 1024
    return plain[:start] + bytes((WIDTH, 0, 0, 0)) * HEIGHT + b"\0\1"


def _two_components() -> bytes:
    frame = struct.pack(">BHHB", 8, HEIGHT, WIDTH, 2) + bytes((1, 0x11, 0, 2, 0x11, 0))
    jpeg = saved("L", "JPEG")
    place, scan = jpeg.index(b"\xff\xc0"), jpeg.index(b"\xff\xda")
    head = jpeg[:place] + struct.pack(">BBH", 0xFF, 0xC0, len(frame) + 2) + frame
    scan_head = b"\xff\xda\0\x0a\x02\x01\0\x02\0\0\x3f\0"
    return head + jpeg[place + 13 : scan] + scan_head + jpeg[scan + 10 :]


_MAKERS = dict(_kinds())
KINDS: tuple[str, ...] = tuple(_MAKERS)
"""The names of the kinds; the first word is the format."""


def image_of(kind: str) -> bytes:
    """Return the encoded image, 21 high and 34 wide."""
    return _MAKERS[kind]()


def photoshop() -> bytes:
    """Return a PSD of one gray pixel (Adobe's Photoshop File Formats Specification)."""
    header = b"8BPS" + struct.pack(">H6xHIIHH", 1, 1, 1, 1, 8, 1)
    return header + bytes(12) + bytes(2) + b"\x80"  # no sections, not compressed


def programs_of_pillow() -> dict[str, bytes]:
    """Return images that Pillow opens, but tfod does not: for EPS, Pillow starts Ghostscript."""
    return {"eps": plain_image((8, 8), kind="EPS"), "psd": photoshop()}
