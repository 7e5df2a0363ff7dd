"""The rules for images: their messages, and near misses."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFile
from tfod.checker.analysis.decoding import find_decoding_error, strict_pillow
from tfod.checker.analysis.encoded_images import ImageFacts, looks_like
from tfod.checker.check import check_sources
from tfod.checker.finding import Severity
from tfod.detection.images.image import ImageHeader, read_image_header
from tfod.errors import TfodError

from tests.image_kinds import exif_block, image_of, png, saved, with_segment
from tests.image_rules import problems_by_code
from tests.mutants.sound import flip, jpeg, shard, with_boxes

JPEG = ImageHeader("jpeg", 100, 200, 3, 8, 1, True, "")


def facts(header: ImageHeader | None = JPEG, **declared: object) -> ImageFacts:
    return ImageFacts(-1 if header else 0, header, **declared)


def of(data: bytes, **declared: object) -> ImageFacts:
    return facts(read_image_header(data, 0, len(data)), **declared)


RAW = {"declared_height": 10, "declared_width": 20}
TURNED = JPEG._replace(orientation=6)
EXCHANGED = {"declared_height": 200, "declared_width": 100}
RIGHT = {"declared_height": 100, "declared_width": 200}
WIDER = {"declared_height": 100, "declared_width": 201}
OF_TENSORFLOW = {
    "jpeg 12 bits": "12 bits",
    "jpeg lossless": "lossless",
    "jpeg two components": "2 channels",
    "jpeg without height": "no height or width",
    "png apple": "CgBI",
    "gif": "frames x height",
    "bmp 1 bits": "1 bits per pixel",
    "bmp 16 bits": "16 bits per pixel",
    "bmp rle": "compressed",
    "bmp 24 bits os2": "OS/2",
    "bmp bytes after the end": "after its pixels",
    "tiff RGB": "does not support TIFF",
}
"""Words of the messages; tests/training/tensorflow compares the rule with TensorFlow."""


@pytest.mark.parametrize(
    ("image", "code", "words"),
    [
        (ImageFacts(77), "IMG002", "the 77 bytes are not a readable image"),
        (ImageFacts(77, looks_like="HTML"), "IMG002", "they look like HTML"),
        *((ImageFacts(200 * n, **RAW), "IMG002", f"pixels, 10 x 20 x {n}") for n in (1, 3, 4)),
        *(
            (facts(declared_format=name), code, f"is {name!r}, but the image is a JPEG")
            for code, names in (("IMG004", "png PNG jpeg2000 peg"), ("IMG014", "raw RAW"))
            for name in names.split()
        ),
        *((of(image_of(kind)), "IMG005", words) for kind, words in OF_TENSORFLOW.items()),
        (facts(JPEG._replace(format="webp", channels=4)), "IMG005", "WebP"),
        (facts(JPEG._replace(format="bmp", height=20000, width=20000)), "IMG005", "too large"),
        (facts(**WIDER), "IMG006", "are 100 x 201, but the image is 1"),
        (facts(declared_height=7), "IMG006", "image/height is 7,"),
        (facts(declared_width=7), "IMG006", "image/width is 7,"),
        (facts(**EXCHANGED), "IMG006", "height and width are swapped"),
        (facts(TURNED, **EXCHANGED), "IMG006", "as after applying the EXIF orientation 6"),
        *((facts(declared_width=n), "IMG012", f"image/width is {n}") for n in (0, -1)),
    ],
)
def test_messages(image: ImageFacts, code: str, words: str) -> None:
    found = problems_by_code(image)
    assert words in found[code].message
    assert not {"IMG004", "IMG006"} & found.keys() - {code}


def test_names_of_the_format() -> None:
    for name in ("jpeg", "jpg", "JPG", ".jpg", "image/jpeg", "jpe", "", None):
        assert not problems_by_code(facts(declared_format=name))
    two_channels = ImageFacts(400, declared_height=10, declared_width=20)
    assert "raw" not in problems_by_code(two_channels)["IMG002"].message


def test_fixes() -> None:
    assert "encode the pixels" in problems_by_code(ImageFacts(200, **RAW))["IMG002"].fix
    problem = problems_by_code(facts(declared_format="png"))["IMG004"]
    assert (problem.feature, problem.value) == ("image/format", "png")
    assert problem.fix == "In {script}, write 'jpeg' into image/format."
    assert "swap" in problems_by_code(facts(**EXCHANGED))["IMG006"].fix
    assert "exif_transpose" in problems_by_code(facts(TURNED, **EXCHANGED))["IMG006"].fix


def test_the_size_of_the_rotated_image_is_an_error() -> None:
    problem = problems_by_code(facts(TURNED, **EXCHANGED))["IMG007"]
    assert problem.case == "turned"
    assert "the size of the rotated image, 200 x 100" in problem.message
    upside_down = JPEG._replace(orientation=3)
    sizes = {"declared_height": 200, "declared_width": 200}
    for image in (
        *(facts(TURNED, **how) for how in (RIGHT, {}, sizes)),
        facts(upside_down, **EXCHANGED),
    ):
        assert problems_by_code(image)["IMG007"].case == ""


@pytest.mark.parametrize(
    ("boxes", "is_error"),
    [
        ([(0.1, 0.2, 0.4, 1.8)], True),
        ([(0.1, 0.2, 0.4, 1.8), (0, 0, 0.1, 0.1)], True),
        ([(0.1, 0.2, 0.6, 1.8)], False),  # fits neither
        ([(0.1, 0.2, 0.4, 1.8), (0, 0, 0.9, 0.1)], False),  # both together fit neither
        ([(0.1, 0.2, 0.4, 0.9)], False),  # fits both
        ([(0.1, 0.2, 0.4, 1.01)], False),  # carelessness
        ([(float("nan"), 0.2, 0.4, 1.8)], False),
        ([(-0.5, 0.2, 0.4, 1.8)], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("orientation", [3, 5, 6, 7, 8])
def test_boxes_of_rotated_images(
    tmp_path: Path, boxes: Any, is_error: bool, orientation: int
) -> None:
    """Images of 40 by 20; the boxes of the second one fit both, so it has a warning."""
    exif = with_segment(jpeg(), 0xE1, b"Exif\0\0" + exif_block(orientation))
    records = with_boxes(boxes, encoded=exif), with_boxes([], encoded=exif, filename="b.jpg")
    (tmp_path / "a.tfrecord").write_bytes(shard(*records))
    report = check_sources([str(tmp_path)])
    (first, second) = [one for one in report.findings if one.code == "IMG007"]
    is_error = is_error and orientation >= 5
    assert first.severity is (Severity.ERROR if is_error else Severity.WARNING)
    assert second.severity is Severity.WARNING
    assert report.severities["IMG007"] is first.severity
    assert ("the boxes only fit the rotated image, 40 x 20" in first.message) is is_error


@pytest.mark.parametrize(
    ("look", "data"),
    [
        ("", b""),
        ("all zeros", bytes(20)),
        ("20 times the byte 204", b"\xcc" * 20),
        ("a JPEG with a damaged header", b"\xff\xd8\xff\xe0\0\x10JFIF"),
        ("a PNG with a damaged header", png(8, 2)[:20]),
        ("an AVIF image", b"\0\0\0\x1cftypavif\0\0\0\0"),
        ("a HEIC image", b"\0\0\0\x1cftypheic\0\0\0\0"),
        ("a JPEG XL image", b"\0\0\0\x0cJXL \r\n\x87\n"),
        ("a JPEG XL image", b"\xff\x0a\xfa\x7f"),
        ("a PNM image", b"P6 3 2 255\n"),
        ("a NumPy array", b"\x93NUMPY\x01\0"),
        ("HTML", b"<!DOCTYPE html><html>"),
        ("HTML", b"\n <html lang='en'>"),
        ("an SVG drawing", b'<?xml version="1.0"?><svg>'),
        ("XML", b'<?xml version="1.0"?><a>'),
        ("JSON", b'{"error": 404}'),
        ("a zip archive", b"PK\x03\x04\x14\0"),
        ("a path", b"data/images/a b.JPG"),
        ("a path", b"C:\\images\\x.png"),
        ("a URL", b"https://example.com/a.jpg"),
        ("an image in base64", b"/9j/4AAQSkZJRgABAQ=="),
        ("a data URL", b"data:image/png;base64,iVBORw0KGgo"),
        ("the text that Python prints for bytes", str(b"\xff\xd8\xff\xe0").encode()),
        ("text that was an image", "\xff\xd8\xff\xe0".encode()),
        ("text that was an image", b"\xff\xd8\xff\xe0".decode(errors="replace").encode()),
        ("text", b"just some words"),
        ("", b"\x01\x02\x03\xfe"),
    ],
)
def test_looks_like(data: bytes, look: str) -> None:
    buffer = bytearray(b"<html>" + data + b"\0after")
    assert looks_like(buffer, 6, 6 + len(data)) == look


@given(st.binary(max_size=600))
def test_any_bytes_look_like_something(data: bytes) -> None:
    looks_like(data, 0, len(data))


def failure_of(data: bytes | bytearray | memoryview) -> str:
    with strict_pillow():
        return find_decoding_error(data)


@pytest.mark.parametrize("lenient", [False, True])
def test_truncated_images(lenient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if other code in the process makes Pillow lenient."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", lenient)
    data = saved("RGB", "JPEG", (200, 200))
    assert "truncated" in failure_of(data[: len(data) // 2])
    assert lenient == ImageFile.LOAD_TRUNCATED_IMAGES


def test_decoding_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (b"<html></html>", b"%!PS-Adobe-3.0 EPSF-3.0\n%%EOF\n"):
        assert "not a JPEG/PNG" in failure_of(data)  # Pillow would start Ghostscript
    data = saved("RGB", "PNG")
    checksum = data.index(b"IEND") - 8  # of the last IDAT; Pillow ignores it, libpng does not
    assert failure_of(flip(data, checksum)) == "the checksum of a chunk of the PNG is wrong"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert "more than 200 pixels" in failure_of(data)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(TfodError, match=r"pip install '\.\[validator\]'"):
        failure_of(b"")


@given(st.sampled_from(["jpeg RGB", "png P", "gif", "bmp rle", "tiff lzw"]), st.data())
def test_any_damage(kind: str, data: st.DataObject) -> None:
    changed = bytearray(image_of(kind))
    for _ in range(3):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(failure_of(changed), str)


def fails_in_full(data: bytes | bytearray) -> bool:
    """Whether all pixels of an image, in colour, cannot be decoded."""
    with strict_pillow():
        try:
            Image.open(io.BytesIO(data)).load()
        except Exception:
            return True
    return False


@given(
    st.sampled_from([{}, {"progressive": True}, {"subsampling": 0}]),
    st.sampled_from(["RGB", "L", "CMYK"]),
    st.booleans(),
    st.data(),
)
def test_a_small_gray_image_has_the_damage_of_the_whole(
    how: dict[str, Any], mode: str, cut: bool, data: st.DataObject
) -> None:
    """JPEGs are decoded to an eighth of their width, without colour."""
    changed = bytearray(saved(mode, "JPEG", (64, 48), quality=90, **how))
    place = data.draw(st.integers(0, len(changed) - 1))
    if cut:
        del changed[place:]
    else:
        changed[place] = data.draw(st.integers(0, 255))
    assert bool(failure_of(changed)) == fails_in_full(changed)
