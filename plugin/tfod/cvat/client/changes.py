"""What an import would change: shapes and tags on the server, in the file, added and removed."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfod.check.reporters.escaping import in_columns
from tfod.cvat.shapes import KINDS, make_shape
from tfod.detection.boxes import PixelBox
from tfod.detection.losses import listed
from tfod.formats.cvat_shapes import CvatShape

_Key = tuple[str, str, tuple[int, ...]]
"""Class, kind and rounded corners of a shape: what makes it the same as another on its frame."""


@dataclass
class Row:
    """Of one class and kind of shape, or tag: on the server, in the file, added, removed."""

    now: int = 0
    file: int = 0
    added: int = 0
    removed: int = 0


@dataclass
class Changes:
    """Collects the comparison, frame by frame.

    Attributes:
        rows: by class and kind.
        others: what the server has besides, by kind; a replacing import removes it.
        tracks: how many of the server's shapes are tracks; a shard has one shape a frame.
    """

    rows: dict[tuple[str, str], Row] = field(default_factory=lambda: defaultdict(Row))
    others: Counter[str] = field(default_factory=Counter)
    tracks: int = 0

    def compare(self, now: Iterable[_Key], file: Iterable[_Key], append: bool) -> None:
        """Add one frame: what the server has on it, and what the file has for it."""
        here, there = Counter(now), Counter(file)
        for key in here.keys() | there.keys():
            row = self.rows[key[:2]]
            row.now += here[key]
            row.file += there[key]
            row.added += there[key] if append else max(0, there[key] - here[key])
            row.removed += 0 if append else max(0, here[key] - there[key])

    def text(self, append: bool) -> str:
        """A table, one line a class and kind."""
        if not self.rows and not self.others:
            return "no annotations, neither on the server nor in the file"
        rows = (
            (f"{label} ({kind})", *map(str, dataclasses.astuple(row)))
            for (label, kind), row in sorted(self.rows.items())
        )
        table = [("class", "now", "in the file", "added", "removed"), *rows]
        text = "\n".join(in_columns(table))
        if self.others and not append:
            text += f"\nalso removed: {listed(self.others)}"
        if self.tracks and not append:
            text += f"\ntracks that become single shapes, one a frame: {self.tracks}"
        return text


def key_of(shape: CvatShape) -> _Key:
    """What a shape is compared by."""
    return shape.label, shape.kind, rounded(shape.corners)


def key_of_tag(label: str) -> _Key:
    """What a class of the whole image is compared by."""
    return label, "tag", ()


def rounded(corners: PixelBox) -> tuple[int, ...]:
    """Corners in whole pixels. What a shard's numbers cannot hold of a hundredth is left out."""
    return tuple(math.floor(round(value, 2) + 0.5) for value in corners)


def shapes_by_frame(
    annotations: Any, names: Mapping[int, str], frames: Iterable[int], changes: Changes
) -> dict[int, list[_Key]]:
    """What the server has on each of these frames: shapes, tags, and tracks as they show there.

    ``annotations`` are those of the server's API, ``names`` the classes by number; ``changes``
    counts what a shard has no place for.
    """
    found: dict[int, list[_Key]] = defaultdict(list)
    there = sorted(frames)
    for shape in annotations["shapes"]:
        if shape["type"] in KINDS:
            name = names.get(shape["label_id"], "")
            key = name, KINDS[shape["type"]], rounded(_corners(shape))
            found[shape["frame"]].append(key)
        else:
            changes.others[shape["type"]] += 1
    for track in annotations["tracks"]:
        keyframes = sorted(track["shapes"], key=lambda one: (one["frame"], one["outside"]))
        if not keyframes or keyframes[0]["type"] not in KINDS:
            changes.others[f"{keyframes[0]['type'] if keyframes else 'empty'} track"] += 1
            continue
        changes.tracks += 1
        kind = keyframes[0]["type"]
        for frame, corners in _shown(keyframes, there):
            name = names.get(track["label_id"], "")
            found[frame].append((name, KINDS[kind], rounded(corners)))
    for tag in annotations["tags"]:
        found[tag["frame"]].append(key_of_tag(names.get(tag["label_id"], "")))
    return found


def _corners(shape: Any) -> PixelBox:
    """The enclosing box of a shape of the API."""
    rotation = shape.get("rotation") or 0.0
    return make_shape(shape["type"], shape["points"], rotation, label="").corners


def _shown(keyframes: list[Any], frames: list[int]) -> Iterator[tuple[int, PixelBox]]:
    """The corners of a track on every frame where it is to be seen.

    Between keyframes they move in a straight line, as CVAT's rectangles do; for outlines, which
    CVAT turns into each other point by point, that is near enough.
    """
    position = 0
    for frame in frames:
        while position + 1 < len(keyframes) and keyframes[position + 1]["frame"] <= frame:
            position += 1
        here = keyframes[position]
        if frame < here["frame"] or here["outside"]:
            continue
        start = _corners(here)
        if position + 1 == len(keyframes) or here["frame"] == frame:
            yield frame, start
            continue
        after = keyframes[position + 1]
        share = (frame - here["frame"]) / (after["frame"] - here["frame"])
        if after["outside"]:
            share = 0.0
        left, top, right, bottom = (
            a + (b - a) * share for a, b in zip(start, _corners(after), strict=True)
        )
        yield frame, (left, top, right, bottom)
