"""Comparison of two datasets: their records, images, boxes, classes and other values.

Records are matched first, then the boxes of each pair. Only a hash of each image and mask is kept.
All differences are counted; the first of each kind are listed.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import eq
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfod.checker.finding import plural
from tfod.detection import keys
from tfod.detection.box_geometry import iou
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.mask_images import decode_mask_png
from tfod.detection.labels.labels_file import is_labels_file
from tfod.errors import excerpt
from tfod.example.example_batch import copy_bytes
from tfod.example.wire import Kind
from tfod.formats.dataset import Images
from tfod.formats.format_writer import Mask, get_masks
from tfod.formats.options import Options
from tfod.formats.table import FORMATS, open_source
from tfod.sources.label_map_search import may_be_label_map
from tfod.tfrecord.image_names import safe_relative_path

PIXEL = 1.02
"""Default tolerance of box sides, which covers rounding to integers, float32 or two decimals."""
# "Unspecified" is a pose of Pascal VOC, which create_pascal_tf_record.py writes.
_DEFAULTS = {item.name: (item.default, "Unspecified") for item in keys.OBJECT_ATTRIBUTES}
_NOT_FINITE = -9e9, 8e9, -8e9  # replace NaN and both infinities: NaN does not equal itself
_FLOAT32_TOLERANCE = 2**-22
_MIN_OVERLAP, _MIN_RELABELLED_OVERLAP = 0.1, 0.5
_MAX_PAIRS = 1 << 20
_Pairs: TypeAlias = "list[tuple[int, int]]"


class Record(NamedTuple):
    """A record of one of the two datasets.

    Attributes:
        source_id: source id; also empty if it repeats the file name.
        size: height and width in pixels; 0 if unknown.
        image: hash of the image bytes; empty if there are none.
        boxes: float32 of shape (n, 4), normalized ``xmin, ymin, xmax, ymax``, all finite.
        classes: class id of each box in :attr:`Side.names`.
        values: other values by name, one per box and a last one for the image; None for defaults.
    """

    number: int
    subset: str
    name: str
    source_id: str
    size: tuple[int, int]
    image: str
    boxes: np.ndarray
    classes: Sequence[int]
    values: Mapping[str, Sequence[Any]]


class Side(NamedTuple):
    """One of the two datasets: its format, label maps, records and class names by id."""

    path: str
    format: str
    label_maps: Sequence[str]
    subsets: frozenset[str]
    names: Mapping[int, str]
    records: Sequence[Record]
    notes: Sequence[str]


class Difference(NamedTuple):
    """A difference between the two sides.

    Attributes:
        change: kind of the difference, see ``docs/diff.schema.json``.
        subset, image: location, in A if the record is in both; empty for classes.
        records: number of the record in A and in B, from 0; None if it is not in that side.
        text: description of the difference, unless it is a box.
        before, after: box in A and in B: number in the record, class name, corners in pixels.
    """

    change: str
    subset: str
    image: str
    records: tuple[int | None, int | None]
    text: str = ""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    iou: float | None = None


class Diff:
    """A comparison of two datasets, with its result.

    Args:
        tolerance: tolerated difference of box sides and keypoints, in pixels.
        same_subsets: whether a different subset is a difference.
        without: names of values that are not compared; ``images`` stands for the image bytes.
        max_differences: maximum number of differences of each kind to list.

    Attributes:
        values: number of objects and images with a ``value_changed``, by name of the value.
        listed: the first differences of each kind: of classes, then in the order of the records.
    """

    def __init__(
        self,
        a: Side,
        b: Side,
        *,
        tolerance: float = PIXEL,
        same_subsets: bool = False,
        without: Iterable[str] = (),
        max_differences: int = 100,
    ) -> None:
        if len(a.subsets) == len(b.subsets) == 1:  # the only subset is the same, whatever its name
            b = b._replace(records=[record._replace(subset=min(a.subsets)) for record in b.records])
        self.a, self.b, self.tolerance = a, b, tolerance
        self._same_subsets, self._without, self._limit = same_subsets, {*without}, max_differences
        self.counts, self.values = Counter[str](), Counter[str]()
        self.listed: list[Difference] = []
        self.notes = [*a.notes, *b.notes]
        imageless = [side for side in (a, b) if {record.image for record in side.records} == {""}]
        if len(imageless) == 1 and "images" not in self._without:
            self.notes.append(f"{imageless[0].path} has no images, so images are not compared")
            self._without.add("images")
        self._has_ids = all(FORMATS[side.format].has_ids for side in (a, b))
        self._renamed = self._compare_classes()
        for record_a, record_b in match(a.records, b.records):
            if record_a and record_b:
                self._compare(record_a, record_b)
            elif record := record_a or record_b:
                change = "record_removed" if record_a else "record_added"
                self._add(change, record_a, record_b, f"with {plural(len(record.boxes), 'box')}")

    @property
    def is_equal(self) -> bool:
        """Whether there are no differences; moved records count only with ``same_subsets``."""
        return all(change == "record_moved" and not self._same_subsets for change in self.counts)

    def _add(self, change: str, a: Record | None, b: Record | None, *details: Any) -> None:
        """Count a difference, and list it; ``details`` are the last fields of a Difference."""
        self.counts[change] += 1
        if self.counts[change] <= self._limit:
            subset = image = ""
            if record := a or b:
                subset = record.subset
                image = record.name or record.source_id or f"record {record.number}"
            numbers = a.number if a else None, b.number if b else None
            self.listed.append(Difference(change, subset, image, numbers, *details))

    def _compare_classes(self) -> Mapping[str, str]:
        """Compare the label maps, and return B's names of the classes of A that were renamed."""
        a, b = self.a, self.b
        ids_a, ids_b = ({name: number for number, name in side.names.items()} for side in (a, b))
        renamed: dict[str, str] = {}
        for name, number in ids_a.items() if self._has_ids else ():
            new = b.names.get(number, name)
            if name not in ids_b and new not in ids_a:
                renamed[name] = new
                self._add(
                    "class_renamed", None, None, f"{excerpt(name)} → {excerpt(new)}, id {number}"
                )
            elif ids_b.get(name, number) != number:
                text = f"{excerpt(name)} has id {number} → {ids_b[name]}"
                self._add("class_renumbered", None, None, text)
        for change, side, matched_names in (
            ("class_removed", a, {*ids_b, *renamed}),
            ("class_added", b, {*ids_a, *renamed.values()}),
        ):
            # Some formats have no list of classes: take the classes of the objects.
            used = {number for record in side.records for number in record.classes}
            numbers = side.names if self._has_ids else used
            for name in sorted({side.names[number] for number in numbers} - matched_names):
                self._add(change, None, None, f"{excerpt(name)}")
        return renamed

    def _compare(self, a: Record, b: Record) -> None:
        if a.subset != b.subset:
            self._add("record_moved", a, b, f"{a.subset} → {b.subset}")
        if a.name != b.name:
            self._add("record_renamed", a, b, f"{a.name} → {b.name}")
        sizes = [record.size for record in (a, b) if all(record.size)]
        if len({*sizes}) == 2:
            self._add("size_changed", a, b, " → ".join(f"{w}x{h}" for h, w in sizes))
        if a.image != b.image and "images" not in self._without:
            change = "image_removed" if a.image else "image_added"
            self._add("image_changed" if a.image and b.image else change, a, b)
        height, width = map(min, zip(*sizes or [(1000, 1000)], strict=True))
        scale = np.array((width, height) * 2, np.float64)
        pairs = [*self._compare_boxes(a, b, scale), (-1, -1)]  # -1: the value of the image
        self._compare_values(a, b, pairs, self.tolerance / scale[:2])

    def _compare_boxes(self, a: Record, b: Record, scale: np.ndarray) -> _Pairs:
        """Compare the boxes of two records, and return the pairs of boxes that match."""
        boxes_a, boxes_b = a.boxes * scale, b.boxes * scale
        names_a = [self.a.names[number] for number in a.classes]
        names_b = [self.b.names[number] for number in b.classes]
        new_names_a = [self._renamed.get(name, name) for name in names_a]
        unmatched_a, unmatched_b = set(range(len(names_a))), set(range(len(names_b)))
        pairs: _Pairs = []
        for change, i, j in _candidates((boxes_a, boxes_b), (new_names_a, names_b), self.tolerance):
            if i in unmatched_a and j in unmatched_b:
                unmatched_a.remove(i)
                unmatched_b.remove(j)
                pairs.append((i, j))
                if change:
                    boxes = _box(i, names_a, boxes_a), _box(j, names_b, boxes_b)
                    self._add(change, a, b, "", *boxes, float(iou(boxes_a[i], boxes_b[j])))
        for i in sorted(unmatched_a):
            self._add("box_removed", a, b, "", _box(i, names_a, boxes_a))
        for j in sorted(unmatched_b):
            self._add("box_added", a, b, "", None, _box(j, names_b, boxes_b))
        return pairs

    def _compare_values(self, a: Record, b: Record, pairs: _Pairs, tolerance: np.ndarray) -> None:
        """Compare the other values of pairs of objects; the tolerance is for keypoints."""
        ids = a.source_id, b.source_id
        if self._has_ids and all(ids) and ids[0] != ids[1] and "source id" not in self._without:
            self.values["source id"] += 1
            self._add("value_changed", a, b, "source id")
        nothing = [None] * (1 + max(len(a.boxes), len(b.boxes)))
        for name in sorted({*a.values, *b.values} - self._without):
            values_a, values_b = a.values.get(name, nothing), b.values.get(name, nothing)
            changed = [i for i, j in pairs if _differ(name, values_a[i], values_b[j], tolerance)]
            if changed:
                self.values[name] += len(changed)
                objects = len(changed) - (-1 in changed)
                text = f"{name} of {plural(objects, 'object')}" if objects else name
                self._add("value_changed", a, b, text)


