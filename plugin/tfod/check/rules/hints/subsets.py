"""DAT: what a dataset and its subsets are like. Hints: they run with ``Options.hints`` alone.

Each is an info or a warning, since none of it makes data invalid. Their subjects are checked by
nothing else, so that a check without hints does not pay for them. Where two subsets are compared,
a hint needs a large difference, and one that is not chance (p < 0.001). The boxes of an image are
not independent of each other: for the second they count as fewer, by Kish's design effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfod.check.findings.finding import Problem, first_of, plural
from tfod.check.records.figures.details import AREAS, Details, quantile
from tfod.check.records.figures.statistics import MOST_KINDS_OF_SUBSET, Statistics
from tfod.check.rules.registry import rule

LARGE_V = 0.2
"""Cramér's V of class counts from which classes of two subsets are apart."""
LARGE_D = 0.2
"""Distance of two cumulative distributions (Kolmogorov-Smirnov) from which they are apart."""
IMBALANCE = 50
"""Times as many boxes of one class as of another that make classes unbalanced."""
SPLIT = 3
"""Images of a class that a split into training, validation and test needs at least."""
_UNLIKELY = 0.001
_ALIKE = 0.2  # how much the boxes of an image are alike: the intraclass correlation
_DEEPCHECKS_DRIFT = "deepchecks: add_condition_drift_score_less_than, 0.2; vision's is 0.15"
_TRAINING = "train"
_MOST_NAMED = 5


@dataclass(frozen=True)
class Subsets:
    """The figures of each subset of a dataset, by name."""

    figures: Mapping[str, Statistics]

    @cached_property
    def training(self) -> str:
        """The subset named for training, or else the one with most boxes."""
        return max(
            sorted(self.figures),
            key=lambda name: (_TRAINING in name.lower(), sum(self.figures[name].classes.values())),
            default="",
        )

    def others(self) -> Iterator[tuple[str, Statistics, Statistics]]:
        """Each other subset that has boxes: its name, its figures and those for training."""
        first = self.figures.get(self.training, Statistics())
        for name, other in self.figures.items():
            if name != self.training and first.classes and other.classes:
                yield name, other, first


@rule(
    "DAT001 warning: class of training is missing in another subset",
    why="How well the model finds the class is measured nowhere.",
    fix="Move some images with the class to that subset, or split again with tfod split.",
    source="deepchecks: train_test_validation/new_label_train_test, turned round",
)
def class_missing(subsets: Subsets) -> Iterator[Problem]:
    """A class that has boxes in the training subset has none in another one."""
    for name, other, training in subsets.others():
        yield from _only_in(training, subsets.training, other, name)


@rule(
    "DAT002 warning: class that training does not have",
    why="The model cannot learn it, and every object of it counts as missed.",
    fix="Move some images with the class to training, or take the class out of the subset.",
    source="deepchecks: train_test_validation/new_label_train_test",
)
def class_without_training(subsets: Subsets) -> Iterator[Problem]:
    """A class that has boxes in a subset has none in the training subset."""
    for name, other, training in subsets.others():
        yield from _only_in(other, name, training, subsets.training)


def _only_in(one: Statistics, name: str, other: Statistics, other_name: str) -> Iterator[Problem]:
    if len(other.classes) >= MOST_KINDS_OF_SUBSET:
        return  # some of its classes have been forgotten
    missing = [text for text, _ in one.classes.most_common() if not other.classes[text]]
    if missing:
        named = first_of(
            [f"{text!r} ({one.classes[text]:,} there)" for text in missing], _MOST_NAMED
        )
        count = plural(len(missing), "class")
        message = f"{other_name} has no box of {count} that {name} has: {named}"
        yield Problem(message, value=[*missing[:100]])


