"""The kinds of images that the TF Object Detection API can use, according to their headers.

It decodes a JPEG with ``tf.io.decode_jpeg(channels=3)`` and all other formats with
``tf.io.decode_image(channels=3)`` (tf_slim/data/tfexample_decoder.py), and needs height x width x 3
of uint8. The sources of these ops are tensorflow/core/kernels/image/decode_image_op.cc and
tensorflow/core/lib/{jpeg,png,gif,webp}; tests/training/tensorflow compares this module with them.
"""

from __future__ import annotations

from collections.abc import Callable

from tfod.detection.images.image import ImageHeader


def find_decoding_obstacle(header: ImageHeader) -> str:
    """Return the reason why TensorFlow cannot use an image, with the op that fails, or ''."""
    return _OBSTACLES[header.format](header)


# Limits of libjpeg and libpng, and those with which TensorFlow rejects images that are too large.
_MAX_JPEG_SIDE = 65500
_MAX_PNG_SIDE = 1_000_000
_MAX_JPEG_SAMPLES = _MAX_PNG_PIXELS = 1 << 29
_MAX_BMP_PIXELS = ((1 << 31) - 1) // 8


def _format_first(failure: str, *obstacles: tuple[bool, str]) -> str:
    """Return the first obstacle that is true, with the failure that follows from it, or ''."""
    return next((f"{reason}, so {failure}" for is_true, reason in obstacles if is_true), "")


def _find_jpeg_obstacle(header: ImageHeader) -> str:
    # Grayscale, color, CMYK and YCCK all decode, whether baseline, progressive or arithmetic.
    height, width, channels, note = header.height, header.width, header.channels, header.note
    size, samples = f"the JPEG of {height} x {width}", height * width * channels
    return _format_first(
        "tf.io.decode_jpeg fails ('jpeg::Uncompress failed')",
        (not height or not width, "the JPEG header has no height or width"),
        ("lossless" in note or "hierarchical" in note, f"the JPEG is {note}"),
        (header.bits != 8, f"the JPEG has {header.bits} bits per channel"),
        (channels not in (1, 3, 4), f"the JPEG has {channels} channels"),
        (max(height, width) > _MAX_JPEG_SIDE, f"{size} has a side above {_MAX_JPEG_SIDE}"),
        (samples >= _MAX_JPEG_SAMPLES, f"{size} x {channels} is too large"),
    )


def _find_png_obstacle(header: ImageHeader) -> str:
    # All bit depths and color types decode; an animated PNG decodes to its first frame.
    height, width = header.height, header.width
    is_large = max(height, width) > _MAX_PNG_SIDE or height * width >= _MAX_PNG_PIXELS
    return _format_first(
        "tf.io.decode_image fails",
        ("apple" in header.note, "the PNG was converted for iOS by Xcode (CgBI)"),
        (not height or not width, f"the PNG header has the size {height} x {width}"),
        (is_large, f"the PNG of {height} x {width} is too large"),
    )


def _find_bmp_obstacle(header: ImageHeader) -> str:
    # Uncompressed pixels of 8, 24 and 32 bits decode, if the file has exactly the expected size.
    notes, height, width = header.note.split(), header.height, header.width
    bits, size = header.bits if header.bits < 5 else 16, f"the BMP of {height} x {width}"
    return _format_first(
        "tf.io.decode_image fails",
        ("os2" in notes, "the BMP has the short header of OS/2"),
        (header.bits != 8, f"the BMP has {bits} bits per pixel"),
        ("compressed" in notes, "the BMP is compressed"),
        ("trailing" in notes, "the BMP has bytes after its pixels ('Input size should match')"),
        (not 0 < height * width < _MAX_BMP_PIXELS, f"{size} is empty or too large"),
    )


def _find_webp_obstacle(header: ImageHeader) -> str:
    if "animated" in header.note or header.channels == 4:
        return (
            "the WebP has an alpha channel or is animated, so tf.io.decode_image(channels=3) fails"
        )
    # Tested with TensorFlow 2.21; the first release with WebP is unknown.
    return (
        "tf.io.decode_image returns 1 x height x width x 3 for a WebP, or does not support it in "
        "older releases; the TF Object Detection API needs height x width x 3"
    )


_OBSTACLES: dict[str, Callable[[ImageHeader], str]] = {
    "jpeg": _find_jpeg_obstacle,
    "png": _find_png_obstacle,
    "bmp": _find_bmp_obstacle,
    "gif": lambda _: (
        "tf.io.decode_image returns frames x height x width x 3 for a GIF, but the TF Object "
        "Detection API needs height x width x 3"
    ),
    "webp": _find_webp_obstacle,
    "tiff": lambda _: "tf.io.decode_image does not support TIFF ('Unknown image file format')",
}
