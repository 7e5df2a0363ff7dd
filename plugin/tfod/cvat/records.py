"""From the records of a zip to the shapes of a task's frames, and a count of what cannot come.

The one way in: of our own formats on the server, and of the bridge.
"""

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
from tfod.detection.box_geometry import PixelBox, corners_in_pixels
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
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.formats.cvat.frame_detections import TRACK, shapes_of
from tfod.formats.cvat.shapes import Attributes, CvatShape, CvatTag
from tfod.formats.dataset import size_of
from tfod.formats.format_writer import masks_of
from tfod.sources.reading import find_readable
from tfod.tfrecord.image_names import IdMaker, safe_relative_path
from tfod.tfrecord.reader import read_record_batches

_DIGITS = 2  # of a pixel, as in CVAT's own XML
_LONGEST_NAME, _LONGEST_TEXT = 64, 4096  # of CVAT's tables
_NAMES_SHOWN = 20
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_TRUE, _FALSE = frozenset(("true", "1", "yes")), frozenset(("false", "0", "no"))
SCORE = "score"
# Of Datumaro's attributes, CVAT takes these for its own: no attribute of a label gets their value,
# and a text would turn the shape.
_TAKEN = frozenset(("rotation", SCORE))
# And it makes none of these names for a label that lacks them (its CVAT_INTERNAL_ATTRIBUTES).
_INTERNAL = _TAKEN | {"occluded", "outside", "keyframe", "track_id", "source"}
_ATTRIBUTES = "attributes that the labels lack or do not allow"
_ABSENT = "classes said to be absent"
_CAPTIONS = "captions of images, which CVAT does not have"
_EMPTY = "masks without a pixel, which became their boxes"


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute that a label has.

    Attributes:
        input_type: ``checkbox``, ``number``, ``select``, ``radio`` or ``text``.
        values: what may be chosen; of a number the least, the largest and the step.
    """

    input_type: str
    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, attribute: Mapping[str, Any]) -> AttributeSpec:
        """From CVAT's description, in its tables or from its API."""
        values = attribute.get("values") or ()
        choices = values.split("\n") if isinstance(values, str) else values
        if list(choices) == [""]:  # CVAT's API splits a text without any
            choices = ()
        return cls(str(attribute.get("input_type", "")), tuple(str(one) for one in choices))


Labels = Mapping[str, Mapping[str, AttributeSpec]]
"""The attributes of each label, by name."""


@dataclass(frozen=True)
class ZipRecord:
    """A record as a Detection, and how its shard names classes.

    Attributes:
        subset: that its shard belongs to.
        where: shard and number, for messages.
        detection: valid until the next record is asked for.
        label_map: of its shard.
    """

    subset: str
    where: str
    detection: Detection
    label_map: LabelMap | None


def read_zip(path: str, label_map: str | None = None) -> Iterator[ZipRecord]:
    """Read all records of all shards in a zip that the checker has no errors against.

    ``label_map`` is the file or name of one for all shards, in place of those in the zip.
    """
    for subset, shard, own, found in _batches(path, label_map):
        first = found.examples.records.first
        for number, detection in enumerate(found, first):
            yield ZipRecord(subset, f"{shard}, record {number}", detection, own)


def label_maps_of(path: str, label_map: str | None = None) -> list[LabelMap]:
    """The label maps that the shards of a zip have."""
    return [own for _, _, own in _shards(path, label_map) if own is not None]


def require_storable(what: str, name: str, fix: str) -> None:
    """Raise TfodError if CVAT would cut the name off, and not find it again."""
    if len(name) > _LONGEST_NAME:
        letters = f"{len(name)} letters, CVAT takes {_LONGEST_NAME}"
        raise TfodError(f"the name of a {what} has {letters}; {name!r}; {fix}")


def _shards(path: str, label_map: str | None) -> Iterator[tuple[str, str, LabelMap | None]]:
    shards = find_readable(path, label_map=label_map)
    for group in shards.sets:
        for shard in group.paths:
            yield group.subset, shard, shards.label_map(shard)


def _batches(
    path: str, label_map: str | None
) -> Iterator[tuple[str, str, LabelMap | None, Detections]]:
    for subset, shard, own in _shards(path, label_map):
        for records in read_record_batches(shard):
            yield subset, shard, own, Detections(ExampleBatch.of(records))


