"""Base class of the writers of all formats: names of images, losses, and publishing of files."""

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
from tfod.detection.losses import UNSUPPORTED, LossCounter
from tfod.errors import TfodError, excerpt
from tfod.formats.dataset import ConversionResult, Dataset, Images
from tfod.formats.options import ConversionProblems, OddMasks, Options, Refusal
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.tfrecord.image_names import IdMaker, safe_relative_path, split_extension
from tfod.tfrecord.storage.publishing import Output

IMAGE_CLASS_ATTRIBUTES = "attributes of image classes"
SHAPE_DETAILS = "objects' rotation, z_order or group"
ATTRIBUTES = "attributes"
SOURCE_ID = "source_id"
_NO_IMAGE = "records without an image; their image files were not written"
_NO_FOLDER = "images not written; choose a folder for them with --images"
_OTHER_SIZE = "masks whose size differs from their image"
_ODD_MASKS: Mapping[OddMasks, str | Refusal] = {
    OddMasks.REFUSE: Refusal(_OTHER_SIZE, "choose --odd-masks scale or --odd-masks drop"),
    OddMasks.SCALE: f"{_OTHER_SIZE}, scaled to it",
    OddMasks.DROP: f"{_OTHER_SIZE}, left out",
}
_SPACES = "image names with leading or trailing spaces, written without them"
_SIGNATURE_BYTES = 16
_UNSAFE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Characters that XML does not allow, or that end a line of a list."""
_PLAIN_NAME = re.compile(r"\w[\w-]*\.(?:jpe?g|png)", re.IGNORECASE)
"""Most image names, which need no change."""
_HIDDEN = re.compile(r"(?:(?<=/)|\A)\.")
Mask: TypeAlias = "np.ndarray | bytes | memoryview"
"""The pixels of a mask, or the bytes of its PNG file."""
_DEFAULTS = {attribute.name: attribute.default for attribute in keys.OBJECT_ATTRIBUTES}


class FormatWriter(abc.ABC):
    """Writes the files of a format.

    Args:
        folder: empty folder to write to.
        image_folder: folder to write images to; None to leave them out.

    Attributes:
        losses: counts of data that the format cannot store.
        problems: counts of masks whose size differs from their image.
        documents: paths of the files with annotations.
        label_map_file: name of the label map next to the dataset; '' for none.
    """

    IMAGES = "images"
    """Name of the default folder for images."""
    SUPPORTED: frozenset[str] = frozenset()
    """The data that the format can store: names of attributes, ``masks``, …"""
    LISTS_CLASSES = True
    """Whether the format has a list of all classes in the order of their ids."""

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        self.folder = folder
        self.losses = LossCounter(UNSUPPORTED)
        self.problems = ConversionProblems(options)
        self.notes: list[str] = []
        self.documents: list[str] = []
        self.label_map_file = ""
        self._image_folder = image_folder
        self._options = options
        self._id_makers: dict[str, IdMaker] = {}
        self._created_folders: set[str] = set()
        self._open_files: list[IO[bytes]] = []

    @classmethod
    def write(
        cls, target: str, dataset: Dataset, options: Options, is_file: bool
    ) -> ConversionResult:
        """Write a dataset to a folder or a single file.

        Raises:
            OutputExistsError: the output already exists.
            TfodError: the dataset cannot be read, or a subset cannot be written.
            WriteError: a file cannot be written.
        """
        with Output(dataset.sources, options.overwrite, options.dry_run) as output:
            folder, parent = output.add(target, is_file), os.path.dirname(target)
            images = None
            if not options.no_images and options.images:
                images = output.add(options.images)
            elif not options.no_images and not is_file:
                images = os.path.join(folder, cls.IMAGES)
            writer = cls(folder, images, options)
            output.callback(writer.close_files)  # after an error
            result = writer.write_all(dataset, parent if is_file else target)
            if is_file:
                if len(writer.documents) != 1:
                    names = ", ".join(os.path.basename(path) for path in writer.documents)
                    raise TfodError(
                        f"{target} is one file, but the dataset needs {len(writer.documents)} "
                        f"({names}); pass a folder instead"
                    )
                output.replace(target, writer.documents[0])
                label_map = os.path.join(folder, writer.label_map_file)
                if os.path.isfile(label_map):
                    output.replace(os.path.join(parent, writer.label_map_file), label_map)
        return result._replace(paths=output.published)

    def write_all(self, dataset: Dataset, folder: str) -> ConversionResult:
        """Read a dataset and write its subsets; ``folder`` is the final folder of the label map."""
        image_counts, object_counts = Counter[str](), Counter[str]()

        def begin(subset: str) -> None:
            self.require_name(subset)
            image_counts[subset] = object_counts[subset] = 0
            self.begin(subset)

        for subset in dataset.subsets:
            begin(subset)
        for images in dataset.read():
            images.require_valid_boxes()
            if images.subset not in image_counts:
                begin(images.subset)
            self.add(images, dataset.classes.label_map)
            image_counts[images.subset] += len(images.filenames)
            object_counts[images.subset] += len(images.boxes)
        notes = list(dataset.finish(image_counts.total(), object_counts.total()))
        self.problems.raise_refusals(1, object_counts.total())  # shards may have no image
        label_map = dataset.classes.label_map
        if target := self._options.target_map:
            complete_map = target.complete(dataset.classes, self._options.overwrite)
            label_map = complete_map.label_map
            notes += complete_map.notes
            self._add_label_map(os.path.basename(target.path), complete_map.content)
        self.finish(label_map)
        notes += [*self.notes, *self.problems.sentences(), *self.losses.sentences()]
        files = [path for path in dataset.classes.label_maps if path not in ("", *dataset.sources)]
        if self.label_map_file:
            files.append(os.path.join(folder, self.label_map_file))
        counters = (*dataset.counters, self.problems, self.losses)
        return ConversionResult(
            image_counts,
            object_counts,
            [dataset.restore_paths(note) for note in notes],
            [dataset.restore_paths(path) for path in dict.fromkeys(files)],
            [loss for counter in counters for loss in counter.losses()],
        )

    def close_files(self) -> None:
        """Close all open files after an error, ignoring errors of a full disk."""
        for file in self._open_files:
            with contextlib.suppress(OSError):
                file.close()

    # Methods that subclasses override

    def require_name(self, subset: str) -> None:
        """Raise TfodError if the name of a subset cannot be written."""
        if safe_relative_path(subset) != subset:
            raise TfodError(
                f"the subset {excerpt(subset)} cannot be the name of a folder; rename it"
            )

    @abc.abstractmethod
    def begin(self, subset: str) -> None:
        """Begin a subset, which may have no images."""

    @abc.abstractmethod
    def add(self, images: Images, label_map: LabelMap) -> None:
        """Write a batch of images of a subset; the label map has their classes."""

    @abc.abstractmethod
    def finish(self, label_map: LabelMap) -> None:
        """Finish all files after the last subset."""

    # Methods that subclasses call

    def _write_images(self, images: Images, subfolder: str = "") -> list[str]:
        """Write the image files of a batch, count losses, and return the names of the files."""
        names = self._make_image_names(images, subfolder)
        self._count_losses(images)
        rows = [] if self._options.no_images else images.rows_with_image
        if self._image_folder is None:
            self.losses[_NO_FOLDER][""] += len(rows)
            return names
        if not self._options.no_images:
            self.losses[_NO_IMAGE][""] += len(names) - len(rows)
        for row in rows:
            path = os.path.join(self._image_folder, subfolder, names[row])
            try:
                encoded = b"" if self._options.dry_run else images.get_encoded(row) or b""
                self._write(path, encoded)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise TfodError(
                    f"image {excerpt(names[row])} cannot be written, because other images are in a "
                    "folder of that name; rename one of them"
                ) from None
            except OSError as error:
                message = f"image {excerpt(names[row])} cannot be written: {error.strerror}"
                raise TfodError(message) from None
        return names

    def _open(self, path: str) -> IO[bytes]:
        """Create a file to write and read, which :meth:`finish` closes."""
        file = open(path, "xb+")
        self._open_files.append(file)
        return file

    def _write(self, path: str, content: bytes | memoryview, mode: str = "xb") -> None:
        folder = os.path.dirname(path)
        if folder not in self._created_folders:
            os.makedirs(folder, exist_ok=True)
            self._created_folders.add(folder)
        with open(path, mode) as file:
            file.write(content)

    def _write_label_map(self, label_map: LabelMap) -> None:
        """Write a label map, unless the format preserves the ids by a list of classes."""
        ids = [item.id for item in label_map.items]
        is_in_order = self.LISTS_CLASSES and ids == list(range(1, len(ids) + 1))
        if not self.label_map_file and not is_in_order:
            self._add_label_map(LABEL_MAP_FILE, label_map.to_text().encode())

    def _add_label_map(self, name: str, content: bytes) -> None:
        """Write a label map, unless the output folder already has it."""
        self.label_map_file = name
        target = self._options.target_map
        if target is None or target.content != content:
            self._write(os.path.join(self.folder, name), content)

    def _require_trimmed_names(self, label_map: LabelMap) -> None:
        """Refuse class names that would change, because readers of the format trim them."""
        for item in label_map.items:
            if item.class_name != item.class_name.strip() or not item.class_name:
                raise TfodError(
                    f"class {excerpt(item.class_name)} is empty or has leading or trailing spaces, "
                    "which readers of this format remove; rename it"
                )

    def _fit_mask(
        self, mask: Mask, detection: Detection, size: tuple[int, int]
    ) -> np.ndarray | None:
        """Return a mask in the size of its image, by nearest neighbour; None to leave it out.

        Raises TfodError for a mask that cannot be decoded.
        """
        try:
            pixels = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
        except ValueError as error:
            message = f"image {excerpt(detection.filename)}: a mask cannot be decoded ({error})"
            raise TfodError(message) from None
        if pixels.shape == size:
            return pixels
        policy = self._options.odd_masks
        height, width = pixels.shape
        location = f"{detection.filename}: {width}x{height} in {size[1]}x{size[0]}"
        self.problems.add(_ODD_MASKS[policy], location)
        if policy is not OddMasks.SCALE:
            return None
        sides = zip(size, pixels.shape, strict=True)
        rows, columns = ((np.arange(new) + 0.5) * old / new for new, old in sides)
        return np.asarray(pixels[rows.astype(np.intp)[:, None], columns.astype(np.intp)])

    def _make_image_names(self, images: Images, scope: str) -> list[str]:
        """Return a safe file name for each image, whose stem is unique in the scope."""
        ids = self._id_makers.setdefault(scope, IdMaker())
        filenames = [filename or "" for filename in images.filenames]
        stems = [filename.rpartition(".")[0] for filename in filenames]
        if all(map(_PLAIN_NAME.fullmatch, filenames)) and ids.take(stems, filenames):
            return filenames
        names = []
        for row, filename in enumerate(filenames):
            path = _UNSAFE.sub("_", safe_relative_path(filename))
            stem, extension = split_extension(path.strip())
            if (stripped := stem.rstrip() + extension) != path:
                self.losses[_SPACES][""] += 1
                path = stripped
            if extension and extension.lower() not in FORMAT_OF_EXTENSION:
                path += _find_extension(images, row)  # readers look for images by extension
            if path.startswith(".") or "/." in path:  # readers skip hidden files
                path = _HIDDEN.sub("_.", path)
            stem, extension = ids.make(path, "image")
            names.append(stem + (extension or _find_extension(images, row)))
        return names

    def _count_losses(self, images: Images) -> None:
        lost, stores_all = Counter[str](), ATTRIBUTES in self.SUPPORTED
        pairs = zip(images.source_ids, images.filenames, strict=True)
        lost[SOURCE_ID] = sum(source_id not in (None, "", name) for source_id, name in pairs)
        for detection in () if images.is_plain else images.detections:
            lost["masks"] += sum(mask is not None for mask in get_masks(detection))
            if detection.keypoints is not None:
                lost["keypoints"] += int((detection.keypoints.visibility > 0).any(axis=1).sum())
            for name, values in () if stores_all else detection.attributes.items():
                default = _DEFAULTS.get(name)
                lost[name] += sum(value is not None and value != default for value in values)
            labels = detection.image_labels
            lost["image classes"] += len(labels)
            lost["captions"] += len(detection.captions)
            lost[SHAPE_DETAILS] += len(detection.shape_details)
            lost[IMAGE_CLASS_ATTRIBUTES] += sum(len(label.attributes) for label in labels)
            image_keys = (*detection.image_attributes, *detection.image_extra)
            lost.update((*image_keys, *detection.unread_keys))
        for name in self.SUPPORTED:
            del lost[name]
        self.losses[UNSUPPORTED].update(lost)


def _find_extension(images: Images, row: int) -> str:
    encoded = images.get_encoded(row)
    image_format = sniff_format(bytes(encoded[:_SIGNATURE_BYTES])) if encoded else None
    return EXTENSION_OF_FORMAT.get(image_format or "", DEFAULT_EXTENSION)


def get_masks(detection: Detection) -> list[Mask | None]:
    """Return the stored mask of each object; None if it has none, or only a filled box."""
    if (masks := detection.masks) is not None:
        return [None if mask is None or is_box_png(mask.data) else mask.data for mask in masks]
    if detection.numerical_masks is not None:
        return [mask > 0 if mask.any() else None for mask in detection.numerical_masks]
    return [None] * len(detection.boxes)
