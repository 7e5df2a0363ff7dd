"""Which record of one side is which of the other.

By file name within a subset; by file name; by source id, where one of the two has no file name; by
the image's bytes; those that have none of these by their order, as those that share a name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfod.shards.diff.side import Side


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
