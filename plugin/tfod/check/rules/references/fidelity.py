"""Rules about the annotations that a shard was made from.

:mod:`tfod.check.references.annotations.comparison` pairs the boxes; the rules say what is left
over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfod.check.findings.finding import Place, Problem, Severity
from tfod.check.records.column_order import SIDES
from tfod.check.rules.registry import rule
from tfod.detection import keys

Corners: TypeAlias = tuple[float, float, float, float]
"""``xmin, ymin, xmax, ymax`` in pixels of the source's image."""

_CANDIDATES_SHOWN = 3


@dataclass(frozen=True)
class NamedBox:
    """A box of one side of the comparison; a class is None where a record has no name for it."""

    number: int
    name: str | None
    corners: Corners


@dataclass(frozen=True)
class BoxPair:
    """A box of the source and the one of the shard that it became."""

    source: NamedBox
    shard: NamedBox


@dataclass(frozen=True)
class Comparison:
    """What differs between a record and the source.

    Attributes:
        candidates, others: names of the source's images that it can be, one unless something is
            wrong, and how many more there are.
        missing, extra: boxes that the record lacks, and that the source lacks.
        moved, changed: pairs of one class more than a pixel apart; of one location and two classes.
        swapped: how many boxes of the source are found when x and y change places.
        tolerance: pixels that a side may be off.
        size: width and height of the image, in the source's pixels.
        shifted: the source counts pixels from 1; its boxes are given as counted from 0.
    """

    filename: str
    candidates: Sequence[str]
    missing: Sequence[NamedBox] = ()
    extra: Sequence[NamedBox] = ()
    moved: Sequence[BoxPair] = ()
    changed: Sequence[BoxPair] = ()
    swapped: int = 0
    tolerance: float = 1.0
    size: tuple[float, float] = (0.0, 0.0)
    shifted: bool = False
    others: int = 0


@rule(
    "FID001 error: box of the source is missing",
    why="An object that people have marked is background for the training.",
    fix="Make the shard again; look for a filter in the script that drops boxes.",
    source="issue 3 of tfod",
)
def missing_box(compared: Comparison) -> Iterator[Problem]:
    """Neither in its place nor near it."""
    width, height = compared.size
    for box in compared.missing:
        beyond = box.corners[2] > width or box.corners[3] > height
        yield Problem(
            f"box {box.number} of the source, {_named(box)}, is missing in the shard"
            + (": it passes the image's edge, and some writers drop such boxes" if beyond else "")
        )


@rule(
    "FID002 error: box that the source does not have",
    why="The model is taught an object that was not annotated.",
    fix="Make the shard again; look for boxes of another image or of another run.",
    source="issue 3 of tfod",
)
def extra_box(compared: Comparison) -> Iterator[Problem]:
    """Neither in its place nor near it."""
    for box in compared.extra:
        source = compared.candidates[0]
        yield Problem(f"box {box.number}, {_named(box)}, is not in the source {source!r}")


@rule(
    "FID003 error: box has moved",
    why="The box no longer fits its object; mostly it was scaled by the size of another image.",
    fix="Make the shard again; divide boxes by the size of the image they were drawn on.",
    source="issue 3 of tfod",
)
def moved_box(compared: Comparison) -> Iterator[Problem]:
    """By more than a pixel on some side; with Pascal VOC's count from 1, either count is right."""
    for pair in compared.moved:
        shifts = [
            new - old for old, new in zip(pair.source.corners, pair.shard.corners, strict=True)
        ]
        worst = max(range(4), key=lambda side: abs(shifts[side]))
        sides = ", ".join(
            f"{name} by {shift:+.1f}"
            for name, shift in zip(SIDES, shifts, strict=True)
            if abs(shift) > compared.tolerance
        )
        message = f"box {pair.shard.number}, {_named(pair.shard)}, has moved from "
        message += f"{_pixels(pair.source.corners)}: {sides} pixels"
        message += " (the source's pixels counted from 0)" * compared.shifted
        yield Problem(message, keys.BOX[worst], round(shifts[worst], 3))


