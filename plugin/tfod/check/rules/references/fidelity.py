"""Rules about the annotations that a shard was made from.

:mod:`tfod.check.references.annotations.comparison` pairs the boxes; the rules say what is left
over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


BoxPair: TypeAlias = tuple[NamedBox, NamedBox]
"""A box of the source and the one of the shard that it became."""


@rule(
    "FID001 error: box of the source is missing",
    why="An object that people have marked is background for the training.",
    fix="Make the shard again; look for a filter in the script that drops boxes.",
    source="issue 3 of tfod",
)
def missing_box(boxes: Iterable[NamedBox], width: float, height: float) -> Iterator[Problem]:
    """Boxes of the source, neither in their place nor near it, in an image of so many pixels."""
    for box in boxes:
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
def extra_box(boxes: Iterable[NamedBox], source: str) -> Iterator[Problem]:
    """Boxes of the shard, neither in their place nor near it in this image of the source."""
    for box in boxes:
        yield Problem(f"box {box.number}, {_named(box)}, is not in the source {source!r}")


@rule(
    "FID003 error: box has moved",
    why="The box no longer fits its object; mostly it was scaled by the size of another image.",
    fix="Make the shard again; divide boxes by the size of the image they were drawn on.",
    source="issue 3 of tfod",
)
def moved_box(pairs: Iterable[BoxPair], tolerance: float, shifted: bool) -> Iterator[Problem]:
    """By more than a pixel on some side; with Pascal VOC's count from 1, either count is right.

    ``tolerance`` is how many pixels a side may be off; ``shifted``, that the source counts pixels
    from 1: its boxes are given as counted from 0.
    """
    for source, box in pairs:
        shifts = [new - old for old, new in zip(source.corners, box.corners, strict=True)]
        worst = max(range(4), key=lambda side: abs(shifts[side]))
        sides = ", ".join(
            f"{name} by {shift:+.1f}"
            for name, shift in zip(SIDES, shifts, strict=True)
            if abs(shift) > tolerance
        )
        message = f"box {box.number}, {_named(box)}, has moved from {_pixels(source.corners)}: "
        message += f"{sides} pixels" + " (the source's pixels counted from 0)" * shifted
        yield Problem(message, keys.BOX[worst], round(shifts[worst], 3))


@rule(
    "FID004 error: class has changed",
    why="The object is trained as something else.",
    fix="Make the shard again; look at the label map that the script used.",
    source="issue 3 of tfod",
)
def changed_class(pairs: Iterable[BoxPair]) -> Iterator[Problem]:
    """The box is where it was, its name is another."""
    for source, box in pairs:
        message = f"box {box.number} at {_pixels(box.corners)} is {box.name!r}, in the source it "
        yield Problem(f"{message}is {source.name!r}", keys.CLASS_TEXT, box.name)


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
def unknown_image(filename: str, candidates: Sequence[str], count: int) -> Iterator[Problem]:
    """By its full name, its last part, or that without extension; or it can be one of several."""
    if candidates:
        message = f"image {filename!r} can be any of {count} images of the source "
        message += f"({_first(candidates)})"
    elif filename:
        message = f"image {filename!r} is not in the source"
    else:
        message = "record has no file name, so that no image of the source is its own"
    yield Problem(message, keys.FILENAME, filename)


@rule(
    "FID007 error: x and y are swapped",
    why="Boxes lie mirrored at the image's diagonal, beside their objects.",
    fix="Exchange the x and y lists in the script that made the shard.",
    source="issue 3 of tfod; the OD API orders boxes ymin, xmin, ymax, xmax, others x first",
)
def swapped_sides(count: int) -> Iterator[Problem]:
    """In place of missing and moved boxes."""
    if count:
        boxes = "1 box fits" if count == 1 else f"{count} boxes fit"
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
