"""Rules about what a detector predicts on the images: likely label errors, worst first.

:mod:`tfod.check.references.predictions.comparison` pairs the boxes and says what the scores are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfod.check.findings.finding import JsonValue, Place, Problem
from tfod.check.rules.registry import rule
from tfod.detection import keys

_SOURCE = (
    "FiftyOne's compute_mistakenness (voxel51.com); ObjectLab (Tkachenko, Thyagarajan, Mueller "
    "2023, arXiv 2309.00832), cleanlab.object_detection"
)


@dataclass(frozen=True)
class Suspect:
    """A box that a detector contradicts.

    Attributes:
        score: from 0 to 1, the most suspicious highest.
        place: its record.
        number, name: of the annotated object, None without one.
        confidence: of the prediction; 1 without one.
        predicted: class of the prediction, '' without one.
        corners: of the prediction, normalized ``xmin, ymin, xmax, ymax``; empty without one.
        overlap: intersection over union of the two.
    """

    score: float
    place: Place
    number: int | None = None
    name: str = ""
    confidence: float = 1.0
    predicted: str = ""
    corners: Sequence[float] = ()
    overlap: float = 0.0


class Overlooked(Suspect):
    """A prediction that no box covers by half."""


class Swapped(Suspect):
    """A prediction of another class in the place of a box."""


class BadlyLocated(Suspect):
    """A prediction of the same class that overlaps a box less than those of other boxes do."""


class Spurious(Suspect):
    """A box that no prediction touches."""


@rule(
    "PRD001 warning: object is perhaps not annotated",
    why="An object without a box is background for the training, and a false alarm in every "
    "evaluation.",
    fix="Look at the image; annotate the object if it is one.",
    source=f"{_SOURCE}: overlooked, possible_missing",
)
def overlooked_object(suspect: Overlooked) -> Iterator[Problem]:
    """A confident prediction that no box covers by half (intersection over union; with a box of
    its own class the part of the prediction that lies in it). Score: confidence × (1 - what is
    covered). Confident is what three quarters of the predictions in the place of a box are at
    least (0.5 where there are fewer than 20 of those).
    """
    corners = ", ".join(f"{one:.2f}" for one in suspect.corners)
    yield _problem(suspect, f"no annotated box matches {_predicted(suspect)}, at ({corners})")


@rule(
    "PRD002 warning: class is perhaps another one",
    why="The object is trained as something else.",
    fix="Look at the image; correct the class if it is wrong.",
    source=f"{_SOURCE}: swap, mistakenness",
)
def swapped_class(suspect: Swapped) -> Iterator[Problem]:
    """A confident prediction of another class with an intersection over union of at least 0.5 that
    no box of its class accounts for. Score: confidence × intersection over union, less the
    confidence of a prediction of the annotated class there. Confident as in PRD001.
    """
    message = f"{_annotated(suspect)} is in the place of {_predicted(suspect)}"
    yield _problem(suspect, message, keys.CLASS_TEXT)


@rule(
    "PRD003 warning: box is perhaps badly located",
    why="The detector learns to miss the edges of its objects.",
    fix="Look at the image; move the box if it does not fit the object.",
    source=f"{_SOURCE}: badloc, mistakenness_loc",
)
def badly_located_box(suspect: BadlyLocated) -> Iterator[Problem]:
    """The best prediction of its class overlaps it with an intersection over union from 0.1 to 0.6.
    Score: confidence × (1 - intersection over union). Half of the confidence of PRD001 is enough.
    """
    message = f"{_annotated(suspect)} and {_predicted(suspect)} have"
    yield _problem(suspect, f"{message} {suspect.overlap * 100:.0f} % in common")


@rule(
    "PRD004 info: no prediction finds a box",
    why="There is perhaps no such object, or it is far from its box; or the detector misses it.",
    fix="Look at the largest of them; remove a box that has no object.",
    source=f"{_SOURCE}: possible_spurious",
)
def spurious_box(suspect: Spurious) -> Iterator[Problem]:
    """Neither of its class nor of another with an intersection over union of 0.1, of those with a
    score of at least 0.1; only of classes that are predicted somewhere. Score: the root of the
    part of the image that it covers, since a detector misses large objects less.
    """
    yield _problem(suspect, f"no prediction is near {_annotated(suspect)}")


@rule(
    "PRD005 warning: predictions and records do not go together",
    why="What is predicted on other images, or cannot be used, says nothing of the annotations.",
    fix="Predict on the images of these shards; give the predictions their image/source_id as "
    "image_id, or a list of images with file names, and the ids of the label map.",
    source="cocodataset.org/#format-results",
)
def unmatched_predictions(
    source: str, message: str, count: int, fix: str | None = None
) -> Iterator[Problem]:
    """Predictions of images that no record is of, records without predictions, category ids that
    neither the file nor the label map names, numbers that are not finite, and most boxes normalized
    or far outside their images, with which nothing is compared then: each said once.
    """
    yield Problem(message, value=count, fix=fix, place=Place(source))


@rule(
    "PRD006 warning: predicted classes disagree throughout",
    why="Where a whole class is predicted as another, the numbers of the classes differ, or the "
    "detector does not know the class; no label is shown to be wrong by that.",
    fix="Number the categories as the label map does (from 1), or give the predictions a list of "
    "categories with names.",
    source="detectors count classes from 0, label maps and COCO from 1",
)
def class_disagreement(source: str, message: str, count: int) -> Iterator[Problem]:
    """Fewer than a tenth of at least 10 boxes of a class are predicted as that class. Their boxes
    are in this one finding, not in PRD002. Where the classes agree once 1 is added to the category
    ids, or taken from them, that is what it says.
    """
    yield Problem(message, value=count, place=Place(source))


def _predicted(suspect: Suspect) -> str:
    return f"a predicted {suspect.predicted!r} ({suspect.confidence:.2f})"


def _annotated(suspect: Suspect) -> str:
    return f"object {suspect.number} ({suspect.name!r})"


def _problem(suspect: Suspect, message: str, feature: str | None = None) -> Problem:
    value: dict[str, JsonValue] = {"score": round(suspect.score, 4)}
    if suspect.number is not None:
        value["object"] = suspect.number
    if suspect.predicted:
        value["predicted"] = {
            "class": suspect.predicted,
            "score": round(suspect.confidence, 4),
            "box": [round(one, 5) for one in suspect.corners],
        }
    # Of another detector the scores differ, and what they are about is known by a baseline.
    about = (suspect.place.item, suspect.number, suspect.name, suspect.predicted)
    identity = ", ".join(map(str, about)) if suspect.place.item else None
    return Problem(f"score {suspect.score:.2f}: {message}", feature, value, identity=identity)
