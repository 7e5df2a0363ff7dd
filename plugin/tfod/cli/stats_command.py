"""``tfod stats``: what the data are like, by subset, and the hints on it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tfod.cli.check_command import add_reading_options, add_samples, reading_options, run_check
from tfod.cli.command_line import Commands
from tfod.cli.outputs import add_output_options


def add_parser(commands: Commands) -> None:
    """Add ``stats`` to the commands."""
    parser = commands.add_parser(
        "stats",
        help="say what the data are like: classes, box and image sizes by subset",
        description="Count classes, sizes, positions and shapes of boxes, sizes and formats of "
        "images, and objects in an image, by subset; and give hints on what is odd about them "
        "(the rules DAT). JSON and HTML are the report of tfod check --hints. Exit status 0 "
        "unless it could not run: 2.",
    )
    text = "a shard, a set or a glob of shards, a folder, a zip, an fsspec URL, or -"
    parser.add_argument("sources", metavar="SOURCE", nargs="+", help=text)
    add_reading_options(parser)
    group = parser.add_argument_group("what comes out")
    add_output_options(group, ("text", "json", "html"))
    add_samples(group)
    parser.set_defaults(run=_run, data_first=True)


def _run(arguments: argparse.Namespace) -> int:
    from tfod.check.reporters.data import render_data

    options = replace(reading_options(arguments), hints=True)
    run_check(arguments, options, lambda report, output: render_data(report, color=output.color))
    return 0
