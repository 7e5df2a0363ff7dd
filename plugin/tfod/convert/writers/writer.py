"""What all writers share: names of images, their files, and what a format has no place for."""

from __future__ import annotations

import abc
import os
import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tfod.convert.dataset import Images
from tfod.convert.losses import Losses
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.images.image import (
    DEFAULT_EXTENSION,
    EXTENSION_OF_FORMAT,
    FORMAT_OF_EXTENSION,
    sniff_format,
)
from tfod.detection.images.masks import decode_mask_png, is_box_png
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.tfrecord.image_names import IdMaker, safe_relative_path, split_extension

NO_PLACE = "not written, the format has no place for them"
_NO_IMAGE = "images without bytes in their records, not written"
NO_FOLDER = "images not written, name a folder for them with --images"
_OTHER_IDS = "source ids that are not the number of one image, which got another"
_SIGNATURE = 16
_UNSPEAKABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""What XML cannot hold, and what ends a line of a list."""
_HIDDEN = re.compile(r"(?:(?<=/)|\A)\.")
_DIGITS = 16  # of an id at most: JSON's numbers are doubles for many readers
Mask: TypeAlias = "np.ndarray | bytes | memoryview"
"""The pixels of a mask, or its PNG file's bytes."""
_DEFAULTS = {one.name: one.default for one in keys.OBJECT_ATTRIBUTES}


class Writer(abc.ABC):
    """Writes the files of one format; subclasses say which.

    Args:
        folder: where to write, which holds nothing yet.
        image_folder: where to write images; None leaves them out, which is counted.
        target: the path that the folder will have.

    Attributes:
        losses: what does not come along.
        documents: paths of the files that hold the annotations of a subset, or of all.
    """

    IMAGES = "images"
    """Where images are within the folder, unless another one is named."""
    CARRIES: frozenset[str] = frozenset()
    """What the format has a place for: attributes of objects, ``masks``, ``keypoints``, …"""
    ALL_ATTRIBUTES = False
    """Whether it has one for any attribute of an object."""
    NO_SUBSETS: frozenset[str] = frozenset()
    """Names that it has for something else, so that no subset can have them."""

    def __init__(self, folder: str, image_folder: str | None, target: str) -> None:
        self.folder = folder
        self.losses = Losses(NO_PLACE)
        self.documents: list[str] = []
        self._image_folder = image_folder
        self._names: dict[str, IdMaker] = {}
        self._made: set[str] = set()
        self._free, self._taken = 1, set[int]()  # numbers of images

    @abc.abstractmethod
    def begin(self, subset: str) -> None:
        """Begin a subset, which may turn out to have no images."""

    @abc.abstractmethod
    def add(self, images: Images, label_map: LabelMap) -> None:
        """Write some images of the subset that was begun; the label map has their classes."""

    @abc.abstractmethod
    def finish(self, label_map: LabelMap) -> None:
        """Write what is left when all subsets are there."""

    # What subclasses use

    def _image_names(self, images: Images, scope: str = "") -> list[str]:
        """A safe file name for each image, whose stem no other one of the scope has."""
        ids = self._names.setdefault(scope, IdMaker())
        names = []
        for row, filename in enumerate(images.filenames):
            path = _UNSPEAKABLE.sub("_", safe_relative_path(filename or ""))
            ending = split_extension(path)[1]
            if ending and ending.lower() not in FORMAT_OF_EXTENSION:
                path += _extension(images, row)  # readers look for images by their extensions
            if path.startswith(".") or "/." in path:  # readers pass over hidden files
                path = _HIDDEN.sub("_.", path)
            stem, extension = ids.make(path, "image")
            names.append(stem + (extension or _extension(images, row)))
        return names

    def _image_numbers(self, images: Images) -> list[int]:
        """A number for each image: its source id where that is one, and free; else the next."""
        texts = [one or "" for one in images.source_ids]
        numbers = [int(one) if one.isdecimal() and len(one) < _DIGITS else -1 for one in texts]
        distinct = set(numbers)
        if len(distinct) < len(numbers) or -1 in distinct or not self._taken.isdisjoint(distinct):
            for row, number in enumerate(numbers):
                if number < 0 or number in self._taken:
                    self.losses[_OTHER_IDS][""] += texts[row] not in ("", images.filenames[row])
                    while self._free in self._taken:
                        self._free += 1
                    numbers[row] = self._free
                self._taken.add(numbers[row])
        self._taken.update(numbers)
        return numbers

    def _write_images(self, images: Images, names: Sequence[str], inside: str = "") -> None:
        """Write the image files of a batch into a folder inside that of the images."""
        rows = images.rows_with_image
        if self._image_folder is None:
            self.losses[NO_FOLDER][""] += len(rows)
            return
        self.losses[_NO_IMAGE][""] += len(names) - len(rows)
        for row in rows:
            path = os.path.join(self._image_folder, inside, names[row])
            try:
                self._write(path, images.encoded(row) or b"")
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise TfodError(
                    f"image {names[row]!r} cannot be written, since one is a folder of that name "
                    "to others; rename one in the records"
                ) from None
            except OSError as error:
                what = f"image {names[row]!r} cannot be written"
                raise TfodError(f"{what}: {error.strerror}") from None

    def _write(self, path: str, content: bytes | memoryview) -> None:
        folder = os.path.dirname(path)
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        with open(path, "xb") as file:
            file.write(content)

    def _count_losses(self, images: Images) -> None:
        """Count what the rows say that the format has no place for."""
        losses = self.losses[NO_PLACE]
        for one in () if images.is_plain else images.detections:
            points = one.keypoints
            lost = {
                "masks": sum(mask is not None for mask in masks_of(one)),
                "keypoints": 0
                if points is None
                else int((points.visibility > 0).any(axis=1).sum()),
                "image classes": len(one.image_labels),
                "captions": len(one.captions),
                **({} if self.ALL_ATTRIBUTES else _given(one)),
                **dict.fromkeys((*one.image_attributes, *one.image_extra, *one.unread_keys), 1),
            }
            losses.update({name: n for name, n in lost.items() if name not in self.CARRIES})