@rule(
    "FID004 error: class has changed",
    why="The object is trained as something else.",
    fix="Make the shard again; look at the label map that the script used.",
    source="issue 3 of tfod",
)
def changed_class(compared: Comparison) -> Iterator[Problem]:
    """The box is where it was, its name is another."""
    for pair in compared.changed:
        box, name = pair.shard, pair.shard.name
        message = f"box {box.number} at {_pixels(box.corners)} is {name!r}, in the source it is "
        yield Problem(f"{message}{pair.source.name!r}", keys.CLASS_TEXT, name)


@rule(
    "FID005 error: image of the source is missing",
    why="Work that people have done on it is lost to the training.",
    fix="Add the image to the shard, or check all shards of the set together.",
    source="issue 3 of tfod",
)
def missing_image(name: str, boxes: int) -> Iterator[Problem]:
    """Only images that have boxes: see FID008 for the others."""
    boxes_there = "1 box" if boxes == 1 else f"{boxes} boxes"
    message = f"image {name!r} of the source, with {boxes_there}, is in no shard"
    yield Problem(message, value=name, place=Place(item=name))


@rule(
    "FID006 warning: image is not in the source",
    why="Its boxes cannot be compared; it may come from elsewhere or be renamed.",
    fix="Compare with the annotations that the shard was made from, under the same names.",
    source="issue 3 of tfod",
)
def unknown_image(compared: Comparison) -> Iterator[Problem]:
    """By its full name, its last part, or that without extension."""
    names = compared.candidates
    if len(names) == 1:
        return
    if names:
        count = len(names) + compared.others
        message = f"image {compared.filename!r} can be any of {count} images of the source "
        message += f"({_first(names)})"
    elif compared.filename:
        message = f"image {compared.filename!r} is not in the source"
    else:
        message = "record has no file name, so that no image of the source is its own"
    yield Problem(message, keys.FILENAME, compared.filename)


@rule(
    "FID007 error: x and y are swapped",
    why="Boxes lie mirrored at the image's diagonal, beside their objects.",
    fix="Exchange the x and y lists in the script that made the shard.",
    source="issue 3 of tfod; the OD API orders boxes ymin, xmin, ymax, xmax, others x first",
)
def swapped_sides(compared: Comparison) -> Iterator[Problem]:
    """In place of missing and moved boxes."""
    if compared.swapped:
        boxes = "1 box fits" if compared.swapped == 1 else f"{compared.swapped} boxes fit"
        yield Problem(f"{boxes} the source only with x and y exchanged", feature=keys.XMIN)


@rule(
    "FID008 warning: image without boxes is missing",
    why="Images without objects teach a model what is none; many scripts drop them unseen.",
    fix="Write a record without boxes for it, if it is meant for the training.",
    source="scripts that go by way of a CSV of boxes have no row for such an image",
)
def missing_background(names: Sequence[str]) -> Iterator[Problem]:
    """Said once: how many, and the first names."""
    if names:
        message = "images of the source that have no boxes are in no shard: "
        yield Problem(f"{message}{len(names)} ({_first(names)})", value=len(names))


@rule(
    "FID009 warning: image of another size than in the source",
    why="An image that was cropped or turned shows its objects elsewhere; boxes that are the same "
    "fractions of another image are beside them.",
    fix="Make the shard from the images that were annotated, or say their size in the source.",
    source="cvat-ai/cvat: dataset_manager/formats/cvat.py writes each image's width and height",
)
def other_size(shard: tuple[int, int], source: tuple[int, int]) -> Iterator[Problem]:
    """An info, once for each shard, where both sides are scaled alike, as by a resize.

    Width and height of an image, as its record says them, and as the source does.
    """
    (width, height), (before, tall) = shard, source
    if shard == source:
        return
    is_scaled = abs(width * tall - height * before) <= max(before, tall)  # rounded to pixels
    message = f"image is {width}x{height}, in the source it is {before}x{tall}"
    if (width, height) == (tall, before):
        message += ": one of them is turned, as EXIF orientation does"
    severity = Severity.INFO if is_scaled else None
    yield Problem(message, keys.WIDTH, width, once=is_scaled, severity=severity)


def _first(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_CANDIDATES_SHOWN])
    return f"{shown}, …" if len(names) > _CANDIDATES_SHOWN else shown


def _named(box: NamedBox) -> str:
    name = "without a class" if box.name is None else repr(box.name)
    return f"{name} at {_pixels(box.corners)}"


def _pixels(corners: Corners) -> str:
    return "(" + ", ".join(f"{one:.1f}".removesuffix(".0") for one in corners) + ")"
