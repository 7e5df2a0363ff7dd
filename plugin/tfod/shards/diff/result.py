"""What a comparison found, counted, and the first of each; as text for a terminal, and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from tfod.check.findings.finding import plural
from tfod.check.reporters.escaping import escape_json, in_columns, visible

if TYPE_CHECKING:
    from tfod.shards.diff.side import Side

_MOST_ROWS = 20  # of a table of text
DIFF_VERSION = 1
"""Of the JSON; it goes up when a key changes or goes."""
CHANGES = {
    "record_added": "record added",
    "record_removed": "record removed",
    "record_renamed": "record renamed",
    "record_moved": "record in another subset",
    "image_added": "image added",
    "image_removed": "image removed",
    "image_changed": "image changed",
    "size_changed": "size changed",
    "box_added": "box added",
    "box_removed": "box removed",
    "box_moved": "box moved",
    "box_relabelled": "box relabelled",
    "value_changed": "value changed",
    "class_added": "class added",
    "class_removed": "class removed",
    "class_renamed": "class renamed",
    "class_renumbered": "class renumbered",
}
"""The changes by name, from A to B; in the order in which they are listed."""


@dataclass(frozen=True)
class Box:
    """A box of one side: its number in the record, its class, and its sides in pixels."""

    number: int
    name: str
    corners: tuple[float, float, float, float]

    @staticmethod
    def at(number: int, names: Sequence[str], boxes: np.ndarray) -> Box:
        """One of the boxes of a record, which are float64 of shape (n, 4)."""
        x1, y1, x2, y2 = boxes[number].round(3).tolist()
        return Box(number, names[number], (x1, y1, x2, y2))

    def __str__(self) -> str:
        corners = ", ".join(f"{one:.1f}".removesuffix(".0") for one in self.corners)
        return f"{self.name!r} ({corners})"


@dataclass(frozen=True)
class Difference:
    """One difference.

    Attributes:
        change: one of :data:`CHANGES`.
        subset, image: where; of a record on both sides as A has them. Empty of classes.
        text: what is different, where it is not a box.
        before, after: the box on either side.
        iou: of the two, where there are two.
        rows: the record's number on either side, from 0; None where it has none.
    """

    change: str
    subset: str = ""
    image: str = ""
    text: str = ""
    before: Box | None = None
    after: Box | None = None
    iou: float | None = None
    rows: tuple[int | None, int | None] = (None, None)

    def __str__(self) -> str:
        """``box moved: 'cat' (1, 2, 3, 4) to (2, 2, 4, 4), IoU 0.33``."""
        boxes = " → ".join(str(one) for one in (self.before, self.after) if one)
        iou = f", IoU {self.iou:.2f}" if self.iou is not None else ""
        text = self.text or boxes + iou
        return CHANGES[self.change] + (f": {text}" if text else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON object; what is not there is null."""
        found = {**vars(self), "records": self.rows}
        del found["rows"]
        return {key: vars(one) if isinstance(one, Box) else one for key, one in found.items()}


@dataclass(frozen=True, eq=False)
class Diff:
    """What a comparison has found, which it adds while it runs.

    Attributes:
        a, b: the sides.
        tolerance: pixels that sides of boxes may be off.
        same_subsets: whether a record in another subset is a difference.
        most: of each change so many are listed.
        counts: of each change.
        values: of each name of ``value_changed``, how many objects and images.
        subsets, classes: by name figures: ``records_a``, ``records_b``, ``boxes_a``, ``boxes_b``,
            and changes.
        listed: the first differences of each change.
        notes: what was not compared, as sentences.
    """

    a: Side
    b: Side
    tolerance: float
    same_subsets: bool
    most: int
    counts: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)
    subsets: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    classes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    listed: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, one: Difference) -> None:
        """Count a difference, and list it if there is room."""
        self.counts[one.change] += 1
        if one.image or one.subset:
            self.subsets[one.subset][one.change] += 1
        for name in {box.name for box in (one.before, one.after) if box}:
            self.classes[name][one.change] += 1
        if self.counts[one.change] <= self.most:
            self.listed.append(one)

    def sort(self, subsets: Sequence[str]) -> None:
        """Put what is listed in the order of the subsets and records."""
        places = {one: number for number, one in enumerate(subsets)}

        def key(one: Difference) -> tuple[float, ...]:
            rows = (math.inf if row is None else row for row in one.rows)
            return (places.get(one.subset, -1), *rows)

        self.listed.sort(key=key)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs that was asked for."""
        return all(one == "record_moved" and not self.same_subsets for one in self.counts)

    @property
    def totals(self) -> str:
        """``1 record added, 2 boxes moved``: all counts."""
        return ", ".join(counted(change, count) for change, count in ordered(self.counts))

    @property
    def tables(self) -> list[list[Sequence[str]]]:
        """The figures by subset and by class: a head, then rows; 0 is empty."""
        return [
            _table("subset", ("record", "image", "box", "value"), self.subsets),
            _table("class", ("box",), self.classes),
        ]

    def to_json(self) -> dict[str, Any]:
        """The JSON that ``docs/diff.schema.json`` describes."""
        sides = {
            name: {
                "path": side.path,
                "format": side.format,
                "records": len(side.records),
                "boxes": side.boxes,
            }
            for name, side in (("a", self.a), ("b", self.b))
        }
        return {
            "tfod_diff": DIFF_VERSION,
            "equal": self.is_equal,
            **sides,
            "tolerance": self.tolerance,
            "counts": {change: self.counts[change] for change in CHANGES},
            "values": self.values,
            "subsets": self.subsets,
            "classes": self.classes,
            "differences": [one.to_json() for one in self.listed],
            "notes": self.notes,
        }


def ordered(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The changes that there are, in the order in which they are listed."""
    return [(change, counts[change]) for change in CHANGES if counts.get(change)]


