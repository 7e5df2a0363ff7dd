"""What differs between two datasets: their records, images, boxes, classes and other values.

Both are read, whatever their formats; of images and masks a hash is kept. Records are matched, then
the boxes of each pair. All differences are counted, and the first of each change listed.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from tfod.example.example_batch import bytes_of
from tfod.example.wire import Kind
from tfod.formats.dataset import Images
from tfod.formats.format_writer import Mask, masks_of
from tfod.formats.options import Options
from tfod.formats.table import FORMATS, open_source
from tfod.sources.label_map_search import may_be_label_map
from tfod.tfrecord.image_names import safe_relative_path

PIXEL = 1.02
"""Pixels that a side may be off: integers, float32, and the two digits of CVAT's XML and
Datumaro's boxes are no movement."""
# "Unspecified" is a view of Pascal VOC's, which create_pascal_tf_record.py writes.
_DEFAULTS = {one.name: (one.default, "Unspecified") for one in keys.OBJECT_ATTRIBUTES}
_NOT_FINITE = -9e9, 8e9, -8e9  # for NaN and both infinities, which are then equal to themselves
_CLOSE = 2**-22  # of two numbers, for what float32 does to them
_LEAST_OVERLAP, _LEAST_OF_OTHER_CLASS = 0.1, 0.5
_MOST_PAIRS = 1 << 20
_Pairs: TypeAlias = "list[tuple[int, int]]"


