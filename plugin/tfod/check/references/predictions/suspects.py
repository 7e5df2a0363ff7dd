"""The most suspicious boxes of all records, and what says which of them are suspicious enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import first_of, plural
from tfod.check.references.predictions.comparison import TYPES
from tfod.check.references.predictions.predictions import Predictions
from tfod.check.rules.references.predictions import (
    BadlyLocated,
    Suspect,
    Swapped,
    class_disagreement,
    unmatched_predictions,
)
from tfod.check.rules.registry import rules_for
from tfod.detection.box_pairs import NO_CLASS

Describe: TypeAlias = Callable[[int], Suspect]
"""From a place among the candidates."""
_ENOUGH, _CONFIDENT = 20, 50
"""From so many pairs on it shows what is confident; percent that is, where there are fewer."""
_ENOUGH_OF_A_CLASS, _HARDLY, _MOSTLY = 10, 0.1, 0.5
_MOST_NAMED = 3
_OUTSIDE = 1.1
"""Detectors cut boxes at the image's edge, or reach a little beyond it."""
_TO_PIXELS = "Write bbox as x, y, width, height in pixels of the image; no prediction was compared."


@dataclass
class Suspects:
    """What records show; parts are merged in any order.

    Attributes:
        most: how many of each type are kept.
        listed: the most suspicious of each type, and at most as many others.
        counts: how many there are, by shard, type, class and percent of confidence.
        confidences: of the predictions in the place of a box, in percent.
        pairs: how often a class, its category and a predicted category are in one place.
        seen: places of the predictions' images that a record is of.
        records, unmatched: how many there are with boxes, and of these without predictions.
        nameless: category ids that nothing has a name for.
        names: of the other categories.
        units: how many predicted boxes there are, how many are within their image's first pixel,
            and how many reach far beyond it.
    """

    most: int
    listed: dict[type[Suspect], list[Suspect]] = field(default_factory=dict)
    counts: Counter[tuple[str, int, str, int]] = field(default_factory=Counter)
    confidences: Counter[int] = field(default_factory=Counter)
    pairs: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)
    records: int = 0
    unmatched: int = 0
    nameless: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    units: np.ndarray = field(default_factory=lambda: np.zeros(3, np.int64))

    def merge(self, other: Suspects) -> None:
        """Add what other records show."""
        for kind, suspects in other.listed.items():
            self._list(kind, suspects)
        self.counts.update(other.counts)
        self.confidences.update(other.confidences)
        self.pairs.update(other.pairs)
        self.seen |= other.seen
        self.records += other.records
        self.unmatched += other.unmatched
        self.nameless |= other.nameless
        self.names.update(other.names)
        self.units += other.units

    def add_units(self, boxes: np.ndarray, limits: np.ndarray) -> None:
        """Count predicted boxes, and those that do not fit into images of such width and height."""
        ends = boxes[:, 2:]
        tiny, beyond = (ends <= _OUTSIDE).all(axis=1), (ends > limits * _OUTSIDE).any(axis=1)
        self.units += [len(boxes), int(tiny.sum()), int(beyond.sum())]

    def add(
        self, found: np.ndarray, classes: Sequence[str], shard: str, describe: Describe
    ) -> None:
        """Count CANDIDATES of boxes of some classes, and keep the most suspicious."""
        percents = in_percent(found["confidence"])
        self.counts.update(
            (shard, *one) for one in zip(found["type"].tolist(), classes, percents, strict=True)
        )
        for place, kind in enumerate(TYPES):
            wanted = np.flatnonzero(found["type"] == place)
            best = wanted[np.argsort(-found["score"][wanted], kind="stable")[: self.most]]
            self._list(kind, map(describe, best.tolist()))

    def _list(self, kind: type[Suspect], suspects: Iterable[Suspect]) -> None:
        listed = self.listed.setdefault(kind, [])
        listed += suspects
        if len(listed) > 2 * self.most:
            listed.sort(key=_order)
            del listed[self.most :]

    # When all records are known

    def report(self, predictions: Predictions, collector: Collector) -> None:
        """Say what is suspicious enough, the worst first, and what does not go together."""
        count, unit = self._other_unit()
        if count:
            collector.add_all(unmatched_predictions(predictions.source, unit, count, _TO_PIXELS))
        else:
            self._report_suspects(predictions.source, collector)
        for count, message in self._unmatched(predictions):
            if count:
                collector.add_all(unmatched_predictions(predictions.source, message, count))

    def _other_unit(self) -> tuple[int, str]:
        """How many boxes are not in pixels of their image, if most are, and what they look like."""
        total, tiny, beyond = self.units.tolist()
        of_all = f"of {plural(total, 'prediction')}"
        if tiny > _MOSTLY * total:
            return tiny, f"bbox of {tiny:,} {of_all} is within one pixel, as if it were normalized"
        if beyond > _MOSTLY * total:
            message = f"bbox of {beyond:,} {of_all} reaches beyond the image, as if it were "
            return beyond, f"{message}xmin, ymin, xmax, ymax, or of an image of another size"
        return 0, ""

    def _report_suspects(self, source: str, collector: Collector) -> None:
        confident = _least_confidence(self.confidences)
        unlike = self._unlike()

        def is_shown(kind: type[Suspect], name: str, percent: int) -> bool:
            # As in ObjectLab less confidence is enough where the classes agree.
            least = confident // 2 if kind is BadlyLocated else confident
            return percent >= least and not (kind is Swapped and name in unlike)

        left: Counter[tuple[type[Suspect], str]] = Counter()
        for (shard, place, name, percent), count in self.counts.items():
            if is_shown(TYPES[place], name, percent):
                left[TYPES[place], shard] += count
        for suspects in self.listed.values():
            suspects.sort(key=_order)
            del suspects[self.most :]
        for one in (one for suspects in self.listed.values() for one in suspects):
            if is_shown(type(one), one.name, int(one.confidence * 100)):
                collector.check(one, one.place)
                left[type(one), one.place.shard] -= 1
        for (kind, shard), count in left.items():
            collector.count(rules_for(kind)[0], shard, count)
        if unlike:
            agreeing, message = self._disagreement(unlike)
            collector.add_all(class_disagreement(source, message, agreeing))

    def _unlike(self) -> dict[str, Counter[int]]:
        """Classes that are predicted as others: how often as which category."""
        by_name: dict[str, Counter[int]] = {}
        agreeing: Counter[str] = Counter()
        for (name, category, predicted), count in self.pairs.items():
            by_name.setdefault(name, Counter())[predicted] += count
            agreeing[name] += count * (category in (predicted, NO_CLASS))
        return {
            name: found
            for name, found in by_name.items()
            if found.total() >= _ENOUGH_OF_A_CLASS and agreeing[name] < _HARDLY * found.total()
        }

    def _disagreement(self, unlike: Mapping[str, Counter[int]]) -> tuple[int, str]:
        """How many boxes agree, and what may be wrong with the others."""
        differences: Counter[int] = Counter()
        for (_, category, predicted), count in self.pairs.items():
            differences[category - predicted] += count
        agreeing, total = differences[0], differences.total()
        for shift, word in ((1, "more"), (-1, "less")):
            if differences[shift] > _MOSTLY * total:
                message = f"category ids are shifted: {agreeing:,} of {total:,} boxes in the place "
                message += f"of a prediction have its class; with one {word} most have"
                return agreeing, message
        names = []
        for name, found in sorted(unlike.items(), key=lambda item: (-item[1].total(), item[0])):
            (other, count), *_ = found.most_common(1)
            shown = self.names.get(other, f"#{other}")
            names.append(f"{name!r} as {shown!r} ({count:,} of {found.total():,})")
        return agreeing, f"classes are predicted as others: {first_of(names, _MOST_NAMED)}"

    def _unmatched(self, predictions: Predictions) -> Iterator[tuple[int, str]]:
        """What has no counterpart, and how many there are, which may be none."""
        others = sorted(set(np.flatnonzero(predictions.counts).tolist()) - self.seen)
        ids = [predictions.ids[one] for one in others[:_MOST_NAMED]]
        count = int(predictions.counts[others].sum())
        text = f"{plural(count, 'prediction')} of images that no record is of: image_id "
        yield count, text + first_of(ids, _MOST_NAMED, len(others))
        text = f"no prediction is of {self.unmatched:,} of {plural(self.records, 'record')} with "
        yield self.unmatched, f"{text}boxes; what is annotated there is not compared"
        nameless = sorted(map(str, self.nameless - self.names.keys()))
        text = f"the label map has no class for category_id {first_of(nameless, _MOST_NAMED)}"
        yield len(nameless), text
        text = f"{plural(predictions.unusable, 'prediction')} with a number that is not finite"
        yield predictions.unusable, text


def in_percent(confidences: np.ndarray) -> list[int]:
    """Confidences in whole percents, rounded down."""
    percents: list[int] = np.floor(confidences * 100).astype(int).tolist()
    return percents


def _least_confidence(confidences: Counter[int]) -> int:
    """The percent that three quarters of them have at least."""
    if confidences.total() < _ENOUGH:
        return _CONFIDENT
    left = confidences.total() / 4
    for percent in sorted(confidences):
        left -= confidences[percent]
        if left <= 0:
            break
    return percent


def _order(one: Suspect) -> tuple[object, ...]:
    place = one.place
    return -one.score, place.shard, place.record, one.number or 0, tuple(one.corners)
