"""What all writers share: names of images, their files, and what a format has no place for."""

from __future__ import annotations

import abc
import os
import re
from typing import TypeAlias

import numpy as np

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
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.detection.losses import Losses
from tfod.errors import TfodError
from tfod.formats.dataset import Images
from tfod.formats.options import OddMasks, Options
from tfod.tfrecord.image_names import IdMaker, safe_relative_path, split_extension

LABELS = "attributes of image classes"
DRAWN = "objects' rotation, z_order or group"
NO_PLACE = "not written, the format has no place for them"
_NO_IMAGE = "images without bytes in their records, not written"
_NO_FOLDER = "images not written, name a folder for them with --images"
_OTHER_IDS = "source ids that are not the number of one image, which got another"
_SCALED = "masks of another size than their image, scaled to it"
_DROPPED = "masks of another size than their image, left out"
_BLANKS = "blanks at the ends of names, left out, since the format is read without them"
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
        image_folder: where to write images; None leaves them out.
        options: what becomes of odd masks, and whether images were wanted.

    Attributes:
        losses: what does not come along.
        notes: what else is to be said, as sentences.
        documents: of a format with a file for a dataset, paths of those that it has here.
    """

    IMAGES = "images"
    """Where images are within the folder, unless another one is named."""
    CARRIES: frozenset[str] = frozenset()
    """What the format has a place for: attributes of objects, ``masks``, ``keypoints``, …"""
    ALL_ATTRIBUTES = False
    """Whether it has one for any attribute of an object."""
    HAS_IDS = False
    """Whether it has numbers of images, and ids of classes."""
    STRIPPED_IN = ""
    """What it is called, if its readers strip the names of images and classes."""
    LISTS_CLASSES = True
    """Whether it has a list of all classes, whose order is that of their ids."""
    NO_SUBSETS: frozenset[str] = frozenset()
    """Names that it has for something else, so that no subset can have them."""

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        self.folder = folder
        self.losses = Losses(NO_PLACE)
        self.notes: list[str] = []
        self.documents: list[str] = []
        self._image_folder = image_folder
        self._options = options
        self._names: dict[str, IdMaker] = {}
        self._made: set[str] = set()
        self._taken: dict[str, set[int]] = {}  # numbers of images, by subset
        self._free: dict[str, int] = {}

    def require_name(self, subset: str) -> None:
        """See that a subset can be written under its name; raises TfodError where it cannot."""
        if safe_relative_path(subset) != subset:
            raise TfodError(f"the subset {subset!r} cannot be the name of a folder; rename it")
        if subset in self.NO_SUBSETS:
            raise TfodError(
                f"the subset {subset!r} cannot be written, since the format has that name for "
                "something else; rename it"
            )

    @abc.abstractmethod
    def begin(self, subset: str) -> None:
        """Begin a subset, which may turn out to have no images."""

    @abc.abstractmethod
    def add(self, subset: str, images: Images, label_map: LabelMap) -> None:
        """Write some images of a subset that was begun; the label map has their classes."""

    @abc.abstractmethod
    def finish(self, label_map: LabelMap) -> None:
        """Write what is left when all subsets are there."""

    # What subclasses use

    def _image_names(self, images: Images, scope: str) -> list[str]:
        """A safe file name for each image, whose stem no other one of the scope has."""
        ids = self._names.setdefault(scope, IdMaker())
        names = []
        for row, filename in enumerate(images.filenames):
            path = _UNSPEAKABLE.sub("_", safe_relative_path(filename or ""))
            if self.STRIPPED_IN:
                path = self._without_blanks(path)
            ending = split_extension(path)[1]
            if ending and ending.lower() not in FORMAT_OF_EXTENSION:
                path += _extension(images, row)  # readers look for images by their extensions
            if path.startswith(".") or "/." in path:  # readers pass over hidden files
                path = _HIDDEN.sub("_.", path)
            stem, extension = ids.make(path, "image")
            names.append(stem + (extension or _extension(images, row)))
        return names

    def _without_blanks(self, path: str) -> str:
        """The same where the stem neither begins nor ends with a blank."""
        stem, extension = split_extension(path.strip())
        stripped = stem.rstrip() + extension
        self.losses[_BLANKS]["images"] += stripped != path
        return stripped

    def _classes_without_blanks(self, label_map: LabelMap) -> list[str]:
        """The names of all classes as they are read, each another one."""
        names: dict[str, str] = {}
        for one in label_map.items:
            name = one.class_name.strip()
            if not name or name in names:
                other = f"that of {names[name]!r}" if name else "empty"
                raise TfodError(
                    f"the class {one.class_name!r} would be {other} in {self.STRIPPED_IN}, which "
                    "is read without blanks at the ends of names; rename it"
                )
            names[name] = one.class_name
            self.losses[_BLANKS]["classes"] += name != one.class_name
        return list(names)

    def _image_numbers(self, images: Images, subset: str) -> list[int]:
        """A number for each image: its source id where that is one, and free; else the next."""
        texts = [one or "" for one in images.source_ids]
        numbers = [int(one) if one.isdecimal() and len(one) < _DIGITS else -1 for one in texts]
        distinct, taken = set(numbers), self._taken.setdefault(subset, set())
        if len(distinct) < len(numbers) or -1 in distinct or not taken.isdisjoint(distinct):
            free = self._free.get(subset, 1)
            for row, number in enumerate(numbers):
                if number < 0 or number in taken:
                    self.losses[_OTHER_IDS][""] += texts[row] not in ("", images.filenames[row])
                    while free in taken:
                        free += 1
                    numbers[row] = free
                taken.add(numbers[row])
            self._free[subset] = free
        taken.update(numbers)
        return numbers

    def _write_images(self, images: Images, inside: str = "") -> list[str]:
        """Write the image files of a batch into a folder inside that of the images.

        Returns:
            Their names in it. What else their rows say and the format has no place for is counted.
        """
        names = self._image_names(images, inside)
        self._count_losses(images)
        rows = [] if self._options.no_images else images.rows_with_image
        if self._image_folder is None:
            self.losses[_NO_FOLDER][""] += len(rows)
            return names
        if not self._options.no_images:
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
        return names

    def _write(self, path: str, content: bytes | memoryview, mode: str = "xb") -> None:
        folder = os.path.dirname(path)
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        with open(path, mode) as file:
            file.write(content)

    def _write_label_map(self, label_map: LabelMap) -> None:
        """Keep the ids of the classes, where the format itself has no place for them.

        Where it lists all classes, as YOLO and CVAT do, ids from 1 on are their places in it.
        """
        ids = [item.id for item in label_map.items]
        if not self.LISTS_CLASSES or ids != list(range(1, len(ids) + 1)):
            self._write(os.path.join(self.folder, LABEL_MAP_FILE), label_map.to_text().encode())

    def _count_losses(self, images: Images) -> None:
        """Count what the rows say that the format has no place for."""
        losses = self.losses[NO_PLACE]
        if not self.HAS_IDS:
            pairs = zip(images.source_ids, images.filenames, strict=True)
            losses["source_id"] += sum(one not in (None, "", name) for one, name in pairs)
        for one in () if images.is_plain else images.detections:
            points = one.keypoints
            lost = {
                "masks": sum(mask is not None for mask in masks_of(one)),
                "keypoints": 0
                if points is None
                else int((points.visibility > 0).any(axis=1).sum()),
                "image classes": len(one.image_labels),
                "captions": len(one.captions),
                DRAWN: len(one.drawn),
                LABELS: sum(len(label.attributes) for label in one.image_labels),
                **({} if self.ALL_ATTRIBUTES else _given(one)),
                **dict.fromkeys((*one.image_attributes, *one.image_extra, *one.unread_keys), 1),
            }
            losses.update({name: n for name, n in lost.items() if name not in self.CARRIES})

    def _pixels(self, mask: Mask, one: Detection, size: tuple[int, int]) -> np.ndarray | None:
        """The pixels of a mask by :func:`masks_of`, as :func:`fitting` has them."""
        return fitting(mask, size, self._options.odd_masks, self.losses, one.filename)


def fitting(
    mask: Mask, size: tuple[int, int], odd: OddMasks, losses: Losses, filename: str | None
) -> np.ndarray | None:
    """The pixels of a mask, of the size of its image; None where it is left out for another one.

    Raises:
        TfodError: it is not a PNG image, or of another size, and this is refused.
    """
    try:
        drawn = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
    except ValueError as error:
        raise TfodError(f"image {filename!r}: a mask cannot be decoded ({error})") from None
    if drawn.shape == size:
        return drawn
    if odd is OddMasks.REFUSE:
        raise TfodError(
            f"image {filename!r}: a mask is {drawn.shape[1]}x{drawn.shape[0]}, the image "
            f"{size[1]}x{size[0]}; choose --odd-masks scale or --odd-masks drop"
        )
    losses[_SCALED if odd is OddMasks.SCALE else _DROPPED][""] += 1
    return scaled(drawn, size) if odd is OddMasks.SCALE else None


def scaled(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A mask of another size: each pixel that of the nearest one."""
    rows, columns = (
        (np.arange(new) + 0.5) * old / new for new, old in zip(size, pixels.shape, strict=True)
    )
    return np.asarray(pixels[rows.astype(np.int64)[:, None], columns.astype(np.int64)])


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
