"""``tfod show``: a contact sheet of images with their boxes, as PNG or HTML."""

from __future__ import annotations

import argparse
import os
import re

from tfod.check.findings.finding import plural
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.html.drawing import can_show
from tfod.check.sources.search import take_inventory
from tfod.cli.command_line import (
    Commands,
    add_label_map,
    add_number,
    begin_file,
    named_profile,
    print_line,
    print_note,
)
from tfod.errors import TfodError
from tfod.shards.sheet import Choice, chosen_tiles, paint_sheet, render_page
from tfod.shards.sheet.choice import Seen

_ENDINGS = (".png", ".html")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z", re.ASCII)
_MOST = 10_000
_MOST_NAMES = 5


def add_parser(commands: Commands) -> None:
    """Add ``show`` to the commands."""
    parser = commands.add_parser(
        "show",
        help="draw images with their boxes on a contact sheet",
        description="Draw a contact sheet of images with their boxes, masks, keypoints and "
        "classes; below each the record's number and the file name.",
    )
    add = parser.add_argument
    text = "a shard, a folder, a glob, a zip, an fsspec URL, or -"
    add("source", metavar="SOURCE", help=text)
    text = "a .png, or a .html that is one file (default: sheet.png)"
    add("-o", "--output", default="sheet.png", metavar="FILE", help=text)
    which = parser.add_mutually_exclusive_group()
    add_number(which, "--first", "the first N records (default: 24)", most=_MOST)
    text = "records by number: 3,7-9 (one shard)"
    which.add_argument("--records", type=_numbers, metavar="LIST", help=text)
    add_number(which, "--random", "N records at random", most=_MOST)
    add("--seed", type=int, default=0, metavar="S", help="of --random (default: 0)")
    add("--class", dest="class_name", metavar="NAME", help="only records with this class")
    add_label_map(parser)
    add("--profile", metavar="NAME|FILE", help="as for tfod check; the best fit otherwise")
    add_number(parser, "--columns", "beside each other (default: 4)", 4, most=_MOST)
    add("--overwrite", action="store_true", help="replace a FILE that is there")
    parser.set_defaults(run=_run)


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            what = "is neither a number nor a range such as 7-9"
            raise argparse.ArgumentTypeError(f"{part!r} {what}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST:
            raise argparse.ArgumentTypeError(f"{part!r} is not a range of 1 to {_MOST:,} records")
        found.update(range(first, last + 1))
    return frozenset(found)


def _run(options: argparse.Namespace) -> int:
    ending = os.path.splitext(options.output)[1].lower()
    if ending not in _ENDINGS:
        raise TfodError(f"-o {options.output}: a sheet ends in .png or .html")
    choice = Choice(
        options.first or 24, options.records, options.random, options.seed, options.class_name
    )
    seen = Seen()
    with begin_file(options.output, overwrite=options.overwrite) as file:
        with take_inventory([options.source]) as inventory:
            profile = named_profile(options.profile)
            tiles = list(chosen_tiles(inventory, choice, options.label_map, seen, profile))
        if not tiles:
            if seen.damage is not None:
                raise seen.damage.to_error()
            raise TfodError(f"{options.source}: no record to show; tfod check says what is wrong")
        if ending == ".png":
            file.write(paint_sheet(tiles, options.columns))
        else:
            title = os.path.basename(os.path.normpath(options.source)) or options.source
            file.write(render_page(tiles, title, options.columns).encode("utf-8", "replace"))
    boxes = sum(len(tile.sample.boxes) for tile in tiles)
    print_line(f"{options.output}: {plural(len(tiles), 'record')}, {plural(boxes, 'box')}")
    if seen.unreadable:
        print_note(f"{plural(seen.unreadable, 'damaged record')} skipped; tfod check lists them")
    if ending == ".png":
        names = dict.fromkeys(visible(name) for tile in tiles for name in tile.sample.classes)
        lacking = [name for name in names if not can_show(name)][:_MOST_NAMES]
        if lacking:
            print_note(
                f"no font here has all letters of {', '.join(lacking)}; "
                "install one, or write a .html"
            )
    return 0
