"""From a dataset to the files of a format: what all writers share, and how they are called.

Names of images, their files, what a format has no place for, and that files appear together.
"""

from __future__ import annotations

import abc
import contextlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import IO, TypeAlias

import numpy as np

from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.images.image import (
    DEFAULT_EXTENSION,
    EXTENSION_OF_FORMAT,
    FORMAT_OF_EXTENSION,
    sniff_format,
)
from tfod.detection.images.mask_images import decode_mask_png, is_box_png
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.losses import LossCounter
from tfod.errors import TfodError
from tfod.formats.dataset import Converted, Dataset, Images
from tfod.formats.options import ConversionProblems, OddMasks, Options, Refusal
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.tfrecord.image_names import IdMaker, safe_relative_path, split_extension
from tfod.tfrecord.storage.publishing import Output

LABELS = "attributes of image classes"
DRAWN = "objects' rotation, z_order or group"
ATTRIBUTES = "attributes"
SOURCE_ID = "source_id"
NO_PLACE = "not written, the format has no place for them"
_NO_IMAGE = "images without bytes in their records, not written"
_NO_FOLDER = "images not written, name a folder for them with --images"
_OTHER_SIZE = "masks of another size than their image"
_ODD_MASKS: Mapping[OddMasks, str | Refusal] = {
    OddMasks.REFUSE: Refusal(_OTHER_SIZE, "choose --odd-masks scale or --odd-masks drop"),
    OddMasks.SCALE: f"{_OTHER_SIZE}, scaled to it",
    OddMasks.DROP: f"{_OTHER_SIZE}, left out",
}
_BLANKS = "names of images with blanks at their ends, written without"
_SIGNATURE = 16
_UNSPEAKABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""What XML cannot hold, and what ends a line of a list."""
_PLAIN = re.compile(r"\w[\w-]*\.(?:jpe?g|png)", re.IGNORECASE)
"""What most names are, and stays as it is."""
_HIDDEN = re.compile(r"(?:(?<=/)|\A)\.")
Mask: TypeAlias = "np.ndarray | bytes | memoryview"
"""The pixels of a mask, or its PNG file's bytes."""
_DEFAULTS = {one.name: one.default for one in keys.OBJECT_ATTRIBUTES}


