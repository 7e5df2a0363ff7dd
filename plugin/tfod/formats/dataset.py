"""The intermediate representation of all formats: batches of images as columns."""

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
from tfod.detection.losses import Loss, LossCounter
from tfod.errors import TfodError, excerpt
from tfod.example.wire import Kind
from tfod.formats.numbers import multiply_as_typed

_T = TypeVar("_T")
DEFAULT_SUBSET = "default"
"""Name of the subset of a dataset without subsets."""


@dataclass(frozen=True)
class Dataset:
    """A dataset that is read lazily.

    Attributes:
        classes: classes of the label maps, and of all images read so far.
        subsets: names of the subsets that are known in advance, in order; some may have no images.
        read: function that starts reading. Each batch is valid until the next one is requested.
        finish: function of the numbers of images and objects, to call before publishing. It returns
            notes on unusual and omitted data, and raises TfodError if nothing may be written.
        sources: files that are read, which must not be overwritten.
        source_ids: ids of all images, if the format has them; other images get other numbers.
        counters: counters of data that is left out or changed, which :attr:`finish` notes.
        restore_paths: function that replaces temporary paths in a text by paths in the source zip.
    """

    classes: Classes
    subsets: Sequence[str]
    read: Callable[[], Iterator[Images]]
    finish: Callable[[int, int], Sequence[str]]
    sources: Sequence[str] = ()
    source_ids: Sequence[str] = ()
    counters: Sequence[LossCounter] = ()
    restore_paths: Callable[[str], str] = str


def subset_error(source: str, requested: str, names: Iterable[str]) -> TfodError:
    """Return the error for a subset that does not exist."""
    listed = ", ".join(names)
    return TfodError(f"{source} has no subset {excerpt(requested)}; choose another --set: {listed}")


def select_subsets(subsets: Mapping[str, _T], requested: str | None, source: str) -> dict[str, _T]:
    """Return all subsets, or the requested one, or the only one under the requested name.

    Raises TfodError if there are several subsets, and none has that name.
    """
    if requested is None:
        return dict(subsets)
    if requested not in subsets and len(subsets) != 1:
        raise subset_error(source, requested, subsets)
    return {requested: subsets.get(requested) or next(iter(subsets.values()))}


class ConversionResult(NamedTuple):
    """What a conversion wrote, and what it lost.

    Attributes:
        images, objects: number of images and objects, by subset.
        notes: sentences about the losses, and about unusual data.
        label_maps: paths of the files that provided the ids, and of the file with all classes.
        lost: data that was left out or changed.
        paths: paths of all new files, with image files; label maps come last.
        deleted: paths of existing shards that were replaced by shards with other names.
    """

    images: Mapping[str, int]
    objects: Mapping[str, int]
    notes: Sequence[str]
    label_maps: Sequence[str]
    lost: Sequence[Loss]
    paths: Sequence[str] = ()
    deleted: Sequence[str] = ()


_NO_CLASS = (
    "an object without a class (no class text, and an id that is not in a label map); add "
    "label_map.pbtxt"
)
_FIX = "correct it, or leave its object out with --odd-boxes drop"
_NOT_FINITE = f"a box with a coordinate that is not a finite number; {_FIX}"
_INVERTED = f"a box whose maximum is below its minimum; {_FIX}"


