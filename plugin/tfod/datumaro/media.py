"""Images on their way into a record and out of it; masks that stay in their shard until needed."""

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
from tfod.detection.images.exif_rotation import opposite, orientation_of, turned_back, upright_image
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
from tfod.errors import ShardError, TfodError
from tfod.example.example import Example
from tfod.formats.reading.files import ASSUMED_UPRIGHT, ROTATED_BY_EXIF
from tfod.sources.reading import decode_detection
from tfod.tfrecord.image_names import is_id_of, split_extension
from tfod.tfrecord.record_index import ByteSpan
from tfod.tfrecord.writer import OptionError

OF_IMAGE = frozenset((compat.AnnotationType.label, compat.AnnotationType.caption))
"""Annotations that are of no place in their image."""
_NO_BYTES = "images without data, their records hold none"
_HEADER_BYTES = 1 << 15  # enough for most headers
_MASK_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")  # the format asks for PNG; writers err


class UprightImage(NamedTuple):
    """An image as it is written: its pixels are stored as its EXIF orientation shows them.

    Attributes:
        filename: ``image/filename``.
        encoded: its file's bytes; None where they are not written.
        frame: height and width of what its annotations are of; None where nothing says them.
        size: its own.
        turn: what puts annotations of the pixels that were stored on these.
    """

    filename: str
    encoded: bytes | None
    frame: tuple[int, int] | None
    size: tuple[int, int] | None
    turn: int = UPRIGHT

    def place(self, objects: Detection) -> Detection:
        """The objects on the upright pixels."""
        if self.turn == UPRIGHT or self.size is None:
            return objects
        height, width = self.size
        return replace(turned_back(objects, self.turn), height=height, width=width)


