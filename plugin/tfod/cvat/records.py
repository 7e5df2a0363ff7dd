"""Conversion of the records of a zip to the shapes of a task's frames, for both importers."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfod.checker.finding import join_names, plural
from tfod.checker.references.cvat_task import Frame, Task
from tfod.checker.references.frames import Matcher
from tfod.detection import keys
from tfod.detection.box_geometry import PixelBox, to_pixel_corners
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.image import (
    DEFAULT_EXTENSION,
    EXTENSION_OF_FORMAT,
    FORMAT_OF_EXTENSION,
    sniff_format,
)
from tfod.detection.images.mask_images import decode_mask_png
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.losses import LossCounter
from tfod.errors import TfodError, excerpt
from tfod.example.example_batch import ExampleBatch
from tfod.formats.cvat.frame_detections import TRACK, build_shapes
from tfod.formats.cvat.shapes import Attributes, CvatShape, CvatTag
from tfod.formats.dataset import find_size
from tfod.formats.format_writer import get_masks
from tfod.sources.reading import find_readable
from tfod.tfrecord.image_names import IdMaker, safe_relative_path
from tfod.tfrecord.reader import read_record_batches

_DIGITS = 2  # of a pixel, as in CVAT's own XML
_MAX_NAME, _MAX_TEXT = 64, 4096  # characters, in CVAT's database
_MAX_SHOWN_NAMES = 20
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_TRUE, _FALSE = frozenset(("true", "1", "yes")), frozenset(("false", "0", "no"))
SCORE = "score"
# CVAT interprets these attributes of Datumaro itself: they never set an attribute of a label, and a
# rotation that is a text would rotate the shape.
_RESERVED = frozenset(("rotation", SCORE))
# CVAT does not add attributes of these names to a label (see its CVAT_INTERNAL_ATTRIBUTES).
_INTERNAL = _RESERVED | {"occluded", "outside", "keyframe", "track_id", "source"}
_ATTRIBUTES = "attributes that the labels do not have, or values that they do not allow"
_ABSENT = "classes that are marked as absent"
_CAPTIONS = "captions of images, which CVAT cannot store"
_EMPTY = "masks without a pixel, replaced by their boxes"


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute of a label.

    Attributes:
        input_type: ``checkbox``, ``number``, ``select``, ``radio`` or ``text``.
        values: allowed values; for a number its minimum, maximum and step.
    """

    input_type: str
    values: tuple[str, ...] = ()

    @classmethod
    def from_cvat(cls, attribute: Mapping[str, Any]) -> AttributeSpec:
        """Create it from CVAT's description, a row of its database or JSON of its API."""
        values = attribute.get("values") or ()
        choices = values.split("\n") if isinstance(values, str) else values
        if list(choices) == [""]:  # CVAT's API splits an empty text
            choices = ()
        return cls(str(attribute.get("input_type", "")), tuple(str(choice) for choice in choices))


Labels = Mapping[str, Mapping[str, AttributeSpec]]
"""The attributes of each label, by name."""


@dataclass(frozen=True)
class ZipRecord:
    """A record as a Detection, with the label map of its shard.

    Attributes:
        location: shard and number, for messages.
        detection: the record; valid until the next one is read.
    """

    subset: str
    location: str
    detection: Detection
    label_map: LabelMap | None


def read_zip(path: str, label_map: str | None = None) -> Iterator[ZipRecord]:
    """Yield all records of a zip in which the checker found no errors.

    ``label_map`` is a path or a name, and replaces the label maps in the zip.
    """
    for subset, shard, shard_map, batch in _read_batches(path, label_map):
        for number, detection in enumerate(batch, batch.examples.records.first):
            yield ZipRecord(subset, f"{shard}, record {number}", detection, shard_map)


def read_label_maps(path: str, label_map: str | None = None) -> list[LabelMap]:
    """Return the label maps of the shards in a zip."""
    return [shard_map for _, _, shard_map in _find_shards(path, label_map) if shard_map is not None]


def require_storable(kind: str, name: str, fix: str) -> None:
    """Raise TfodError if CVAT would truncate the name, and not find it again."""
    if len(name) > _MAX_NAME:
        length = f"{len(name)} characters, CVAT allows {_MAX_NAME}"
        raise TfodError(f"{kind} name is too long ({length}); {excerpt(name)}; {fix}")


def _find_shards(path: str, label_map: str | None) -> Iterator[tuple[str, str, LabelMap | None]]:
    shards = find_readable(path, label_map=label_map)
    for group in shards.sets:
        for shard in group.paths:
            yield group.subset, shard, shards.label_map(shard)


def _read_batches(
    path: str, label_map: str | None
) -> Iterator[tuple[str, str, LabelMap | None, Detections]]:
    for subset, shard, shard_map in _find_shards(path, label_map):
        for records in read_record_batches(shard):
            yield subset, shard, shard_map, Detections(ExampleBatch.of(records))