def _box(number: int, names: Sequence[str], boxes: np.ndarray) -> Mapping[str, Any]:
    return {"number": number, "name": names[number], "corners": boxes[number].round(3).tolist()}


def _differ(name: str, a: Any, b: Any, tolerance: np.ndarray) -> bool:
    if a is None or b is None:
        return a is not b and name != "area"  # some formats always have an area
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):  # keypoints
        is_same_shape = np.shape(a) == np.shape(b)  # 0 is the tolerance of the visibility
        return not is_same_shape or bool((np.abs(a - b) > np.append(tolerance, 0)).any())
    if isinstance(a, float) and isinstance(b, float):
        return not math.isclose(a, b, rel_tol=_FLOAT32_TOLERANCE) and repr(a) != repr(b)
    return bool(a != b) and repr(a) != repr(b)  # as text, NaN equals itself


def match(a: Sequence[Record], b: Sequence[Record]) -> list[tuple[Record | None, Record | None]]:
    """Return the pairs of all records of A, then of the other records of B; None if unmatched.

    Records match by file name within a subset, else by file name, by source id if either has no
    file name, or by image bytes. Records with none of these, or the same, match in their order.
    """
    key_functions: Sequence[Callable[[Record], object]] = (
        lambda record: record.name and (record.subset, record.name),
        lambda record: record.name,
        lambda record: record.source_id,
        lambda record: record.image,
        lambda record: not (record.name or record.source_id or record.image),
    )
    partners: dict[int, Record] = {}
    unmatched_a, unmatched_b = a, b
    for number, get_key in enumerate(key_functions):
        by_key: defaultdict[object, deque[Record]] = defaultdict(deque)
        for record in unmatched_b:
            by_key[get_key(record)].append(record)
        for record in unmatched_a:
            same = by_key[get_key(record)] if get_key(record) else None
            if same and not (number == 2 and record.name and same[0].name):
                partners[record.number] = same.popleft()
        unmatched_a = [record for record in unmatched_a if record.number not in partners]
        remaining = (record for records in by_key.values() for record in records)
        unmatched_b = sorted(remaining, key=lambda record: record.number)
    pairs = [(record, partners.get(record.number)) for record in a]
    return [*pairs, *((None, record) for record in unmatched_b)]


