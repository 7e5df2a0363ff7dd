"""The command ``tfod diff``."""

from __future__ import annotations

import argparse
import glob
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from tfod import functions
from tfod.checker.finding import plural
from tfod.checker.reporters.escaping import escape_json, visible
from tfod.cli.arguments import (
    Parser,
    add_label_map,
    add_output,
    add_profile,
    not_empty,
    select_arguments,
    whole_number,
)
from tfod.cli.printing import begin_output, existing_files
from tfod.errors import excerpt, truncate
from tfod.formats.table import FORMATS
from tfod.shards.diff import PIXEL, Diff, Difference, Side

_CHANGES = (
    *("record_added", "record_removed", "record_renamed", "record_moved"),
    *("image_added", "image_removed", "image_changed", "size_changed"),
    *("box_added", "box_removed", "box_moved", "box_relabelled", "value_changed"),
    *("class_added", "class_removed", "class_renamed", "class_renumbered"),
)
"""The kinds of changes from A to B, in the order of the report. Records move between subsets."""
_VERSION = 2
"""The version of the JSON, which increases when a key is changed or removed."""


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``diff``."""
    parser.description = (
        "Compare two datasets: records, images, boxes, classes and other values. "
        "Exit status: 0 if they are equal, 1 if they differ, 2 if the comparison failed."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "a shard, folder, glob or zip, or a dataset in another format that tfod convert reads"
    add("a", metavar="A", help=text, type=not_empty)
    add("b", metavar="B", help="the dataset to compare with A", type=not_empty)
    text = "format of A, if it is ambiguous: %(choices)s"
    add("--from-a", metavar="FORMAT", help=text, choices=FORMATS)
    add("--from-b", metavar="FORMAT", help="format of B, if it is ambiguous", choices=FORMATS)
    add_label_map(add, "a label map for all records of A and B")
    add_profile(add)
    add("--images", metavar="DIR", help="images of the dataset that is not shards")
    text = f"pixels by which box sides may differ (default: {PIXEL}, a pixel plus rounding)"
    add("--tolerance", metavar="PIXELS", help=text, type=_pixels, default=PIXEL)
    text = "do not compare masks, keypoints, captions, images, or an attribute of this name"
    add("--without", metavar="NAME", help=text, action="append", default=[])
    text = "compare only this subset of A and B"
    add("--set", metavar="NAME", help=text, dest="subset", type=not_empty)
    add("--same-subsets", action="store_true", help="report records in different subsets")
    text = "maximum number of differences to list per kind; all are counted (default: 100)"
    add("--max-differences", metavar="N", help=text, type=whole_number(), default=100)
    add_output(add, formats=("text", "json"))


def _pixels(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{excerpt(text)} is not a number of pixels")
    return number


def _run(arguments: argparse.Namespace) -> int:
    sides = (arguments.a, arguments.b)
    inputs = [path for side in sides for path in glob.glob(side) or [side]]
    inputs += existing_files(arguments.label_map, arguments.profile)
    if arguments.images:
        inputs.append(arguments.images)
    with begin_output(arguments.output, inputs) as output:
        diff = functions.diff(
            arguments.a, arguments.b, **select_arguments(functions.diff, arguments)
        )
        if arguments.format == "json":
            document = json.dumps(_to_json(diff), ensure_ascii=False, allow_nan=False, indent=1)
            output.write(escape_json(document) + "\n")
        else:
            output.write("".join(f"{visible(line)}\n" for line in _format_diff(diff)))
    return 0 if diff.is_equal else 1


def _to_json(diff: Diff) -> dict[str, Any]:
    """Return the document that ``docs/diff.schema.json`` describes."""
    return {
        "tfod_diff": _VERSION,
        "equal": diff.is_equal,
        "a": _side_to_json(diff.a),
        "b": _side_to_json(diff.b),
        "tolerance": diff.tolerance,
        "counts": {change: diff.counts[change] for change in _CHANGES},
        "values": diff.values,
        "differences": [difference._asdict() for difference in diff.listed],
        "notes": diff.notes,
    }


def _side_to_json(side: Side) -> dict[str, Any]:
    boxes = sum(len(record.boxes) for record in side.records)
    counts = {"records": len(side.records), "boxes": boxes}
    return {"path": side.path, "format": side.format, **counts}


def _format_diff(diff: Diff) -> Iterator[str]:
    verdict = "EQUAL" if diff.is_equal else "DIFFERENT"
    yield f"{verdict}: {_format_counts(diff.counts) or 'no differences'}"
    for letter, side in (("A", diff.a), ("B", diff.b)):
        boxes = sum(len(record.boxes) for record in side.records)
        counts = f"{plural(len(side.records), 'record')}, {plural(boxes, 'box')}"
        label_maps = f"; label map: {', '.join(side.label_maps)}" if side.label_maps else ""
        yield f"{letter}: {side.path} ({side.format}): {counts}{label_maps}"
    if diff.values:
        values = (f"{name} ({count:,})" for name, count in sorted(diff.values.items()))
        yield from ("", f"Values changed: {', '.join(values)}")
    groups = groupby(diff.listed, lambda difference: (difference.subset, difference.image))
    for (subset, image), differences in groups:
        yield from ("", f"{subset}: {truncate(image)}" if image else "classes")
        yield from (f"  {_format_difference(difference)}" for difference in differences)
    unlisted = _format_counts(diff.counts - Counter(item.change for item in diff.listed))
    if unlisted:
        yield from ("", f"Not listed: {unlisted} (see --max-differences)")
    if diff.notes:
        yield from ("", *(f"Note: {note}" for note in diff.notes))


def _format_difference(difference: Difference) -> str:
    """Format as ``box moved: 'cat' (1, 2, 3, 4) → 'cat' (2, 2, 4, 4), IoU 0.33``."""
    boxes = " → ".join(map(_format_box, filter(None, (difference.before, difference.after))))
    iou = f", IoU {difference.iou:.2f}" if difference.iou is not None else ""
    text = difference.text or boxes + iou
    return difference.change.replace("_", " ") + (f": {text}" if text else "")


def _format_box(box: Mapping[str, Any]) -> str:
    corners = ", ".join(f"{corner:.1f}".removesuffix(".0") for corner in box["corners"])
    return f"{excerpt(box['name'])} ({corners})"


def _format_counts(counts: Counter[str]) -> str:
    """Format as ``1 record added, 2 boxes moved``."""
    parts = [(counts[change], change.split("_")) for change in _CHANGES if counts[change]]
    return ", ".join(f"{plural(count, noun)} {verb}" for count, (noun, verb) in parts)