class FormatWriter(abc.ABC):
    """Writes the files of one format; subclasses say which.

    Args:
        folder: where to write, which holds nothing yet.
        image_folder: where to write images; None leaves them out.
        options: what becomes of odd masks, and whether images were wanted.

    Attributes:
        losses: what does not come along.
        problems: what does not fit: masks of another size than their image.
        notes: what else is to be said, as sentences.
        documents: of a format with a file for a dataset, paths of those that it has here.
        label_map_file: the name of the label map beside the dataset, if there is one.
    """

    IMAGES = "images"
    """Where images are within the folder, unless another one is named."""
    CARRIES: frozenset[str] = frozenset()
    """What the format has a place for: some attributes of objects or all, ``masks``, …"""
    LISTS_CLASSES = True
    """Whether it has a list of all classes, whose order is that of their ids."""

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        self.folder = folder
        self.losses = LossCounter(NO_PLACE)
        self.problems = ConversionProblems(options)
        self.notes: list[str] = []
        self.documents: list[str] = []
        self.label_map_file = ""
        self._image_folder = image_folder
        self._options = options
        self._names: dict[str, IdMaker] = {}
        self._made: set[str] = set()
        self._opened: list[IO[bytes]] = []

    @classmethod
    def write(cls, target: str, dataset: Dataset, options: Options, is_file: bool) -> Converted:
        """Write a dataset as files that lie anywhere in a folder, or as one file.

        Raises:
            OutputExistsError: something is there already.
            TfodError: a subset cannot be written, or whatever reading and writing raise.
            WriteError: a file cannot be written.
        """
        with Output(dataset.sources, options.overwrite) as output:
            folder, above = output.add(target, is_file), os.path.dirname(target)
            images = None
            if not options.no_images and options.images:
                images = output.add(options.images)
            elif not options.no_images and not is_file:
                images = os.path.join(folder, cls.IMAGES)
            writer = cls(folder, images, options)
            try:
                converted = writer.write_all(dataset, above if is_file else target)
            except BaseException:
                writer.abandon()
                raise
            if is_file:
                if len(writer.documents) != 1:
                    names = ", ".join(os.path.basename(one) for one in writer.documents)
                    raise TfodError(
                        f"{target} is one file, and there are {len(writer.documents)} ({names}); "
                        "name a folder instead"
                    )
                output.replace(target, writer.documents[0])
                label_map = os.path.join(folder, writer.label_map_file)
                if os.path.isfile(label_map):
                    output.replace(os.path.join(above, writer.label_map_file), label_map)
        return converted

    def write_all(self, dataset: Dataset, folder: str) -> Converted:
        """Read a dataset and write it, subset by subset; what :meth:`write` raises.

        ``folder`` is where its label map will be.
        """
        images, objects = Counter[str](), Counter[str]()

        def begin(subset: str) -> None:
            self.require_name(subset)
            images[subset] = objects[subset] = 0
            self.begin(subset)

        for subset in dataset.subsets:
            begin(subset)
        for found in dataset.read():
            found.require_sound_boxes()
            if found.subset not in images:
                begin(found.subset)
            self.add(found, dataset.classes.label_map)
            images[found.subset] += len(found.filenames)
            objects[found.subset] += len(found.boxes)
        notes = list(dataset.finish(images.total(), objects.total()))
        self.problems.raise_refusals(1, objects.total())  # shards may have no image
        label_map = dataset.classes.label_map
        if target := self._options.target_map:
            completed = target.complete(dataset.classes, self._options.overwrite)
            label_map = completed.label_map
            notes += completed.notes
            self._add_label_map(os.path.basename(target.path), completed.content)
        self.finish(label_map)
        notes += [*self.notes, *self.problems.sentences(), *self.losses.sentences()]
        files = [one for one in dataset.classes.label_maps if one and one not in dataset.sources]
        files += [os.path.join(folder, self.label_map_file)] * bool(self.label_map_file)
        texts = ([*map(dataset.shown, found)] for found in (notes, dict.fromkeys(files)))
        return Converted(images, objects, *texts)

    def abandon(self) -> None:
        """Close the files after an error; what a full disk left in their buffers is lost."""
        for file in self._opened:
            with contextlib.suppress(OSError):
                file.close()

    # What subclasses say

    def require_name(self, subset: str) -> None:
        """See that a subset can be written under its name; raises TfodError where it cannot."""
        if safe_relative_path(subset) != subset:
            raise TfodError(f"the subset {subset!r:.81} cannot be the name of a folder; rename it")

    @abc.abstractmethod
    def begin(self, subset: str) -> None:
        """Begin a subset, which may turn out to have no images."""

    @abc.abstractmethod
    def add(self, images: Images, label_map: LabelMap) -> None:
        """Write some images, whose subset was begun; the label map has their classes."""

    @abc.abstractmethod
    def finish(self, label_map: LabelMap) -> None:
        """Write what is left when all subsets are there."""

    # What subclasses use

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
                    f"image {names[row]!r:.81} cannot be written, since one is a folder of that "
                    "name to others; rename one in the records"
                ) from None
            except OSError as error:
                what = f"image {names[row]!r:.81} cannot be written"
                raise TfodError(f"{what}: {error.strerror}") from None
        return names

    def _open(self, path: str) -> IO[bytes]:
        """A new file to write and read, which :meth:`finish` closes."""
        file = open(path, "xb+")
        self._opened.append(file)
        return file

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
        is_in_order = self.LISTS_CLASSES and ids == list(range(1, len(ids) + 1))
        if not self.label_map_file and not is_in_order:
            self._add_label_map(LABEL_MAP_FILE, label_map.to_text().encode())

    def _add_label_map(self, name: str, content: bytes) -> None:
        """Write a label map beside the dataset, unless its folder has it already."""
        self.label_map_file = name
        target = self._options.target_map
        if target is None or target.content != content:
            self._write(os.path.join(self.folder, name), content)

    def _require_no_blanks(self, label_map: LabelMap) -> None:
        """Refuse classes that a format would not give back, whose readers strip names."""
        for one in label_map.items:
            if one.class_name != one.class_name.strip() or not one.class_name:
                raise TfodError(
                    f"the class {one.class_name!r:.81} is empty or has blanks at its ends, without "
                    "which this format is read; rename it"
                )

    def _pixels(self, mask: Mask, one: Detection, size: tuple[int, int]) -> np.ndarray | None:
        """The pixels of a mask by :func:`masks_of`, of the size of its image; None where it goes.

        Raises:
            TfodError: it is not a PNG image.
        """
        try:
            drawn = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
        except ValueError as error:
            what = f"image {one.filename!r:.81}: a mask cannot be decoded ({error})"
            raise TfodError(what) from None
        if drawn.shape == size:
            return drawn
        odd = self._options.odd_masks
        where = f"{one.filename}: {drawn.shape[1]}x{drawn.shape[0]} in {size[1]}x{size[0]}"
        self.problems.add(_ODD_MASKS[odd], where)
        return scaled(drawn, size) if odd is OddMasks.SCALE else None

    def _image_names(self, images: Images, scope: str) -> list[str]:
        """A safe file name for each image, whose stem no other one of the scope has."""
        ids = self._names.setdefault(scope, IdMaker())
        given = [filename or "" for filename in images.filenames]
        stems = [one.rpartition(".")[0] for one in given]
        if all(map(_PLAIN.fullmatch, given)) and ids.take(stems, given):
            return given
        names = []
        for row, filename in enumerate(given):
            path = _UNSPEAKABLE.sub("_", safe_relative_path(filename))
            stem, ending = split_extension(path.strip())
            if (stripped := stem.rstrip() + ending) != path:
                self.losses[_BLANKS][""] += 1
                path = stripped
            if ending and ending.lower() not in FORMAT_OF_EXTENSION:
                path += _extension(images, row)  # readers look for images by their extensions
            if path.startswith(".") or "/." in path:  # readers pass over hidden files
                path = _HIDDEN.sub("_.", path)
            stem, extension = ids.make(path, "image")
            names.append(stem + (extension or _extension(images, row)))
        return names

    def _count_losses(self, images: Images) -> None:
        """Count what the rows say that the format has no place for."""
        lost = Counter[str]()
        pairs = zip(images.source_ids, images.filenames, strict=True)
        lost[SOURCE_ID] = sum(one not in (None, "", name) for one, name in pairs)
        for one in () if images.is_plain else images.detections:
            lost["masks"] += sum(mask is not None for mask in masks_of(one))
            if one.keypoints is not None:
                lost["keypoints"] += int((one.keypoints.visibility > 0).any(axis=1).sum())
            if ATTRIBUTES not in self.CARRIES:
                lost.update(_given(one))
            lost["image classes"] += len(one.image_labels)
            lost["captions"] += len(one.captions)
            lost[DRAWN] += len(one.shape_details)
            lost[LABELS] += sum(len(label.attributes) for label in one.image_labels)
            lost.update((*one.image_attributes, *one.image_extra, *one.unread_keys))
        self.losses[NO_PLACE].update({k: n for k, n in lost.items() if k not in self.CARRIES})


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