def _given(one: Detection) -> dict[str, int]:
    """Of each attribute how many objects have a value that says something."""
    return {
        name: sum(value is not None and value != _DEFAULTS.get(name) for value in values)
        for name, values in one.attributes.items()
    }


def _extension(images: Images, row: int) -> str:
    encoded = images.encoded(row)
    kind = sniff_format(bytes(encoded[:_SIGNATURE])) if encoded else None
    return EXTENSION_OF_FORMAT.get(kind or "", DEFAULT_EXTENSION)


def masks_of(one: Detection) -> list[Mask | None]:
    """The mask of each object as it lies in the record; None for none, or one that is its box."""
    if one.masks is not None:
        return [None if mask is None or is_box_png(mask.data) else mask.data for mask in one.masks]
    if one.numerical_masks is not None:
        return [mask > 0 if mask.any() else None for mask in one.numerical_masks]
    return [None] * len(one.boxes)


def pixels_of(mask: Mask, one: Detection, size: tuple[int, int]) -> np.ndarray:
    """The pixels of a mask by :func:`masks_of`, bool of shape (height, width).

    Raises:
        TfodError: it is not a PNG image, or of another size than its image.
    """
    try:
        drawn = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
    except ValueError as error:
        raise TfodError(f"image {one.filename!r}: a mask cannot be decoded ({error})") from None
    if drawn.shape != size:
        raise TfodError(
            f"image {one.filename!r}: a mask is {drawn.shape[1]}x{drawn.shape[0]}, the image "
            f"{size[1]}x{size[0]}; see what else is wrong with: tfod check"
        )
    return drawn