@dataclass(frozen=True)
class ImageEncoder:
    """Decides what a record holds of an image.

    Attributes:
        save_media: whether images go into the shards at all.
        image_ext: the extension to re-encode to, if any.
        default_ext: the extension of an image that has none.
        is_needed: whether there is no record without an image.
        losses: where is counted which images were turned, and which have no bytes.

    Raises:
        OptionError: images cannot be encoded to the extension.
    """

    save_media: bool
    image_ext: str | None
    default_ext: str
    is_needed: bool = False
    losses: LossCounter = field(default_factory=LossCounter)

    def __post_init__(self) -> None:
        if self.image_ext and _dotted(self.image_ext).lower() not in FORMAT_OF_EXTENSION:
            known = ", ".join(FORMAT_OF_EXTENSION)
            raise OptionError(f"image_ext: {self.image_ext!r} is not one of {known}")

    def image(self, item: Any, tells: bool, is_stored: bool) -> UprightImage:
        """An item's image; one that has an EXIF orientation is turned, which is counted.

        Args:
            item: what has it.
            tells: whether the size that the dataset gives may tell which pixels its annotations
                are of: it does where the image is turned by a quarter and not square.
            is_stored: what holds else: whether they are of the stored pixels.

        Raises:
            TfodError: it is needed and there is none, is broken, or cannot be turned.
        """
        media = item.media if isinstance(item.media, compat.Image) else None
        is_there = media is not None and (media.has_data or not self.is_needed)
        encoded = self.encoded(item, media) if is_there else None
        if self.is_needed and not encoded:
            raise TfodError(
                f"item {item.id!r:.81} has no image, and this format has no record without one; "
                "import the dataset with its images"
            )
        name = self._filename(item, media, encoded)
        frame = media_size(media, encoded)
        turn = orientation_of(encoded) if encoded else UPRIGHT
        if not encoded or turn == UPRIGHT:
            return UprightImage(name, encoded, frame, frame)
        assert media is not None  # it has bytes
        turned, stored = upright_image(encoded, f"image {name!r:.81}"), image_size(encoded)
        shown = image_size(turned)
        tells = tells and media.has_size and stored != shown and frame in (stored, shown)
        of_stored = frame == stored if tells else is_stored
        if not media.has_size:
            frame = stored if of_stored else shown
        if self._must_reencode(turned):
            source = compat.image_from_bytes(lambda *_: turned, "", None)
            turned = self._reencoded(source, turned)
        self.losses.note(ROTATED_BY_EXIF, name)
        has_places = any(one.type not in OF_IMAGE for one in item.annotations)
        if has_places and not (tells or is_stored):
            self.losses.note(ASSUMED_UPRIGHT, name)
        return UprightImage(name, turned, frame, shown, opposite(turn) if of_stored else UPRIGHT)

    def encoded(self, item: Any, media: Any) -> bytes | None:
        """The image's bytes as they go into the record; None for a shard without images."""
        if media is None or not self.save_media:
            return None
        data = compat.image_bytes(media)
        if data is None:
            if media.has_data and media.data is not None:
                return self._reencoded(media, data)
            self.losses.note(_NO_BYTES, str(item.id))
            return None
        header, path = read_image_header(data, 0, len(data)), compat.image_path(media)
        # Bytes that are not a file come from a shard and go into one as they are.
        is_usable = bool(data and not path) or (header is not None and header.complete)
        if is_usable and (orientation_of(data) != UPRIGHT or not self._must_reencode(data)):
            return data
        if is_usable or header is None:
            with contextlib.suppress(Exception):  # whatever the decoder raises for other bytes
                return self._reencoded(media, data)
        from tfod.checker.analysis.encoded_images import looks_like  # only if an image is broken

        state = "damaged or cut short" if header else looks_like(data, 0, len(data))
        state = state or ("not a readable image" if data else "empty")
        name = path or self._filename(item, media, data)
        raise TfodError(f"item {item.id!r}: {name} is {state}; replace it")

    def _filename(self, item: Any, media: Any, encoded: bytes | None) -> str:
        """The one it was imported with, or the item's id with its extension."""
        original = item.attributes.get("filename")
        if isinstance(original, str) and is_id_of(item.id, original):
            if not self.image_ext:
                return original
            return split_extension(original)[0] + _dotted(self.image_ext)
        own = compat.extension_of(media, encoded) if media is not None else ""
        return str(item.id) + _dotted(self.image_ext or own or self.default_ext)

    def _reencoded(self, media: Any, data: bytes | None) -> bytes:
        extension = _dotted(self.image_ext or compat.extension_of(media, data) or "")
        if extension.lower() not in FORMAT_OF_EXTENSION:
            extension = self.default_ext if not extension else ".png"
        return bytes(compat.encode_image(media.data, extension.lower()))

    def _must_reencode(self, data: bytes) -> bool:
        """Only where an extension is asked for that the bytes are not."""
        if not self.image_ext:
            return False
        return FORMAT_OF_EXTENSION.get(_dotted(self.image_ext).lower()) != sniff_format(data[:16])


def media_size(media: Any, encoded: bytes | None) -> tuple[int, int] | None:
    """Height and width, from what is known or from a header; pixels are decoded last."""
    if media is None:
        return None
    if media.has_size:
        return tuple(media.size)
    path = compat.image_path(media)
    size = image_size(encoded) if encoded else None
    if encoded is None and path and os.path.isfile(path):
        size = file_size(path)
    if size is None:
        with contextlib.suppress(Exception):  # whatever the decoder raises for what is no image
            size = tuple(media.size) if media.size else None
    return size


def file_size(path: str) -> tuple[int, int] | None:
    """Height and width of an image on disk, by its header; None where that does not say."""
    with open(path, "rb") as file:
        size = image_size(file.read(_HEADER_BYTES))
        return size or image_size(Path(path).read_bytes())


def _dotted(extension: str) -> str:
    return extension if not extension or extension.startswith(".") else f".{extension}"


def record_size(found: Detections, row: int, on_disk: str | None) -> tuple[int, int] | None:
    """Height and width: as the record says, or else as its image's header says.

    Raises:
        RecordError: neither says it, and there are boxes.
    """
    height, width = found.sizes[row].tolist()
    if height > 0 and width > 0:
        return height, width
    size = file_size(on_disk) if on_disk else None
    if size is None and found.box_counts[row]:
        raise found.examples.error(
            row,
            "the image's size is not known (no image/height and image/width, and no image "
            "to take it from), so its boxes cannot be scaled",
            fix="write the size into the record",
        )
    return size


