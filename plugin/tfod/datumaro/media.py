"""Conversion of images between Datumaro and records, and masks that are loaded lazily."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import attr
import numpy as np

from tfod.datumaro import compat
from tfod.datumaro.compat import annotation
from tfod.detection.box_geometry import PixelBox
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.exif_rotation import (
    invert_orientation,
    read_orientation,
    rotate_image,
    unrotate,
)
from tfod.detection.images.image import (
    DEFAULT_EXTENSION,
    EXTENSION_OF_FORMAT,
    FORMAT_OF_EXTENSION,
    UPRIGHT,
    image_size,
    read_image_header,
    sniff_format,
)
from tfod.detection.images.mask_images import decode_mask_png
from tfod.detection.losses import LossCounter
from tfod.errors import ShardError, TfodError, excerpt
from tfod.example.example import Example
from tfod.formats.reading.files import ASSUMED_UPRIGHT, ROTATED_BY_EXIF
from tfod.sources.reading import decode_detection
from tfod.tfrecord.image_names import is_id_for, split_extension
from tfod.tfrecord.record_index import ByteSpan
from tfod.tfrecord.writer import OptionError

IMAGE_LEVEL_TYPES = frozenset((compat.AnnotationType.label, compat.AnnotationType.caption))
"""Types of annotations without a position in their image."""
_NO_BYTES = "images without data, not in their records"
_HEADER_BYTES = 1 << 15  # enough for most headers
_MASK_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")  # only PNG is valid, but others occur


class UprightImage(NamedTuple):
    """An image to write, with its pixels rotated according to its EXIF orientation.

    Attributes:
        filename: value of ``image/filename``.
        encoded: bytes of the file; None if they are not written.
        frame: height and width of the image of its annotations; None if unknown.
        size: height and width of the rotated image.
        turn: EXIF orientation that converts annotations to the rotated image.
    """

    filename: str
    encoded: bytes | None
    frame: tuple[int, int] | None
    size: tuple[int, int] | None
    turn: int = UPRIGHT

    def rotate(self, objects: Detection) -> Detection:
        """Convert objects to the rotated image."""
        if self.turn == UPRIGHT or self.size is None:
            return objects
        height, width = self.size
        return replace(unrotate(objects, self.turn), height=height, width=width)


@dataclass(frozen=True)
class ImageEncoder:
    """Prepares images for records.

    Attributes:
        image_ext: extension to encode images to, if any; raises OptionError if it is unsupported.
        default_ext: extension of images that have none.
        is_needed: whether a record needs an image.
        losses: counter of images that were rotated or have no bytes.
    """

    save_media: bool
    image_ext: str | None
    default_ext: str
    is_needed: bool = False
    losses: LossCounter = field(default_factory=LossCounter)

    def __post_init__(self) -> None:
        if self.image_ext and _add_dot(self.image_ext).lower() not in FORMAT_OF_EXTENSION:
            supported = ", ".join(FORMAT_OF_EXTENSION)
            raise OptionError(f"image_ext: {excerpt(self.image_ext)} is not one of {supported}")

    def prepare(self, item: Any, trusts_size: bool, is_stored: bool) -> UprightImage:
        """Return an item's image, rotated according to its EXIF orientation.

        ``trusts_size`` means that the size in the dataset shows if annotations belong to the stored
        or to the rotated pixels, which only works if the rotation swaps height and width. Otherwise
        ``is_stored`` means that they belong to the stored pixels. Raises TfodError if the image is
        missing but needed, is damaged, or cannot be rotated.
        """
        media = item.media if isinstance(item.media, compat.Image) else None
        has_image = media is not None and (media.has_data or not self.is_needed)
        encoded = self.encode(item, media) if has_image else None
        if self.is_needed and not encoded:
            raise TfodError(
                f"item {excerpt(item.id)} has no image, which this format requires; import the "
                "dataset with its images"
            )
        name = self._choose_filename(item, media, encoded)
        frame = find_media_size(media, encoded)
        turn = read_orientation(encoded) if encoded else UPRIGHT
        if not encoded or turn == UPRIGHT:
            return UprightImage(name, encoded, frame, frame)
        assert media is not None  # it has bytes
        rotated, stored_size = (
            rotate_image(encoded, f"image {excerpt(name)}"),
            image_size(encoded),
        )
        rotated_size = image_size(rotated)
        is_swapped = stored_size != rotated_size and frame in (stored_size, rotated_size)
        trusts_size = trusts_size and media.has_size and is_swapped
        fits_stored = frame == stored_size if trusts_size else is_stored
        if not media.has_size:
            frame = stored_size if fits_stored else rotated_size
        if self._must_reencode(rotated):
            source = compat.image_from_bytes(lambda *_: rotated, "", None)
            rotated = self._reencode(source, rotated)
        self.losses.note(ROTATED_BY_EXIF, name)
        has_shapes = any(shape.type not in IMAGE_LEVEL_TYPES for shape in item.annotations)
        if has_shapes and not (trusts_size or is_stored):
            self.losses.note(ASSUMED_UPRIGHT, name)
        turn = invert_orientation(turn) if fits_stored else UPRIGHT
        return UprightImage(name, rotated, frame, rotated_size, turn)

    def encode(self, item: Any, media: Any) -> bytes | None:
        """Return the image's bytes for the record, or None if images are not saved."""
        if media is None or not self.save_media:
            return None
        data = compat.read_image_bytes(media)
        if data is None:
            if media.has_data and media.data is not None:
                return self._reencode(media, data)
            self.losses.note(_NO_BYTES, str(item.id))
            return None
        header, path = read_image_header(data, 0, len(data)), compat.get_image_path(media)
        # Bytes that are not from a file come from a shard, and are written unchanged.
        is_usable = bool(data and not path) or (header is not None and header.complete)
        if is_usable and (read_orientation(data) != UPRIGHT or not self._must_reencode(data)):
            return data
        if is_usable or header is None:
            with contextlib.suppress(Exception):  # decoders raise all kinds of exceptions
                return self._reencode(media, data)
        from tfod.checker.analysis.encoded_images import looks_like  # rarely needed

        state = "damaged or cut short" if header else looks_like(data, 0, len(data))
        state = state or ("not a readable image" if data else "empty")
        name = path or self._choose_filename(item, media, data)
        raise TfodError(f"item {excerpt(item.id)}: {name} is {state}; replace it")

    def _choose_filename(self, item: Any, media: Any, encoded: bytes | None) -> str:
        """Return the name from the import, or else the item's id with an extension."""
        original = item.attributes.get("filename")
        if isinstance(original, str) and is_id_for(item.id, original):
            if not self.image_ext:
                return original
            return split_extension(original)[0] + _add_dot(self.image_ext)
        extension = compat.get_extension(media, encoded) if media is not None else ""
        return str(item.id) + _add_dot(self.image_ext or extension or self.default_ext)

    def _reencode(self, media: Any, data: bytes | None) -> bytes:
        extension = _add_dot(self.image_ext or compat.get_extension(media, data) or "")
        if extension.lower() not in FORMAT_OF_EXTENSION:
            extension = self.default_ext if not extension else ".png"
        return bytes(compat.encode_image(media.data, extension.lower()))

    def _must_reencode(self, data: bytes) -> bool:
        """Check whether ``image_ext`` is set, and the bytes are in another format."""
        if not self.image_ext:
            return False
        return FORMAT_OF_EXTENSION.get(_add_dot(self.image_ext).lower()) != sniff_format(data[:16])


