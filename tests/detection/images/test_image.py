"""Headers of images, with Pillow as the oracle, and damaged images."""

from __future__ import annotations

import io
import itertools
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tfod.detection.images.image import (
    EXTENSION_OF_FORMAT,
    FORMAT_OF_EXTENSION,
    ImageHeader,
    image_size,
    read_image_header,
    sniff_format,
)

from tests.image_kinds import (
    HEIGHT,
    KINDS,
    WIDTH,
    bmp,
    exif_block,
    exif_jpeg,
    image_of,
    lossless_jpeg,
    plain_image,
    png,
    saved,
    with_segment,
)

# Channels of Pillow's modes; the colours of a palette count.
CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 2, "P": 3, "RGB": 3, "RGBA": 4, "CMYK": 4}
# Kinds for which Pillow has no separate mode.
OTHER_MODES = {"png color 4 bits 16": 2, "png color 4 bits 16 interlaced": 2}
OTHER_MODES |= {"bmp RGBA": 4, "bmp 1": 3}
NOT_FOR_PILLOW = {f"jpeg {x}" for x in ("12 bits", "lossless 16 bits", "two components")}
ORIENTED = {"jpeg exif <": 6, "jpeg exif >": 6, "png exif": 8, "tiff orientation": 6}
ORIENTED |= {"webp exif": 3}


def read_header(data: bytes) -> ImageHeader | None:
    """Read a header between other bytes, as the checker does."""
    before, after = b"\xff\xd8\xff\xe0IEND", b"\xff\xd9\xff\xc0IEND\xaeB`\x82"
    return read_image_header(bytearray(before + data + after), len(before), len(before) + len(data))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str) -> None:
    data = image_of(kind)
    header = read_header(data)
    assert header is not None and header == read_image_header(data, 0, len(data))
    assert header.format == kind.split()[0] == sniff_format(data[:16])
    assert (header.width, header.complete) == (WIDTH, True)
    assert header.height == (0 if kind == "jpeg without height" else HEIGHT)
    assert header.orientation == ORIENTED.get(kind, 1)
    assert hash(header) == hash(read_header(data))
    if kind in NOT_FOR_PILLOW or not header.height:
        return
    try:
        with Image.open(io.BytesIO(data)) as image:
            mode, seen_format, seen_size = image.mode, image.format, image.size
    except (OSError, SyntaxError):
        pytest.skip("this Pillow does not open it")
    assert header.format.upper() == seen_format
    # Newer Pillow rotates a TIFF.
    size = (header.width, header.height)
    assert seen_size in ((size, size[::-1]) if kind == "tiff orientation" else (size,))
    if header.format != "gif" and not kind.startswith("bmp 32"):
        assert header.channels == OTHER_MODES.get(kind, CHANNELS.get(mode)), mode