@dataclass(frozen=True)
class Images:
    """A batch of images of one subset as columns. All batches share a list of classes.

    Attributes:
        detections: one row per image; from shards, :class:`~tfod.detection.detections.Detections`.
        sizes: height and width in pixels, int64 of shape (n, 2); 0 if unknown.
        boxes: normalized ``xmin, ymin, xmax, ymax``, (m, 4); float32 from shards, else float64.
        splits: start of the boxes of each row, followed by the total; n + 1 numbers.
        classes: class id of each box.
        is_plain: whether no row has data other than this and the image.
        label_map: label map for the class ids in the rows.
        all_classes: classes of the dataset.
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
        cls,
        subset: str,
        detections: Sequence[Detection],
        label_map: LabelMap | None,
        classes: Classes,
    ) -> Images:
        """Return the columns of some rows; raise TfodError for an object without a class."""
        if isinstance(detections, Detections):
            images = cls._of_records(subset, detections, label_map, classes)
        else:
            boxes = [detection.boxes for detection in detections]
            images = cls(
                subset,
                detections,
                [detection.filename for detection in detections],
                [detection.source_id for detection in detections],
                np.array(list(map(find_size, detections)), np.int64).reshape(-1, 2),
                np.concatenate([np.zeros((0, 4), np.float32), *boxes]),
                np.cumsum([0, *map(len, boxes)]).tolist(),
                classes.ids(label_map, *_collect_classes(detections)),
                False,
                label_map,
                classes,
            )
        images._require_none(np.array(images.classes, np.int64) < 0, _NO_CLASS)
        return images

    @classmethod
    def _of_records(
        cls, subset: str, detections: Detections, label_map: LabelMap | None, classes: Classes
    ) -> Images:
        for row in sorted(detections.unreadable_rows):
            error = detections.error(row)
            if error is not None:
                raise error
        column = detections.column(keys.CLASS_LABEL, Kind.INT64)
        labels: Sequence[int | None] = column.values.tolist()
        texts: Sequence[str | None] = detections.class_text_values
        total = len(detections.boxes)
        if len(labels) not in (0, total) or len(texts) not in (0, total):
            texts, labels = _collect_classes(detections)  # only some records have them
        return cls(
            subset,
            detections,
            detections.filenames,
            detections.source_ids,
            detections.sizes,
            detections.boxes,
            detections.box_splits.tolist(),
            classes.ids(label_map, texts or [None] * total, labels or [None] * total),
            not detections.other_keys,
            label_map,
            classes,
        )

    def renumber(self, row: int, detection: Detection) -> Detection:
        """Return a row with the class ids of the dataset, for its objects and the whole image.

        Raises LabelMapError if the pixels of a mask are class ids that would change.
        """
        classes, labels = self.all_classes, detection.image_labels
        ids = self.classes[self.splits[row] : self.splits[row + 1]]
        names = classes.label_map.class_names
        detection = replace(
            detection, class_text=[names[class_id] for class_id in ids], class_label=ids
        )
        if not labels and not detection.image_masks and not detection.image_attributes:
            return detection
        if detection.image_masks.get("panoptic_category"):
            classes.require_same_ids(self.label_map, f"image {excerpt(detection.filename)}")

        def to_new_ids(texts: list[str | None], old: list[Any]) -> list[Any]:
            pairs = zip(classes.ids(self.label_map, texts, old), old, strict=True)
            return [new_id if new_id >= 0 else old_id for new_id, old_id in pairs]

        image_ids = to_new_ids([label.text for label in labels], [label.label for label in labels])
        lists = {
            name: to_new_ids([None] * len(values), list(values))
            for name, values in detection.image_attributes.items()
        }
        return replace(
            detection,
            image_labels=[
                replace(label, text=names.get(new_id, label.text), label=new_id)
                for label, new_id in zip(labels, image_ids, strict=True)
            ],
            image_attributes=lists,
        )

    def require_valid_boxes(self) -> None:
        """Raise TfodError for a box that is not finite or inverted."""
        self._require_none(~np.isfinite(self.boxes).all(axis=1), _NOT_FINITE)
        self._require_none(np.any(self.boxes[:, 2:] < self.boxes[:, :2], axis=1), _INVERTED)

    def _require_none(self, is_invalid: np.ndarray, problem: str) -> None:
        for box in np.flatnonzero(is_invalid)[:1].tolist():
            row = int(np.searchsorted(self.splits, box, side="right")) - 1
            raise TfodError(f"image {excerpt(self.filenames[row])} has {problem}")

    @property
    def rows_with_image(self) -> list[int]:
        """The rows whose record contains an image."""
        if isinstance(self.detections, Detections):
            start, end = self.detections.encoded.T
            rows: list[int] = np.flatnonzero(end > start).tolist()
            return rows
        return [row for row, detection in enumerate(self.detections) if detection.encoded]

    def get_encoded(self, row: int) -> memoryview | bytes | None:
        """Return the bytes of the image file; None or empty if the record has no image."""
        if not isinstance(self.detections, Detections):
            return self.detections[row].encoded
        start, end = self.detections.encoded[row].tolist()
        return memoryview(self.detections.examples.buffer)[start:end] if end > start else None

    def to_pixels(self) -> np.ndarray:
        """Return the boxes in pixels, float64 of shape (m, 4); raise TfodError for unknown sizes.

        Boxes from shards become the shortest decimals that give the same float32.
        """
        counts = np.diff(self.splits)
        for row in np.flatnonzero((self.sizes <= 0).any(axis=1) & (counts > 0)).tolist():
            raise TfodError(
                f"image {excerpt(self.filenames[row])} has no size, which is needed to convert its "
                "boxes to pixels; write image/height and image/width into its record"
            )
        sizes = np.tile(np.repeat(self.sizes, counts, axis=0)[:, ::-1], 2)
        return multiply_as_typed(self.boxes, sizes)


def find_size(detection: Detection) -> tuple[int, int]:
    """Return height and width from the record or the image header; 0, 0 if unknown."""
    if detection.height and detection.width:
        return detection.height, detection.width
    return (image_size(bytes(detection.encoded)) if detection.encoded else None) or (0, 0)


def _collect_classes(detections: Sequence[Detection]) -> tuple[list[str | None], list[int | None]]:
    texts: list[str | None] = []
    labels: list[int | None] = []
    for detection in detections:
        no_values = [None] * len(detection.boxes)
        texts += detection.class_text or no_values
        labels += detection.class_label or no_values
    return texts, labels
