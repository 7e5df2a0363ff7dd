"""Opening of images with Pillow, only in formats whose decoders start no program."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from PIL import Image

PILLOW_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
"""The formats of Pillow that are opened. EPS, for example, would start Ghostscript."""


def open_image(
    data: bytes | bytearray | memoryview, formats: Sequence[str] = PILLOW_FORMATS
) -> Image.Image:
    """Open an encoded image, which is decoded when its pixels are needed.

    Nothing else in tfod calls ``PIL.Image.open``, since an image chooses its decoder itself.

    Raises:
        ModuleNotFoundError: Pillow is not installed.
        PIL.UnidentifiedImageError: the bytes are not an image in one of the formats.
        Exception: Pillow raises many types for damaged images, also while it decodes them.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(data), formats=formats)
    except UnidentifiedImageError:
        raise UnidentifiedImageError(f"it is not a {'/'.join(formats)} image") from None


@contextmanager
def strict_pillow() -> Iterator[None]:
    """Make Pillow reject truncated images and suppress its warnings, in all threads."""
    try:
        from PIL import ImageFile
    except ImportError:
        raise TfodError(f"decoding images needs Pillow; {how_to_install('validator')}") from None
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
