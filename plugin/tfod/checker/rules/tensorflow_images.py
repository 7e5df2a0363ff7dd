"""Which kinds of images the TF Object Detection API can use, by the header alone.

It decodes a JPEG with ``tf.io.decode_jpeg(channels=3)`` and all else with
``tf.io.decode_image(channels=3)`` (tf_slim/data/tfexample_decoder.py), and needs height x width x 3
of uint8. What these ops do is in tensorflow/core/kernels/image/decode_image_op.cc and
tensorflow/core/lib/{jpeg,png,gif,webp}; tests/training/tensorflow holds what follows
against TensorFlow itself, kind by kind.
"""

from __future__ import annotations

from collections.abc import Callable

from tfod.detection.images.image import ImageHeader


def obstacle_to_decoding(header: ImageHeader) -> str:
    """Why TensorFlow cannot use an image of this kind, and which op fails; '' when it can."""
    return _OBSTACLES[header.format](header)


# Figures of libjpeg and libpng, and of TensorFlow's own guards against too large an image.
_LONGEST_JPEG_SIDE = 65500
_LONGEST_PNG_SIDE = 1_000_000
_MOST_JPEG_SAMPLES = _MOST_PNG_PIXELS = 1 << 29
_MOST_BMP_PIXELS = ((1 << 31) - 1) // 8


def _jpeg_obstacle(header: ImageHeader) -> str:
    """Gray, colour, CMYK and YCCK are fine, baseline, progressive and arithmetic ones as well."""
    fails = "tf.io.decode_jpeg fails ('jpeg::Uncompress failed')"
    height, width = header.height, header.width
    if not height or not width:
        return f"the JPEG's header leaves out its height or width, {fails}"
    if "lossless" in header.note or "hierarchical" in header.note:
        return f"the JPEG is {header.note}, {fails}"
    if header.bits != 8:
        return f"the JPEG has {header.bits} bits a channel, {fails}"
    if header.channels not in (1, 3, 4):
        return f"the JPEG has {header.channels} channels, {fails}"
    if max(height, width) > _LONGEST_JPEG_SIDE:
        return f"the JPEG of {height} x {width} has a side over {_LONGEST_JPEG_SIDE}, {fails}"
    if height * width * header.channels >= _MOST_JPEG_SAMPLES:
        return f"the JPEG of {height} x {width} x {header.channels} is too large, {fails}"
    return ""


def _png_obstacle(header: ImageHeader) -> str:
    """All depths and colour types are fine; of an animated one the first frame is taken."""
    height, width = header.height, header.width
    if "apple" in header.note:
        return "the PNG is one that Xcode rewrote for iOS (CgBI), tf.io.decode_image fails"
    if not height or not width:
        return f"the PNG's header says {height} x {width}, tf.io.decode_image fails"
    if max(height, width) > _LONGEST_PNG_SIDE or height * width >= _MOST_PNG_PIXELS:
        return f"the PNG of {height} x {width} is too large, tf.io.decode_image fails"
    return ""


def _bmp_obstacle(header: ImageHeader) -> str:
    """8, 24 and 32 bits a pixel, uncompressed, with not a byte more or less."""
    notes = header.note.split()
    fails = "tf.io.decode_image fails"
    if "os2" in notes:
        return f"the BMP has the short header of OS/2, {fails}"
    if header.bits != 8:
        bits = header.bits if header.bits < 5 else 16
        return f"the BMP has {bits} bits a pixel, {fails}"
    if "compressed" in notes:
        return f"the BMP is compressed, {fails}"
    if "trailing" in notes:
        return f"the BMP has bytes after its pixels, {fails} ('Input size should match')"
    if not header.height or not header.width or header.height * header.width >= _MOST_BMP_PIXELS:
        return f"the BMP of {header.height} x {header.width} is empty or too large, {fails}"
    return ""


def _webp_obstacle(header: ImageHeader) -> str:
    if "animated" in header.note or header.channels == 4:
        return "the WebP has an alpha channel or is animated, tf.io.decode_image(channels=3) fails"
    # TensorFlow 2.21 was asked; which release was the first to know WebP is not known.
    return (
        "tf.io.decode_image gives 1 x height x width x 3 for a WebP, or does not know it in older "
        "releases; the TF Object Detection API needs height x width x 3"
    )


_OBSTACLES: dict[str, Callable[[ImageHeader], str]] = {
    "jpeg": _jpeg_obstacle,
    "png": _png_obstacle,
    "bmp": _bmp_obstacle,
    "gif": lambda _: (
        "tf.io.decode_image gives frames x height x width x 3 for a GIF, the TF Object Detection "
        "API needs height x width x 3"
    ),
    "webp": _webp_obstacle,
    "tiff": lambda _: "tf.io.decode_image does not know TIFF ('Unknown image file format')",
}
