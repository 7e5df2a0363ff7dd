"""``tfod diff``: what differs between two datasets."""

from __future__ import annotations

import argparse
import glob
import math

from tfod.cli.arguments import Arguments, Parser, file_name, whole_number
from tfod.cli.output import begin_output, files_among
from tfod.formats.options import OddBoxes
from tfod.formats.options import Options as ReadOptions
from tfod.formats.table import FORMATS
from tfod.shards.diff.diff import PIXEL


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
    from tfod.shards.diff.diff import Options, diff
    from tfod.shards.diff.result import render_json, render_text

    options = Options(
        (arguments.from_a, arguments.from_b),
        ReadOptions(
            arguments.label_map,
            arguments.images,
            no_images="images" in arguments.ignore,
            masks="masks" not in arguments.ignore,
            odd_boxes=OddBoxes.KEEP,
        ),
        arguments.tolerance,
        arguments.same_subsets,
        frozenset(arguments.ignore),
        arguments.max_differences,
    )
    sides = (arguments.a, arguments.b)
    read = [path for one in sides for path in glob.glob(one) or [one]]
    read += [*files_among(arguments.label_map), *filter(None, [arguments.images])]
    with begin_output(arguments.output, read) as output:
        found = diff(*sides, options)
        output.write(render_json(found) if arguments.format == "json" else render_text(found))
    return 0 if found.is_equal else 1