def _candidates(
    boxes: Sequence[np.ndarray], classes: Sequence[Sequence[str]], tolerance: float
) -> Iterator[tuple[str, int, int]]:
    """Yield the change (empty if equal) and the numbers of candidate pairs, the best first.

    If the boxes are equal in their order, they form pairs in this order. Otherwise the best have
    the same class and position; then come the same position, the same class, and half overlap.
    """
    boxes_a, boxes_b = boxes
    count = min(len(boxes_a), len(boxes_b))
    in_order = (np.abs(boxes_a[:count] - boxes_b[:count]) <= tolerance).all(axis=1)
    in_order &= np.array(list(map(eq, *classes)), bool)
    # Images do not have thousands of boxes: compare such lists in order, not each with each.
    is_large = len(boxes_a) * len(boxes_b) > _MAX_PAIRS
    if is_large or in_order.sum() == max(len(boxes_a), len(boxes_b)):
        yield from (("", number, number) for number in np.flatnonzero(in_order).tolist())
        return
    names_a, names_b = (np.array(names, object) for names in classes)
    is_same_class = names_a[:, None] == names_b
    overlap = iou(boxes_a[:, None], boxes_b)
    distance = np.abs(boxes_a[:, None] - boxes_b).max(axis=-1, initial=0)
    is_same_box, is_moved = distance <= tolerance, is_same_class & (overlap >= _MIN_OVERLAP)
    is_other_class = overlap >= _MIN_RELABELLED_OVERLAP
    levels = [is_same_box & is_same_class, is_same_box, is_moved, is_other_class]
    changes = "", "box_relabelled", "box_moved", "box_relabelled"
    level = np.select(levels, range(4), 4)
    x, y = np.nonzero(level < 4)
    # Rounded, so that noise in the last digit does not decide between equal candidates.
    cost = np.where(level < 2, distance, -overlap).round(6)
    order = np.lexsort((y, x, cost[x, y], level[x, y]))
    for number, row, column in np.stack((level[x, y], x, y), axis=1)[order].tolist():
        yield changes[number], row, column


