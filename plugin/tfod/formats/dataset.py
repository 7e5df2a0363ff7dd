"""What every format is read as and written from: images of a subset in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.image import image_size
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.example.wire import Kind
from tfod.formats.numbers import multiply_as_typed

_T = TypeVar("_T")
DEFAULT_SUBSET = "default"
"""Of a dataset that has no subsets."""


@dataclass(frozen=True)
class Dataset:
    """A dataset while it is read.

    Attributes:
        classes: those of its label maps, and of all images that were read.
        subsets: those that are known beforehand, in this order; one may have no images.
        read: begins to read it. What is yielded is valid until the next is asked for.
        finish: to be called when all is read, before anything is published, with how many images
            and objects there are: what was odd or left out, as sentences; raises TfodError where
            nothing may be written.
        sources: the files that are read, which are never written over.
        source_ids: of all images, where the format has ids; images without one get other numbers.
        shown: replaces temporary paths in a text by those in the zip that was unpacked there.
    """

    classes: Classes
    subsets: Sequence[str]
    read: Callable[[], Iterator[Images]]
    finish: Callable[[int, int], Sequence[str]]
    sources: Sequence[str] = ()
    source_ids: Sequence[str] = ()
    shown: Callable[[str], str] = str


def no_subset(source: str, wanted: str, names: Iterable[str]) -> TfodError:
    """The error for a subset that a dataset does not have."""
    listed = ", ".join(names)
    return TfodError(f"{source} has no subset {wanted!r}; choose another --set: {listed}")


def chosen(subsets: Mapping[str, _T], wanted: str | None, source: str) -> dict[str, _T]:
    """All subsets, or the one that was asked for; a dataset's only one may be called otherwise.

    Raises:
        TfodError: there are several, and none has the name.
    """
    if wanted is None:
        return dict(subsets)
    if wanted not in subsets and len(subsets) != 1:
        raise no_subset(source, wanted, subsets)
    return {wanted: subsets.get(wanted) or next(iter(subsets.values()))}


class Converted(NamedTuple):
    """What was written: images and objects by subset, and what was odd or lost, as sentences.

    ``label_maps`` are files: those that the ids are from, and the one that has all of them now.
    """

    images: Mapping[str, int]
    objects: Mapping[str, int]
    notes: Sequence[str]
    label_maps: Sequence[str]


_NO_CLASS = (
    "an object without a class (no class text, and an id that no label map explains); add "
    "label_map.pbtxt"
)
_NOT_FINITE = "a box with a number that is not finite; correct it where it was annotated"
_EXCHANGED = "a box whose sides are exchanged; correct it where it was annotated"


@dataclass(frozen=True)
class Images:
    """Some images of a subset in columns, with the dataset's one list of classes.

    Attributes:
        subset: its name.
        detections: the rows, for what is rare; of shards columns as well
            (:class:`~tfod.detection.detections.Detections`).
        filenames, source_ids: as the records have them.
        sizes: height and width in pixels, int64 of shape (n, 2); 0 where unknown.
        boxes: of all rows, of shape (m, 4), normalized ``xmin, ymin, xmax, ymax``; float32 from
            shards, float64 from documents.
        splits: where the boxes of each row begin, and the end; n + 1 of them.
        classes: the id of each box's class.
        is_plain: whether no row says more than that, but for its image.
        label_map, all_classes: what explains the classes of the rows, and those of the dataset.
    """

    subset: str
    detections: Sequence[Detection]
    filenames: Sequence[str | None]
    source_ids: Sequence[str | None]
    sizes: np.ndarray
    boxes: np.ndarray
    splits: Sequence[int]
    classes: Sequence[int]
    is_plain: bool
    label_map: LabelMap | None
    all_classes: Classes

    @classmethod
    def of(
        cls, subset: str, found: Sequence[Detection], label_map: LabelMap | None, classes: Classes
    ) -> Images:
        """The columns of rows whose classes are of a label map, if there is one.

        Raises:
            RecordError: a row has a problem.
            TfodError: an object has no class.
        """
        if isinstance(found, Detections):
            images = cls._of_records(subset, found, label_map, classes)
        else:
            images = cls(
                subset,
                found,
                [one.filename for one in found],
                [one.source_id for one in found],
                np.array([size_of(one) for one in found], np.int64).reshape(-1, 2),
                np.concatenate([np.zeros((0, 4), np.float32), *(one.boxes for one in found)]),
                np.cumsum([0, *(len(one.boxes) for one in found)]).tolist(),
                classes.ids(label_map, *_named(found)),
                False,
                label_map,
                classes,
            )
        images._refuse(np.array(images.classes, np.int64) < 0, _NO_CLASS)
        return images

    @classmethod
    def _of_records(
        cls, subset: str, found: Detections, label_map: LabelMap | None, classes: Classes
    ) -> Images:
        for row in sorted(found.unreadable_rows):
            error = found.error(row)
            if error is not None:
                raise error
        labels: Sequence[int | None] = found.column(keys.CLASS_LABEL, Kind.INT64).values.tolist()
        texts: Sequence[str | None] = found.class_text_values
        total = len(found.boxes)
        if len(labels) not in (0, total) or len(texts) not in (0, total):
            texts, labels = _named(found)  # only some records have them
        return cls(
            subset,
            found,
            found.filenames,
            found.source_ids,
            found.sizes,
            found.boxes,
            found.box_splits.tolist(),
            classes.ids(label_map, texts or [None] * total, labels or [None] * total),
            not found.other_keys,
            label_map,
            classes,
        )

    def renumbered(self, row: int, detection: Detection) -> Detection:
        """A row with the classes of the dataset: those of its objects, and of the whole image.

        Raises:
            LabelMapError: the pixels of a mask are ids that would be others.
        """
        classes, labels = self.all_classes, detection.image_labels
        ids = self.classes[self.splits[row] : self.splits[row + 1]]
        if detection.image_masks.get("panoptic_category"):
            classes.require_same_ids(self.label_map, f"image {detection.filename!r}")

        def renumber(texts: list[str | None], numbers: list[Any]) -> list[Any]:
            new = classes.ids(self.label_map, texts, numbers)
            return [one if one >= 0 else own for one, own in zip(new, numbers, strict=True)]

        image_ids = renumber([one.text for one in labels], [one.label for one in labels])
        lists = {
            name: renumber([None] * len(values), list(values))
            for name, values in detection.image_attributes.items()
        }
        names = classes.label_map.class_names
        return replace(
            detection,
            class_text=[names[one] for one in ids],
            class_label=ids,
            image_labels=[
                replace(one, text=names.get(label, one.text), label=label)
                for one, label in zip(labels, image_ids, strict=True)
            ],
            image_attributes=lists,
        )

    def require_sound_boxes(self) -> None:
        """Raise TfodError for a box that is not finite or inverted."""
        self._refuse(~np.isfinite(self.boxes).all(axis=1), _NOT_FINITE)
        self._refuse(np.any(self.boxes[:, 2:] < self.boxes[:, :2], axis=1), _EXCHANGED)

    def _refuse(self, odd: np.ndarray, what: str) -> None:
        for box in np.flatnonzero(odd)[:1].tolist():
            row = int(np.searchsorted(self.splits, box, side="right")) - 1
            raise TfodError(f"image {self.filenames[row]!r:.81} has {what}")

    @property
    def rows_with_image(self) -> list[int]:
        """Those whose record has the bytes of an image."""
        if isinstance(self.detections, Detections):
            start, end = self.detections.encoded.T
            rows: list[int] = np.flatnonzero(end > start).tolist()
            return rows
        return [row for row, one in enumerate(self.detections) if one.encoded]

    def encoded(self, row: int) -> memoryview | bytes | None:
        """The image file's bytes; None or empty where the record has none."""
        if not isinstance(self.detections, Detections):
            return self.detections[row].encoded
        start, end = self.detections.encoded[row].tolist()
        return memoryview(self.detections.examples.buffer)[start:end] if end > start else None

    def in_pixels(self) -> np.ndarray:
        """The boxes in pixels of their images, float64 of shape (m, 4).

        Those of shards are the shortest decimals that give the same float32.

        Raises:
            TfodError: the size of an image with boxes is not known.
        """
        counts = np.diff(self.splits)
        for row in np.flatnonzero((self.sizes <= 0).any(axis=1) & (counts > 0)).tolist():
            raise TfodError(
                f"image {self.filenames[row]!r:.81} has no size, so its boxes cannot be given in "
                "pixels; write image/height and image/width into its record"
            )
        sizes = np.tile(np.repeat(self.sizes, counts, axis=0)[:, ::-1], 2)
        return multiply_as_typed(self.boxes, sizes)


def size_of(one: Detection) -> tuple[int, int]:
    """Height and width as the record has them, else its image's header; 0, 0 for none."""
    if one.height and one.width:
        return one.height, one.width
    return (image_size(bytes(one.encoded)) if one.encoded else None) or (0, 0)


def _named(found: Sequence[Detection]) -> tuple[list[str | None], list[int | None]]:
    """Texts and ids of the classes of all objects."""
    texts: list[str | None] = []
    labels: list[int | None] = []
    for one in found:
        nothing = [None] * len(one.boxes)
        texts += one.class_text or nothing
        labels += one.class_label or nothing
    return texts, labels