def counted(change: str, count: int) -> str:
    """``2 boxes moved``."""
    noun, _, rest = CHANGES[change].partition(" ")
    return f"{plural(count, noun)} {rest}"


def _table(
    title: str, nouns: Sequence[str], figures: Mapping[str, Mapping[str, int]]
) -> list[Sequence[str]]:
    """Columns are what the sides have, and those changes that there are."""
    there = {change for found in figures.values() for change, count in found.items() if count}
    own = ["records", "boxes"] if "record" in nouns else ["boxes"]
    changes = [one for one in CHANGES if one in there and one.split("_")[0] in nouns]
    rows: list[Sequence[str]] = [(title, *own, *(CHANGES[one].split(" (")[0] for one in changes))]
    for name, found in figures.items():
        sides = [(found.get(f"{one}_a", 0), found.get(f"{one}_b", 0)) for one in own]
        counts = [f"{a:,}" if a == b else f"{a:,} → {b:,}" for a, b in sides]
        rows.append(
            (name, *counts, *(f"{found[one]:,}" if found.get(one) else "" for one in changes))
        )
    return rows


def render_json(found: Diff) -> str:
    """Write it as JSON, to be saved as UTF-8."""
    document = json.dumps(found.to_json(), ensure_ascii=False, allow_nan=False, indent=1)
    return escape_json(document) + "\n"


def render_text(found: Diff) -> str:
    """Write it as text: the verdict, figures by subset and class, and the listed differences."""
    return "".join(f"{visible(line)}\n" for line in _lines(found))


def _lines(found: Diff) -> Iterator[str]:
    verdict = "EQUAL" if found.is_equal else "DIFFERENT"
    yield f"{verdict}: {found.totals or 'no differences'}"
    for letter, side in (("A", found.a), ("B", found.b)):
        amounts = f"{plural(len(side.records), 'record')}, {plural(side.boxes, 'box')}"
        yield f"{letter}: {side.path} ({side.format}): {amounts}"
    for table in found.tables if found.counts else ():
        yield ""
        yield from _set(table)
    if found.values:
        counts = (f"{name} ({count:,})" for name, count in sorted(found.values.items()))
        yield ""
        yield f"Values changed: {', '.join(counts)}"
    for (subset, image), some in groupby(found.listed, lambda one: (one.subset, one.image)):
        yield ""
        yield f"{subset}: {image}" if image else "classes"
        yield from (f"  {one}" for one in some)
    left = Counter(found.counts)
    left.subtract(one.change for one in found.listed)
    rest = ", ".join(counted(change, count) for change, count in ordered(left))
    if rest:
        yield ""
        yield f"Not listed: {rest} (see --max-differences)"
    if found.notes:
        yield ""
        yield from (f"Note: {note}" for note in found.notes)


def _set(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Set a table in columns, numbers to the right; of many rows only those with differences."""
    head, *rows = [[visible(cell) for cell in row] for row in table]
    if len(rows) > _MOST_ROWS:
        own = 3 if "records" in head else 2
        differing = [row for row in rows if any(row[own:]) or any("→" in one for one in row)]
        rows = differing[:_MOST_ROWS]
    yield from in_columns([head, *rows])
    left = len(table) - 1 - len(rows)
    if left:
        yield f"and {plural(left, 'row')} more"
