"""Comparing two datasets: both are read, their records and boxes matched, and what differs said."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.check.findings.finding import plural
from tfod.formats.options import OddBoxes
from tfod.formats.options import Options as ReadOptions
from tfod.formats.table import FORMATS, format_of_source
from tfod.shards.diff.matching import BoxPairs, iou, match
from tfod.shards.diff.result import Box, Diff, Difference
from tfod.shards.diff.side import KEYPOINTS, Record, Side, read_side

PIXEL = 1.02
"""Pixels that a side may be off: integers, float32, and the two digits of CVAT's XML and
Datumaro's boxes are no movement."""
IMAGES = "images"
_SOURCE_ID = "source id"
_FROM_BOTH = frozenset(("area", _SOURCE_ID))
"""Values that some formats always have: compared where both sides say them."""
_AS_IT_IS = ReadOptions(odd_boxes=OddBoxes.KEEP, masks=True)
_CLOSE = 1e-6
_LEAST = 1e-9
_NO_SIZE = 1000  # pixels that an image is taken to have a side


@dataclass(frozen=True)
class Options:
    """What may be asked of a comparison.

    Attributes:
        formats: names of the formats of A and B; None where the paths say it.
        read: what the readers are told; by itself boxes are read as they are.
        tolerance: pixels that sides of boxes may be off.
        same_subsets: whether a record in another subset is a difference.
        ignore: names of values that are not compared; ``images`` are their bytes.
        max_differences: of each change so many are listed.
    """

    formats: tuple[str | None, str | None] = (None, None)
    read: ReadOptions = _AS_IT_IS
    tolerance: float = PIXEL
    same_subsets: bool = False
    ignore: frozenset[str] = frozenset()
    max_differences: int = 100


def diff(a: str, b: str, options: Options) -> Diff:
    """Compare two datasets, which are paths as the readers of their formats take them.

    Raises:
        TfodError: one is not what it should be, or its format is not known.
    """
    sides = [
        read_side(path, format_of_source(path, named, f"--from-{letter}"), options.read)
        for path, named, letter in zip((a, b), options.formats, "ab", strict=True)
    ]
    return _Comparison(sides[0], sides[1], options).run()