class Record(NamedTuple):
    """One record of a side.

    Attributes:
        number: among all records of the side, from 0.
        subset, name, source_id: texts; empty where there is none, or an id that repeats the name.
        size: height and width in pixels; 0 where unknown.
        image: a hash of the image's bytes; empty for none.
        boxes: float32 of shape (n, 4), normalized ``xmin, ymin, xmax, ymax``, all finite.
        classes: ids of the boxes' classes among those of the side.
        values: by name what else is said of each box, and last of the whole image; None for nothing
            or a default, of pixels a hash.
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
    """One difference.

    Attributes:
        change: which one, as ``docs/diff.schema.json`` has them.
        subset, image: where; of a record on both sides as A has them. Empty of classes.
        records: the record's number on either side, from 0; None where it has none.
        text: what is different, where it is not a box.
        before, after: either side's box: number in the record, name of class, corners in pixels.
        iou: of the two, where there are two.
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
    """A comparison of two datasets, and what it has found.

    Args:
        a, b: the two.
        tolerance: pixels that sides of boxes may be off.
        same_subsets: whether a record in another subset is a difference.
        ignore: names of values that are not compared; ``images`` are their bytes.
        max_differences: of each change so many are listed.

    Attributes:
        counts: of each change.
        values: of each name of ``value_changed``, how many objects and images.
        listed: the first differences of each change; of classes, then as the records come.
        notes: what was odd, or was not compared, as sentences.
    """

    def __init__(
        self,
        a: Side,
        b: Side,
        *,
        tolerance: float = PIXEL,
        same_subsets: bool = False,
        ignore: Iterable[str] = (),
        max_differences: int = 100,
    ) -> None:
        if len(a.subsets) == len(b.subsets) == 1:  # it is the same one, whatever its names
            b = b._replace(records=[one._replace(subset=min(a.subsets)) for one in b.records])
        self.a, self.b, self.tolerance = a, b, tolerance
        self._same_subsets, self._ignore, self._most = same_subsets, {*ignore}, max_differences
        self.counts, self.values = Counter[str](), Counter[str]()
        self.listed: list[Difference] = []
        self.notes = [*a.notes, *b.notes]
        bare = [one for one in (a, b) if one.records and not any(x.image for x in one.records)]
        if len(bare) == 1 and "images" not in self._ignore:
            self.notes.append(f"{bare[0].path} has no images; they are not compared")
            self._ignore.add("images")
        self._has_ids = all(FORMATS[one.format].has_ids for one in (a, b))
        self._renamed = self._compare_classes()
        for one, other in match(a.records, b.records):
            if one and other:
                self._compare(one, other)
            elif known := one or other:
                change = "record_removed" if one else "record_added"
                self._add(change, one, other, f"with {plural(len(known.boxes), 'box')}")

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs that was asked for."""
        return all(one == "record_moved" and not self._same_subsets for one in self.counts)

    def _add(self, change: str, one: Record | None, other: Record | None, *what: Any) -> None:
        """Count a difference, and list it with what it is, if there is room."""
        self.counts[change] += 1
        if self.counts[change] <= self._most:
            known = one or other
            image = (known.name or known.source_id or f"record {known.number}") if known else ""
            rows = one.number if one else None, other.number if other else None
            where = known.subset if known else "", image, rows
            self.listed.append(Difference(change, *where, *what))

    def _compare_classes(self) -> Mapping[str, str]:
        """Compare the label maps; return those of A's classes that B calls otherwise."""
        a, b = self.a, self.b
        ids, others = ({name: x for x, name in one.names.items()} for one in (a, b))
        renamed: dict[str, str] = {}
        for name, number in ids.items() if self._has_ids else ():
            other = b.names.get(number, name)
            if name not in others and other not in ids:
                renamed[name] = other
                self._add("class_renamed", None, None, f"{name!r:.81} → {other!r:.81}, id {number}")
            elif others.get(name, number) != number:
                text = f"{name!r:.81} has id {number} → {others[name]}"
                self._add("class_renumbered", None, None, text)
        there = {*others, *renamed}, {*ids, *renamed.values()}
        for how, side, known in zip(("removed", "added"), (a, b), there, strict=True):
            # Some formats have no list of classes, but those of their objects.
            used = side.names if self._has_ids else {x for one in side.records for x in one.classes}
            for name in sorted({side.names[x] for x in used} - known):
                self._add(f"class_{how}", None, None, f"{name!r:.81}")
        return renamed

    def _compare(self, one: Record, other: Record) -> None:
        """Compare two records that are the same one."""
        if one.subset != other.subset:
            self._add("record_moved", one, other, f"{one.subset} → {other.subset}")
        if one.name != other.name:
            self._add("record_renamed", one, other, f"{one.name} → {other.name}")
        sizes = [each.size for each in (one, other) if all(each.size)]
        if len({*sizes}) == 2:
            self._add("size_changed", one, other, " → ".join(f"{w}x{h}" for h, w in sizes))
        if one.image != other.image and "images" not in self._ignore:
            how = "changed" if one.image and other.image else "removed" if one.image else "added"
            self._add(f"image_{how}", one, other)
        height, width = map(min, zip(*sizes or [(1000, 1000)], strict=True))
        scale = np.array((width, height) * 2, np.float64)
        pairs = self._compare_boxes(one, other, scale)
        self._compare_values(one, other, [*pairs, (-1, -1)], self.tolerance / scale[:2])

    def _compare_boxes(self, one: Record, other: Record, scale: np.ndarray) -> _Pairs:
        """Compare the boxes of two records; return the pairs of those that are each other."""
        first, second = one.boxes * scale, other.boxes * scale
        names = [self.a.names[x] for x in one.classes]
        others = [self.b.names[x] for x in other.classes]
        called = [self._renamed.get(name, name) for name in names]
        left, right = set(range(len(names))), set(range(len(others)))
        pairs: _Pairs = []
        for change, x, y in _candidates((first, second), (called, others), self.tolerance):
            if x in left and y in right:
                left.remove(x)
                right.remove(y)
                pairs.append((x, y))
                if change:
                    boxes = _box(x, names, first), _box(y, others, second)
                    self._add(change, one, other, "", *boxes, float(iou(first[x], second[y])))
        for x in sorted(left):
            self._add("box_removed", one, other, "", _box(x, names, first))
        for y in sorted(right):
            self._add("box_added", one, other, "", None, _box(y, others, second))
        return pairs

    def _compare_values(self, one: Record, other: Record, pairs: _Pairs, off: np.ndarray) -> None:
        """Compare what else is said of pairs of objects; keypoints may be off."""
        ids = one.source_id, other.source_id
        if self._has_ids and all(ids) and ids[0] != ids[1] and "source id" not in self._ignore:
            self.values["source id"] += 1
            self._add("value_changed", one, other, "source id")
        nothing = [None] * (1 + max(len(one.boxes), len(other.boxes)))
        for name in sorted({*one.values, *other.values} - self._ignore):
            own, theirs = one.values.get(name, nothing), other.values.get(name, nothing)
            changed = [x for x, y in pairs if _differ(name, own[x], theirs[y], off)]
            if changed:
                self.values[name] += len(changed)
                objects = len(changed) - (-1 in changed)
                text = f"{name} of {plural(objects, 'object')}" if objects else name
                self._add("value_changed", one, other, text)


