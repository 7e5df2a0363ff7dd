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


def _find_jpeg_obstacle(header: ImageHeader) -> str:
    # Grayscale, color, CMYK and YCCK all decode, whether baseline, progressive or arithmetic.
    fails = "tf.io.decode_jpeg fails ('jpeg::Uncompress failed')"
    height, width = header.height, header.width
    if not height or not width:
        return f"the JPEG header has no height or width, so {fails}"
    if "lossless" in header.note or "hierarchical" in header.note:
        return f"the JPEG is {header.note}, so {fails}"
    if header.bits != 8:
        return f"the JPEG has {header.bits} bits per channel, so {fails}"
    if header.channels not in (1, 3, 4):
        return f"the JPEG has {header.channels} channels, so {fails}"
    if max(height, width) > _MAX_JPEG_SIDE:
        return f"the JPEG of {height} x {width} has a side above {_MAX_JPEG_SIDE}, so {fails}"
    if height * width * header.channels >= _MAX_JPEG_SAMPLES:
        return f"the JPEG of {height} x {width} x {header.channels} is too large, so {fails}"
    return ""


def _find_png_obstacle(header: ImageHeader) -> str:
    # All bit depths and color types decode; an animated PNG decodes to its first frame.
    height, width = header.height, header.width
    if "apple" in header.note:
        return "the PNG was converted for iOS by Xcode (CgBI), so tf.io.decode_image fails"
    if not height or not width:
        return f"the PNG header has the size {height} x {width}, so tf.io.decode_image fails"
    if max(height, width) > _MAX_PNG_SIDE or height * width >= _MAX_PNG_PIXELS:
        return f"the PNG of {height} x {width} is too large, so tf.io.decode_image fails"
    return ""


def _find_bmp_obstacle(header: ImageHeader) -> str:
    # Uncompressed pixels of 8, 24 and 32 bits decode, if the file has exactly the expected size.
    notes = header.note.split()
    fails = "tf.io.decode_image fails"
    if "os2" in notes:
        return f"the BMP has the short header of OS/2, so {fails}"
    if header.bits != 8:
        bits = header.bits if header.bits < 5 else 16
        return f"the BMP has {bits} bits per pixel, so {fails}"
    if "compressed" in notes:
        return f"the BMP is compressed, so {fails}"
    if "trailing" in notes:
        return f"the BMP has bytes after its pixels, so {fails} ('Input size should match')"
    if not header.height or not header.width or header.height * header.width >= _MAX_BMP_PIXELS:
        return f"the BMP of {header.height} x {header.width} is empty or too large, so {fails}"
    return ""


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