class _Comparison:
    def __init__(self, a: Side, b: Side, options: Options) -> None:
        self._a, self._b, self._options = a, b, options
        self._found = Diff(a, b, options.tolerance, options.same_subsets, options.max_differences)
        self._has_ids = all(FORMATS[one.format].has_ids for one in (a, b))
        self._is_one_subset = len(a.subsets) == len(b.subsets) == 1
        self._renamed: Mapping[str, str] = {}

    def run(self) -> Diff:
        found, a, b = self._found, self._a, self._b
        found.notes.extend(f"{one.path}: {note}" for one in (a, b) for note in one.notes)
        self._renamed = self._compare_classes()
        self._count(a, "a")
        self._count(b, "b")
        pairs, removed, added = match(a, b)
        for one in removed:
            self._add("record_removed", one, None, text=f"with {plural(len(one.boxes), 'box')}")
        for one in added:
            self._add("record_added", None, one, text=f"with {plural(len(one.boxes), 'box')}")
        lacking = [side for side in (a, b) if not any(one.image for one in side.records)]
        with_images = IMAGES not in self._options.ignore and not lacking
        if IMAGES not in self._options.ignore and len(lacking) == 1 and pairs:
            found.notes.append(f"{lacking[0].path} has no images; they are not compared")
        for pair in pairs:
            self._compare(*pair, with_images)
        found.sort(list(dict.fromkeys((*a.subsets, *b.subsets))))
        return found

    def _count(self, side: Side, letter: str) -> None:
        found = self._found
        for subset in side.subsets:
            found.subsets[self._subset(subset)][f"records_{letter}"] += 0
        for one in side.records:
            figures = found.subsets[self._subset(one.subset)]
            figures.update({f"records_{letter}": 1, f"boxes_{letter}": len(one.boxes)})
        counts = Counter(label for one in side.records for label in one.classes)
        for label, name in side.names.items():
            if counts[label]:
                found.classes[name][f"boxes_{letter}"] += counts[label]

    def _subset(self, name: str) -> str:
        """The only subset of both sides is the same one, whatever its name."""
        return self._a.subsets[0] if self._is_one_subset else name

    def _add(
        self,
        change: str,
        one: Record | None,
        other: Record | None,
        before: Box | None = None,
        after: Box | None = None,
        text: str = "",
    ) -> None:
        known = one or other
        assert known is not None
        overlap = None
        if before and after:
            overlap = float(iou(np.array(before.corners), np.array(after.corners)))
        image = known.name or known.source_id or f"record {known.number}"
        rows = one.number if one else None, other.number if other else None
        where = self._subset(known.subset), image
        self._found.add(Difference(change, *where, text, before, after, overlap, rows))

    def _compare_classes(self) -> dict[str, str]:
        """Compare the label maps; return the classes that have another name."""
        found, sides = self._found, (self._a, self._b)
        ids = [{item.class_name: item.id for item in one.label_map.items} for one in sides]
        of_id = {number: name for name, number in ids[1].items()}
        renamed: dict[str, str] = {}
        for name, number in ids[0].items() if self._has_ids else ():
            other = of_id.get(number, name)
            if name not in ids[1] and other not in ids[0]:
                renamed[name] = other
                found.add(Difference("class_renamed", text=f"{name!r} → {other!r}, id {number}"))
            elif ids[1].get(name, number) != number:
                text = f"{name!r} has id {number} → {ids[1][name]}"
                found.add(Difference("class_renumbered", text=text))
        used = [{one.names[x] for each in one.records for x in each.classes} for one in sides]
        gone = {name for name in ids[0] if name not in ids[1] and name not in renamed}
        new = {name for name in ids[1] if name not in ids[0] and name not in renamed.values()}
        # Some formats have no list of classes, but those of their objects.
        for change, names, own in (("removed", gone, used[0]), ("added", new, used[1])):
            for name in sorted(names if self._has_ids else names & own):
                found.add(Difference(f"class_{change}", text=repr(name)))
        return renamed

    def _compare(self, one: Record, other: Record, with_images: bool) -> None:
        """Compare two records that are the same one."""
        if self._subset(one.subset) != self._subset(other.subset):
            self._add("record_moved", one, other, text=f"{one.subset} → {other.subset}")
        if one.name != other.name:
            self._add("record_renamed", one, other, text=f"{one.name} → {other.name}")
        if all((*one.size, *other.size)) and one.size != other.size:
            sizes = (f"{width}x{height}" for height, width in (one.size, other.size))
            self._add("size_changed", one, other, text=" → ".join(sizes))
        if with_images and one.image != other.image:
            how = "changed" if one.image and other.image else "removed" if one.image else "added"
            self._add(f"image_{how}", one, other)
        scale = _scale(one, other)
        pairs = self._compare_boxes(one, other, scale)
        for name in sorted({*one.of_objects, *other.of_objects} - self._options.ignore):
            columns = one.of_objects.get(name), other.of_objects.get(name)
            changed = 0
            for pair in pairs:
                x, y = (each[at] if each else None for each, at in zip(columns, pair, strict=True))
                changed += self._differ(name, x, y, scale)
            if changed:
                self._found.values[name] += changed
                text = f"{name} of {plural(changed, 'object')}"
                self._add("value_changed", one, other, text=text)
        ids = [{_SOURCE_ID: x.source_id or None} if self._has_ids else {} for x in (one, other)]
        of_image = {**one.of_image, **ids[0]}, {**other.of_image, **ids[1]}
        for name in sorted({*of_image[0], *of_image[1]} - self._options.ignore):
            if self._differ(name, of_image[0].get(name), of_image[1].get(name), scale):
                self._found.values[name] += 1
                self._add("value_changed", one, other, text=name)

    def _compare_boxes(
        self, one: Record, other: Record, scale: np.ndarray
    ) -> Sequence[tuple[int, int]]:
        """Compare the boxes of two records; return the pairs of those that are each other."""
        sides = (self._a, one), (self._b, other)
        names = [[side.names[label] for label in each.classes] for side, each in sides]
        first, second = one.boxes * scale, other.boxes * scale
        called = [self._renamed.get(name, name) for name in names[0]]
        tolerance = max(self._options.tolerance, _LEAST)
        found = BoxPairs(first, second, (called, names[1]), tolerance)
        for x in found.removed:
            self._add("box_removed", one, other, Box.at(x, names[0], first))
        for y in found.added:
            self._add("box_added", one, other, None, Box.at(y, names[1], second))
        for change, pairs in (("box_moved", found.moved), ("box_relabelled", found.relabelled)):
            for x, y in pairs:
                boxes = Box.at(x, names[0], first), Box.at(y, names[1], second)
                self._add(change, one, other, *boxes)
        return [*found.same, *found.relabelled, *found.moved]

    def _differ(self, name: str, one: Any, other: Any, scale: np.ndarray) -> bool:
        if one is None or other is None:
            return one is not other and name not in _FROM_BOTH
        if name == KEYPOINTS:
            sides = np.array([*scale[:2], 1e9])  # of visibility nothing is tolerated
            if one.shape != other.shape:
                return True
            return not bool((np.abs(one - other) * sides <= self._options.tolerance).all())
        return not _same(one, other)


def _scale(one: Record, other: Record) -> np.ndarray:
    """Pixels of the smaller of two images, which boxes are multiplied by; float64 of shape (4,)."""
    known = [each.size for each in (one, other) if all(each.size)]
    height, width = map(min, zip(*known, strict=True)) if known else (_NO_SIZE, _NO_SIZE)
    return np.array((width, height, width, height), np.float64)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same one, but for what float32 does to it."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        if one == other or (one != one and other != other):  # NaN
            return True
        # Whole numbers are ids and counts: those that differ by one are two.
        are_whole = all(isinstance(x, int) or x.is_integer() for x in (one, other))
        # Python's own may be larger than any float, which cannot be subtracted from them.
        are_finite = all(abs(x) <= sys.float_info.max for x in (one, other))
        return are_finite and not are_whole and abs(one - other) <= _CLOSE * max(1, abs(one))
    texts = (json.dumps(value, sort_keys=True, default=repr) for value in (one, other))
    return one == other or next(texts) == next(texts)