def match_frames(
    path: str, task: Task, target: object, label_map: str | None = None
) -> Iterator[tuple[ZipRecord, Frame] | None]:
    """Yield each record of a zip with its frame, or None for a record of another job or task.

    Raises TfodError if a record matches no frame, or if all records belong to other targets.
    """
    frames = task.frames or ()
    numbers = {frame.number for frame in frames} if task.job_frames is None else task.job_frames
    names = (name or "" for *_, batch in _read_batches(path, label_map) for name in batch.filenames)
    matcher = Matcher(task, names)
    skipped = matched = 0
    for subset, shard, shard_map, batch in _read_batches(path, label_map):
        for number, name in enumerate(batch.filenames):
            location = f"{shard}, record {batch.examples.records.first + number}"
            index = matcher.match(name or "", location)
            if index is None or frames[index].number not in numbers:
                skipped += 1  # not decoded, since it may be damaged
                yield None
            else:
                matched += 1
                yield ZipRecord(subset, location, batch[number], shard_map), frames[index]
    if not matched:
        subject = "the image is not" if skipped == 1 else f"none of the {skipped} images is"
        hint = ", but of the task's other jobs; import the zip there, or into the task"
        raise TfodError(f"{subject} a frame of {target}{'' if task.skips_others else hint}")


class NewImage(NamedTuple):
    """An image of a new task; ``size`` is its height and width."""

    item_id: str
    extension: str
    encoded: bytes
    size: tuple[int, int]


class NewImages:
    """Chooses file names for the images of new tasks; ``renamed`` lists those that changed.

    Ids are relative paths that stay in their folder (:mod:`tfod.tfrecord.image_names`) and are
    unique in a subset.
    """

    def __init__(self) -> None:
        self.renamed: list[str] = []
        self._ids: dict[str, IdMaker] = {}
        self._numbers = itertools.count()

    def make(self, record: ZipRecord) -> NewImage:
        """Return the image of a record with its new name, or raise TfodError if it has none."""
        encoded, size = bytes(record.detection.encoded or b""), find_size(record.detection)
        path = safe_relative_path(record.detection.filename or "")
        ids = self._ids.setdefault(record.subset, IdMaker())
        item_id, extension = ids.make(path, f"image_{next(self._numbers):06d}")
        if not encoded or not all(size):
            raise TfodError(f"image {excerpt(item_id)} is unreadable in its shard; export it again")
        if extension.lower() not in FORMAT_OF_EXTENSION:
            # CVAT looks only at the extension, and its manifest.jsonl lists images only.
            kind = sniff_format(encoded[:16]) or ""
            extension = EXTENSION_OF_FORMAT.get(kind, DEFAULT_EXTENSION)
        # CVAT splits the path at the last occurrence of the id: "g.jpg" would be split in ".jpg".
        if item_id in extension:
            extension = extension.swapcase()
        if record.detection.filename != item_id + extension:
            self.renamed.append(f"{record.detection.filename or ''} → {item_id}{extension}")
        return NewImage(item_id, extension, encoded, size)

    def sentences(self) -> list[str]:
        """Return the names that were changed, as one sentence or none."""
        count = len(self.renamed)
        listed = join_names(self.renamed, _MAX_SHOWN_NAMES)
        return [f"{plural(count, 'image')} renamed: {listed}"] if count else []


