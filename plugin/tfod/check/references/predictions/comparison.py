"""Compares the boxes of a batch of records with what a detector predicts.

As in FiftyOne's mistakenness boxes are paired from an intersection over union of 0.5 on, and what
is confident and contradicts is suspicious; as in ObjectLab a box of the same class that overlaps
less is a bad location. Sources: fiftyone.brain.compute_mistakenness; Tkachenko, Thyagarajan,
Mueller: ObjectLab, 2023, arXiv 2309.00832.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfod.check.references.predictions.predictions import Predictions
from tfod.check.rules.references.predictions import (
    BadlyLocated,
    Overlooked,
    Spurious,
    Suspect,
    Swapped,
)
from tfod.detection.box_pairs import NO_CLASS, iou, pair_best, ranges

TYPES: tuple[type[Suspect], ...] = (Overlooked, Swapped, BadlyLocated, Spurious)
CANDIDATES = np.dtype(
    [
        ("type", np.int8),  # place in TYPES
        ("score", np.float64),  # from 0 to 1, the most suspicious highest
        ("row", np.int64),  # of the batch
        ("box", np.int64),  # of all of the batch; -1 for none
        ("predicted", np.int64),  # of all predictions; -1 for none
        ("confidence", np.float64),  # of the prediction; 1 without one
        ("overlap", np.float64),  # intersection over union of the two
    ]
)
_IN_PLACE, _LOOSE, _TOUCHING = 0.5, 0.6, 0.1
"""Intersection over union from which two boxes are of one object; below which a prediction says
that a box of its class is elsewhere; from which it has to do with a box at all."""
_MOST_PAIRS, _MOST_PAIRS_A_RECORD = 1 << 17, 1 << 21
"""Pairs of a box and a prediction that are looked at together; where a record has more boxes, they
are compared with fewer predictions."""


def compare(
    predictions: Predictions,
    images: np.ndarray,
    sizes: np.ndarray,
    counts: np.ndarray,
    corners: np.ndarray,
    categories: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Compare records with what is predicted on their images.

    Args:
        predictions: of all images.
        images: the predictions' image of each record, -1 for none.
        sizes: height and width that predicted boxes refer to, shape (records, 2); a record where
            they are NaN is left out.
        counts: boxes of each record.
        corners: of all boxes, normalized, shape (n, 4).
        categories: ``category_id`` of each box; NO_CLASS goes with any class.

    Yields:
        Of some records CANDIDATES, some of which are not confident enough, and the numbers of the
        boxes and predictions that are in one place.
    """
    splits = predictions.row_splits
    predicted = splits[images + 1] - splits[images]
    predicted = np.minimum(predicted, _MOST_PAIRS_A_RECORD // np.maximum(counts, 1))
    known = (images >= 0) & np.isfinite(sizes).all(axis=1)
    parts = np.cumsum((counts * predicted)[known]) // _MOST_PAIRS
    starts = np.cumsum(counts) - counts
    for rows in np.split(np.flatnonzero(known), np.flatnonzero(np.diff(parts)) + 1):
        boxes = ranges(starts[rows], counts[rows])
        numbers = ranges(splits[images[rows]], predicted[rows])
        scale = np.repeat(sizes[rows], predicted[rows], axis=0)[:, [1, 0, 1, 0]]
        found, (box, other) = _compare(
            (corners[boxes], predictions.boxes[numbers] / scale),
            (categories[boxes], predictions.categories[numbers]),
            predictions.scores[numbers],
            _products(counts[rows], predicted[rows]),
            np.isin(categories[boxes], predictions.categories),
        )
        # What is at place -1 stands for none.
        of_box, of_other = (
            np.append(np.repeat(rows, one[rows]), -1) for one in (counts, predicted)
        )
        found["row"] = np.maximum(of_box[found["box"]], of_other[found["predicted"]])
        found["box"] = np.append(boxes, -1)[found["box"]]
        found["predicted"] = np.append(numbers, -1)[found["predicted"]]
        yield found, boxes[box], numbers[other]


def _compare(
    corners: tuple[np.ndarray, np.ndarray],
    categories: tuple[np.ndarray, np.ndarray],
    scores: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    is_predicted: np.ndarray,
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Pair boxes and predictions; what is left over or contradicts is suspicious.

    Args:
        corners: of the boxes and of the predictions, normalized.
        categories: likewise.
        scores: of the predictions.
        pairs: numbers of each box and prediction of one record.
        is_predicted: the boxes whose class is predicted anywhere.

    Returns:
        CANDIDATES without rows, and numbers of what is in one place.
    """
    with np.errstate(all="ignore"):
        # Most pairs are apart, which one side shows.
        own, others = (np.ascontiguousarray(one.T) for one in corners)
        near = (own[0][pairs[0]] < others[2][pairs[1]]) & (others[0][pairs[1]] < own[2][pairs[0]])
        box, other = pairs[0][near], pairs[1][near]
        overlap = iou(corners[0][box], corners[1][other])
        areas = [np.nan_to_num((one[:, 2:] - one[:, :2]).prod(axis=1)) for one in corners]
    near = overlap > 0
    box, other, overlap = box[near], other[near], overlap[near]
    score = scores[other]
    same = (categories[0][box] == categories[1][other]) | (categories[0][box] == NO_CLASS)

    def pair(wanted: np.ndarray, gain: np.ndarray) -> np.ndarray:
        left = np.flatnonzero(wanted)
        left = left[np.argsort(-gain[left], kind="stable")]
        found: np.ndarray = left[pair_best(box[left], other[left])]
        return found

    agreeing = pair(same & (overlap >= _IN_PLACE), overlap)
    agreed, is_free = np.zeros(len(areas[0])), np.ones(len(scores), bool)
    agreed[box[agreeing]], is_free[other[agreeing]] = score[agreeing], False
    # A box that is also predicted as what it is called is less suspicious by so much.
    excess = score * overlap - agreed[box]
    swapped = pair(~same & (overlap >= _IN_PLACE) & is_free[other] & (excess > 0), excess)
    is_left = agreed == 0
    is_left[box[swapped]], is_free[other[swapped]] = False, False
    loose = pair(same & is_left[box] & is_free[other] & (overlap >= _TOUCHING), overlap)
    is_free[other[loose]] = False
    badly = np.concatenate((loose, agreeing[overlap[agreeing] < _LOOSE]))
    # A part of an object lies within its box; within one of another class it may be in front.
    inside = overlap / (1 + overlap) * (1 + areas[0][box] / areas[1][other])
    covered = np.zeros(len(scores))
    np.maximum.at(covered, other, np.where(same, inside, overlap))
    free = np.flatnonzero(is_free & (covered < _IN_PLACE))
    untouched = is_predicted.copy()
    untouched[box[overlap >= _TOUCHING]] = False
    missed = np.flatnonzero(untouched)
    sides = np.sqrt(areas[0][missed].clip(0, 1))  # the larger an object, the less is it missed
    found = np.concatenate(
        (
            _candidates(Overlooked, scores[free] * (1 - covered[free]), -1, free, covered[free]),
            _candidates(Swapped, excess[swapped], box[swapped], other[swapped], overlap[swapped]),
            _candidates(
                BadlyLocated,
                score[badly] * (1 - overlap[badly]),
                box[badly],
                other[badly],
                overlap[badly],
            ),
            _candidates(Spurious, sides, missed, -1, 0.0),
        )
    )
    found["confidence"] = np.append(scores, 1.0)[found["predicted"]]
    in_place = np.concatenate((agreeing, swapped))
    return found, (box[in_place], other[in_place])


def _candidates(
    kind: type[Suspect],
    scores: np.ndarray,
    box: np.ndarray | int,
    predicted: np.ndarray | int,
    overlap: np.ndarray | float,
) -> np.ndarray:
    found = np.zeros(len(scores), CANDIDATES)
    found["type"], found["score"] = TYPES.index(kind), scores
    found["box"], found["predicted"], found["overlap"] = box, predicted, overlap
    return found


def _products(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs within each row: places among the ``first`` of all rows and the ``second``."""
    pairs = first * second
    one, other = divmod(ranges(np.zeros_like(pairs), pairs), np.repeat(second, pairs))
    starts = (np.repeat(np.cumsum(side) - side, pairs) for side in (first, second))
    return one + next(starts), other + next(starts)
