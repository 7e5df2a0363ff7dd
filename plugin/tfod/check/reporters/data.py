"""What the data are like, by subset: tables of text, for a terminal and for the HTML report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfod.check.findings.finding import plural
from tfod.check.findings.report import Report
from tfod.check.records.figures.details import AREAS, RATIOS, Details
from tfod.check.records.figures.statistics import GRID, Statistics
from tfod.check.reporters.escaping import in_columns, shortened_name
from tfod.check.reporters.groups import group_findings
from tfod.check.reporters.text import group_lines
from tfod.check.reporters.wording import amounts

_MOST_CLASSES, _MOST_SIZES, _MOST_SUBSETS = 20, 5, 6
_MEDIUM, _LARGE = AREAS - 1 - 12, AREAS - 1 - 6  # bins from 2**-6 and 2**-3 of the image on
_HIGH, _FLAT = RATIOS // 2 - 4, RATIOS // 2 + 4  # bins from 1 : 2 and from 2 : 1 on


@dataclass(frozen=True)
class Table:
    """Figures by subset: of each row its label and a text for each column.

    ``marks_none`` says that a 0 stands out: of a class that a subset lacks.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    rest: str = ""
    marks_none: bool = False


def subsets_of(report: Report) -> dict[str, Statistics]:
    """The subsets with most images; of several datasets with the dataset's name in front."""
    several = len(report.datasets) > 1
    found = {
        f"{dataset.name}: {name}" if several else name: one
        for dataset in report.datasets
        for name, one in dataset.subsets.items()
        if one.boxes_in_image.any()
    }
    chosen = sorted(found, key=lambda name: (-found[name].boxes_in_image.sum(), name))
    return {name: found[name] for name in chosen[:_MOST_SUBSETS]}


def tables(report: Report) -> Iterator[Table]:
    """All tables: with a column for each subset where there are several, and one for all."""
    subsets = subsets_of(report)
    shown = [report.statistics, *(subsets.values() if len(subsets) > 1 else ())]
    names = ["all", *(map(shortened_name, subsets) if len(subsets) > 1 else ())]
    yield Table("Images", names, _rows(_IMAGES, shown))
    classes = "Classes: boxes, and their share"
    counted = _counted(classes, names, shown, lambda one: one.classes, _MOST_CLASSES)
    yield replace(counted, marks_none=True)
    if report.statistics.details is not None:
        yield Table("Boxes", names, _rows(_BOXES, shown))
    yield _counted("Image sizes, width x height", names, shown, _sizes, _MOST_SIZES)


def _rows(
    figures: Mapping[str, Callable[[Statistics], str]], shown: Sequence[Statistics]
) -> list[tuple[str, Sequence[str]]]:
    return [(label, [figure(one) for one in shown]) for label, figure in figures.items()]


def _counted(
    title: str,
    names: Sequence[str],
    shown: Sequence[Statistics],
    counts_of: Callable[[Statistics], Mapping[str, int]],
    most: int,
) -> Table:
    """A row for each of the most frequent names."""
    counts = [counts_of(one) for one in shown]
    totals = [sum(one.values()) for one in counts]
    ordered = sorted(counts[0], key=lambda name: (-counts[0][name], name))
    rows = [
        (
            shortened_name(name) or "(none)",
            [
                f"{one.get(name, 0):,} {_percent(one.get(name, 0), total)}"
                for one, total in zip(counts, totals, strict=True)
            ],
        )
        for name in ordered[:most]
    ]
    left = len(ordered) - len(rows)
    return Table(title, names, rows, f"and {left:,} more" if left else "")


def _percent(count: int, total: int) -> str:
    share = 100 * count / total if total else 0
    return f"({'<1' if 0 < share < 0.5 else f'{share:.0f}'} %)"


def _sizes(one: Statistics) -> Mapping[str, int]:
    return {f"{width} x {height}": n for (height, width), n in one.image_sizes.items()}


def _images(one: Statistics) -> int:
    return int(one.boxes_in_image.sum())


def _boxes(one: Statistics) -> int:
    return sum(one.classes.values())


def _formats(one: Statistics) -> str:
    found = one.details.formats if one.details else Counter[str]()
    names = [shortened_name(name) or "unknown" for name, _ in found.most_common(3)]
    return ", ".join(names) or "unknown"


_IMAGES: Mapping[str, Callable[[Statistics], str]] = {
    "images": lambda one: f"{_images(one):,}",
    "without objects": lambda one: _share(one.boxes_in_image, slice(0, 1)),
    "objects, on average": lambda one: f"{_boxes(one) / max(1, _images(one)):.1f}",
    "objects, at most": lambda one: _most_objects(one.boxes_in_image),
    "formats": _formats,
}


def _most_objects(counts: np.ndarray) -> str:
    most = int(np.max(np.flatnonzero(counts), initial=0))
    return f"{most}{' or more' if most == len(counts) - 1 else ''}"


def _share(counts: np.ndarray, part: slice) -> str:
    count = int(counts[part].sum())
    return f"{count:,} {_percent(count, int(counts.sum()))}"


def _of(name: str, part: slice) -> Callable[[Statistics], str]:
    return lambda one: _share(getattr(one.details or Details(), name), part)


def _placed(rows: slice, cells: slice) -> Callable[[Statistics], str]:
    def share(one: Statistics) -> str:
        count = int(one.centres[rows, cells].sum())
        return f"{count:,} {_percent(count, int(one.centres.sum()))}"

    return share


_BOXES: Mapping[str, Callable[[Statistics], str]] = {
    "boxes": lambda one: f"{_boxes(one):,}",
    "small, below 32 x 32 pixels": _of("pixel_sizes", slice(0, 1)),
    "medium, below 96 x 96": _of("pixel_sizes", slice(1, 2)),
    "large": _of("pixel_sizes", slice(2, 3)),
    "cover less than 1.6 % of the image": _of("areas", slice(0, _MEDIUM)),
    "cover 1.6 to 12.5 %": _of("areas", slice(_MEDIUM, _LARGE)),
    "cover 12.5 % or more": _of("areas", slice(_LARGE, AREAS)),
    "width : height below 1 : 2": _of("ratios", slice(0, _HIGH)),
    "width : height from 2 : 1 on": _of("ratios", slice(_FLAT, RATIOS)),
    "centre in the left half": _placed(slice(None), slice(0, GRID // 2)),
    "centre in the upper half": _placed(slice(0, GRID // 2), slice(None)),
}


def render_data(report: Report, *, color: bool) -> str:
    """Write what the data are like, and the hints, as text for a terminal."""
    hints = [one for one in group_findings(report) if one.code.startswith("DAT")]
    others = sum(n for code, n in report.counts.by_code.items() if not code.startswith("DAT"))
    lines = [f"Read: {amounts(report.counts)}"]
    for table in tables(report):
        if table.rows:
            lines += ["", *_lines(table)]
    number = sum(len(one.subsets) for one in report.datasets)
    if number > _MOST_SUBSETS:
        lines += ["", f"Shown: the {_MOST_SUBSETS} largest of {number} subsets; JSON has more"]
    lines += ["", plural(sum(one.total for one in hints), "hint")]
    for one in hints:
        lines += ["", *group_lines(one, color)]
    if others:
        lines += ["", f"tfod check reports {plural(others, 'finding')} more"]
    return "\n".join(lines) + "\n"


def _lines(table: Table) -> Iterator[str]:
    indented = [(f"  {label}", *cells) for label, cells in table.rows]
    yield from in_columns([(table.title, *table.columns), *indented])
    if table.rest:
        yield f"  {table.rest}"