def on_frames(
    path: str, task: Task, what: object, label_map: str | None = None
) -> Iterator[tuple[ZipRecord, Frame] | None]:
    """The records of a zip, each with its frame; None for one of another job, or another task.

    Raises:
        TfodError: one matches no frame, or none is of ``what`` they are imported into.
    """
    frames = task.frames or ()
    own = {one.number for one in frames} if task.own is None else task.own
    names = (name or "" for *_, found in _batches(path, label_map) for name in found.filenames)
    matcher = Matcher(task, names)
    others = placed = 0
    for subset, shard, own_map, found in _batches(path, label_map):
        for number, name in enumerate(found.filenames):
            where = f"{shard}, record {found.examples.records.first + number}"
            place = matcher.place(name or "", where)
            if place is None or frames[place].number not in own:
                others += 1  # which is not read, and may be broken
                yield None
            else:
                placed += 1
                yield ZipRecord(subset, where, found[number], own_map), frames[place]
    if not placed:
        which = "the image is not" if others == 1 else f"none of the {others} images is"
        fix = "" if task.skips_others else ", but of the task's other jobs; import the zip there, "
        raise TfodError(f"{which} a frame of {what}{fix and fix + 'or into the task'}")


class NewImage(NamedTuple):
    """An image of a task that is to be made: ``size`` is its height and width."""

    item_id: str
    extension: str
    encoded: bytes
    size: tuple[int, int]


class NewImages:
    """Names images for CVAT, which makes tasks of files.

    Ids are relative paths that stay in their folder (:mod:`tfod.tfrecord.image_names`), of which a
    subset has none twice. ``renamed`` lists the images that get another name.
    """

    def __init__(self) -> None:
        self.renamed: list[str] = []
        self._ids: dict[str, IdMaker] = {}
        self._numbers = itertools.count()

    def of(self, record: ZipRecord) -> NewImage:
        """The image of a record; raises TfodError where it has none."""
        encoded, size = bytes(record.detection.encoded or b""), size_of(record.detection)
        path = safe_relative_path(record.detection.filename or "")
        ids = self._ids.setdefault(record.subset, IdMaker())
        item_id, extension = ids.make(path, f"image_{next(self._numbers):06d}")
        if not encoded or not all(size):
            raise TfodError(f"image {item_id!r} cannot be read from its shard; export it again")
        if extension.lower() not in FORMAT_OF_EXTENSION:
            # CVAT goes by it, and manifest.jsonl is no image to it whatever it holds.
            kind = sniff_format(encoded[:16]) or ""
            extension = EXTENSION_OF_FORMAT.get(kind, DEFAULT_EXTENSION)
        if item_id in extension:  # CVAT cuts the path at the id, and looks from the end: g.jpg
            extension = extension.swapcase()
        if record.detection.filename != item_id + extension:
            self.renamed.append(f"{record.detection.filename or ''} → {item_id}{extension}")
        return NewImage(item_id, extension, encoded, size)

    def sentences(self) -> list[str]:
        """Return what is to be said of the names."""
        count = len(self.renamed)
        listed = join_names(self.renamed, _NAMES_SHOWN)
        return [f"{plural(count, 'image')} renamed: {listed}"] if count else []


class ShapeBuilder:
    """Makes the shapes of one record after the other, for certain labels.

    Args:
        labels: of what is imported into; None where it takes any, and makes them.
        new_attributes: a label gets the attributes that it lacks.
        by_datumaro: they go by annotations of Datumaro, of whose attributes CVAT takes some for its
            own, a score from 0 to 1 among them.
    """

    def __init__(
        self, labels: Labels | None, *, new_attributes: bool = False, by_datumaro: bool = False
    ) -> None:
        self._labels = labels
        self._new_attributes = new_attributes
        self._by_datumaro = by_datumaro
        self.losses = LossCounter(_ATTRIBUTES, _ABSENT, _CAPTIONS, _EMPTY)

    def shapes(self, record: ZipRecord, size: tuple[int, int]) -> list[CvatShape]:
        """The shapes of a record's objects on a frame of this height and width.

        Raises:
            TfodError: an object has no class of the task, or its mask another size.
        """
        one = record.detection
        self.losses[_CAPTIONS][""] += len(one.captions)
        masks = masks_of(one)

        def pixels(number: int) -> np.ndarray | None:
            mask = masks[number]
            drawn = None if mask is None else _drawn(mask, record.where, size)
            self.losses[_EMPTY][""] += drawn is not None and not drawn.any()
            return drawn

        count = len(one.boxes)
        texts, ids = one.class_text or (None,) * count, one.class_label or (None,) * count
        classes = [self._class(record, *pair) for pair in zip(texts, ids, strict=True)]
        return list(shapes_of(one, classes, _pixels(one.boxes, size), size, pixels, self._fit))

    def tags(self, record: ZipRecord) -> list[CvatTag]:
        """The classes of the whole image; those that are said to be absent do not come."""
        tags = []
        for one in record.detection.image_labels:
            if one.confidence is not None and one.confidence <= 0:
                self.losses[_ABSENT][""] += 1
            else:
                name, values = self._class(record, one.text, one.label), dict(one.attributes)
                if self._by_datumaro and values.pop(SCORE, None) is not None:
                    self.losses[_ATTRIBUTES][SCORE] += 1  # which CVAT's tags do not have
                tags.append(CvatTag(name, self._fit(name, values)))
        return tags

    def _class(self, record: ZipRecord, text: str | None, label: int | None) -> str:
        """The label that an object's text names, or else its id."""
        label_map = record.label_map
        item = label_map.find_id(label) if label_map and label is not None and not text else None
        name = text or (item.class_name if item else "")
        if not name:
            raise TfodError(
                f"{record.where}: an object has no class (no class text, and an id that no label "
                "map explains); add label_map.pbtxt to the zip"
            )
        if self._labels is None or name in self._labels:
            return name
        # Open Images' names are /m/01yrx: take the display name where it is the label's.
        item = label_map.find(name) if label_map else None
        if item is None or item.display_name not in self._labels:
            raise TfodError(f"{record.where}: class {name!r} is not a label of the task")
        return item.display_name

    def _fit(self, label: str, values: Mapping[str, Any]) -> Attributes:
        """Attributes that the label has, with values that it allows."""
        specs = (self._labels or {}).get(label) or {}
        found = []
        for name, value in values.items():
            spec = specs.get(name)
            fit: bool | float | str | None = None
            if name in keys.FLAGS and value in (0, 1):
                value = bool(value)
            if self._by_datumaro and name in (_INTERNAL if spec is None else _TAKEN):
                is_score = name == SCORE and isinstance(value, (int, float)) and 0 <= value <= 1
                fit = value if is_score else None
            elif spec is not None:
                fit = _fit_value(value, spec)
            elif self._new_attributes and len(name) <= _LONGEST_NAME:
                fit = _storable(value)
            text = _text_of(fit)
            if text is not None:
                found.append((name, text))
            # A track's is a number of the task that was exported, of no use here.
            if (text is None and name != TRACK) or (name == SCORE and spec and self._by_datumaro):
                self.losses[_ATTRIBUTES][name] += 1
        return tuple(found)