def _box(number: int, names: Sequence[str], boxes: np.ndarray) -> Mapping[str, Any]:
    corners = boxes[number].round(3).tolist()
    return {"number": number, "name": names[number], "corners": corners}


def _differ(name: str, one: Any, other: Any, off: np.ndarray) -> bool:
    if one is None or other is None:
        return one is not other and name != "area"  # which some formats always have
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):  # keypoints
        is_alike = np.shape(one) == np.shape(other)
        return not is_alike or bool((np.abs(one - other) > np.append(off, 0)).any())
    if isinstance(one, float) and isinstance(other, float):
        return not math.isclose(one, other, rel_tol=_CLOSE) and repr(one) != repr(other)
    return bool(one != other) and repr(one) != repr(other)  # as a text NaN is equal to itself


# Matching


def match(a: Sequence[Record], b: Sequence[Record]) -> list[tuple[Record | None, Record | None]]:
    """Which record is which: all of A, with None those that are A's alone; then B's alone.

    By file name within a subset; by file name; by source id, where one of the two has no file name;
    by the image's bytes; those that have none of these by their order, as those that share a name.
    """
    ways: Sequence[Callable[[Record], object]] = (
        lambda one: one.name and (one.subset, one.name),
        lambda one: one.name,
        lambda one: one.source_id,
        lambda one: one.image,
        lambda one: not (one.name or one.source_id or one.image),
    )
    partners: dict[int, Record] = {}
    left, others = a, b
    for number, key in enumerate(ways):
        waiting: defaultdict[object, deque[Record]] = defaultdict(deque)
        for other in others:
            waiting[key(other)].append(other)
        for one in left:
            same = waiting[key(one)] if key(one) else None
            if same and not (number == 2 and one.name and same[0].name):
                partners[one.number] = same.popleft()
        left = [one for one in left if one.number not in partners]
        others = sorted((one for some in waiting.values() for one in some), key=lambda one: one[0])
    return [*((one, partners.get(one.number)) for one in a), *((None, one) for one in others)]


def _candidates(
    boxes: Sequence[np.ndarray], classes: Sequence[Sequence[str]], tolerance: float
) -> Iterator[tuple[str, int, int]]:
    """Which boxes may be each other, the closest first: a change, empty for none, and two numbers.

    In their order where nothing differs. Else those of one class in one place; of two in one place;
    of one class that overlap; of two that overlap by half. All boxes are in pixels, and finite.
    """
    first, second = boxes
    count = min(len(first), len(second))
    in_order = (np.abs(first[:count] - second[:count]) <= tolerance).all(axis=1)
    in_order &= np.array(list(map(eq, *classes)), bool)
    # Boxes by the thousand are no annotation: they are compared as they come, not all with all.
    if len(first) * len(second) > _MOST_PAIRS or in_order.sum() == max(len(first), len(second)):
        yield from (("", number, number) for number in np.flatnonzero(in_order).tolist())
        return
    own, others = (np.array(names, object) for names in classes)
    is_same, overlap = own[:, None] == others, iou(first[:, None], second)
    off = np.abs(first[:, None] - second).max(axis=-1, initial=0)
    is_there, is_moved = off <= tolerance, is_same & (overlap >= _LEAST_OVERLAP)
    ways = [is_there & is_same, is_there, is_moved, overlap >= _LEAST_OF_OTHER_CLASS]
    way = np.select(ways, range(4), 4)
    x, y = np.nonzero(way < 4)
    # Rounded, for noise in the last digit must not decide between equals.
    cost = np.where(way < 2, off, -overlap).round(6)
    order = np.lexsort((y, x, cost[x, y], way[x, y]))
    changes = "", "box_relabelled", "box_moved", "box_relabelled"
    for number, row, column in np.stack((way[x, y], x, y), axis=1)[order].tolist():
        yield changes[number], row, column


