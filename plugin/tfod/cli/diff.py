"""``tfod diff``: what differs between two datasets."""

from __future__ import annotations

import argparse
import glob
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from tfod.checker.finding import plural
from tfod.checker.reporters.escaping import escape_json, visible
from tfod.cli.arguments import (
    Parser,
    add_label_map,
    add_output,
    add_profile,
    named_profile,
    not_empty,
    whole_number,
)
from tfod.cli.printing import begin_output, files_among
from tfod.formats.options import OddBoxes, Options
from tfod.formats.table import FORMATS
from tfod.shards.diff import PIXEL, Diff, Difference, Side, read_side

_CHANGES = (
    *("record_added", "record_removed", "record_renamed", "record_moved"),
    *("image_added", "image_removed", "image_changed", "size_changed"),
    *("box_added", "box_removed", "box_moved", "box_relabelled", "value_changed"),
    *("class_added", "class_removed", "class_renamed", "class_renumbered"),
)
"""From A to B, in the order in which they are counted; a record is moved to another subset."""
_VERSION = 2
"""Of the JSON; it goes up when a key changes or goes."""


def add_arguments(parser: Parser) -> None:
    """What ``diff`` takes."""
    parser.description = (
        "Compare two datasets: records, images, boxes, classes and other values. "
        "Exit status 0: equal; 1: different; 2: they could not be compared."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "shards (a shard, a folder, a glob, a zip), or another format that tfod convert reads"
    add("a", metavar="A", help=text, type=not_empty)
    add("b", metavar="B", help="likewise: what is compared with A", type=not_empty)
    text = "the format of A, where the path does not say it: %(choices)s"
    add("--from-a", metavar="FORMAT", help=text, choices=FORMATS)
    add("--from-b", metavar="FORMAT", help="likewise of B", choices=FORMATS)
    add_label_map(add, "a label map for all records of both")
    add_profile(add)
    add("--images", metavar="FOLDER", help="the images of annotations that are not shards")
    text = f"pixels that sides of boxes may be off (default: {PIXEL}: a pixel, and rounding)"
    add("--tolerance", metavar="PIXELS", help=text, type=_pixels, default=PIXEL)
    text = "do not compare these: masks, keypoints, captions, names of attributes, or images"
    add("--ignore", metavar="NAME", help=text, action="append", default=[])
    add("--same-subsets", action="store_true", help="a record in another subset is a difference")
    text = "list so many of each change; all are counted (default: 100)"
    add("--max-differences", metavar="N", help=text, type=whole_number(), default=100)
    add_output(add, formats=("text", "json"))


def _pixels(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of pixels")
    return number


def _run(arguments: argparse.Namespace) -> int:
    profile = named_profile(arguments.profile)
    options = Options(
        arguments.label_map,
        arguments.images,
        no_images="images" in arguments.ignore,
        masks="masks" not in arguments.ignore,
        odd_boxes=OddBoxes.KEEP,
        field_mapping=profile.field_mapping if profile else None,
    )
    read = [path for one in (arguments.a, arguments.b) for path in glob.glob(one) or [one]]
    read += [
        *files_among(arguments.label_map, arguments.profile),
        *filter(None, [arguments.images]),
    ]
    with begin_output(arguments.output, read) as output:
        found = Diff(
            read_side(arguments.a, options, arguments.from_a, "--from-a"),
            read_side(arguments.b, options, arguments.from_b, "--from-b"),
            tolerance=arguments.tolerance,
            same_subsets=arguments.same_subsets,
            ignore=arguments.ignore,
            max_differences=arguments.max_differences,
        )
        if arguments.format == "json":
            document = json.dumps(_json(found), ensure_ascii=False, allow_nan=False, indent=1)
            output.write(escape_json(document) + "\n")
        else:
            output.write("".join(f"{visible(line)}\n" for line in _lines(found)))
    return 0 if found.is_equal else 1


def _json(found: Diff) -> dict[str, Any]:
    """What ``docs/diff.schema.json`` describes."""
    return {
        "tfod_diff": _VERSION,
        "equal": found.is_equal,
        "a": _summary(found.a),
        "b": _summary(found.b),
        "tolerance": found.tolerance,
        "counts": {change: found.counts[change] for change in _CHANGES},
        "values": found.values,
        "differences": [one._asdict() for one in found.listed],
        "notes": found.notes,
    }


def _summary(side: Side) -> dict[str, Any]:
    boxes = sum(len(one.boxes) for one in side.records)
    counts = {"records": len(side.records), "boxes": boxes}
    return {"path": side.path, "format": side.format, **counts}


def _lines(found: Diff) -> Iterator[str]:
    """The verdict, the two sides, and what differs by image."""
    verdict = "EQUAL" if found.is_equal else "DIFFERENT"
    yield f"{verdict}: {_counted(found.counts) or 'no differences'}"
    for letter, side in (("A", found.a), ("B", found.b)):
        boxes = sum(len(record.boxes) for record in side.records)
        amounts = f"{plural(len(side.records), 'record')}, {plural(boxes, 'box')}"
        label_maps = f"; label map: {', '.join(side.label_maps)}" if side.label_maps else ""
        yield f"{letter}: {side.path} ({side.format}): {amounts}{label_maps}"
    if found.values:
        counts = (f"{name} ({count:,})" for name, count in sorted(found.values.items()))
        yield from ("", f"Values changed: {', '.join(counts)}")
    for (subset, image), some in groupby(found.listed, lambda one: (one.subset, one.image)):
        yield from ("", f"{subset}: {image:.80}" if image else "classes")
        yield from (f"  {_line(one)}" for one in some)
    rest = _counted(found.counts - Counter(one.change for one in found.listed))
    if rest:
        yield from ("", f"Not listed: {rest} (see --max-differences)")
    if found.notes:
        yield from ("", *(f"Note: {note}" for note in found.notes))


def _line(one: Difference) -> str:
    """``box moved: 'cat' (1, 2, 3, 4) → 'cat' (2, 2, 4, 4), IoU 0.33``."""
    boxes = " → ".join(map(_box, filter(None, (one.before, one.after))))
    text = one.text or boxes + (f", IoU {one.iou:.2f}" if one.iou is not None else "")
    return one.change.replace("_", " ") + (f": {text}" if text else "")


def _box(box: Mapping[str, Any]) -> str:
    corners = ", ".join(f"{one:.1f}".removesuffix(".0") for one in box["corners"])
    return f"{box['name']!r:.81} ({corners})"


def _counted(counts: Counter[str]) -> str:
    """``1 record added, 2 boxes moved``."""
    parts = [(counts[change], change.split("_")) for change in _CHANGES if counts[change]]
    return ", ".join(f"{plural(count, noun)} {how}" for count, (noun, how) in parts)
