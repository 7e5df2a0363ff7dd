"""What the server has of a task, and what an import would change: a table for the dry run."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfod.check.references.cvat_task import shown
from tfod.check.reporters.escaping import in_columns
from tfod.detection.losses import listed
from tfod.formats.cvat_shapes import BOX, KINDS, CvatShape, CvatTag, make_shape

_Key = tuple[str, str, tuple[int, ...]]
"""Class, kind and corners of a shape: what makes it the same as another on its frame."""
_COLUMNS = ("class", "now", "in the file", "added", "removed")


@dataclass
class Held:
    """What the server has of a task or a job.

    Attributes:
        keys: of the shapes and tags on each frame.
        others: shapes and tracks that no shard can hold, by kind.
        frames: numbers of the frames that have annotations, also those where a track shows.
        tracks: how many tracks there are besides those among the others.
    """

    keys: dict[int, Counter[_Key]] = field(default_factory=lambda: defaultdict(Counter))
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
        for one in annotations["shapes"]:
            held.frames.add(one["frame"])
            if one["type"] not in KINDS:
                held.others[one["type"]] += 1
                continue
            label, rotation = names.get(one["label_id"], ""), one.get("rotation") or 0.0
            key = _key(make_shape(one["type"], one["points"], rotation, label=label))
            held.keys[one["frame"]][key] += 1
        for one in annotations["tags"]:
            held.frames.add(one["frame"])
            held.keys[one["frame"]][_key(CvatTag(names.get(one["label_id"], "")))] += 1
        for track in annotations["tracks"]:
            keyframes = sorted((one["frame"], one["outside"]) for one in track["shapes"])
            held.frames |= shown(keyframes, there)
            kind = track["shapes"][0]["type"] if track["shapes"] else "empty"
            if kind in KINDS:
                held.tracks += 1
            else:
                held.others[f"{kind} tracks"] += 1
        held.frames.intersection_update(there)
        return held


class Changes:
    """Collects the comparison of a file with what the server has, frame by frame."""

    def __init__(self, held: Held, append: bool) -> None:
        self._held = held
        self._append = append
        # By class and kind: on the server, in the file, added, removed.
        self._rows: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def compare(self, frame: int, file: Iterable[CvatShape | CvatTag]) -> None:
        """Add what the file has for a frame."""
        self._compare(self._held.keys.pop(frame, Counter()), Counter(map(_key, file)))

    def _compare(self, here: Counter[_Key], there: Counter[_Key]) -> None:
        for key in here.keys() | there.keys():
            now, file = here[key], there[key]
            counts = now, file, max(0, file - now), max(0, now - file)
            if self._append:
                counts = now, file, file, 0
            row = self._rows[key[:2]]
            row[:] = (a + b for a, b in zip(row, counts, strict=True))

    def text(self) -> str:
        """A table, one line a class and kind; last, when all frames were compared."""
        for left in self._held.keys.values():  # frames that no record is for
            self._compare(left, Counter())
        others, tracks = self._held.others, self._held.tracks
        if not self._rows and not others and not tracks:
            return "no annotations, neither on the server nor in the file"
        rows = (
            (f"{label} ({kind})", *map(str, row))
            for (label, kind), row in sorted(self._rows.items())
        )
        lines = [*in_columns([_COLUMNS, *rows])]
        if others and not self._append:
            lines.append(f"also removed: {listed(others)}")
        if tracks and not self._append:
            lines.append(f"tracks that become single shapes, one a frame: {tracks}")
        return "\n".join(lines)


def _key(one: CvatShape | CvatTag) -> _Key:
    """What a shape or a tag is compared by: its corners in whole pixels.

    What a shard's numbers cannot hold of a hundredth is left out.
    """
    if isinstance(one, CvatTag):
        return one.label, "tag", ()
    turned = "rotated " if one.kind == BOX and one.rotation else ""
    corners = tuple(math.floor(round(side, 2) + 0.5) for side in one.corners)
    return one.label, turned + one.kind, corners
