"""What an import would change: shapes and tags on the server, in the file, added and removed."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfod.check.references.cvat_task import shown
from tfod.check.reporters.escaping import in_columns
from tfod.detection.boxes import PixelBox
from tfod.detection.losses import listed
from tfod.formats.cvat_shapes import BOX, KINDS, CvatShape, make_shape

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
class Held:
    """What the server has of a task or a job.

    Attributes:
        keys: of the shapes and tags on each frame, and of tracks as they show there.
        others: shapes that no shard can hold, by kind.
        frames: numbers of the frames that have any of these.
        tracks: how many tracks there are besides those among the others.
    """

    keys: dict[int, list[_Key]] = field(default_factory=lambda: defaultdict(list))
    others: Counter[str] = field(default_factory=Counter)
    frames: set[int] = field(default_factory=set)
    tracks: int = 0

    @classmethod
    def of(cls, annotations: Any, names: Mapping[int, str], frames: Iterable[int]) -> Held:
        """From the annotations of the server's API.

        Args:
            annotations: as the API has them.
            names: of the classes by number.
            frames: that annotations may be on.
        """
        held, there = cls(), sorted(frames)
        for shape in annotations["shapes"]:
            held.frames.add(shape["frame"])
            if shape["type"] in KINDS:
                key = key_of(_shape(shape, names.get(shape["label_id"], "")))
                held.keys[shape["frame"]].append(key)
            else:
                held.others[shape["type"]] += 1
        for track in annotations["tracks"]:
            held._add_track(track, names.get(track["label_id"], ""), there)
        for tag in annotations["tags"]:
            held.frames.add(tag["frame"])
            held.keys[tag["frame"]].append(key_of_tag(names.get(tag["label_id"], "")))
        held.frames.intersection_update(there)
        return held

    def _add_track(self, track: Any, name: str, frames: list[int]) -> None:
        marks = sorted(track["shapes"], key=lambda one: (one["frame"], one["outside"]))
        self.frames |= shown([(one["frame"], one["outside"]) for one in marks], frames)
        kind = marks[0]["type"] if marks else "empty"
        if kind not in KINDS:
            self.others[f"{kind} tracks"] += 1
            return
        self.tracks += 1
        for frame, corners in _shown(marks, frames):
            self.keys[frame].append((*key_of(_shape(marks[0], name))[:2], rounded(corners)))


class Changes:
    """Collects the comparison of a file with what the server has, frame by frame."""

    def __init__(self, held: Held, append: bool) -> None:
        self._held = held
        self._append = append
        self._rows: dict[tuple[str, str], Row] = defaultdict(Row)

    def compare(self, frame: int, file: Iterable[_Key]) -> None:
        """Add what the file has for a frame."""
        self._compare(Counter(self._held.keys.pop(frame, ())), Counter(file))

    def _compare(self, here: Counter[_Key], there: Counter[_Key]) -> None:
        append = self._append
        for key in here.keys() | there.keys():
            row = self._rows[key[:2]]
            row.now += here[key]
            row.file += there[key]
            row.added += there[key] if append else max(0, there[key] - here[key])
            row.removed += 0 if append else max(0, here[key] - there[key])

    def text(self) -> str:
        """A table, one line a class and kind; last, when all frames were compared."""
        for left in self._held.keys.values():  # frames that no record is for
            self._compare(Counter(left), Counter())
        others, tracks = self._held.others, self._held.tracks
        if not self._rows and not others:
            return "no annotations, neither on the server nor in the file"
        rows = (
            (f"{label} ({kind})", *map(str, dataclasses.astuple(row)))
            for (label, kind), row in sorted(self._rows.items())
        )
        table = [("class", "now", "in the file", "added", "removed"), *rows]
        text = "\n".join(in_columns(table))
        if others and not self._append:
            text += f"\nalso removed: {listed(others)}"
        if tracks and not self._append:
            text += f"\ntracks that become single shapes, one a frame: {tracks}"
        return text


def key_of(shape: CvatShape) -> _Key:
    """What a shape is compared by."""
    turned = "rotated " if shape.kind == BOX and shape.rotation else ""
    return shape.label, turned + shape.kind, rounded(shape.corners)


def key_of_tag(label: str) -> _Key:
    """What a class of the whole image is compared by."""
    return label, "tag", ()


def rounded(corners: PixelBox) -> tuple[int, ...]:
    """Corners in whole pixels. What a shard's numbers cannot hold of a hundredth is left out."""
    return tuple(math.floor(round(value, 2) + 0.5) for value in corners)


def _shape(shape: Any, label: str) -> CvatShape:
    """A shape of the API."""
    return make_shape(shape["type"], shape["points"], shape.get("rotation") or 0.0, label=label)


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
        start = _shape(here, "").corners
        if position + 1 == len(keyframes) or here["frame"] == frame:
            yield frame, start
            continue
        after = keyframes[position + 1]
        share = (frame - here["frame"]) / (after["frame"] - here["frame"])
        if after["outside"]:
            share = 0.0
        left, top, right, bottom = (
            a + (b - a) * share for a, b in zip(start, _shape(after, "").corners, strict=True)
        )
        yield frame, (left, top, right, bottom)
