"""Comparing two datasets: both are read into columns, matched, and compared column by column."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.check.findings.finding import plural
from tfod.shards.convert.formats import FORMATS, ReadOptions, format_of_source
from tfod.shards.create.problems import OddBoxes, Policy
from tfod.shards.diff.box_pairs import PIXEL, iou
from tfod.shards.diff.matching import BoxComparison, Matched, match
from tfod.shards.diff.result import Box, Diff, Difference
from tfod.shards.diff.side import (
    CAN_DECODE,
    NOT_A_NUMBER,
    Side,
    Texts,
    Values,
    pixel_hash,
    read_side,
    records_again,
)

IMAGES = "images"
_KEYPOINTS, _SOURCE_ID = "keypoints", "source id"
_FROM_BOTH = frozenset(("area", _SOURCE_ID))
"""Values that some formats always have: compared where both sides say them."""
_AS_IT_IS = ReadOptions(policy=Policy(OddBoxes.KEEP))
_CLOSE = 1e-6
_NO_VALUES = Values(np.zeros(0, np.int64), np.zeros(0))


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
    texts = Texts()
    sides = []
    for path, named, letter in zip((a, b), options.formats, "ab", strict=True):
        name = format_of_source(path, named, f"--from-{letter}")
        read = functools.partial(FORMATS[name].read, path, options.read)
        sides.append(read_side(path, name, read, texts))
    return _Comparison(sides[0], sides[1], list(texts), options).run()


class _Comparison:
    def __init__(self, a: Side, b: Side, texts: list[str], options: Options) -> None:
        self._a, self._b, self._texts, self._options = a, b, texts, options
        self._found = Diff(a, b, options.tolerance, options.same_subsets, options.max_differences)
        self._found.notes.extend(f"{one.path}: {note}" for one in (a, b) for note in one.notes)
        self._has_ids = all(FORMATS[one.format].has_ids for one in (a, b))
        self._matched: Matched = match(a, b)

    def run(self) -> Diff:
        found = self._found
        renamed = self._compare_classes()
        self._count_all()
        self._compare_records()
        boxes = BoxComparison(self._a, self._b, self._matched, renamed, self._options.tolerance)
        self._compare_boxes(boxes)
        self._compare_images()
        self._compare_values(boxes)
        order = list(dict.fromkeys((*self._a.subsets, *self._b.subsets)))
        places = {one: number for number, one in enumerate(order)}
        infinite = len(self._a.names)
        found.listed.sort(key=lambda one: (
            places.get(one.subset, -1),
            infinite if one.rows[0] is None else one.rows[0],
            infinite if one.rows[1] is None else one.rows[1],
        ))  # fmt: skip
        return found

    # What a difference is about

    def _text(self, code: int) -> str:
        return self._texts[code] if code >= 0 else ""

    def _at(
        self, change: str, row: int | None, other: int | None, text: str = "", *boxes: Box | None
    ) -> Difference:
        side, own = (self._b, other) if row is None else (self._a, row)
        assert own is not None
        before, after = boxes or (None, None)
        overlap = (
            float(iou(np.array(before.corners), np.array(after.corners)))
            if before and after
            else None
        )
        image = self._text(side.names[own]) or self._text(side.source_ids[own]) or f"record {own}"
        subset = self._subset(side, int(side.subset[own]))
        return Difference(change, subset, image, text, before, after, overlap, (row, other))

    def _each(
        self,
        change: str,
        places: np.ndarray,
        texts: Callable[[int, int], Sequence[str]] = lambda *_: (),
    ) -> None:
        """Add a difference of each of these matched records, with what it had and has."""
        for at in places.tolist():
            row, other = int(self._matched.first[at]), int(self._matched.second[at])
            self._found.add(self._at(change, row, other, " → ".join(texts(row, other))))

    def _subset(self, side: Side, number: int) -> str:
        """The only subset of both sides is the same one, whatever its name."""
        only = len(self._a.subsets) == len(self._b.subsets) == 1
        return self._a.subsets[0] if only else side.subsets[number]

    def _box(self, side: Side, row: int, number: int, scale: np.ndarray) -> Box:
        at = int(side.splits[row]) + number
        x1, y1, x2, y2 = (side.boxes[at] * scale).round(3).tolist()
        return Box(number, self._text(side.classes[at]), (x1, y1, x2, y2))

    # Comparing

    def _compare_classes(self) -> dict[int, int]:
        """Compare the label maps; return the classes that have another name, by their numbers."""
        found, sides = self._found, (self._a, self._b)
        codes = {text: code for code, text in enumerate(self._texts)}
        ids = [{item.class_name: item.id for item in one.label_map.items} for one in sides]
        used = [set(map(self._text, np.unique(one.classes).tolist())) for one in sides]
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
        gone = {name for name in ids[0] if name not in ids[1] and name not in renamed}
        new = {name for name in ids[1] if name not in ids[0] and name not in renamed.values()}
        # Some formats have no list of classes, but those of their objects.
        for change, names, own in (("removed", gone, used[0]), ("added", new, used[1])):
            for name in sorted(names if self._has_ids else names & own):
                found.add(Difference(f"class_{change}", text=repr(name)))
        return {codes[name]: codes[other] for name, other in renamed.items()}

    def _count_all(self) -> None:
        for letter, side in (("a", self._a), ("b", self._b)):
            counts = np.diff(side.splits)
            for number in range(len(side.subsets)):
                rows = side.subset == number
                figures = self._found.subsets[self._subset(side, number)]
                figures[f"records_{letter}"] += int(rows.sum())
                figures[f"boxes_{letter}"] += int(counts[rows].sum())
            for code, count in zip(*np.unique(side.classes, return_counts=True), strict=True):
                self._found.classes[self._text(code)][f"boxes_{letter}"] += int(count)

    def _compare_records(self) -> None:
        a, b, (first, second, removed, added) = self._a, self._b, self._matched
        codes = Texts()
        for row in removed.tolist():
            boxes = plural(int(a.splits[row + 1] - a.splits[row]), "box")
            self._found.add(self._at("record_removed", row, None, f"with {boxes}"))
        for row in added.tolist():
            boxes = plural(int(b.splits[row + 1] - b.splits[row]), "box")
            self._found.add(self._at("record_added", None, row, f"with {boxes}"))
        own = [np.array([codes[self._subset(side, one)] for one in range(len(side.subsets))])
               for side in (a, b)]  # fmt: skip
        self._each(
            "record_moved",
            np.flatnonzero(own[0][a.subset[first]] != own[1][b.subset[second]]),
            lambda row, other: (a.subsets[a.subset[row]], b.subsets[b.subset[other]]),
        )
        self._each(
            "record_renamed",
            np.flatnonzero(a.names[first] != b.names[second]),
            lambda row, other: (self._text(a.names[row]), self._text(b.names[other])),
        )
        known = ((a.sizes[first] > 0) & (b.sizes[second] > 0)).all(axis=1)
        self._each(
            "size_changed",
            np.flatnonzero(known & (a.sizes[first] != b.sizes[second]).any(axis=1)),
            lambda row, other: tuple(
                f"{width}x{height}" for height, width in (a.sizes[row], b.sizes[other])
            ),
        )

    def _compare_boxes(self, boxes: BoxComparison) -> None:
        for place, paired in sorted(boxes.differing.items()):
            row, other = int(self._matched.first[place]), int(self._matched.second[place])
            scale = boxes.scales(np.array([place]))[0]
            before = functools.partial(self._box, self._a, row, scale=scale)
            after = functools.partial(self._box, self._b, other, scale=scale)
            pairs: list[tuple[str, Box | None, Box | None]] = [
                *(("box_removed", before(one), None) for one in paired.removed),
                *(("box_added", None, after(one)) for one in paired.added),
                *(("box_moved", before(x), after(y)) for x, y in paired.moved),
                *(("box_relabelled", before(x), after(y)) for x, y in paired.relabelled),
            ]
            for change, one, two in pairs:
                self._found.add(self._at(change, row, other, "", one, two))

    def _compare_images(self) -> None:
        first, second = self._matched.first, self._matched.second
        images = self._a.images[first], self._b.images[second]
        differs = (images[0] != images[1]) & (IMAGES not in self._options.ignore)
        for side, others in ((self._a, self._b), (self._b, self._a)):
            if not side.images.any() and others.images.any() and differs.any():
                self._found.notes.append(f"{side.path} has no images; they are not compared")
                differs = np.zeros(len(first), bool)
        self._each("image_added", np.flatnonzero(differs & (images[0] == 0)))
        self._each("image_removed", np.flatnonzero(differs & (images[1] == 0)))
        changed = np.flatnonzero(differs & (images[0] != 0) & (images[1] != 0))
        if len(changed) and not CAN_DECODE:
            self._found.notes.append(
                "Pillow is not installed, so pixels of images are not compared"
            )
        wanted = changed if CAN_DECODE else changed[:0]
        pixels = [
            {row: pixel_hash(one) for row, one in records_again(side.read, rows[wanted].tolist())}
            for side, rows in ((self._a, first), (self._b, second))
        ]
        for row, other in zip(first[changed].tolist(), second[changed].tolist(), strict=True):
            before = pixels[0].get(row)
            is_same = before is not None and before == pixels[1].get(other)
            self._found.add(self._at("image_encoded" if is_same else "image_changed", row, other))

    def _compare_values(self, boxes: BoxComparison) -> None:
        a, b, (first, second, *_) = self._a, self._b, self._matched
        by_pair: dict[tuple[int, int, str], int] = {}
        owners = [np.searchsorted(one.splits, at, "right") - 1
                  for one, at in ((a, boxes.first), (b, boxes.second))]  # fmt: skip
        for name, changed in self._changed_of_objects(boxes):
            for row, other in zip(*(one[changed].tolist() for one in owners), strict=True):
                by_pair[row, other, name] = by_pair.get((row, other, name), 0) + 1
        for (row, other, name), count in by_pair.items():
            self._found.values[name] += count
            text = f"{name} of {plural(count, 'object')}"
            self._found.add(self._at("value_changed", row, other, text))
        values = [dict(one.of_images) for one in (a, b)]
        if self._has_ids:
            for found, side in zip(values, (a, b), strict=True):
                there = np.flatnonzero(side.source_ids >= 0)
                texts = NOT_A_NUMBER * (1 + side.source_ids[there] / 2**31)
                found[_SOURCE_ID] = Values(there, texts)
        places = _inverse(first, len(a.names)), _inverse(second, len(b.names))
        for name in self._names(*values):
            differing = _differing(name, values, places)
            if len(differing):
                self._found.values[name] += len(differing)
            self._each("value_changed", differing, lambda *_, name=name: (name,))

    def _names(self, one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
        return sorted({*one, *other} - self._options.ignore)

    def _changed_of_objects(self, boxes: BoxComparison) -> Iterator[tuple[str, np.ndarray]]:
        """By name the places of pairs of boxes of which something differs."""
        a, b = self._a, self._b
        places = _inverse(boxes.first, len(a.boxes)), _inverse(boxes.second, len(b.boxes))
        for name in self._names(a.of_objects, b.of_objects):
            yield name, _differing(name, (a.of_objects, b.of_objects), places)
        if _KEYPOINTS in self._options.ignore or not (a.points or b.points):
            return
        changed = []
        for at, pair in enumerate(zip(boxes.first.tolist(), boxes.second.tolist(), strict=True)):
            one, two = a.points.get(pair[0]), b.points.get(pair[1])
            if one is None and two is None:
                continue
            if one is None or two is None or one.shape != two.shape:
                changed.append(at)
                continue
            row = np.searchsorted(a.splits, pair[0], "right") - 1
            scale = np.array([*np.maximum(a.sizes[row][::-1], 1), 1e9])
            if not (np.abs(one - two) * scale <= self._options.tolerance).all():
                changed.append(at)
        yield _KEYPOINTS, np.array(changed, np.int64)


def _inverse(numbers: np.ndarray, length: int) -> np.ndarray:
    """The place of each number in a list, -1 for none."""
    found = np.full(length, -1)
    found[numbers] = np.arange(len(numbers))
    return found


def _differing(
    name: str, values: Sequence[Mapping[str, Values]], places: Sequence[np.ndarray]
) -> np.ndarray:
    """The places of the pairs that have different values of a name."""
    found = []
    for side, place in zip(values, places, strict=True):
        own = side.get(name, _NO_VALUES)
        pairs = place[own.numbers]
        found.append((pairs[pairs >= 0], own.values[pairs >= 0]))
    all_pairs = np.union1d(found[0][0], found[1][0])
    columns = np.full((2, len(all_pairs)), np.nan)
    for column, (pairs, numbers) in zip(columns, found, strict=True):
        column[np.searchsorted(all_pairs, pairs)] = numbers
    one, other = columns
    close = np.abs(one - other) <= _CLOSE * np.maximum(1, np.abs(one))
    close &= (one > NOT_A_NUMBER / 2) & ((one != np.rint(one)) | (other != np.rint(other)))
    differs = (one != other) & ~close
    if name in _FROM_BOTH:
        differs &= ~np.isnan(columns).any(axis=0)
    return np.asarray(all_pairs[differs])