class ShapeBuilder:
    """Creates the shapes of records, one record after the other.

    Args:
        labels: labels of the target; None if CVAT creates a label for every class.
        new_attributes: whether CVAT adds missing attributes to a label.
        by_datumaro: whether CVAT gets annotations of Datumaro. It interprets some of their
            attributes itself, such as a score from 0 to 1.
    """

    def __init__(
        self, labels: Labels | None, *, new_attributes: bool = False, by_datumaro: bool = False
    ) -> None:
        self._labels = labels
        self._new_attributes = new_attributes
        self._by_datumaro = by_datumaro
        self.losses = LossCounter(_ATTRIBUTES, _ABSENT, _CAPTIONS, _EMPTY)

    def make_shapes(self, record: ZipRecord, size: tuple[int, int]) -> list[CvatShape]:
        """Return the shapes of a record's objects on a frame of this height and width.

        Raises TfodError if a class is not a label of the task, or if the size of a mask differs.
        """
        detection = record.detection
        self.losses[_CAPTIONS][""] += len(detection.captions)
        masks = get_masks(detection)

        def decode_pixels(number: int) -> np.ndarray | None:
            mask = masks[number]
            pixels = None if mask is None else _decode_mask(mask, record.location, size)
            self.losses[_EMPTY][""] += pixels is not None and not pixels.any()
            return pixels

        boxes, absent = detection.boxes, (None,) * len(detection.boxes)
        texts, ids = detection.class_text or absent, detection.class_label or absent
        classes = [self._find_label(record, *names) for names in zip(texts, ids, strict=True)]
        # In pixels, clamped to the image as CVAT's own importers do.
        _, sides = to_pixel_corners(boxes, size)
        corners: list[PixelBox] = [tuple(box) for box in sides.round(_DIGITS).tolist()]
        fit = self._fit_attributes
        return list(build_shapes(detection, classes, corners, size, decode_pixels, fit))

    def make_tags(self, record: ZipRecord) -> list[CvatTag]:
        """Return the classes of the whole image, except for those that are marked as absent."""
        tags = []
        for label in record.detection.image_labels:
            if label.confidence is not None and label.confidence <= 0:
                self.losses[_ABSENT][""] += 1
            else:
                name = self._find_label(record, label.text, label.label)
                values = dict(label.attributes)
                if self._by_datumaro and values.pop(SCORE, None) is not None:
                    self.losses[_ATTRIBUTES][SCORE] += 1  # CVAT's tags have no score
                tags.append(CvatTag(name, self._fit_attributes(name, values)))
        return tags

    def _find_label(self, record: ZipRecord, text: str | None, label: int | None) -> str:
        """Return the label for the class text, or for the class id if there is no text."""
        label_map = record.label_map
        item = label_map.find_id(label) if label_map and label is not None and not text else None
        name = text or (item.class_name if item else "")
        if not name:
            raise TfodError(
                f"{record.location}: an object has no class (no text, and its id is not in a "
                "label map); add label_map.pbtxt to the zip"
            )
        if self._labels is None or name in self._labels:
            return name
        # Names of Open Images, such as /m/01yrx, can be labels by their display name.
        item = label_map.find(name) if label_map else None
        if item is None or item.display_name not in self._labels:
            raise TfodError(f"{record.location}: class {excerpt(name)} is not a label of the task")
        return item.display_name

    def _fit_attributes(self, label: str, values: Mapping[str, Any]) -> Attributes:
        specs = (self._labels or {}).get(label) or {}
        attributes = []
        for name, value in values.items():
            spec = specs.get(name)
            fit: bool | float | str | None = None
            if name in keys.FLAGS and value in (0, 1):
                value = bool(value)
            if self._by_datumaro and name in (_INTERNAL if spec is None else _RESERVED):
                is_score = name == SCORE and isinstance(value, (int, float)) and 0 <= value <= 1
                fit = value if is_score else None
            elif spec is not None:
                fit = _fit_value(value, spec)
            elif self._new_attributes and len(name) <= _MAX_NAME:
                fit = _to_storable(value)
            text = _to_text(fit)
            if text is not None:
                attributes.append((name, text))
            # A track id is a number of the exported task, and means nothing in another one.
            if (text is None and name != TRACK) or (name == SCORE and spec and self._by_datumaro):
                self.losses[_ATTRIBUTES][name] += 1
        return tuple(attributes)


def make_datumaro_attributes(shape: CvatShape) -> dict[str, Any]:
    """Return the attributes that CVAT's import expects in an annotation of Datumaro.

    Flags that are not set are omitted, since a label may have an attribute of the same name.
    """
    attributes: dict[str, Any] = dict(shape.attributes)
    if SCORE in attributes:
        attributes[SCORE] = float(attributes[SCORE])
    if shape.occluded:
        attributes["occluded"] = True
    if shape.rotation:
        attributes["rotation"] = shape.rotation
    return attributes


def _decode_mask(
    mask: bytes | memoryview | np.ndarray, location: str, size: tuple[int, int]
) -> np.ndarray:
    if not isinstance(mask, np.ndarray):
        try:
            mask = decode_mask_png(mask)
        except (ValueError, ImportError) as error:
            raise TfodError(
                f"{location}: a mask cannot be decoded ({error}); export the shard again"
            ) from None
    if mask.shape != size:
        raise TfodError(
            f"{location}: a mask is {mask.shape[1]}x{mask.shape[0]}, its frame "
            f"{size[1]}x{size[0]}; create the shard from the images of the task"
        )
    return mask


def _fit_value(value: Any, spec: AttributeSpec) -> bool | int | float | str | None:
    """Return a value as CVAT stores it for the attribute, or None if it is not allowed."""
    text = _to_text(value)
    if text is None:
        return None
    if spec.input_type == "checkbox":
        if text.lower() in _TRUE:
            return True
        return False if text.lower() in _FALSE else None
    if spec.input_type == "number":
        return _fit_number(value, spec)
    if spec.input_type == "text" or not spec.values or text in spec.values:
        return text
    for synonyms in ({text.lower()}, _TRUE, _FALSE):
        if text.lower() in synonyms:
            for choice in spec.values:
                if choice.lower() in synonyms:
                    return choice
    return None


def _to_storable(value: Any) -> bool | int | float | str | None:
    """Return a value for a new attribute, or None if CVAT's database cannot store it."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT and not _UNSTORABLE.search(value) else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (bool, int)) and abs(value) < 1 << 63 else None


def _to_text(value: Any) -> str | None:
    """Return a value as CVAT writes it, or None if CVAT cannot store it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    storable = _to_storable(value)
    if isinstance(storable, float) and storable.is_integer():
        return str(int(storable))
    return None if storable is None else str(storable)


def _fit_number(value: Any, spec: AttributeSpec) -> int | float | str | None:
    """Return a number within the label's limits; a text is returned unchanged."""
    with contextlib.suppress(ValueError, OverflowError):
        number = float(value)
        limits = [float(limit) for limit in spec.values[:2]]
        if math.isfinite(number) and (len(limits) < 2 or limits[0] <= number <= limits[1]):
            return value if isinstance(value, str) or not number.is_integer() else int(number)
    return None