def find_media_size(media: Any, encoded: bytes | None) -> tuple[int, int] | None:
    """Find height and width; pixels are decoded only if no header has them."""
    if media is None:
        return None
    if media.has_size:
        return tuple(media.size)
    path = compat.get_image_path(media)
    size = image_size(encoded) if encoded else None
    if encoded is None and path and os.path.isfile(path):
        size = read_image_size(path)
    if size is None:
        with contextlib.suppress(Exception):  # decoders raise all kinds of exceptions
            size = tuple(media.size) if media.size else None
    return size


def read_image_size(path: str) -> tuple[int, int] | None:
    """Read height and width from the header of an image on disk; None if unknown."""
    with open(path, "rb") as file:
        size = image_size(file.read(_HEADER_BYTES))
        return size or image_size(Path(path).read_bytes())


def _add_dot(extension: str) -> str:
    return extension if not extension or extension.startswith(".") else f".{extension}"


def find_record_size(
    detections: Detections, row: int, on_disk: str | None
) -> tuple[int, int] | None:
    """Return height and width from the record, or else from its image's header.

    Raises RecordError if the size is unknown and there are boxes.
    """
    height, width = detections.sizes[row].tolist()
    if height > 0 and width > 0:
        return height, width
    size = read_image_size(on_disk) if on_disk else None
    if size is None and detections.box_counts[row]:
        raise detections.examples.error(
            row,
            "the image size is unknown (no image/height and image/width, and no image), so the "
            "boxes cannot be scaled",
            fix="write the size into the record",
        )
    return size


