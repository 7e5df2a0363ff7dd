"""Which record of one side is which of the other, and which of their boxes are.

Records by file name within a subset; by file name; by source id, where one of the two has no file
name; by the image's bytes; those that have none of these by their order, as those that share a
name. Boxes in their order where nothing differs, else the closest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tfod.shards.diff.box_pairs import Pairs, TwoSides, Unpaired, ranges
from tfod.shards.diff.side import Side

_AT_ONCE = 1 << 14  # records
_NO_SIZE = 1000  # pixels that an image is taken to have a side
_LEAST = 1e-9


class Matched(NamedTuple):
    """Numbers of records: ``first[i]`` is ``second[i]``; those of one side only, in order."""

    first: np.ndarray
    second: np.ndarray
    removed: np.ndarray
    added: np.ndarray


def match(a: Side, b: Side) -> Matched:
    """Match the records of two sides, whose texts have the same numbers."""
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    left = [np.arange(len(a.names)), np.arange(len(b.names))]
    subsets = {name: number for number, name in enumerate(dict.fromkeys((*a.subsets, *b.subsets)))}
    names = int(max(a.names.max(initial=0), b.names.max(initial=0))) + 1
    for which in ("subset and name", "name", "source id", "image", "order"):
        keys = []
        for side, rows in zip((a, b), left, strict=True):
            name, number, image = side.names[rows], side.source_ids[rows], side.images[rows]
            key = {"source id": number, "image": image, "order": 0 * name}.get(which, name)
            there = {
                "source id": number >= 0,
                "image": image != 0,
                "order": (name < 0) & (number < 0) & (image == 0),
            }.get(which, name >= 0)
            if which == "subset and name" and (len(a.subsets) > 1 or len(b.subsets) > 1):
                own = np.array([subsets[one] for one in side.subsets], np.int64)
                key = own[side.subset[rows]] * names + key
            keys.append((key[there], rows[there]))
        first, second = (
            rows[places]
            for (_, rows), places in zip(keys, _same(keys[0][0], keys[1][0]), strict=True)
        )
        if which == "source id":
            unnamed = (a.names[first] < 0) | (b.names[second] < 0)
            first, second = first[unnamed], second[unnamed]
        found.append((first, second))
        left = [np.setdiff1d(left[0], first), np.setdiff1d(left[1], second)]
    first, second = (np.concatenate(one) for one in zip(*found, strict=True))
    order = np.argsort(first)
    return Matched(first[order], second[order], *left)


def _same(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of equal values, of a value that is there several times in their order."""
    _, codes = np.unique(np.concatenate((first, second)), return_inverse=True)
    ranks = codes.reshape(-1) * (len(codes) + 1)
    ranks += np.concatenate((_repetition(ranks[: len(first)]), _repetition(ranks[len(first) :])))
    one, other = ranks[: len(first)], ranks[len(first) :]
    _, at, to = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    return at, to


def _repetition(codes: np.ndarray) -> np.ndarray:
    """How many times each value came before."""
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.searchsorted(sorted_codes, sorted_codes)
    return found


@dataclass(frozen=True)
class PairedBoxes:
    """The boxes of one pair of records, by their numbers in the records."""

    relabelled: Pairs
    moved: Pairs
    removed: list[int]
    added: list[int]


class BoxComparison:
    """Pairs the boxes of two sides; sides of one may be off by the tolerance in pixels.

    ``renamed`` are numbers of classes of A that have another name in B, and those of these names.

    Attributes:
        first, second: numbers of the boxes that are each other, of all matched records.
        differing: for each pair of records with other differences its place in ``matched``.
    """

    def __init__(
        self, a: Side, b: Side, matched: Matched, renamed: dict[int, int], tolerance: float
    ) -> None:
        self._a, self._b, self._matched = a, b, matched
        self._tolerance = max(tolerance, _LEAST)
        most = max(a.classes.max(initial=0), b.classes.max(initial=0), *renamed, 0)
        self._names = np.arange(most + 1)
        self._names[list(renamed)] = list(renamed.values())
        self.differing: dict[int, PairedBoxes] = {}
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        with np.errstate(all="ignore"):
            for start in range(0, len(matched.first), _AT_ONCE):
                found += self._pair(np.arange(start, min(start + _AT_ONCE, len(matched.first))))
        self.first, self.second = (np.concatenate(one) for one in zip(*found, strict=True))

    def scales(self, places: np.ndarray) -> np.ndarray:
        """Pixels of pairs of records, which boxes are multiplied by; shape (n, 4)."""
        sizes = [
            np.where((side.sizes[rows] > 0).all(axis=1, keepdims=True), side.sizes[rows], 1 << 40)
            for side, rows in ((self._a, self._matched.first[places]),
                               (self._b, self._matched.second[places]))
        ]  # fmt: skip
        smaller = np.minimum(*sizes)
        return np.tile(np.where(smaller < 1 << 40, smaller, _NO_SIZE)[:, ::-1], 2).astype("<f8")

    def _pair(self, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for in_order in (True, False):
            first, second, is_same = self._pair_all(places, in_order)
            yield first, second
            places = places[~is_same]
        for place in places.tolist():
            yield self._pair_one(place)

    def _pair_all(
        self, places: np.ndarray, in_order: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Box for box, as they come or sorted: the boxes of records that are equal, and which."""
        a, b = self._a, self._b
        rows = self._matched.first[places], self._matched.second[places]
        counts = a.splits[rows[0] + 1] - a.splits[rows[0]]
        is_same = counts == b.splits[rows[1] + 1] - b.splits[rows[1]]
        of_pair = np.repeat(np.flatnonzero(is_same), counts[is_same])
        scale = self.scales(places)[of_pair]
        found = []
        for side, own, names in ((a, rows[0], self._names), (b, rows[1], None)):
            numbers = ranges(side.splits[own[is_same]], counts[is_same])
            codes = side.classes[numbers] if names is None else names[side.classes[numbers]]
            boxes = side.boxes[numbers] * scale
            if not in_order:
                order = np.lexsort((*boxes.T, codes, of_pair))
                numbers, codes, boxes = numbers[order], codes[order], boxes[order]
            found.append((numbers, boxes, codes))
        (first, boxes, codes), (second, others, other_codes) = found
        sides = TwoSides(boxes, others, np.full(4, self._tolerance), (codes, other_codes))
        is_same[of_pair[~sides.in_place_by_order(len(first))]] = False
        clean = is_same[of_pair]
        return first[clean], second[clean], is_same

    def _pair_one(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        a, b = self._a, self._b
        start, stop = a.splits[self._matched.first[place] :][:2].tolist()
        begin, end = b.splits[self._matched.second[place] :][:2].tolist()
        scale = self.scales(np.array([place]))
        sides = TwoSides(
            a.boxes[start:stop] * scale,
            b.boxes[begin:end] * scale,
            np.full(4, self._tolerance),
            (self._names[a.classes[start:stop]], b.classes[begin:end]),
        )
        left = Unpaired(sides)
        same = left.pair_in_place()
        relabelled = left.pair(partial(sides.in_place, is_same=False))
        moved = left.pair(sides.overlapping)
        relabelled += left.pair(partial(sides.overlapping, is_same=False))
        if relabelled or moved or left.rows or left.columns:
            self.differing[place] = PairedBoxes(relabelled, moved, left.rows, left.columns)
        pairs = np.array(same + relabelled + moved, np.int64).reshape(-1, 2)
        return pairs[:, 0] + start, pairs[:, 1] + begin