def record_media(
    head: bytes,
    span: ByteSpan,
    path: str,
    item_id: str,
    size: tuple[int, int] | None,
    on_disk: str | None,
) -> Any:
    """The image: in the shard, on disk beside it, or only its size.

    Args:
        head: the first 16 bytes of the encoded image; may be empty.
        span: where that is in the shard.
        path: its name, a safe relative path; may be empty.
        item_id: what it is called otherwise.
        size: height and width in pixels; None where they are not known.
        on_disk: its file beside the shard; None where there is none.
    """
    extension = split_extension(path)[1]
    if head:
        sniffed = sniff_format(head)
        channels = raw_channels(span.length, size) if sniffed is None else 0
        if channels and size is not None:
            pixels = RawPixels(span, (*size, channels))
            return compat.image_from_pixels(pixels, ".png", size)
        if not extension:
            extension = EXTENSION_OF_FORMAT.get(sniffed or "", DEFAULT_EXTENSION)
            path = item_id + extension
        return compat.image_from_bytes(span, path, size)
    if on_disk:
        return compat.image_from_file(on_disk, size)
    return None if size is None else compat.image_without_data(extension or DEFAULT_EXTENSION, size)


def raw_channels(length: int, size: tuple[int, int] | None) -> int:
    """How many channels bytes have that are pixels and no image file; 0 when they are not."""
    if size is None:
        return 0
    return next((n for n in (3, 1, 4) if length == size[0] * size[1] * n), 0)


class RawPixels:
    """Pixels that a shard holds without any encoding (``image/format`` is ``raw``)."""

    def __init__(self, span: ByteSpan, shape: tuple[int, int, int]) -> None:
        self.span = span
        self.shape = shape

    def __call__(self, *_: object) -> np.ndarray:
        """Return the pixels, uint8 of shape (height, width, channels), BGR as Datumaro has it."""
        pixels = np.frombuffer(self.span.read(), np.uint8).reshape(self.shape)
        return pixels[:, :, 0] if self.shape[2] == 1 else pixels[:, :, [2, 1, 0]]


@attr.s(slots=True, order=False, eq=False)
class BoxedMask(annotation.Mask):
    """A mask that knows the box its record gives the object.

    The box need not be the mask's extent (COCO's, for one, are not); it goes back out on export,
    as long as the pixels are the ones that it was given for.
    Equal to a plain ``Mask`` of the same pixels.
    """

    corners: PixelBox = attr.ib(kw_only=True, default=(0.0, 0.0, 0.0, 0.0))
    boxed: Any = attr.ib(kw_only=True, default=None)

    @classmethod
    def make(cls, image: Any, corners: PixelBox, **fields: Any) -> BoxedMask:
        """Build one; ``image`` is the pixels or a callable that returns them."""
        build: Callable[..., BoxedMask] = cls  # attrs makes its arguments, which have no types
        return build(image=image, corners=corners, boxed=image, **fields)

    @property
    def has_its_box(self) -> bool:
        """Whether the pixels are still those that the box is of; transforms replace them."""
        return self._image is self.boxed

    def get_bbox(self) -> list[float]:
        """The object's box as x, y, width, height; needs no look at the pixels."""
        if not self.has_its_box:
            return list(super().get_bbox())
        left, top, right, bottom = self.corners
        return [left, top, right - left, bottom - top]


@dataclass(frozen=True)
class LazyPngMask:
    """A mask that is read from its shard and decoded when Datumaro asks for it."""

    span: ByteSpan

    def __call__(self, *_: object) -> np.ndarray:
        """Return the mask, bool of shape (height, width).

        Raises:
            ShardError: the bytes are no image.
        """
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
    """One object's mask of a record that has them as numbers."""

    record: ByteSpan
    index: int

    def __call__(self, *_: object) -> np.ndarray:
        """Return the mask, bool of shape (height, width)."""
        example = Example.from_bytes(self.record.read(), self.record.shard.path)
        masks = decode_detection(example).numerical_masks
        assert masks is not None  # it was there when the mask was made
        return np.asarray(masks[self.index] > 0)