def make_media(
    head: bytes,
    span: ByteSpan,
    path: str,
    item_id: str,
    size: tuple[int, int] | None,
    on_disk: str | None,
) -> Any:
    """Create the image: from the shard, from a file next to it, or with a size only.

    Args:
        head: first 16 bytes of the encoded image; may be empty.
        span: location of the encoded image in the shard.
        path: safe relative path of the image; ``item_id`` if it is empty.
        item_id: id of the item.
        size: height and width in pixels; None if unknown.
        on_disk: path of its file next to the shard, if any.
    """
    extension = split_extension(path)[1]
    if head:
        sniffed = sniff_format(head)
        channels = count_raw_channels(span.length, size) if sniffed is None else 0
        if channels and size is not None:
            pixels = RawPixels(span, (*size, channels))
            return compat.image_from_pixels(pixels, ".png", size)
        if not extension:
            extension = EXTENSION_OF_FORMAT.get(sniffed or "", DEFAULT_EXTENSION)
            path = item_id + extension
        return compat.image_from_bytes(span, path, size)
    if on_disk:
        return compat.image_from_file(on_disk, size)
    if size is None:
        return None
    return compat.image_from_pixels(None, extension or DEFAULT_EXTENSION, size)


def count_raw_channels(length: int, size: tuple[int, int] | None) -> int:
    """Return the number of channels of unencoded pixels; 0 if they have another length."""
    if size is None:
        return 0
    return next((n for n in (3, 1, 4) if length == size[0] * size[1] * n), 0)


class RawPixels:
    """Unencoded pixels in a shard (``image/format`` is ``raw``)."""

    def __init__(self, span: ByteSpan, shape: tuple[int, int, int]) -> None:
        self.span = span
        self.shape = shape

    def __call__(self, *_: object) -> np.ndarray:
        """Return the pixels, uint8 of shape (height, width, channels), BGR as in Datumaro."""
        pixels = np.frombuffer(self.span.read(), np.uint8).reshape(self.shape)
        return pixels[:, :, 0] if self.shape[2] == 1 else pixels[:, :, [2, 1, 0]]


@attr.s(slots=True, order=False, eq=False)
class BoxedMask(annotation.Mask):
    """A mask with the box from its record.

    The box can differ from the extent of the mask, as in COCO. It is exported again unless the
    pixels were changed. Equal to a plain ``Mask`` of the same pixels.
    """

    corners: PixelBox = attr.ib(kw_only=True, default=(0.0, 0.0, 0.0, 0.0))
    boxed: Any = attr.ib(kw_only=True, default=None)

    @classmethod
    def make(cls, image: Any, corners: PixelBox, **fields: Any) -> BoxedMask:
        """Create a mask; ``image`` is the pixels or a function that returns them."""
        build: Callable[..., BoxedMask] = cls  # attrs generates the arguments, without types
        return build(image=image, corners=corners, boxed=image, **fields)

    @property
    def has_its_box(self) -> bool:
        """Whether the pixels are unchanged; transforms replace them."""
        return self._image is self.boxed

    def get_bbox(self) -> list[float]:
        """Return the object's box as x, y, width, height, without reading the pixels."""
        if not self.has_its_box:
            return list(super().get_bbox())
        left, top, right, bottom = self.corners
        return [left, top, right - left, bottom - top]


@dataclass(frozen=True)
class LazyPngMask:
    """A mask in a shard, which is read and decoded on demand."""

    span: ByteSpan

    def __call__(self, *_: object) -> np.ndarray:
        """Return the mask, bool of shape (height, width), or raise ShardError."""
        try:
            return decode_mask_png(self.span.read(), _MASK_FORMATS)
        except ValueError:
            raise ShardError(
                "a mask cannot be decoded, its bytes are not a PNG image",
                shard=self.span.shard.path,
                offset=self.span.offset,
                fix="export the shard again",
            ) from None


@dataclass(frozen=True)
class LazyNumericalMask:
    """The mask of one object of a record with numerical masks, which is read on demand."""

    record: ByteSpan
    index: int

    def __call__(self, *_: object) -> np.ndarray:
        """Return the mask, bool of shape (height, width)."""
        example = Example.from_bytes(self.record.read(), self.record.shard.path)
        masks = decode_detection(example).numerical_masks
        assert masks is not None  # it existed when the mask was created
        return np.asarray(masks[self.index] > 0)