@rule(
    "DAT003 warning: classes of subsets are distributed differently",
    why="What is measured on the subset is not what the model was trained for.",
    fix="Split again at random with tfod split, unless the difference is meant.",
    source=_DEEPCHECKS_DRIFT,
)
def classes_apart(subsets: Subsets) -> Iterator[Problem]:
    """Cramér's V of the classes of two subsets, corrected for chance, is 0.2 or more."""
    for name, other, training in subsets.others():
        names = sorted(training.classes.keys() | other.classes.keys())
        counts = np.array([[one.classes[text] for text in names] for one in (training, other)])
        numbers = [_independent(one) for one in (training, other)]
        v = _cramers_v(counts / counts.sum(axis=1, keepdims=True), *numbers)
        if v >= LARGE_V:
            shares = counts / counts.sum(axis=1, keepdims=True)
            order = np.argsort(-np.abs(shares[0] - shares[1]), kind="stable")[:_MOST_NAMED]
            some = ", ".join(
                f"{names[at]!r} {shares[1, at] * 100:.0f} % of the boxes and "
                f"{shares[0, at] * 100:.0f} %"
                for at in order.tolist()
            )
            yield Problem(
                f"classes of {name} and {subsets.training} differ: Cramér's V is {v:.2f}, from "
                f"{LARGE_V} on it is large: {some}",
                value=round(v, 4),
            )


