"""The two lines of Datumaro, and the forks between them, as one set of names.

Datumaro 1.x (``components.dataset_base``, ``exporter``) and the 0.3 line that older CVAT servers
ship (``components.extractor``, ``converter``) name the same things differently, and forks between
them mix both: each name is probed on its own.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any

from datumaro.components import annotation as annotation
from datumaro.components import errors as errors
from datumaro.components import media as _media
from datumaro.components.format_detection import (
    FormatDetectionConfidence as FormatDetectionConfidence,
)
from datumaro.util.image import encode_image as encode_image
from datumaro.util.image import load_image
from datumaro.util.mask_tools import mask_to_polygons as mask_to_polygons

from tfod.detection.images.image import EXTENSION_OF_FORMAT, sniff_format
from tfod.tfrecord.image_names import split_extension


def _either(*places: str) -> Any:
    """The first of these, each a module of Datumaro's components and a name in it."""
    for place in places:
        module, _, name = place.partition(".")
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(f"datumaro.components.{module}"), name)
    raise ImportError(f"this Datumaro has none of {', '.join(places)}")


DatasetBase = _either("dataset_base.DatasetBase", "extractor.Extractor")
DatasetItem = _either("dataset_base.DatasetItem", "extractor.DatasetItem")
Importer = _either("importer.Importer", "extractor.Importer")
Exporter = _either("exporter.Exporter", "converter.Converter")
AnnotationType = annotation.AnnotationType
Image = _media.Image

Size = tuple[int, int]


def rotated_box(corners: tuple[float, float, float, float], degrees: float, **fields: Any) -> Any:
    """A box that is turned: a class of its own, or in the 0.3 line and in CVAT an attribute."""
    left, top, right, bottom = corners
    width, height = right - left, bottom - top
    if hasattr(annotation, "RotatedBbox"):
        center = left + width / 2, top + height / 2
        return annotation.RotatedBbox(*center, width, height, degrees, **fields)
    attributes = {**fields.pop("attributes"), "rotation": degrees}
    return annotation.Bbox(left, top, width, height, attributes=attributes, **fields)


_Encoded: Any = _either("media.ImageFromBytes", "media.ByteImage")


class EncodedImage(_Encoded):
    """An image file's bytes, which go into a file of the same extension as they are.

    Datumaro 1.x decodes them and encodes them again, which changes a JPEG's pixels; the 0.3 line
    and images on disk are copied.
    """

    def save(self, fp: Any, *arguments: Any, **options: Any) -> None:
        is_alike = isinstance(fp, str) and os.path.splitext(fp)[1].lower() == self.ext.lower()
        data = None if arguments or options or not is_alike else image_bytes(self)
        if data is None:
            super().save(fp, *arguments, **options)
            return
        os.makedirs(os.path.dirname(os.path.abspath(fp)), exist_ok=True)
        with open(fp, "wb") as file:
            file.write(data)


def image_from_bytes(data: Any, path: str, size: Size | None) -> Any:
    """An encoded image, loaded when it is asked for.

    Args:
        data: a callable that returns the bytes and ignores its arguments.
        path: the image's relative name with its extension.
        size: height and width in pixels.
    """
    if hasattr(Image, "from_bytes"):
        return EncodedImage(data=data, ext=split_extension(path)[1], size=size)
    return EncodedImage(data=data, path=path, size=size)


def image_from_file(path: str, size: Size | None) -> Any:
    """An image on disk."""
    if hasattr(Image, "from_file"):
        return Image.from_file(path=path, size=size)
    return Image(path=path, size=size)


def image_from_pixels(data: Any, extension: str, size: Size | None) -> Any:
    """An image whose pixels (BGR) a callable returns."""
    if hasattr(Image, "from_numpy"):
        return Image.from_numpy(data=data, ext=extension, size=size)
    return Image(data=data, ext=extension, size=size)


def image_without_data(extension: str, size: Size) -> Any:
    """An image of which only the size is known. Has no path: it must not find a file by it."""
    if hasattr(Image, "from_numpy"):
        return Image.from_numpy(data=None, ext=extension, size=size)
    return Image(ext=extension, size=size)


def image_path(media: Any) -> str:
    """The path of an image that is a file on disk; '' for any other."""
    kind = type(media)
    if kind.__name__ == "ImageFromFile":
        return str(media.path)
    # The 0.3 line has one class for all: a file it is when the default loader loads it.
    loader = getattr(getattr(media, "_data", None), "_loader", None)
    return str(media.path) if kind is Image and loader is load_image else ""


def image_bytes(media: Any) -> bytes | None:
    """The encoded bytes that an image has; None when it only has pixels, or nothing.

    Raises:
        OSError: the file that it is cannot be read.
    """
    if isinstance(media, _Encoded):
        data = media.get_bytes() if hasattr(media, "get_bytes") else media.bytes
        return bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else None
    path = image_path(media)
    if not path or not media.has_data:
        return None
    with open(path, "rb") as file:
        return file.read()


def extension_of(media: Any, data: bytes | None) -> str:
    """An image's extension: its own, or what its bytes say; '' when neither says."""
    own = str(getattr(media, "ext", "") or "")
    if own or data is None:
        return own
    return EXTENSION_OF_FORMAT.get(sniff_format(data[:16]) or "", "")
