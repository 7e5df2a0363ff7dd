"""``tfod diff``: what differs between two datasets."""

from __future__ import annotations

import argparse
import glob
import math

from tfod.cli.command_line import Commands, add_number, file_name
from tfod.cli.create_command import add_image_policy, policy_of
from tfod.cli.outputs import add_output_options, begin_output, files_among
from tfod.shards.convert.formats import FORMATS, ReadOptions
from tfod.shards.diff.box_pairs import PIXEL


def add_parser(commands: Commands) -> None:
    """Add ``diff`` to the commands."""
    parser = commands.add_parser(
        "diff",
        help="compare two datasets: shards, or shards and what they were made from",
        description="Compare two datasets: records, images, boxes, classes and other values. "
        "Exit status 0: equal; 1: different; 2: they could not be compared.",
    )
    add = parser.add_argument
    text = "shards (a shard, a folder, a glob, a zip), or another format that tfod convert reads"
    add("a", type=file_name, metavar="A", help=text)
    add("b", type=file_name, metavar="B", help="likewise: what is compared with A")
    text = "the format of A, where the path does not say it: %(choices)s"
    add("--from-a", choices=FORMATS, metavar="FORMAT", help=text)
    add("--from-b", choices=FORMATS, metavar="FORMAT", help="likewise of B")
    add("--label-map", metavar="FILE|NAME", help="a label map for all records of both")
    add("--images", metavar="FOLDER", help="the images of annotations that are not shards")
    text = f"pixels that sides of boxes may be off (default: {PIXEL}: a pixel, and rounding)"
    add("--tolerance", type=_pixels, default=PIXEL, metavar="PIXELS", help=text)
    text = "do not compare these: masks, keypoints, captions, names of attributes, or images"
    add("--ignore", action="append", default=[], metavar="NAME", help=text)
    add("--same-subsets", action="store_true", help="a record in another subset is a difference")
    text = "list so many of each change; all are counted (default: 100)"
    add_number(parser, "--max-differences", text, 100, least=0)
    add_output_options(parser, ("text", "json"))
    add_image_policy(parser)
    parser.set_defaults(run=_run, odd_boxes="keep")


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
        ReadOptions(arguments.label_map, arguments.images, policy_of(arguments)),
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
