"""``tfod diff``: what differs between two datasets."""

from __future__ import annotations

import argparse
import glob
import json
import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tfod.check.findings.finding import plural
from tfod.check.reporters.escaping import escape_json, visible
from tfod.cli.arguments import Arguments, Parser, file_name, whole_number
from tfod.cli.output import begin_output, files_among
from tfod.formats.options import OddBoxes, Options
from tfod.formats.table import FORMATS
from tfod.shards.diff import CHANGES, PIXEL, Box, Diff, Side, read_side

_VERSION = 2
"""Of the JSON; it goes up when a key changes or goes."""


def add_arguments(parser: Parser) -> None:
    """What ``diff`` takes."""
    parser.description = (
        "Compare two datasets: records, images, boxes, classes and other values. "
        "Exit status 0: equal; 1: different; 2: they could not be compared."
    )
    parser.set_defaults(run=_run)
    arguments = Arguments(parser)
    text = "shards (a shard, a folder, a glob, a zip), or another format that tfod convert reads"
    arguments.value("a", "A", text, type=file_name)
    arguments.value("b", "B", "likewise: what is compared with A", type=file_name)
    text = "the format of A, where the path does not say it: %(choices)s"
    arguments.value("--from-a", "FORMAT", text, choices=FORMATS)
    arguments.value("--from-b", "FORMAT", "likewise of B", choices=FORMATS)
    arguments.label_map("a label map for all records of both")
    arguments.value("--images", "FOLDER", "the images of annotations that are not shards")
    text = f"pixels that sides of boxes may be off (default: {PIXEL}: a pixel, and rounding)"
    arguments.value("--tolerance", "PIXELS", text, type=_pixels, default=PIXEL)
    text = "do not compare these: masks, keypoints, captions, names of attributes, or images"
    arguments.value("--ignore", "NAME", text, action="append", default=[])
    arguments.flag("--same-subsets", "a record in another subset is a difference")
    text = "list so many of each change; all are counted (default: 100)"
    arguments.value("--max-differences", "N", text, type=whole_number(), default=100)
    arguments.output(formats=("text", "json"))


def _pixels(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of pixels")
    return number


def _run(arguments: argparse.Namespace) -> int:
    options = Options(
        arguments.label_map,
        arguments.images,
        no_images="images" in arguments.ignore,
        masks="masks" not in arguments.ignore,
        odd_boxes=OddBoxes.KEEP,
    )
    read = [path for one in (arguments.a, arguments.b) for path in glob.glob(one) or [one]]
    read += [*files_among(arguments.label_map), *filter(None, [arguments.images])]
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

    def of_side(side: Side) -> dict[str, Any]:
        counts = {"records": len(side.records), "boxes": side.boxes}
        return {"path": side.path, "format": side.format, **counts}

    return {
        "tfod_diff": _VERSION,
        "equal": found.is_equal,
        "a": of_side(found.a),
        "b": of_side(found.b),
        "tolerance": found.tolerance,
        "counts": {change: found.counts[change] for change in CHANGES},
        "values": found.values,
        "differences": [
            {key: x._asdict() if isinstance(x, Box) else x for key, x in one._asdict().items()}
            for one in found.listed
        ],
        "notes": found.notes,
    }


def _lines(found: Diff) -> Iterator[str]:
    """The verdict, the two sides, and what differs by image."""
    verdict = "EQUAL" if found.is_equal else "DIFFERENT"
    yield f"{verdict}: {_counted(found.counts) or 'no differences'}"
    for letter, side in (("A", found.a), ("B", found.b)):
        amounts = f"{plural(len(side.records), 'record')}, {plural(side.boxes, 'box')}"
        yield f"{letter}: {side.path} ({side.format}): {amounts}"
    if found.values:
        counts = (f"{name} ({count:,})" for name, count in sorted(found.values.items()))
        yield from ("", f"Values changed: {', '.join(counts)}")
    for (subset, image), some in groupby(found.listed, lambda one: (one.subset, one.image)):
        yield from ("", f"{subset}: {image}" if image else "classes")
        yield from (f"  {one}" for one in some)
    rest = _counted(found.counts - Counter(one.change for one in found.listed))
    if rest:
        yield from ("", f"Not listed: {rest} (see --max-differences)")
    if found.notes:
        yield from ("", *(f"Note: {note}" for note in found.notes))


def _counted(counts: Counter[str]) -> str:
    """``1 record added, 2 boxes moved``."""
    parts = [(counts[change], change.split("_")) for change in CHANGES if counts[change]]
    return ", ".join(f"{plural(count, noun)} {how}" for count, (noun, how) in parts)
