"""The same names for Datumaro 1.x, the 0.3 line in older CVAT servers, and forks of them.

The lines have different names for the same things, and forks mix both. Therefore each name is
looked up separately.
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


def _import_first(*names: str) -> Any:
    """Import the first available name of these, relative to ``datumaro.components``."""
    for path in names:
        module, _, name = path.partition(".")
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(f"datumaro.components.{module}"), name)
    raise ImportError(f"this Datumaro has none of {', '.join(names)}")


DatasetBase = _import_first("dataset_base.DatasetBase", "extractor.Extractor")
DatasetItem = _import_first("dataset_base.DatasetItem", "extractor.DatasetItem")
Importer = _import_first("importer.Importer", "extractor.Importer")
Exporter = _import_first("exporter.Exporter", "converter.Converter")
AnnotationType = annotation.AnnotationType
Image = _media.Image

Size = tuple[int, int]


def make_rotated_box(
    corners: tuple[float, float, float, float], degrees: float, **fields: Any
) -> Any:
    """Create a rotated box; the 0.3 line and CVAT store the rotation in an attribute."""
    left, top, right, bottom = corners
    width, height = right - left, bottom - top
    if hasattr(annotation, "RotatedBbox"):
        center = left + width / 2, top + height / 2
        return annotation.RotatedBbox(*center, width, height, degrees, **fields)
    attributes = {**fields.pop("attributes"), "rotation": degrees}
    return annotation.Bbox(left, top, width, height, attributes=attributes, **fields)


_Encoded: Any = _import_first("media.ImageFromBytes", "media.ByteImage")


class EncodedImage(_Encoded):
    """An encoded image, which is saved unchanged in a file with the same extension.

    Datumaro 1.x would encode it again, which changes the pixels of a JPEG.
    """

    def save(self, fp: Any, *arguments: Any, **options: Any) -> None:
        is_same_format = isinstance(fp, str) and os.path.splitext(fp)[1].lower() == self.ext.lower()
        data = None if arguments or options or not is_same_format else read_image_bytes(self)
        if data is None:
            super().save(fp, *arguments, **options)
            return
        os.makedirs(os.path.dirname(os.path.abspath(fp)), exist_ok=True)
        with open(fp, "wb") as file:
            file.write(data)


def image_from_bytes(data: Any, path: str, size: Size | None) -> Any:
    """Create an image that is loaded lazily; ``data`` returns its bytes, ``path`` is relative."""
    if hasattr(Image, "from_bytes"):
        return EncodedImage(data=data, ext=split_extension(path)[1], size=size)
    return EncodedImage(data=data, path=path, size=size)


def image_from_file(path: str, size: Size | None) -> Any:
    """Create an image from a path on disk."""
    if hasattr(Image, "from_file"):
        return Image.from_file(path=path, size=size)
    return Image(path=path, size=size)


def image_from_pixels(data: Any, extension: str, size: Size | None) -> Any:
    """Create an image from a function that returns its pixels (BGR).

    Without data, it has only a size. It has no path, by which Datumaro could find a file.
    """
    if hasattr(Image, "from_numpy"):
        return Image.from_numpy(data=data, ext=extension, size=size)
    return Image(data=data, ext=extension, size=size)


def get_image_path(media: Any) -> str:
    """Return the path of an image on disk, or ''."""
    kind = type(media)
    if kind.__name__ == "ImageFromFile":
        return str(media.path)
    # The 0.3 line has one class for all images; those on disk have the default loader.
    loader = getattr(getattr(media, "_data", None), "_loader", None)
    return str(media.path) if kind is Image and loader is load_image else ""


def read_image_bytes(media: Any) -> bytes | None:
    """Read an image's encoded bytes; None if it has only pixels or no data. May raise OSError."""
    if isinstance(media, _Encoded):
        data = media.get_bytes() if hasattr(media, "get_bytes") else media.bytes
        return bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else None
    path = get_image_path(media)
    if not path or not media.has_data:
        return None
    with open(path, "rb") as file:
        return file.read()


def get_extension(media: Any, data: bytes | None) -> str:
    """Return the extension of an image, or the one for its bytes, or '' if both are unknown."""
    extension = str(getattr(media, "ext", "") or "")
    if extension or data is None:
        return extension
    return EXTENSION_OF_FORMAT.get(sniff_format(data[:16]) or "", "")