BITS_AND_NOTES = {
    "jpeg 12 bits": (12, ""), "jpeg CMYK": (8, "cmyk"), "jpeg ycck": (8, "cmyk"),
    "jpeg arithmetic": (8, "arithmetic"), "jpeg lossless 16 bits": (16, "lossless"),
    "jpeg hierarchical": (8, "hierarchical"), "png color 2 bits 16": (16, ""),
    "png color 3 bits 2 interlaced": (2, "palette interlaced"), "png animated": (8, "animated"),
    "png apple": (8, "apple"), "gif animated": (8, "animated"), "gif": (8, ""),
    "bmp 16 bits": (5, ""), "bmp 24 bits os2": (8, "os2"), "bmp rle": (8, "palette compressed"),
    "bmp bytes after the end": (8, "trailing"), "bmp L": (8, ""), "tiff I;16": (16, ""),
    "tiff CMYK": (8, "cmyk"), "tiff P": (8, "palette"), "webp lossless alpha": (8, ""),
    "webp animated": (8, "animated"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BITS_AND_NOTES)
def test_bits_and_notes(kind: str) -> None:
    if kind not in KINDS:
        pytest.skip("this Pillow cannot write it")
    header = read_header(image_of(kind))
    assert header is not None and (header.bits, header.note) == BITS_AND_NOTES[kind]


def test_orientations() -> None:
    for orientation, order in itertools.product(range(1, 9), "<>"):
        data = exif_jpeg(orientation, order)
        header = read_header(data)
        assert header is not None and header.orientation == orientation
        with Image.open(io.BytesIO(data)) as image:
            assert image.getexif()[0x0112] == orientation


def test_exif_without_an_orientation() -> None:
    headers = b"", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff"
    blocks = [b"Exif\0\0" + one for one in (*headers, exif_block(9), exif_block(0))]
    for body in (b"", *blocks, b"http://ns.adobe.com/xap/1.0/\0" + exif_block(6)):
        header = read_header(with_segment(saved("RGB", "JPEG"), 0xE1, body))
        assert header is not None and header.orientation == 1, body


def test_first_exif_and_end_of_an_image_with_a_thumbnail() -> None:
    exif = b"Exif\0\0" + exif_block(8)
    header = read_header(with_segment(exif_jpeg(3), 0xE1, exif))
    assert header is not None and header.orientation == 8
    jpeg = with_segment(saved("RGB", "JPEG"), 0xE1, exif + saved("RGB", "JPEG", (8, 8)))
    header, cut = read_header(jpeg), read_header(jpeg[:-2])
    assert header is not None and (header.height, header.complete) == (HEIGHT, True)
    assert cut is not None and not cut.complete


def test_the_end_of_an_image() -> None:
    cut_short = [saved("RGB", "JPEG")[:-2], lossless_jpeg()[:-1], saved("P", "GIF")[:-1]]
    cut_short += [png(8, 2)[:-12], png(8, 2)[:-1], bmp(24)[:-1], bmp(8)[:-1]]
    for data in cut_short:
        header = read_header(data)
        assert header is not None and not header.complete
    for kind, junk in itertools.product(
        ("jpeg RGB", "png RGB", "gif"), (b"\0", b"\r\n", bytes(3000))
    ):
        header = read_header(image_of(kind) + junk)
        assert header is not None and header.complete


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff\xd8\xff", b"\xff\xd8\xff\xd9" + bytes(20), b"\xff\xd8\xff\xda" + bytes(20),
        b"\xff\xd8" + b"\xff\xfe\0\2" * 5000 + saved("L", "JPEG")[2:],
        b"\x89PNG\r\n\x1a\n" + bytes(40), b"RIFF\x24\0\0\0WAVEfmt " + bytes(40),
        b"BM" + bytes(60), b"II*\0\x08\0\0\0\0\0" + bytes(20),
        b"<html><body>Not Found</body></html>", bytes(100),
    ],
)  # fmt: skip
def test_other_files(data: bytes) -> None:
    assert read_header(data) is None
    assert image_size(data) is None


def test_tables() -> None:
    for name, extension in EXTENSION_OF_FORMAT.items():
        assert FORMAT_OF_EXTENSION[extension] == name
    assert sniff_format(b"RIFF1234WAVE") is None
    assert image_size(saved("RGB", "JPEG")) == (HEIGHT, WIDTH)
    assert image_size(image_of("jpeg without height")) is None


SAMPLES = [image_of(kind) for kind in KINDS if "icc" not in kind]


@given(st.sampled_from([sample[:16] for sample in SAMPLES]), st.binary(max_size=300))
def test_random_bytes_after_a_signature(head: bytes, data: bytes) -> None:
    for length in (2, 4, 8, 12, 16):
        read_header(head[:length] + data)


@given(st.sampled_from(SAMPLES), st.data())
def test_changed_and_cut(sample: bytes, data: st.DataObject) -> None:
    """Headers of damaged images are plausible, and nothing raises."""
    changed = bytearray(sample)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, min(len(sample), 200) - 1))
        changed[place] ^= 1 << data.draw(st.integers(0, 7))
    header = read_header(bytes(changed[: data.draw(st.integers(0, len(sample)))]))
    if header is not None:
        assert header.height >= 0 and header.width >= 0 and 1 <= header.orientation <= 8


@pytest.mark.parametrize(
    "kind", ["jpeg exif <", "png exif", "gif", "bmp 8 bits", "tiff RGB", "webp exif"]
)
def test_every_truncation_and_every_flipped_bit(kind: str) -> None:
    if kind not in KINDS:
        pytest.skip("this Pillow cannot write it")
    data = image_of(kind)
    for length in range(len(data)):
        read_image_header(data, 0, length)
        read_header(data[:length])
    for bit in range(min(len(data), 300) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        read_image_header(changed, 0, len(changed))


@given(
    st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "TIFF"]),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(["1", "L", "P", "RGB"]),
)
def test_sizes_as_pillow_writes_them(image_format: str, width: int, height: int, mode: str) -> None:
    if image_format == "JPEG" and mode == "P":
        mode = "L"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        header = read_header(plain_image((width, height), 0, image_format, mode))
    assert header is not None
    assert (header.height, header.width, header.complete) == (height, width, True)