def _cramers_v(shares: np.ndarray, first: int, second: int) -> float:
    """Cramér's V of two samples, as if they were of one size, without what chance makes of it.

    Args:
        shares: of each class in each sample, shape (2, classes).
        first: how many independent observations the first sample has.
        second: likewise.

    Returns:
        0 where chance explains the difference (p of the chi-squared test, by Wilson's and
        Hilferty's approximation).
    """
    total = shares.sum(axis=0)
    degrees = np.count_nonzero(total) - 1
    if degrees < 1:
        return 0.0
    squares = float((np.square(shares[0] - shares[1]) / np.where(total > 0, total, 1)).sum()) / 2
    scale = (1 / first + 1 / second) / 4
    spread = 2 / (9 * degrees)
    z = ((squares / scale / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    p = math.erfc(z / math.sqrt(2)) / 2
    return math.sqrt(max(0.0, squares - degrees * scale)) if p < _UNLIKELY else 0.0


@rule(
    "DAT004 warning: box sizes of subsets are distributed differently",
    why="Small objects are harder: the same model gets another score for the size alone.",
    fix="Split again at random with tfod split, unless the difference is meant.",
    source=f"{_DEEPCHECKS_DRIFT}; Kolmogorov-Smirnov test",
)
def box_sizes_apart(subsets: Subsets) -> Iterator[Problem]:
    """The areas of the boxes, as parts of the image, have distributions 0.2 or more apart."""
    for name, other, training in subsets.others():
        if training.details and other.details:
            pair = training.details.areas, other.details.areas
            numbers = _independent(training), _independent(other)
            middle = [2 ** ((quantile(one, 0.5) - AREAS + 1) / 4) for one in pair]
            what = f"boxes' sides, half of them below {middle[1]:.2g} and {middle[0]:.2g}"
            yield from _apart(pair, numbers, what, (name, subsets.training))


@rule(
    "DAT005 warning: objects in an image differ between subsets",
    why="Crowded images are harder, and images without objects cannot be missed.",
    fix="Split again at random with tfod split, unless the difference is meant.",
    source=f"{_DEEPCHECKS_DRIFT}; Kolmogorov-Smirnov test",
)
def objects_apart(subsets: Subsets) -> Iterator[Problem]:
    """The numbers of objects in an image have distributions 0.2 or more apart."""
    for name, other, training in subsets.others():
        pair = training.boxes_in_image, other.boxes_in_image
        mean = [float((one * np.arange(len(one))).sum() / one.sum()) for one in pair]
        what = f"objects in an image, on average {mean[1]:.1f} and {mean[0]:.1f}"
        yield from _apart(pair, (_total(pair[0]), _total(pair[1])), what, (name, subsets.training))


@rule(
    "DAT006 warning: image sizes differ between subsets",
    why="They were probably taken or resized in another way, which a model notices.",
    fix="Prepare all subsets in one way, unless the difference is meant.",
    source=f"{_DEEPCHECKS_DRIFT}; Kolmogorov-Smirnov test",
)
def image_sizes_apart(subsets: Subsets) -> Iterator[Problem]:
    """The pixels of an image have distributions 0.2 or more apart, by a quarter of an octave."""
    for name, other, training in subsets.others():
        pair = _pixels(training), _pixels(other)
        images = _total(pair[0]), _total(pair[1])
        if all(images):
            side = [2 ** (quantile(one, 0.5) / 8) for one in pair]
            what = f"sizes of images, half of them below {side[1]:.0f} and {side[0]:.0f} pixels"
            yield from _apart(pair, images, f"{what} square", (name, subsets.training))


def _apart(
    pair: tuple[np.ndarray, np.ndarray],
    images: tuple[int, int],
    what: str,
    names: tuple[str, str],
) -> Iterator[Problem]:
    """Say that two histograms are apart, if they are: by the Kolmogorov-Smirnov distance."""
    if not all(map(_total, pair)) or not all(images):
        return
    first, second = (one.cumsum() / one.sum() for one in pair)
    distance = float(np.abs(first - second).max())
    size = math.sqrt(images[0] * images[1] / sum(images))
    p = 2 * math.exp(-2 * (distance * size) ** 2)
    if distance >= LARGE_D and p < _UNLIKELY:
        message = f"{names[0]} and {names[1]} differ in {what}: the distance of the distributions "
        yield Problem(f"{message}is {distance:.2f}, from {LARGE_D} on it is large", value=distance)


def _independent(statistics: Statistics) -> int:
    """How many independent boxes there are: as many as the images, or some times as many."""
    images, boxes = _total(statistics.boxes_in_image[1:]), statistics.classes.total()
    effect = 1 + _ALIKE * (boxes / max(1, images) - 1)
    return max(1, round(boxes / max(1, effect)))


def _total(counts: np.ndarray) -> int:
    return int(counts.sum())


def _pixels(statistics: Statistics) -> np.ndarray:
    """Images by the logarithm of their pixels."""
    counts = np.zeros(4 * 64, np.int64)
    for (height, width), images in statistics.image_sizes.items():
        counts[min(round(4 * math.log2(max(1, height * width))), len(counts) - 1)] += images
    return counts


@rule(
    "DAT007 info: class in too few images for a split",
    why="Some subset will be without it, or with a single image that decides its score.",
    fix="Collect more images with the class, merge it with a near one, or leave it out.",
    source="scikit-learn: StratifiedShuffleSplit asks for a member of each class on both sides; "
    "datum validate: few_samples_thr",
)
def few_images(details: Details, subsets: int) -> Iterator[Problem]:
    """A class is in more than one image, but in fewer than there are subsets, or than 3."""
    need = max(SPLIT, subsets)
    yield from _in_images(details, range(2, need), f"fewer than {need} images")


@rule(
    "DAT008 info: class in a single image",
    why="It can be trained or measured, not both; mostly its name is spelt wrong.",
    fix="Look at the image: correct the class, or collect more images with it.",
    source="scikit-learn: StratifiedShuffleSplit, 'the least populated class has only 1 member'",
)
def one_image(details: Details) -> Iterator[Problem]:
    """All boxes of a class are in one image, of a dataset of three or more."""
    yield from _in_images(details, range(1, 2), "one image alone")


def _in_images(details: Details, counts: range, what: str) -> Iterator[Problem]:
    found, images = details.class_images, sum(details.formats.values())
    rare = sorted(name for name, count in found.items() if count in counts)
    if rare and images >= SPLIT:
        named = first_of([f"{name!r} ({plural(found[name], 'image')})" for name in rare], 5)
        message = f"{plural(len(rare), 'class')} of {len(found):,} in {what}: {named}"
        yield Problem(message, value=[*rare[:100]])


@rule(
    "DAT009 info: classes are unbalanced",
    why="The loss is that of the frequent classes; rare ones are learnt late or never.",
    fix="Collect more of the rare classes, or weigh or sample them more often in training.",
    source="datum validate: imbalance_ratio_thr, 50",
)
def unbalanced(boxes: Mapping[str, int]) -> Iterator[Problem]:
    """The most frequent class has 50 times as many boxes as the rarest, or more."""
    names = sorted(boxes, key=lambda name: (-boxes[name], name))
    if names and boxes[names[0]] >= IMBALANCE * boxes[names[-1]]:
        most, least = names[0], names[-1]
        ratio = boxes[most] / boxes[least]
        message = f"{most!r} has {boxes[most]:,} boxes, {least!r} {boxes[least]:,}: {ratio:,.0f} "
        message += f"times as many, from {IMBALANCE} on classes are unbalanced"
        yield Problem(message, value=round(ratio, 1))