def read_side(path: str, options: Options, format: str | None = None, option: str = "") -> Side:
    """Read a dataset; raise TfodError if it is invalid, or its format is unclear.

    ``format`` is None to detect the format; ``option`` is the name of its option, for messages.
    """
    records: list[Record] = []
    with open_source(path, options, format, option) as (format_name, dataset):
        for images in dataset.read():
            records += _records(images, len(records))
        notes = dataset.finish(len(records), sum(len(record.boxes) for record in records))
    notes = [f"{path}: {dataset.restore_paths(note)}" for note in notes]
    subsets = frozenset((*dataset.subsets, *(record.subset for record in records)))
    names = {item.id: item.class_name for item in dataset.classes.label_map.items}
    files = dataset.classes.label_maps
    label_maps = [file for file in files if may_be_label_map(file) or is_labels_file(file)]
    return Side(path, format_name, label_maps, subsets, names, records, notes)


def _records(images: Images, first: int) -> Iterator[Record]:
    boxes = np.nan_to_num(images.boxes, True, *_NOT_FINITE)
    for row, filename in enumerate(images.filenames):
        source_id, data = images.source_ids[row] or "", images.get_encoded(row)
        height, width = images.sizes[row].tolist()
        objects = slice(*images.splits[row : row + 2])
        yield Record(
            number=first + row,
            subset=images.subset,
            name=safe_relative_path(filename or ""),
            source_id=source_id if source_id != filename else "",
            size=(height, width),
            image=_digest(data) if data else "",
            boxes=boxes[objects],
            classes=images.classes[objects],
            values={} if images.is_plain else _values(images.detections, row),
        )


def _values(detections: Sequence[Detection], row: int) -> Mapping[str, Sequence[Any]]:
    detection = detections[row]
    values: dict[str, list[Any]] = {
        name: [None if value in _DEFAULTS.get(name, ()) else value for value in column]
        for name, column in detection.attributes.items()
    }
    masks, labels = get_masks(detection), detection.image_labels
    values["masks"] = [None if mask is None else _hash_mask(mask) for mask in masks]
    if detection.keypoints is not None:
        visible = detection.keypoints.visibility[..., None]
        xy = np.where(visible > 0, detection.keypoints.xy, 0)
        points = np.concatenate((np.nan_to_num(xy, True, *_NOT_FINITE), visible), axis=-1)
        values["keypoints"] = [point if point[:, 2].any() else None for point in points]
    values = {name: [*column, None] for name, column in values.items()}
    image_values: dict[str, Any] = {
        "captions": list(detection.captions),
        "image classes": [(tag.text or tag.label, tag.confidence in (None, 1)) for tag in labels],
        **{name: _digest(mask.data) for name, mask in detection.image_masks.items()},
        **detection.image_attributes,
        **detection.image_extra,
    }
    if isinstance(detections, Detections):
        columns = map(detections.examples.find_columns, detection.unread_keys)
        for column in chain.from_iterable(columns):
            is_bytes = column.kind is Kind.BYTES
            items = copy_bytes(column.buffer, column[row]) if is_bytes else column[row].tolist()
            image_values[column.key] = [*image_values.get(column.key, ()), *items]
    nothing = [None] * (len(detection.boxes) + 1)
    for name, value in image_values.items():
        values.setdefault(name, [*nothing])[-1] = None if value == [] else value
    return {name: items for name, items in values.items() if any(i is not None for i in items)}


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _hash_mask(mask: Mask) -> str:
    """Return a hash of a mask's pixels, whatever its encoding; of its bytes if decoding fails."""
    try:
        pixels = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
    except (ValueError, ImportError):
        return _digest(bytes(mask))
    return f"{pixels.shape} {_digest(np.packbits(pixels).tobytes())}"
