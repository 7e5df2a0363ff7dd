"""DAT: what the data are like, by annotations. Hints: they run with ``Options.hints`` alone.

Each is an info or a warning, since none of it makes data invalid. Their subjects are checked by
nothing else, so that a check without hints does not pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tfod.check.findings.finding import Problem, first_of, plural
from tfod.check.records.statistics import MOST_KINDS_OF_SUBSET, Statistics
from tfod.check.rules.registry import rule

_MOST_NAMED = 5
_TRAINING = "train"


@dataclass(frozen=True)
class Subsets:
    """The figures of each subset of a dataset, by name."""

    figures: Mapping[str, Statistics]

    @cached_property
    def training(self) -> str:
        """The subset named for training, or else the one with most boxes."""
        return max(
            self.figures,
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