def datumaro_attributes(shape: CvatShape) -> dict[str, Any]:
    """What CVAT's import finds at an annotation of Datumaro's.

    Marks that are not set stay away, since a label may have an attribute of that name.
    """
    found: dict[str, Any] = dict(shape.attributes)
    if SCORE in found:
        found[SCORE] = float(found[SCORE])
    if shape.occluded:
        found["occluded"] = True
    if shape.rotation:
        found["rotation"] = shape.rotation
    return found


def _pixels(boxes: np.ndarray, size: tuple[int, int]) -> list[PixelBox]:
    """Boxes in pixels, clamped to the image, as CVAT's own importers have them."""
    _, corners = corners_in_pixels(boxes, size)
    return [
        (left, top, right, bottom) for left, top, right, bottom in corners.round(_DIGITS).tolist()
    ]


def _drawn(mask: bytes | memoryview | np.ndarray, where: str, size: tuple[int, int]) -> np.ndarray:
    if not isinstance(mask, np.ndarray):
        try:
            mask = decode_mask_png(mask)
        except (ValueError, ImportError) as error:
            raise TfodError(
                f"{where}: a mask cannot be decoded ({error}); export the shard again"
            ) from None
    if mask.shape != size:
        raise TfodError(
            f"{where}: a mask is {mask.shape[1]}x{mask.shape[0]}, its frame {size[1]}x{size[0]}; "
            "make the shard from the images that the task has"
        )
    return mask


def _fit_value(value: Any, spec: AttributeSpec) -> bool | int | float | str | None:
    """A value as CVAT stores it for such an attribute; None where the attribute cannot have it."""
    text = _text_of(value)
    if text is None:
        return None
    if spec.input_type == "checkbox":
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else None
    if spec.input_type == "number":
        return _number(value, spec)
    if spec.input_type == "text" or not spec.values or text in spec.values:
        return text
    for synonyms in ({text.lower()}, _TRUE, _FALSE):
        if text.lower() in synonyms:
            for choice in spec.values:
                if choice.lower() in synonyms:
                    return choice
    return None


def _storable(value: Any) -> bool | int | float | str | None:
    """A value for an attribute that CVAT makes; None where its tables have no place for it."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT and not _UNSTORABLE.search(value) else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (bool, int)) and abs(value) < 1 << 63 else None


def _text_of(value: Any) -> str | None:
    """How CVAT writes a value; None where it cannot."""
    if isinstance(value, bool):
        return "true" if value else "false"
    kept = _storable(value)
    if isinstance(kept, float) and kept.is_integer():
        return str(int(kept))
    return None if kept is None else str(kept)


def _number(value: Any, spec: AttributeSpec) -> int | float | str | None:
    """Return a number within the label's limits (least, largest, step), a text as it was typed."""
    with contextlib.suppress(ValueError, OverflowError):
        number = float(value)
        limits = [float(one) for one in spec.values[:2]]
        if math.isfinite(number) and (len(limits) < 2 or limits[0] <= number <= limits[1]):
            return value if isinstance(value, str) or not number.is_integer() else int(number)
    return None