# Reading


def read_side(path: str, options: Options, named: str | None = None, option: str = "") -> Side:
    """Read a dataset, of the format that was named with an option, or that the path says.

    Raises:
        TfodError: it is not what it should be, or its format is not known.
    """
    records: list[Record] = []
    with open_source(path, options, named, option) as (format_name, dataset):
        for images in dataset.read():
            records += _records(images, len(records))
        found = dataset.finish(len(records), sum(len(one.boxes) for one in records))
    notes = [f"{path}: {dataset.shown(note)}" for note in found]
    subsets = frozenset((*dataset.subsets, *(one.subset for one in records)))
    names = {item.id: item.class_name for item in dataset.classes.label_map.items}
    files = dataset.classes.label_maps
    label_maps = [file for file in files if may_be_label_map(file) or is_labels_file(file)]
    return Side(path, format_name, label_maps, subsets, names, records, notes)


def _records(images: Images, first: int) -> Iterator[Record]:
    boxes = np.nan_to_num(images.boxes, True, *_NOT_FINITE)
    for row, filename in enumerate(images.filenames):
        source_id, data = images.source_ids[row] or "", images.encoded(row)
        height, width = images.sizes[row].tolist()
        places = slice(*images.splits[row : row + 2])
        yield Record(
            number=first + row,
            subset=images.subset,
            name=safe_relative_path(filename or ""),
            source_id=source_id if source_id != filename else "",
            size=(height, width),
            image=_digest(data) if data else "",
            boxes=boxes[places],
            classes=images.classes[places],
            values={} if images.is_plain else _values(images.detections, row),
        )


def _values(found: Sequence[Detection], row: int) -> Mapping[str, Sequence[Any]]:
    one = found[row]
    values: dict[str, list[Any]] = {
        name: [None if value in _DEFAULTS.get(name, ()) else value for value in column]
        for name, column in one.attributes.items()
    }
    values["masks"] = [None if mask is None else _pixels(mask) for mask in masks_of(one)]
    if one.keypoints is not None:
        visible = one.keypoints.visibility[..., None]
        places = np.nan_to_num(np.where(visible > 0, one.keypoints.xy, 0), True, *_NOT_FINITE)
        points = np.concatenate((places, visible), axis=-1)
        values["keypoints"] = [each if each[:, 2].any() else None for each in points]
    values = {name: [*column, None] for name, column in values.items()}
    of_image: dict[str, Any] = {
        "captions": list(one.captions),
        "image classes": [(x.text or x.label, x.confidence in (None, 1)) for x in one.image_labels],
        **{name: _digest(mask.data) for name, mask in one.image_masks.items()},
        **one.image_attributes,
        **one.image_extra,
    }
    examples = found.examples if isinstance(found, Detections) else None
    for column in (x for key in one.unread_keys if examples for x in examples.columns_of(key)):
        is_bytes = column.kind is Kind.BYTES
        said = bytes_of(column.buffer, column[row]) if is_bytes else column[row].tolist()
        of_image[column.key] = [*of_image.get(column.key, ()), *said]
    for name, value in of_image.items():
        values.setdefault(name, [None] * (len(one.boxes) + 1))[-1] = None if value == [] else value
    return {name: each for name, each in values.items() if any(x is not None for x in each)}


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _pixels(mask: Mask) -> str:
    """A hash of a mask's pixels, however it is encoded; of its bytes, where it does not decode."""
    try:
        pixels = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
    except (ValueError, ImportError):
        return _digest(bytes(mask))
    return f"{pixels.shape} {_digest(np.packbits(pixels).tobytes())}"
